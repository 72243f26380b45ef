//! Asks the rules of a definition without an API server.

use groundcrew_api::crds;
use kube::core::cel::Validator;
use serde_json::Value;

/// What the rules say to a new object, as `path: message`.
pub(crate) fn refusals(object: &Value) -> Vec<String> {
    ask(object, None)
}

/// What the rules say to an edit.
pub(crate) fn refusals_of_edit(old: &Value, new: &Value) -> Vec<String> {
    ask(new, Some(old))
}

fn ask(object: &Value, old: Option<&Value>) -> Vec<String> {
    let kind = object["kind"].as_str().unwrap();
    let crd = crds().into_iter().find(|crd| crd.spec.names.kind == kind).unwrap();
    let schema = serde_json::to_value(&crd.spec.versions[0].schema).unwrap();
    match Validator::new().validate(&schema["openAPIV3Schema"], object, old) {
        Ok(()) => vec![],
        // A path of a rule on the whole object begins with a dot here, and without one on an API server.
        Err(errors) => errors.iter().map(|error| error.to_string().trim_start_matches('.').to_owned()).collect(),
    }
}
