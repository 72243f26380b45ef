//! Tells operators: Events on Nodes, counters, the log.

use std::collections::BTreeSet;

use groundcrew_core::events::{Events, Severity, reference};
use groundcrew_core::metrics::{counters, gauge};
use k8s_openapi::api::core::v1::{self, ObjectReference};
use prometheus::{IntCounterVec, IntGauge, Registry};
use tracing::{info, warn};

use super::apply::Applied;
use super::nodes::Node;
use super::plan::{Plan, Step};

pub(crate) struct Status {
    events: Events,
    /// The controller's Lease: what an Event is about that concerns no Node.
    about: ObjectReference,
    passes: IntCounterVec,
    steps: IntCounterVec,
    held: IntGauge,
    /// What was told as a trouble after the last pass.
    troubles: BTreeSet<String>,
    /// What was reported after the last pass.
    reported: BTreeSet<String>,
}

impl Status {
    pub(crate) fn new(events: Events, about: ObjectReference, registry: &Registry) -> prometheus::Result<Self> {
        let passes = counters(
            registry,
            "groundcrew_flight_passes_total",
            "Looks at Nodes and cloud, by outcome: ok or failed.",
            &["outcome"],
        )?;
        let steps = counters(
            registry,
            "groundcrew_flight_steps_total",
            "Steps by action and outcome: done, failed, or reported where nothing may be done.",
            &["action", "outcome"],
        )?;
        let held =
            gauge(registry, "groundcrew_flight_held_count", "Reasons for which sick servers are left as they are.")?;
        for outcome in ["ok", "failed"] {
            passes.with_label_values(&[outcome]);
        }
        for action in Step::ACTIONS {
            for outcome in ["done", "failed", "reported"] {
                steps.with_label_values(&[action, outcome]);
            }
        }
        Ok(Self { events, about, passes, steps, held, troubles: BTreeSet::new(), reported: BTreeSet::new() })
    }

    /// A pass that could not look at everything it needed.
    pub(crate) fn failed(&mut self, message: &str, speaks: bool) {
        self.passes.with_label_values(&["failed"]).inc();
        let message = format!("nothing is repaired: {message}");
        self.show(BTreeSet::from([message]), speaks);
    }

    /// A pass. `applied` is missing where nothing may be written.
    pub(crate) fn passed(&mut self, plan: &Plan<'_>, applied: Option<&Applied>) {
        self.passes.with_label_values(&["ok"]).inc();
        self.held.set(i64::try_from(plan.held.len()).unwrap_or(i64::MAX));
        self.show(plan.held.iter().map(ToString::to_string).collect(), applied.is_some());
        if let Some(applied) = applied {
            for (step, done) in plan.steps.iter().zip(applied) {
                match done {
                    Ok(()) => self.tell(step, "done", (Severity::Normal, step.deed()), step.to_string()),
                    Err(error) => {
                        let note = format!("{step}: not done: {error}");
                        self.tell(step, "failed", (Severity::Warning, "RepairFailed"), note);
                    }
                }
            }
        }
        let now: BTreeSet<_> = plan.reported.iter().map(ToString::to_string).collect();
        for step in plan.reported.iter().filter(|step| !self.reported.contains(&step.to_string())) {
            info!(%step, "reported only");
            if applied.is_some() {
                let note = format!("{step}: not done, because flight only reports it");
                self.tell(step, "reported", (Severity::Warning, step.finding()), note);
            }
        }
        self.reported = now;
    }

    fn tell(&self, step: &Step<'_>, outcome: &str, (severity, reason): (Severity, &'static str), note: String) {
        self.steps.with_label_values(&[step.action(), outcome]).inc();
        let about = match step.node() {
            // What the kubelet writes there as the uid: so `kubectl describe node` shows them together.
            Some(Node { name, .. }) => reference::<v1::Node>(None, name, Some(name.clone())),
            None => self.about.clone(),
        };
        self.events.tell(about, severity, reason, note);
    }

    /// Tells what began and what ended. A follower and a dry run speak only to the log.
    fn show(&mut self, now: BTreeSet<String>, speaks: bool) {
        for message in now.difference(&self.troubles) {
            warn!("{message}");
            if speaks {
                self.events.tell(self.about.clone(), Severity::Warning, "RepairsHeld", message.clone());
            }
        }
        for message in self.troubles.difference(&now) {
            info!("no longer: {message}");
        }
        self.troubles = now;
    }

    /// What is in the way, in words.
    pub(crate) fn reason(&self) -> String {
        self.troubles.iter().map(String::as_str).collect::<Vec<_>>().join("; ")
    }
}
