//! What kube-ovn gives although something else has it.

use k8s_openapi::api::core::v1::Node;

use super::*;

#[tokio::test]
async fn an_address_that_a_node_has_is_not_used_though_kube_ovn_gives_it() {
    let cloud = Cloud::new("node").await;
    let project = &cloud.project;
    let nodes: Api<Node> = Api::all(project.client.clone());
    let name = format!("node-{}", project.namespace);
    let node = json!({ "metadata": { "name": name } });
    nodes.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
    let status = json!({ "status": { "addresses": [{ "type": "InternalIP", "address": project.address(2) }] } });
    nodes.patch_status(&name, &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();

    let controller = cloud.controller().await;
    project.create("web", json!({})).await;
    let message = project.until_reason("web", "AddressTaken").await;
    assert!(message.contains("a node of the cluster") && message.contains("excludeIps"), "{message}");
    let before = cloud.ovn_eips().await;
    assert_eq!(before.len(), 1, "the next one would be the same");
    let other = json!({ "status": { "addresses": [] } });
    nodes.patch_status(&name, &PatchParams::default(), &Patch::Merge(&other)).await.unwrap();
    assert_eq!(project.until_served("web").await, project.address(2));
    assert_eq!(cloud.ovn_eips().await[0].uid(), before[0].uid());
    nodes.delete(&name, &DeleteParams::default()).await.unwrap();
    controller.stop().await;
}
