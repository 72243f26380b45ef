//! What flight counts.

use groundcrew_core::metrics::{Register, counters, gauge, gauges};
use prometheus::{IntCounterVec, IntGauge, IntGaugeVec};

use super::plan::Step;
use super::status::CONDITIONS;

pub(crate) struct Metrics {
    pub(crate) passes: IntCounterVec,
    pub(crate) steps: IntCounterVec,
    pub(crate) held: IntGauge,
    pub(crate) conditions: IntGaugeVec,
}

impl Metrics {
    pub(crate) fn new(registry: &dyn Register) -> prometheus::Result<Self> {
        let metrics = Self {
            passes: counters(
                registry,
                "groundcrew_flight_passes_total",
                "Looks at Nodes and cloud, by outcome: ok or failed.",
                &["outcome"],
            )?,
            steps: counters(
                registry,
                "groundcrew_flight_steps_total",
                "Steps by action and outcome: done, failed, or reported where nothing may be done.",
                &["action", "outcome"],
            )?,
            held: gauge(
                registry,
                "groundcrew_flight_held_reasons",
                "Reasons for which sick servers are left as they are.",
            )?,
            conditions: gauges(
                registry,
                "groundcrew_flight_condition_bool",
                "Whether it is so, by what an operator should look at.",
                &["condition"],
            )?,
        };
        for outcome in ["ok", "failed"] {
            metrics.passes.with_label_values(&[outcome]);
        }
        for condition in CONDITIONS {
            metrics.conditions.with_label_values(&[condition]);
        }
        for action in Step::ACTIONS {
            for outcome in ["done", "failed", "reported"] {
                metrics.steps.with_label_values(&[action, outcome]);
            }
        }
        Ok(metrics)
    }
}
