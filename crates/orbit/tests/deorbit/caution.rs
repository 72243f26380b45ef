//! What must not go does not go.

use std::sync::atomic::Ordering;

use anyhow::ensure;
use groundcrew_api::deorbit::Phase;
use groundcrew_orbit::deorbit::observe;
use groundcrew_testkit::eventually;
use groundcrew_testkit::openstack::Service as Cloud;
use groundcrew_testkit::openstack::fake::Reply;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Service};
use k8s_openapi::api::networking::v1::Ingress;
use kube::api::{DynamicObject, ListParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{from_value, json};

use crate::lab::{Lab, SOON};
use crate::standins::{DRIVER, finalizers};

const UID: &str = "0b7a8c1e-0000-4000-8000-000000000000";

pub(crate) async fn without_the_uid_of_this_cluster_nothing_is_done(lab: &Lab) {
    lab.served("web").await;
    let before = lab.place.everything().await;
    let running = lab.start();
    for confirm in ["", "0b7a8c1e-0000-4000-8000-000000000000"] {
        let name = if confirm.is_empty() { "none" } else { "wrong" };
        let deorbit = from_value(json!({"metadata": {"name": name}, "spec": {"confirm": confirm}})).unwrap();
        lab.deorbits().create(&PostParams::default(), &deorbit).await.unwrap();
        groundcrew_testkit::eventually("it is refused", crate::lab::SOON, async || {
            let status = lab.deorbits().get(name).await?.status.unwrap_or_default();
            anyhow::ensure!(status.phase == Phase::Refused && status.message.contains("confirm"), "{status:?}");
            anyhow::Ok(())
        })
        .await
        .unwrap();
        lab.deorbits().delete(name, &kube::api::DeleteParams::default()).await.unwrap();
    }
    running.stop().await;
    assert_eq!(lab.place.everything().await, before);
    let services: Api<Service> = Api::namespaced(lab.client.clone(), &lab.namespace);
    assert!(services.get("web").await.unwrap().metadata.deletion_timestamp.is_none());
}

pub(crate) async fn a_retained_volume_and_a_kept_claim_stay_although_everything_may_be_deleted(lab: &Lab) {
    let retained = lab.bound("ledger", "cinder-retain").await;
    let kept = lab.bound("photos", "cinder").await;
    lab.label_keep::<PersistentVolumeClaim>("photos").await;
    let noted = lab.place.old_volume("demo-csi", "by-hand").await;
    lab.place.note(&noted, "groundcrew.dev/keep", "true").await;
    let gone = lab.place.old_volume("demo-csi", "orphan").await;
    let running = lab.start();
    lab.deorbit(&json!({"policies": {"volumes": "delete", "loadBalancers": "delete"},
        "budgets": {"stages": {"Verify": "1s"}}}))
        .await;
    let status = lab.until_phase(Phase::Leftovers).await;
    running.stop().await;

    let volumes = lab.place.ids("volumes").await;
    assert_eq!(volumes, sorted([&retained, &kept, &noted]), "and not {gone}");
    let line = |id: &str| status.report.iter().find(|line| line.id == id).unwrap().clone();
    assert!(line(&retained).reason.contains("Retain") && !line(&retained).kept, "{:?}", line(&retained));
    assert_eq!(line(&retained).command, format!("openstack volume delete {retained}"));
    assert_eq!(line(&retained).size, "10 GiB");
    assert!(line(&kept).kept && line(&noted).kept);
    assert_eq!(status.left, 1);
}

pub(crate) async fn claims_of_other_drivers_and_services_of_other_classes_stay(lab: &Lab) {
    lab.claim("files", "nfs").await;
    let class = json!({"type": "LoadBalancer", "loadBalancerClass": "example.com/lb", "ports": [{"port": 80}]});
    lab.make::<Service>(json!({"metadata": {"name": "theirs"}, "spec": class})).await;
    let running = lab.start();
    lab.deorbit(&json!({})).await;
    let status = lab.until_phase(Phase::Leftovers).await;
    running.stop().await;
    assert_eq!(status.report.len(), 1, "{:?}", status.report);
    assert!(status.report[0].reason.contains("example.com/lb"));
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(lab.client.clone(), &lab.namespace);
    assert!(claims.get("files").await.unwrap().metadata.deletion_timestamp.is_none());
    let services: Api<Service> = Api::namespaced(lab.client.clone(), &lab.namespace);
    assert!(services.get("theirs").await.unwrap().metadata.deletion_timestamp.is_none());
}

pub(crate) async fn under_a_default_name_nothing_is_removed_by_the_cloud_s_api(lab: &Lab) {
    let theirs = lab.place.balancer("kubernetes", "other", "web", UID).await;
    let unmarked = lab.place.old_volume("", "pvc-2").await;
    let before = lab.place.everything().await;
    let running = lab.start_on(("kubernetes", ""));
    let all =
        json!({"volumes": "delete", "loadBalancers": "delete", "floatingIps": "delete", "securityGroups": "delete"});
    lab.deorbit(&json!({"policies": all, "budgets": {"stages": {"Verify": "1s"}}})).await;
    let status = lab.until_phase(Phase::Leftovers).await;
    running.stop().await;
    assert_eq!(lab.place.everything().await, before);
    for id in [&theirs, &unmarked] {
        let line = status.report.iter().find(|line| line.id == **id).unwrap();
        assert!(line.reason.contains("is a default"), "{line:?}");
    }
}

pub(crate) async fn on_half_a_list_nothing_is_removed_and_nothing_is_called_clean(lab: &Lab) {
    let orphan = lab.place.balancer("demo", "gone", "web", UID).await;
    let volume = lab.place.old_volume("demo-csi", "orphan").await;
    // It comes no further than this before the list is cut.
    lab.served("held").await;
    lab.standins.stop(&lab.standins.balancers).await;
    let running = lab.start();
    let half = r#"{"loadbalancers": [], "loadbalancers_links": [{"rel": "next", "href": "/lb/v2/lbaas/loadbalancers?marker=x"}]}"#;
    let fail = |line: &str| line.starts_with("GET /lb/v2/lbaas/loadbalancers");
    lab.deorbit(&json!({"policies": {"volumes": "delete", "loadBalancers": "delete"},
        "budgets": {"stages": {"Verify": "2s", "Cloud": "2s"}}}))
        .await;
    lab.until("it waits for the Service", |status| status.stage.contains("LoadBalancers")).await;
    lab.place.fake().fault(move |seen| match seen.line.contains("marker=") {
        true => Some(Reply::json(500, &json!({"faultcode": "Server", "faultstring": "down", "debuginfo": null}))),
        false if fail(&seen.line) => Some(Reply::text(200, half)),
        false => None,
    });
    lab.standins.balancers.store(true, Ordering::SeqCst);
    let status = lab.until_phase(Phase::Leftovers).await;
    running.stop().await;
    assert!(!status.let_go);
    assert!(status.report.iter().any(|line| line.kind == "unknown"), "{:?}", status.report);
    let everything = lab.place.everything().await;
    assert!(everything["loadbalancers"].contains_key(&orphan));
    assert!(everything["volumes"].contains_key(&volume), "the volumes could be seen, but not all of the cluster");
}

pub(crate) async fn snapshots_that_are_retained_kept_or_another_driver_s_stay(lab: &Lab) {
    let volume = lab.place.old_volume("another", "pvc-1").await;
    let retained = lab.place.snapshot("demo-csi", &volume, "retained").await;
    let orphan = lab.place.snapshot("demo-csi", &volume, "orphan").await;
    lab.snapshot("retained", DRIVER, "Retain", &retained).await;
    lab.snapshot("theirs", "rbd.csi.ceph.com", "Delete", "x").await;
    let running = lab.start();
    lab.deorbit(&json!({"policies": {"snapshots": "delete"}, "budgets": {"stages": {"Verify": "1s"}}})).await;
    let status = lab.until_phase(Phase::Leftovers).await;
    running.stop().await;
    assert_eq!(lab.place.ids("snapshots").await, [retained.as_str()], "and not {orphan}");
    let line = status.report.iter().find(|line| line.id == retained).unwrap();
    assert!(line.reason.contains("retained"), "{line:?}");
    let api: Api<DynamicObject> = Api::namespaced_with(lab.client.clone(), &lab.namespace, &observe::snapshot());
    let names: Vec<_> = api.list(&ListParams::default()).await.unwrap().iter().map(ResourceExt::name_any).collect();
    assert_eq!(names, ["theirs"]);
}

pub(crate) async fn a_shared_load_balancer_stays_while_one_of_its_users_does(lab: &Lab) {
    lab.served("stays").await;
    lab.label_keep::<Service>("stays").await;
    let shared = lab.place.balancer("demo", &lab.namespace, "gone", UID).await;
    let tags = ["gone", "stays"].map(|name| format!("kube_service_demo_{}_{name}", lab.namespace));
    lab.place.set_tags(&shared, &tags).await;
    let ingress = json!({
        "name": format!("kube_ingress_demo_{}_front", lab.namespace),
        "description": format!("Kubernetes ingress front in namespace {} from cluster demo", lab.namespace),
    });
    let ingress = lab.place.load_balancer(ingress).await;
    let backend = json!({"service": {"name": "stays", "port": {"number": 80}}});
    lab.make::<Ingress>(json!({"metadata": {"name": "front", "labels": {"groundcrew.dev/deorbit": "keep"}},
        "spec": {"defaultBackend": backend}}))
        .await;
    let running = lab.start();
    lab.deorbit(&json!({"policies": {"loadBalancers": "delete"}, "budgets": {"stages": {"Verify": "1s"}}})).await;
    lab.until_phase(Phase::Leftovers).await;
    running.stop().await;
    let left = lab.place.ids("loadbalancers").await;
    assert!(left.len() == 3 && left.contains(&shared) && left.contains(&ingress), "{left:?}");
}

pub(crate) async fn a_cloud_that_shows_nothing_of_what_the_cluster_has_is_refused(lab: &Lab) {
    lab.served("web").await;
    lab.bound("data", "cinder").await;
    let before = lab.place.everything().await;
    let running = lab.start_on(("dem", "demo"));
    lab.deorbit(&json!({})).await;
    let status = lab.until_phase(Phase::Refused).await;
    running.stop().await;
    assert!(status.message.contains("--ccm-cluster") && status.message.contains("--csi-cluster"), "{}", status.message);
    assert_eq!(lab.place.everything().await, before);
}

pub(crate) async fn a_volume_that_was_just_made_is_not_taken_for_an_orphan(lab: &Lab) {
    let young = lab.place.young_volume("demo-csi", "pvc-new").await;
    let running = lab.start();
    lab.deorbit(&json!({"policies": {"volumes": "delete"}, "budgets": {"stages": {"Verify": "1s"}}})).await;
    let status = lab.until_phase(Phase::Leftovers).await;
    running.stop().await;
    assert!(lab.place.everything().await["volumes"].contains_key(&young));
    assert!(status.report[0].reason.contains("it is new"), "{:?}", status.report);
}

pub(crate) async fn past_the_brake_nothing_is_removed(lab: &Lab) {
    for n in 0..4 {
        lab.place.old_volume("demo-csi", &format!("orphan-{n}")).await;
    }
    let before = lab.place.everything().await;
    let running = lab.start();
    lab.deorbit(&json!({"policies": {"volumes": "delete"}, "maxCloudDeletes": 3,
        "budgets": {"stages": {"Verify": "1s"}}}))
        .await;
    let status = lab.until_phase(Phase::Leftovers).await;
    running.stop().await;
    assert_eq!(lab.place.everything().await, before);
    assert_eq!(status.left, 4);
}

pub(crate) async fn an_address_that_a_user_wants_to_keep_survives_its_service(lab: &Lab) {
    lab.served("web").await;
    let running = lab.start();
    lab.deorbit(&json!({"policies": {"floatingIps": "keep", "loadBalancers": "delete"}})).await;
    let status = lab.until_phase(Phase::Clean).await;
    running.stop().await;
    let kept = lab.place.ids("floatingips").await;
    assert_eq!(kept.len(), 1, "{kept:?}");
    lab.place.delete(Cloud::Network, &format!("v2.0/floatingips/{}", kept[0])).await.unwrap();
    lab.assert_as_before().await;
    assert!(status.report.iter().all(|line| line.kept), "{:?}", status.report);
}

pub(crate) async fn an_address_that_a_user_wants_to_keep_survives_its_ingress(lab: &Lab) {
    lab.place.ingress("demo", &lab.namespace, "front").await;
    let backend = json!({"service": {"name": "web", "port": {"number": 80}}});
    // So that there is something to see of it when it goes.
    lab.make::<Ingress>(json!({"metadata": {"name": "front", "finalizers": ["test.example/held"]},
        "spec": {"defaultBackend": backend}}))
        .await;
    let running = lab.start();
    let policies = json!({"floatingIps": "keep", "loadBalancers": "delete", "securityGroups": "delete"});
    lab.deorbit(&json!({"policies": policies, "budgets": {"stages": {"Verify": "1s"}}})).await;
    let ingresses: Api<Ingress> = Api::namespaced(lab.client.clone(), &lab.namespace);
    eventually("the Ingress goes", SOON, async || {
        let front = ingresses.get("front").await?;
        ensure!(front.metadata.deletion_timestamp.is_some(), "it stays");
        let noted = front.annotations().get("octavia.ingress.kubernetes.io/keep-floatingip").cloned();
        assert_eq!(noted.as_deref(), Some("true"), "its controller reads it then");
        Ok(())
    })
    .await
    .unwrap();
    finalizers(&ingresses, "front", &[]).await.unwrap();
    let status = lab.until_phase(Phase::Clean).await;
    running.stop().await;
    let kept = lab.place.ids("floatingips").await;
    assert_eq!(kept.len(), 1, "{kept:?}");
    assert!(status.report.iter().all(|line| line.kept), "{:?}", status.report);
    lab.place.delete(Cloud::Network, &format!("v2.0/floatingips/{}", kept[0])).await.unwrap();
    lab.assert_as_before().await;
}

fn sorted<const N: usize>(ids: [&String; N]) -> Vec<String> {
    let mut ids: Vec<_> = ids.into_iter().cloned().collect();
    ids.sort();
    ids
}
