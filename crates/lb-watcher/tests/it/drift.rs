//! Every kind of drift is seen, put down to somebody, and repaired by the manager that was woken.

use crate::harness::Project;

#[tokio::test]
async fn a_deleted_row_is_rebuilt_and_its_service_is_told() {
    let project = Project::new("deleted").await;
    let address = project.served("web").await;
    project.served("other").await;
    let manager = project.manager().await;
    let watcher = project.watcher(&[]).await;
    watcher.until_watches(2).await;

    project.nbctl(&["lb-del", &project.row("web")]).await;
    project.until_whole("web", &address).await;
    watcher.until_repaired("row_missing", "manual_delete", 1.0).await;
    let told = project.until_event("web", "DriftFound").await;
    assert!(told.contains(&project.row("web")) && told.contains("by hand"), "{told}");
    project.until_event("web", "DriftRepaired").await;
    assert_eq!(manager.asked(), 1);
    assert_eq!(project.resync("other").await, None, "nothing happened to it");
    let counted = watcher.metric("groundcrew_drift_repair_seconds_count").await;
    assert!((counted - 1.0).abs() < 0.1, "{counted}");
}

#[tokio::test]
async fn whatever_is_changed_in_a_row_or_around_it_is_seen_and_repaired() {
    let project = Project::new("changed").await;
    let address = project.served("web").await;
    let manager = project.manager().await;
    let watcher = project.watcher(&[]).await;
    watcher.until_watches(1).await;
    let (row, router, switch) =
        (project.row("web"), project.namespace.clone(), format!("{}-default", project.namespace));
    let vip = |to: &str| format!("vips:\"{address}:80\"=\"{to}\"");
    for (spoil, kind) in [
        (vec!["lr-lb-del", &router, &row], "router_detached"),
        (vec!["ls-lb-del", &switch, &row], "switch_detached"),
        (vec!["set", "load_balancer", &row, "protocol=udp"], "protocol"),
        (vec!["clear", "load_balancer", &row, "vips"], "vip_missing"),
        (vec!["set", "load_balancer", &row, "vips:\"203.0.113.9:80\"=\"10.9.9.9:1\""], "vip_extra"),
        (vec!["set", "load_balancer", &row, &vip("10.9.9.9:1")], "backends"),
        (vec!["set", "load_balancer", &row, "name=other"], "row_missing"),
    ] {
        let before = manager.asked();
        project.nbctl(&spoil).await;
        watcher.until_repaired(kind, "unknown_writer", 1.0).await;
        project.until_whole("web", &address).await;
        assert_eq!(manager.asked(), before + 1, "{kind}: asked once");
        // Or it would undo what is spoilt next before anybody sees it.
        manager.until_done().await;
        if kind == "row_missing" {
            project.nbctl(&["lb-del", "other"]).await;
        }
    }
    watcher.until_metric("groundcrew_drift_open_services", |open| open < 0.5).await;
    watcher.until_even().await;
}

#[tokio::test]
async fn a_router_made_again_under_its_name_is_seen_for_what_it_is() {
    let project = Project::new("router").await;
    let address = project.served("web").await;
    let _manager = project.manager().await;
    let watcher = project.watcher(&[]).await;
    watcher.until_watches(1).await;
    let router = project.namespace.as_str();

    project.nbctl(&["lr-del", router, "--", "lr-add", router]).await;
    project.until_whole("web", &address).await;
    watcher.until_repaired("router_detached", "router_recreated", 1.0).await;

    // In two steps: between them there is nothing that the manager could do.
    project.nbctl(&["lr-del", router]).await;
    watcher.until_found("router_missing", "unknown_writer", 1.0).await;
    project.nbctl(&["lr-add", router]).await;
    project.until_whole("web", &address).await;
    watcher.until_metric("groundcrew_drift_open_services", |open| open < 0.5).await;
    watcher.until_found("router_detached", "router_recreated", 2.0).await;
    watcher.until_even().await;
}

#[tokio::test]
async fn a_second_row_of_the_same_name_is_drift() {
    let project = Project::new("twice").await;
    let address = project.served("web").await;
    let manager = project.manager().await;
    let watcher = project.watcher(&["--repair-time", "200ms"]).await;
    watcher.until_watches(1).await;
    let second = project.nbctl(&["create", "Load_Balancer", &format!("name={}", project.row("web"))]).await;
    watcher.until_found("row_duplicate", "unknown_writer", 1.0).await;
    let told = project.until_event("web", "DriftFound").await;
    assert!(told.contains(second.trim()), "both are named: {told}");
    // Long enough to have been asked again and again.
    let comparisons = "groundcrew_watcher_full_comparisons_total";
    let before = watcher.metric(comparisons).await;
    project.pod("kube-ovn-controller-1", 0).await;
    watcher.until_metric(comparisons, |n| n > before + 1.5).await;
    assert_eq!((manager.asked(), project.resync("web").await), (0, None), "it could do nothing");
    assert!(!project.events("web").await.contains(&"RepairOverdue".to_owned()));
    project.nbctl(&["destroy", "Load_Balancer", second.trim()]).await;
    watcher.until_repaired("row_duplicate", "unknown_writer", 1.0).await;
    project.until_whole("web", &address).await;
}

#[tokio::test]
async fn options_are_not_kube_dcs_so_a_change_of_them_is_told_and_left() {
    let project = Project::new("options").await;
    project.served("web").await;
    let manager = project.manager().await;
    let watcher = project.watcher(&[]).await;
    watcher.until_watches(1).await;
    project.nbctl(&["set", "load_balancer", &project.row("web"), "options:reject=true"]).await;
    watcher.until_metric("groundcrew_watcher_differences_total{kind=\"options\"}", |n| n > 0.5).await;
    project.until_event("web", "DifferenceSeen").await;
    assert!(watcher.found().await < 0.5, "nothing that is to be repaired");
    assert_eq!((manager.asked(), project.resync("web").await), (0, None));
}

#[tokio::test]
async fn what_was_gone_before_the_watcher_came_is_repaired_too() {
    let project = Project::new("before").await;
    let address = project.publish("web").await;
    let _manager = project.manager().await;
    let watcher = project.watcher(&[]).await;
    project.until_whole("web", &address).await;
    watcher.until_repaired("row_missing", "unknown_writer", 1.0).await;
}

#[tokio::test]
async fn all_that_was_gone_before_the_watcher_came_is_summed_up_once() {
    let project = Project::new("allgone").await;
    for name in ["a", "b", "c"] {
        project.publish(name).await;
    }
    let _manager = project.manager().await;
    let watcher = project.watcher(&[]).await;
    watcher.until_repaired("row_missing", "unknown_writer", 3.0).await;
    let told = project.until_event("groundcrew-lb-watcher", "MassDrift").await;
    assert!(told.contains("3 Services"), "{told}");
    let rounds = watcher.metric("groundcrew_drift_mass_total{cause=\"unknown_writer\"}").await;
    assert!((rounds - 1.0).abs() < 0.1, "{rounds}");
}

#[tokio::test]
async fn a_restored_and_an_emptied_database_are_told_apart() {
    let mut project = Project::new("restored").await;
    let old = project.served("old").await;
    let backup = groundcrew_testkit::Scratch::new("backup").unwrap();
    project.northbound.backup(&backup.join("nb")).await.unwrap();
    let new = project.served("new").await;
    let _manager = project.manager().await;
    let watcher = project.watcher(&[]).await;
    watcher.until_watches(2).await;

    project.northbound.restore(&backup.join("nb")).await.unwrap();
    project.until_whole("new", &new).await;
    project.until_whole("old", &old).await;
    watcher.until_repaired("row_missing", "database_restored", 1.0).await;
    watcher.until_metric("groundcrew_drift_open_services", |open| open < 0.5).await;

    project.northbound.rebuild_empty().await.unwrap();
    watcher.until_found("row_missing", "database_emptied", 2.0).await;
    let told = project.until_event("groundcrew-lb-watcher", "MassDrift").await;
    assert!(told.contains("emptied"), "{told}");
    // The manager could do nothing without a router; when there is one, it is asked again.
    project.connect().await;
    project.until_whole("old", &old).await;
    project.until_whole("new", &new).await;
}
