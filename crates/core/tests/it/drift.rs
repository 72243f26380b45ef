//! What somebody else changes outside, over clouds that take one wish at a time and many at once.

use std::time::Duration;

use groundcrew_core::provider::{ErrorKind, ProviderError};
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

async fn serve(lab: &Lab, name: &str) {
    lab.slice(name, name, 80, &[("10.0.0.1", json!({}))]).await;
    lab.create(name, json!({}), json!({})).await;
    lab.until_reason(name, "Served").await;
}

async fn counted(controller: &Controller, name: &str) -> u64 {
    // A series that was never counted is not there yet.
    let value = metric(controller.admin, name).await.unwrap_or(0.0);
    format!("{value:.0}").parse().unwrap()
}

async fn until_told(lab: &Lab, about: &str, reason: &str) -> String {
    eventually(&format!("an Event {reason} about {about}"), SOON, async || {
        let told = events(lab, about).await;
        let found = told.iter().find(|(found, _)| found == reason);
        found.map(|(_, note)| note.clone()).ok_or_else(|| format!("{told:?}"))
    })
    .await
    .unwrap()
}

fn flapping(service: &Service) -> Option<String> {
    let conditions = service.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|c| c.type_ == names::DRIFT_FLAPPING).map(|c| c.status.clone())
}

const FOUND: &str = r#"groundcrew_drift_found_total{cause="unknown_writer",kind="missing"}"#;
const REPAIRED: &str = r#"groundcrew_drift_repaired_total{cause="unknown_writer",kind="missing"}"#;

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
    let writes = lab.cloud.writes();
    lab.cloud.lose_all();
    lab.until_cloud("all are back", |cloud| cloud.count() == names.len()).await;
    assert_eq!(lab.cloud.writes() - writes, 1);
    let note = until_told(&lab, "groundcrew-test", "MassDrift").await;
    assert!(note.starts_with("12 Services were changed by an unknown writer: missing; put right after"), "{note}");
    until_told(&lab, "web-7", "DriftRepaired").await;
    assert_eq!(counted(&controller, "groundcrew_drift_mass_total").await, 1);
    controller.stop().await;
}

#[tokio::test]
async fn a_writer_that_never_stops_is_held_off_and_others_are_served() {
    for lab in labs("flapping").await {
        let controller = lab.controller(&[]).await;
        serve(&lab, "web").await;
        let writes = lab.cloud.writes();
        // As fast as it can, until ours gives up.
        lab.until("web", "the Service is told that it is held back", |service| {
            lab.cloud.lose(&lab.key("web"), true);
            (flapping(service)? == "True").then_some(())
        })
        .await;
        for _ in 0..50 {
            lab.cloud.lose(&lab.key("web"), true);
        }
        serve(&lab, "other").await;
        lab.cloud.lose(&lab.key("other"), true);
        lab.until_cloud("the other is back", |cloud| cloud.load_balancer(&lab.key("other")).is_some()).await;
        assert!(lab.cloud.load_balancer(&lab.key("web")).is_none(), "it is left alone for a while");
        let note = until_told(&lab, "web", "DriftFlapping").await;
        assert!(note.contains("put right 10 times"), "{note}");
        // Ten repairs of one, each up to two writes, and what the other needed.
        assert!(lab.cloud.writes() - writes <= 25, "{} writes", lab.cloud.writes() - writes);
        assert_eq!(counted(&controller, "groundcrew_drift_flapping_count").await, 1);
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
        let scans = counted(&controller, "groundcrew_service_full_scans_total").await;
        eventually("a few more scans", SOON, async || {
            let now = counted(&controller, "groundcrew_service_full_scans_total").await;
            if now >= scans + 5 { Ok(()) } else { Err(format!("{now}")) }
        })
        .await
        .unwrap();
        assert_eq!((lab.cloud.writes(), lab.cloud.count()), (writes, 0));
        assert_eq!((counted(&controller, FOUND).await, counted(&controller, REPAIRED).await), (1, 0));
        serve(&lab, "other").await;
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
        lab.cloud.fail_with(None);
        lab.until_cloud("it is back", |cloud| cloud.load_balancer(&lab.key("web")).is_some()).await;
        until_told(&lab, "web", "DriftRepaired").await;
        controller.stop().await;
    }
}
