//! What the collector counts.

use std::collections::BTreeSet;

use groundcrew_core::metrics::{Register, counter, counters, gauge, gauges, seconds};
use prometheus::{Histogram, IntCounter, IntCounterVec, IntGauge, IntGaugeVec};

use super::apply::Applied;
use super::conditions::{Condition, Conditions};
use super::findings::Findings;

/// What a route is to us.
const STATES: [&str; 6] = ["wanted", "missing", "orphan", "duplicate", "foreign", "other"];

pub(crate) struct Metrics {
    pub(crate) passes: IntCounterVec,
    pub(crate) pass_seconds: Histogram,
    pub(crate) passed_at: IntGauge,
    pub(crate) suspects: IntGauge,
    routes: IntGaugeVec,
    limits: IntGaugeVec,
    /// Of which routers these two tell.
    routers: BTreeSet<String>,
    removed: IntCounterVec,
    put_back: IntCounter,
    failures: IntCounter,
    conditions: IntGaugeVec,
}

impl Metrics {
    pub(crate) fn new(registry: &dyn Register) -> prometheus::Result<Self> {
        let metrics = Self {
            passes: counters(
                registry,
                "groundcrew_routegc_passes_total",
                "Looks at the cloud, by outcome: ok or failed.",
                &["outcome"],
            )?,
            pass_seconds: seconds(registry, "groundcrew_routegc_pass_seconds", "How long a pass took.")?,
            passed_at: gauge(
                registry,
                "groundcrew_routegc_passed_timestamp_seconds",
                "When the last pass saw everything.",
            )?,
            suspects: gauge(registry, "groundcrew_routegc_suspects", "Routes and pairs that look stale.")?,
            routes: gauges(
                registry,
                "groundcrew_routegc_routes",
                "Routes of a router by state: wanted, missing, orphan, duplicate, foreign or other.",
                &["router", "state"],
            )?,
            limits: gauges(
                registry,
                "groundcrew_routegc_route_limit",
                "Routes that a router takes; -1 for no limit.",
                &["router"],
            )?,
            routers: BTreeSet::new(),
            removed: counters(
                registry,
                "groundcrew_routegc_removed_total",
                "What was removed, by kind: orphan, duplicate or pair.",
                &["kind"],
            )?,
            put_back: counter(
                registry,
                "groundcrew_routegc_put_back_total",
                "Routes and pairs put back after a whole-list write.",
            )?,
            failures: counter(registry, "groundcrew_routegc_write_failures_total", "Steps that were not done.")?,
            conditions: gauges(
                registry,
                "groundcrew_routegc_condition_bool",
                "What somebody has to look at, by name.",
                &["condition"],
            )?,
        };
        for outcome in ["ok", "failed"] {
            metrics.passes.with_label_values(&[outcome]);
        }
        for kind in ["orphan", "duplicate", "pair"] {
            metrics.removed.with_label_values(&[kind]);
        }
        metrics.show_conditions(&Conditions::new());
        Ok(metrics)
    }

    pub(crate) fn show_findings(&mut self, findings: &Findings) {
        let now: BTreeSet<_> = findings.routers.iter().map(|found| found.router.as_str().to_owned()).collect();
        for gone in self.routers.difference(&now) {
            for state in STATES {
                let _ = self.routes.remove_label_values(&[gone, state]);
            }
            let _ = self.limits.remove_label_values(&[gone]);
        }
        self.routers = now;
        for found in &findings.routers {
            let of = |class: &str| found.stale.iter().filter(|stale| stale.class.label() == class).count();
            let (missing, foreign) = (found.missing.len(), found.foreign.len());
            let counts = [found.wanted, missing, of("orphan"), of("duplicate"), foreign, found.others];
            for (state, n) in STATES.into_iter().zip(counts) {
                self.routes.with_label_values(&[found.router.as_str(), state]).set(count(n));
            }
            let limit = found.headroom.limit.map_or(-1, |limit| limit.try_into().unwrap_or(i64::MAX));
            self.limits.with_label_values(&[found.router.as_str()]).set(limit);
        }
    }

    /// Nothing is looked at any more: somebody else leads, and what was seen last would be told for ever.
    pub(crate) fn forget(&mut self) {
        self.routes.reset();
        self.limits.reset();
        self.routers.clear();
        self.suspects.set(0);
        self.show_conditions(&Conditions::new());
    }

    pub(crate) fn show_applied(&self, applied: &Applied) {
        for (_, stale) in &applied.removed {
            self.removed.with_label_values(&[stale.class.label()]).inc();
        }
        self.removed.with_label_values(&["pair"]).inc_by(applied.stripped.try_into().unwrap_or(u64::MAX));
        self.put_back.inc_by((applied.put_back + applied.allowed).try_into().unwrap_or(u64::MAX));
        self.failures.inc_by(applied.failures.len().try_into().unwrap_or(u64::MAX));
    }

    pub(crate) fn show_conditions(&self, conditions: &Conditions) {
        for condition in Condition::ALL {
            self.conditions.with_label_values(&[condition.name()]).set(conditions.contains_key(&condition).into());
        }
    }
}

pub(crate) fn count(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use prometheus::Registry;

    use super::*;
    use crate::routegc::findings::RouterFindings;
    use crate::routegc::headroom::Headroom;

    #[test]
    fn a_router_that_is_gone_is_not_told_of_any_more() {
        let registry = Registry::new();
        let mut metrics = Metrics::new(&registry).unwrap();
        let full = |router: &str| RouterFindings {
            router: router.to_owned(),
            wanted: 30,
            others: 0,
            stale: Vec::new(),
            foreign: Vec::new(),
            missing: Vec::new(),
            headroom: Headroom { used: 30, missing: 0, limit: Some(30) },
        };
        let shown = |router: &str| {
            let families = registry.gather();
            let metrics = families.iter().flat_map(prometheus::proto::MetricFamily::get_metric);
            metrics.filter(|metric| metric.get_label().iter().any(|label| label.value() == router)).count()
        };
        let found = |routers: Vec<RouterFindings>| Findings { lock: None, routers, pairs: Vec::new() };
        metrics.show_findings(&found(vec![full("old"), full("new")]));
        assert_eq!((shown("old"), shown("new")), (7, 7));
        metrics.show_findings(&found(vec![full("new")]));
        assert_eq!((shown("old"), shown("new")), (0, 7));
        metrics.forget();
        assert_eq!(shown("new"), 0);
    }
}
