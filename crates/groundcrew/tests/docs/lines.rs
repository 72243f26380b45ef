//! What people copy from a page: targets of `make`, values of the chart, commands and their flags, versions.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::links::documents;
use crate::readme::targets;
use crate::repository;

/// What a page has as code: lines of blocks, and what is between backticks. A line that goes on below is one.
fn code(page: &str) -> Vec<String> {
    let page = page.replace("\\\n", " ");
    let mut code = Vec::new();
    let mut block = false;
    for line in page.lines() {
        if line.trim_start().starts_with("```") {
            block = !block;
        } else if block || line.starts_with("    ") {
            code.push(line.trim().trim_start_matches("$ ").to_owned());
        } else {
            code.extend(line.split('`').skip(1).step_by(2).map(str::to_owned));
        }
    }
    code
}

/// The code of every page that somebody wrote, with where it is.
fn pages() -> Vec<(PathBuf, Vec<String>)> {
    let written = documents().into_iter().filter(|path| !path.parent().is_some_and(|dir| dir.ends_with("reference")));
    let all = written.chain([repository("charts/groundcrew/README.md")]);
    all.map(|path| (path.clone(), code(&fs::read_to_string(path).unwrap()))).collect()
}

#[test]
fn every_target_of_make_that_a_page_names_exists() {
    let targets: BTreeSet<_> = targets().into_iter().map(|(name, _)| name).collect();
    let mut found = 0;
    for (path, code) in pages() {
        for line in code.iter().filter_map(|line| line.strip_prefix("make ")) {
            let name = line.split(' ').next().unwrap_or_default();
            assert!(targets.contains(name), "{}: there is no `make {name}`", path.display());
            found += 1;
        }
    }
    assert!(found > 30, "only {found} were found");
}

/// Whether the chart has a value; below one that is empty anything may be.
fn is_value(values: &Value, path: &str) -> bool {
    let mut at = values;
    for key in path.split('.') {
        match at.as_object() {
            Some(object) if object.is_empty() => return true,
            Some(object) if object.contains_key(key) => at = &at[key],
            _ => return false,
        }
    }
    true
}

/// The values of the chart that a piece of code names: those that it sets, or one that it is.
fn values_in(code: &str, known: &Value) -> Vec<String> {
    let path = |text: &str| {
        let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '.' && c != '-');
        text[..end.unwrap_or(text.len())].to_owned()
    };
    let set = code.split("--set ").skip(1).map(|rest| path(rest.trim_start_matches('\'')));
    let alone = path(code);
    let rest = &code[alone.len()..];
    let is_path = alone.split_once('.').is_some_and(|(first, _)| known.get(first).is_some());
    set.chain((is_path && (rest.is_empty() || rest.starts_with(['=', ':']))).then_some(alone)).collect()
}

#[test]
fn every_value_of_the_chart_that_a_page_names_exists() {
    let text = fs::read_to_string(repository("charts/groundcrew/values.yaml")).unwrap();
    let values: Value = serde_saphyr::from_str(&text).unwrap();
    let mut found = 0;
    for (path, code) in pages() {
        for name in code.iter().flat_map(|code| values_in(code, &values)) {
            assert!(is_value(&values, &name), "{}: the chart has no value {name}", path.display());
            found += 1;
        }
    }
    assert!(found > 100, "only {found} were found");
}

#[test]
fn every_command_that_a_page_names_exists_with_its_flags() {
    let reference = fs::read_to_string(repository("docs/reference/commands.md")).unwrap();
    let section = |words: &[&str]| {
        let begin = format!("\n## groundcrew {}\n", words.join(" "));
        reference.split_once(&begin).map(|(_, rest)| rest.split("\n## ").next().unwrap_or_default())
    };
    let mut found = 0;
    for (path, code) in pages() {
        for line in code.iter().filter_map(|line| line.trim_start_matches("kubectl ").strip_prefix("groundcrew ")) {
            let words: Vec<_> = line.split_whitespace().take_while(|word| !["|", "#", ">"].contains(word)).collect();
            let command = words.iter().take_while(|word| word.chars().all(|c| c.is_ascii_lowercase() || c == '-'));
            let command: Vec<_> = command.copied().take_while(|word| !word.starts_with('-')).collect();
            if command.is_empty() {
                continue;
            }
            // What follows the command may be the name of something.
            let help = (1..=command.len()).rev().find_map(|end| section(&command[..end]));
            let help = help.unwrap_or_else(|| panic!("{}: there is no `groundcrew {line}`", path.display()));
            for flag in words.iter().filter(|word| word.starts_with("--")) {
                let flag = flag.split('=').next().unwrap_or_default();
                let known = [" ", "\n", ","].iter().any(|end| help.contains(&format!(" {flag}{end}")));
                assert!(known, "{}: `groundcrew {line}` has no {flag}", path.display());
                found += 1;
            }
        }
    }
    assert!(found > 30, "only {found} flags were found");
}

/// The table of tested versions says what the tests are pinned to.
#[test]
fn the_tested_versions_are_those_that_are_installed() {
    let page = fs::read_to_string(repository("docs/limits.md")).unwrap();
    let table = page.split("## Tested versions\n").nth(1).unwrap();
    let row = |start: &str| {
        let row = table.lines().find(|line| line.starts_with(&format!("| {start}")));
        row.unwrap_or_else(|| panic!("no row for {start}"))
    };
    let pinned = |file: &str, name: &str| {
        let text = fs::read_to_string(repository(file)).unwrap();
        let found = text.lines().find_map(|line| line.split_once(name).map(|(_, rest)| rest.to_owned()));
        let found = found.unwrap_or_else(|| panic!("{file} does not have {name}"));
        found.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect::<String>()
    };
    let go = "hack/tools/go.mod";
    let kubernetes = pinned(go, "k8s.io/kubernetes v");
    let mut wanted = vec![
        ("Kubernetes", kubernetes.clone()),
        ("Kubernetes", format!("etcd {}", pinned(go, "go.etcd.io/etcd/server/v3 v"))),
        ("kubelet", kubernetes),
        ("promtool, Helm", pinned("hack/tools/promtool/go.mod", "github.com/prometheus/prometheus v")),
        ("promtool, Helm", pinned("hack/tools/helm/go.mod", "helm.sh/helm/v3 v")),
        ("Rust", pinned("Cargo.toml", "rust-version = \"")),
    ];
    for service in ["Keystone", "Neutron", "Nova", "Placement", "Glance", "Cinder", "Octavia"] {
        let package = if service == "Placement" { "openstack-placement".to_owned() } else { service.to_lowercase() };
        let version = pinned("hack/tools/openstack/requirements.txt", &format!("{package}=="));
        let (minor, _) = version.rsplit_once('.').unwrap();
        wanted.push(("OpenStack", format!("{service} {minor}")));
    }
    for (start, version) in wanted {
        assert!(row(start).contains(&version), "docs/limits.md: {version} is tested, and not in: {}", row(start));
    }
}
