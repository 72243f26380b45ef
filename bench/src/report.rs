//! Figures, how they stand against their bars, and where they go.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;

/// The figures of one scenario.
pub(crate) struct Report {
    scenario: String,
    figures: Vec<Figure>,
}

#[derive(Serialize)]
struct Figure {
    scenario: String,
    metric: String,
    n: usize,
    value: f64,
    unit: &'static str,
    floor: Option<f64>,
    ratio: Option<f64>,
    bar: Option<f64>,
    met: bool,
}

impl Report {
    /// The table's first line is printed at once, each figure as it comes: a scenario may take minutes.
    #[allow(clippy::print_stdout, reason = "the table is what the program is for")]
    pub(crate) fn new(scenario: String) -> Self {
        println!("{scenario:<38} {:>7} {:>10} {:>10}       {:>7} {:>7}  met", "n", "value", "floor", "ratio", "bar");
        Self { scenario, figures: Vec::new() }
    }

    /// A figure that may be at most `bar` times its floor.
    pub(crate) fn against_floor(
        &mut self,
        metric: &str,
        n: usize,
        unit: &'static str,
        value: f64,
        floor: f64,
        bar: f64,
    ) {
        let ratio = value / floor;
        self.add(metric, n, unit, value, Some(floor), Some(ratio), Some(bar), ratio <= bar);
    }

    /// A figure that must be below `bar` whatever the machine does.
    pub(crate) fn below(&mut self, metric: &str, n: usize, unit: &'static str, value: f64, bar: f64) {
        self.add(metric, n, unit, value, None, None, Some(bar), value < bar);
    }

    /// The same, beside what the least of it takes on this machine now.
    pub(crate) fn below_beside(
        &mut self,
        metric: &str,
        n: usize,
        unit: &'static str,
        value: f64,
        floor: f64,
        bar: f64,
    ) {
        self.add(metric, n, unit, value, Some(floor), Some(value / floor), Some(bar), value < bar);
    }

    /// A figure without a bar, beside its floor.
    pub(crate) fn told_beside(&mut self, metric: &str, n: usize, unit: &'static str, value: f64, floor: f64) {
        self.add(metric, n, unit, value, Some(floor), Some(value / floor), None, true);
    }

    /// A count that may reach `bar`.
    pub(crate) fn at_most(&mut self, metric: &str, n: usize, unit: &'static str, value: f64, bar: f64) {
        self.add(metric, n, unit, value, None, None, Some(bar), value <= bar);
    }

    /// A figure without a bar.
    pub(crate) fn told(&mut self, metric: &str, n: usize, unit: &'static str, value: f64) {
        self.add(metric, n, unit, value, None, None, None, true);
    }

    #[allow(clippy::too_many_arguments, reason = "the keys of one JSON line")]
    fn add(
        &mut self,
        metric: &str,
        n: usize,
        unit: &'static str,
        value: f64,
        floor: Option<f64>,
        ratio: Option<f64>,
        bar: Option<f64>,
        met: bool,
    ) {
        let (scenario, metric) = (self.scenario.clone(), metric.to_owned());
        let figure = Figure { scenario, metric, n, value, unit, floor, ratio, bar, met };
        figure.print();
        self.figures.push(figure);
    }

    pub(crate) fn missed(&self) -> usize {
        self.figures.iter().filter(|figure| !figure.met).count()
    }

    /// Writes the JSON lines.
    pub(crate) fn write(&self) -> Result<()> {
        let file = target_dir().join("bench").join(format!("{}.jsonl", self.scenario));
        let lines: Vec<_> = self.figures.iter().map(serde_json::to_string).collect::<Result<_, _>>()?;
        fs::create_dir_all(target_dir().join("bench"))?;
        fs::write(&file, lines.join("\n") + "\n").with_context(|| format!("write {}", file.display()))
    }
}

impl Figure {
    #[allow(clippy::print_stdout, reason = "the table is what the program is for")]
    fn print(&self) {
        let number = |value: Option<f64>| value.map_or_else(|| "-".into(), |value| format!("{value:.3}"));
        let Self { metric, n, value, unit, .. } = self;
        let met = if self.met { "yes" } else { "NO" };
        let (floor, ratio, bar) = (number(self.floor), number(self.ratio), number(self.bar));
        println!("{metric:<38} {n:>7} {value:>10.3} {floor:>10} {unit:<5} {ratio:>7} {bar:>7}  {met}");
    }
}

fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from)
}

/// The value below which the given part of the samples lies.
pub(crate) fn percentile(samples: &mut [Duration], part: f64) -> Duration {
    samples.sort_unstable();
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "an index")]
    let at = (samples.len().saturating_sub(1) as f64 * part).round() as usize;
    samples.get(at).copied().unwrap_or_default()
}

pub(crate) fn median(samples: &mut [Duration]) -> Duration {
    percentile(samples, 0.5)
}

pub(crate) fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_nine_keys_that_others_read_whatever_is_known() {
        let mut report = Report::new("test".into());
        report.against_floor("ratio", 10, "ms", 3.0, 2.0, 1.5);
        report.told("alone", 10, "MiB", 1.0);
        assert_eq!(report.missed(), 0);
        report.below("missed", 10, "s", 2.0, 1.0);
        assert_eq!(report.missed(), 1);
        for figure in &report.figures {
            let line = serde_json::to_value(figure).unwrap();
            let mut keys: Vec<_> = line.as_object().unwrap().keys().map(String::as_str).collect();
            keys.sort_unstable();
            assert_eq!(keys, ["bar", "floor", "met", "metric", "n", "ratio", "scenario", "unit", "value"]);
        }
    }
}
