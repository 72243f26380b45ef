//! What everybody counts who looks for drift.

use prometheus::{Histogram, IntCounterVec, IntGauge};
use tokio::sync::watch;

use crate::leader::Term;
use crate::metrics::{Register, counters, gauge, of_leader, seconds};

const FLAPPING: (&str, &str) =
    ("groundcrew_drift_flapping_services", "Services that somebody else changes again and again.");

/// The metrics of drift.
#[derive(Clone)]
pub struct DriftMetrics {
    /// By kind and cause.
    pub found: IntCounterVec,
    /// By kind and cause.
    pub repaired: IntCounterVec,
    /// From the news of a change to its repair.
    pub repair: Histogram,
    /// By cause.
    pub mass: IntCounterVec,
    /// Those that the brake holds.
    pub flapping: IntGauge,
}

impl DriftMetrics {
    /// `causes` are all that there can be: they exist from the start, so that a rate over the first one is not lost.
    pub fn new(registry: &dyn Register, causes: &[&str]) -> prometheus::Result<Self> {
        let (name, help) = FLAPPING;
        Self::with(registry, causes, gauge(registry, name, help)?)
    }

    /// The same for somebody who looks only while he leads.
    pub(crate) fn of_leader(
        registry: &dyn Register,
        causes: &[&str],
        term: &watch::Receiver<Option<Term>>,
    ) -> prometheus::Result<Self> {
        let (name, help) = FLAPPING;
        Self::with(registry, causes, of_leader(registry, name, help, term)?)
    }

    fn with(registry: &dyn Register, causes: &[&str], flapping: IntGauge) -> prometheus::Result<Self> {
        let metrics = Self {
            found: counters(
                registry,
                "groundcrew_drift_found_total",
                "Differences that somebody else made, by kind and likely cause; one a Service and kind.",
                &["kind", "cause"],
            )?,
            repaired: counters(
                registry,
                "groundcrew_drift_repaired_total",
                "Differences that somebody else made and that are over: put right, or gone, by kind and likely cause.",
                &["kind", "cause"],
            )?,
            repair: seconds(
                registry,
                "groundcrew_drift_repair_seconds",
                "From the news of a change by somebody else to the moment at which it was put right.",
            )?,
            mass: counters(
                registry,
                "groundcrew_drift_mass_total",
                "Changes by somebody else that hit many Services at once, by likely cause.",
                &["cause"],
            )?,
            flapping,
        };
        for cause in causes {
            metrics.mass.with_label_values(&[cause]);
        }
        Ok(metrics)
    }
}
