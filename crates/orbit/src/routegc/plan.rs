//! What to change in one pass.
//!
//! Pure and synchronous: no client, clock or random number. The same inputs give the same steps in the same order.

use std::collections::BTreeSet;
use std::fmt;

use groundcrew_core::diff::Diff;
use groundcrew_core::provider::{AddressPair, Port, Route};

use super::findings::{Findings, RouterFindings, Stale, StalePairs};
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
    /// Let a port send again from its Node's ranges, which our last list may have cost it.
    Allow {
        /// The Node.
        node: String,
        /// The port as it was read.
        port: Port,
        /// The pairs that come.
        pairs: Vec<AddressPair>,
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

/// Turns findings into steps. `ripe` is what was seen often and long enough; `overwritten` are the routers and ports that got a
/// whole list from us, and that nobody has seen since.
#[must_use]
pub fn plan(findings: &Findings, ripe: &BTreeSet<Suspect>, overwritten: &BTreeSet<String>, rules: &Rules) -> Plan {
    let mut plan = Plan::default();
    if findings.lock.is_some() {
        return plan;
    }
    plan.put_back(findings, overwritten);
    let routes = findings.routers.iter().map(|found| (found, ripe_routes(found, ripe)));
    let routes: Vec<_> = routes.filter(|(_, stale)| !stale.is_empty()).collect();
    let strips: Vec<_> = findings.pairs.iter().filter_map(|found| strip(found, ripe)).collect();
    let removals = routes.iter().map(|(_, stale)| stale.len()).chain(strips.iter().map(|(_, pairs)| *pairs)).sum();
    if removals > rules.max_removals {
        plan.brakes.push(Brake { place: "all routers and ports".into(), removals, limit: rules.max_removals });
        return plan;
    }
    for (found, stale) in routes {
        plan.remove_routes(found, stale, rules);
    }
    plan.steps.extend(strips.into_iter().map(|(strip, _)| strip));
    plan
}

fn ripe_routes(found: &RouterFindings, ripe: &BTreeSet<Suspect>) -> Vec<Stale> {
    let router = &found.router;
    let is_ripe = |stale: &&Stale| ripe.contains(&Suspect::Route { router: router.clone(), stale: (*stale).clone() });
    found.stale.iter().filter(is_ripe).cloned().collect()
}

/// With how many pairs go.
fn strip(found: &StalePairs, ripe: &BTreeSet<Suspect>) -> Option<(Step, usize)> {
    let port = &found.port.id;
    let is_ripe = |pair: &&AddressPair| ripe.contains(&Suspect::Pair { port: port.clone(), pair: (*pair).clone() });
    let pairs: Vec<_> = found.pairs.iter().filter(is_ripe).cloned().collect();
    let n = pairs.len();
    (n > 0).then(|| (Step::Strip { node: found.node.clone(), port: found.port.clone(), pairs }, n))
}

impl Plan {
    fn put_back(&mut self, findings: &Findings, overwritten: &BTreeSet<String>) {
        for found in findings.routers.iter().filter(|found| overwritten.contains(&found.router)) {
            if !found.missing.is_empty() {
                self.steps.push(Step::PutBack { router: found.router.clone(), routes: found.missing.clone() });
            }
        }
        for found in findings.pairs.iter().filter(|found| overwritten.contains(&found.port.id)) {
            if !found.lacking.is_empty() {
                let (node, port, pairs) = (found.node.clone(), found.port.clone(), found.lacking.clone());
                self.steps.push(Step::Allow { node, port, pairs });
            }
        }
    }

    fn remove_routes(&mut self, found: &RouterFindings, stale: Vec<Stale>, rules: &Rules) {
        let (router, limit) = (&found.router, rules.limit(found.pod_routes()));
        if stale.len() > limit {
            self.brakes.push(Brake { place: format!("router {router}"), removals: stale.len(), limit });
        } else {
            self.steps.push(Step::Remove { router: router.clone(), stale });
        }
    }
}

impl Plan {
    /// For people: what goes and what comes, place by place.
    #[must_use]
    pub fn diffs(&self) -> Vec<Diff> {
        let diff = |step: &Step| match step {
            Step::Remove { router, stale } => {
                Diff::of(format!("router {router}"), stale.iter().map(|stale| format!("- {stale}")))
            }
            Step::PutBack { router, routes } => {
                Diff::of(format!("router {router}"), routes.iter().map(|route| format!("+ {route}")))
            }
            Step::Allow { node, port, pairs } => {
                let come = pairs.iter().map(|pair| format!("+ allowed address pair {}", pair.range));
                Diff::of(format!("port {} of Node {node}", port.id), come)
            }
            Step::Strip { node, port, pairs } => {
                let gone = pairs.iter().map(|pair| format!("- allowed address pair {}", pair.range));
                Diff::of(format!("port {} of Node {node}", port.id), gone)
            }
        };
        let held = self.brakes.iter().map(|brake| Diff::of(brake.place.clone(), [format!("! {brake}")]));
        self.steps.iter().map(diff).chain(held).collect()
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Remove { router, stale } => write!(f, "router {router}: remove {}", join(stale)),
            Self::PutBack { router, routes } => write!(f, "router {router}: put back {}", join(routes)),
            Self::Allow { node, port, pairs } => {
                write!(f, "port {} of Node {node}: allow {} again", port.id, ranges(pairs))
            }
            Self::Strip { node, port, pairs } => {
                write!(f, "port {} of Node {node}: no longer allow {}", port.id, ranges(pairs))
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

fn ranges(pairs: &[AddressPair]) -> String {
    pairs.iter().map(|pair| pair.range.as_str()).collect::<Vec<_>>().join(", ")
}

fn join(items: &[impl fmt::Display]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
