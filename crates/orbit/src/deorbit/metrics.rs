//! What operators can alert on.

use groundcrew_core::metrics::{Register, counter, counters, gauge};
use prometheus::{IntCounter, IntCounterVec, IntGauge};

/// The metrics of this controller.
pub(crate) struct Metrics {
    /// Looks, by outcome.
    pub(crate) passes: IntCounterVec,
    /// Things outside that we removed ourselves.
    pub(crate) removed: IntCounter,
    /// What is left.
    pub(crate) left: IntGauge,
}

impl Metrics {
    pub(crate) fn new(registry: &dyn Register) -> prometheus::Result<Self> {
        let help = "Looks at a Deorbit, by outcome: ok or failed.";
        let passes = counters(registry, "groundcrew_deorbit_passes_total", help, &["outcome"])?;
        for outcome in ["ok", "failed"] {
            passes.with_label_values(&[outcome]);
        }
        let help = "Things outside the cluster that were removed by the cloud's API.";
        let removed = counter(registry, "groundcrew_deorbit_removed_total", help)?;
        let help = "Things that the Deorbit under way has left, in Kubernetes and outside.";
        let left = gauge(registry, "groundcrew_deorbit_left_things", help)?;
        Ok(Self { passes, removed, left })
    }
}
