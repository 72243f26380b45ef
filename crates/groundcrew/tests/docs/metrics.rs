//! The metrics of every controller, taken from the code that registers them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use groundcrew_core::metrics::{self, Catalogue, Family};
use groundcrew_orbit::{deorbit, flight, routegc};

use crate::reference::cell;
use crate::repository;

/// Controllers with the metrics that they have beside the common ones.
pub(crate) fn controllers() -> Vec<(&'static str, BTreeMap<String, Family>)> {
    let of = |describe: fn(&dyn metrics::Register) -> _| {
        let catalogue = Catalogue::default();
        let described: Result<(), _> = describe(&catalogue);
        described.unwrap();
        catalogue.into_families()
    };
    vec![
        ("every controller", of(metrics::common)),
        ("ovn-lb", of(groundcrew_ovn_lb::describe)),
        ("lb-watcher", of(groundcrew_lb_watcher::describe)),
        ("cloudsigma-ccm", of(groundcrew_cloudsigma_ccm::describe)),
        ("node-agent", of(groundcrew_node_agent::describe)),
        ("routegc", of(routegc::describe)),
        ("flight", of(flight::describe)),
        ("deorbit-controller", of(deorbit::describe)),
        ("net-probe", of(groundcrew_net_probe::describe)),
    ]
}

/// Every series name that a query may ask for, with its labels.
pub(crate) fn series() -> BTreeMap<String, BTreeSet<String>> {
    let mut series = BTreeMap::new();
    for (name, family) in controllers().into_iter().flat_map(|(_, families)| families) {
        let labels: BTreeSet<_> = family.labels.into_iter().collect();
        if family.kind == "histogram" {
            series.insert(format!("{name}_sum"), labels.clone());
            series.insert(format!("{name}_count"), labels.clone());
            series.insert(format!("{name}_bucket"), labels.into_iter().chain(["le".to_owned()]).collect());
        } else {
            series.insert(name, labels);
        }
    }
    series
}

pub(crate) fn page() -> String {
    let mut homes: BTreeMap<String, (Family, Vec<&str>)> = BTreeMap::new();
    for (controller, families) in controllers() {
        for (name, family) in families {
            homes.entry(name).or_insert_with(|| (family, Vec::new())).1.push(controller);
        }
    }
    let mut page = String::from(
        "# Metrics\n\nServed at `/metrics` of `--admin-address`. Names are `groundcrew_<concern>_<noun>_<unit>`: counters end in \
         `_total`, yes or no (1 or 0) in `_bool`, times are in seconds. Labels are bounded. Only the leader counts what it \
         does: add over the copies of a controller (`sum`), or take the greatest (`max`) of what all of them see.\n",
    );
    let mut sections: Vec<Vec<&str>> = Vec::new();
    for (_, home) in homes.values() {
        if !sections.contains(home) {
            sections.push(home.clone());
        }
    }
    let all = controllers();
    let rank = |section: &Vec<&str>| all.iter().position(|(name, _)| *name == section[0]);
    sections.sort_by_key(|section| (rank(section), std::cmp::Reverse(section.len())));
    for section in sections {
        write!(page, "\n## {}\n\n| metric | kind | what | example |\n|---|---|---|---|\n", section.join(", ")).unwrap();
        for (name, (family, _)) in homes.iter().filter(|(_, (_, home))| *home == section) {
            let labels =
                if family.labels.is_empty() { String::new() } else { format!("{{{}}}", family.labels.join(",")) };
            let (help, example) = (cell(&family.help), cell(&example(name, family)));
            writeln!(page, "| `{name}{labels}` | {} | {help} | `{example}` |", family.kind).unwrap();
        }
    }
    page
}

fn example(name: &str, family: &Family) -> String {
    let by = if family.labels.is_empty() { String::new() } else { format!(" by ({}) ", family.labels.join(", ")) };
    match family.kind {
        "counter" => format!("sum{by}(increase({name}[1h]))"),
        "histogram" => format!("histogram_quantile(0.99, sum by (le) (rate({name}_bucket[1h])))"),
        _ if name.ends_with("_timestamp_seconds") => format!("time() - max({name} > 0)"),
        _ => format!("max{by}({name})"),
    }
}

#[test]
fn names_keep_to_the_convention() {
    for (name, family) in controllers().into_iter().flat_map(|(_, families)| families) {
        if name.starts_with("process_") {
            continue;
        }
        let words: Vec<_> = name.split('_').collect();
        assert!(words.starts_with(&["groundcrew"]) && words.len() > 1, "{name}");
        assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{name}");
        assert_eq!(
            family.kind == "counter",
            name.ends_with("_total"),
            "{name}: counters, and they alone, end in _total"
        );
        for reserved in ["_count", "_sum", "_bucket"] {
            assert!(!name.ends_with(reserved), "{name}: {reserved} is a part of a histogram");
        }
        for unit in ["milliseconds", "minutes", "hours", "kilobytes", "megabytes", "percent"] {
            assert!(!words.contains(&unit), "{name}: the units are seconds, bytes and ratios");
        }
        assert!(family.help.ends_with('.') && family.help.len() > 10, "{name}: {}", family.help);
    }
}

#[test]
fn a_name_means_the_same_in_every_controller() {
    let mut known: BTreeMap<String, Family> = BTreeMap::new();
    for (controller, families) in controllers() {
        for (name, family) in families {
            let before = known.entry(name.clone()).or_insert_with(|| family.clone());
            assert_eq!(*before, family, "{name} is something else in {controller}");
        }
    }
}

/// What is registered and not described would be in no reference and in no alert.
#[test]
fn every_metric_in_the_sources_is_described() {
    let known: BTreeSet<_> = controllers().into_iter().flat_map(|(_, families)| families.into_keys()).collect();
    let mut found = 0;
    for path in sources(&repository("crates")) {
        let text = fs::read_to_string(&path).unwrap();
        for (at, _) in text.match_indices("\"groundcrew_") {
            let name: String = text[at + 1..].chars().take_while(|c| c.is_ascii_lowercase() || *c == '_').collect();
            // The packet filter's tables are called so too, and prefixes of row names.
            let metric = text[at + 1 + name.len()..].starts_with('"') && !text[..at].ends_with("TABLE: &str = ");
            if metric && !name.contains("_test_") {
                assert!(known.contains(&name), "{name} in {} is in no `describe`", path.display());
                found += 1;
            }
        }
    }
    assert!(found > 50, "only {found} metrics were found");
}

/// The sources of the crates, without their integration tests.
pub(crate) fn sources(under: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(under).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() && !entry.ends_with("tests") {
            found.extend(sources(&entry));
        } else if entry.extension().is_some_and(|extension| extension == "rs") {
            found.push(entry);
        }
    }
    found
}
