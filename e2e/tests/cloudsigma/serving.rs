//! What a Service gets, and what is left of it.

use std::collections::BTreeSet;

use groundcrew_e2e::cloudsigma::{Options, SOON, World};
use groundcrew_testkit::eventually;
use groundcrew_testkit::kube::ProxyMode;
use groundcrew_testkit::wire::{Requesting, now};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::{ADDRESS, serve, start};

async fn from_creation_to_deletion(proxy: ProxyMode) {
    let world = start(Options { proxy: Some(proxy), ..Options::default() }).await;
    world.subscribe(ADDRESS).await.unwrap();
    let before = world.cloud.snapshot();
    let (first, asking, requesting) = serve(&world).await;
    assert_ne!(world.cloud.snapshot().ips, before.ips, "the address is marked");

    until_all_backends(&world, &requesting).await;
    let nodes: Api<Node> = Api::all(world.client.clone());
    let node = nodes.get(world.nodes[first].name()).await.unwrap();
    let taints = node.spec.unwrap().taints.unwrap_or_default();
    assert!(taints.iter().all(|taint| !taint.key.ends_with("/uninitialized")), "{taints:?}");
    assert_eq!(node.metadata.labels.unwrap()["topology.kubernetes.io/region"], "zrh");

    // A planned move: the old node lets go before the new one takes it.
    let cordoned = now().unwrap();
    world.cordon(first, true).await.unwrap();
    let second = world.until_held(ADDRESS, |node| node != first).await.unwrap();
    world.until_answers(&asking, second).await.unwrap();
    world.until_steady(&requesting, now().unwrap(), 100).await.unwrap();
    let after: Vec<_> = requesting.requests().into_iter().filter(|request| request.sent > cordoned).collect();
    let lost = after.iter().filter(|request| request.answer.is_none()).count();
    // The bar of the benchmark is lower; here anything may run beside.
    assert!(lost <= 50, "a second's worth of requests at most: {lost}");
    world.cordon(first, false).await.unwrap();

    world.delete("web").await.unwrap();
    world.until_account_is(&before).await.unwrap();
    world.until_not_at(second, ADDRESS).await.unwrap();
    assert_eq!(world.floating_ips().await.unwrap().len(), 0);
    world.ensure_answered_in_turn(&asking, &[first, second]).unwrap();
    world.ensure_never_refused().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "make e2e-cloudsigma"]
async fn a_service_is_served_moved_and_deleted_with_kube_proxy_in_iptables_mode() {
    from_creation_to_deletion(ProxyMode::Iptables).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "make e2e-cloudsigma"]
async fn a_service_is_served_moved_and_deleted_with_kube_proxy_in_nftables_mode() {
    from_creation_to_deletion(ProxyMode::Nftables).await;
}

const PORTS: &[u16] = &[
    9101, 9102, 9103, 9104, 9105, 9106, 9107, 9108, 9109, 9110, 9111, 9112, 9113, 9114, 9115, 9116, 9117, 9118, 9119,
    9120, 9121, 9122, 9123, 9124, 9125, 9126, 9127, 9128, 9129, 9130,
];

/// Thirty ports of TCP and one of UDP beside the first, each with another target port; backends see the client.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "make e2e-cloudsigma"]
async fn thirty_ports_and_udp_beside_tcp_reach_their_targets_on_a_node_that_has_an_endpoint() {
    let options = Options { ports: PORTS, controller: &["--minimum-hold", "0s"], ..Options::default() };
    let world = start(options).await;
    world.subscribe(ADDRESS).await.unwrap();
    let tcp = PORTS.iter().map(|port| (format!("tcp{port}"), "TCP", *port));
    let ports: Vec<_> = tcp.chain([(format!("udp{}", PORTS[0]), "UDP", PORTS[0])]).collect();
    let described: Vec<_> = ports
        .iter()
        .map(|(name, protocol, port)| json!({ "name": name, "protocol": protocol, "port": port - 1000, "targetPort": port }))
        .collect();
    let spec = json!({ "ports": described, "externalTrafficPolicy": "Local" });
    world.endpoints("many", &[1], &ports).await.unwrap();
    world.create("many", &spec).await.unwrap();
    assert_eq!(world.until_served("many").await.unwrap(), ADDRESS);
    for node in [1, 2] {
        world.endpoints("many", &[node], &ports).await.unwrap();
        assert_eq!(world.until_held(ADDRESS, |holder| holder == node).await.unwrap(), node);
        let expected = format!("{{'node-{node} {}'}}", world.wire.outside.address());
        eventually(&format!("node {node} answers on every port"), SOON, async || {
            let said = world.wire.outside.run("python3", &["-I", "-c", ALL_PORTS]).await?;
            anyhow::ensure!(said.trim() == expected, "{said}");
            Ok(())
        })
        .await
        .unwrap();
    }
    world.ensure_never_refused().unwrap();
}

const ALL_PORTS: &str = "
import socket
heard = set()
for port in range(8101, 8131):
    heard.add(socket.create_connection(('198.51.100.100', port), 2).makefile().readline().strip())
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.settimeout(2)
udp.sendto(b'?', ('198.51.100.100', 8101))
heard.add(udp.recv(100).decode())
print(heard)
";

#[tokio::test(flavor = "multi_thread")]
#[ignore = "make e2e-cloudsigma"]
async fn without_kube_proxy_the_nodes_balance_by_themselves_and_keep_to_source_ranges() {
    let world = start(Options { proxy: None, controller: &["--nat"], ..Options::default() }).await;
    world.subscribe(ADDRESS).await.unwrap();
    let before = world.cloud.snapshot();
    let (first, asking, requesting) = serve(&world).await;
    until_all_backends(&world, &requesting).await;
    world.cordon(first, true).await.unwrap();
    let second = world.until_held(ADDRESS, |node| node != first).await.unwrap();
    world.until_answers(&asking, second).await.unwrap();
    world.until_steady(&requesting, now().unwrap(), 100).await.unwrap();

    let ranges = async |ranges: Value| {
        let patch = Patch::Merge(json!({ "spec": { "loadBalancerSourceRanges": ranges } }));
        world.services().patch("web", &PatchParams::default(), &patch).await.unwrap();
    };
    ranges(json!(["192.0.2.0/24"])).await;
    eventually("nobody answers who is not in the range", SOON, async || {
        let requests = requesting.requests();
        let silent = requests.iter().rev().take_while(|request| request.answer.is_none()).count();
        if silent >= 50 { Ok(()) } else { Err(format!("{silent} requests without an answer")) }
    })
    .await
    .unwrap();
    ranges(json!(["192.0.2.0/24", format!("{}/32", world.wire.outside.address())])).await;
    world.until_steady(&requesting, now().unwrap(), 100).await.unwrap();

    world.delete("web").await.unwrap();
    world.until_account_is(&before).await.unwrap();
    eventually("the tables are gone", SOON, async || {
        let tables = world.wire.nodes[second].run("nft", &["list", "tables"]).await?;
        anyhow::ensure!(!tables.contains("groundcrew_nat"), "{tables}");
        Ok(())
    })
    .await
    .unwrap();
    world.ensure_answered_in_turn(&asking, &[first, second]).unwrap();
    world.ensure_never_refused().unwrap();
}

async fn until_all_backends(world: &World, requesting: &Requesting) {
    eventually("every node's backend has answered", SOON, async || {
        let answers: BTreeSet<_> = requesting.requests().into_iter().filter_map(|request| request.answer).collect();
        let backends: BTreeSet<_> = answers.iter().filter_map(|answer| answer.split(' ').next()).collect();
        if backends.len() == world.nodes.len() { Ok(()) } else { Err(format!("{backends:?}")) }
    })
    .await
    .unwrap();
}

/// Or the other tests would show nothing about addresses that are the account's.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "make e2e-cloudsigma"]
async fn the_clouds_firewall_lets_no_address_through_that_the_account_does_not_subscribe_to() {
    let world = start(Options { nodes: 1, proxy: None, ..Options::default() }).await;
    let node = &world.wire.nodes[0];
    let ping = async || world.wire.outside.run("python3", &["-I", "-c", CONNECT]).await.unwrap().trim().to_owned();
    node.run("ip", &["address", "add", "198.51.100.100/32", "dev", "eth0"]).await.unwrap();
    assert_eq!(ping().await, "no answer");
    world.subscribe(ADDRESS).await.unwrap();
    eventually("it is let through", SOON, async || {
        let said = ping().await;
        if said.starts_with("node-0") { Ok(()) } else { Err(said) }
    })
    .await
    .unwrap();
}

const CONNECT: &str = "
import socket
try:
    print(socket.create_connection(('198.51.100.100', 9090), 1).recv(100).decode())
except OSError:
    print('no answer')
";
