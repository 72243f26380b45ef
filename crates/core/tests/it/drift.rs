//! What somebody else changes outside, over clouds that take one wish at a time and many at once.

use std::time::{Duration, Instant};

use groundcrew_core::provider::{ErrorKind, Owner, ProviderError};
use groundcrew_core::service::names;
use groundcrew_core::testing::MemoryCloud;
use groundcrew_testkit::controller::metric;
use groundcrew_testkit::eventually;
use k8s_openapi::api::core::v1::Service;
use serde_json::json;

use crate::harness::{Controller, Lab, SOON};
use crate::trouble::events;

/// The same on both kinds of cloud.
async fn labs(name: &str) -> [Lab; 2] {
    let mut together = Lab::new(&format!("{name}-together")).await;
    together.cloud = MemoryCloud::sharing_writes();
    [Lab::new(&format!("{name}-alone")).await, together]
}

pub(crate) async fn serve(lab: &Lab, name: &str) {
    lab.slice(name, name, 80, &[("10.0.0.1", json!({}))]).await;
    lab.create(name, json!({}), json!({})).await;
    lab.until_reason(name, "Served").await;
}

async fn counted(controller: &Controller, name: &str) -> u64 {
    // A series that was never counted is not there yet.
    let value = metric(controller.admin, name).await.unwrap_or(0.0);
    format!("{value:.0}").parse().unwrap()
}

pub(crate) async fn until_told(lab: &Lab, about: &str, reason: &str) -> String {
    eventually(&format!("an Event {reason} about {about}"), SOON, async || {
        let told = events(lab, about).await;
        let found = told.iter().find(|(found, _)| found == reason);
        found.map(|(_, note)| note.clone()).ok_or_else(|| format!("{told:?}"))
    })
    .await
    .unwrap()
}

async fn until_scanned(controller: &Controller, times: u64) {
    let scans = "groundcrew_service_full_scans_total";
    let before = counted(controller, scans).await;
    eventually("a few more scans", SOON, async || match counted(controller, scans).await {
        now if now >= before + times => Ok(()),
        now => Err(now),
    })
    .await
    .unwrap();
}

fn flapping(service: &Service) -> Option<String> {
    let conditions = service.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|c| c.type_ == names::DRIFT_FLAPPING).map(|c| c.status.clone())
}

const MISSED: &str = "groundcrew_service_missed_changes_total";
const FOUND: &str = r#"groundcrew_drift_found_total{cause="unknown_writer",kind="missing"}"#;
const REPAIRED: &str = r#"groundcrew_drift_repaired_total{cause="unknown_writer",kind="missing"}"#;
/// How long the first hold of a Service lasts that somebody changes again and again.
const FIRST_HOLD: Duration = Duration::from_secs(10);

#[tokio::test]
async fn what_was_taken_behind_our_back_is_put_back_and_then_told() {
    for lab in labs("taken").await {
        let controller = lab.controller(&[]).await;
        serve(&lab, "web").await;
        lab.cloud.lose(&lab.key("web"), true);
        lab.until_cloud("it is back", |cloud| cloud.load_balancer(&lab.key("web")).is_some()).await;
        let note = until_told(&lab, "web", "DriftRepaired").await;
        assert!(note.starts_with("missing changed by an unknown writer; put right after"), "{note}");
        assert_eq!((counted(&controller, FOUND).await, counted(&controller, REPAIRED).await), (1, 1));
        controller.stop().await;
    }
}

#[tokio::test]
async fn what_was_taken_while_nobody_could_see_is_drift_too() {
    for lab in labs("unseen").await {
        let controller = lab.controller(&[]).await;
        serve(&lab, "web").await;
        // The look that is told of it cannot tell, and what it does about it can see again.
        lab.cloud.blind(2);
        lab.cloud.lose(&lab.key("web"), true);
        lab.until_cloud("it is back", |cloud| cloud.load_balancer(&lab.key("web")).is_some()).await;
        until_told(&lab, "web", "DriftRepaired").await;
        assert_eq!((counted(&controller, FOUND).await, counted(&controller, REPAIRED).await), (1, 1));
        controller.stop().await;
    }
}

#[tokio::test]
async fn a_cloud_that_can_only_be_listed_is_verified_by_its_listings() {
    let mut lab = Lab::new("polled").await;
    lab.cloud = MemoryCloud::polled(Duration::from_millis(100));
    let controller = lab.controller(&["--scan-interval", "300ms"]).await;
    serve(&lab, "web").await;
    lab.cloud.lose(&lab.key("web"), false);
    lab.until_cloud("it is back", |cloud| cloud.load_balancer(&lab.key("web")).is_some()).await;
    until_told(&lab, "web", "DriftRepaired").await;
    assert_eq!((counted(&controller, FOUND).await, counted(&controller, REPAIRED).await), (1, 1));
    until_scanned(&controller, 3).await;
    assert_eq!(counted(&controller, MISSED).await, 0, "the listing told it");
    controller.stop().await;
}

#[tokio::test]
async fn a_new_wish_is_no_drift() {
    for lab in labs("wish").await {
        let controller = lab.controller(&[]).await;
        serve(&lab, "web").await;
        lab.slice("web", "web", 80, &[("10.0.0.2", json!({}))]).await;
        let moved = |cloud: &MemoryCloud| {
            let backends = cloud.load_balancer(&lab.key("web")).unwrap().frontends[0].backends.clone();
            backends[0].address.to_string() == "10.0.0.2"
        };
        lab.until_cloud("the backend has moved", moved).await;
        // Something that surely is drift comes after it, and is alone in the reports.
        lab.cloud.lose(&lab.key("web"), true);
        until_told(&lab, "web", "DriftRepaired").await;
        let metrics = controller.get("/metrics").await.1;
        assert!(!metrics.contains(r#"kind="changed""#), "{metrics}");
        controller.stop().await;
    }
}

#[tokio::test]
async fn many_losses_are_put_right_in_one_write_and_told_in_one_summary() {
    let [_, lab] = labs("mass").await;
    let controller = lab.controller(&[]).await;
    let names: Vec<_> = (0..12).map(|n| format!("web-{n}")).collect();
    for name in &names {
        serve(&lab, name).await;
    }
    controller.stop().await;
    // A new process has written nothing whose echo could have one of them looked at, and put right, by itself.
    let controller = lab.controller(&[]).await;
    let looks = r#"groundcrew_service_reconciles_total{outcome="ok"}"#;
    eventually("all were looked at", SOON, async || match counted(&controller, looks).await {
        now if now >= 12 => Ok(()),
        now => Err(now),
    })
    .await
    .unwrap();
    let writes = lab.cloud.writes();
    lab.cloud.lose_all();
    lab.until_cloud("all are back", |cloud| cloud.count() == names.len()).await;
    assert_eq!(lab.cloud.writes() - writes, 1);
    let note = until_told(&lab, "groundcrew-test", "MassDrift").await;
    assert!(note.starts_with("12 Services were changed by an unknown writer: missing; put right after"), "{note}");
    until_told(&lab, "web-7", "DriftRepaired").await;
    assert_eq!(counted(&controller, r#"groundcrew_drift_mass_total{cause="unknown_writer"}"#).await, 1);
    controller.stop().await;
}

#[tokio::test]
async fn a_writer_that_never_stops_is_held_off_and_others_are_served() {
    for lab in labs("flapping").await {
        let controller = lab.controller(&[]).await;
        serve(&lab, "web").await;
        let (writes, began) = (lab.cloud.writes(), Instant::now());
        // As fast as it can, until ours gives up.
        lab.until("web", "the Service is told that it is held back", |service| {
            lab.cloud.lose(&lab.key("web"), true);
            (flapping(service)? == "True").then_some(())
        })
        .await;
        let note = until_told(&lab, "web", "DriftFlapping").await;
        assert!(note.contains("missing changed again and again since 20"), "{note}");
        assert!(note.contains(", last at 20") && note.contains("put right 10 times"), "{note}");
        for _ in 0..50 {
            lab.cloud.lose(&lab.key("web"), true);
        }
        serve(&lab, "other").await;
        lab.cloud.lose(&lab.key("other"), true);
        lab.until_cloud("the other is back", |cloud| cloud.load_balancer(&lab.key("other")).is_some()).await;
        let left_alone = lab.cloud.load_balancer(&lab.key("web")).is_none();
        // On a machine that took longer than the hold lasts, it is over.
        assert!(left_alone || began.elapsed() >= FIRST_HOLD, "it is left alone for a while");
        // Served, held back, and what the other needed: not one for each look.
        let told = counted(&controller, r#"groundcrew_service_writes_total{part="status"}"#).await;
        assert!(told <= 6, "{told} writes of a status");
        // Ten repairs of one, and one more where its hold is over, each up to two writes; and what the other needed: it
        // may be seen before its slice is.
        assert!(lab.cloud.writes() - writes <= 28, "{} writes", lab.cloud.writes() - writes);
        assert_eq!(counted(&controller, "groundcrew_drift_flapping_services").await, 1);
        eventually("what is held back is counted, too", SOON, async || match counted(&controller, FOUND).await {
            now if now >= 12 => Ok(()),
            now => Err(now),
        })
        .await
        .unwrap();
        controller.stop().await;
    }
}

#[tokio::test]
async fn report_only_tells_once_and_leaves_it() {
    for lab in labs("report").await {
        let controller = lab.controller(&["--report-only", "--scan-interval", "100ms"]).await;
        serve(&lab, "web").await;
        let writes = lab.cloud.writes();
        lab.cloud.lose(&lab.key("web"), true);
        let note = until_told(&lab, "web", "DriftFound").await;
        assert!(note.ends_with("not put right (--report-only)"), "{note}");
        until_scanned(&controller, 5).await;
        assert_eq!((lab.cloud.writes(), lab.cloud.count()), (writes, 0));
        assert_eq!((counted(&controller, FOUND).await, counted(&controller, REPAIRED).await), (1, 0));
        assert_eq!(counted(&controller, MISSED).await, 0, "an event told it");
        assert!(counted(&controller, "groundcrew_service_verified_total").await >= 5);
        assert!(counted(&controller, "groundcrew_service_last_full_comparison_timestamp_seconds").await > 0);
        serve(&lab, "other").await;
        serve(&lab, "moved").await;
        controller.stop().await;

        // Whoever comes after it has never seen the one right, and knows nothing of what the other had.
        lab.slice("moved", "moved", 80, &[("10.0.0.2", json!({}))]).await;
        lab.cloud.spoil(&lab.key("other"));
        let controller = lab.controller(&["--report-only", "--scan-interval", "100ms"]).await;
        let changed = FOUND.replace("missing", "changed");
        eventually("both that were changed are counted", SOON, async || {
            match (counted(&controller, FOUND).await, counted(&controller, &changed).await) {
                (1, 1) => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await
        .unwrap();
        until_told(&lab, "other", "DriftFound").await;
        lab.until_cloud("a new wish is carried out", |cloud| {
            let backends = cloud.load_balancer(&lab.key("moved")).unwrap().frontends[0].backends.clone();
            backends[0].address.to_string() == "10.0.0.2"
        })
        .await;
        until_scanned(&controller, 5).await;
        assert!(lab.cloud.load_balancer(&lab.key("web")).is_none());
        assert!(lab.cloud.load_balancer(&lab.key("other")).unwrap().frontends.is_empty());
        let both = (counted(&controller, FOUND).await, counted(&controller, &changed).await);
        assert_eq!((both, counted(&controller, REPAIRED).await), ((1, 1), 0), "once, and not the new wish");
        controller.stop().await;
    }
}

#[tokio::test]
async fn what_was_lost_while_nobody_ran_is_put_right_and_summed_up_and_what_is_new_is_no_alarm() {
    let [_, lab] = labs("asleep").await;
    let controller = lab.controller(&[]).await;
    let names: Vec<_> = (0..12).map(|n| format!("web-{n}")).collect();
    for name in &names {
        serve(&lab, name).await;
    }
    let metrics = controller.get("/metrics").await.1;
    assert!(!metrics.contains("groundcrew_drift_found_total{"), "a first installation is no drift: {metrics}");
    controller.stop().await;
    lab.cloud.lose_all();
    lab.slice("new", "new", 80, &[("10.0.0.1", json!({}))]).await;
    lab.create("new", json!({}), json!({})).await;
    let controller = lab.controller(&[]).await;
    lab.until_cloud("all are back", |cloud| cloud.count() == names.len() + 1).await;
    let note = until_told(&lab, "groundcrew-test", "MassDrift").await;
    assert!(note.starts_with("12 Services were changed by an unknown writer: missing; put right after"), "{note}");
    assert_eq!((counted(&controller, FOUND).await, counted(&controller, REPAIRED).await), (12, 12));
    controller.stop().await;
}

#[tokio::test]
async fn a_repair_whose_answer_is_lost_is_told_and_counted() {
    for lab in labs("mute").await {
        let controller = lab.controller(&[]).await;
        serve(&lab, "web").await;
        lab.cloud.lose_answers(1);
        lab.cloud.lose(&lab.key("web"), true);
        until_told(&lab, "web", "DriftRepaired").await;
        assert_eq!((counted(&controller, FOUND).await, counted(&controller, REPAIRED).await), (1, 1));
        controller.stop().await;
    }
}

#[tokio::test]
async fn what_can_never_be_put_right_is_no_news_to_each_scan() {
    for lab in labs("never").await {
        let controller = lab.controller(&["--scan-interval", "100ms"]).await;
        serve(&lab, "web").await;
        lab.cloud.fail_with(Some(ProviderError::new(ErrorKind::Invalid, "not in this cloud")));
        lab.cloud.lose(&lab.key("web"), true);
        lab.until_reason("web", "Invalid").await;
        until_scanned(&controller, 5).await;
        assert_eq!(counted(&controller, MISSED).await, 0);
        lab.cloud.fail_with(None);
        lab.until_cloud("a scan puts it right", |cloud| cloud.load_balancer(&lab.key("web")).is_some()).await;
        controller.stop().await;
    }
}

#[tokio::test]
async fn orphans_are_drift_that_is_removed_or_only_told_once() {
    for (flag, reason, repaired) in [(None, "OrphanRemoved", 1), (Some("--report-only"), "OrphanFound", 0)] {
        let lab = Lab::new("orphan").await;
        let orphan = Owner { key: lab.key("gone"), uid: uuid::Uuid::from_u128(7) };
        lab.cloud.litter(orphan.clone(), "192.0.2.251".parse().unwrap());
        let flags: Vec<_> = ["--scan-interval", "100ms", "--orphan-age", "100ms"].into_iter().chain(flag).collect();
        let controller = lab.controller(&flags).await;
        let note = until_told(&lab, &lab.namespace, reason).await;
        assert!(note.starts_with("load balancer was left for Service gone, which is not served; "), "{note}");
        until_scanned(&controller, 5).await;
        let count = |what: &str| format!(r#"groundcrew_drift_{what}_total{{cause="unknown_writer",kind="orphan"}}"#);
        assert_eq!(counted(&controller, &count("found")).await, 1);
        assert_eq!(counted(&controller, &count("repaired")).await, repaired);
        assert_eq!(lab.cloud.owner_uids().contains(&orphan.uid), repaired == 0);
        controller.stop().await;
    }
}

#[tokio::test]
async fn what_is_lost_while_the_cloud_refuses_is_put_right_after() {
    for lab in labs("refused").await {
        let controller = lab.controller(&[]).await;
        serve(&lab, "web").await;
        let busy = ProviderError::new(ErrorKind::Unavailable, "busy").with_retry_after(Duration::from_millis(50));
        lab.cloud.fail_with(Some(busy));
        lab.cloud.lose(&lab.key("web"), true);
        let tried = r#"groundcrew_service_reconciles_total{outcome="unavailable"}"#;
        eventually(
            "it was tried",
            SOON,
            async || {
                if counted(&controller, tried).await >= 3 { Ok(()) } else { Err("not yet") }
            },
        )
        .await
        .unwrap();
        let note = until_told(&lab, "web", "DriftFound").await;
        assert!(note.ends_with("not put right yet: busy"), "{note}");
        assert_eq!((counted(&controller, FOUND).await, counted(&controller, REPAIRED).await), (1, 0));
        lab.cloud.fail_with(None);
        lab.until_cloud("it is back", |cloud| cloud.load_balancer(&lab.key("web")).is_some()).await;
        until_told(&lab, "web", "DriftRepaired").await;
        assert_eq!((counted(&controller, FOUND).await, counted(&controller, REPAIRED).await), (1, 1));
        controller.stop().await;
    }
}
