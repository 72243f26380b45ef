//! The metrics and labels that a query names. It reads `PromQL` just well enough for that: promtool does the rest.

use std::collections::{BTreeMap, BTreeSet};

/// Labels that Prometheus puts on what it reads, and on alerts.
const TARGET: [&str; 5] = ["job", "instance", "namespace", "pod", "le"];

/// What a query asks for that does not exist, in words.
pub(crate) fn faults(query: &str, series: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let mut faults = Vec::new();
    let mut known: BTreeSet<&str> = TARGET.into();
    let mut found = 0;
    for (at, name) in names(query) {
        found += 1;
        let Some(labels) = series.get(name) else {
            faults.push(format!("no controller has {name}"));
            continue;
        };
        known.extend(labels.iter().map(String::as_str));
        let matchers = query[at + name.len()..].strip_prefix('{').and_then(|rest| rest.split_once('}'));
        for matcher in matchers.iter().flat_map(|(matchers, _)| matchers.split(',')) {
            let label = matcher.split(['=', '!']).next().unwrap_or_default().trim();
            if !labels.contains(label) && !TARGET.contains(&label) {
                faults.push(format!("{name} has no label {label}"));
            }
        }
    }
    if found == 0 {
        faults.push("it names no metric".to_owned());
    }
    for word in ["by", "on", "group_left"] {
        for (at, _) in query.match_indices(&format!("{word} (")) {
            let labels =
                query[at..].split_once('(').and_then(|(_, rest)| rest.split_once(')')).map_or("", |(in_, _)| in_);
            for label in labels.split(',').map(str::trim).filter(|label| !known.contains(label)) {
                faults.push(format!("none of its metrics has the label {label}"));
            }
        }
    }
    faults
}

pub(crate) fn names(query: &str) -> impl Iterator<Item = (usize, &str)> {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let mut starts: Vec<_> =
        query.match_indices("groundcrew_").chain(query.match_indices("process_")).map(|(at, _)| at).collect();
    starts.retain(|at| !query[..*at].ends_with(word));
    starts.into_iter().map(move |at| {
        let end = query[at..].find(|c: char| !word(c)).map_or(query.len(), |length| at + length);
        (at, &query[at..end])
    })
}

#[test]
fn a_query_is_faulted_for_what_does_not_exist_and_for_nothing_else() {
    let labels = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    let series = BTreeMap::from([
        ("groundcrew_a_total".to_owned(), labels(&["kind"])),
        ("groundcrew_b".to_owned(), labels(&[])),
    ]);
    let of = |query| faults(query, &series);
    assert!(of(r#"sum by (kind) (rate(groundcrew_a_total{kind=~"x|y", job="z"}[5m])) > 0"#).is_empty());
    assert!(of("groundcrew_a_total * on (job) group_left (kind) groundcrew_b").is_empty());
    assert_eq!(of("groundcrew_c > 0"), ["no controller has groundcrew_c"]);
    assert_eq!(of(r#"groundcrew_b{kind="x"}"#), ["groundcrew_b has no label kind"]);
    assert_eq!(of("max by (pool) (groundcrew_b)"), ["none of its metrics has the label pool"]);
    assert_eq!(of("up == 0"), ["it names no metric"]);
}
