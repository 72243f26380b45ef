//! Figures, how they stand against their bars, and where they go.

use std::fmt::Write as _;
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
    pub(crate) fn new(scenario: String) -> Self {
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
        self.figures.push(Figure { scenario, metric, n, value, unit, floor, ratio, bar, met });
    }

    pub(crate) fn missed(&self) -> usize {
        self.figures.iter().filter(|figure| !figure.met).count()
    }

    /// Prints the table and writes the JSON lines.
    #[allow(clippy::print_stdout, reason = "the table is what the program is for")]
    pub(crate) fn write(&self) -> Result<()> {
        print!("{}", self.table()?);
        let file = target_dir().join("bench").join(format!("{}.jsonl", self.scenario));
        let lines: Vec<_> = self.figures.iter().map(serde_json::to_string).collect::<Result<_, _>>()?;
        fs::create_dir_all(target_dir().join("bench"))?;
        fs::write(&file, lines.join("\n") + "\n").with_context(|| format!("write {}", file.display()))
    }

    fn table(&self) -> Result<String> {
        let mut table = format!(
            "{:<38} {:>7} {:>10} {:>10} {:<5} {:>7} {:>7}  {}\n",
            self.scenario, "n", "value", "floor", "", "ratio", "bar", "met"
        );
        let number = |value: Option<f64>| value.map_or_else(|| "-".into(), |value| format!("{value:.3}"));
        for Figure { metric, n, value, unit, floor, ratio, bar, met, .. } in &self.figures {
            let met = if *met { "yes" } else { "NO" };
            let (floor, ratio, bar) = (number(*floor), number(*ratio), number(*bar));
            writeln!(table, "{metric:<38} {n:>7} {value:>10.3} {floor:>10} {unit:<5} {ratio:>7} {bar:>7}  {met}")?;
        }
        Ok(table)
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
