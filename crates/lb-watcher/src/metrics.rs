//! What an operator can see of the watch.

use groundcrew_core::drift::DriftMetrics;
use groundcrew_core::metrics::{Register, counter, counters, gauge};
use prometheus::{IntCounter, IntCounterVec, IntGauge};

use crate::attribution::{LABELS, UNKNOWN_WRITER};
use crate::verify::Kind;

/// The kind of a row without a Service.
pub(crate) const ORPHAN: &str = "orphan";

#[derive(Clone)]
pub(crate) struct Metrics {
    pub(crate) drift: DriftMetrics,
    pub(crate) open: IntGauge,
    pub(crate) connected: IntGauge,
    pub(crate) services: IntGauge,
    pub(crate) verified: IntCounter,
    pub(crate) comparisons: IntCounter,
    pub(crate) compared_at: IntGauge,
    pub(crate) missed: IntCounter,
    pub(crate) requests: IntCounterVec,
    pub(crate) differences: IntCounterVec,
    pub(crate) orphans: IntGauge,
    pub(crate) ambiguous: IntGauge,
    pub(crate) kube_ovn_changes: IntCounter,
    pub(crate) vigil: IntGauge,
}

impl Metrics {
    pub(crate) fn new(registry: &dyn Register) -> prometheus::Result<Self> {
        let counter = |name: &str, help: &str| counter(registry, name, help);
        let counters = |name: &str, help: &str, labels: &[&str]| counters(registry, name, help, labels);
        let gauge = |name: &str, help: &str| gauge(registry, name, help);
        let metrics = Self {
            drift: DriftMetrics::new(registry, &LABELS)?,
            open: gauge("groundcrew_drift_open_services", "Services that are not as they should be.")?,
            connected: gauge(
                "groundcrew_watcher_connected_bool",
                "Whether the view of the northbound database is current.",
            )?,
            services: gauge("groundcrew_watcher_services", "Services that are verified.")?,
            verified: counter("groundcrew_watcher_rows_verified_total", "Rows compared by full comparisons.")?,
            comparisons: counter("groundcrew_watcher_full_comparisons_total", "Full comparisons that were completed.")?,
            compared_at: gauge(
                "groundcrew_watcher_last_full_comparison_timestamp_seconds",
                "When the last full comparison was completed.",
            )?,
            missed: counter(
                "groundcrew_watcher_missed_changes_total",
                "Drift that a full comparison found and no change of OVN had told; should stay 0.",
            )?,
            requests: counters(
                "groundcrew_watcher_repair_requests_total",
                "Annotations written to have a load balancer rebuilt, by how the write ended.",
                &["outcome"],
            )?,
            differences: counters(
                "groundcrew_watcher_differences_total",
                "Differences that are told and left to kube-dc, by kind: its way of seeing things, or changed options.",
                &["kind"],
            )?,
            orphans: gauge("groundcrew_watcher_orphans", "Rows under kube-dc's names that have no Service.")?,
            ambiguous: gauge(
                "groundcrew_watcher_ambiguous_names",
                "Row names that several Services share, because of kube-dc's way to make them.",
            )?,
            kube_ovn_changes: counter(
                "groundcrew_watcher_kube_ovn_changes_total",
                "Restarts, new pods and new leaders of kube-ovn-controller.",
            )?,
            vigil: gauge(
                "groundcrew_watcher_vigil_bool",
                "Whether everything is compared again and again, because kube-ovn-controller has just started.",
            )?,
        };
        // They exist from the start, so that a rate over the first one is not lost.
        for cause in LABELS {
            for kind in Kind::ALL {
                metrics.drift.found.with_label_values(&[kind.label(), cause]);
                metrics.drift.repaired.with_label_values(&[kind.label(), cause]);
            }
        }
        for kind in Kind::ALL {
            metrics.differences.with_label_values(&[kind.label()]);
        }
        for labels in [&metrics.drift.found, &metrics.drift.repaired] {
            labels.with_label_values(&[ORPHAN, UNKNOWN_WRITER]);
        }
        for outcome in ["ok", "conflict", "gone", "failed"] {
            metrics.requests.with_label_values(&[outcome]);
        }
        Ok(metrics)
    }
}
