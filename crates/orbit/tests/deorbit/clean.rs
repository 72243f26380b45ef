//! A cluster goes and leaves nothing, in Kubernetes and in the cloud.

use groundcrew_api::deorbit::{Phase, StageName, StageState};
use groundcrew_orbit::deorbit::observe;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim};
use k8s_openapi::api::networking::v1::Ingress;
use kube::Api;
use kube::api::PostParams;
use serde_json::{from_value, json};

use crate::lab::{Lab, claim};

pub(crate) async fn a_cluster_with_all_kinds_goes_and_only_its_neighbour_is_left(lab: &Lab) {
    // In the same project, with names that begin with ours or end with them.
    for cluster in ["demo_x", "demo-2", "xdemo", "kubernetes"] {
        lab.place.balancer(cluster, "shop", "web", "0b7a8c1e-0000-4000-8000-000000000000").await;
    }
    for csi in ["demo", "demo-csi-2", ""] {
        let volume = lab.place.old_volume(csi, "pvc-1").await;
        lab.place.snapshot(csi, &volume, "yesterday").await;
    }
    // On the same router, to pods of the same range, and by the addresses of its own Nodes.
    lab.place.add_routes(&[("100.100.1.0/24", "10.180.2.1"), ("100.100.3.0/24", "10.180.2.3")]).await;
    let neighbours = lab.place.everything().await;

    for i in [1, 2] {
        lab.node(i).await;
    }
    lab.place.add_routes(&[("100.100.1.0/24", "10.180.1.1"), ("100.100.2.0/24", "10.180.1.2")]).await;
    lab.served("web").await;
    lab.served("api").await;
    lab.bound("data", "cinder").await;
    lab.stateful_set("db", "cinder").await;
    lab.snapshot_of("data", "yesterday").await;
    lab.dynamic(&observe::gateway(), "front").await;
    let backend = json!({"service": {"name": "web", "port": {"number": 80}}});
    lab.make::<Ingress>(json!({"metadata": {"name": "front"}, "spec": {"defaultBackend": backend}})).await;
    for (collection, ours) in [("loadbalancers", 2), ("floatingips", 2), ("volumes", 2), ("snapshots", 1)] {
        let theirs = neighbours[collection].len();
        assert_eq!(lab.place.ids(collection).await.len(), theirs + ours, "{collection}");
    }

    let running = lab.start();
    lab.deorbit(&json!({"policies": {"routes": "delete"}})).await;
    let status = lab.until_phase(Phase::Clean).await;
    assert_eq!(lab.place.everything().await, neighbours);
    assert!(status.let_go && status.left == 0 && status.irreversible_at.is_some(), "{status:?}");
    assert!(status.stages.iter().all(|stage| stage.state == StageState::Done), "{:?}", status.stages);
    assert_eq!(status.report, []);

    // The block holds until the cluster or the object goes.
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(lab.client.clone(), &lab.namespace);
    let refused = claims.create(&PostParams::default(), &from_value(claim("new", "cinder")).unwrap()).await;
    assert!(refused.unwrap_err().to_string().contains("being deorbited"));
    let reports: Api<ConfigMap> = Api::namespaced(lab.client.clone(), "default");
    let report = reports.get("deorbit-end-report").await.unwrap().data.unwrap();
    assert!(report["report.json"].contains("\"left\":0"), "{report:?}");
    running.stop().await;
}

pub(crate) async fn a_dry_run_shows_everything_and_touches_nothing(lab: &Lab) {
    lab.served("web").await;
    lab.stateful_set("db", "cinder").await;
    let before = lab.place.everything().await;
    let running = lab.start();
    lab.deorbit(&json!({"dryRun": true, "confirm": ""})).await;
    let status = lab.until_phase(Phase::Planned).await;
    running.stop().await;

    let lines: Vec<_> = status.plan.iter().map(|line| (line.stage, line.action.as_str(), line.kind.as_str())).collect();
    for expected in [
        (StageName::Quiesce, "scale to 0", "StatefulSet"),
        (StageName::LoadBalancers, "delete", "Service"),
        (StageName::Pods, "delete", "Pod"),
        (StageName::Claims, "delete", "PersistentVolumeClaim"),
        (StageName::Volumes, "wait for", "PersistentVolume"),
    ] {
        assert!(lines.contains(&expected), "{expected:?} in {lines:?}");
    }
    assert_eq!(lab.place.everything().await, before);
    lab.until_bound("data-db-0").await;
    assert_eq!(status.irreversible_at, None);
}
