//! How an answer looks: a table for people, JSON or YAML for programs.

use std::fmt::Write;
use std::io::IsTerminal;

use serde::Serialize;

use crate::finding::{Finding, State, Verdict};

/// How an answer is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Output {
    /// For people.
    Table,
    /// For programs.
    Json,
    /// For programs and people.
    Yaml,
}

/// A text for standard output, and the code to exit with: 0 whole, 1 broken, 3 could not be seen. (2 is a wrong line.)
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// What to print.
    pub text: String,
    /// What to exit with.
    pub code: u8,
}

/// Findings about one thing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    /// What they are about.
    pub(crate) about: String,
    pub(crate) verdict: Verdict,
    /// The first that is broken: where to begin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) first_broken: Option<&'static str>,
    pub(crate) findings: Vec<Finding>,
}

impl Report {
    pub(crate) fn new(about: impl Into<String>, findings: Vec<Finding>) -> Self {
        let first_broken = findings.iter().find(|finding| finding.state == State::Bad).map(|finding| finding.name);
        Self { about: about.into(), verdict: Verdict::of(&findings), first_broken, findings }
    }

    pub(crate) fn answer(&self, output: Output) -> Answer {
        let code = match self.verdict {
            Verdict::Whole => 0,
            Verdict::Broken => 1,
            Verdict::Unknown => 3,
        };
        let text = match output {
            Output::Table => self.table(colourful()),
            _ => data(self, output),
        };
        Answer { text, code }
    }

    fn table(&self, colours: bool) -> String {
        let width = self.findings.iter().map(|finding| finding.name.chars().count()).max().unwrap_or(0);
        let mut text = format!("{}\n\n", printable(&self.about));
        for finding in &self.findings {
            let (sign, colour) = match finding.state {
                State::Good => ("✓", GREEN),
                State::Bad => ("✗", RED),
                State::Note => ("i", NONE),
                State::Unknown => ("?", YELLOW),
                State::Skipped => ("-", DIM),
            };
            let sign = paint(sign, colour, colours);
            // Writing to a string cannot fail.
            let _ = writeln!(text, "  {sign} {:width$}  {}", finding.name, printable(&finding.found));
            if let Some(next) = &finding.next {
                let _ = writeln!(text, "    {:width$}  {} {}", "", paint("next:", BOLD, colours), printable(next));
            }
        }
        let verdict = match (self.verdict, self.first_broken) {
            (Verdict::Whole, _) => paint("whole", GREEN, colours),
            (Verdict::Unknown, _) => {
                format!("{}: nothing broken in what could be seen", paint("unknown", YELLOW, colours))
            }
            (Verdict::Broken, first) => {
                format!("{}: begin with {}", paint("broken", RED, colours), first.unwrap_or_default())
            }
        };
        let _ = writeln!(text, "\n{verdict}");
        text
    }
}

/// The same as JSON or YAML.
pub(crate) fn data(value: &impl Serialize, output: Output) -> String {
    let text = match output {
        Output::Yaml => serde_saphyr::to_string(value).map_err(|error| error.to_string()),
        _ => serde_json::to_string_pretty(value).map(|text| text + "\n").map_err(|error| error.to_string()),
    };
    // Our own structs of strings and numbers have nothing that could not be written.
    text.unwrap_or_else(|error| format!("{error}\n"))
}

/// A table: as wide as its cells, except for the last column.
pub(crate) fn columns<const N: usize>(header: &[&str; N], lines: impl Iterator<Item = [String; N]>) -> String {
    let header = header.map(str::to_owned);
    let all: Vec<_> = std::iter::once(header).chain(lines).map(|cells| cells.map(|cell| printable(&cell))).collect();
    let width = |column: usize| all.iter().map(|cells| cells[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let mut text = String::new();
    for cells in &all {
        let padded: Vec<_> = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        text.push_str(padded.join("  ").trim_end());
        text.push('\n');
    }
    text
}

const NONE: &str = "";
const BOLD: &str = "1";
const DIM: &str = "2";
const RED: &str = "31";
const GREEN: &str = "32";
const YELLOW: &str = "33";

fn paint(text: &str, colour: &str, colours: bool) -> String {
    if colours && !colour.is_empty() { format!("\x1b[{colour}m{text}\x1b[0m") } else { text.to_owned() }
}

/// Whether standard output is a terminal that shows colours, and its user has not asked for none (<https://no-color.org>).
fn colourful() -> bool {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    std::io::stdout().is_terminal() && !refused && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Names and messages are written by tenants: none may move the cursor of whoever reads them.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        Report::new(
            "Service shop/web",
            vec![
                Finding::good("class", "groundcrew.dev/ovn"),
                Finding::bad("row", "none\x1b[2J", "look into the log"),
                Finding::skipped("router", "there is no row"),
            ],
        )
    }

    #[test]
    fn the_table_names_the_first_cross_and_lets_no_control_character_through() {
        assert_eq!(
            report().table(false),
            "Service shop/web\n\n  ✓ class   groundcrew.dev/ovn\n  ✗ row     none [2J\n            next: look into the log\n  \
             - router  not looked at: there is no row\n\nbroken: begin with row\n"
        );
        assert!(report().table(true).contains("\x1b[31m✗\x1b[0m row"));
    }

    #[test]
    fn programs_get_the_same_as_json_and_yaml() {
        let answer = report().answer(Output::Json);
        assert_eq!(answer.code, 1);
        let json: serde_json::Value = serde_json::from_str(&answer.text).unwrap();
        assert_eq!(json["firstBroken"], "row");
        assert_eq!(json["findings"][0]["state"], "good");
        let yaml: serde_json::Value = serde_saphyr::from_str(&report().answer(Output::Yaml).text).unwrap();
        assert_eq!(yaml, json);
    }
}
