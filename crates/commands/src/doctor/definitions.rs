//! Whether the custom resources are there, and as this version knows them.

use std::collections::BTreeSet;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaPropsOrArray;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceValidation, JSONSchemaProps,
};
use kube::{Api, Client, ResourceExt};

use super::rights::Controller;
use crate::cluster::{Seen, read_opt};
use crate::finding::Finding;

const NAME: &str = "definitions";
/// One of ours, and the same as the cluster has it.
type Pair = (CustomResourceDefinition, Option<CustomResourceDefinition>);

pub(super) async fn look(client: &Client, controllers: &[Controller]) -> Vec<Finding> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let mut seen = Vec::new();
    for ours in groundcrew_api::crds() {
        let name = ours.name_any();
        let theirs: Seen<_> = read_opt(&format!("the definition {name}"), api.get(&name)).await;
        match theirs {
            Ok(theirs) => seen.push((ours, theirs)),
            Err(why) => return vec![Finding::unknown(NAME, why.to_string(), "ask as a user who may read definitions")],
        }
    }
    judge(&seen, controllers)
}

/// A cluster has the definitions of the controllers that it runs: without the others nothing is broken.
fn judge(seen: &[Pair], controllers: &[Controller]) -> Vec<Finding> {
    let (needed, others): (Vec<&Pair>, Vec<&Pair>) = seen.iter().partition(|(ours, _)| {
        controllers.iter().any(|controller| controller.definitions().contains(&&*ours.name_any()))
    });
    let mut findings = Vec::new();
    if let Some(fault) = needed.iter().find_map(|pair| fault(pair)) {
        findings.push(Finding::bad(NAME, fault, remedy(seen)));
    } else if needed.is_empty() {
        findings.push(Finding::note(NAME, "no controller that was looked at needs any"));
    } else {
        let names: Vec<_> = needed.iter().map(|(ours, _)| ours.name_any()).collect();
        findings.push(Finding::good(NAME, names.join(", ")));
    }
    let faults: Vec<_> = others.iter().filter_map(|pair| fault(pair)).collect();
    if !faults.is_empty() {
        findings.push(Finding::note("other definitions", format!("{}; nobody here needs them", faults.join(", "))));
    }
    findings
}

/// What is wrong with one.
fn fault((ours, theirs): &Pair) -> Option<String> {
    let name = ours.name_any();
    let Some(theirs) = theirs else { return Some(format!("{name} is missing")) };
    let mut conditions = theirs.status.iter().filter_map(|status| status.conditions.as_ref()).flatten();
    if !conditions.any(|condition| condition.type_ == "Established" && condition.status == "True") {
        return Some(format!("{name} is not established (kubectl describe crd {name})"));
    }
    for version in &ours.spec.versions {
        let Some(other) = theirs.spec.versions.iter().find(|each| each.name == version.name && each.served) else {
            return Some(format!("{name} does not serve {}", version.name));
        };
        if let Some(missing) = fields(version.schema.as_ref()).difference(&fields(other.schema.as_ref())).next() {
            return Some(format!("{name} is older than this program: it has no {missing}"));
        }
    }
    None
}

/// Who brought them brings them again: Helm neither takes over nor writes what somebody else has applied.
fn remedy(seen: &[Pair]) -> String {
    let release = seen.iter().find_map(|(_, theirs)| {
        let notes = theirs.as_ref()?.annotations();
        Some((notes.get("meta.helm.sh/release-name")?, notes.get("meta.helm.sh/release-namespace")?))
    });
    match release {
        Some((name, namespace)) => format!(
            "helm upgrade {name} charts/groundcrew --namespace {namespace} --reset-then-reuse-values, of this version and with crds.enabled"
        ),
        None => "upgrade the chart's release (crds.enabled); where there is none: groundcrew crds | kubectl apply \
                 --server-side -f - (with --no-eip beside kube-dc)"
            .to_owned(),
    }
}

fn fields(validation: Option<&CustomResourceValidation>) -> BTreeSet<String> {
    let mut fields = BTreeSet::new();
    if let Some(schema) = validation.and_then(|validation| validation.open_api_v3_schema.as_ref()) {
        collect(schema, "", &mut fields);
    }
    fields
}

/// The paths of all fields.
fn collect(schema: &JSONSchemaProps, at: &str, fields: &mut BTreeSet<String>) {
    for (name, below) in schema.properties.iter().flatten() {
        let path = format!("{at}.{name}");
        collect(below, &path, fields);
        fields.insert(path);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &schema.items {
        collect(items, &format!("{at}[]"), fields);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::State;

    fn established(crd: &CustomResourceDefinition) -> CustomResourceDefinition {
        let mut value = serde_json::to_value(crd).unwrap();
        value["status"] = serde_json::json!({ "conditions": [{ "type": "Established", "status": "True" }] });
        serde_json::from_value(value).unwrap()
    }

    fn all() -> Vec<Pair> {
        groundcrew_api::crds().into_iter().map(|crd| (crd.clone(), Some(established(&crd)))).collect()
    }

    fn of_kind<'a>(all: &'a mut [Pair], kind: &str) -> &'a mut Option<CustomResourceDefinition> {
        &mut all.iter_mut().find(|(ours, _)| ours.spec.names.kind == kind).unwrap().1
    }

    const EVERYBODY: &[Controller] =
        &[Controller::OvnLb, Controller::CloudsigmaCcm, Controller::Flight, Controller::Deorbit];

    #[test]
    fn our_own_definitions_are_found_good() {
        let [found] = &judge(&all(), EVERYBODY)[..] else { panic!("more than one") };
        assert_eq!(found.state, State::Good);
        assert_eq!(found.found.split(", ").count(), groundcrew_api::crds().len(), "each is somebody's: {found:?}");
    }

    #[test]
    fn a_missing_one_an_older_one_and_an_unfinished_one_are_told() {
        let told = |seen: &[Pair]| judge(seen, EVERYBODY).remove(0);
        let mut missing = all();
        missing[1].1 = None;
        assert!(told(&missing).found.contains("is missing"));

        let mut unfinished = all();
        unfinished[0].1.as_mut().unwrap().status = None;
        assert!(told(&unfinished).found.contains("not established"));

        let mut older = all();
        let fip = of_kind(&mut older, "FloatingIP").as_mut().unwrap();
        let schema = fip.spec.versions[0].schema.as_mut().unwrap();
        let spec = schema.open_api_v3_schema.as_mut().unwrap().properties.as_mut().unwrap().get_mut("spec").unwrap();
        spec.properties.as_mut().unwrap().remove("nat");
        let found = told(&older);
        assert_eq!(found.state, State::Bad);
        assert!(found.found.contains(".spec.nat"), "{}", found.found);
    }

    #[test]
    fn what_no_controller_needs_is_a_note() {
        let mut seen = all();
        *of_kind(&mut seen, "Deorbit") = None;
        let findings = judge(&seen, &[Controller::OvnLb, Controller::Routegc]);
        let states: Vec<_> = findings.iter().map(|finding| finding.state).collect();
        assert_eq!(states, [State::Good, State::Note], "{findings:?}");
        assert_eq!(findings[0].found, "eips.kube-dc.com, addresspools.groundcrew.dev");
        assert!(findings[1].found.contains("deorbits.groundcrew.dev is missing"), "{findings:?}");
        assert_eq!(judge(&seen, &[])[0].state, State::Note, "nobody needs any");
    }

    #[test]
    fn who_installed_with_helm_is_sent_to_helm() {
        let mut seen = all();
        *of_kind(&mut seen, "NodeRepair") = None;
        let by_hand = judge(&seen, &[Controller::Flight]).remove(0).next.unwrap();
        assert!(by_hand.contains("groundcrew crds | kubectl apply"), "{by_hand}");
        let eip = of_kind(&mut seen, "EIp").as_mut().unwrap();
        for (note, value) in [("release-name", "edge"), ("release-namespace", "ops")] {
            eip.annotations_mut().insert(format!("meta.helm.sh/{note}"), value.into());
        }
        let by_helm = judge(&seen, &[Controller::Flight]).remove(0).next.unwrap();
        assert!(by_helm.starts_with("helm upgrade edge charts/groundcrew --namespace ops"), "{by_helm}");
        assert!(!by_helm.contains("kubectl"), "{by_helm}");
    }
}
