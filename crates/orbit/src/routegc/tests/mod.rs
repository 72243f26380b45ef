//! The rules that protect users, as properties; then the near misses, by name.

mod cloud;
mod faults;
mod near_misses;
mod properties;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use groundcrew_core::leader::{Moment, Term};
use groundcrew_core::provider::Route;

use super::apply::Applied;
use super::collector::{Collector, Pass};
use super::findings::Findings;
use super::nodes::Node;
use super::plan::Plan;
use super::rules::Rules;
use cloud::MemoryCloud;

fn rules() -> Rules {
    Rules {
        pod_ranges: vec!["100.100.0.0/16".parse().unwrap(), "fd00:100::/48".parse().unwrap()],
        sightings: 2,
        min_age: Duration::from_mins(10),
        max_removals: 10,
        max_percent: 50,
        route_limit: 31,
        whole_lists: false,
    }
}

fn route(destination: &str, next_hop: &str) -> Route {
    Route { destination: destination.into(), next_hop: next_hop.into() }
}

/// Node `n<i>` has pods in 100.100.<i>.0/24 and is at 10.0.0.<i>.
fn node(i: u8) -> Node {
    Node {
        name: format!("n{i}"),
        uid: format!("uid-{i}"),
        server: None,
        pod_ranges: vec![format!("100.100.{i}.0/24").parse().unwrap()],
        addresses: vec![format!("10.0.0.{i}").parse().unwrap()],
    }
}

/// The route that [`node`] wants.
fn own(i: u8) -> Route {
    route(&format!("100.100.{i}.0/24"), &format!("10.0.0.{i}"))
}

/// Passes, with a clock that a test moves.
struct Passes {
    rules: Rules,
    routers: Vec<String>,
    collector: Option<Collector<MemoryCloud>>,
    now: Moment,
}

impl Passes {
    fn new(rules: Rules) -> Self {
        Self { rules, routers: vec!["r1".into()], collector: None, now: Moment::now() }
    }

    /// What got a whole list in the last pass.
    fn overwritten(&mut self) -> &mut BTreeSet<String> {
        &mut self.collector.as_mut().unwrap().overwritten
    }

    /// A pass as long after the last as things must be old.
    async fn after_a_while(&mut self, cloud: &MemoryCloud, nodes: &[Node], term: Option<&Term>) -> Pass {
        self.now = self.now + self.rules.min_age;
        let collector = self
            .collector
            .get_or_insert_with(|| Collector::new(Arc::new(cloud.clone()), self.routers.clone(), self.rules.clone()));
        collector.rules = self.rules.clone();
        collector.pass(nodes, self.now, term).await.unwrap()
    }

    async fn look(&mut self, cloud: &MemoryCloud, nodes: &[Node]) -> (Findings, Plan) {
        let Pass { findings, plan, .. } = self.after_a_while(cloud, nodes, None).await;
        (findings, plan)
    }

    async fn pass(&mut self, cloud: &MemoryCloud, nodes: &[Node]) -> (Findings, Plan, Applied) {
        let Pass { findings, plan, applied } = self.after_a_while(cloud, nodes, Some(&Term::alone("test"))).await;
        (findings, plan, applied.unwrap())
    }

    /// As many passes as make everything ripe, and one more.
    async fn settle(&mut self, cloud: &MemoryCloud, nodes: &[Node]) -> Applied {
        let mut all = Applied::default();
        for _ in 0..=self.rules.sightings {
            let (_, _, applied) = self.pass(cloud, nodes).await;
            all.removed.extend(applied.removed);
            all.failures.extend(applied.failures);
            all.put_back += applied.put_back;
            all.stripped += applied.stripped;
        }
        all
    }
}
