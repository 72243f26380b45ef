//! Grafana's dashboards.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;

use serde_json::Value;

use crate::reference::cell;
use crate::{metrics, queries, repository};

/// What every query asks for: several releases may be in one Prometheus.
const CHOSEN: &str = "namespace=~\"$namespace\"";

fn dashboards() -> Vec<(String, Value)> {
    let directory = fs::read_dir(repository("charts/groundcrew/files/dashboards")).unwrap();
    let paths = directory.map(|entry| entry.unwrap().path());
    let read = |path: std::path::PathBuf| {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        (name, serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap())
    };
    let mut dashboards: Vec<_> = paths.map(read).collect();
    dashboards.sort_by(|(one, _), (other, _)| one.cmp(other));
    dashboards
}

pub(crate) fn page() -> String {
    let mut page = String::from(
        "# Dashboards\n\nGrafana's, from `charts/groundcrew/files/dashboards`; the chart makes ConfigMaps of them \
         (`dashboards.enabled`). Import the files by hand where there is no sidecar. Each asks for the namespaces that are chosen at its top; \
         that part of the queries is left out here.\n",
    );
    for (name, dashboard) in dashboards() {
        let (title, about) = (dashboard["title"].as_str().unwrap(), dashboard["description"].as_str().unwrap());
        write!(page, "\n## {title}\n\n{about} (`{name}.json`)\n\n| panel | what it shows | asks |\n|---|---|---|\n")
            .unwrap();
        for panel in panels(&dashboard) {
            let queries = panel["targets"].as_array().unwrap().iter().map(|target| target["expr"].as_str().unwrap());
            let plain =
                queries.map(|query| query.replace(&format!("{{{CHOSEN}}}"), "").replace(&format!(", {CHOSEN}"), ""));
            let queries: Vec<_> = plain.map(|query| format!("`{}`", cell(&query))).collect();
            let (title, about) = (panel["title"].as_str().unwrap(), panel["description"].as_str().unwrap());
            writeln!(page, "| {title} | {about} | {} |", queries.join("<br>")).unwrap();
        }
    }
    page
}

fn panels(dashboard: &Value) -> Vec<&Value> {
    dashboard["panels"].as_array().unwrap().iter().filter(|panel| panel["type"] != "row").collect()
}

#[test]
fn every_query_asks_for_metrics_that_exist() {
    let series = metrics::series();
    let found = dashboards();
    let names: BTreeSet<_> = found.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, BTreeSet::from(["cloudsigma", "openstack", "overview", "ovn-drift"]));
    for (name, dashboard) in &found {
        for panel in panels(dashboard) {
            let targets = panel["targets"].as_array().unwrap();
            assert!(!targets.is_empty(), "{name}: {}", panel["title"]);
            for target in targets {
                let query = target["expr"].as_str().unwrap();
                let faults = queries::faults(query, &series);
                assert!(faults.is_empty(), "{name}, {}: {query}: {faults:?}", panel["title"]);
                let asked = queries::names(query).count();
                assert_eq!(query.matches(CHOSEN).count(), asked, "{name}, {}: {query}", panel["title"]);
            }
        }
    }
}

#[test]
fn every_panel_has_a_title_a_description_and_a_place_of_its_own() {
    for (name, dashboard) in dashboards() {
        assert_eq!(dashboard["uid"], format!("groundcrew-{name}"));
        assert_eq!(dashboard["id"], Value::Null, "{name}: Grafana gives the id");
        let variables = dashboard["templating"]["list"].as_array().unwrap().iter();
        let variables: Vec<_> = variables.map(|variable| variable["name"].as_str().unwrap()).collect();
        assert_eq!(variables, ["datasource", "namespace"], "{name}");
        let mut ids = BTreeSet::new();
        let mut taken = BTreeSet::new();
        for panel in dashboard["panels"].as_array().unwrap() {
            assert!(ids.insert(panel["id"].as_u64().unwrap()), "{name}: id {} is there twice", panel["id"]);
            let place = |side: &str| panel["gridPos"][side].as_u64().unwrap();
            assert!(place("x") + place("w") <= 24, "{name}: {} is too wide", panel["title"]);
            for x in place("x")..place("x") + place("w") {
                for y in place("y")..place("y") + place("h") {
                    assert!(taken.insert((x, y)), "{name}: {} covers another panel", panel["title"]);
                }
            }
        }
        for panel in panels(&dashboard) {
            assert!(panel["title"].as_str().is_some_and(|title| !title.is_empty()), "{name}");
            assert!(
                panel["description"].as_str().is_some_and(|text| text.ends_with('.')),
                "{name}: {}",
                panel["title"]
            );
            assert_eq!(panel["datasource"]["uid"], "${datasource}", "{name}: {}", panel["title"]);
        }
    }
}
