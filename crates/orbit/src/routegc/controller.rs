//! The collector in a cluster: Nodes come from the API server, and operators are told.

use groundcrew_core::leader::{Moment, Term};
use groundcrew_core::provider::{ErrorKind, Instances, Ports, Routes};
use groundcrew_core::runtime::Runtime;
use jiff::Timestamp;

use crate::nodes::list;

use super::apply::Applied;
use super::collector::{Collector, Pass};
use super::conditions::{Condition, Conditions, conditions};
use super::metrics::count;
use super::nodes::Node;
use super::observe::ObserveError;
use super::status::Status;

pub(crate) struct Controller<C> {
    pub(crate) runtime: Runtime,
    pub(crate) collector: Collector<C>,
    pub(crate) status: Status,
}

/// When to look again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// As usual.
    Later,
    /// Something was written: see soon what came of it.
    Soon,
}

impl<C: Routes + Ports + Instances> Controller<C> {
    /// One pass. `Err` if not everything could be looked at; why is in the conditions. Without a term nothing is written.
    pub(crate) async fn pass(&mut self, term: Option<&Term>) -> Result<Next, ()> {
        let timer = self.status.metrics.pass_seconds.start_timer();
        let passed = self.try_pass(term).await;
        timer.observe_duration();
        let metrics = &self.status.metrics;
        metrics.suspects.set(count(self.collector.suspects()));
        metrics.passes.with_label_values(&[if passed.is_ok() { "ok" } else { "failed" }]).inc();
        match passed {
            Ok((pass, nodes)) => Ok(self.tell(&pass, &nodes, term.is_some())),
            Err((condition, message)) => {
                let message = format!("nothing is removed: {message}");
                self.status.show(Conditions::from([(condition, message)]), term.is_some());
                Err(())
            }
        }
    }

    async fn try_pass(&mut self, term: Option<&Term>) -> Result<(Pass, Vec<Node>), (Condition, String)> {
        let nodes: Vec<Node> = list(&self.runtime.client).await.map_err(|error| {
            self.collector.forget();
            (Condition::NodesUnknown, error.to_string())
        })?;
        let pass = self.collector.pass(&nodes, Moment::now(), term).await;
        Ok((pass.map_err(|error| (blame(&error), error.to_string()))?, nodes))
    }

    fn tell(&mut self, pass: &Pass, nodes: &[Node], speaks: bool) -> Next {
        let Pass { findings, plan, applied } = pass;
        self.status.metrics.show_findings(findings);
        for diff in plan.diffs() {
            self.runtime.show_plan(diff);
        }
        if findings.lock.is_none() {
            self.status.metrics.passed_at.set(Timestamp::now().as_second());
        }
        self.status.show(conditions(findings, plan, applied.as_ref()), speaks);
        let Some(applied) = applied else { return Next::Later };
        self.status.tell(applied, nodes);
        let Applied { removed, put_back, .. } = applied;
        if removed.is_empty() && *put_back == 0 { Next::Later } else { Next::Soon }
    }
}

fn blame(error: &ObserveError) -> Condition {
    match error {
        ObserveError::NoNodes => Condition::NodesUnknown,
        ObserveError::NoRouter | ObserveError::ManyRouters(_) => Condition::RouterUnknown,
        ObserveError::Cloud(error) if error.kind() == ErrorKind::NotFound => Condition::RouterUnknown,
        ObserveError::Cloud(_) | ObserveError::Slow(_) => Condition::CloudUnavailable,
    }
}
