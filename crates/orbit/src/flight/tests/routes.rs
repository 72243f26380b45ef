//! Conditions of Nodes about their routes.

use std::collections::BTreeMap;

use groundcrew_core::provider::{Route, RouteLimit, Router};

use super::node;
use crate::flight::nodes::Node;
use crate::flight::routes::{Table, changes};

fn with_pods(server: &str, number: u8) -> Node {
    Node {
        addresses: vec![format!("10.0.0.{number}").parse().unwrap()],
        pod_ranges: vec![format!("10.1.{number}.0/24").parse().unwrap()],
        ..node(server, None)
    }
}

fn table(pairs: &[(&str, &str)], limit: u64) -> Table {
    let routes = pairs.iter().map(|(to, via)| Route { destination: (*to).into(), next_hop: (*via).into() }).collect();
    let name = String::new();
    Table {
        router: Router { id: "r".into(), name: name.clone(), project: name, routes, revision: None },
        limit: RouteLimit::At(limit),
    }
}

fn told(nodes: &[Node], table: Table) -> Vec<String> {
    let changes = changes(nodes, &[table], 31);
    changes.into_iter().map(|(node, (kind, trouble))| format!("{} {kind} {trouble:?}", node.name)).collect()
}

#[test]
fn a_node_with_its_own_route_and_no_other_is_not_written_to() {
    assert_eq!(
        told(&[with_pods("a", 1)], table(&[("10.1.1.0/24", "10.0.0.1"), ("10.9.0.0/16", "10.0.0.9")], 31)),
        [""; 0]
    );
}

#[test]
fn a_missing_and_a_second_route_are_told_by_name() {
    let nodes = [with_pods("a", 1), with_pods("b", 2)];
    let table = table(&[("10.1.1.0/24", "10.0.0.1"), ("10.1.1.0/24", "10.0.0.77")], 31);
    assert_eq!(
        told(&nodes, table),
        [
            r#"name-a RouteDuplicate Some("other routes to its pods: 10.1.1.0/24 via 10.0.0.77")"#,
            r#"name-b RouteMissing Some("no route leads to its pods: 10.1.2.0/24")"#,
        ]
    );
}

#[test]
fn a_route_that_only_leads_elsewhere_is_missing_and_astray() {
    let told = told(&[with_pods("a", 1)], table(&[("10.1.1.0/24", "10.0.0.77")], 31));
    assert_eq!(told.len(), 2, "{told:?}");
}

#[test]
fn what_a_node_shows_already_is_not_written_again_and_what_ended_is_taken_back_once() {
    let trouble = "no route leads to its pods: 10.1.1.0/24".to_owned();
    let shows = Node { troubles: BTreeMap::from([("RouteMissing", trouble)]), ..with_pods("a", 1) };
    assert_eq!(told(std::slice::from_ref(&shows), table(&[], 31)), [""; 0]);
    assert_eq!(told(&[shows], table(&[("10.1.1.0/24", "10.0.0.1")], 31)), ["name-a RouteMissing None"]);
}

#[test]
fn a_router_that_is_nearly_full_is_told_on_every_node() {
    let nodes = [with_pods("a", 1)];
    let near = r#"name-a RouteQuotaNearLimit Some("router r has 1 routes of 3")"#;
    assert_eq!(told(&nodes, table(&[("10.1.1.0/24", "10.0.0.1")], 3)), [near]);
}

#[test]
fn without_a_router_nothing_is_said_about_routes() {
    assert!(changes(&[with_pods("a", 1)], &[], 31).is_empty());
}
