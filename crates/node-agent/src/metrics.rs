//! What an operator can see of an agent.

use groundcrew_core::metrics::{Register, counter, gauge, seconds};
use prometheus::{Histogram, IntCounter, IntGauge};

#[derive(Clone)]
pub(crate) struct Metrics {
    pub(crate) held: IntGauge,
    pub(crate) lapses: IntCounter,
    pub(crate) renewals_failed: IntCounter,
    pub(crate) renewal: Histogram,
    pub(crate) extended: IntCounter,
    pub(crate) duplicates: IntCounter,
    pub(crate) leftovers: IntCounter,
}

impl Metrics {
    pub(crate) fn new(registry: &dyn Register) -> prometheus::Result<Self> {
        let counter = |name: &str, help: &str| counter(registry, name, help);
        Ok(Self {
            held: gauge(registry, "groundcrew_node_agent_held_addresses", "Addresses on this node's interfaces.")?,
            lapses: counter(
                "groundcrew_node_agent_lapses_total",
                "Times the Lease was not renewed in time, so that all addresses were given up.",
            )?,
            renewals_failed: counter(
                "groundcrew_node_agent_renewals_failed_total",
                "Renewals of the Lease that the API server did not take in time.",
            )?,
            renewal: seconds(
                registry,
                "groundcrew_node_agent_renewal_seconds",
                "How long the API server took to renew the Lease.",
            )?,
            extended: counter(
                "groundcrew_node_agent_extensions_total",
                "Times addresses were kept because most other agents did not reach the API server either.",
            )?,
            duplicates: counter(
                "groundcrew_node_agent_duplicates_total",
                "Times another host answered for an address that this node was to take.",
            )?,
            leftovers: counter(
                "groundcrew_node_agent_leftovers_total",
                "Addresses of an earlier run that were taken away at the start.",
            )?,
        })
    }
}
