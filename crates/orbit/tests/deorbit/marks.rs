//! What carries no mark, and what does so only by objects that go: nothing of it is called gone before it is.

use std::sync::atomic::Ordering;

use groundcrew_api::deorbit::Phase;
use groundcrew_orbit::deorbit::observe;
use groundcrew_testkit::openstack::Service as Cloud;
use k8s_openapi::api::core::v1::{Node, PersistentVolume};
use kube::api::{DeleteParams, DynamicObject, ListParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{from_value, json};

use crate::faults::all;
use crate::lab::Lab;
use crate::place::MARK;
use crate::standins::{DRIVER, finalizers};

async fn volumes(lab: &Lab) -> Vec<PersistentVolume> {
    Api::<PersistentVolume>::all(lab.client.clone()).list(&ListParams::default()).await.unwrap().items
}

pub(crate) async fn a_volume_without_the_mark_that_a_pv_named_is_not_called_gone(lab: &Lab) {
    // Old enough not to be taken for one whose object is still to come.
    let marked = lab.bound("data", "cinder").await;
    lab.place.age(&marked).await;
    let unmarked = lab.bound("by-hand", "cinder").await;
    lab.place.note(&unmarked, MARK, "another").await;
    // The driver is slow, and somebody loses patience with the object.
    lab.standins.stop(&lab.standins.volumes).await;
    let running = lab.start();
    lab.deorbit(&json!({"policies": all("delete"), "budgets": {"stages": {"Verify": "1s", "Cloud": "10s"}}})).await;
    lab.until("it waits for volumes", |status| status.stage.contains("Volumes")).await;
    let api: Api<PersistentVolume> = Api::all(lab.client.clone());
    for volume in volumes(lab).await {
        finalizers(&api, &volume.name_any(), &[]).await.unwrap();
        api.delete(&volume.name_any(), &DeleteParams::default()).await.unwrap();
    }
    let status = lab.until_phase(Phase::Leftovers).await;
    let [line] = status.report.as_slice() else { panic!("{:?}", status.report) };
    assert_eq!((line.kind.as_str(), line.id.as_str()), ("unmarked-volume", unmarked.as_str()));
    assert!(line.reason.contains("does not carry this cluster's mark"), "{line:?}");
    assert_eq!(lab.place.ids("volumes").await, [unmarked.as_str()], "the one with the mark went");

    lab.place.delete(Cloud::BlockStorage, &format!("volumes/{unmarked}")).await.unwrap();
    lab.until_phase(Phase::Clean).await;
    running.stop().await;
    lab.assert_as_before().await;
}

pub(crate) async fn a_retained_volume_is_told_without_its_mark_too_and_goes_with_its_object_if_that_was_asked_for(
    lab: &Lab,
) {
    let retained = lab.bound("ledger", "cinder-retain").await;
    let unmarked = lab.bound("attic", "cinder-retain").await;
    lab.place.note(&unmarked, MARK, "another").await;
    let running = lab.start();
    lab.deorbit(&json!({"policies": all("delete"), "budgets": {"stages": {"Verify": "1s"}}})).await;
    let status = lab.until_phase(Phase::Leftovers).await;
    for id in [&retained, &unmarked] {
        let line = status.report.iter().find(|line| line.id == **id).unwrap();
        assert!(line.reason.contains("Retain"), "{line:?}");
    }
    assert_eq!((status.left, volumes(lab).await.len()), (2, 2));
    lab.gone("end").await;

    let mut policies = all("delete");
    policies["retainedVolumes"] = json!("delete");
    lab.deorbit(&json!({"policies": policies, "budgets": {"stages": {"Verify": "1s", "Cloud": "10s"}}})).await;
    let status = lab.until_phase(Phase::Leftovers).await;
    assert_eq!(lab.place.ids("volumes").await, [unmarked.as_str()]);
    let left: Vec<_> = volumes(lab).await.into_iter().map(|one| one.spec.unwrap().csi.unwrap().volume_handle).collect();
    assert_eq!(left, [unmarked.as_str()], "the object of the other went with its volume");
    assert!(status.report.iter().any(|line| line.id == unmarked), "{:?}", status.report);

    // Held: as soon as somebody has removed the volume, its object goes.
    lab.place.delete(Cloud::BlockStorage, &format!("volumes/{unmarked}")).await.unwrap();
    lab.until_phase(Phase::Clean).await;
    running.stop().await;
    assert_eq!(volumes(lab).await.len(), 0);
    lab.assert_as_before().await;
}

pub(crate) async fn routes_to_nodes_that_leave_meanwhile_go_after_a_restart_too(lab: &Lab) {
    lab.place.add_routes(&[("100.100.2.0/24", "10.180.2.2")]).await;
    let neighbours = lab.place.everything().await;
    for i in [1, 2] {
        lab.node(i).await;
    }
    lab.place.add_routes(&[("100.100.1.0/24", "10.180.1.1"), ("100.100.2.0/24", "10.180.1.2")]).await;
    lab.served("web").await;
    lab.standins.stop(&lab.standins.balancers).await;
    let running = lab.start();
    lab.deorbit(&json!({"policies": {"routes": "delete"}})).await;
    lab.until("it waits for the Service", |status| status.stage.contains("LoadBalancers")).await;
    running.kill().await;
    Api::<Node>::all(lab.client.clone()).delete("n2", &DeleteParams::default()).await.unwrap();
    lab.standins.balancers.store(true, Ordering::SeqCst);
    let running = lab.start();
    lab.until_phase(Phase::Clean).await;
    running.stop().await;
    assert_eq!(lab.place.everything().await, neighbours);
}

pub(crate) async fn a_router_that_somebody_removes_meanwhile_has_no_routes(lab: &Lab) {
    lab.node(1).await;
    lab.place.add_routes(&[("100.100.1.0/24", "10.180.1.1")]).await;
    lab.served("web").await;
    lab.standins.stop(&lab.standins.balancers).await;
    let running = lab.start();
    lab.deorbit(&json!({})).await;
    lab.until("it waits for the Service", |status| status.stage.contains("LoadBalancers")).await;
    lab.place.fake().forget("routers", &lab.place.router);
    lab.standins.balancers.store(true, Ordering::SeqCst);
    lab.until_phase(Phase::Clean).await;
    running.stop().await;
}

pub(crate) async fn snapshots_without_a_content_and_contents_without_a_snapshot_go(lab: &Lab) {
    let volume = lab.bound("data", "cinder").await;
    lab.standins.stop(&lab.standins.snapshots).await;
    // Nobody has made anything of it yet.
    let resource = observe::snapshot();
    let api: Api<DynamicObject> = Api::namespaced_with(lab.client.clone(), &lab.namespace, &resource);
    let asked = json!({"spec": {"source": {"persistentVolumeClaimName": "data"}}});
    api.create(&PostParams::default(), &DynamicObject::new("fresh", &resource).data(asked)).await.unwrap();
    let orphan = lab.place.snapshot("demo-csi", &volume, "orphan").await;
    let contents: Api<DynamicObject> = Api::all_with(lab.client.clone(), &observe::content());
    let content = json!({"metadata": {"name": "orphan"}, "apiVersion": "snapshot.storage.k8s.io/v1",
        "kind": "VolumeSnapshotContent", "spec": {"driver": DRIVER, "deletionPolicy": "Delete",
        "source": {"snapshotHandle": orphan}, "volumeSnapshotRef": {"namespace": lab.namespace, "name": "gone"}}});
    contents.create(&PostParams::default(), &from_value(content).unwrap()).await.unwrap();
    let running = lab.start();
    lab.deorbit(&json!({"policies": all("delete"), "budgets": {"stages": {"Volumes": "2s", "Verify": "1s"}}})).await;
    lab.until_phase(Phase::Clean).await;
    running.stop().await;
    lab.assert_as_before().await;
    assert_eq!(api.list(&ListParams::default()).await.unwrap().items.len(), 0);
    assert_eq!(contents.list(&ListParams::default()).await.unwrap().items.len(), 0);
}

/// A driver that was told so makes backups of its snapshots.
pub(crate) async fn backups_go_stay_or_are_told_as_their_policy_says_and_a_neighbour_s_stay(lab: &Lab) {
    let volume = lab.place.old_volume("another", "pvc-1").await;
    let backup = async |csi: &str, metadata: serde_json::Value| {
        let mut fields = json!({"name": "nightly", "volume_id": volume, "metadata": {MARK: csi}});
        fields["metadata"].as_object_mut().unwrap().extend(metadata.as_object().unwrap().clone());
        lab.place.make(Cloud::BlockStorage, "backups", "backup", fields).await
    };
    let theirs = backup("another", json!({})).await;
    let noted = backup("demo-csi", json!({"groundcrew.dev/keep": "true"})).await;
    let ours = backup("demo-csi", json!({})).await;
    let running = lab.start();
    for (policy, phase, left) in [
        ("keep", Phase::Clean, vec![&theirs, &noted, &ours]),
        ("report", Phase::Leftovers, vec![&theirs, &noted, &ours]),
        ("delete", Phase::Clean, vec![&theirs, &noted]),
    ] {
        lab.deorbit(&json!({"policies": {"backups": policy}, "budgets": {"stages": {"Verify": "1s"}}})).await;
        let status = lab.until_phase(phase).await;
        let mut left: Vec<_> = left.into_iter().cloned().collect();
        left.sort();
        assert_eq!(lab.place.ids("backups").await, left, "{policy}");
        assert!(status.report.iter().all(|line| line.kept == (line.id == noted || policy == "keep")));
        lab.gone("end").await;
    }
    running.stop().await;
}

/// An Ingress has no finalizer: it is gone long before its load balancer.
pub(crate) async fn what_an_ingress_had_that_is_gone_goes_by_the_cloud_s_api(lab: &Lab) {
    lab.place.ingress("demo_x", "shop", "front").await;
    let neighbours = lab.place.everything().await;
    lab.place.ingress("demo", "shop", "front").await;
    // Its controller had not come further than this.
    let begun = json!({"name": "kube_ingress_demo_shop_new",
        "description": "Kubernetes ingress new in namespace shop from cluster demo"});
    lab.place.load_balancer(begun).await;
    let running = lab.start();
    lab.deorbit(&json!({"policies": all("delete"), "budgets": {"stages": {"Verify": "1s"}}})).await;
    lab.until_phase(Phase::Clean).await;
    running.stop().await;
    assert_eq!(lab.place.everything().await, neighbours);
}
