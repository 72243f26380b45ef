//! `docs/reference` is generated. `make reference` writes it; here it is compared.

use std::fmt::Write;
use std::fs;
use std::process::{Command, Stdio};

use crate::{alerts, dashboards, metrics, names, repository, resources};

const UPDATE: &str = "GROUNDCREW_BLESS";

#[test]
fn the_reference_says_what_the_code_has() {
    let pages = [
        ("alerts.md", alerts::page()),
        ("commands.md", commands()),
        ("dashboards.md", dashboards::page()),
        ("metrics.md", metrics::page()),
        ("names.md", names::page()),
        ("resources.md", resources::page()),
    ];
    let mut stale = Vec::new();
    for (name, page) in pages {
        let path = repository("docs/reference").join(name);
        if std::env::var_os(UPDATE).is_some() {
            fs::write(&path, page).unwrap();
        } else if fs::read_to_string(&path).unwrap_or_default() != page {
            stale.push(name);
        }
    }
    assert!(
        stale.is_empty(),
        "docs/reference/{stale:?} is not what the code has; run `make reference` and look at the diff"
    );
}

#[test]
fn every_flag_has_its_environment_twin() {
    let page = commands();
    let lines: Vec<_> = page.lines().collect();
    let mut found = 0;
    for (n, line) in lines.iter().enumerate() {
        // `      --flag`, or `  -f, --flag`; its text is indented further, on the same line or on the next ones.
        let long = line.strip_prefix("      --").or_else(|| line.strip_prefix("  -")?.get(1..)?.strip_prefix(", --"));
        let Some(flag) = long.and_then(|flag| flag.split([' ', '[']).next()) else { continue };
        let rest = lines[n + 1..].iter().take_while(|line| line.is_empty() || line.starts_with("          "));
        let text = std::iter::once(line).chain(rest).flat_map(|line| line.split_whitespace()).collect::<Vec<_>>();
        if !matches!(flag, "help" | "version") {
            assert!(text.contains(&"[env:"), "--{flag}: {}", text.join(" "));
            found += 1;
        }
    }
    assert!(found > 100, "only {found} flags were found");
}

/// Every sub-command with what its `--help` prints.
fn commands() -> String {
    let mut page = String::from("# Commands and flags\n\n");
    page.push_str("What `--help` prints. Every flag has an environment variable of the name beside it.\n");
    let found = add_commands(&mut page, &[]);
    assert!(found > 8, "only {found} commands were found");
    page
}

/// Adds a command and those below it; answers how many.
fn add_commands(page: &mut String, line: &[&str]) -> usize {
    let text = help(line);
    let title = std::iter::once("groundcrew").chain(line.iter().copied()).collect::<Vec<_>>().join(" ");
    write!(page, "\n## {title}\n\n```text\n{}\n```\n", text.trim_end()).unwrap();
    let listed = text.split_once("Commands:\n").map_or("", |(_, rest)| rest.split("\n\n").next().unwrap_or_default());
    // A sub-command is indented by two, its text by more where it needs a second line.
    let names =
        listed.lines().filter(|line| !line.starts_with("   ")).filter_map(|line| line.split_whitespace().next());
    let below = names.filter(|name| *name != "help").map(|name| add_commands(page, &[line, &[name]].concat()));
    1 + below.sum::<usize>()
}

fn help(sub: &[&str]) -> String {
    // Without an environment and a terminal: both would show in the text.
    let run = Command::new(env!("CARGO_BIN_EXE_groundcrew"))
        .args(sub)
        .arg("--help")
        .env_clear()
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(run.status.success(), "{run:?}");
    let text = String::from_utf8(run.stdout).unwrap();
    text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}

/// A cell of a table: one line, no bars.
pub(crate) fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}
