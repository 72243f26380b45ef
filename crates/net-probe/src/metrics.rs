//! What Prometheus is told.

use groundcrew_core::metrics::{Register, gauges};
use prometheus::IntGaugeVec;

use super::tally::Tally;

pub(crate) struct Metrics {
    asked: IntGaugeVec,
}

impl Metrics {
    pub(crate) fn new(registry: &dyn Register) -> prometheus::Result<Self> {
        let help = "Nodes that are asked, by whether their probe is reached: yes or no.";
        let asked = gauges(registry, "groundcrew_net_probe_asked_nodes", help, &["reached"])?;
        for reached in ["yes", "no"] {
            asked.with_label_values(&[reached]);
        }
        Ok(Self { asked })
    }

    pub(crate) fn show(&self, tally: &Tally) {
        for (label, reached) in [("yes", true), ("no", false)] {
            let count = i64::try_from(tally.nodes(reached).count()).unwrap_or(i64::MAX);
            self.asked.with_label_values(&[label]).set(count);
        }
    }
}
