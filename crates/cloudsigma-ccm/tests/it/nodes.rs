//! Nodes follow their servers.

use groundcrew_testkit::cloudsigma::{Effect, Fault, Hold, Nic};
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
    until_read(lab, &format!("servers/{server}/"), 2, since).await;
}

async fn until_read(lab: &Lab, path: &str, times: usize, since: usize) {
    eventually(&format!("{path} was read"), SOON, async || {
        let calls = lab.cloud.calls().split_off(since);
        let paths: Vec<_> = calls.iter().map(|call| call.path.as_str()).collect();
        if paths.iter().filter(|read| read.starts_with(path)).count() >= times {
            Ok(())
        } else {
            Err(format!("{paths:?}"))
        }
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
    let controller = lab.stubborn(&["--disable-lb-ip-pool"]).await;
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

/// Together they are too many; one by one they would be few at every look.
#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_are_lost_together_and_become_unready_one_by_one_are_braked() {
    let lab = Lab::new("cs-brakes", 1).await;
    let lost = [1, 2].map(|n| format!("{}-lost{n}", lab.namespace));
    let mut servers = Vec::new();
    for node in &lost {
        let server = lab.cloud.account(|account| account.add_server(node, Nic::Manual));
        lab.add_node(node, &json!({ "providerID": format!("cloudsigma://{server}") }), true).await;
        servers.push(server);
    }
    let controller = lab.controller(&["--disable-lb-ip-pool", "--node-delete-limit", "1"]).await;
    for node in &lost {
        let seen = |node: &Node| node.annotations().get("groundcrew.dev/cloudsigma-account").map(drop);
        until_node(&lab, node, "its server was seen", seen).await;
    }
    lab.cloud.account(|account| account.servers.retain(|uuid, _| !servers.contains(uuid)));
    lab.set_ready(&lost[0], false).await;
    eventually("the first is deleted", SOON, async || match lab.kube_nodes().get_opt(&lost[0]).await? {
        None => Ok(()),
        Some(_) => Err(anyhow::anyhow!("still there")),
    })
    .await
    .unwrap();
    lab.set_ready(&lost[1], false).await;
    lab.until_node_event(&lost[1], "NodeKept").await;
    lab.kube_nodes().get(&lost[1]).await.expect("one has gone a moment ago");
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nodes_addresses_follow_its_server_and_never_have_a_floating_one() {
    let lab = Lab::new("cs-follow", 0).await;
    lab.add_ips([1]);
    lab.cloud.account(|account| account.live_nics = true);
    let name = format!("{}-node", lab.namespace);
    let server = lab.cloud.account(|account| account.add_server(&name, Nic::Dhcp(lab.ip(77))));
    lab.add_node(&name, &json!({ "providerID": format!("cloudsigma://{server}") }), true).await;
    lab.agents.live(&name);
    let controller = lab.controller(&["--mode", "attach"]).await;
    let has = |node: &Node, address: &str| {
        let addresses = node.status.as_ref().and_then(|status| status.addresses.clone()).unwrap_or_default();
        addresses.iter().any(|found| found.address == address)
    };
    let (first, second) = (lab.ip(77).to_string(), lab.ip(78).to_string());
    until_node(&lab, &name, "it has its address", |node| has(node, &first).then_some(())).await;
    lab.create("web", json!({}), json!({})).await;
    let floating = lab.until_served("web").await;
    assert_eq!(lab.cloud.ip(floating).unwrap()["server"]["uuid"], server, "a NIC of the node has it");
    // It was started anew, and DHCP gave it another one.
    lab.cloud.account(|account| {
        account.add_dynamic_ip(lab.ip(78));
        account.leases.values_mut().for_each(|lease| lease.clone_from(&second));
    });
    let node = until_node(&lab, &name, "it has the new address", |node| has(node, &second).then(|| node.clone())).await;
    assert!(!has(&node, &first), "{node:?}");
    assert!(!has(&node, &floating.to_string()), "{node:?}");
    controller.stop().await;
}

/// The node changes during each question about its server.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_became_ready_while_its_server_was_asked_for_is_not_deleted() {
    let (lab, controller, lost, server) = with_a_lost_server("cs-back").await;
    let (hold, mut asked) = (Hold::default(), 0);
    lab.cloud.fault(Fault::on("GET", format!("servers/{server}/"), Effect::Held(hold.clone())));
    let mut next = async || {
        asked += 1;
        eventually("the server is asked for", SOON, async || {
            let arrived = hold.arrived();
            if arrived >= asked { Ok(()) } else { Err(arrived) }
        })
        .await
        .unwrap();
    };
    next().await;
    // Until it has heard in time that the node is not ready, it asks for a ready one.
    eventually("it was about to delete the node", SOON, async || {
        for ready in [false, true] {
            lab.set_ready(&lost, ready).await;
            hold.let_one_go();
            next().await;
        }
        lab.node_event(&lost, "DeletingNode").await
    })
    .await
    .unwrap();
    lab.kube_nodes().get(&lost).await.expect("it was deleted in another state than the one that was looked at");
    hold.end();
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_denial_a_failure_or_half_a_list_deletes_no_node() {
    let denied = json!({ "error_type": "permission", "error_message": "no" }).to_string();
    for (list, effect) in [
        (None, Effect::Answer(403, denied)),
        (None, Effect::Answer(404, "<html>nginx</html>".into())),
        (None, Effect::Answer(500, "<html>Internal Server Error</html>".into())),
        (Some("servers/detail/"), Effect::CutList(0)),
    ] {
        let (lab, controller, lost, server) = with_a_lost_server("cs-denied").await;
        // Half a list is filled from the last whole one, which is to have noticed the loss.
        until_asked_for(&lab, &server, lab.cloud.calls().len()).await;
        let path = list.map_or_else(|| format!("servers/{server}/"), str::to_owned);
        lab.cloud.fault(Fault::on("GET", path.clone(), effect));
        // A look on a whole list may still be under way.
        until_read(&lab, &path, 2, lab.cloud.calls().len()).await;
        lab.set_ready(&lost, false).await;
        until_read(&lab, &path, 3, lab.cloud.calls().len()).await;
        lab.kube_nodes().get(&lost).await.expect("nothing proves that its server is gone");
        controller.stop().await;
    }
}

/// As after a wrong password file: it answers, and has no server at all.
#[tokio::test(flavor = "multi_thread")]
async fn an_account_that_has_no_nodes_server_deletes_no_node_and_says_so() {
    let (lab, controller, lost, _) = with_a_lost_server("cs-wrong").await;
    lab.cloud.account(|account| account.servers.clear());
    // A list that was read in between had the other node's server: the account would be the right one.
    until_read(&lab, "servers/detail/", 2, lab.cloud.calls().len()).await;
    lab.set_ready(&lost, false).await;
    let note = lab.until_node_event(&lost, "NodeKept").await;
    assert!(note.contains("is it the right one?"), "{note}");
    lab.kube_nodes().get(&lost).await.expect("a wrong account proves nothing");
    controller.stop().await;
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
