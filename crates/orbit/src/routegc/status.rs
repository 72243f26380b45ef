//! Tells operators: Events, metrics, the log. Only what has changed is told.

use groundcrew_core::events::{Events, Severity, reference};
use k8s_openapi::api::core::v1::{self, ObjectReference};
use tracing::{info, warn};

use super::apply::Applied;
use super::conditions::{Condition, Conditions};
use super::findings::Class;
use super::metrics::Metrics;
use super::nodes::Node;

pub(crate) struct Status {
    pub(crate) events: Events,
    /// The controller's Lease: what an Event is about that concerns no Node.
    pub(crate) about: ObjectReference,
    pub(crate) metrics: Metrics,
    /// What was true after the last pass.
    pub(crate) last: Conditions,
    /// What the last Events said.
    pub(crate) told: Conditions,
}

impl Status {
    /// What is true, in words.
    pub(crate) fn reason(&self) -> String {
        self.last.values().map(String::as_str).collect::<Vec<_>>().join("; ")
    }

    /// Tells what began and what ended. A follower and a dry run speak only to the log; what began before they led is told
    /// when they do.
    pub(crate) fn show(&mut self, now: Conditions, speaks: bool) {
        for (condition, message) in news(&now, &self.last) {
            warn!(condition = condition.name(), "{message}");
        }
        for (condition, message) in gone(&now, &self.last) {
            info!(condition = condition.name(), "over: {message}");
        }
        if speaks {
            for (condition, message) in news(&now, &self.told) {
                self.events.tell(self.about.clone(), Severity::Warning, condition.name(), message);
            }
            for (condition, message) in gone(&now, &self.told) {
                self.events.tell(self.about.clone(), Severity::Normal, condition.name(), format!("over: {message}"));
            }
            self.told.clone_from(&now);
        }
        self.metrics.show_conditions(&now);
        self.last = now;
    }

    /// Tells what was removed: to the Node that it was a duplicate for, or else to nobody in particular.
    pub(crate) fn tell(&self, applied: &Applied, nodes: &[Node]) {
        self.metrics.show_applied(applied);
        for (router, stale) in &applied.removed {
            let owner = match &stale.class {
                Class::Duplicate { node } => nodes.iter().find(|known| known.name == *node),
                Class::Orphan => None,
            };
            let about = owner.map_or_else(
                || self.about.clone(),
                |node| reference::<v1::Node>(None, &node.name, Some(node.uid.clone())),
            );
            self.events.tell(about, Severity::Normal, "RouteRemoved", format!("removed from router {router}: {stale}"));
        }
    }
}

/// What was not so before, or in other words.
fn news<'a>(now: &'a Conditions, before: &'a Conditions) -> impl Iterator<Item = (&'a Condition, &'a String)> {
    now.iter().filter(|(condition, message)| before.get(condition) != Some(message))
}

fn gone<'a>(now: &'a Conditions, before: &'a Conditions) -> impl Iterator<Item = (&'a Condition, &'a String)> {
    before.iter().filter(|(condition, _)| !now.contains_key(condition))
}
