//! The chart's generated files are up to date, and its schema knows every value. Needs no helm; `make chart` brings the
//! files up to date.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test's helpers are tests too")]

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// Set to write what is compared otherwise.
const BLESS: &str = "GROUNDCREW_BLESS";
const BEGIN: &str = "<!-- values: made of the comments in values.yaml by `make chart` -->\n";
const END: &str = "<!-- end of values -->\n";

fn chart(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../charts/groundcrew").join(file)
}

fn read(file: &str) -> String {
    let path = chart(file);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Compares a file of the chart with what it should be, or writes that.
fn up_to_date(file: &str, wanted: &str) {
    if std::env::var_os(BLESS).is_some() {
        fs::write(chart(file), wanted).unwrap();
    }
    let found = fs::read_to_string(chart(file)).unwrap_or_default();
    assert!(found == wanted, "charts/groundcrew/{file} is out of date: run `make chart`");
}

#[test]
fn the_chart_installs_the_definitions_that_groundcrew_prints() {
    let mut wanted = BTreeSet::new();
    for crd in groundcrew_api::crds() {
        let name = crd.metadata.name.clone().unwrap();
        up_to_date(&format!("files/crds/{name}.yaml"), &serde_saphyr::to_string(&crd).unwrap());
        let keep = crd.metadata.annotations.unwrap_or_default().remove("helm.sh/resource-policy");
        assert_eq!(keep.as_deref(), Some("keep"), "{name} would go with the chart, and all its objects with it");
        let listed = read("templates/crds.yaml").contains(&format!("\"{name}\" (list"));
        assert!(listed, "templates/crds.yaml does not say which controllers need {name}");
        wanted.insert(format!("{name}.yaml"));
    }
    let there = fs::read_dir(chart("files/crds")).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(there.map(|name| name.into_string().unwrap()).collect::<BTreeSet<_>>(), wanted);
}

#[test]
fn the_table_of_values_in_the_readme_says_what_the_comments_say() {
    let readme = read("README.md");
    let (head, rest) = readme.split_once(BEGIN).unwrap();
    let (_, tail) = rest.split_once(END).unwrap();
    up_to_date("README.md", &format!("{head}{BEGIN}{}{END}{tail}", table(&read("values.yaml"))));
}

#[test]
fn the_schema_knows_every_value_and_no_other() {
    let schema: Value = serde_json::from_str(&read("values.schema.json")).unwrap();
    let values: Value = serde_saphyr::from_str(&read("values.yaml")).unwrap();
    same_keys("", &values, &schema, &schema);
}

/// Two ways to build one image.
#[test]
fn the_dockerfile_and_hack_image_make_the_same_image() {
    let read = |file: &str| fs::read_to_string(chart("../..").join(file)).unwrap();
    let (dockerfile, script, toolchain) = (read("Dockerfile"), read("hack/image"), read("rust-toolchain.toml"));
    let said = |text: &str, start: &str| -> String {
        let line = text.lines().find_map(|line| line.trim().strip_prefix(start));
        line.unwrap_or_else(|| panic!("no {start:?}")).trim().to_owned()
    };
    let rust = said(&toolchain, "channel =").replace('"', "");
    let base = said(&dockerfile, "FROM rust:");
    let (version, _) = base.split_once('-').unwrap();
    assert!(
        rust == version || rust.starts_with(&format!("{version}.")),
        "Dockerfile: {version}, rust-toolchain: {rust}"
    );

    let id = said(&script, "USER_ID=");
    assert_eq!(said(&dockerfile, "USER "), format!("{id}:{id}"));
    assert!(read("charts/groundcrew/templates/_pod.tpl").contains(&format!("runAsUser: {id}\n")));
    let entrypoint = script.split("Entrypoint: [").nth(1).and_then(|rest| rest.split(']').next()).unwrap();
    assert_eq!(said(&dockerfile, "ENTRYPOINT "), format!("[{entrypoint}]"));
    let variables = said(&script, "Env: [").replace(['"', ','], " ").replace(']', "");
    let variables: Vec<_> = variables.split_whitespace().collect();
    assert_eq!(said(&dockerfile, "ENV ").split_whitespace().collect::<Vec<_>>(), variables);
}

/// A value that the schema does not have is refused, and one that `values.yaml` does not have is never shown to anybody.
fn same_keys(path: &str, values: &Value, schema: &Value, whole: &Value) {
    let schema = match schema["$ref"].as_str() {
        Some(reference) => whole.pointer(reference.trim_start_matches('#')).unwrap(),
        None => schema,
    };
    let (Some(values), Some(properties)) = (values.as_object(), schema["properties"].as_object()) else { return };
    // Free-form objects of Kubernetes' own are not ours to list.
    if values.is_empty() || path.ends_with(".resources") {
        return;
    }
    assert_eq!(schema["additionalProperties"], false, "{path}: a typing error would go unnoticed");
    let known: BTreeSet<_> = properties.keys().filter(|key| *key != "global").collect();
    assert_eq!(values.keys().collect::<BTreeSet<_>>(), known, "{path}");
    for (key, value) in values {
        same_keys(&format!("{path}.{key}"), value, &properties[key], whole);
    }
}

/// A row for each value with a comment; every value that is not a group must have one.
fn table(values: &str) -> String {
    let mut rows = String::from("| value | default | meaning |\n|---|---|---|\n");
    let mut path: Vec<(usize, &str)> = Vec::new();
    let mut meaning: Option<String> = None;
    let lines: Vec<_> = values.lines().collect();
    let mut inside = usize::MAX;
    for (number, line) in lines.iter().enumerate() {
        let text = line.trim_start();
        let indent = line.len() - text.len();
        if indent > inside || text.is_empty() || text.starts_with("- ") {
            continue;
        }
        inside = usize::MAX;
        if let Some(begun) = text.strip_prefix("# -- ") {
            meaning = Some(begun.to_owned());
            continue;
        }
        if let Some(more) = text.strip_prefix("# ") {
            meaning = meaning.map(|begun| format!("{begun} {more}"));
            continue;
        }
        let (key, default) = text.split_once(':').unwrap_or_else(|| panic!("values.yaml:{}: {text}", number + 1));
        path.retain(|(at, _)| *at < indent);
        path.push((indent, key));
        let name = path.iter().map(|(_, key)| *key).collect::<Vec<_>>().join(".");
        let mut default = default.trim().to_owned();
        match meaning.take() {
            Some(meaning) => {
                if default.is_empty() {
                    // A block that is one value: its lines on one.
                    let block =
                        lines[number + 1..].iter().take_while(|line| line.len() - line.trim_start().len() > indent);
                    let value: Value = serde_saphyr::from_str(&block.copied().collect::<Vec<_>>().join("\n")).unwrap();
                    default = value.to_string();
                    inside = indent;
                }
                let _ = writeln!(rows, "| `{name}` | `{default}` | {} |", meaning.replace('|', "\\|"));
            }
            None => {
                assert!(
                    default.is_empty(),
                    "values.yaml:{}: {name} has no comment that begins with `# --`",
                    number + 1
                );
            }
        }
    }
    rows
}
