//! Two controllers, one Lease, one cloud.

use groundcrew_testkit::eventually;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

use crate::harness::{Controller, Lab, SOON};

const NAME: &str = "groundcrew-test";

async fn leads(controller: &Controller) -> bool {
    controller.metric("groundcrew_leader_leading_bool").await > 0.5
}

async fn until_renewed(leases: &Api<Lease>, before: &Lease) -> Lease {
    let renewed = |lease: &Lease| lease.spec.as_ref().and_then(|spec| spec.renew_time.clone());
    eventually("the lease is renewed", SOON, async || {
        let now = leases.get(NAME).await?;
        if renewed(&now) > renewed(before) { Ok(now) } else { Err(anyhow::anyhow!("not yet")) }
    })
    .await
    .unwrap()
}

#[tokio::test]
async fn a_follower_is_ready_writes_nothing_and_takes_over_at_once_after_a_release() {
    let lab = Lab::new("handover").await;
    // So long that only a release can explain that the other one writes.
    let flags = ["--lease-duration", "1h"];
    let first = lab.start(&flags).await;
    eventually("the first leads", SOON, async || if leads(&first).await { Ok(()) } else { Err("no") }).await.unwrap();
    let second = lab.start(&flags).await;
    lab.create("one", json!({}), json!({})).await;
    lab.until_served("one").await;
    assert!(!leads(&second).await);

    first.stop().await;
    lab.create("after", json!({}), json!({})).await;
    lab.until_served("after").await;
    second.stop().await;
}

#[tokio::test]
async fn a_leader_whose_lease_was_taken_stops_writing() {
    let lab = Lab::new("usurped").await;
    let controller = lab.start(&[]).await;
    lab.create("before", json!({}), json!({})).await;
    lab.until_served("before").await;

    let leases: Api<Lease> = Api::namespaced(lab.client.clone(), &lab.namespace);
    let theirs = json!({ "spec": { "holderIdentity": "somebody-else", "leaseDurationSeconds": 3600 } });
    leases.patch(NAME, &PatchParams::default(), &Patch::Merge(theirs)).await.unwrap();
    eventually("it follows", SOON, async || if leads(&controller).await { Err("leads") } else { Ok(()) })
        .await
        .unwrap();
    let writes = lab.cloud.writes();
    lab.cloud.lose(&lab.key("before"), true);
    lab.create("after", json!({}), json!({})).await;
    // Its own view has the new Service when the count of Services says so; what it would write, it would have by then.
    eventually("it has seen the Service", SOON, async || {
        let seen = controller.metric("groundcrew_services").await;
        if seen >= 2.0 { Ok(()) } else { Err(seen) }
    })
    .await
    .unwrap();
    assert_eq!(lab.cloud.writes(), writes);
    controller.stop().await;
}

#[tokio::test]
async fn a_label_on_the_lease_does_not_unseat_the_leader() {
    let lab = Lab::new("labelled").await;
    let controller = lab.start(&[]).await;
    lab.create("web", json!({}), json!({})).await;
    lab.until_served("web").await;
    let leases: Api<Lease> = Api::namespaced(lab.client.clone(), &lab.namespace);
    let before = leases.get(NAME).await.unwrap();
    let label = json!({ "metadata": { "labels": { "looked-at": "yes" } } });
    leases.patch(NAME, &PatchParams::default(), &Patch::Merge(label)).await.unwrap();
    let after = until_renewed(&leases, &before).await.spec.unwrap();
    let before = before.spec.unwrap();
    assert_eq!(after.holder_identity, before.holder_identity);
    assert_eq!(after.lease_transitions, before.lease_transitions);
    assert!((controller.metric("groundcrew_leader_changes_total").await - 1.0).abs() < f64::EPSILON);
    controller.stop().await;
}

#[tokio::test]
async fn a_lease_deleted_by_hand_never_makes_two_leaders() {
    let lab = Lab::new("deleted-lease").await;
    let first = lab.start(&[]).await;
    eventually("the first leads", SOON, async || if leads(&first).await { Ok(()) } else { Err("no") }).await.unwrap();
    let second = lab.start(&[]).await;
    let leases: Api<Lease> = Api::namespaced(lab.client.clone(), &lab.namespace);
    let mut before = leases.get(NAME).await.unwrap();
    // It may be ready before its first look at the Lease, and who has never seen one takes a missing one for the first
    // start of all. While the other renews it twice, it looks a dozen times.
    for _ in 0..2 {
        before = until_renewed(&leases, &before).await;
    }
    leases.delete(NAME, &DeleteParams::default()).await.unwrap();
    eventually("somebody leads under a new Lease", SOON, async || {
        assert!(!(leads(&first).await && leads(&second).await), "both lead");
        let now = leases.get(NAME).await?;
        let held = leads(&first).await || leads(&second).await;
        if held && now.metadata.uid != before.metadata.uid { Ok(()) } else { Err(anyhow::anyhow!("{:?}", now.spec)) }
    })
    .await
    .unwrap();
    first.stop().await;
    second.stop().await;
}

#[tokio::test]
async fn a_process_that_starts_after_the_lease_was_deleted_writes_nothing_while_the_old_leader_may() {
    let lab = Lab::new("deleted-before").await;
    // Renewed every six seconds: the second is there before the first knows.
    let first = lab.start(&["--lease-duration", "30s"]).await;
    lab.create("web", json!({}), json!({})).await;
    lab.until_served("web").await;
    let leases: Api<Lease> = Api::namespaced(lab.client.clone(), &lab.namespace);
    let held = leases.get(NAME).await.unwrap().spec.unwrap();
    leases.delete(NAME, &DeleteParams::default()).await.unwrap();
    let writes = lab.cloud.writes();
    // It waits for as long as its own lease lasts: the first, which is to know long before, may be late.
    let second = lab.start(&["--lease-duration", "15s"]).await;
    let made = eventually("one of them made it again", SOON, async || leases.get(NAME).await).await.unwrap();
    // Not by who leads: the second may have made it, and not have the answer yet.
    if made.spec.unwrap().holder_identity != held.holder_identity {
        lab.until_cloud("the second begins", |cloud| cloud.writes() > writes).await;
        assert!(!leads(&first).await, "both could write");
    }
    lab.create("other", json!({}), json!({})).await;
    lab.until_served("other").await;
    assert!(leads(&first).await != leads(&second).await);
    first.stop().await;
    second.stop().await;
}

#[tokio::test]
async fn a_leader_makes_a_deleted_lease_again_and_goes_on() {
    let lab = Lab::new("made-again").await;
    let controller = lab.start(&[]).await;
    lab.create("web", json!({}), json!({})).await;
    lab.until_served("web").await;
    let leases: Api<Lease> = Api::namespaced(lab.client.clone(), &lab.namespace);
    let before = leases.get(NAME).await.unwrap();
    leases.delete(NAME, &DeleteParams::default()).await.unwrap();
    let after = eventually("the lease is there again", SOON, async || leases.get(NAME).await).await.unwrap();
    assert_ne!(after.metadata.uid, before.metadata.uid);
    assert_eq!(after.spec.unwrap().holder_identity, before.spec.unwrap().holder_identity);
    assert!((controller.metric("groundcrew_leader_changes_total").await - 1.0).abs() < f64::EPSILON);
    controller.stop().await;
}
