//! The alerts of the chart. Whether they fire when they should is `make alerts-test`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;

use serde_json::Value;

use crate::reference::cell;
use crate::{metrics, queries, repository};

const RUNBOOKS: &str = "https://groundcrew.dev/docs/runbooks/";

fn alerts() -> Vec<Value> {
    let text = fs::read_to_string(repository("charts/groundcrew/files/alerts.yaml")).unwrap();
    let file: Value = serde_saphyr::from_str(&text).unwrap();
    let groups = file["groups"].as_array().unwrap();
    groups.iter().flat_map(|group| group["rules"].as_array().unwrap().clone()).collect()
}

fn text<'a>(alert: &'a Value, field: &str) -> &'a str {
    alert.pointer(field).and_then(Value::as_str).unwrap_or_else(|| panic!("{field} is missing in {alert}"))
}

pub(crate) fn page() -> String {
    let mut page = String::from(
        "# Alerts\n\nFrom `charts/groundcrew/files/alerts.yaml`, which is a plain file of rules; the chart makes a `PrometheusRule` of it \
         (`prometheus.prometheusRule.enabled`). Each has a runbook.\n\n| alert | severity | for | asks |\n|---|---|---|---|\n",
    );
    for alert in alerts() {
        let (name, severity) = (text(&alert, "/alert"), text(&alert, "/labels/severity"));
        let (wait, query) = (alert["for"].as_str().unwrap_or("at once"), cell(text(&alert, "/expr")));
        writeln!(page, "| [{name}](../runbooks/{name}.md) | {severity} | {wait} | `{query}` |").unwrap();
    }
    page
}

#[test]
fn every_alert_asks_for_metrics_that_exist() {
    let series = metrics::series();
    for alert in alerts() {
        let faults = queries::faults(text(&alert, "/expr"), &series);
        assert!(faults.is_empty(), "{}: {faults:?}", text(&alert, "/alert"));
    }
}

#[test]
fn every_alert_says_what_is_wrong_and_has_a_runbook() {
    for alert in alerts() {
        let name = text(&alert, "/alert");
        assert!(["info", "warning", "critical"].contains(&text(&alert, "/labels/severity")), "{name}");
        assert!(!text(&alert, "/annotations/summary").ends_with('.'), "{name}: a summary is a headline");
        assert!(text(&alert, "/annotations/description").ends_with('.'), "{name}: a description is sentences");
        assert_eq!(text(&alert, "/annotations/runbook_url"), format!("{RUNBOOKS}{name}.html"));
        let page = fs::read_to_string(repository(&format!("docs/runbooks/{name}.md")));
        let page = page.unwrap_or_else(|error| panic!("docs/runbooks/{name}.md: {error}"));
        assert!(page.starts_with(&format!("# {name}\n")), "docs/runbooks/{name}.md");
    }
}

/// Whoever is paged has a symptom, and no theory.
#[test]
fn every_runbook_begins_with_what_is_seen_and_says_what_to_do() {
    // What operators knew before there was an alert for it.
    let stories = [
        "a-new-address-is-not-routed",
        "cilium-devices",
        "dhcp-and-ignition-time-outs",
        "no-route-to-host",
        "pod-traffic-lost-at-random",
        "slow-first-connection",
        "works-inside-only",
    ];
    let pages: BTreeMap<_, _> = fs::read_dir(repository("docs/runbooks"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.file_stem().unwrap().to_str().unwrap().to_owned(), fs::read_to_string(path).unwrap()))
        .filter(|(name, _)| name != "index")
        .collect();
    for story in stories {
        assert!(pages.contains_key(story), "docs/runbooks/{story}.md is missing");
    }
    let index = fs::read_to_string(repository("docs/runbooks/index.md")).unwrap();
    for (name, page) in pages {
        let headings: Vec<_> = page.lines().filter(|line| line.starts_with('#')).collect();
        assert!(headings[0].starts_with("# ") && headings[1] == "## What you see", "{name}: {headings:?}");
        assert!(headings.contains(&"## What to do"), "{name}: {headings:?}");
        assert!(index.contains(&format!("]({name}.md)")), "docs/runbooks/index.md leads nobody to {name}");
    }
}

#[test]
fn every_alert_has_its_test() {
    let tests = fs::read_to_string(repository("charts/alerts-test.yaml")).unwrap();
    let names: BTreeSet<_> = alerts().iter().map(|alert| text(alert, "/alert").to_owned()).collect();
    for name in names {
        assert!(tests.contains(&name), "charts/alerts-test.yaml does not try {name}");
    }
}
