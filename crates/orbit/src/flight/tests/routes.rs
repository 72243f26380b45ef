//! Conditions of Nodes about their routes.

use std::collections::BTreeMap;

use groundcrew_core::provider::{Route, RouteLimit, Router};

use super::node;
use crate::flight::conditions::{Change, Kind, changes};
use crate::flight::nodes::Node;
use crate::flight::observe::Observed;
use crate::flight::routes::{Table, troubles};

pub(super) fn with_pods(server: &str, number: u8) -> Node {
    Node {
        addresses: vec![format!("10.0.0.{number}").parse().unwrap()],
        pod_ranges: vec![format!("10.1.{number}.0/24").parse().unwrap()],
        ..node(server, None)
    }
}

pub(super) fn table(pairs: &[(&str, &str)], limit: u64) -> Table {
    let routes = pairs.iter().map(|(to, via)| Route { destination: (*to).into(), next_hop: (*via).into() }).collect();
    let name = String::new();
    Table {
        router: Router { id: "r".into(), name: name.clone(), project: name, routes, revision: None },
        limit: RouteLimit::At(limit),
    }
}

fn told(nodes: &[Node], table: Table) -> Vec<String> {
    let observed = Observed { tables: vec![table], ..Observed::default() };
    let changes = changes(nodes, &Kind::ALL.into(), troubles(nodes, &observed, 31));
    let told = |change: Change<'_>| format!("{} {} {:?}", change.node.name, change.kind.name(), change.words);
    changes.into_iter().map(told).collect()
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
    let shows = Node { troubles: BTreeMap::from([(Kind::RouteMissing, trouble)]), ..with_pods("a", 1) };
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
    assert!(troubles(&[with_pods("a", 1)], &Observed::default(), 31).is_empty());
}

#[test]
fn of_several_routers_each_counts_the_routes_that_its_own_nodes_miss() {
    // Two Nodes near each router; all routes of those near `r` are missing.
    let near = |number: u8| with_pods(&format!("a{number}"), number);
    let far = |number: u8| Node { addresses: vec![format!("10.0.9.{number}").parse().unwrap()], ..near(number) };
    let nodes = [near(1), near(2), far(3), far(4)];
    let mut other = table(&[("10.1.3.0/24", "10.0.9.3"), ("10.1.4.0/24", "10.0.9.4")], 6);
    other.router.id = "s".into();
    let range = |range: &str| vec![range.parse().unwrap()];
    let mut observed = Observed { tables: vec![table(&[], 6), other], ..Observed::default() };
    observed.near = BTreeMap::from([("r".into(), range("10.0.0.0/24")), ("s".into(), range("10.0.9.0/24"))]);
    let quota = |observed: &Observed| {
        let found = troubles(&nodes, observed, 31);
        found.iter().any(|trouble| trouble.kind == Kind::RouteQuotaNearLimit)
    };
    assert!(!quota(&observed), "s misses none, and has room for one more");
    observed.tables[0].limit = RouteLimit::At(4);
    assert!(quota(&observed), "r misses two");
}
