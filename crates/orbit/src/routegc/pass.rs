//! One pass: look, compare, change, tell.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use groundcrew_core::leader::{Moment, Term};
use groundcrew_core::provider::{ErrorKind, Instances, Ports, Routes};
use jiff::Timestamp;
use kube::Client;
use tracing::{debug, info};

use crate::nodes::list;

use super::apply::{Applied, apply};
use super::conditions::{Condition, Conditions, conditions};
use super::desired::Desired;
use super::findings::findings;
use super::metrics::count;
use super::nodes::Node;
use super::observe::{ObserveError, observe};
use super::plan::plan;
use super::rules::Rules;
use super::sightings::Sightings;
use super::status::Status;

/// All of one look. The client gives up on single calls long before.
const LOOK_DEADLINE: Duration = Duration::from_mins(3);

/// An older look is not acted on: an address may have found a new owner since.
const FRESH: Duration = Duration::from_mins(1);

pub(crate) struct Collector<C> {
    pub(crate) cloud: Arc<C>,
    pub(crate) client: Client,
    pub(crate) routers: Vec<String>,
    pub(crate) rules: Rules,
    pub(crate) sightings: Sightings,
    /// Routers that got a whole list from us in the last pass.
    pub(crate) overwritten: BTreeSet<String>,
    pub(crate) status: Status,
}

/// What the next pass depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// As usual.
    Later,
    /// Something was written: see soon what came of it.
    Soon,
}

impl<C: Routes + Ports + Instances> Collector<C> {
    /// Whether the cloud could be looked at, and when to look again. Without a term nothing is written.
    pub(crate) async fn pass(&mut self, term: Option<&Term>) -> Result<Next, ()> {
        let began = Moment::now();
        let timer = self.status.metrics.pass_seconds.start_timer();
        let done = match list(&self.client).await {
            Ok(nodes) => self.over(&nodes, began, term).await,
            Err(error) => Err((Condition::NodesUnknown, error.to_string())),
        };
        timer.observe_duration();
        let outcome = if done.is_ok() { "ok" } else { "failed" };
        self.status.metrics.passes.with_label_values(&[outcome]).inc();
        done.map_err(|(condition, message)| {
            self.sightings.forget();
            self.status.metrics.suspects.set(0);
            let message = format!("nothing is removed: {message}");
            self.status.show(Conditions::from([(condition, message)]), term.is_some());
        })
    }

    async fn over(&mut self, nodes: &[Node], began: Moment, term: Option<&Term>) -> Result<Next, (Condition, String)> {
        let desired = Desired::new(nodes);
        let look = observe(&*self.cloud, &desired, &self.routers);
        let observed = tokio::time::timeout(LOOK_DEADLINE, look).await.map_err(|_| {
            let message = format!("the cloud did not show everything within {} s", LOOK_DEADLINE.as_secs());
            (Condition::CloudUnavailable, message)
        })?;
        let observed = observed.map_err(|error| (blame(&error), error.to_string()))?;
        let findings = findings(&desired, &observed, &self.rules);
        let ripe = self.sightings.look(&findings, &self.rules, Moment::now());
        let plan = plan(&findings, &ripe, &self.overwritten, &self.rules);
        self.status.metrics.suspects.set(count(self.sightings.len()));
        self.status.metrics.show_findings(&findings);
        for found in &findings.routers {
            for foreign in &found.foreign {
                debug!(router = found.router, "left alone: {foreign}");
            }
        }
        for step in &plan.steps {
            info!(%step, "planned");
        }
        let took = began.until(Moment::now());
        let applied = match term {
            Some(_) if took > FRESH && !plan.steps.is_empty() => {
                let message = format!("a look took {} s, which is too long to act on it", took.as_secs());
                return Err((Condition::CloudUnavailable, message));
            }
            Some(term) => Some(apply(&plan, &*self.cloud, term, &self.rules).await),
            None => None,
        };
        if findings.lock.is_none() {
            self.status.metrics.passed_at.set(Timestamp::now().as_second());
        }
        self.status.show(conditions(&findings, &plan, applied.as_ref()), term.is_some());
        Ok(applied.map_or(Next::Later, |applied| self.learn(applied, nodes)))
    }

    fn learn(&mut self, applied: Applied, nodes: &[Node]) -> Next {
        self.status.tell(&applied, nodes);
        let wrote = !applied.removed.is_empty() || applied.put_back > 0 || !applied.overwritten.is_empty();
        self.overwritten = applied.overwritten;
        if wrote { Next::Soon } else { Next::Later }
    }
}

fn blame(error: &ObserveError) -> Condition {
    match error {
        ObserveError::NoRouter | ObserveError::ManyRouters(_) => Condition::RouterUnknown,
        ObserveError::Cloud(error) if error.kind() == ErrorKind::NotFound => Condition::RouterUnknown,
        ObserveError::Cloud(_) => Condition::CloudUnavailable,
    }
}
