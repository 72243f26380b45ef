//! What to change in one pass.
//!
//! Pure and synchronous: no client, clock or random number. The same inputs give the same steps in the same order.

use std::collections::BTreeSet;
use std::fmt;

use groundcrew_core::provider::{AddressPair, Port, Route};

use super::findings::{Findings, RouterFindings, Stale};
use super::rules::Rules;
use super::sightings::Suspect;

/// One change. `Display` is what `--dry-run` prints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Take routes from a router.
    Remove {
        /// The router.
        router: String,
        /// The routes.
        stale: Vec<Stale>,
    },
    /// Give a router routes back that our last whole list may have cost it.
    PutBack {
        /// The router.
        router: String,
        /// The routes.
        routes: Vec<Route>,
    },
    /// Let a port no longer send from ranges that are not its Node's.
    Strip {
        /// The Node.
        node: String,
        /// The port as it was read.
        port: Port,
        /// The pairs that go.
        pairs: Vec<AddressPair>,
    },
}

/// Removals that one pass may not make: a wrong view looks exactly like this.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Brake {
    /// Where.
    pub place: String,
    /// How many would go.
    pub removals: usize,
    /// How many may.
    pub limit: usize,
}

/// The steps of one pass, and what was held back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// In the order in which they are carried out.
    pub steps: Vec<Step>,
    /// Told, never acted on.
    pub brakes: Vec<Brake>,
}

/// Turns findings into steps. `ripe` is what was seen often and long enough; `overwritten` are the routers that got a whole
/// list from us in the last pass.
#[must_use]
pub fn plan(findings: &Findings, ripe: &BTreeSet<Suspect>, overwritten: &BTreeSet<String>, rules: &Rules) -> Plan {
    let mut plan = Plan::default();
    if findings.lock.is_some() {
        return plan;
    }
    for found in &findings.routers {
        if overwritten.contains(&found.router) && !found.missing.is_empty() {
            plan.steps.push(Step::PutBack { router: found.router.clone(), routes: found.missing.clone() });
        }
        plan.remove_routes(found, ripe, rules);
    }
    plan.strip_pairs(findings, ripe, rules);
    plan
}

impl Plan {
    fn remove_routes(&mut self, found: &RouterFindings, ripe: &BTreeSet<Suspect>, rules: &Rules) {
        let router = &found.router;
        let is_ripe =
            |stale: &&Stale| ripe.contains(&Suspect::Route { router: router.clone(), stale: (*stale).clone() });
        let stale: Vec<_> = found.stale.iter().filter(is_ripe).cloned().collect();
        match rules.limit(found.pod_routes()) {
            _ if stale.is_empty() => {}
            limit if stale.len() > limit => {
                self.brakes.push(Brake { place: format!("router {router}"), removals: stale.len(), limit });
            }
            _ => self.steps.push(Step::Remove { router: router.clone(), stale }),
        }
    }

    fn strip_pairs(&mut self, findings: &Findings, ripe: &BTreeSet<Suspect>, rules: &Rules) {
        let mut strips = Vec::new();
        for found in &findings.pairs {
            let port = &found.port.id;
            let is_ripe =
                |pair: &&AddressPair| ripe.contains(&Suspect::Pair { port: port.clone(), pair: (*pair).clone() });
            let pairs: Vec<_> = found.pairs.iter().filter(is_ripe).cloned().collect();
            if !pairs.is_empty() {
                strips.push(Step::Strip { node: found.node.clone(), port: found.port.clone(), pairs });
            }
        }
        if strips.len() > rules.max_removals {
            let place = "the Nodes' ports".to_owned();
            self.brakes.push(Brake { place, removals: strips.len(), limit: rules.max_removals });
        } else {
            self.steps.extend(strips);
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Remove { router, stale } => write!(f, "router {router}: remove {}", join(stale)),
            Self::PutBack { router, routes } => write!(f, "router {router}: put back {}", join(routes)),
            Self::Strip { node, port, pairs } => {
                let ranges: Vec<_> = pairs.iter().map(|pair| pair.range.as_str()).collect();
                write!(f, "port {} of Node {node}: no longer allow {}", port.id, ranges.join(", "))
            }
        }
    }
}

impl fmt::Display for Brake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place, removals, limit } = self;
        write!(f, "{removals} removals at {place} are more than the {limit} of one pass, so none is made")
    }
}

fn join(items: &[impl fmt::Display]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
