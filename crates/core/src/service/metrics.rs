//! Metrics of the Service controller.

use prometheus::{Histogram, IntCounter, IntCounterVec, IntGauge};
use tokio::sync::watch;

use crate::leader::Term;
use crate::metrics::{Register, counter, counters, gauge, of_leader, outcomes, seconds};

#[derive(Clone)]
pub(super) struct ServiceMetrics {
    pub(super) outcomes: IntCounterVec,
    pub(super) duration: Histogram,
    pub(super) writes: IntCounterVec,
    pub(super) services: IntGauge,
    pub(super) queued: IntGauge,
    pub(super) missed: IntCounter,
    pub(super) scans: IntCounter,
    pub(super) verified: IntCounter,
    pub(super) compared_at: IntGauge,
    pub(super) orphans: IntGauge,
    pub(super) orphans_braked: IntGauge,
    pub(super) orphans_released: IntCounter,
}

impl ServiceMetrics {
    pub(super) fn new(registry: &dyn Register, term: &watch::Receiver<Option<Term>>) -> prometheus::Result<Self> {
        let counter = |name: &str, help: &str| counter(registry, name, help);
        let gauge = |name: &str, help: &str| gauge(registry, name, help);
        let of_leader = |name: &str, help: &str| of_leader(registry, name, help, term);
        Ok(Self {
            outcomes: outcomes(
                registry,
                "groundcrew_service_reconciles_total",
                "Looks at a Service by how they ended.",
            )?,
            duration: seconds(registry, "groundcrew_service_reconcile_seconds", "Duration of a look at a Service.")?,
            writes: counters(
                registry,
                "groundcrew_service_writes_total",
                "Writes to Services, by what they change: metadata or status.",
                &["part"],
            )?,
            services: gauge("groundcrew_services", "Services of our class.")?,
            queued: gauge("groundcrew_service_queue_depth", "Services that wait to be looked at.")?,
            missed: counter(
                "groundcrew_service_missed_changes_total",
                "Differences that the full scan found and no event had told; should stay 0.",
            )?,
            scans: counter("groundcrew_service_full_scans_total", "Full scans that were completed.")?,
            verified: counter(
                "groundcrew_service_verified_total",
                "Services that full scans compared with what is outside.",
            )?,
            compared_at: gauge(
                "groundcrew_service_last_full_comparison_timestamp_seconds",
                "When all Services were last compared with what is outside.",
            )?,
            orphans: of_leader("groundcrew_service_orphans", "Owners of things outside that have no Service.")?,
            orphans_braked: of_leader(
                "groundcrew_service_orphans_braked",
                "Orphans that are too many to be removed without somebody looking first.",
            )?,
            orphans_released: counter("groundcrew_service_orphans_released_total", "Orphans that were removed.")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use prometheus::Registry;

    use super::*;

    #[test]
    fn orphans_are_told_by_whoever_leads_and_no_longer() {
        let (registry, (begun, term)) = (Registry::new(), watch::channel(Some(Term::alone("test"))));
        let metrics = ServiceMetrics::new(&registry, &term).unwrap();
        let shown = || {
            registry.gather();
            (metrics.orphans.get(), metrics.orphans_braked.get())
        };
        metrics.orphans.set(25);
        metrics.orphans_braked.set(25);
        assert_eq!(shown(), (25, 25));
        begun.send_replace(None);
        assert_eq!(shown(), (0, 0));
        // A scan that began under the term ends after it.
        metrics.orphans_braked.set(25);
        assert_eq!(shown(), (0, 0));
    }
}
