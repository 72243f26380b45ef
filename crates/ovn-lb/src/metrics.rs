//! What an operator can see of the way to OVN.

pub(crate) use groundcrew_core::metrics::pool_addresses;
use groundcrew_core::metrics::{Register, counters, gauge, histogram, seconds};
use prometheus::{Histogram, IntCounterVec, IntGauge, IntGaugeVec};

use crate::commit::Refusal;

#[derive(Clone)]
pub(crate) struct Metrics {
    pub(crate) connected: IntGauge,
    pub(crate) rival: IntGauge,
    pub(crate) commits: IntCounterVec,
    changes: Histogram,
    pub(crate) pools: IntGaugeVec,
    pub(crate) transact: Histogram,
}

impl Metrics {
    pub(crate) fn new(registry: &dyn Register) -> prometheus::Result<Self> {
        let commits = counters(
            registry,
            "groundcrew_ovn_commits_total",
            "Transactions sent to OVN, by how they ended.",
            &["outcome"],
        )?;
        // They exist from the start, so that a rate over the first failure is not lost.
        for outcome in ["ok", "lost", "rejected", "failed"] {
            commits.with_label_values(&[outcome]);
        }
        let help = "Services that one transaction served.";
        let buckets = [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1_000.0];
        let changes = histogram(registry, "groundcrew_ovn_commit_services", help, &buckets)?;
        let pools = pool_addresses("AddressPool")?;
        registry.register(Box::new(pools.clone()))?;
        Ok(Self {
            connected: gauge(
                registry,
                "groundcrew_ovn_connected_bool",
                "Whether the view of the northbound database is current.",
            )?,
            rival: gauge(
                registry,
                "groundcrew_ovn_rival_bool",
                "Whether another controller of this cluster keeps this one from writing to OVN.",
            )?,
            commits,
            changes,
            pools,
            transact: seconds(registry, "groundcrew_ovn_transact_seconds", "Time from a transaction to its answer.")?,
        })
    }

    pub(crate) fn committed<T>(&self, changes: usize, outcome: &Result<T, Refusal>) {
        let word = match outcome {
            Ok(_) => "ok",
            Err(Refusal::Operation { lost: true, .. }) => "lost",
            Err(Refusal::Operation { .. } | Refusal::Commit(_)) => "rejected",
            Err(Refusal::Whole(_)) => "failed",
        };
        self.commits.with_label_values(&[word]).inc();
        if outcome.is_ok() {
            #[allow(clippy::cast_precision_loss, reason = "a batch has a few thousand changes at most")]
            self.changes.observe(changes as f64);
        }
    }
}
