//! Nobody makes new things meanwhile. A policy of the API server itself does it: it needs no webhook that could be down,
//! and it is gone with one delete.

use std::time::Duration;

use groundcrew_core::leader::Term;
use groundcrew_core::provider::ProviderError;
use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, from_value, json};
use tokio::time::Instant;

const NAME: &str = "groundcrew-deorbit";
/// Where the place of the probe is protected: the same policy, for the probe alone.
const PROBE: &str = "groundcrew-deorbit-probe";
const MANAGER: &str = "groundcrew-deorbit";
const MESSAGE: &str = "this cluster is being deorbited (kubectl get deorbits): nothing new that lives outside of it";

/// An API server looks at its policies once a second.
const SETTLES: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(50);

/// Where the probe is made. It is never kept.
const PROBED: &str = "default";

/// What may not be made: claims, snapshots, Ingresses and Gateways; and Services that are or become load balancers.
fn policy() -> Value {
    let rule = |group: &str, version: &str, resource: &str, operations: &[&str]| json!({ "apiGroups": [group], "apiVersions": [version], "resources": [resource], "operations": operations });
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": { "name": NAME },
        "spec": {
            // An API server that cannot evaluate it must not stop the cluster's own clean-up.
            "failurePolicy": "Ignore",
            "matchConstraints": { "resourceRules": [
                rule("", "v1", "persistentvolumeclaims", &["CREATE"]),
                rule("", "v1", "services", &["CREATE", "UPDATE"]),
                rule("networking.k8s.io", "*", "ingresses", &["CREATE"]),
                rule("gateway.networking.k8s.io", "*", "gateways", &["CREATE"]),
                rule("snapshot.storage.k8s.io", "*", "volumesnapshots", &["CREATE"]),
            ]},
            "validations": [{
                "expression": "request.resource.resource == 'services' && (object.spec.type != 'LoadBalancer' \
                    || (request.operation == 'UPDATE' && oldObject.spec.type == 'LoadBalancer'))",
                "message": MESSAGE, "reason": "Forbidden",
            }],
        },
    })
}

fn is_protected(namespaces: &[String]) -> bool {
    namespaces.iter().any(|namespace| namespace == PROBED)
}

/// What binds the policy, in the order in which it is written: an API server learns of both from one watch, so that where the
/// second is in effect, the first is.
fn bindings(protected: &[String]) -> Vec<(&'static str, Value)> {
    let mut bindings = vec![(NAME, binding(protected))];
    if is_protected(protected) {
        let selector = json!({ "matchLabels": { PROBE: "true" } });
        let probe = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": { "name": PROBE },
            "spec": {
                "policyName": NAME, "validationActions": ["Deny"], "matchResources": { "objectSelector": selector },
            },
        });
        bindings.push((PROBE, probe));
    }
    bindings
}

fn binding(protected: &[String]) -> Value {
    let name = "kubernetes.io/metadata.name";
    let others = json!({ "matchExpressions": [{ "key": name, "operator": "NotIn", "values": protected }] });
    let selector = if protected.is_empty() { json!({}) } else { others };
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": { "name": NAME },
        "spec": {
            "policyName": NAME, "validationActions": ["Deny"],
            "matchResources": { "namespaceSelector": selector },
        },
    })
}

/// Puts the block there. There already is fine.
pub async fn block(
    client: &Client,
    protected: &[String],
    deadline: Duration,
    term: &Term,
) -> Result<(), ProviderError> {
    let params = PatchParams::apply(MANAGER).force();
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(client.clone());
    let api: Api<ValidatingAdmissionPolicyBinding> = Api::all(client.clone());
    let told = |error| ProviderError::from_kube("cannot block new objects", &error);
    let write = async { policies.patch(NAME, &params, &Patch::Apply(policy())).await.map_err(told) };
    term.write(deadline, write).await?;
    for (name, binding) in bindings(protected) {
        let write = async { api.patch(name, &params, &Patch::Apply(binding)).await.map_err(told) };
        term.write(deadline, write).await?;
    }
    Ok(())
}

/// Whether it is in effect: an API server takes its time to begin with a policy. Asked with a claim that is never made.
pub async fn is_blocked(client: &Client, deadline: Duration) -> Result<bool, ProviderError> {
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), PROBED);
    let probe: PersistentVolumeClaim = from_value(json!({
        "metadata": { "generateName": "probe-", "labels": { PROBE: "true" } },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
    }))
    .map_err(|error| ProviderError::new(groundcrew_core::provider::ErrorKind::Invalid, error.to_string()))?;
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    match tokio::time::timeout(deadline, claims.create(&dry, &probe)).await {
        Ok(Err(kube::Error::Api(status))) if status.message.contains(MESSAGE) => Ok(true),
        Ok(Ok(_)) | Err(_) => Ok(false),
        Ok(Err(error)) => Err(ProviderError::from_kube("cannot see whether new objects are blocked", &error)),
    }
}

/// The same, a little later if need be: whole looks would be in vain until then.
pub async fn until_blocked(client: &Client, deadline: Duration) -> Result<bool, ProviderError> {
    let until = Instant::now() + SETTLES;
    loop {
        let blocked = is_blocked(client, deadline).await?;
        if blocked || Instant::now() >= until {
            return Ok(blocked);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Takes the block away. Gone already is fine.
pub async fn unblock(client: &Client, deadline: Duration, term: &Term) -> Result<(), ProviderError> {
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(client.clone());
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(client.clone());
    let params = DeleteParams::default();
    let gone = |deleted: Result<(), kube::Error>| match deleted {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        deleted => deleted.map_err(|error| ProviderError::from_kube("cannot lift the block on new objects", &error)),
    };
    for name in [NAME, PROBE] {
        term.write(deadline, async { gone(bindings.delete(name, &params).await.map(drop)) }).await?;
    }
    term.write(deadline, async { gone(policies.delete(NAME, &params).await.map(drop)) }).await?;
    Ok(())
}
