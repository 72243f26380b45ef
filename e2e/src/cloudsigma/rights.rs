//! `ServiceAccounts` with the rights that the documentation tells operators to give, word for word.

use anyhow::{Context, Result};
use groundcrew_testkit::kube::{ControlPlane, Kubeconfig};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use kube::Api;
use kube::api::PostParams;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::NAMESPACE;

const PAGE: &str = include_str!("../../../docs/cloudsigma.md");

/// The `ServiceAccount` of this name, with the Role and the `ClusterRole` that have its name too.
pub(super) async fn grant(plane: &ControlPlane, name: &str) -> Result<Kubeconfig> {
    let client = plane.client().await?;
    let params = PostParams::default();
    for role in documented()?.into_iter().filter(|role| role["metadata"]["name"] == name) {
        let kind = role["kind"].as_str().context("a document without a kind")?;
        let binding = json!({
            "metadata": { "name": name },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name },
            "subjects": [{ "kind": "ServiceAccount", "name": name, "namespace": NAMESPACE }],
        });
        if kind == "ClusterRole" {
            Api::<ClusterRole>::all(client.clone()).create(&params, &read(&role)?).await?;
            Api::<ClusterRoleBinding>::all(client.clone()).create(&params, &read(&binding)?).await?;
        } else {
            Api::<Role>::namespaced(client.clone(), NAMESPACE).create(&params, &read(&role)?).await?;
            Api::<RoleBinding>::namespaced(client.clone(), NAMESPACE).create(&params, &read(&binding)?).await?;
        }
    }
    plane.service_account(NAMESPACE, name).await
}

fn documented() -> Result<Vec<Value>> {
    let (_, section) = PAGE.split_once("## Rights").context("no section Rights in docs/cloudsigma.md")?;
    let block = section.split("```yaml").nth(1).and_then(|rest| rest.split("```").next()).context("no roles there")?;
    block.split("---\n").map(|document| serde_saphyr::from_str(document).context("a role there")).collect()
}

fn read<K: DeserializeOwned>(value: &Value) -> Result<K> {
    Ok(serde_json::from_value(value.clone())?)
}
