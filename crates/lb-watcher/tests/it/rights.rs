//! The rights in the documentation are enough, and nothing more is needed.

use groundcrew_testkit::eventually;
use groundcrew_testkit::kube::shared;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role};
use kube::api::{ListParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::harness::{Project, SOON};

/// The manifests of `docs/lb-watcher.md`.
fn documented() -> Vec<Value> {
    let page = include_str!("../../../../docs/lb-watcher.md");
    let block = page.split("```yaml").nth(1).unwrap().split("```").next().unwrap();
    block.split("---\n").map(|document| serde_saphyr::from_str(document).unwrap()).collect()
}

fn rules(documents: &[Value], kind: &str, name: &str) -> Vec<PolicyRule> {
    let found = documents.iter().find(|document| document["kind"] == kind && document["metadata"]["name"] == name);
    serde_json::from_value(found.unwrap()["rules"].clone()).unwrap()
}

async fn grant(client: &Client, account: &Value, role: Value, namespace: Option<&str>) {
    let kind = role["kind"].as_str().unwrap();
    let name = role["metadata"]["name"].as_str().unwrap();
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": format!("{kind}Binding"), "metadata": { "name": name },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name },
        "subjects": [account],
    });
    let params = PostParams::default();
    if let Some(namespace) = namespace {
        let roles: Api<Role> = Api::namespaced(client.clone(), namespace);
        roles.create(&params, &serde_json::from_value(role).unwrap()).await.unwrap();
        let bindings: Api<k8s_openapi::api::rbac::v1::RoleBinding> = Api::namespaced(client.clone(), namespace);
        bindings.create(&params, &serde_json::from_value(binding).unwrap()).await.unwrap();
    } else {
        let roles: Api<ClusterRole> = Api::all(client.clone());
        roles.create(&params, &serde_json::from_value(role).unwrap()).await.unwrap();
        let bindings: Api<k8s_openapi::api::rbac::v1::ClusterRoleBinding> = Api::all(client.clone());
        bindings.create(&params, &serde_json::from_value(binding).unwrap()).await.unwrap();
    }
}

#[tokio::test]
async fn the_documented_rights_are_enough_for_everything() {
    let project = Project::new("rights").await;
    let address = project.served("web").await;
    project.pod("kube-ovn-controller-1", 0).await;
    project.lease("kube-ovn-controller-1").await;
    let _manager = project.manager().await;
    let documents = documented();
    let (namespace, client) = (project.namespace.as_str(), &project.client);
    let account = shared().await.unwrap().service_account(namespace, "watcher").await.unwrap();
    let subject = json!({ "kind": "ServiceAccount", "name": "watcher", "namespace": namespace });
    // In this test kube-ovn's namespace and the watcher's own are one.
    for (kind, name) in [
        ("ClusterRole", "groundcrew-lb-watcher"),
        ("Role", "groundcrew-lb-watcher-kube-ovn"),
        ("Role", "groundcrew-lb-watcher-lease"),
    ] {
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind,
            "metadata": { "name": name }, "rules": rules(&documents, kind, name),
        });
        grant(client, &subject, role, (kind == "Role").then_some(namespace)).await;
    }

    // The API server takes a moment to hear of its own rules. A watch that it refuses meanwhile starts late, and what was
    // changed before is no news to it.
    let known = account.client().await.unwrap();
    let services: Api<Service> = Api::all(known.clone());
    let pods: Api<Pod> = Api::namespaced(known.clone(), namespace);
    let leases: Api<Lease> = Api::namespaced(known, namespace);
    eventually("the rights hold", SOON, async || {
        services.list(&ListParams::default()).await?;
        pods.list(&ListParams::default()).await?;
        leases.list(&ListParams::default()).await?;
        Ok::<_, kube::Error>(())
    })
    .await
    .unwrap();
    let watcher = project.start_as(account.path().to_str().unwrap(), &[]).await;
    watcher.until_ready().await;
    watcher.until_metric("groundcrew_leader_leading_bool", |leads| leads > 0.5).await;
    watcher.until_watches(1).await;
    project.new_leader(&watcher, "kube-ovn-controller-2").await;
    project.collect().await;
    project.until_whole("web", &address).await;
    watcher.until_repaired("row_missing", "kube_ovn_collection", 1.0).await;
    project.until_event("web", "DriftFound").await;
    let failed = watcher.metric("groundcrew_watcher_repair_requests_total{outcome=\"failed\"}").await;
    assert!(failed < 0.5, "{failed}");
    watcher.stop().await;
}
