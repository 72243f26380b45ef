//! What happens when something goes wrong.

use std::time::Duration;

use groundcrew_core::key::ServiceKey;
use groundcrew_core::provider::{ErrorKind, Owner, ProviderError};
use groundcrew_core::testing::MemoryCloud;
use groundcrew_testkit::controller::get;
use groundcrew_testkit::kube::is_told_by_us;
use groundcrew_testkit::{ReservedPort, eventually};
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use serde_json::json;

use crate::harness::{Lab, SOON, address, is_claimed, ready};

/// What was told about a Service, the controller or the namespace.
pub(crate) async fn events(lab: &Lab, name: &str) -> Vec<(String, String)> {
    // What is about no namespaced object is in this one.
    let namespace = if name == lab.namespace { "default" } else { &lab.namespace };
    let api: Api<Event> = Api::namespaced(lab.client.clone(), namespace);
    let about = |event: &Event| event.regarding.as_ref().is_some_and(|r| r.name.as_deref() == Some(name));
    let events = api.list(&ListParams::default()).await.unwrap();
    let told = events.items.into_iter().filter(|event| is_told_by_us(event) && about(event));
    told.map(|event| (event.reason.unwrap_or_default(), event.note.unwrap_or_default())).collect()
}

#[tokio::test]
async fn a_cloud_that_refuses_is_told_to_the_user_and_tried_again() {
    let lab = Lab::new("refusal").await;
    let empty = ProviderError::new(ErrorKind::Unavailable, "pool blue has no free address").with_reason("PoolEmpty");
    let controller = lab.controller(&[]).await;
    lab.create("first", json!({}), json!({})).await;
    lab.until_served("first").await;
    lab.cloud.fail_with(Some(empty.with_retry_after(Duration::from_millis(200))));
    lab.create("web", json!({}), json!({})).await;
    let message = lab.until_reason("web", "PoolEmpty").await;
    assert_eq!(message, "pool blue has no free address");
    let told = eventually("the Event is there", SOON, async || {
        let told = events(&lab, "web").await;
        if told.is_empty() { Err("no Event") } else { Ok(told) }
    });
    assert_eq!(told.await.unwrap(), [("PoolEmpty".to_owned(), "pool blue has no free address".to_owned())]);
    assert!((controller.metric("groundcrew_service_pending").await - 1.0).abs() < f64::EPSILON, "the first is served");
    assert!(controller.metric("groundcrew_service_pending_since_timestamp_seconds").await > 0.5);

    lab.cloud.fail_with(None);
    lab.until_served("web").await;
    lab.until_reason("web", "NoEndpoints").await;
    eventually("none waits", SOON, async || {
        let waiting = controller.metric("groundcrew_service_pending").await;
        if waiting < 0.5 { Ok(()) } else { Err(waiting) }
    })
    .await
    .unwrap();
    controller.stop().await;
}

#[tokio::test]
async fn an_unreachable_cloud_does_not_touch_what_is_served() {
    let lab = Lab::new("outage").await;
    lab.slice("web", "web-a", 80, &[("10.0.0.1", json!({}))]).await;
    lab.create("web", json!({}), json!({})).await;
    let _controller = lab.controller(&[]).await;
    lab.until_reason("web", "Served").await;
    let before = lab.services().get("web").await.unwrap();

    lab.cloud.fail_with(Some(ProviderError::new(ErrorKind::Unavailable, "no route to the cloud")));
    let writes = lab.cloud.writes();
    lab.slice("web", "web-a", 80, &[("10.0.0.2", json!({}))]).await;
    lab.create("other", json!({}), json!({})).await;
    lab.until_reason("other", "ProviderUnavailable").await;
    let after = lab.services().get("web").await.unwrap();
    assert_eq!(after.metadata.resource_version, before.metadata.resource_version);
    assert_eq!(lab.cloud.writes(), writes);

    lab.cloud.fail_with(None);
    let key = lab.key("web");
    lab.until_cloud("the new backend after the outage", |cloud| {
        cloud.load_balancer(&key).unwrap().frontends[0].backends[0].address.to_string() == "10.0.0.2"
    })
    .await;
}

#[tokio::test]
async fn what_cannot_be_read_is_refused_in_words() {
    let lab = Lab::new("unreadable").await;
    let _controller = lab.controller(&[]).await;
    let asked = |ips: &str| json!({ "groundcrew.dev/load-balancer-ips": ips });
    lab.create("word", json!({}), asked("blue")).await;
    let message = lab.until_reason("word", "Invalid").await;
    assert_eq!(message, "groundcrew.dev/load-balancer-ips: \"blue\" is not an IP address");

    lab.create("family", json!({}), asked("2001:db8::1")).await;
    let message = lab.until_reason("family", "Invalid").await;
    assert_eq!(message, "2001:db8::1 is asked for, but spec.ipFamilies does not have its family");

    lab.create("two", json!({}), asked("192.0.2.1,192.0.2.2")).await;
    lab.until_reason("two", "Invalid").await;
    assert_eq!(lab.cloud.count(), 0, "nothing was made for any of them");
}

#[tokio::test]
async fn a_wish_for_an_address_that_nobody_can_read_is_told_and_stops_nothing_that_is_served() {
    let lab = Lab::new("typo").await;
    lab.slice("web", "web", 80, &[("10.0.0.1", json!({}))]).await;
    lab.create("web", json!({}), json!({})).await;
    let _controller = lab.controller(&[]).await;
    let address = lab.until_served("web").await;
    let key = lab.key("web");
    for (ips, said) in [("blue", "is not an IP address"), ("2001:db8::1", "spec.ipFamilies")] {
        lab.patch("web", json!({ "metadata": { "annotations": { "groundcrew.dev/load-balancer-ips": ips } } })).await;
        lab.until("web", &format!("it is told about {ips}"), |service| {
            ready(service).filter(|(_, reason, message)| reason == "Invalid" && message.contains(said))
        })
        .await;
        let backend = if ips == "blue" { "10.0.0.2" } else { "10.0.0.3" };
        lab.slice("web", "web", 80, &[(backend, json!({}))]).await;
        let serves = |cloud: &MemoryCloud| {
            let wanted = cloud.load_balancer(&key);
            wanted.is_some_and(|wanted| wanted.frontends[0].backends[0].address.to_string() == backend)
        };
        lab.until_cloud("it follows its endpoints", serves).await;
        lab.cloud.lose(&key, true);
        lab.until_cloud("it comes back", serves).await;
    }
    lab.patch("web", json!({ "metadata": { "annotations": { "groundcrew.dev/load-balancer-ips": null } } })).await;
    lab.until_reason("web", "Served").await;
    assert_eq!(lab.until_served("web").await, address);
}

#[tokio::test]
async fn an_address_that_another_service_has_is_refused_until_it_is_free() {
    let lab = Lab::new("taken").await;
    let _controller = lab.controller(&[]).await;
    let asked = json!({ "groundcrew.dev/load-balancer-ips": "192.0.2.8" });
    lab.create("first", json!({}), asked.clone()).await;
    lab.until_served("first").await;
    lab.create("second", json!({}), asked).await;
    lab.until_reason("second", "AddressTaken").await;
    assert!(address(&lab.services().get("second").await.unwrap()).is_none());

    lab.services().delete("first", &DeleteParams::default()).await.unwrap();
    lab.until_gone("first").await;
    lab.patch("second", json!({ "metadata": { "labels": { "touched": "yes" } } })).await;
    assert_eq!(lab.until_served("second").await, "192.0.2.8");
}

#[tokio::test]
async fn a_paused_service_is_left_exactly_as_it_is() {
    let lab = Lab::new("paused").await;
    lab.create("web", json!({}), json!({})).await;
    lab.create("witness", json!({}), json!({})).await;
    let _controller = lab.controller(&[]).await;
    lab.until_served("web").await;
    lab.until_served("witness").await;
    lab.patch("web", json!({ "metadata": { "annotations": { "groundcrew.dev/paused": "true" } } })).await;

    // The witness is told after the paused one, so when it is repaired the other was looked at.
    eventually("the pause is seen", SOON, async || {
        lab.cloud.lose(&lab.key("web"), true);
        lab.cloud.lose(&lab.key("witness"), true);
        eventually("the witness is back", SOON, async || {
            lab.cloud.load_balancer(&lab.key("witness")).map(drop).ok_or("not yet")
        })
        .await
        .unwrap();
        if lab.cloud.load_balancer(&lab.key("web")).is_none() { Ok(()) } else { Err("repaired") }
    })
    .await
    .unwrap();

    lab.patch("web", json!({ "metadata": { "annotations": { "groundcrew.dev/paused": null } } })).await;
    let key = lab.key("web");
    lab.until_cloud("repaired after the pause", |cloud| cloud.load_balancer(&key).is_some()).await;
}

#[tokio::test]
async fn a_paused_service_that_is_deleted_says_why_it_does_not_go() {
    let lab = Lab::new("paused-deletion").await;
    lab.create("web", json!({}), json!({})).await;
    let _controller = lab.controller(&[]).await;
    lab.until_served("web").await;
    lab.patch("web", json!({ "metadata": { "annotations": { "groundcrew.dev/paused": "true" } } })).await;
    lab.services().delete("web", &DeleteParams::default()).await.unwrap();
    let note = eventually("an Event tells", SOON, async || {
        let told = events(&lab, "web").await;
        told.iter()
            .find(|(reason, _)| reason == "Paused")
            .map(|(_, note)| note.clone())
            .ok_or_else(|| format!("{told:?}"))
    });
    assert!(note.await.unwrap().contains("groundcrew.dev/paused"));
    assert!(lab.cloud.load_balancer(&lab.key("web")).is_some(), "it is left as it is");

    lab.patch("web", json!({ "metadata": { "annotations": { "groundcrew.dev/paused": null } } })).await;
    lab.until_gone("web").await;
    assert_eq!(lab.cloud.count(), 0);
}

#[tokio::test]
async fn what_is_lost_comes_back_at_once_when_told_and_at_the_scan_when_not() {
    let lab = Lab::new("lost").await;
    lab.create("web", json!({}), json!({})).await;
    let controller = lab.controller(&["--scan-interval", "300ms"]).await;
    let before = lab.until_served("web").await;
    let key = lab.key("web");

    // The echo of our own last write may have it looked at once more, before any scan.
    eventually("the scan is the first to find it", SOON, async || {
        lab.cloud.lose(&key, false);
        lab.until_cloud("it is repaired", |cloud| cloud.load_balancer(&key).is_some()).await;
        let missed = controller.metric("groundcrew_service_missed_changes_total").await;
        if missed >= 1.0 { Ok(()) } else { Err("not by the scan") }
    })
    .await
    .unwrap();

    lab.cloud.lose(&key, true);
    lab.until_cloud("the event repairs it", |cloud| cloud.load_balancer(&key).is_some()).await;
    assert_eq!(lab.until_served("web").await, before, "the address stays");
}

#[tokio::test]
async fn a_finalizer_removed_by_hand_still_leaves_nothing() {
    let lab = Lab::new("forced").await;
    lab.create("web", json!({}), json!({})).await;
    let controller = lab.controller(&[]).await;
    lab.until_served("web").await;
    lab.cloud.fail_with(Some(ProviderError::new(ErrorKind::Unavailable, "away")));
    lab.services().delete("web", &DeleteParams::default()).await.unwrap();
    lab.patch("web", json!({ "metadata": { "finalizers": null } })).await;
    lab.until_gone("web").await;
    assert_eq!(lab.cloud.count(), 1);
    lab.cloud.fail_with(None);
    lab.until_cloud("released after all", |cloud| cloud.count() == 0).await;
    controller.stop().await;
}

#[tokio::test]
async fn orphans_go_after_their_age_and_never_on_half_a_view() {
    let lab = Lab::new("orphans").await;
    let orphan = Owner { key: ServiceKey::new(lab.namespace.as_str(), "gone"), uid: uuid::Uuid::from_u128(7) };
    lab.cloud.list_incompletely(true);
    lab.cloud.litter(orphan.clone(), "192.0.2.250".parse().unwrap());
    lab.create("web", json!({}), json!({})).await;
    let controller = lab.controller(&["--scan-interval", "100ms", "--orphan-age", "300ms"]).await;
    lab.until_served("web").await;
    eventually("ten scans have passed", SOON, async || {
        let scans = controller.metric("groundcrew_service_full_scans_total").await;
        if scans >= 10.0 { Ok(()) } else { Err(scans) }
    })
    .await
    .unwrap();
    assert!(lab.cloud.owner_uids().contains(&orphan.uid));

    lab.cloud.list_incompletely(false);
    lab.until_cloud("the orphan goes", |cloud| !cloud.owner_uids().contains(&orphan.uid)).await;
    lab.until_served("web").await;
}

#[tokio::test]
async fn a_service_that_stopped_being_ours_while_nobody_ran_is_released() {
    let lab = Lab::new("stopped").await;
    lab.create("web", json!({}), json!({})).await;
    lab.create("others", json!({}), json!({})).await;
    let controller = lab.controller(&[]).await;
    lab.until_served("web").await;
    lab.until_served("others").await;
    controller.stop().await;

    // As `kubectl replace` does it: the same uid, and nothing of ours.
    let plain = json!({
        "metadata": { "finalizers": null, "annotations": null },
        "spec": { "type": "ClusterIP", "loadBalancerClass": null, "allocateLoadBalancerNodePorts": null },
    });
    let web = lab.patch("web", plain).await;
    // What another controller of ours has claimed, for its own class, is its own.
    let claimed = json!({
        "metadata": { "annotations": { "groundcrew.dev/claimed-by": "test.example/another" } },
        "spec": { "type": "ClusterIP", "loadBalancerClass": null, "allocateLoadBalancerNodePorts": null },
    });
    let others = lab.patch("others", claimed).await;
    let uid = |service: &k8s_openapi::api::core::v1::Service| service.metadata.uid.clone().unwrap().parse().unwrap();
    let controller = lab.controller(&["--scan-interval", "100ms", "--orphan-age", "300ms"]).await;
    let gone: uuid::Uuid = uid(&web);
    lab.until_cloud("what it had is released", |cloud| !cloud.owner_uids().contains(&gone)).await;
    assert!(lab.cloud.owner_uids().contains(&uid(&others)));
    assert_eq!(lab.services().get("web").await.unwrap().metadata.resource_version, web.metadata.resource_version);
    controller.stop().await;
}

#[tokio::test]
async fn a_panic_in_a_task_ends_the_process_with_its_reason() {
    let lab = Lab::new("panic").await;
    let (ready, told) = tokio::sync::oneshot::channel();
    let planner = async move {
        told.await.unwrap();
        panic!("row 7 has no name");
    };
    let start = async move |runtime: groundcrew_core::runtime::Runtime| {
        runtime.tasks.spawn("planner", planner);
        Ok(())
    };
    let controller = lab.start_with(&["--no-leader-election"], start).await;
    ready.send(()).unwrap();
    assert_eq!(controller.ended().await.unwrap_err().to_string(), "task planner panicked: row 7 has no name");
}

#[tokio::test]
async fn a_restart_writes_nothing() {
    let lab = Lab::new("restart").await;
    for n in 0..20 {
        lab.slice(&format!("s{n}"), &format!("s{n}"), 80, &[("10.0.0.1", json!({}))]).await;
        lab.create(&format!("s{n}"), json!({}), json!({})).await;
    }
    let controller = lab.controller(&[]).await;
    for n in 0..20 {
        lab.until_reason(&format!("s{n}"), "Served").await;
    }
    controller.stop().await;
    let versions = async || {
        let all = lab.services().list(&ListParams::default()).await.unwrap();
        all.items.into_iter().map(|s| s.metadata.resource_version).collect::<Vec<_>>()
    };
    let (before, writes) = (versions().await, lab.cloud.writes());

    let controller = lab.controller(&[]).await;
    eventually("everything was looked at", SOON, async || {
        let (_, page) = controller.get("/metrics").await;
        let looks = page.lines().find_map(|l| l.strip_prefix("groundcrew_service_reconciles_total{outcome=\"ok\"} "));
        if looks.is_some_and(|n| n.parse::<u32>().unwrap() >= 20) { Ok(()) } else { Err(page) }
    })
    .await
    .unwrap();
    assert_eq!(versions().await, before);
    assert_eq!(lab.cloud.writes(), writes + 1, "only the term began");
    controller.stop().await;
}

#[tokio::test]
async fn a_dry_run_shows_the_plan_and_writes_nothing() {
    let lab = Lab::new("dry").await;
    let before = lab.create("web", json!({}), json!({})).await;
    let page = ReservedPort::new().unwrap();
    let controller = lab.start(&["--dry-run", "--status-address", &page.address().to_string()]).await;
    eventually("the plan is shown", SOON, async || {
        let (_, shown) = get(page.address(), "/data.json").await?;
        anyhow::ensure!(shown.contains("+ finalizer"), "{shown}");
        Ok(())
    })
    .await
    .unwrap();
    controller.stop().await;
    let after = lab.services().get("web").await.unwrap();
    assert_eq!(after.metadata.resource_version, before.metadata.resource_version);
    assert_eq!(lab.cloud.writes(), 0);
    assert!(!is_claimed(&after) && ready(&after).is_none());
}
