//! Drift: what somebody changed outside, behind our back.
//!
//! The Service controller finds it, has it put right first, and then reports it, or that this failed. Who did it is asked
//! of an [`Attribute`], which has been shown every change of the world outside as it came.

mod brake;
mod metrics;

use crate::leader::Moment;
use crate::provider::{Difference, Owner};

pub use brake::{Brake, Held};
pub use metrics::DriftMetrics;

/// One Service that was not as it had been left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drift {
    /// Whose it is.
    pub owner: Owner,
    /// What was not as it should be.
    pub differences: Vec<Difference>,
}

/// What was found together.
#[derive(Debug, Clone)]
pub struct Round {
    /// When the first of it was seen.
    pub seen: Moment,
    /// Service by Service.
    pub drifts: Vec<Drift>,
}

/// One change of the world outside as it arrived, counted. It is evidence of who made it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shift {
    /// Load balancers with our mark that are gone.
    pub ours_removed: usize,
    /// Load balancers with our mark that stay.
    pub ours_left: usize,
    /// Load balancers of others that are gone.
    pub others_removed: usize,
    /// Load balancers of others that stay, without those of the network itself.
    pub others_left: usize,
    /// Load balancers that the network itself made and that stay, as kube-ovn's six of each VPC.
    pub native_left: usize,
    /// Load balancers that are gone and that carried the mark of the network's vendor.
    pub vendor_removed: usize,
    /// Load balancers with that mark that stay, without those of the network itself.
    pub vendor_left: usize,
    /// Load balancers, routers and switches that are there under their old name and a new id, as after a restore.
    pub replaced: usize,
    /// Routers and switches among them, by name; their members are lost.
    pub recreated: Vec<String>,
    /// Whether nothing is left of anything that was there.
    pub emptied: bool,
    /// Whether it went back to how it was at an earlier time.
    pub rewound: bool,
    /// Whether it is the sum of what happened while we were not connected.
    pub unseen: bool,
}

/// Who or what made a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// A bounded word for metrics: `kube_ovn_collection`, `manual_delete`.
    pub label: &'static str,
    /// The same for people: "kube-ovn-controller became leader 3.4 s before and deletes what it does not know".
    pub words: String,
    /// How to keep it from happening again, where that is known.
    pub remedy: Option<String>,
}

const UNKNOWN: &str = "unknown_writer";

impl Cause {
    /// Nothing is known.
    #[must_use]
    pub fn unknown() -> Self {
        Self { label: UNKNOWN, words: "an unknown writer".into(), remedy: None }
    }
}

/// Tells who did it.
pub trait Attribute: Send + Sync + 'static {
    /// The world outside has changed. Called for every change that may concern us, those that took nothing too: a drift
    /// that came with one of them was not made by the one before.
    fn observe(&self, shift: &Shift, seen: Moment);

    /// Who made this. Called after the repair, or the first attempt at it.
    fn cause(&self, round: &Round) -> Cause;

    /// What else happened near this time, in words: a restart of another writer, a new leader.
    fn nearby(&self, _moment: Moment) -> Option<String> {
        None
    }

    /// The label of every cause there can be.
    fn causes(&self) -> &'static [&'static str] {
        &[UNKNOWN]
    }
}

/// Knows nobody.
#[derive(Debug, Clone, Copy, Default)]
pub struct Nobody;

impl Attribute for Nobody {
    fn observe(&self, _: &Shift, _: Moment) {}

    fn cause(&self, _: &Round) -> Cause {
        Cause::unknown()
    }
}
