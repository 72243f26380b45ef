//! What the collector counts.

use groundcrew_core::metrics::{Register, counter, counters, gauge, gauges, seconds};
use prometheus::{Histogram, IntCounter, IntCounterVec, IntGauge, IntGaugeVec};

use super::apply::Applied;
use super::conditions::{Condition, Conditions};
use super::findings::Findings;

#[derive(Clone)]
pub(crate) struct Metrics {
    pub(crate) passes: IntCounterVec,
    pub(crate) pass_seconds: Histogram,
    pub(crate) passed_at: IntGauge,
    pub(crate) suspects: IntGauge,
    routes: IntGaugeVec,
    limits: IntGaugeVec,
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

    pub(crate) fn show_findings(&self, findings: &Findings) {
        for found in &findings.routers {
            let of = |class: &str| found.stale.iter().filter(|stale| stale.class.label() == class).count();
            for (state, n) in [
                ("wanted", found.wanted),
                ("missing", found.missing.len()),
                ("orphan", of("orphan")),
                ("duplicate", of("duplicate")),
                ("foreign", found.foreign.len()),
                ("other", found.others),
            ] {
                self.routes.with_label_values(&[found.router.as_str(), state]).set(count(n));
            }
            let limit = found.headroom.limit.map_or(-1, |limit| limit.try_into().unwrap_or(i64::MAX));
            self.limits.with_label_values(&[found.router.as_str()]).set(limit);
        }
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
