//! Tells operators: Events on Nodes, counters, the log.

use std::collections::BTreeSet;

use groundcrew_core::events::{Events, Severity, reference};
use k8s_openapi::api::core::v1::{self, ObjectReference};
use prometheus::Registry;
use tracing::{info, warn};

use super::apply::Applied;
use super::ladder::Repair;
use super::metrics::Metrics;
use super::nodes::Node;
use super::plan::{Plan, Step};

/// Why a pass came to nothing.
pub(crate) enum Failure {
    /// Nodes could not be listed.
    NodesUnknown(String),
    /// What was done before could not be read.
    RepairsUnknown(String),
    /// The cloud did not show everything.
    CloudUnavailable(String),
}

/// The name of a condition, which is also the reason of an Event, with a sentence.
pub(crate) type Told = (&'static str, String);

const NODES_UNKNOWN: &str = "NodesUnknown";
const REPAIRS_UNKNOWN: &str = "RepairsUnknown";
const CLOUD_UNAVAILABLE: &str = "CloudUnavailable";
const REPAIRS_HELD: &str = "RepairsHeld";
const ROLES_MISSING: &str = "RolesMissing";
pub(crate) const PROBES_UNKNOWN: &str = "ProbesUnknown";
pub(crate) const PROBES_DOUBTED: &str = "ProbesDoubted";
const ROUTER_FULL: &str = "RouterFull";
pub(crate) const CONDITIONS: [&str; 8] = [
    NODES_UNKNOWN,
    REPAIRS_UNKNOWN,
    CLOUD_UNAVAILABLE,
    REPAIRS_HELD,
    ROLES_MISSING,
    PROBES_UNKNOWN,
    PROBES_DOUBTED,
    ROUTER_FULL,
];

pub(crate) struct Status {
    events: Events,
    /// The controller's Lease: what an Event is about that concerns no Node.
    about: ObjectReference,
    metrics: Metrics,
    /// What an operator should know as long as it is so, after the last pass.
    last: BTreeSet<Told>,
    /// What of it the last Events said.
    told: BTreeSet<Told>,
    /// What was only reported after the last pass.
    found: BTreeSet<String>,
    /// What of it the last Events said.
    reported: BTreeSet<String>,
}

impl Status {
    pub(crate) fn new(events: Events, about: ObjectReference, registry: &Registry) -> prometheus::Result<Self> {
        let metrics = Metrics::new(registry)?;
        let (last, told, found, reported) = <_>::default();
        Ok(Self { events, about, metrics, last, told, found, reported })
    }

    /// A pass that could not look at everything it needed.
    pub(crate) fn failed(&mut self, failure: &Failure, speaks: bool) {
        self.metrics.passes.with_label_values(&["failed"]).inc();
        let (condition, why) = match failure {
            Failure::NodesUnknown(why) => (NODES_UNKNOWN, why),
            Failure::RepairsUnknown(why) => (REPAIRS_UNKNOWN, why),
            Failure::CloudUnavailable(why) => (CLOUD_UNAVAILABLE, why),
        };
        self.show(BTreeSet::from([(condition, format!("nothing is repaired: {why}"))]), speaks);
    }

    /// A pass. `applied` is missing where nothing may be written; `doubts` are about what the probes say.
    pub(crate) fn passed(&mut self, plan: &Plan<'_>, applied: Option<&Applied>, doubts: &[Told]) {
        self.metrics.passes.with_label_values(&["ok"]).inc();
        self.metrics.held.set(i64::try_from(plan.held.len()).unwrap_or(i64::MAX));
        let mut now: BTreeSet<_> = plan.held.iter().map(|held| (REPAIRS_HELD, held.to_string())).collect();
        if !plan.lacking_roles.is_empty() {
            let roles = plan.lacking_roles.join(", ");
            let words =
                format!("the controller's user lacks these roles in its project: {roles}; have them given to it");
            now.insert((ROLES_MISSING, words));
        }
        now.extend(plan.full.iter().map(|words| (ROUTER_FULL, words.clone())));
        now.extend(doubts.iter().cloned());
        self.show(now, applied.is_some());
        if let Some(applied) = applied {
            for (step, done) in plan.steps.iter().zip(applied) {
                match done {
                    Ok(()) => {
                        self.count(step, "done");
                        self.tell(step, (Severity::Normal, step.deed()), step.to_string());
                    }
                    Err(error) => {
                        self.count(step, "failed");
                        // One that is refused again and again is shown as a condition, and told once.
                        if !matches!(step, Step::Repair(Repair { refusals: 1.., .. })) {
                            let note = format!("{step}: not done: {error}");
                            self.tell(step, (Severity::Warning, "RepairFailed"), note);
                        }
                    }
                }
            }
        }
        self.report(&plan.reported, applied.is_some());
    }

    /// Tells what is only reported, once.
    fn report(&mut self, steps: &[Step<'_>], speaks: bool) {
        let now: BTreeSet<_> = steps.iter().map(ToString::to_string).collect();
        for step in now.difference(&self.found) {
            info!(%step, "reported only");
        }
        if speaks {
            for step in steps.iter().filter(|step| !self.reported.contains(&step.to_string())) {
                let note = format!("{step}: not done, because flight only reports it");
                self.count(step, "reported");
                self.tell(step, (Severity::Warning, step.finding()), note);
            }
            self.reported.clone_from(&now);
        }
        self.found = now;
    }

    fn count(&self, step: &Step<'_>, outcome: &str) {
        self.metrics.steps.with_label_values(&[step.action(), outcome]).inc();
    }

    fn tell(&self, step: &Step<'_>, (severity, reason): (Severity, &'static str), note: String) {
        let about = match step.node() {
            // What the kubelet writes there as the uid: so `kubectl describe node` shows them together.
            Some(Node { name, .. }) => reference::<v1::Node>(None, name, Some(name.clone())),
            None => self.about.clone(),
        };
        self.events.tell(about, severity, reason, note);
    }

    /// Tells what began and what ended. A follower and a dry run speak only to the log; what began before they led is told
    /// when they do.
    fn show(&mut self, now: BTreeSet<Told>, speaks: bool) {
        for (condition, message) in now.difference(&self.last) {
            warn!(condition, "{message}");
        }
        for (condition, message) in self.last.difference(&now) {
            info!(condition, "no longer: {message}");
        }
        if speaks {
            for (condition, message) in now.difference(&self.told) {
                self.events.tell(self.about.clone(), Severity::Warning, condition, message.clone());
            }
            self.told.clone_from(&now);
        }
        for condition in CONDITIONS {
            let so = now.iter().any(|(name, _)| *name == condition);
            self.metrics.conditions.with_label_values(&[condition]).set(so.into());
        }
        self.last = now;
    }

    /// What is in the way, in words.
    pub(crate) fn reason(&self) -> String {
        self.last.iter().map(|(_, message)| message.as_str()).collect::<Vec<_>>().join("; ")
    }
}
