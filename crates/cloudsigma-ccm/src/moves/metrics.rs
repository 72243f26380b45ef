//! Metrics of fail-over.

use groundcrew_core::metrics::{Register, counters, gauge};
use prometheus::{IntCounterVec, IntGauge};

#[derive(Clone)]
pub(crate) struct Metrics {
    pub(crate) moves: IntCounterVec,
    pub(crate) brake: IntGauge,
    pub(crate) stranded: IntGauge,
}

impl Metrics {
    pub(crate) fn new(registry: &dyn Register) -> prometheus::Result<Self> {
        Ok(Self {
            moves: counters(
                registry,
                "groundcrew_floating_moves_total",
                "Addresses that got another node, by reason.",
                &["reason"],
            )?,
            brake: gauge(
                registry,
                "groundcrew_floating_braked_bool",
                "Whether so many nodes are silent that nothing is moved.",
            )?,
            stranded: gauge(
                registry,
                "groundcrew_floating_stranded_addresses",
                "Addresses for which there is no node.",
            )?,
        })
    }
}
