//! Metrics that every controller has. Names are `groundcrew_<concern>_<noun>_<unit>`, labels are bounded.

use prometheus::{
    Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry, core::Collector,
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::leader::Role;
use crate::provider::ErrorKind;

/// Registers a collector and hands it back.
fn registered<C: Collector + Clone + 'static>(registry: &Registry, collector: C) -> prometheus::Result<C> {
    registry.register(Box::new(collector.clone()))?;
    Ok(collector)
}

/// A counter in the registry.
pub fn counter(registry: &Registry, name: &str, help: &str) -> prometheus::Result<IntCounter> {
    registered(registry, IntCounter::new(name, help)?)
}

/// A counter with labels in the registry.
pub fn counters(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> prometheus::Result<IntCounterVec> {
    registered(registry, IntCounterVec::new(Opts::new(name, help), labels)?)
}

/// A gauge in the registry.
pub fn gauge(registry: &Registry, name: &str, help: &str) -> prometheus::Result<IntGauge> {
    registered(registry, IntGauge::new(name, help)?)
}

/// A gauge with labels in the registry.
pub fn gauges(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> prometheus::Result<IntGaugeVec> {
    registered(registry, IntGaugeVec::new(Opts::new(name, help), labels)?)
}

/// A histogram of seconds in the registry, from a millisecond to a minute.
pub fn seconds(registry: &Registry, name: &str, help: &str) -> prometheus::Result<Histogram> {
    let buckets = vec![0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 60.0];
    registered(registry, Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets))?)
}

/// How reconciles end. The labels are [`ErrorKind::label`] and `ok`.
pub(crate) fn outcomes(registry: &Registry, name: &str, help: &str) -> prometheus::Result<IntCounterVec> {
    let outcomes = counters(registry, name, help, &["outcome"])?;
    // They exist from the start, so that a rate over the first error is not lost.
    for label in ErrorKind::ALL.into_iter().map(ErrorKind::label).chain(["ok"]) {
        outcomes.with_label_values(&[label]);
    }
    Ok(outcomes)
}

pub(crate) struct LeaderMetrics {
    leading: IntGauge,
    changes: IntCounter,
}

impl LeaderMetrics {
    pub(crate) fn new(registry: &Registry) -> prometheus::Result<Self> {
        Ok(Self {
            leading: gauge(registry, "groundcrew_leader_leading_bool", "Whether this process may write.")?,
            changes: counter(
                registry,
                "groundcrew_leader_changes_total",
                "Times this process began or ended to lead.",
            )?,
        })
    }

    pub(crate) async fn follow(self, mut role: watch::Receiver<Role>, stop: CancellationToken) {
        while let Some(Ok(())) = stop.run_until_cancelled(role.changed()).await {
            self.leading.set(role.borrow_and_update().term().is_some().into());
            self.changes.inc();
        }
        // The campaign outlives the drain, and with dry-run there is none; neither is the end of this task's job.
        stop.cancelled().await;
    }
}
