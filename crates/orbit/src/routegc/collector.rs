//! One pass after the other: look, compare, change. It knows a cloud and Nodes, and no Kubernetes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use groundcrew_core::leader::{Moment, Term};
use groundcrew_core::provider::{Instances, Ports, Routes};
use tracing::{debug, info};

use super::apply::{Applied, apply};
use super::desired::Desired;
use super::findings::{Findings, findings};
use super::nodes::Node;
use super::observe::{ObserveError, observe};
use super::plan::{Plan, plan};
use super::rules::Rules;
use super::sightings::Sightings;

/// All of one look. The client gives up on single calls long before.
const LOOK_DEADLINE: Duration = Duration::from_mins(3);

/// An older look is not acted on: an address may have found a new owner since.
const FRESH: Duration = Duration::from_mins(1);

/// Looks after some routers of a cloud.
pub struct Collector<C> {
    cloud: Arc<C>,
    routers: Vec<String>,
    pub(super) rules: Rules,
    sightings: Sightings,
    /// Routers and ports that got a whole list from us, and of which nobody has seen since that it cost them nothing.
    pub(super) overwritten: BTreeSet<String>,
}

/// What one pass has seen and done.
#[derive(Debug)]
pub struct Pass {
    /// What each route is to us.
    pub findings: Findings,
    /// What was to be done about it.
    pub plan: Plan,
    /// What was done; `None` where nothing may be written.
    pub applied: Option<Applied>,
}

impl<C: Routes + Ports + Instances> Collector<C> {
    /// Without ids of routers, it is the one on the Nodes' subnets.
    #[must_use]
    pub fn new(cloud: Arc<C>, routers: Vec<String>, rules: Rules) -> Self {
        Self { cloud, routers, rules, sightings: Sightings::default(), overwritten: BTreeSet::new() }
    }

    /// Everything that looks stale was not seen before.
    pub fn forget(&mut self) {
        self.sightings.forget();
    }

    /// How many routes and pairs look stale.
    #[must_use]
    pub fn suspects(&self) -> usize {
        self.sightings.len()
    }

    /// Whether something may have been lost to a list of ours, which the next pass puts back.
    #[must_use]
    pub fn owes(&self) -> bool {
        !self.overwritten.is_empty()
    }

    /// One pass. `now` is for the age of what looks stale. Without a term nothing is written.
    pub async fn pass(&mut self, nodes: &[Node], now: Moment, term: Option<&Term>) -> Result<Pass, ObserveError> {
        let passed = self.pass_or_fail(nodes, now, term).await;
        if passed.is_err() {
            self.forget();
        }
        passed
    }

    async fn pass_or_fail(&mut self, nodes: &[Node], now: Moment, term: Option<&Term>) -> Result<Pass, ObserveError> {
        let began = Moment::now();
        let desired = Desired::new(nodes);
        let look = observe(&*self.cloud, &desired, &self.routers);
        let observed = tokio::time::timeout(LOOK_DEADLINE, look).await;
        let observed = observed.map_err(|_| ObserveError::Slow(LOOK_DEADLINE))??;
        let findings = findings(&desired, &observed, &self.rules);
        let ripe = self.sightings.look(&findings, &self.rules, now);
        let plan = plan(&findings, &ripe, &self.overwritten, &self.rules);
        for found in &findings.routers {
            for foreign in &found.foreign {
                debug!(router = found.router, "left alone: {foreign}");
            }
        }
        for step in &plan.steps {
            info!(%step, "planned");
        }
        let took = began.until(Moment::now());
        if took > FRESH && !plan.steps.is_empty() {
            return Err(ObserveError::Slow(took));
        }
        let Some(term) = term else { return Ok(Pass { findings, plan, applied: None }) };
        let applied = apply(&plan, &*self.cloud, term, &self.rules).await;
        // While not everything is shown, nobody knows what they miss.
        if findings.lock.is_none() {
            self.overwritten.clone_from(&applied.overwritten);
        }
        Ok(Pass { findings, plan, applied: Some(applied) })
    }
}
