//! kube-ovn's start-up collection: seen, named, and survived.

use crate::harness::Project;

#[tokio::test]
async fn a_collection_is_named_with_its_remedy_and_everything_comes_back() {
    let project = Project::new("gc").await;
    let mut addresses = Vec::new();
    for name in ["a", "b", "c", "d"] {
        addresses.push((name, project.served(name).await));
    }
    project.pod("kube-ovn-controller-1", 0).await;
    project.lease("kube-ovn-controller-1").await;
    let _manager = project.manager().await;
    let watcher = project.watcher(&[]).await;
    watcher.until_watches(4).await;

    project.new_leader(&watcher, "kube-ovn-controller-2").await;
    watcher.until_metric("groundcrew_watcher_vigil_bool", |on| on > 0.5).await;
    project.collect().await;
    for (name, address) in &addresses {
        project.until_whole(name, address).await;
    }
    watcher.until_repaired("row_missing", "kube_ovn_collection", 4.0).await;
    let rounds = "groundcrew_drift_mass_total{cause=\"kube_ovn_collection\"}";
    watcher.until_metric(rounds, |rounds| (rounds - 1.0).abs() < 0.1).await;
    let told = project.until_event("groundcrew-lb-watcher", "MassDrift").await;
    for word in ["4 Services", "kube-ovn-controller-2 became leader", "GC_INTERVAL=0"] {
        assert!(told.contains(word), "{word}: {told}");
    }
    let told = project.until_event("a", "DriftFound").await;
    assert!(told.contains("start-up collection") && told.contains("GC_INTERVAL=0"), "{told}");
    // It was seen, so the vigil is over, long before its minute.
    watcher.until_metric("groundcrew_watcher_vigil_bool", |on| on < 0.5).await;
    let missed = watcher.metric("groundcrew_watcher_missed_changes_total").await;
    assert!(missed < 0.5, "push told all of it");
}

#[tokio::test]
async fn of_more_than_a_hundred_only_the_summary_is_told_from_their_loss_to_their_repair() {
    let project = Project::new("crowd").await;
    let (router, switch) = (project.namespace.clone(), format!("{}-default", project.namespace));
    let (mut rows, mut make) = (Vec::new(), Vec::new());
    for n in 0..110 {
        let name = format!("s{n}");
        let (row, address) = (project.row(&name), project.publish(&name).await);
        let vip = format!("{address}:80");
        make.extend(["--", "lb-add", &row, &vip, "10.1.0.41:8080,10.1.0.42:8080"].map(str::to_owned));
        make.extend(["--", "lr-lb-add", &router, &row, "--", "ls-lb-add", &switch, &row].map(str::to_owned));
        rows.push(row);
    }
    let make: Vec<_> = make.iter().skip(1).map(String::as_str).collect();
    project.nbctl(&make).await;
    let watcher = project.watcher(&["--repair-time", "500ms"]).await;
    watcher.until_watches(110).await;

    project.collect().await;
    watcher.until_found("row_missing", "kube_ovn_collection", 110.0).await;
    let told = project.until_event("groundcrew-lb-watcher", "MassDrift").await;
    assert!(told.contains("110 Services"), "{told}");
    // Nobody repairs them, so they are asked for a second time.
    watcher.until_metric("groundcrew_watcher_repair_requests_total{outcome=\"ok\"}", |n| n > 219.5).await;
    project.nbctl(&make).await;
    watcher.until_metric("groundcrew_drift_open_services", |open| open < 0.5).await;
    watcher.until_even().await;
    // One alone is told again, and whatever was told before it has come by then.
    project.nbctl(&["lb-del", &rows[0]]).await;
    project.until_event("s0", "DriftFound").await;
    for n in 1..110 {
        assert_eq!(project.events(&format!("s{n}")).await, [""; 0], "s{n}");
    }
}

#[tokio::test]
async fn three_collections_in_ten_seconds_are_survived_without_a_brake() {
    let project = Project::new("thrice").await;
    let (web, api) = (project.served("web").await, project.served("api").await);
    let _manager = project.manager().await;
    let watcher = project.watcher(&[]).await;
    watcher.until_watches(2).await;
    for round in 1..=3 {
        project.collect().await;
        project.until_whole("web", &web).await;
        project.until_whole("api", &api).await;
        watcher.until_repaired("row_missing", "kube_ovn_collection", f64::from(2 * round)).await;
    }
    assert!(watcher.metric("groundcrew_drift_flapping_services").await < 0.5);
}

#[tokio::test]
async fn a_row_collected_in_the_middle_of_its_repair_is_asked_for_at_once() {
    let project = Project::new("middle").await;
    let address = project.served("web").await;
    let manager = project.manager().await;
    // Nobody would ask again for an hour because of the time alone.
    let watcher = project.watcher(&["--repair-time", "1h"]).await;
    watcher.until_watches(1).await;
    manager.idle(true);
    project.nbctl(&["lb-del", &project.row("web")]).await;
    manager.until_asked(1).await;
    // It has made the row, but not attached it yet, when the collection comes.
    project.nbctl(&["create", "Load_Balancer", &format!("name={}", project.row("web")), "protocol=tcp"]).await;
    watcher.until_metric("groundcrew_drift_open_services", |open| open > 0.5).await;
    manager.idle(false);
    project.collect().await;
    project.until_whole("web", &address).await;
    assert_eq!(manager.asked(), 2);
}

#[tokio::test]
async fn a_restart_is_noticed_by_a_new_pod_by_a_restart_count_and_by_the_lease() {
    let project = Project::new("restart").await;
    project.served("web").await;
    project.pod("controller-a", 0).await;
    project.lease("controller-a").await;
    let watcher = project.watcher(&["--verify-interval", "1h"]).await;
    watcher.until_watches(1).await;
    let (changes, comparisons) =
        ("groundcrew_watcher_kube_ovn_changes_total", "groundcrew_watcher_full_comparisons_total");
    assert!(watcher.kube_ovn_changes().await < 0.5, "what was there before is no news");
    project.restarted(&watcher, "controller-a").await;
    let so_far = watcher.kube_ovn_changes().await;
    project.pod("controller-b", 0).await;
    watcher.until_metric(changes, |n| n > so_far + 0.5).await;
    project.new_leader(&watcher, "controller-b").await;
    // The usual pace is an hour; now it is a second, until the collection.
    let before = watcher.metric(comparisons).await;
    watcher.until_metric(comparisons, |n| n > before + 1.5).await;
    watcher.until_metric("groundcrew_watcher_vigil_bool", |on| on > 0.5).await;
    project.collect().await;
    watcher.until_found("row_missing", "kube_ovn_collection", 1.0).await;
    watcher.until_metric("groundcrew_watcher_vigil_bool", |on| on < 0.5).await;
    let told = project.until_event("web", "DriftFound").await;
    assert!(told.contains("controller-b became leader"), "{told}");
}

#[tokio::test]
async fn every_wait_is_short_enough_for_an_outage() {
    let project = Project::new("quick").await;
    let address = project.served("web").await;
    let _manager = project.manager().await;
    // Whoever settled for what nothing explains would do so until long after the test.
    let watcher = project.watcher(&["--settle-time", "1h"]).await;
    watcher.until_watches(1).await;
    project.nbctl(&["lb-del", &project.row("web")]).await;
    project.until_whole("web", &address).await;
}
