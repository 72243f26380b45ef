//! Metrics that every controller has. Names are `groundcrew_<concern>_<noun>_<unit>`, labels are bounded. Counters end in
//! `_total`, yes or no in `_bool`, and nothing but the parts of a histogram in `_count`, `_sum` or `_bucket`.

mod catalogue;

use prometheus::core::{Collector, Desc};
use prometheus::process_collector::ProcessCollector;
use prometheus::proto::MetricFamily;
use prometheus::{Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::leader::{Role, Term};
use crate::provider::ErrorKind;

pub use catalogue::{Catalogue, Family};

/// Where metrics are registered: the registry of a process, or the catalogue that the reference is written from.
pub trait Register {
    /// Takes a collector in.
    fn register(&self, collector: Box<dyn Collector>) -> prometheus::Result<()>;
}

impl Register for Registry {
    fn register(&self, collector: Box<dyn Collector>) -> prometheus::Result<()> {
        Registry::register(self, collector)
    }
}

/// Registers a collector and hands it back.
fn registered<C: Collector + Clone + 'static>(registry: &dyn Register, collector: C) -> prometheus::Result<C> {
    registry.register(Box::new(collector.clone()))?;
    Ok(collector)
}

/// A counter in the registry.
pub fn counter(registry: &dyn Register, name: &str, help: &str) -> prometheus::Result<IntCounter> {
    registered(registry, IntCounter::new(name, help)?)
}

/// A counter with labels in the registry.
pub fn counters(registry: &dyn Register, name: &str, help: &str, labels: &[&str]) -> prometheus::Result<IntCounterVec> {
    registered(registry, IntCounterVec::new(Opts::new(name, help), labels)?)
}

/// A gauge in the registry.
pub fn gauge(registry: &dyn Register, name: &str, help: &str) -> prometheus::Result<IntGauge> {
    registered(registry, IntGauge::new(name, help)?)
}

/// A gauge with labels in the registry.
pub fn gauges(registry: &dyn Register, name: &str, help: &str, labels: &[&str]) -> prometheus::Result<IntGaugeVec> {
    registered(registry, IntGaugeVec::new(Opts::new(name, help), labels)?)
}

/// Addresses of pools, to be registered. `source` is what the pools are: those of two kinds may have one name.
pub fn pool_addresses(source: &str) -> prometheus::Result<IntGaugeVec> {
    let help = "Addresses of a pool by family and state, used or free. The source is AddressPool, Subnet (an external one of kube-ovn) or CloudSigma (an account).";
    let opts = Opts::new("groundcrew_pool_addresses", help).const_label("source", source);
    IntGaugeVec::new(opts, &["pool", "family", "state"])
}

/// A histogram in the registry.
pub fn histogram(registry: &dyn Register, name: &str, help: &str, buckets: &[f64]) -> prometheus::Result<Histogram> {
    registered(registry, Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets.to_vec()))?)
}

/// A histogram of seconds in the registry, from a millisecond to a minute.
pub fn seconds(registry: &dyn Register, name: &str, help: &str) -> prometheus::Result<Histogram> {
    histogram(registry, name, help, &[0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 60.0])
}

/// What every controller has: its process, its version, its leadership, its Events.
pub fn common(registry: &dyn Register) -> prometheus::Result<()> {
    registry.register(Box::new(ProcessCollector::for_self()))?;
    build_info(registry, "")?;
    LeaderMetrics::new(registry)?;
    events_dropped(registry)?;
    Ok(())
}

/// One series that is always 1, to join others with the controller's name.
pub(crate) fn build_info(registry: &dyn Register, controller: &str) -> prometheus::Result<()> {
    let info = gauges(
        registry,
        "groundcrew_build_info",
        "Always 1; the labels say which controller this is, and of which version.",
        &["controller", "version"],
    )?;
    info.with_label_values(&[controller, env!("CARGO_PKG_VERSION")]).set(1);
    Ok(())
}

pub(crate) fn events_dropped(registry: &dyn Register) -> prometheus::Result<IntCounterVec> {
    let help = "Events not posted, by cause: repeated, rate, queue or failed.";
    let dropped = counters(registry, "groundcrew_events_dropped_total", help, &["cause"])?;
    for cause in ["repeated", "rate", "queue", "failed"] {
        dropped.with_label_values(&[cause]);
    }
    Ok(dropped)
}

/// Objects of one resource that do not parse.
pub(crate) fn unreadable(registry: &dyn Register, resource: &str) -> prometheus::Result<IntGauge> {
    let help = "Objects that do not parse, and are left as they were.";
    let opts = Opts::new("groundcrew_unreadable_objects", help).const_label("resource", resource);
    registered(registry, IntGauge::with_opts(opts)?)
}

/// A gauge of what only a leader counts.
pub(crate) fn of_leader(
    registry: &dyn Register,
    name: &str,
    help: &str,
    term: &watch::Receiver<Option<Term>>,
) -> prometheus::Result<IntGauge> {
    let gauge = IntGauge::new(name, help)?;
    registry.register(Box::new(OfLeader { gauge: gauge.clone(), term: term.clone() }))?;
    Ok(gauge)
}

/// Who does not lead any more has nothing to say: its last number would be told for ever.
struct OfLeader {
    gauge: IntGauge,
    term: watch::Receiver<Option<Term>>,
}

impl Collector for OfLeader {
    fn desc(&self) -> Vec<&Desc> {
        self.gauge.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        if self.term.borrow().is_none() {
            self.gauge.set(0);
        }
        self.gauge.collect()
    }
}

/// How reconciles end. The labels are [`ErrorKind::label`] and `ok`.
pub(crate) fn outcomes(registry: &dyn Register, name: &str, help: &str) -> prometheus::Result<IntCounterVec> {
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
    pub(crate) fn new(registry: &dyn Register) -> prometheus::Result<Self> {
        Ok(Self {
            leading: gauge(
                registry,
                "groundcrew_leader_leading_bool",
                "Whether this process may write. A dry run does not have it.",
            )?,
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
        // The campaign outlives the drain; its end is not the end of this task's job.
        stop.cancelled().await;
    }
}
