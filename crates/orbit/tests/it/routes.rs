//! Test bodies for both clouds, so that the model cannot lie: each is run in `model`, on real services in `real`, and with
//! real servers in `e2e/tests/openstack`.

use std::collections::BTreeSet;

use groundcrew_core::provider::Route;
use groundcrew_orbit::routegc::findings::{Class, Why};
use groundcrew_orbit::routegc::nodes::Node;
use groundcrew_testkit::openstack::Method;
use serde_json::{Value, json};

use crate::world::{World, address, node, own, route, rules};

/// Nodes n1 to n4, and a route of n9, which is gone.
pub(crate) async fn an_orphan_goes_and_the_rest_stays(world: &mut World) {
    for i in 1..=4 {
        world.join(i).await;
    }
    let elsewhere = route("192.168.7.0/24", "10.180.1.99");
    world.add(&[own(9), elsewhere.clone()]).await;
    let mut passes = world.collect(rules());
    let applied = passes.settle(&world.nodes).await;
    assert_eq!(applied.removed.len(), 1, "{:?}", applied.failures);
    assert_eq!(world.routes().await, (1..=4).map(own).chain([elsewhere]).collect());
}

/// Of one destination with two next hops, the Node's own stays.
pub(crate) async fn a_stale_duplicate_goes_and_its_twin_stays(world: &mut World) {
    for i in 1..=3 {
        world.join(i).await;
    }
    world.add(&[route("100.100.1.0/24", "10.180.1.77"), route("100.100.2.0/24", "10.180.1.1")]).await;
    let applied = world.collect(rules()).settle(&world.nodes).await;
    let classes: Vec<_> = applied.removed.iter().map(|(_, stale)| stale.class.clone()).collect();
    assert!(classes.contains(&Class::Duplicate { node: "n1".into() }), "{classes:?} {:?}", applied.failures);
    assert_eq!(world.routes().await, (1..=3).map(own).collect());
}

/// A port without a server, and a server that is no Node.
pub(crate) async fn what_has_a_living_next_hop_is_left_alone(world: &mut World) {
    for i in 1..=3 {
        world.join(i).await;
    }
    world.boot(8).await;
    world.add(&[own(8)]).await;
    let mut passes = world.collect(rules());
    assert!(passes.settle(&world.nodes).await.removed.is_empty());
    let pass = passes.pass(&world.nodes).await.unwrap();
    assert!(matches!(pass.findings.routers[0].foreign[0].why, Why::InUse(_)));
    assert!(world.routes().await.contains(&own(8)));
}

/// n1 had another range once.
pub(crate) async fn a_range_that_a_node_had_once_is_taken_from_its_port(world: &mut World) {
    let port = world.join(1).await;
    world.join(2).await;
    let pairs =
        json!([{"ip_address": "100.100.1.0/24"}, {"ip_address": "100.100.9.0/24"}, {"ip_address": "192.168.0.0/24"}]);
    let path = format!("v2.0/ports/{port}");
    world.ask(Method::PUT, &path, &json!({"port": {"allowed_address_pairs": pairs}})).await;
    let applied = world.collect(rules()).settle(&world.nodes).await;
    assert_eq!(applied.stripped, 1, "{:?}", applied.failures);
    let left = world.ask(Method::GET, &path, &Value::Null).await;
    let left: Vec<_> = left["port"]["allowed_address_pairs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|pair| pair["ip_address"].clone())
        .collect();
    assert_eq!(left.len(), 2);
    assert!(!left.contains(&json!("100.100.9.0/24")), "{left:?}");
}

/// 31 routes fit, and somebody should know.
pub(crate) async fn a_full_router_is_known_by_its_quota(world: &mut World) {
    world.join(1).await;
    let more: Vec<Route> = (2..=28).map(|i| route(&format!("192.168.{i}.0/24"), "10.180.1.99")).collect();
    world.add(&more).await;
    let mut passes = world.collect(rules());
    let room = passes.pass(&world.nodes).await.unwrap().findings.routers[0].headroom;
    assert_eq!((room.used, room.limit, room.is_short()), (28, Some(31), false));
    world.nodes.push(node(200));
    world.boot(200).await;
    let mut passes = world.collect(rules());
    let room = passes.pass(&world.nodes).await.unwrap().findings.routers[0].headroom;
    assert_eq!((room.used, room.missing, room.is_short()), (28, 1, true));
}

/// The other cluster's Nodes are servers of the same project that are no Nodes here.
pub(crate) async fn the_same_pod_range_in_two_clusters_on_one_router_costs_neither_a_route(world: &mut World) {
    for i in 1..=2 {
        world.join(i).await;
    }
    let mut theirs = BTreeSet::new();
    for i in 100..=101u8 {
        world.boot(i).await;
        theirs.insert(route(&format!("100.100.{}.0/24", i - 99), &address(i)));
    }
    world.add(&theirs.iter().cloned().collect::<Vec<_>>()).await;
    assert!(world.collect(rules()).settle(&world.nodes).await.removed.is_empty());
    let other: Vec<_> = (100..=101u8).map(|i| Node { pod_ranges: node(i - 99).pod_ranges, ..node(i) }).collect();
    assert!(world.collect(rules()).settle(&other).await.removed.is_empty(), "nor the other way round");
    assert_eq!(world.routes().await, (1..=2).map(own).chain(theirs).collect());
}
