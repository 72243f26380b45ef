//! Metrics of the Service controller.

use prometheus::{Histogram, IntCounter, IntCounterVec, IntGauge, Registry};

use crate::metrics::{counter, counters, gauge, outcomes, seconds};

#[derive(Clone)]
pub(super) struct ServiceMetrics {
    pub(super) outcomes: IntCounterVec,
    pub(super) duration: Histogram,
    pub(super) writes: IntCounterVec,
    pub(super) services: IntGauge,
    pub(super) queued: IntGauge,
    pub(super) missed: IntCounter,
    pub(super) scans: IntCounter,
    pub(super) orphans: IntGauge,
    pub(super) orphans_braked: IntGauge,
    pub(super) orphans_released: IntCounter,
}

impl ServiceMetrics {
    pub(super) fn new(registry: &Registry) -> prometheus::Result<Self> {
        let counter = |name: &str, help: &str| counter(registry, name, help);
        let gauge = |name: &str, help: &str| gauge(registry, name, help);
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
            services: gauge("groundcrew_service_services_count", "Services of our class.")?,
            queued: gauge("groundcrew_service_queue_count", "Services that wait to be looked at.")?,
            missed: counter(
                "groundcrew_service_missed_changes_total",
                "Differences that the full scan found and no event had told; should stay 0.",
            )?,
            scans: counter("groundcrew_service_full_scans_total", "Full scans that were completed.")?,
            orphans: gauge("groundcrew_service_orphans_count", "Owners of things outside that have no Service.")?,
            orphans_braked: gauge(
                "groundcrew_service_orphans_braked_count",
                "Orphans that are too many to be removed without somebody looking first.",
            )?,
            orphans_released: counter("groundcrew_service_orphans_released_total", "Orphans that were removed.")?,
        })
    }
}
