//! The rules that protect users, as properties; then the near misses, by name.

mod cloud;
mod faults;
mod near_misses;
mod properties;

use std::time::Duration;

use groundcrew_core::leader::{Moment, Term};
use groundcrew_core::provider::Route;

use super::apply::{Applied, apply};
use super::desired::Desired;
use super::findings::{Findings, findings};
use super::nodes::Node;
use super::observe::observe;
use super::plan::{Plan, plan};
use super::rules::Rules;
use super::sightings::Sightings;
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
        pod_ranges: vec![format!("100.100.{i}.0/24").parse().unwrap()],
        addresses: vec![format!("10.0.0.{i}").parse().unwrap()],
    }
}

/// The route that [`node`] wants.
fn own(i: u8) -> Route {
    route(&format!("100.100.{i}.0/24"), &format!("10.0.0.{i}"))
}

/// Passes as the controller makes them, with a clock that a test moves.
struct Passes {
    rules: Rules,
    routers: Vec<String>,
    sightings: Sightings,
    overwritten: std::collections::BTreeSet<String>,
    now: Moment,
}

impl Passes {
    fn new(rules: Rules) -> Self {
        Self {
            rules,
            routers: vec!["r1".into()],
            sightings: Sightings::default(),
            overwritten: std::collections::BTreeSet::new(),
            now: Moment::now(),
        }
    }

    /// A look, as long after the last as things must be old.
    async fn look(&mut self, cloud: &MemoryCloud, nodes: &[Node]) -> (Findings, Plan) {
        self.now = self.now + self.rules.min_age;
        let desired = Desired::new(nodes);
        let observed = observe(cloud, &desired, &self.routers).await.unwrap();
        let found = findings(&desired, &observed, &self.rules);
        let ripe = self.sightings.look(&found, &self.rules, self.now);
        let plan = plan(&found, &ripe, &self.overwritten, &self.rules);
        (found, plan)
    }

    async fn pass(&mut self, cloud: &MemoryCloud, nodes: &[Node]) -> (Findings, Plan, Applied) {
        let (found, plan) = self.look(cloud, nodes).await;
        let applied = apply(&plan, cloud, &Term::alone("test"), &self.rules).await;
        self.overwritten.clone_from(&applied.overwritten);
        (found, plan, applied)
    }

    /// As many passes as make everything ripe.
    async fn settle(&mut self, cloud: &MemoryCloud, nodes: &[Node]) -> Applied {
        let mut last = Applied::default();
        for _ in 0..=self.rules.sightings {
            let (_, _, applied) = self.pass(cloud, nodes).await;
            last.removed.extend(applied.removed);
            last.failures.extend(applied.failures);
            last.put_back += applied.put_back;
            last.stripped += applied.stripped;
        }
        last
    }
}
