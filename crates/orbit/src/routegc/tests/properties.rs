//! What holds for every cluster and every router.

use groundcrew_core::provider::{Device, Subnet};
use proptest::prelude::*;
use proptest::sample::subsequence;

use super::cloud::{MemoryCloud, port};
use super::*;
use crate::routegc::plan::Step;

/// A small world, so that things collide.
#[derive(Debug, Clone)]
struct World {
    servers: Vec<u8>,
    nodes: Vec<Node>,
    routes: Vec<Route>,
    pairs: Vec<(usize, u8)>,
    hides: bool,
    incomplete: Option<&'static str>,
    single: bool,
}

impl World {
    fn cloud(&self) -> MemoryCloud {
        let cloud = MemoryCloud::new(self.servers.iter().copied()).with_routes(self.routes.iter().cloned());
        for (server, range) in &self.pairs {
            if let Some(octet) = self.servers.get(*server) {
                cloud.allow(&format!("port-{octet}"), &[&format!("100.100.{range}.0/24")]);
            }
        }
        let mut state = cloud.lock();
        state.single = self.single;
        state.incomplete.extend(self.incomplete);
        // A second subnet of the Nodes, where others may hide.
        let range = "10.0.1.0/24".parse().unwrap();
        state.subnets.push(Subnet { id: "s2".into(), network: "net1".into(), range, hides_ports: self.hides });
        state.ports.push(port("port-s2", Device::Server("n1".into()), "s2", "10.0.1.1"));
        drop(state);
        cloud
    }
}

fn destination() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => (0..8u8).prop_map(|i| format!("100.100.{i}.0/24")),
        1 => (0..4u8).prop_map(|i| format!("100.100.{i}.0/25")),
        1 => Just("100.100.0.0/16".to_owned()),
        1 => Just("100.96.0.0/11".to_owned()),
        1 => Just("10.9.0.0/24".to_owned()),
        1 => Just("0.0.0.0/0".to_owned()),
        1 => Just("not a range".to_owned()),
    ]
}

fn next_hop() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => (0..8u8).prop_map(|i| format!("10.0.0.{i}")),
        2 => (0..4u8).prop_map(|i| format!("10.0.1.{i}")),
        1 => Just("172.16.0.1".to_owned()),
        1 => Just(String::new()),
    ]
}

prop_compose! {
    fn worlds()(
        servers in subsequence((0..8u8).collect::<Vec<_>>(), 0..8),
        registered in prop::collection::btree_map(0..8u8, (0..8u8, any::<bool>()), 0..6),
        routes in prop::collection::btree_set((destination(), next_hop()), 0..14),
        pairs in prop::collection::vec((0..8usize, 0..8u8), 0..4),
        hides in any::<bool>(),
        incomplete in prop::option::weighted(0.2, prop::sample::select(vec!["servers", "ports", "subnets"])),
        single in any::<bool>(),
        second in any::<bool>(),
    ) -> World {
        let mut nodes: Vec<_> = registered.into_iter().map(|(i, (range, addressed))| {
            let addresses = if addressed { node(i).addresses } else { vec![] };
            Node { pod_ranges: node(range).pod_ranges, addresses, ..node(i) }
        }).collect();
        if let Some(first) = nodes.first_mut().filter(|_| second) {
            first.addresses.push("10.0.1.1".parse().unwrap());
        }
        let routes = routes.into_iter().map(|(destination, next_hop)| route(&destination, &next_hop)).collect();
        World { servers, nodes, routes, pairs, hides, incomplete, single }
    }
}

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
}

fn unbraked() -> Rules {
    Rules { max_removals: 1_000, max_percent: 100, whole_lists: true, ..rules() }
}

fn removed(plan: &Plan) -> Vec<Route> {
    let routes = |step: &Step| match step {
        Step::Remove { stale, .. } => stale.iter().map(|stale| stale.route.clone()).collect(),
        Step::PutBack { .. } | Step::Allow { .. } | Step::Strip { .. } => vec![],
    };
    plan.steps.iter().flat_map(routes).collect()
}

fn stripped(plan: &Plan) -> usize {
    plan.steps.iter().map(|step| if let Step::Strip { pairs, .. } = step { pairs.len() } else { 0 }).sum()
}

proptest! {
    #[test]
    fn a_plan_carried_out_leaves_nothing_to_do(world in worlds()) {
        run(async {
            let (cloud, mut passes) = (world.cloud(), Passes::new(unbraked()));
            // Pairs go only after the route that led to them.
            passes.settle(&cloud, &world.nodes).await;
            passes.settle(&cloud, &world.nodes).await;
            passes.overwritten().clear();
            for _ in 0..3 {
                let (_, plan) = passes.look(&cloud, &world.nodes).await;
                prop_assert_eq!(plan, Plan::default());
            }
            Ok(())
        })?;
    }

    #[test]
    fn nothing_is_removed_that_a_node_wants_that_leads_elsewhere_or_that_somebody_answers(world in worlds()) {
        run(async {
            let (cloud, mut passes) = (world.cloud(), Passes::new(unbraked()));
            let mut gone = Vec::new();
            for _ in 0..4 {
                let (_, plan, _) = passes.pass(&cloud, &world.nodes).await;
                gone.extend(removed(&plan));
            }
            let pods = &rules().pod_ranges[0];
            for route in gone {
                let (range, hop) = (route.range().unwrap(), route.hop().unwrap());
                prop_assert!(pods.contains(&range), "{route} leads elsewhere");
                let mut owners = world.nodes.iter().filter(|node| node.pod_ranges.contains(&range));
                prop_assert!(!owners.clone().any(|node| node.addresses.contains(&hop)), "{route} is wanted");
                let is_node = world.nodes.iter().any(|node| node.addresses.contains(&hop));
                let is_server = world.servers.iter().any(|octet| hop.to_string() == format!("10.0.0.{octet}"));
                prop_assert!(is_node || !is_server, "{route}: a server answers");
                // A route to a Node's range goes only if the Node keeps one of its own.
                let kept = |node: &Node| cloud.routes().iter().any(|kept| {
                    kept.range() == Some(range) && kept.hop().is_some_and(|hop| node.addresses.contains(&hop))
                });
                prop_assert!(owners.clone().next().is_none() || owners.any(kept), "{route} was all there was");
            }
            Ok(())
        })?;
    }

    #[test]
    fn half_a_view_or_no_nodes_change_nothing(world in worlds(), what in prop::sample::select(vec!["servers", "ports", "subnets"]), none in any::<bool>()) {
        run(async {
            let world = World { incomplete: (!none).then_some(what), ..world };
            let nodes = if none { vec![] } else { world.nodes.clone() };
            let (cloud, mut passes) = (world.cloud(), Passes::new(unbraked()));
            for _ in 0..4 {
                let (_, plan, _) = passes.pass(&cloud, &nodes).await;
                prop_assert_eq!(plan, Plan::default());
            }
            Ok(())
        })?;
    }

    #[test]
    fn no_pass_removes_more_than_the_brake_allows_from_all_routers_and_ports_together(world in worlds(), most in 0..4usize, two in any::<bool>()) {
        run(async {
            let (cloud, mut passes) = (world.cloud(), Passes::new(Rules { max_removals: most, ..unbraked() }));
            if two {
                cloud.lock().ports.push(port("port-r2", Device::Router("r2".into()), "s1", "10.0.0.253"));
                passes.routers.push("r2".into());
            }
            for _ in 0..4 {
                let (_, plan, _) = passes.pass(&cloud, &world.nodes).await;
                prop_assert!(removed(&plan).len() + stripped(&plan) <= most, "{:?}", plan);
            }
            Ok(())
        })?;
    }
}
