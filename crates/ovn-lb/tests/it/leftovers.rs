//! What is left of a cluster in OVN is found and removed without the controller, and nothing else is.

use std::time::Duration;

use clap::Parser;
use groundcrew_core::leader::Term;
use groundcrew_core::provider::{ErrorKind, Leftover, LeftoverKind, Leftovers};
use groundcrew_ovn_lb::OvnLeftovers;
use groundcrew_testkit::eventually;
use groundcrew_testkit::ovn::Northbound;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

use crate::harness::{Project, SOON, rows};

#[derive(Parser)]
struct Flags {
    #[command(flatten)]
    ovn: groundcrew_ovn_lb::Args,
}

pub(crate) fn leftovers(project: &Project, northbound: &Northbound) -> OvnLeftovers {
    let flags = Flags::parse_from(["test", "--ovn-nb", &northbound.remotes()]);
    let cluster = project.namespace.as_str().into();
    OvnLeftovers::new(flags.ovn.connection.config(), project.client.clone(), cluster, Duration::from_secs(10))
}

pub(crate) async fn found(leftovers: &OvnLeftovers) -> Vec<Leftover> {
    let listing = leftovers.find().await.unwrap();
    assert!(listing.complete);
    let order = |kind: LeftoverKind| leftovers.kinds().iter().position(|k| *k == kind);
    let mut items = listing.items;
    items.sort_by_key(|item| (order(item.kind), item.name.clone()));
    items
}

/// An address goes only when the replica has heard that its load balancer is gone.
pub(crate) async fn remove(leftovers: &OvnLeftovers, item: &Leftover) {
    eventually(&format!("{} is removed", item.id), SOON, async || leftovers.remove(item, &Term::alone("test")).await)
        .await
        .unwrap();
}

/// The Service goes while nobody serves it.
pub(crate) async fn abandon(project: &Project, name: &str) {
    let free = json!({ "metadata": { "finalizers": null } });
    project.services().patch(name, &PatchParams::default(), &Patch::Merge(free)).await.unwrap();
    project.services().delete(name, &DeleteParams::default()).await.unwrap();
    project.until_gone(name).await;
}

#[tokio::test]
async fn what_a_dead_controller_left_is_found_and_removed_and_nothing_of_others() {
    let project = Project::new("leftovers").await;
    let northbound = project.northbound().await;
    project.pool(5).await;
    let foreign = ["--", "lb-add", "foreign", "192.0.2.9:80", "10.0.0.9:80"];
    northbound.nbctl(foreign).await.unwrap();
    let set = ["set", "load_balancer", "foreign", "external_ids:groundcrew-cluster=another"];
    northbound.nbctl(set).await.unwrap();
    let before = rows(&northbound).await;

    let controller = project.controller(&northbound).await;
    project.served("web").await;
    project.served("stays").await;
    controller.stop().await;
    abandon(&project, "web").await;

    let leftovers = leftovers(&project, &northbound);
    let items = found(&leftovers).await;
    let kinds: Vec<_> = items.iter().map(|item| item.kind.name).collect();
    assert_eq!(kinds, ["ovn-load-balancer", "ovn-load-balancer", "eip", "eip"]);
    assert!(items.iter().all(|item| item.about.contains("made for Service")), "{items:?}");

    let term = Term::alone("test");
    for item in &items {
        if item.about.ends_with("/web") {
            remove(&leftovers, item).await;
        } else {
            let error = leftovers.remove(item, &term).await.unwrap_err();
            assert_eq!((error.kind(), error.response().reason), (ErrorKind::Conflict, "InUse"), "{error}");
        }
    }
    let left = found(&leftovers).await;
    assert!(left.len() == 2 && left.iter().all(|item| item.about.ends_with("/stays")), "{left:?}");
    for item in &items {
        if item.about.ends_with("/web") {
            leftovers.remove(item, &term).await.unwrap();
        }
    }

    abandon(&project, "stays").await;
    for item in found(&leftovers).await {
        remove(&leftovers, &item).await;
    }
    assert_eq!(found(&leftovers).await, []);
    assert_eq!(rows(&northbound).await, before);
    assert!(project.eip_list().await.is_empty());
}

#[tokio::test]
async fn a_row_that_lost_our_mark_meanwhile_is_not_removed() {
    let project = Project::new("leftovers-mark").await;
    let northbound = project.northbound().await;
    project.pool(5).await;
    let controller = project.controller(&northbound).await;
    project.served("web").await;
    controller.stop().await;
    abandon(&project, "web").await;

    let leftovers = leftovers(&project, &northbound);
    let row = found(&leftovers).await.remove(0);
    northbound.nbctl(["set", "load_balancer", &row.id, "external_ids:groundcrew-cluster=another"]).await.unwrap();
    let before = rows(&northbound).await;
    // Whether the replica has heard of it yet or not.
    let _ = leftovers.remove(&row, &Term::alone("test")).await;
    assert_eq!(rows(&northbound).await, before);
}

/// Port groups with their marks, and the rules of all of them.
async fn rules(northbound: &Northbound) -> String {
    let groups = ["--columns=_uuid,name,acls,external_ids", "list", "Port_Group"];
    let rules = ["--columns=_uuid,match", "list", "ACL"];
    format!("{}\n{}", northbound.nbctl(groups).await.unwrap(), northbound.nbctl(rules).await.unwrap())
}

#[tokio::test]
async fn the_rules_of_source_ranges_go_after_what_they_guard_and_those_of_others_stay() {
    let project = Project::new("leftovers-ranges").await;
    let northbound = project.northbound().await;
    let port = ["lrp-add", &project.namespace, "inside", "0a:00:00:00:00:01", "10.1.0.1/16"];
    northbound.nbctl(port).await.unwrap();
    project.pool(5).await;
    northbound.nbctl(["pg-add", "theirs"]).await.unwrap();
    northbound.nbctl(["acl-add", "theirs", "from-lport", "1000", "ip4", "drop"]).await.unwrap();
    northbound.nbctl(["set", "port_group", "theirs", "external_ids:groundcrew-cluster=another"]).await.unwrap();
    let before = rules(&northbound).await;

    let controller = project.controller(&northbound).await;
    project.endpoints("web", 8080, &["10.1.0.41"]).await;
    project.create("web", json!({ "loadBalancerSourceRanges": ["203.0.113.0/24"] })).await;
    project.until_served("web").await;
    controller.stop().await;
    assert!(rules(&northbound).await.contains("tcp.dst == {80}"), "{}", rules(&northbound).await);

    let leftovers = leftovers(&project, &northbound);
    let items = found(&leftovers).await;
    let kinds: Vec<_> = items.iter().map(|item| item.kind.name).collect();
    assert_eq!(kinds, ["ovn-load-balancer", "ovn-port-group", "eip"]);
    assert!(items[1].about.starts_with("source ranges of Service"), "{:?}", items[1]);
    let error = leftovers.remove(&items[1], &Term::alone("test")).await.unwrap_err();
    assert_eq!((error.kind(), error.response().reason), (ErrorKind::Conflict, "InUse"), "{error}");

    abandon(&project, "web").await;
    for item in &items {
        remove(&leftovers, item).await;
    }
    assert_eq!(found(&leftovers).await, []);
    assert_eq!(rules(&northbound).await, before);
}
