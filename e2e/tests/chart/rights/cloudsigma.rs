//! `cloudsigma-ccm` on the simulated cloud, and its agents on nodes with a network.

use std::net::IpAddr;

use anyhow::{anyhow, ensure};
use groundcrew_api::floating_ip::FloatingIP;
use groundcrew_api::names::class;
use groundcrew_testkit::cloudsigma::{CLIENT_ID, CLIENT_SECRET, CloudSigma, Nic, PASSWORD, USER};
use groundcrew_testkit::process::Process;
use groundcrew_testkit::wire::Wire;
use groundcrew_testkit::{Signal, eventually};
use k8s_openapi::api::core::v1::{Node, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use super::{Installed, SOON, namespace};

const PROJECT: &str = "shop";
/// The taint of a node that nobody has initialised.
const NEW: &str = "node.cloudprovider.kubernetes.io/uninitialized";

fn set(values: &[(&str, &str)]) -> Vec<String> {
    values
        .iter()
        .flat_map(|(path, value)| ["--set".to_owned(), format!("controllers.cloudsigma-ccm.{path}={value}")])
        .collect()
}

async fn add_node(client: &Client, name: &str, spec: &Value) {
    let nodes: Api<Node> = Api::all(client.clone());
    let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name }, "spec": spec });
    nodes.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
    set_ready(client, name, true).await;
}

async fn set_ready(client: &Client, name: &str, ready: bool) {
    let nodes: Api<Node> = Api::all(client.clone());
    let status = if ready { "True" } else { "False" };
    let patch = json!({ "status": { "conditions": [{ "type": "Ready", "status": status }] } });
    nodes.patch_status(name, &PatchParams::default(), &Patch::Strategic(patch)).await.unwrap();
}

/// A server that becomes a node, and a node whose server goes away.
async fn follow_nodes(client: &Client, cloud: &CloudSigma) {
    let nodes: Api<Node> = Api::all(client.clone());
    // An account without any node's server would be the wrong one.
    let lasting = cloud.account(|account| account.add_server("lasting", Nic::Manual));
    add_node(client, "lasting", &json!({ "providerID": format!("cloudsigma://{lasting}") })).await;
    let own: IpAddr = [198, 18, 0, 77].into();
    let server = cloud.account(|account| account.add_server("fresh", Nic::Dhcp(own)));
    let taint = json!([{ "key": NEW, "value": "true", "effect": "NoSchedule" }]);
    add_node(client, "fresh", &json!({ "taints": taint })).await;
    let given = json!({ "metadata": { "annotations": { "alpha.kubernetes.io/provided-node-ip": own } } });
    nodes.patch("fresh", &PatchParams::default(), &Patch::Merge(given)).await.unwrap();
    eventually("the new node is initialised", SOON, async || {
        let node = nodes.get("fresh").await?;
        let known = node.annotations().contains_key("groundcrew.dev/cloudsigma-account");
        let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
        ensure!(known && !taints.iter().any(|taint| taint.key == NEW), "{:?}", node.spec);
        Ok(())
    })
    .await
    .unwrap();
    cloud.account(|account| account.servers.remove(&server));
    set_ready(client, "fresh", false).await;
    eventually("the node goes with its server", SOON, async || match nodes.get_opt("fresh").await? {
        None => Ok(()),
        Some(_) => Err(anyhow!("still there")),
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::too_many_lines, reason = "one story, told in its order")]
async fn a_service_on_cloudsigma_is_served_moved_and_released_with_the_rights_of_the_chart() {
    let cloud = CloudSigma::start().await.unwrap();
    let mut sets = set(&[
        ("apiUrl", &cloud.url()),
        ("username", USER),
        (
            "extraArgs",
            "{--discovery-interval=1s,--claim-settle=500ms,--minimum-hold=1s,--scan-interval=1s,--orphan-age=1s}",
        ),
    ]);
    sets.extend(
        ["ovn-lb", "lb-watcher", "routegc", "flight", "net-probe", "deorbit"]
            .iter()
            .flat_map(|off| ["--set".to_owned(), format!("controllers.{off}.enabled=false")]),
    );
    // The operator's kinds are not there.
    sets.extend(
        ["--set", "prometheus.serviceMonitor.enabled=false", "--set", "prometheus.prometheusRule.enabled=false"]
            .map(str::to_owned),
    );
    let installed = Installed::new("all", &sets).await;
    let client = installed.client.clone();
    installed.mount("cloudsigma", "password", PASSWORD);

    let mut wire = Wire::start(2).await.unwrap();
    let agent = installed.identity("node-agent").await;
    let mut agents: Vec<(String, Process)> = Vec::new();
    for number in 0..2 {
        let machine = &mut wire.nodes[number];
        machine.forward(installed.plane.address()).await.unwrap();
        let name = machine.name().to_owned();
        let server = cloud.account(|account| account.add_server(&name, Nic::Manual));
        let mac = machine.mac().to_owned();
        cloud.account(|account| account.servers.get_mut(&server).map(|server| server["nics"][0]["mac"] = mac.into()));
        add_node(&client, &name, &json!({ "providerID": format!("cloudsigma://{server}") })).await;
        let mut command = installed.command("node-agent", &agent);
        command.env("GROUNDCREW_NODE_NAME", &name).env("GROUNDCREW_NODE_IP", machine.address().to_string());
        agents.push((name.clone(), machine.spawn(&name, &command).unwrap()));
    }
    let controller = installed.start("cloudsigma-ccm").await;
    follow_nodes(&client, &cloud).await;

    let address: IpAddr = [198, 51, 100, 100].into();
    cloud.account(|account| account.add_ip(address));
    namespace(&client, PROJECT).await;
    let services: Api<Service> = Api::namespaced(client.clone(), PROJECT);
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": "web" },
        "spec": {
            "type": "LoadBalancer", "loadBalancerClass": class::CLOUDSIGMA, "allocateLoadBalancerNodePorts": false,
            "ports": [{ "name": "http", "port": 80, "targetPort": 8080 }],
        },
    });
    let service: Service = serde_json::from_value(service).unwrap();
    services.create(&PostParams::default(), &service).await.unwrap();
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": { "name": "web", "labels": { "kubernetes.io/service-name": "web" } },
        "addressType": "IPv4", "ports": [{ "name": "http", "protocol": "TCP", "port": 8080 }],
        "endpoints": agents.iter().enumerate().map(|(n, (node, _))| json!({
            "addresses": [format!("10.1.0.{}", n + 1)], "conditions": { "ready": true }, "nodeName": node,
        })).collect::<Vec<_>>(),
    });
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), PROJECT);
    slices.create(&PostParams::default(), &serde_json::from_value(slice).unwrap()).await.unwrap();
    let served = async || {
        eventually("the Service has its address", SOON, async || {
            let status = services.get("web").await?.status;
            let ingress = status.as_ref().and_then(|status| status.load_balancer.as_ref()?.ingress.as_ref()?.first());
            let told = agents.iter().map(|(_, agent)| agent.last_words()).collect::<Vec<_>>().join("\n");
            ensure!(ingress.and_then(|i| i.ip.clone()) == Some(address.to_string()), "{status:?}\n{told}");
            Ok(())
        })
        .await
        .unwrap();
    };
    served().await;
    let floating: Api<FloatingIP> = Api::all(client.clone());
    let name = FloatingIP::name_of(address);
    let holder = floating.get(&name).await.unwrap().spec.holder.unwrap();
    let asking = wire.ask(address).await.unwrap();

    // Its node loses its power, and the other one answers.
    let (_, silent) = agents.iter().find(|(node, _)| *node == holder).unwrap();
    silent.end(Signal::SIGKILL).await.unwrap();
    let other = wire.nodes.iter().find(|machine| machine.name() != holder).unwrap();
    eventually("the other node answers", SOON, async || {
        let last = asking.answers().pop().map(|answer| answer.mac);
        ensure!(last.as_deref() == Some(other.mac()), "{last:?}");
        Ok(())
    })
    .await
    .unwrap();

    services.delete("web", &DeleteParams::default()).await.unwrap();
    eventually("nothing is left", SOON, async || {
        ensure!(services.get_opt("web").await?.is_none(), "the Service");
        ensure!(floating.get_opt(&name).await?.is_none(), "the FloatingIP");
        Ok(())
    })
    .await
    .unwrap();
    // Somebody removes finalizers by force: what is left is looked up before it is collected.
    services.create(&PostParams::default(), &service).await.unwrap();
    served().await;
    let torn = json!({ "metadata": { "finalizers": null } });
    controller.process.end(Signal::SIGTERM).await.unwrap();
    services.patch("web", &PatchParams::default(), &Patch::Merge(torn)).await.unwrap();
    services.delete("web", &DeleteParams::default()).await.unwrap();
    let controller = installed.start("cloudsigma-ccm").await;
    eventually("the address is free again", SOON, async || {
        ensure!(floating.get_opt(&name).await?.is_none(), "the FloatingIP");
        Ok(())
    })
    .await
    .unwrap();
    controller.process.end(Signal::SIGTERM).await.unwrap();
    for (_, agent) in agents.iter().filter(|(node, _)| *node != holder) {
        agent.end(Signal::SIGTERM).await.unwrap();
    }
    installed.assert_used_but("cloudsigma-ccm", &[]);
    installed.assert_used_but(
        "node-agent",
        &[
            ("events create", "it tells who else answers for an address"),
            ("floatingips get", "a FloatingIP is read again where somebody else was quicker"),
        ],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_and_the_token_of_the_csi_driver_need_no_more_than_the_chart_gives() {
    let cloud = CloudSigma::start().await.unwrap();
    let sets = set(&[
        ("apiUrl", &cloud.direct_url()),
        ("oauthUrl", &cloud.oauth_url()),
        ("userEmail", USER),
        ("clientId", CLIENT_ID),
        ("extraArgs", "{--discovery-interval=1s}"),
    ]);
    let installed = Installed::new("cloudsigma-ccm", &sets).await;
    installed.mount("cloudsigma", "client-secret", CLIENT_SECRET);
    let controller = installed.start("cloudsigma-ccm").await;
    follow_nodes(&installed.client, &cloud).await;
    let secrets: Api<Secret> = Api::namespaced(installed.client.clone(), "cloudsigma-csi");
    eventually("the Secret has a token", SOON, async || {
        let data = secrets.get("cloudsigma-token").await?.data.unwrap_or_default();
        ensure!(data.contains_key("access_token"), "{:?}", data.keys());
        Ok(())
    })
    .await
    .unwrap();
    controller.process.end(Signal::SIGTERM).await.unwrap();
    installed.assert_used_but("cloudsigma-ccm", &[]);
}
