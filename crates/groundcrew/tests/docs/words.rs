//! Words of the code that the documents use.

use std::collections::BTreeSet;
use std::fs;

use crate::links::documents;
use crate::metrics;
use crate::repository;

/// What follows `start` in a text, as long as it is one word.
fn words<'a>(text: &'a str, start: &str) -> BTreeSet<&'a str> {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let begin =
        text.match_indices(start).filter(|(at, _)| !text[..*at].ends_with(word)).map(|(at, _)| at + start.len());
    begin.map(|at| text[at..].split(|c: char| !word(c)).next().unwrap_or_default()).collect()
}

#[test]
fn every_metric_that_a_page_names_exists() {
    let series = metrics::series();
    let families: BTreeSet<_> =
        metrics::controllers().into_iter().flat_map(|(_, families)| families.into_keys()).collect();
    // Crates in log filters, tables of the packet filter, a port group.
    let other = ["core", "node", "nat", "d38e40f0e7d05f86"];
    for path in documents() {
        let page = fs::read_to_string(&path).unwrap();
        for rest in words(&page, "groundcrew_").into_iter().filter(|rest| !other.contains(rest)) {
            let name = format!("groundcrew_{rest}");
            // The beginning of several is written with its last underscore.
            let beginning = name.ends_with('_') && series.keys().any(|known| known.starts_with(&name));
            let known = series.contains_key(&name) || families.contains(&name) || beginning;
            assert!(known, "{} names {name}, which no controller has", path.display());
        }
    }
}

/// `kubectl get events --field-selector reason=...` finds something only if somebody tells it.
#[test]
fn every_reason_that_a_page_looks_for_is_told_by_somebody() {
    let sources: String =
        metrics::sources(&repository("crates")).iter().map(|path| fs::read_to_string(path).unwrap()).collect();
    let mut found = 0;
    for path in documents() {
        let page = fs::read_to_string(&path).unwrap();
        for reason in words(&page, "reason=").into_iter().filter(|reason| !reason.is_empty()) {
            assert!(sources.contains(&format!("\"{reason}\"")), "{}: nobody tells {reason}", path.display());
            found += 1;
        }
    }
    assert!(found > 5, "only {found} reasons were found");
}

#[test]
fn every_flag_that_a_runbook_names_exists() {
    let commands = fs::read_to_string(repository("docs/reference/commands.md")).unwrap();
    let mut found = 0;
    for path in documents().into_iter().filter(|path| path.parent().is_some_and(|folder| folder.ends_with("runbooks")))
    {
        let page = fs::read_to_string(&path).unwrap();
        for (at, _) in page.match_indices("`--") {
            let flag: String = page[at + 1..].chars().take_while(|c| c.is_ascii_lowercase() || *c == '-').collect();
            let known = [" ", "\n"].iter().any(|end| commands.contains(&format!(" {flag}{end}")));
            assert!(known, "{} names {flag}, which no command has", path.display());
            found += 1;
        }
    }
    assert!(found > 10, "only {found} flags were found");
}

/// `eip` is the short name of kube-ovn's `IptablesEIP`s: where kube-ovn is, kubectl would show those instead of ours.
#[test]
fn no_page_and_no_hint_asks_kubectl_for_another_kind() {
    let hints = metrics::sources(&repository("crates"));
    for path in documents().into_iter().chain(hints) {
        let text = fs::read_to_string(&path).unwrap();
        for command in text.lines().flat_map(|line| line.split("kubectl ").skip(1)) {
            let command = command.split('`').next().unwrap_or_default();
            let asks = command.split([' ', '"']).any(|word| word == "eip");
            assert!(!asks, "{}: write eips: kubectl {command}", path.display());
        }
    }
}
