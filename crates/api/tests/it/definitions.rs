//! The definitions themselves.

use std::path::Path;

use groundcrew_api::crds;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;

/// `crds/` is what is installed, kept in the repository so that a change of a schema is seen in review.
#[test]
fn the_committed_definitions_are_those_of_the_code() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("crds");
    let update = std::env::var_os("UPDATE").is_some();
    let mut expected = vec![];
    for crd in crds() {
        let file = folder.join(format!("{}_{}.yaml", crd.spec.group, crd.spec.names.plural));
        let yaml = serde_saphyr::to_string(&crd).unwrap();
        assert_eq!(serde_saphyr::from_str::<CustomResourceDefinition>(&yaml).unwrap(), crd, "YAML loses nothing");
        if update {
            std::fs::write(&file, &yaml).unwrap();
        }
        let committed = std::fs::read_to_string(&file).unwrap_or_default();
        assert!(committed == yaml, "{} is out of date: run this test again with UPDATE=1", file.display());
        expected.push(file);
    }
    let mut present: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    present.sort();
    expected.sort();
    assert_eq!(present, expected, "a definition that is gone leaves no file behind");
}

#[test]
fn a_definition_survives_the_release_that_brought_it() {
    for crd in crds() {
        assert_eq!(crd.metadata.annotations.unwrap()["helm.sh/resource-policy"], "keep");
    }
}

/// A field without a description is a field that `kubectl explain` cannot explain.
#[test]
fn every_field_explains_itself() {
    for crd in crds() {
        let schema = schema(&crd);
        for (name, property) in schema["properties"].as_object().unwrap() {
            explains_itself(&format!("{}.{name}", crd.spec.names.kind), property);
        }
    }
}

fn explains_itself(path: &str, schema: &Value) {
    assert!(schema["description"].is_string(), "{path} has no description");
    let fields = schema["properties"].as_object().or_else(|| schema["items"]["properties"].as_object());
    for (name, field) in fields.into_iter().flatten() {
        explains_itself(&format!("{path}.{name}"), field);
    }
}

/// The rules ask `has()`, which says yes to a null; the API server drops one where the schema does not allow it.
#[test]
fn no_field_may_be_null() {
    for crd in crds() {
        let schema = schema(&crd);
        for part in ["spec", "status"] {
            let fields = schema["properties"][part]["properties"].to_string();
            assert!(!fields.contains("nullable"), "{} {part}: {fields}", crd.spec.names.kind);
        }
    }
}

/// What kube-dc's users type and read.
#[test]
fn an_eip_is_found_and_printed_as_with_kube_dc() {
    let crd = crds().into_iter().find(|crd| crd.spec.names.kind == "EIp").unwrap();
    assert_eq!(crd.metadata.name.as_deref(), Some("eips.kube-dc.com"));
    assert_eq!(crd.spec.names.singular.as_deref(), Some("eip"));
    assert_eq!(crd.spec.names.short_names, None);
    assert_eq!(crd.spec.scope, "Namespaced");
    let columns = crd.spec.versions[0].additional_printer_columns.clone().unwrap();
    let columns: Vec<_> = columns.iter().map(|c| (c.name.as_str(), c.type_.as_str(), c.json_path.as_str())).collect();
    assert_eq!(
        columns,
        [
            ("External IP", "string", ".status.ipAddress"),
            ("Ready", "boolean", ".status.ready"),
            ("Age", "date", ".metadata.creationTimestamp"),
            ("Ownership", "string", ".status.ownershipType"),
        ]
    );
}

fn schema(crd: &CustomResourceDefinition) -> Value {
    let schema = crd.spec.versions[0].schema.as_ref().and_then(|s| s.open_api_v3_schema.as_ref());
    serde_json::to_value(schema.unwrap()).unwrap()
}
