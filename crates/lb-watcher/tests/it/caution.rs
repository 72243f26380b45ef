//! What must not be done: no alarm without cause, no request for the wrong Service, nothing but the report where only
//! that was asked for.

use groundcrew_testkit::Signal;
use groundcrew_testkit::ovn::Northbound;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::harness::{Project, SOON};
use crate::manager;

#[tokio::test]
async fn report_only_tells_and_writes_nothing() {
    let project = Project::new("report").await;
    project.served("web").await;
    let manager = project.manager().await;
    let watcher = project.watcher(&["--report-only", "--repair-time", "200ms"]).await;
    watcher.until_watches(1).await;
    let before = project.services().get("web").await.unwrap();
    project.nbctl(&["lb-del", &project.row("web")]).await;
    let told = project.until_event("web", "DriftFound").await;
    assert!(told.contains("report-only"), "{told}");
    watcher.until_found("row_missing", "manual_delete", 1.0).await;
    // Put back by somebody else: not counted as repaired by us, and over.
    manager::build(&project.northbound.remotes(), &project.client, &project.namespace, "web").await.unwrap();
    watcher.until_metric("groundcrew_drift_open_services", |open| open < 0.5).await;
    let after = project.services().get("web").await.unwrap();
    assert_eq!(after.metadata.resource_version, before.metadata.resource_version);
    assert_eq!(manager.asked(), 0);
    assert!(watcher.metric("groundcrew_watcher_repair_requests_total{outcome=\"ok\"}").await < 0.5);
}

#[tokio::test]
async fn dry_run_counts_the_drift_and_writes_not_even_an_event() {
    let project = Project::new("dry").await;
    project.served("web").await;
    let watcher = project.start(&["--dry-run"]).await;
    watcher.until_ready().await;
    watcher.until_watches(1).await;
    project.nbctl(&["lb-del", &project.row("web")]).await;
    watcher.until_found("row_missing", "manual_delete", 1.0).await;
    assert_eq!(project.resync("web").await, None);
    assert_eq!(project.events("web").await, [""; 0]);
}

#[tokio::test]
async fn endpoints_that_come_and_go_are_no_drift() {
    let project = Project::new("churn").await;
    project.served("web").await;
    let manager = project.manager().await;
    // Longer than the watch of EndpointSlices may lag behind OVN on a busy machine: the row is ahead of it till then.
    let watcher = project.watcher(&["--settle-time", "20s"]).await;
    watcher.until_watches(1).await;
    for addresses in [&["10.1.0.41"][..], &["10.1.0.41", "10.1.0.43"], &[]] {
        project.endpoints("web", addresses).await;
        // The manager follows with its own lag; here it is asked by hand.
        manager::build(&project.northbound.remotes(), &project.client, &project.namespace, "web").await.unwrap();
    }
    // What the manager makes of an empty list is its own business: it differs from ours, and stays.
    project.endpoints("web", &["10.1.0.41", "10.1.0.44"]).await;
    project.until_event_within(2 * SOON, "web", "DifferenceSeen").await;
    watcher.until_metric("groundcrew_watcher_differences_total{kind=\"backends\"}", |n| n > 0.5).await;
    assert!(watcher.found().await < 0.5, "kube-dc's way of seeing things is no drift");
    assert_eq!((manager.asked(), project.resync("web").await), (0, None));
}

#[tokio::test]
async fn a_service_that_is_deleted_takes_its_row_with_it_and_nobody_is_alarmed() {
    let project = Project::new("leaves").await;
    let address = project.served("stays").await;
    project.served("leaves").await;
    let manager = project.manager().await;
    let watcher = project.watcher(&["--verify-interval", "200ms"]).await;
    watcher.until_watches(2).await;
    // As the manager's finalizer does it: the row goes while the Service is on its way out. Not under the manager's name,
    // which would make the Service one that the watchers of all tests miss a row of.
    let finalizer = json!({ "metadata": { "finalizers": ["test.example/finalizer"] } });
    project.services().patch("leaves", &PatchParams::default(), &Patch::Merge(finalizer)).await.unwrap();
    project.services().delete("leaves", &DeleteParams::default()).await.unwrap();
    watcher.until_metric("groundcrew_watcher_services", |n| n < 1.5).await;
    project.nbctl(&["lb-del", &project.row("leaves")]).await;
    let none = json!({ "metadata": { "finalizers": null } });
    project.services().patch("leaves", &PatchParams::default(), &Patch::Merge(none)).await.unwrap();
    // Something that is drift, to know that the rest was looked at.
    project.nbctl(&["lb-del", &project.row("stays")]).await;
    project.until_whole("stays", &address).await;
    assert_eq!(manager.asked(), 1);
    assert!((watcher.found().await - 1.0).abs() < 0.1);
}

#[tokio::test]
async fn a_row_without_a_service_is_told_once_and_never_touched() {
    let project = Project::new("orphan").await;
    project.served("web").await;
    let row = project.row("long-gone");
    project.nbctl(&["lb-add", &row, "203.0.113.1:80", "10.9.9.9:80"]).await;
    // Names like ours of somebody who has no project here, and of this project's own controllers.
    project.nbctl(&["lb-add", "elsewhere-web-tcp", "203.0.113.2:80", "10.9.9.9:80"]).await;
    let marked = format!("{}-marked-tcp", project.namespace);
    project.nbctl(&["lb-add", &marked, "203.0.113.3:80", "10.9.9.9:80"]).await;
    project.nbctl(&["set", "load_balancer", &marked, "external_ids:groundcrew-cluster=x"]).await;
    let rows = project.nbctl(&["list", "Load_Balancer"]).await;
    let watcher = project.watcher(&["--verify-interval", "100ms"]).await;
    watcher.until_found("orphan", "unknown_writer", 1.0).await;
    let told = project.until_event(&project.namespace, "OrphanRow").await;
    assert!(told.contains(&row), "{told}");
    let comparisons = "groundcrew_watcher_full_comparisons_total";
    let before = watcher.metric(comparisons).await;
    watcher.until_metric(comparisons, |n| n > before + 5.0).await;
    assert!((watcher.found().await - 1.0).abs() < 0.1, "told once");
    assert!((watcher.metric("groundcrew_watcher_orphans").await - 1.0).abs() < 0.1);
    assert_eq!(project.nbctl(&["list", "Load_Balancer"]).await, rows);
    project.nbctl(&["lb-del", &row]).await;
    watcher.until_metric("groundcrew_watcher_orphans", |n| n < 0.5).await;
    watcher.until_even().await;
}

#[tokio::test]
async fn one_row_name_for_two_services_is_told_and_repaired_for_neither() {
    let project = Project::new("twins").await;
    // `{ns}/a-b` and `{ns}-a/b` share the row `{ns}-a-b-tcp`.
    let other = format!("{}-a", project.namespace);
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": other } });
    let namespaces: kube::Api<k8s_openapi::api::core::v1::Namespace> = kube::Api::all(project.client.clone());
    namespaces.create(&PostParams::default(), &serde_json::from_value(namespace).unwrap()).await.unwrap();
    // Else somebody else serves it.
    project.nbctl(&["lr-add", &other]).await;
    let address = project.served("plain").await;
    project.served("a-b").await;
    project.publish_in(&other, "b").await;
    let manager = project.manager().await;
    let watcher = project.watcher(&["--verify-interval", "200ms"]).await;
    watcher.until_watches(1).await;
    let told = project.until_event("a-b", "NameAmbiguous").await;
    assert!(told.contains(&format!("{other}/b")), "{told}");
    watcher.until_metric("groundcrew_watcher_ambiguous_names", |n| n > 0.5).await;
    project.nbctl(&["lb-del", &project.row("a-b"), "--", "lb-del", &project.row("plain")]).await;
    project.until_whole("plain", &address).await;
    assert_eq!((manager.asked(), project.resync("a-b").await), (1, None));
    // When one of them goes, the name is the other's again.
    let services: kube::Api<k8s_openapi::api::core::v1::Service> =
        kube::Api::namespaced(project.client.clone(), &other);
    services.delete("b", &DeleteParams::default()).await.unwrap();
    watcher.until_repaired("row_missing", "unknown_writer", 1.0).await;
    assert!(project.resync("a-b").await.is_some());
}

#[tokio::test]
async fn services_of_other_load_balancers_are_none_of_our_business() {
    let project = Project::new("foreign").await;
    let bare = Northbound::standalone().await.unwrap();
    let remotes = bare.remotes();
    project.publish("web").await;
    // An OVN without this project: its Services are served by somebody else.
    let kubeconfig = project.control_plane.kubeconfig_path().to_str().unwrap();
    let flags = ["--no-leader-election", "--verify-interval", "100ms"];
    let watcher = project.start_at(&remotes, kubeconfig, &flags).await;
    watcher.until_metric("groundcrew_watcher_full_comparisons_total", |n| n > 8.0).await;
    assert!(watcher.found().await < 0.5);
    assert_eq!(project.resync("web").await, None);
}

#[tokio::test]
async fn a_service_that_is_taken_over_by_ovn_lb_is_not_missed_when_its_row_gets_another_name() {
    let project = Project::new("takeover").await;
    let address = project.served("stays").await;
    project.served("goes").await;
    let manager = project.manager().await;
    let watcher = project.watcher(&["--verify-interval", "200ms"]).await;
    watcher.until_watches(2).await;
    let claim = json!({ "metadata": {
        "annotations": { "groundcrew.dev/claimed-by": "groundcrew.dev/ovn" },
        "finalizers": ["service.kubernetes.io/load-balancer-cleanup"],
    } });
    project.services().patch("goes", &PatchParams::default(), &Patch::Merge(claim)).await.unwrap();
    let row = project.row("goes");
    let name = format!("name={row}-01234567");
    project.nbctl(&["set", "load_balancer", &row, &name, "external_ids:groundcrew-cluster=x"]).await;
    watcher.until_metric("groundcrew_watcher_services", |n| n < 1.5).await;
    // Something that is drift, to know that the rest was looked at.
    project.nbctl(&["lb-del", &project.row("stays")]).await;
    project.until_whole("stays", &address).await;
    watcher.until_repaired("row_missing", "manual_delete", 1.0).await;
    assert_eq!((manager.asked(), project.resync("goes").await), (1, None));
    assert!((watcher.found().await - 1.0).abs() < 0.1);
    // For the watchers of other tests.
    let none = json!({ "metadata": { "finalizers": null } });
    project.services().patch("goes", &PatchParams::default(), &Patch::Merge(none)).await.unwrap();
}

#[tokio::test]
async fn a_paused_service_is_left_alone_until_it_is_not() {
    let project = Project::new("paused").await;
    let address = project.served("web").await;
    let marker = project.served("marker").await;
    let manager = project.manager().await;
    let watcher = project.watcher(&[]).await;
    watcher.until_watches(2).await;
    let paused = |value| json!({ "metadata": { "annotations": { "groundcrew.dev/paused": value } } });
    let params = PatchParams::default();
    project.services().patch("web", &params, &Patch::Merge(paused(Some("true")))).await.unwrap();
    watcher.until_metric("groundcrew_watcher_services", |n| n < 1.5).await;
    project.nbctl(&["lb-del", &project.row("web")]).await;
    // Another one, to know that what came before was looked at.
    project.nbctl(&["lb-del", &project.row("marker")]).await;
    project.until_whole("marker", &marker).await;
    assert_eq!((manager.asked(), project.resync("web").await), (1, None));
    project.services().patch("web", &params, &Patch::Merge(paused(None))).await.unwrap();
    project.until_whole("web", &address).await;
}

#[tokio::test]
async fn nothing_is_judged_before_ovn_was_read() {
    let mut project = Project::new("early").await;
    project.served("web").await;
    project.northbound.stop(0, Signal::SIGKILL).await.unwrap();
    let watcher = project.start(&["--no-leader-election", "--verify-interval", "50ms"]).await;
    watcher.until_unready("northbound database").await;
    project.northbound.restart(0).await.unwrap();
    watcher.until_ready().await;
    watcher.until_watches(1).await;
    assert!(watcher.found().await < 0.5);
    assert_eq!(project.resync("web").await, None);
}
