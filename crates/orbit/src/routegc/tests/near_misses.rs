//! What looks like an orphan and is none, and the other way round. One test a near miss.

use groundcrew_core::provider::{Device, Port, Subnet};

use super::cloud::{MemoryCloud, port, server};
use super::*;
use crate::routegc::findings::{Class, Lock, Why};
use crate::routegc::sightings::Sightings;

/// Nodes n1 to n4 with their routes, and n9's route, whose server is gone.
fn with_an_orphan() -> (MemoryCloud, Vec<Node>) {
    let cloud = MemoryCloud::new(1..=4).with_routes((1..=4).chain([9]).map(own));
    (cloud, (1..=4).map(node).collect())
}

/// What the only route that is left alone is left alone for.
async fn why(cloud: &MemoryCloud, nodes: &[Node]) -> Why {
    let mut passes = Passes::new(rules());
    let before = cloud.routes();
    let applied = passes.settle(cloud, nodes).await;
    assert!(applied.removed.is_empty(), "{:?}", applied.removed);
    assert_eq!(cloud.routes(), before);
    let (found, _) = passes.look(cloud, nodes).await;
    assert_eq!(found.lock, None);
    let mut foreign = found.routers[0].foreign.clone();
    assert_eq!(foreign.len(), 1, "{foreign:?}");
    foreign.remove(0).why
}

#[tokio::test]
async fn a_route_of_a_node_that_is_gone_goes_and_the_others_stay() {
    let (cloud, nodes) = with_an_orphan();
    let applied = Passes::new(rules()).settle(&cloud, &nodes).await;
    assert_eq!(applied.removed.len(), 1);
    assert_eq!(applied.removed[0].1.class, Class::Orphan);
    assert_eq!(cloud.routes(), (1..=4).map(own).collect());
}

#[tokio::test]
async fn the_first_sighting_removes_nothing_however_old_it_would_be() {
    let (cloud, nodes) = with_an_orphan();
    let (found, plan, _) = Passes::new(rules()).pass(&cloud, &nodes).await;
    assert_eq!((found.routers[0].stale.len(), plan.steps.len()), (1, 0));
}

#[tokio::test]
async fn many_sightings_in_a_short_time_remove_nothing() {
    let (cloud, nodes) = with_an_orphan();
    let (found, _) = Passes::new(rules()).look(&cloud, &nodes).await;
    let (mut sightings, start) = (Sightings::default(), Moment::now());
    for second in 0..600 {
        assert!(sightings.look(&found, &rules(), start + Duration::from_secs(second)).is_empty());
    }
    assert_eq!(sightings.look(&found, &rules(), start + Duration::from_mins(10)).len(), 1);
}

#[tokio::test]
async fn a_suspect_that_was_fine_in_between_starts_anew() {
    let (cloud, mut nodes) = with_an_orphan();
    let mut passes = Passes::new(rules());
    passes.pass(&cloud, &nodes).await;
    nodes.push(node(9));
    passes.pass(&cloud, &nodes).await;
    nodes.pop();
    let (_, plan, _) = passes.pass(&cloud, &nodes).await;
    assert_eq!(plan.steps, []);
}

#[tokio::test]
async fn an_incomplete_list_removes_nothing_and_every_age_begins_anew() {
    for what in ["servers", "ports", "subnets"] {
        let (cloud, nodes) = with_an_orphan();
        let mut passes = Passes::new(rules());
        passes.pass(&cloud, &nodes).await;
        cloud.lock().incomplete.insert(what);
        for _ in 0..5 {
            let (found, plan, _) = passes.pass(&cloud, &nodes).await;
            assert_eq!((found.lock, plan.steps), (Some(Lock::Incomplete(vec![what])), vec![]));
        }
        cloud.lock().incomplete.clear();
        let (_, plan, _) = passes.pass(&cloud, &nodes).await;
        assert_eq!(plan.steps, [], "one sighting since {what} came back");
        passes.settle(&cloud, &nodes).await;
        assert_eq!(cloud.routes(), (1..=4).map(own).collect());
    }
}

#[tokio::test]
async fn no_nodes_at_all_remove_nothing() {
    let (cloud, _) = with_an_orphan();
    let mut passes = Passes::new(rules());
    assert!(passes.settle(&cloud, &[]).await.removed.is_empty());
    assert_eq!(passes.look(&cloud, &[]).await.0.lock, Some(Lock::NoNodes));
}

#[tokio::test]
async fn an_empty_server_list_with_no_ports_removes_nothing() {
    let (cloud, nodes) = with_an_orphan();
    cloud.lock().servers.clear();
    cloud.lock().ports.retain(|port| port.id == "router-port");
    let mut passes = Passes::new(rules());
    assert!(passes.settle(&cloud, &nodes).await.removed.is_empty());
    assert_eq!(passes.look(&cloud, &nodes).await.0.lock, Some(Lock::Elsewhere));
}

#[tokio::test]
async fn a_next_hop_that_a_port_without_a_server_has_is_alive() {
    let (cloud, nodes) = with_an_orphan();
    cloud.lock().ports.push(port("vip", Device::Nothing, "s1", "10.0.0.9"));
    assert!(matches!(why(&cloud, &nodes).await, Why::InUse(_)));
}

#[tokio::test]
async fn a_next_hop_that_is_a_vip_of_a_port_is_alive() {
    let (cloud, nodes) = with_an_orphan();
    cloud.allow("port-1", &["10.0.0.9"]);
    assert!(matches!(why(&cloud, &nodes).await, Why::InUse(_)));
}

#[tokio::test]
async fn a_port_that_may_send_from_everywhere_keeps_no_orphan_alive() {
    let (cloud, nodes) = with_an_orphan();
    cloud.allow("port-1", &["0.0.0.0/0"]);
    assert_eq!(Passes::new(rules()).settle(&cloud, &nodes).await.removed.len(), 1);
}

#[tokio::test]
async fn a_next_hop_that_only_nova_knows_is_alive() {
    let (cloud, nodes) = with_an_orphan();
    cloud.lock().servers.push(server("unregistered", "10.0.0.9"));
    assert!(matches!(why(&cloud, &nodes).await, Why::InUse(_)));
}

#[tokio::test]
async fn a_next_hop_that_got_a_new_server_is_left_to_that_server() {
    let (cloud, nodes) = with_an_orphan();
    let mut passes = Passes::new(rules());
    passes.pass(&cloud, &nodes).await;
    cloud.boot(9);
    let applied = passes.settle(&cloud, &nodes).await;
    assert!(applied.removed.is_empty());
    assert!(matches!(why(&cloud, &nodes).await, Why::InUse(_)));
}

#[tokio::test]
async fn a_next_hop_on_another_subnet_is_somebody_elses() {
    let (cloud, nodes) = with_an_orphan();
    cloud.lock().routes.retain(|route| *route != own(9));
    cloud.lock().routes.push(route("100.100.9.0/24", "10.99.0.9"));
    assert_eq!(why(&cloud, &nodes).await, Why::OffSubnets);
}

#[tokio::test]
async fn a_network_that_may_hide_ports_keeps_every_route() {
    let (cloud, nodes) = with_an_orphan();
    cloud.lock().subnets[0].hides_ports = true;
    assert_eq!(why(&cloud, &nodes).await, Why::HiddenPorts);
}

#[tokio::test]
async fn another_network_with_the_same_range_neither_hides_nor_confuses() {
    let (cloud, nodes) = with_an_orphan();
    let twin =
        Subnet { id: "s2".into(), network: "net2".into(), range: "10.0.0.0/24".parse().unwrap(), hides_ports: true };
    cloud.lock().subnets.push(twin);
    let mut other = port("other-router", Device::Router("r2".into()), "s2", "10.0.0.254");
    other.network = "net2".into();
    cloud.lock().ports.push(other);
    let mut passes = Passes::new(rules());
    passes.routers.clear();
    assert_eq!(passes.settle(&cloud, &nodes).await.removed.len(), 1, "r1 is found, and s2 is not the Nodes'");
}

#[tokio::test]
async fn a_port_with_a_nodes_address_on_a_twin_network_is_another_clusters_and_keeps_its_pairs() {
    let cloud = MemoryCloud::new(1..=2).with_routes([own(1), own(2)]);
    // Behind a router that is not ours, and behind none.
    for (n, router) in [(2, Some("r2")), (3, None)] {
        let (subnet, network) = (format!("s{n}"), format!("net{n}"));
        let range = "10.0.0.0/24".parse().unwrap();
        cloud.lock().subnets.push(Subnet { id: subnet.clone(), network: network.clone(), range, hides_ports: false });
        let mut there = vec![port(&format!("twin-{n}"), Device::Server(format!("other-{n}")), &subnet, "10.0.0.1")];
        there.extend(router.map(|id| port("their-router", Device::Router(id.into()), &subnet, "10.0.0.254")));
        for port in &mut there {
            port.network.clone_from(&network);
        }
        cloud.lock().ports.extend(there);
    }
    cloud.allow("port-1", &["100.100.1.0/24"]);
    for port in ["port-1", "twin-2", "twin-3"] {
        cloud.allow(port, &["100.100.9.0/24"]);
    }
    assert_eq!(Passes::new(rules()).settle(&cloud, &[node(1), node(2)]).await.stripped, 1);
    assert_eq!(cloud.allowed("port-1"), ["100.100.1.0/24"]);
    assert_eq!(
        (cloud.allowed("twin-2"), cloud.allowed("twin-3")),
        (vec!["100.100.9.0/24".into()], vec!["100.100.9.0/24".into()])
    );
}

#[tokio::test]
async fn a_wider_twin_network_with_a_nodes_address_makes_no_next_hop_ours() {
    let (cloud, nodes) = with_an_orphan();
    cloud.lock().routes.retain(|route| *route != own(9));
    cloud.lock().routes.push(route("100.100.9.0/24", "10.0.7.9"));
    let range = "10.0.0.0/16".parse().unwrap();
    cloud.lock().subnets.push(Subnet { id: "s2".into(), network: "net2".into(), range, hides_ports: false });
    let mut twin = port("twin", Device::Server("other".into()), "s2", "10.0.0.1");
    twin.network = "net2".into();
    cloud.lock().ports.push(twin);
    assert_eq!(why(&cloud, &nodes).await, Why::OffSubnets);
}

/// A network of the same range as the Nodes', with a router, on which others live.
fn with_a_twin(cloud: &MemoryCloud, n: u8, router: &str, range: &str, hides_ports: bool) {
    let (subnet, network) = (format!("s{n}"), format!("net{n}"));
    let gateway = range.replace("0/24", "254");
    let twin = Subnet { id: subnet.clone(), network: network.clone(), range: range.parse().unwrap(), hides_ports };
    cloud.lock().subnets.push(twin);
    let interface = port(&format!("{router}-{n}"), Device::Router(router.into()), &subnet, &gateway);
    cloud.lock().ports.push(Port { network, ..interface });
}

#[tokio::test]
async fn a_router_that_is_not_the_nodes_keeps_what_looks_like_a_duplicate() {
    let (cloud, nodes) = with_an_orphan();
    with_a_twin(&cloud, 2, "r2", "10.0.0.0/24", false);
    // Another cluster's, whose pods and servers have our addresses: which of the two is right, only they know.
    cloud.lock().routes = vec![own(1), route("100.100.1.0/24", "10.0.0.2"), route("100.100.9.0/24", "10.0.0.9")];
    let mut passes = Passes::new(rules());
    passes.routers = vec!["r2".into()];
    assert!(passes.settle(&cloud, &nodes).await.removed.is_empty());
    let (found, _) = passes.look(&cloud, &nodes).await;
    let why: Vec<_> = found.routers[0].foreign.iter().map(|foreign| foreign.why.clone()).collect();
    assert_eq!(why, [Why::OffSubnets, Why::OffSubnets]);
}

#[tokio::test]
async fn a_next_hop_counts_only_on_subnets_of_its_own_router() {
    let (cloud, mut nodes) = with_an_orphan();
    // r1 is also on somebody's network, which does not show its ports and has the range of a subnet of ours behind r2.
    with_a_twin(&cloud, 2, "r1", "10.1.0.0/24", true);
    with_a_twin(&cloud, 3, "r2", "10.1.0.0/24", false);
    let there = Port { network: "net3".into(), ..port("port-5", Device::Server("n5".into()), "s3", "10.1.0.5") };
    cloud.lock().ports.push(there);
    cloud.lock().servers.push(server("n5", "10.1.0.5"));
    nodes.push(Node { addresses: vec!["10.1.0.5".parse().unwrap()], ..node(5) });
    cloud.lock().routes = vec![own(1), route("100.100.9.0/24", "10.1.0.9")];
    let mut passes = Passes::new(rules());
    passes.routers = vec!["r1".into(), "r2".into()];
    let (found, _) = passes.look(&cloud, &nodes).await;
    assert_eq!(found.lock, None);
    assert_eq!(found.routers[0].stale, [], "on r1, 10.1.0.9 may be anybody");
    assert_eq!(found.routers[0].foreign[0].why, Why::OffSubnets);
    assert_eq!(found.routers[1].stale.len(), 1, "on r2 it is on a subnet of ours, and nobody's");
}

#[tokio::test]
async fn a_project_with_the_addresses_of_the_nodes_and_other_servers_is_not_ours() {
    let (cloud, mut nodes) = with_an_orphan();
    for node in &mut nodes {
        node.server = Some(format!("elsewhere-{}", node.name));
    }
    let mut passes = Passes::new(rules());
    assert!(passes.settle(&cloud, &nodes).await.removed.is_empty());
    assert_eq!(passes.look(&cloud, &nodes).await.0.lock, Some(Lock::Elsewhere));
    nodes[2].server = Some("n3".into());
    assert_eq!(passes.settle(&cloud, &nodes).await.removed.len(), 1, "one that is there is enough");
}

#[tokio::test]
async fn a_route_to_a_part_of_a_nodes_range_or_to_more_than_it_is_nobody_we_know() {
    for destination in ["100.100.0.0/16", "100.100.2.0/23", "100.100.2.128/25", "100.100.3.7/32"] {
        let (cloud, nodes) = with_an_orphan();
        cloud.lock().routes.retain(|route| *route != own(9));
        cloud.lock().routes.push(route(destination, "10.0.0.9"));
        assert!(matches!(why(&cloud, &nodes).await, Why::Overlaps(_)), "{destination}");
    }
    let (cloud, nodes) = with_an_orphan();
    cloud.lock().routes.retain(|route| *route != own(9));
    cloud.lock().routes.extend([route("100.100.8.0/23", "10.0.0.9"), route("100.100.64.0/26", "10.0.0.9")]);
    assert_eq!(
        Passes::new(rules()).settle(&cloud, &nodes).await.removed.len(),
        2,
        "beside the Nodes' they are orphans"
    );
}

#[tokio::test]
async fn the_route_of_another_cluster_with_the_same_pod_range_is_left_alone() {
    let (cloud, nodes) = with_an_orphan();
    cloud.lock().routes.retain(|route| *route != own(9));
    cloud.boot(77);
    cloud.lock().routes.push(route("100.100.1.0/24", "10.0.0.77"));
    assert!(matches!(why(&cloud, &nodes).await, Why::InUse(_)), "its server lives, though n1 has that range here");
}

#[tokio::test]
async fn a_destination_beside_or_around_the_pods_is_not_ours() {
    let (cloud, nodes) = with_an_orphan();
    cloud.lock().routes.retain(|route| *route != own(9));
    cloud.lock().routes.extend([
        route("100.101.0.0/24", "10.0.0.99"),
        route("0.0.0.0/0", "10.0.0.99"),
        route("garbage", "10.0.0.99"),
        route("100.96.0.0/11", "10.0.0.99"),
    ]);
    assert_eq!(why(&cloud, &nodes).await, Why::Wider, "only the one around is worth a word");
}

#[tokio::test]
async fn a_blackhole_route_is_told_and_left_alone() {
    let (cloud, nodes) = with_an_orphan();
    cloud.lock().routes.retain(|route| *route != own(9));
    cloud.lock().routes.push(route("100.100.9.0/24", ""));
    assert_eq!(why(&cloud, &nodes).await, Why::NoNextHop);
}

#[tokio::test]
async fn a_route_through_a_node_to_a_range_that_no_node_has_is_left_alone() {
    let (cloud, nodes) = with_an_orphan();
    cloud.lock().routes.retain(|route| *route != own(9));
    cloud.lock().routes.push(route("100.100.9.0/24", "10.0.0.1"));
    assert_eq!(why(&cloud, &nodes).await, Why::OtherNode("n1".into()));
}

#[tokio::test]
async fn of_one_destination_twice_the_nodes_own_stays() {
    for dead in ["10.0.0.9", "10.0.0.2"] {
        let (cloud, nodes) = with_an_orphan();
        cloud.lock().routes.retain(|route| *route != own(9));
        cloud.lock().routes.push(route("100.100.1.0/24", dead));
        let applied = Passes::new(rules()).settle(&cloud, &nodes).await;
        assert_eq!(applied.removed.len(), 1, "through {dead}");
        assert_eq!(applied.removed[0].1.class, Class::Duplicate { node: "n1".into() });
        assert_eq!(cloud.routes(), (1..=4).map(own).collect());
    }
}

#[tokio::test]
async fn the_only_route_to_a_nodes_range_stays_though_it_is_wrong() {
    let (cloud, nodes) = with_an_orphan();
    cloud.lock().routes = (2..=4).map(own).chain([route("100.100.1.0/24", "10.0.0.9")]).collect();
    assert_eq!(why(&cloud, &nodes).await, Why::NoTwin("n1".into()));
}

#[tokio::test]
async fn a_node_without_an_address_keeps_every_route_to_its_range() {
    let (cloud, mut nodes) = with_an_orphan();
    nodes.push(Node { addresses: vec![], ..node(9) });
    assert_eq!(why(&cloud, &nodes).await, Why::NoAddress("n9".into()));
}

#[tokio::test]
async fn both_families_are_judged_each_by_its_own_addresses() {
    let cloud = MemoryCloud::new([1]).with_routes([
        own(1),
        route("fd00:100:0:1::/64", "fd00::1"),
        route("fd00:100:0:9::/64", "fd00::9"),
    ]);
    cloud.lock().subnets.push(Subnet {
        id: "s6".into(),
        network: "net1".into(),
        range: "fd00::/64".parse().unwrap(),
        hides_ports: false,
    });
    cloud.lock().ports.push(port("router-port-v6", Device::Router("r1".into()), "s6", "fd00::fe"));
    cloud.lock().ports.push(port("port-1-v6", Device::Server("n1".into()), "s6", "fd00::1"));
    let mut both = node(1);
    both.pod_ranges.push("fd00:100:0:1::/64".parse().unwrap());
    both.addresses.push("fd00::1".parse().unwrap());
    let applied = Passes::new(rules()).settle(&cloud, &[both]).await;
    assert_eq!(applied.removed.len(), 1);
    assert_eq!(applied.removed[0].1.route, route("fd00:100:0:9::/64", "fd00::9"));
}

#[tokio::test]
async fn more_than_the_brake_allows_removes_nothing_and_says_so() {
    let cloud = MemoryCloud::new(1..=4).with_routes((1..=40).map(own));
    let nodes: Vec<_> = (1..=4).map(node).collect();
    let mut passes = Passes::new(rules());
    assert!(passes.settle(&cloud, &nodes).await.removed.is_empty());
    let (_, plan) = passes.look(&cloud, &nodes).await;
    assert_eq!((plan.brakes[0].removals, plan.brakes[0].limit), (36, 10));
    passes.rules.max_removals = 100;
    assert_eq!(passes.look(&cloud, &nodes).await.1.brakes[0].limit, 20, "half of 40");
    passes.rules.max_percent = 90;
    assert_eq!(passes.settle(&cloud, &nodes).await.removed.len(), 36);
}

#[tokio::test]
async fn a_range_that_a_node_had_once_is_no_longer_allowed_on_its_port() {
    let cloud = MemoryCloud::new(1..=2).with_routes([own(1), own(2)]);
    // Its own, n2's, one of nobody, all pods, a VIP, something else.
    let others = ["100.100.1.0/24", "100.100.0.0/16", "100.100.7.7", "192.168.0.0/24"];
    cloud.allow("port-1", &["100.100.2.0/24", "100.100.9.0/24"]);
    cloud.allow("port-1", &others);
    let applied = Passes::new(rules()).settle(&cloud, &[node(1), node(2)]).await;
    assert_eq!(applied.stripped, 2);
    assert_eq!(cloud.allowed("port-1"), others);
}

#[tokio::test]
async fn a_range_is_allowed_for_as_long_as_a_route_leads_through_the_port() {
    let cloud = MemoryCloud::new(1..=2).with_routes([own(1), own(2), route("100.100.9.0/24", "10.0.0.1")]);
    cloud.allow("port-1", &["100.100.9.0/24"]);
    assert_eq!(Passes::new(rules()).settle(&cloud, &[node(1), node(2)]).await.stripped, 0);
}

#[tokio::test]
async fn ports_without_port_security_and_ports_of_others_are_left_alone() {
    let cloud = MemoryCloud::new(1..=3).with_routes([own(1)]);
    cloud.allow("port-1", &["100.100.9.0/24"]);
    cloud.lock().ports.iter_mut().find(|port| port.id == "port-1").unwrap().secured = false;
    cloud.allow("port-3", &["100.100.9.0/24"]);
    assert_eq!(Passes::new(rules()).settle(&cloud, &[node(1), node(2)]).await.stripped, 0);
}
