//! Somebody changes what he asked for while it runs.

use std::sync::atomic::Ordering;

use anyhow::ensure;
use groundcrew_api::deorbit::Phase;
use groundcrew_orbit::deorbit::{cli, observe};
use groundcrew_testkit::eventually;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::Api;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, from_value, json};

use crate::faults::all;
use crate::lab::{Lab, Running, SOON, claim};

/// As far as it comes while nobody removes the snapshot of a claim, whose volume is untouched so far. Gives the volume.
async fn waiting(lab: &Lab) -> (Running, String) {
    let volume = lab.bound("data", "cinder").await;
    lab.snapshot_of("data", "yesterday").await;
    lab.standins.stop(&lab.standins.snapshots).await;
    let running = lab.start();
    lab.deorbit(&json!({"policies": all("delete"), "budgets": {"stages": {"Verify": "1s"}}})).await;
    lab.until("it waits for the snapshot", |status| status.stage.contains("Snapshots")).await;
    (running, volume)
}

async fn change(lab: &Lab, spec: &Value) {
    let patch = Patch::Merge(json!({"spec": spec}));
    lab.deorbits().patch("end", &PatchParams::default(), &patch).await.unwrap();
}

/// Waits until all Deorbits have been looked at once more: plans come last.
async fn looked_at(lab: &Lab) {
    let plan = from_value(json!({"metadata": {"name": "plan"}, "spec": {"dryRun": true}})).unwrap();
    lab.deorbits().create(&PostParams::default(), &plan).await.unwrap();
    eventually("there is a plan", SOON, async || {
        let status = lab.deorbits().get("plan").await?.status.unwrap_or_default();
        ensure!(status.phase == Phase::Planned, "{status:?}");
        Ok(())
    })
    .await
    .unwrap();
    lab.deorbits().delete("plan", &DeleteParams::default()).await.unwrap();
}

async fn data_is_whole(lab: &Lab) -> bool {
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(lab.client.clone(), &lab.namespace);
    claims.get("data").await.unwrap().metadata.deletion_timestamp.is_none()
}

pub(crate) async fn a_policy_that_somebody_changes_to_keep_holds_for_all_that_is_still_there(lab: &Lab) {
    let orphan = lab.place.old_volume("demo-csi", "orphan").await;
    let (running, volume) = waiting(lab).await;
    change(lab, &json!({"policies": {"volumes": "keep"}})).await;
    lab.standins.snapshots.store(true, Ordering::SeqCst);
    let status = lab.until_phase(Phase::Clean).await;
    running.stop().await;
    assert!(data_is_whole(lab).await);
    let mut kept = [orphan, volume];
    kept.sort();
    assert_eq!(lab.place.ids("volumes").await, kept);
    assert_eq!(lab.place.ids("snapshots").await, [""; 0], "their policy is still to delete them");
    for id in &kept {
        let line = status.report.iter().find(|line| line.id == *id).unwrap();
        assert!(line.kept && line.reason.contains("policies.volumes is keep"), "{line:?}");
    }
}

pub(crate) async fn a_run_whose_confirmation_is_taken_away_stops_until_it_is_there_again(lab: &Lab) {
    let (running, _) = waiting(lab).await;
    change(lab, &json!({"confirm": ""})).await;
    let status = lab.until_phase(Phase::Refused).await;
    assert!(status.message.contains("spec.confirm was taken away"), "{}", status.message);
    assert_eq!(cli::exit(&status), cli::LEFTOVERS, "not everything is as it was");
    assert!(status.irreversible_at.is_some());

    // What it waited for comes, and it does not go on.
    lab.standins.snapshots.store(true, Ordering::SeqCst);
    let contents: Api<DynamicObject> = Api::all_with(lab.client.clone(), &observe::content());
    eventually("the snapshot is gone", SOON, async || {
        let left = contents.list(&ListParams::default()).await?.items.len();
        ensure!(left == 0, "{left} contents");
        Ok(())
    })
    .await
    .unwrap();
    looked_at(lab).await;
    assert_eq!(lab.status().await.phase, Phase::Refused);
    assert!(data_is_whole(lab).await);

    change(lab, &json!({"confirm": lab.uid().await})).await;
    lab.until_phase(Phase::Clean).await;
    running.stop().await;
    lab.assert_as_before().await;
}

pub(crate) async fn a_namespace_that_somebody_protects_meanwhile_is_not_blocked_any_more(lab: &Lab) {
    let (running, _) = waiting(lab).await;
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(lab.client.clone(), &lab.namespace);
    let new = from_value(claim("new", "nfs")).unwrap();
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    assert!(claims.create(&dry, &new).await.unwrap_err().to_string().contains("being deorbited"));
    change(lab, &json!({"protect": {"namespaces": ["kube-system", lab.namespace]}})).await;
    eventually("claims can be made there", SOON, async || claims.create(&dry, &new).await).await.unwrap();
    running.stop().await;
    assert!(data_is_whole(lab).await, "and those that are there are protected");
}
