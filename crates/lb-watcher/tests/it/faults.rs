//! Others fail, hang, fight or change places; what is broken is repaired once, and nothing else happens.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use groundcrew_testkit::Signal;
use groundcrew_testkit::ovn::Northbound;
use kube::api::DeleteParams;
use tokio_util::task::AbortOnDropHandle;

use crate::harness::{Project, SOON};

#[tokio::test]
async fn drift_during_a_hand_over_is_repaired_by_the_successor() {
    let project = Project::new("handover").await;
    let address = project.served("web").await;
    let manager = project.manager().await;
    let first = project.start(&[]).await;
    first.until_ready().await;
    first.until_metric("groundcrew_leader_leading_bool", |leads| leads > 0.5).await;
    let second = project.start(&[]).await;
    second.until_ready().await;
    first.until_watches(1).await;
    second.until_watches(1).await;

    // Nobody leads when it happens.
    first.stop().await;
    project.nbctl(&["lb-del", &project.row("web")]).await;
    project.until_whole("web", &address).await;
    second.until_repaired("row_missing", "manual_delete", 1.0).await;
    assert_eq!(manager.asked(), 1);
}

#[tokio::test]
async fn a_collection_while_nobody_leads_is_summed_up_by_the_successor() {
    let project = Project::new("interregnum").await;
    let names = ["a", "b", "c", "d", "e"];
    for name in names {
        project.served(name).await;
    }
    let _manager = project.manager().await;
    let first = project.start(&[]).await;
    first.until_metric("groundcrew_leader_leading_bool", |leads| leads > 0.5).await;
    let second = project.start(&[]).await;
    for watcher in [&first, &second] {
        watcher.until_ready().await;
        watcher.until_watches(5).await;
    }
    first.stop().await;
    project.collect().await;
    // It has seen all of it before it may say a word.
    second.until_repaired("row_missing", "kube_ovn_collection", 5.0).await;
    let rounds = "groundcrew_drift_mass_total{cause=\"kube_ovn_collection\"}";
    second.until_metric(rounds, |rounds| (rounds - 1.0).abs() < 0.1).await;
    let told = project.until_event("groundcrew-lb-watcher", "MassDrift").await;
    assert!(told.contains("5 Services"), "{told}");
}

#[tokio::test]
async fn a_successor_does_not_ask_again_for_what_is_under_way() {
    let project = Project::new("asked").await;
    for name in ["web", "marker"] {
        project.served(name).await;
    }
    let manager = project.manager().await;
    manager.idle(true);
    let flags = ["--repair-time", "1h"];
    let first = project.start(&flags).await;
    first.until_metric("groundcrew_leader_leading_bool", |leads| leads > 0.5).await;
    let second = project.start(&flags).await;
    for watcher in [&first, &second] {
        watcher.until_ready().await;
        watcher.until_watches(2).await;
    }
    project.nbctl(&["lb-del", &project.row("web")]).await;
    first.until_found("row_missing", "manual_delete", 1.0).await;
    first.stop().await;
    second.until_metric("groundcrew_leader_leading_bool", |leads| leads > 0.5).await;
    // It looks at everything as its term begins; another drift shows that it is through.
    project.nbctl(&["lb-del", &project.row("marker")]).await;
    second.until_found("row_missing", "manual_delete", 1.0).await;
    manager.until_asked(2).await;
    assert_eq!(manager.asked(), 2, "once for each");
}

#[tokio::test]
async fn while_ovn_hangs_nothing_is_alarmed_and_afterwards_everything_is_compared() {
    let project = Project::new("hung").await;
    let address = project.served("web").await;
    let manager = project.manager().await;
    let watcher = project.watcher(&["--verify-interval", "500ms"]).await;
    watcher.until_watches(1).await;
    project.northbound.signal(0, Signal::SIGSTOP).unwrap();
    // As far as anybody can see it has no row. But nobody can see.
    project.publish("new").await;
    watcher.until_metric("groundcrew_watcher_connected_bool", |connected| connected < 0.5).await;
    assert!(watcher.found().await < 0.5, "no alarm on a view that stands still");
    assert_eq!(manager.asked(), 0);
    project.northbound.signal(0, Signal::SIGCONT).unwrap();
    project.nbctl(&["lb-del", &project.row("web")]).await;
    project.until_whole("web", &address).await;
    watcher.until_found("row_missing", "unknown_writer", 1.0).await;
    assert_eq!(project.services().get("new").await.unwrap().metadata.name.as_deref(), Some("new"));
}

#[tokio::test]
async fn while_ovn_takes_no_writes_the_manager_is_asked_until_it_can() {
    let project = Project::new("readonly").await;
    let address = project.served("web").await;
    let manager = project.manager().await;
    let watcher = project.watcher(&["--repair-time", "500ms"]).await;
    watcher.until_watches(1).await;
    manager.idle(true);
    project.nbctl(&["lb-del", &project.row("web")]).await;
    project.northbound.set_read_only(true).await.unwrap();
    manager.idle(false);
    let told = project.until_event("web", "RepairOverdue").await;
    assert!(told.contains("manager"), "{told}");
    project.northbound.set_read_only(false).await.unwrap();
    project.until_whole("web", &address).await;
    watcher.until_metric("groundcrew_drift_open_services", |open| open < 0.5).await;
}

#[tokio::test]
async fn against_a_writer_in_a_tight_loop_the_brake_holds_and_others_are_unaffected() {
    let project = Project::new("war").await;
    let calm = project.served("calm").await;
    project.served("web").await;
    project.lease("controller-a").await;
    let manager = project.manager().await;
    let watcher = project.watcher(&[]).await;
    watcher.until_watches(2).await;
    // It happens near that time, so it is told, too.
    project.new_leader(&watcher, "controller-b").await;

    let at_war = Arc::new(AtomicBool::new(true));
    let (war, remotes, row) = (at_war.clone(), project.northbound.remotes(), project.row("web"));
    let is_done = manager.is_done();
    let _enemy = AbortOnDropHandle::new(tokio::spawn(async move {
        let mut pace = tokio::time::interval(Duration::from_millis(20));
        while war.load(Ordering::Relaxed) {
            pace.tick().await;
            // Not in the middle of a repair, which would take several then: ten of them have to come within a minute.
            if !is_done() {
                continue;
            }
            let _ = crate::manager::nbctl(&remotes, &["--if-exists", "lb-del", &row]).await;
        }
    }));
    // Ten rounds of some five commands each; within a minute they are a fight.
    let told = project.until_event_within(2 * SOON, "web", "DriftFlapping").await;
    assert!(told.contains("10 repairs") && told.contains("controller-b became leader"), "{told}");
    assert!((watcher.metric("groundcrew_drift_flapping_services").await - 1.0).abs() < 0.1);
    let asked = manager.asked();
    assert!((10..=11).contains(&asked), "{asked} requests");

    project.nbctl(&["lb-del", &project.row("calm")]).await;
    project.until_whole("calm", &calm).await;
    assert!(manager.asked() <= asked + 2, "the brake holds while others are repaired");
    at_war.store(false, Ordering::Relaxed);
}

#[tokio::test]
async fn a_manager_that_does_not_answer_is_told_about_and_asked_less_and_less() {
    let project = Project::new("silent").await;
    let address = project.served("web").await;
    let manager = project.manager().await;
    let watcher = project.watcher(&["--repair-time", "200ms"]).await;
    watcher.until_watches(1).await;
    manager.idle(true);
    project.nbctl(&["lb-del", &project.row("web")]).await;
    project.until_event("web", "RepairOverdue").await;
    manager.until_asked(3).await;
    assert!((watcher.found().await - 1.0).abs() < 0.1, "one drift, however often it is asked for");
    manager.idle(false);
    project.until_whole("web", &address).await;
    watcher.until_repaired("row_missing", "manual_delete", 1.0).await;
}

#[tokio::test]
async fn a_lost_connection_is_made_up_for() {
    let mut project = Project::new("lost").await;
    let address = project.served("web").await;
    let _manager = project.manager().await;
    let watcher = project.watcher(&[]).await;
    watcher.until_watches(1).await;
    project.northbound.stop(0, Signal::SIGKILL).await.unwrap();
    watcher.until_metric("groundcrew_watcher_connected_bool", |connected| connected < 0.5).await;
    project.northbound.restart(0).await.unwrap();
    // Perhaps before the watcher is back, perhaps after.
    project.nbctl(&["lb-del", &project.row("web")]).await;
    project.until_whole("web", &address).await;
    watcher.until_repaired("row_missing", "manual_delete", 1.0).await;
}

#[tokio::test]
async fn a_new_leader_of_the_database_is_followed_without_an_alarm() {
    let mut project = Project::on("raft", Northbound::cluster(3).await.unwrap()).await;
    let address = project.served("web").await;
    let manager = project.manager().await;
    let watcher = project.watcher(&["--verify-interval", "200ms"]).await;
    watcher.until_watches(1).await;
    let leader = project.northbound.leader().await.unwrap();
    project.northbound.stop(leader, Signal::SIGKILL).await.unwrap();
    project.northbound.leader().await.unwrap();
    let comparisons = "groundcrew_watcher_full_comparisons_total";
    let before = watcher.metric(comparisons).await;
    watcher.until_metric(comparisons, |n| n > before + 2.0).await;
    assert!(watcher.found().await < 0.5);
    project.nbctl(&["lb-del", &project.row("web")]).await;
    project.until_whole("web", &address).await;
    watcher.until_repaired("row_missing", "manual_delete", 1.0).await;
    assert_eq!(manager.asked(), 1);
}

#[tokio::test]
async fn a_service_deleted_while_its_row_is_awaited_is_not_brought_back() {
    let project = Project::new("vanished").await;
    let address = project.served("stays").await;
    project.served("web").await;
    let manager = project.manager().await;
    manager.idle(true);
    let watcher = project.watcher(&["--repair-time", "300ms"]).await;
    watcher.until_watches(2).await;
    project.nbctl(&["lb-del", &project.row("web")]).await;
    manager.until_asked(2).await;
    project.services().delete("web", &DeleteParams::default()).await.unwrap();
    watcher.until_metric("groundcrew_drift_open_services", |open| open < 0.5).await;
    watcher.until_even().await;
    manager.idle(false);
    // Another drift, to know that whatever was under way is over.
    project.nbctl(&["lb-del", &project.row("stays")]).await;
    project.until_whole("stays", &address).await;
    assert!(project.services().get_opt("web").await.unwrap().is_none());
    let rows = project.nbctl(&["--bare", "--columns=name", "list", "Load_Balancer"]).await;
    assert!(!rows.contains(&project.row("web")), "{rows}");
}
