//! A plan as people read it: a heading, and a line for each change with `+`, `-` or `~` before it.
//!
//! ```text
//! Service shop/web
//!   + finalizer service.kubernetes.io/load-balancer-cleanup
//!   ~ vips
//!     - 192.0.2.7:80=10.1.0.41:8080
//!     + 192.0.2.7:80=10.1.0.42:8080
//! ```

use std::fmt;
use std::io::{IsTerminal, Write};

use crate::provider::Difference;

/// What is to be changed about one thing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diff {
    /// What it is about.
    pub about: String,
    /// In the order in which they are carried out.
    pub lines: Vec<String>,
}

impl Diff {
    /// Steps whose `Display` begins with its sign.
    pub fn of(about: impl Into<String>, steps: impl IntoIterator<Item = impl fmt::Display>) -> Self {
        Self { about: about.into(), lines: steps.into_iter().map(|step| step.to_string()).collect() }
    }

    /// To standard output, in colours where that is a terminal: what a dry run is for. The log has it too, for machines.
    pub fn print(&self) {
        let mut out = std::io::stdout().lock();
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let text = self.text(out.is_terminal() && !refused);
        // A reader that has gone, as with `| head`, is no error.
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    }

    fn text(&self, colours: bool) -> String {
        let mut text = format!("{}\n", printable(&self.about));
        for line in &self.lines {
            let line = printable(line);
            let colour = match line.trim_start().chars().next() {
                Some('+') => "32",
                Some('-') => "31",
                Some('~') => "33",
                _ => "1",
            };
            let (begin, end) = if colours { (format!("\x1b[{colour}m"), "\x1b[0m") } else { (String::new(), "") };
            text.extend(["  ", &begin, &line, end, "\n"]);
        }
        text
    }
}

impl fmt::Display for Diff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text(false))
    }
}

/// The lines of differences outside. Of what is a list of words on both sides only those are shown that differ.
#[must_use]
pub fn lines(differences: &[Difference]) -> Vec<String> {
    let mut lines = Vec::new();
    for Difference { kind, expected, found } in differences {
        match (is_nothing(found), is_nothing(expected)) {
            (true, _) => lines.push(format!("+ {kind}: {expected}")),
            (false, true) => lines.push(format!("- {kind}: {found}")),
            (false, false) => {
                lines.push(format!("~ {kind}"));
                let (before, after): (Vec<_>, Vec<_>) = (found.split(' ').collect(), expected.split(' ').collect());
                if before.iter().any(|word| after.contains(word)) && before.len().max(after.len()) > 1 {
                    let gone = before.iter().filter(|word| !after.contains(word)).map(|word| format!("  - {word}"));
                    let new = after.iter().filter(|word| !before.contains(word)).map(|word| format!("  + {word}"));
                    lines.extend(gone.chain(new));
                } else {
                    lines.extend([format!("  - {found}"), format!("  + {expected}")]);
                }
            }
        }
    }
    lines
}

/// The words of providers for what is not there.
fn is_nothing(text: &str) -> bool {
    ["", "none", "not attached", "not on it"].contains(&text) || text.starts_with("no such ")
}

/// Names are written by tenants: none may move the cursor of whoever reads them.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn difference(kind: &'static str, found: &str, expected: &str) -> Difference {
        Difference { kind, expected: expected.into(), found: found.into() }
    }

    #[test]
    fn what_is_missing_is_added_what_is_too_much_goes_and_of_lists_only_the_change_is_shown() {
        let differences = [
            difference("row_missing", "none", "load balancer shop-web-tcp"),
            difference("row_left", "load balancer shop-old-tcp", "none"),
            difference("router_detached", "not on it", "router shop"),
            difference(
                "vips",
                "192.0.2.7:80=10.1.0.41:80 192.0.2.7:81=10.1.0.41:81",
                "192.0.2.7:80=10.1.0.41:80 192.0.2.7:82=x",
            ),
            difference("protocol", "udp", "tcp"),
        ];
        assert_eq!(
            Diff::of("Service shop/web", lines(&differences)).to_string(),
            "Service shop/web\n  + row_missing: load balancer shop-web-tcp\n  - row_left: load balancer shop-old-tcp\n  \
             + router_detached: router shop\n  ~ vips\n    \
             - 192.0.2.7:81=10.1.0.41:81\n    + 192.0.2.7:82=x\n  ~ protocol\n    - udp\n    + tcp\n"
        );
    }

    #[test]
    fn no_control_character_comes_through_and_colours_are_for_terminals() {
        let diff = Diff::of("Service shop/web", ["+ row \x1b[2J"]);
        assert_eq!(diff.to_string(), "Service shop/web\n  + row  [2J\n");
        assert!(diff.text(true).contains("\x1b[32m+ row"));
    }
}
