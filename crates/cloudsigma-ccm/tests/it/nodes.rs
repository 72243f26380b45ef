//! Nodes follow their servers.

use groundcrew_testkit::cloudsigma::{Effect, Fault, Nic};
use groundcrew_testkit::eventually;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::lab::{Controller, Lab, SOON};

async fn until_node<T>(lab: &Lab, name: &str, what: &str, probe: impl Fn(&Node) -> Option<T>) -> T {
    eventually(what, SOON, async || {
        let node = lab.kube_nodes().get(name).await?;
        probe(&node).ok_or_else(|| anyhow::anyhow!("{:?} {:?}", node.spec, node.status))
    })
    .await
    .unwrap()
}

/// The server of a node was asked for by itself since, because the list does not have it.
async fn until_asked_for(lab: &Lab, server: &str, since: usize) {
    let path = format!("servers/{server}/");
    eventually("the server was asked for", SOON, async || {
        let calls = lab.cloud.calls().split_off(since);
        if calls.iter().filter(|call| call.path == path).count() >= 2 { Ok(()) } else { Err("not yet") }
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_node_is_initialised_by_the_name_and_address_of_its_server() {
    let lab = Lab::new("cs-node", 0).await;
    let name = format!("{}-fresh", lab.namespace);
    let own = lab.ip(77);
    let server = lab.cloud.account(|account| account.add_server(&name, Nic::Dhcp(own)));
    let taints = json!([
        { "key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule" },
        { "key": "node.cluster.x-k8s.io/uninitialized", "effect": "NoSchedule" },
        { "key": "dedicated", "effect": "NoSchedule" },
    ]);
    lab.add_node(&name, &json!({ "taints": taints }), true).await;
    let given = json!({ "metadata": { "annotations": { "alpha.kubernetes.io/provided-node-ip": own } } });
    lab.kube_nodes().patch(&name, &PatchParams::default(), &Patch::Merge(given)).await.unwrap();
    let controller = lab.controller(&["--region", "zrh", "--disable-lb-ip-pool"]).await;
    let node = until_node(&lab, &name, "both taints are gone", |node| {
        let taints = node.spec.as_ref()?.taints.as_ref()?;
        let there = |key: &str| taints.iter().any(|taint| taint.key == key);
        let new =
            there("node.cloudprovider.kubernetes.io/uninitialized") || there("node.cluster.x-k8s.io/uninitialized");
        (!new && there("dedicated")).then(|| node.clone())
    })
    .await;
    assert_eq!(node.spec.as_ref().unwrap().provider_id, Some(format!("cloudsigma://{server}")));
    assert_eq!(node.labels()["topology.kubernetes.io/region"], "zrh");
    assert_eq!(node.labels()["node.kubernetes.io/instance-type"], "4000mhz-4096mb");
    let addresses = node.status.unwrap().addresses.unwrap();
    assert!(addresses.iter().any(|a| a.type_ == "ExternalIP" && a.address == own.to_string()), "{addresses:?}");
    controller.stop().await;
}

/// Two nodes, of which the second one has lost its server: lab, controller, node and server.
async fn with_a_lost_server(name: &str) -> (Lab, Controller, String, String) {
    let lab = Lab::new(name, 1).await;
    let lost = format!("{}-lost", lab.namespace);
    let server = lab.cloud.account(|account| account.add_server(&lost, Nic::Manual));
    lab.add_node(&lost, &json!({ "providerID": format!("cloudsigma://{server}") }), true).await;
    let controller = lab.controller(&["--disable-lb-ip-pool"]).await;
    until_node(&lab, &lost, "its server was seen", |node| {
        node.annotations().get("groundcrew.dev/cloudsigma-account").map(drop)
    })
    .await;
    lab.cloud.account(|account| account.servers.remove(&server));
    (lab, controller, lost, server)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_server_is_gone_is_deleted_once_it_is_not_ready() {
    let (lab, controller, lost, server) = with_a_lost_server("cs-gone").await;
    until_asked_for(&lab, &server, lab.cloud.calls().len()).await;
    lab.kube_nodes().get(&lost).await.expect("a node that is ready is not deleted");
    lab.set_ready(&lost, false).await;
    eventually("the node is gone", SOON, async || match lab.kube_nodes().get_opt(&lost).await? {
        None => Ok(()),
        Some(_) => Err(anyhow::anyhow!("still there")),
    })
    .await
    .unwrap();
    lab.kube_nodes().get(lab.node(1)).await.unwrap();
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_denial_a_failure_or_half_a_list_deletes_no_node() {
    let denied = json!({ "error_type": "permission", "error_message": "no" }).to_string();
    for (path, effect) in [
        ("servers/0", Effect::Answer(403, denied)),
        ("servers/0", Effect::Answer(404, "<html>nginx</html>".into())),
        ("servers/detail/", Effect::CutList(0)),
    ] {
        let (lab, controller, lost, server) = with_a_lost_server("cs-denied").await;
        lab.cloud.fault(Fault::on("GET", path, effect));
        let since = lab.cloud.calls().len();
        lab.set_ready(&lost, false).await;
        until_asked_for(&lab, &server, since).await;
        lab.kube_nodes().get(&lost).await.expect("nothing proves that its server is gone");
        controller.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_server_is_stopped_is_tainted_until_it_runs_again() {
    let lab = Lab::new("cs-taint", 1).await;
    let controller = lab.controller(&["--disable-lb-ip-pool"]).await;
    let server = lab.nodes[0].1.clone();
    let tainted = |node: &Node| {
        let taints = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
        taints.iter().any(|taint| taint.key == "node.cloudprovider.kubernetes.io/shutdown")
    };
    lab.cloud.account(|account| account.set_status(&server, "stopped"));
    until_node(&lab, lab.node(1), "the node is tainted", |node| tainted(node).then_some(())).await;
    lab.cloud.account(|account| account.set_status(&server, "running"));
    until_node(&lab, lab.node(1), "the taint is gone", |node| (!tainted(node)).then_some(())).await;
    controller.stop().await;
}
