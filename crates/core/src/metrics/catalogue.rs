//! Which metrics there are, for the reference: also those whose labels nobody has used yet, which a registry hides.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use prometheus::core::Collector;
use prometheus::proto::{MetricFamily, MetricType};

use super::Register;

/// A metric as its reference describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Family {
    /// Its help.
    pub help: String,
    /// Its labels, in the order in which the code has them.
    pub labels: Vec<String>,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
}

/// Takes metrics in and keeps their description only.
#[derive(Debug, Default)]
pub struct Catalogue(Mutex<BTreeMap<String, Family>>);

impl Catalogue {
    /// What was registered, by name.
    #[must_use]
    pub fn into_families(self) -> BTreeMap<String, Family> {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Register for Catalogue {
    fn register(&self, collector: Box<dyn Collector>) -> prometheus::Result<()> {
        let collected = collector.collect();
        for desc in collector.desc() {
            let kind = collected.iter().find(|family| family.name() == desc.fq_name).map(MetricFamily::get_field_type);
            let constant = desc.const_label_pairs.iter().map(|pair| pair.name().to_owned());
            let family = Family {
                help: desc.help.clone(),
                labels: constant.chain(desc.variable_labels.iter().cloned()).collect(),
                kind: match kind {
                    Some(MetricType::COUNTER) => "counter",
                    Some(MetricType::HISTOGRAM) => "histogram",
                    _ => "gauge",
                },
            };
            self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(desc.fq_name.clone(), family);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::{counters, gauge, seconds};

    #[test]
    fn metrics_that_have_no_series_yet_are_described_too() {
        let catalogue = Catalogue::default();
        counters(&catalogue, "groundcrew_test_looks_total", "Looks.", &["outcome", "kind"]).unwrap();
        gauge(&catalogue, "groundcrew_test_things", "Things.").unwrap();
        seconds(&catalogue, "groundcrew_test_look_seconds", "Duration.").unwrap();
        let families = catalogue.into_families();
        let described: Vec<_> =
            families.iter().map(|(name, family)| (name.as_str(), family.kind, family.labels.join(","))).collect();
        assert_eq!(
            described,
            [
                ("groundcrew_test_look_seconds", "histogram", String::new()),
                ("groundcrew_test_looks_total", "counter", "outcome,kind".to_owned()),
                ("groundcrew_test_things", "gauge", String::new()),
            ]
        );
    }
}
