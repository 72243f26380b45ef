//! The same bodies on a real Keystone and Neutron, and what only those can show: writers that race.

use groundcrew_orbit::routegc::findings::Why;
use groundcrew_orbit::routegc::nodes::Node;
use groundcrew_orbit::routegc::rules::Rules;
use groundcrew_testkit::openstack::{Method, Service, shared};
use serde_json::{Value, json};

use crate::race::{self, Outcome};
use crate::routes;
use crate::world::{Backend, World, node, route, rules};

macro_rules! on_real_services {
    ($($body:ident),*) => { $(#[tokio::test] async fn $body() {
        routes::$body(&mut World::real(stringify!($body)).await).await;
    })* };
}
on_real_services!(
    an_orphan_goes_and_the_rest_stays,
    a_stale_duplicate_goes_and_its_twin_stays,
    what_has_a_living_next_hop_is_left_alone,
    a_range_that_a_node_had_once_is_taken_from_its_port,
    a_full_router_is_known_by_its_quota,
    the_same_pod_range_in_two_clusters_on_one_router_costs_neither_a_route
);

#[tokio::test]
async fn a_network_that_another_project_shares_hides_its_ports_and_keeps_its_routes() {
    let world = World::real("guest").await;
    let Backend::Real(guest) = &world.backend else { panic!("this is not the model") };
    let host = shared().await.unwrap().project("host").await.unwrap();
    let network = host.create("network", json!({"name": "shared"})).await.unwrap();
    let range = json!({"network_id": network, "cidr": "10.181.0.0/16", "ip_version": 4});
    host.create("subnet", range).await.unwrap();
    let share = json!({"rbac_policy": {
        "object_type": "network", "object_id": network, "action": "access_as_shared", "target_tenant": guest.id}});
    host.ask(Service::Network, Method::POST, "v2.0/rbac-policies", Some(&share)).await.unwrap().ok().unwrap();
    let address = |port: &Value| port["port"]["fixed_ips"][0]["ip_address"].as_str().unwrap().to_owned();
    let hidden = host.create("port", json!({"network_id": network})).await.unwrap();
    let hidden = address(&host.get(Service::Network, &format!("v2.0/ports/{hidden}")).await.unwrap());
    let server = json!({"network_id": network, "device_id": "n1", "device_owner": "compute:nova"});
    let own = world.make("port", server).await;
    let own = address(&world.ask(Method::GET, &format!("v2.0/ports/{own}"), &Value::Null).await);
    let interface = json!({"port_id": world.make("port", json!({"network_id": network})).await});
    let path = format!("v2.0/routers/{}/add_router_interface", world.router);
    world.ask(Method::PUT, &path, &interface).await;
    let routes = [route("100.100.1.0/24", &own), route("100.100.9.0/24", &hidden)];
    world.add(&routes).await;

    let nodes = [Node { addresses: vec![own.parse().unwrap()], ..node(1) }];
    let mut passes = world.collect_at(&world.router, rules());
    assert!(passes.settle(&nodes).await.removed.is_empty());
    let pass = passes.pass(&nodes).await.unwrap();
    assert_eq!(pass.findings.lock, None);
    assert_eq!(pass.findings.routers[0].foreign[0].why, Why::HiddenPorts);
    assert_eq!(world.routes().await, routes.into());
}

/// Rounds of eight writers; `GROUNDCREW_ROUNDS` is for more.
fn rounds() -> usize {
    std::env::var("GROUNDCREW_ROUNDS").map_or(2, |rounds| rounds.parse().unwrap())
}

#[tokio::test]
async fn eight_writers_that_race_with_us_lose_no_route_and_orphans_go_within_three_passes() {
    let mut world = World::real("race").await;
    race::prepare(&mut world).await;
    for round in 0..rounds() {
        let outcome = race::round(&world, rules()).await;
        assert_eq!(outcome, Outcome { lost: 0, lost_for_good: 0, orphans: 0 }, "round {round}");
    }
}

#[tokio::test]
async fn what_our_whole_lists_cost_eight_writers_is_back_within_one_pass() {
    let mut world = World::real("whole-lists").await;
    race::prepare(&mut world).await;
    world.whole_lists_only = true;
    for round in 0..rounds() {
        let outcome = race::round(&world, Rules { whole_lists: true, ..rules() }).await;
        assert_eq!((outcome.lost_for_good, outcome.orphans), (0, 0), "round {round}: {outcome:?}");
    }
}
