//! Rows that are attached by way of a load balancer group.

use groundcrew_testkit::ovn::Northbound;
use groundcrew_testkit::ovn::lab::{ROUTER, SWITCH};
use serde_json::json;

use crate::data_path::{World, reaches};
use crate::drift::until_found;
use crate::harness::Project;

const GROUP: &str = "--ovn-load-balancer-group={namespace}-lbs";

async fn make(northbound: &Northbound, name: &str) -> String {
    let name = format!("name={name}");
    northbound.nbctl(["create", "Load_Balancer_Group", &name]).await.unwrap().trim().to_owned()
}

async fn put_on(northbound: &Northbound, group: &str, router: &str, switch: &str) {
    for (table, name) in [("Logical_Router", router), ("Logical_Switch", switch)] {
        northbound.nbctl(["add", table, name, "load_balancer_group", group]).await.unwrap();
    }
}

async fn members(northbound: &Northbound, table: &str, name: &str) -> String {
    let name = format!("name={name}");
    northbound.nbctl(["--bare", "--columns=load_balancer", "find", table, &name]).await.unwrap().trim().to_owned()
}

#[tokio::test]
async fn through_a_group_clients_outside_and_inside_are_served() {
    let world = World::alone_with("grouped", 152, &["--ovn-load-balancer-group=lbs"], async |northbound| {
        put_on(northbound, &make(northbound, "lbs").await, ROUTER, SWITCH).await;
    })
    .await;
    let vip = world.serve("web", json!({})).await[0];
    for client in [world.lab.client(), world.lab.pod(2)] {
        reaches(client, vip, "through the group").await;
    }
    let northbound = world.lab.northbound();
    assert_eq!(members(northbound, "Logical_Router", ROUTER).await, "");
    assert_eq!(members(northbound, "Logical_Switch", SWITCH).await, "");
    assert!(!members(northbound, "Load_Balancer_Group", "lbs").await.is_empty());
}

#[tokio::test]
async fn what_is_taken_from_a_group_is_put_back_and_what_others_put_there_stays() {
    let project = Project::new("regroup").await;
    let northbound = project.northbound().await;
    let (router, switch) = (project.namespace.clone(), format!("{}-default", project.namespace));
    let name = format!("{}-lbs", project.namespace);
    let group = make(&northbound, &name).await;
    put_on(&northbound, &group, &router, &switch).await;
    northbound.nbctl(["lb-add", "foreign", "192.0.2.99:80", "10.0.0.1:80"]).await.unwrap();
    let foreign =
        northbound.nbctl(["--bare", "--columns=_uuid", "find", "Load_Balancer", "name=foreign"]).await.unwrap();
    let foreign = foreign.trim();
    northbound.nbctl(["add", "Load_Balancer_Group", &group, "load_balancer", foreign]).await.unwrap();
    project.pool(8).await;
    let controller = project.start(&northbound.remotes(), &[GROUP]).await;
    controller.until_ready().await;
    project.served("web").await;
    let both = |said: &str| said.split_whitespace().count() == 2 && said.contains(foreign);
    let in_it = ["--bare", "--columns=load_balancer", "list", "Load_Balancer_Group", &group];
    let row = project.until_nbctl(&northbound, &in_it, "the row is in the group", both).await;
    let row = row.split_whitespace().find(|uuid| *uuid != foreign).unwrap().to_owned();

    northbound.nbctl(["remove", "Load_Balancer_Group", &group, "load_balancer", &row]).await.unwrap();
    project.until_nbctl(&northbound, &in_it, "the row is back in the group", both).await;
    until_found(&controller, "group_detached", 1).await;
    for (table, place) in [("Logical_Router", &router), ("Logical_Switch", &switch)] {
        northbound.nbctl(["remove", table, place, "load_balancer_group", &group]).await.unwrap();
        let on_it = ["--bare", "--columns=load_balancer_group", "list", table, place];
        project.until_nbctl(&northbound, &on_it, "the group is back", |said| said.contains(&group)).await;
    }
    // As kube-ovn's collection does.
    northbound.nbctl(["destroy", "Load_Balancer", &row]).await.unwrap();
    project.until_nbctl(&northbound, &in_it, "the row was made again", both).await;

    project.delete("web").await;
    let alone = |said: &str| said.trim() == foreign;
    project.until_nbctl(&northbound, &in_it, "only the other is left", alone).await;
    controller.stop().await;
}

#[tokio::test]
async fn a_group_that_is_put_on_another_router_loses_our_rows_and_nobody_else_is_served_by_them() {
    let project = Project::new("shared-lbs").await;
    let northbound = project.northbound().await;
    let (router, switch) = (project.namespace.clone(), format!("{}-default", project.namespace));
    let group = make(&northbound, &format!("{}-lbs", project.namespace)).await;
    put_on(&northbound, &group, &router, &switch).await;
    project.pool(8).await;
    let _controller = project.start(&northbound.remotes(), &[GROUP]).await;
    project.served("web").await;
    let in_it = ["--bare", "--columns=load_balancer", "list", "Load_Balancer_Group", &group];
    let row = project.until_nbctl(&northbound, &in_it, "the row is in the group", |said| !said.trim().is_empty()).await;

    northbound.nbctl(["lr-add", "bank"]).await.unwrap();
    northbound.nbctl(["add", "Logical_Router", "bank", "load_balancer_group", &group]).await.unwrap();
    project.until_nbctl(&northbound, &in_it, "the row has left the group", |said| said.trim().is_empty()).await;
    let on_router = ["--bare", "--columns=load_balancer", "list", "Logical_Router", &router];
    project.until_nbctl(&northbound, &on_router, "the router has it", |said| said.contains(row.trim())).await;
    project.until_reason("web", "GroupShared").await;
}

#[tokio::test]
async fn a_service_waits_for_its_group_and_is_told_what_to_do() {
    let project = Project::new("ungrouped").await;
    let northbound = project.northbound().await;
    project.pool(8).await;
    let _controller = project.start(&northbound.remotes(), &[GROUP]).await;
    project.endpoints("web", 8080, &["10.1.0.41"]).await;
    project.create("web", json!({})).await;
    project.until_reason("web", "GroupMissing").await;
    let group = make(&northbound, &format!("{}-lbs", project.namespace)).await;
    let told = project.until_reason("web", "GroupDetached").await;
    assert!(told.contains("ovn-nbctl add Logical_Router"), "{told}");
    assert_eq!(northbound.nbctl(["lb-list"]).await.unwrap(), "", "nothing is half served");
    put_on(&northbound, &group, &project.namespace, &format!("{}-default", project.namespace)).await;
    project.until_served("web").await;
}

#[tokio::test]
async fn one_group_for_all_projects_is_refused_at_the_start() {
    let project = Project::new("onegroup").await;
    let northbound = project.northbound().await;
    let why = project.refused(&northbound.remotes(), &["--ovn-load-balancer-group=all"]).await;
    assert!(why.contains("{namespace}"), "{why}");
}
