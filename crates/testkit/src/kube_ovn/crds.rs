use anyhow::Result;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};

/// kube-ovn's definitions of what we read: the names and the status part are its own, the schema takes anything.
pub fn crds() -> Result<Vec<CustomResourceDefinition>> {
    [("OvnEip", "ovn-eips", "ovn-eip"), ("Subnet", "subnets", "subnet"), ("Vpc", "vpcs", "vpc")]
        .into_iter()
        .map(|(kind, plural, singular)| Ok(serde_json::from_value(definition(kind, plural, singular))?))
        .collect()
}

fn definition(kind: &str, plural: &str, singular: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.kubeovn.io") },
        "spec": {
            "group": "kubeovn.io", "scope": "Cluster",
            "names": { "kind": kind, "plural": plural, "singular": singular },
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": { "status": {} },
                "schema": { "openAPIV3Schema": {
                    "type": "object",
                    "properties": {
                        "spec": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
                        "status": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
                    },
                } },
            }],
        },
    })
}
