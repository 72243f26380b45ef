//! Drift while OVN or the controller is elsewhere, and of what is rarely looked at.

use groundcrew_testkit::ovn::Northbound;
use groundcrew_testkit::{Signal, eventually};
use kube::Api;
use kube::api::ListParams;
use serde_json::json;

use crate::drift::{name_of, picture, until_found};
use crate::harness::{Project, SOON, rows};

async fn until_undone(northbound: &Northbound, before: &str, what: &str) {
    eventually(what, SOON, async || {
        let now = picture(northbound).await;
        if now == before { Ok(()) } else { Err(now) }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn drift_while_the_connection_is_lost_is_put_right_and_told() {
    let project = Project::new("offline").await;
    let mut northbound = project.northbound().await;
    project.pool(8).await;
    let controller = project.controller(&northbound).await;
    project.served("web").await;
    let (before, row) = (picture(&northbound).await, name_of(&northbound, "web").await);
    northbound.stop(0, Signal::SIGKILL).await.unwrap();
    let connected = "groundcrew_ovn_connected_bool";
    eventually("it is seen to be away", SOON, async || match controller.metric(connected).await {
        value if value < 0.5 => Ok(()),
        value => Err(value),
    })
    .await
    .unwrap();
    northbound.restart(0).await.unwrap();
    // Perhaps before the controller is back, perhaps after.
    northbound.nbctl(["lb-del", &row]).await.unwrap();
    until_found(&controller, "row_missing", 1).await;
    until_undone(&northbound, &before, "the row is back").await;
    let missed = controller.metric("groundcrew_service_missed_changes_total").await;
    assert!(missed < 0.5, "{missed}");
    controller.stop().await;
}

#[tokio::test]
async fn a_new_leader_of_the_database_is_no_drift_and_what_comes_then_is() {
    let project = Project::new("elected").await;
    let mut northbound = Northbound::cluster(3).await.unwrap();
    project.connect(&northbound).await;
    project.pool(8).await;
    let controller = project.controller(&northbound).await;
    project.served("web").await;
    let (before, row) = (picture(&northbound).await, name_of(&northbound, "web").await);
    let leader = northbound.leader().await.unwrap();
    northbound.stop(leader, Signal::SIGKILL).await.unwrap();
    northbound.leader().await.unwrap();
    // It is written by way of the new leader, so that the controller has found it.
    project.served("later").await;
    let page = crate::harness::get(controller.admin, "/metrics").await.unwrap().1;
    let found = page.lines().filter(|line| line.starts_with("groundcrew_drift_found_total"));
    assert!(found.clone().all(|line| line.ends_with(" 0")), "{:?}", found.collect::<Vec<_>>());
    project.delete("later").await;
    northbound.nbctl(["lb-del", &row]).await.unwrap();
    until_found(&controller, "row_missing", 1).await;
    until_undone(&northbound, &before, "the row is back").await;
    controller.stop().await;
}

#[tokio::test]
async fn rules_for_source_ranges_that_somebody_changes_are_named_and_put_right() {
    let project = Project::new("unruly").await;
    let northbound = project.northbound().await;
    let port = ["lrp-add", &project.namespace, "inside", "0a:00:00:00:00:01", "10.1.0.1/16"];
    northbound.nbctl(port).await.unwrap();
    project.pool(8).await;
    let controller = project.controller(&northbound).await;
    project.endpoints("web", 8080, &["10.1.0.41"]).await;
    project.create("web", json!({ "loadBalancerSourceRanges": ["203.0.113.0/24"] })).await;
    project.until_served("web").await;
    let rules = ["--bare", "--columns=match", "list", "ACL"];
    let before = northbound.nbctl(rules).await.unwrap();
    assert!(before.contains("tcp.dst == {80}"), "{before}");
    let group = northbound.nbctl(["--bare", "--columns=name", "list", "Port_Group"]).await.unwrap();
    northbound.nbctl(["clear", "Port_Group", group.trim(), "acls"]).await.unwrap();
    until_found(&controller, "source_ranges", 1).await;
    project.until_nbctl(&northbound, &rules, "the rules are back", |said| said == before).await;
    controller.stop().await;
}

#[tokio::test]
async fn what_was_changed_while_nobody_ran_is_told_and_only_new_wishes_are_carried_out_in_silence() {
    let project = Project::new("asleep").await;
    let northbound = project.northbound().await;
    project.pool(8).await;
    let controller = project.controller(&northbound).await;
    for name in ["gone", "spoilt", "moved"] {
        project.served(name).await;
        project.until_reason(name, "Served").await;
    }
    let (before, gone) = (picture(&northbound).await, name_of(&northbound, "gone").await);
    let spoilt = name_of(&northbound, "spoilt").await;
    controller.stop().await;
    northbound.nbctl(["lb-del", &gone, "--", "set", "load_balancer", &spoilt, "options:reject=false"]).await.unwrap();
    project.endpoints("moved", 8080, &["10.1.0.42"]).await;

    let list = ["--bare", "--columns=vips", "list", "Load_Balancer"];
    let controller = project.start(&northbound.remotes(), &["--report-only"]).await;
    controller.until_ready().await;
    until_found(&controller, "row_missing", 1).await;
    until_found(&controller, "options", 1).await;
    let carried_out = "the new wish is carried out";
    project.until_nbctl(&northbound, &list, carried_out, |said| said.contains("10.1.0.42:8080")).await;
    // Once more: what would be undone is undone by then.
    project.endpoints("moved", 8080, &["10.1.0.43"]).await;
    project.until_nbctl(&northbound, &list, carried_out, |said| said.contains("10.1.0.43:8080")).await;
    let now = picture(&northbound).await;
    assert!(now.contains("reject=\"false\"") && !now.contains(&gone), "{now}");
    controller.stop().await;

    project.endpoints("moved", 8080, &["10.1.0.41"]).await;
    let controller = project.controller(&northbound).await;
    until_undone(&northbound, &before, "all is as before").await;
    until_found(&controller, "row_missing", 1).await;
    until_found(&controller, "options", 1).await;
    let page = crate::harness::get(controller.admin, "/metrics").await.unwrap().1;
    assert!(!page.contains(r#"kind="vips""#), "{page}");
    controller.stop().await;
}

#[tokio::test]
async fn a_foreign_row_in_the_place_of_ours_is_never_touched_and_told_once_and_ours_is_put_back() {
    let project = Project::new("squatter").await;
    let northbound = project.northbound().await;
    project.pool(8).await;
    let flags = ["--scan-interval", "200ms"];
    let controller = project.start(&northbound.remotes(), &flags).await;
    controller.until_ready().await;
    project.served("web").await;
    let name = name_of(&northbound, "web").await;
    let list = ["--bare", "--columns=vips", "list", "Load_Balancer"];
    let ours = northbound.nbctl(list).await.unwrap();
    northbound.nbctl(["lb-del", &name, "--", "lb-add", &name, "203.0.113.9:80", "10.9.9.9:80"]).await.unwrap();
    until_found(&controller, "row_missing", 1).await;
    project.until_reason("web", "NameShared").await;
    let both = northbound.nbctl(list).await.unwrap();
    assert!(both.contains(ours.trim()) && both.contains("203.0.113.9:80=10.9.9.9:80"), "{both}");
    let foreign = rows(&northbound).await;
    let scans = controller.metric("groundcrew_service_full_scans_total").await;
    eventually("a few more scans", SOON, async || {
        let now = controller.metric("groundcrew_service_full_scans_total").await;
        if now >= scans + 3.0 { Ok(()) } else { Err(now) }
    })
    .await
    .unwrap();
    assert_eq!(rows(&northbound).await, foreign);
    let events: Api<k8s_openapi::api::events::v1::Event> = Api::namespaced(project.client.clone(), &project.namespace);
    let told = eventually("it is told", SOON, async || {
        let told = events.list(&ListParams::default()).await?.items;
        let told = told.iter().filter(|event| event.reason.as_deref() == Some("NameShared")).count();
        anyhow::ensure!(told > 0, "not yet: Events are posted beside the looks");
        Ok(told)
    })
    .await
    .unwrap();
    assert_eq!(told, 1);
    let missed = controller.metric("groundcrew_service_missed_changes_total").await;
    assert!(missed < 0.5, "{missed}");
    controller.stop().await;
}
