//! What a node does with an address that is its own, and with those that are not.

use std::time::Duration;

use anyhow::ensure;
use groundcrew_testkit::{Signal, eventually};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::lab::{Lab, SOON, python};

#[tokio::test]
async fn an_address_is_on_the_node_that_is_named_and_moves_when_another_is() {
    let lab = Lab::started(2, &[]).await;
    let asking = lab.ask().await;
    lab.place(0).await;
    lab.until_held(0).await;
    lab.until_answers(&asking, 0).await;
    let addresses = lab.addresses(0).await;
    let line = addresses.lines().find(|line| line.contains(&format!(" {}/32 ", lab.address))).unwrap();
    assert!(line.contains("deprecated") && line.contains("noprefixroute"), "{addresses}");
    assert!(addresses.contains("preferred_lft 0sec"), "{addresses}");

    lab.place(1).await;
    lab.until_held(1).await;
    lab.until_answers(&asking, 1).await;
    lab.until_gone(0).await;
    lab.place(0).await;
    lab.until_held(0).await;
    lab.until_answers(&asking, 0).await;
    lab.assert_answered_in_turn(&asking, &[0, 1, 0]);
}

#[tokio::test]
async fn of_two_interfaces_with_default_routes_the_preferred_one_has_the_address_unless_the_other_is_named() {
    let mut lab = Lab::new(1, &[]).await;
    let mac = "02:00:00:00:01:01";
    for line in [
        format!("link add eth1 address {mac} type veth peer name peer1"),
        "link set peer1 up".into(),
        "link set eth1 up".into(),
        "address add 203.0.113.10/24 dev eth1".into(),
        "route add default via 203.0.113.1 dev eth1 metric 50".into(),
    ] {
        lab.wire.nodes[0].run("ip", &line.split(' ').collect::<Vec<_>>()).await.unwrap();
    }
    lab.start(0);
    lab.until_alive(0).await;
    lab.place(0).await;
    lab.until_held(0).await;
    let there = format!(" {}/32 ", lab.address);
    let on = async |interface: &str| {
        let addresses = lab.wire.nodes[0].run("ip", &["address", "show", "dev", interface]).await.unwrap();
        addresses.contains(&there)
    };
    assert!(on("eth0").await && !on("eth1").await, "the kernel itself prefers the route with the lower metric");

    let patch = Patch::Merge(json!({ "spec": { "mac": mac } }));
    let name = groundcrew_api::floating_ip::FloatingIP::name_of(lab.address);
    lab.floating_ips().patch(&name, &PatchParams::default(), &patch).await.unwrap();
    eventually("it is on the interface that is named, and on no other", SOON, async || {
        let (old, new) = (on("eth0").await, on("eth1").await);
        ensure!(!old && new, "{old} {new}");
        Ok(())
    })
    .await
    .unwrap();
    lab.until_held(0).await;
}

#[tokio::test]
async fn an_ipv6_address_moves_likewise() {
    let mut lab = Lab::started(2, &[]).await;
    let number = lab.namespace.rsplit('-').next().unwrap();
    lab.address = format!("2001:db8:51::f00:{number}").parse().unwrap();
    let asking = lab.ask().await;
    for node in [0, 1] {
        lab.place(node).await;
        lab.until_held(node).await;
        lab.until_answers(&asking, node).await;
    }
    lab.until_gone(0).await;
    lab.assert_answered_in_turn(&asking, &[0, 1]);
}

#[tokio::test]
async fn an_agent_that_is_asked_to_stop_leaves_nothing_behind_and_says_so() {
    let mut lab = Lab::started(1, &[]).await;
    lab.place(0).await;
    for _ in 0..5 {
        lab.until_held(0).await;
        lab.agent(0).end(Signal::SIGTERM).await.unwrap();
        assert!(!lab.addresses(0).await.contains(&lab.address.to_string()));
        let tables = lab.wire.nodes[0].run("nft", &["list", "tables"]).await.unwrap();
        assert!(!tables.contains("groundcrew"), "{tables}");
        let status = lab.object().await.unwrap().status.unwrap();
        assert_eq!(status.holder, None);
        let holder = lab.lease(0).await.unwrap().spec.unwrap().holder_identity;
        if holder.as_deref() == Some("") {
            return;
        }
        // It has a second for that: where the API server is too busy to answer, the Lease runs out by itself.
        let log = lab.agent(0).log();
        assert!(log.contains("Lease not given back: no answer"), "{holder:?} holds it: {log}");
        lab.start(0);
    }
    panic!("five times no answer: {}", lab.agent(0).log());
}

#[tokio::test]
async fn the_lease_of_a_node_belongs_to_its_node_object() {
    let mut lab = Lab::new(1, &[]).await;
    let nodes: Api<Node> = Api::all(lab.client.clone());
    let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": lab.name(0) } });
    let node = nodes.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
    lab.start(0);
    // A Node that was not read in time is looked for again after a minute.
    eventually("the Lease has an owner", Duration::from_mins(3), async || {
        let owners = lab.lease(0).await?.metadata.owner_references.unwrap_or_default();
        ensure!(owners.first().map(|owner| &owner.uid) == node.metadata.uid.as_ref(), "{owners:?}");
        Ok(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_dry_run_is_refused_before_anything_is_touched() {
    let mut lab = Lab::new(1, &["--dry-run"]).await;
    lab.start(0);
    let status = lab.agent(0).wait_exit(SOON).await.unwrap();
    assert!(!status.success() && lab.agent(0).log().contains("no --dry-run"), "{}", lab.agent(0).log());
    assert!(lab.lease(0).await.is_err());
}

#[tokio::test]
async fn an_object_that_is_deleted_takes_its_address_along() {
    let lab = Lab::started(1, &[]).await;
    lab.place(0).await;
    lab.until_held(0).await;
    let name = groundcrew_api::floating_ip::FloatingIP::name_of(lab.address);
    lab.floating_ips().delete(&name, &DeleteParams::default()).await.unwrap();
    lab.until_gone(0).await;
}

#[tokio::test]
async fn an_address_that_the_node_has_from_somebody_else_is_never_touched() {
    let lab = Lab::started(1, &[]).await;
    let network = format!("{}/32", lab.address);
    lab.wire.nodes[0].run("ip", &["address", "add", &network, "dev", "eth0"]).await.unwrap();
    lab.place(0).await;
    lab.until_refused("AddressForeign").await;
    let addresses = lab.addresses(0).await;
    let line = addresses.lines().skip_while(|line| !line.contains(&network)).nth(1).unwrap();
    assert!(line.contains("valid_lft forever"), "{addresses}");

    lab.agent(0).end(Signal::SIGTERM).await.unwrap();
    assert!(lab.addresses(0).await.contains(&network), "neither at the end");
}

#[tokio::test]
async fn an_address_that_another_host_answers_for_is_not_taken_until_it_stops() {
    let lab = Lab::started(1, &[]).await;
    let network = format!("{}/32", lab.address);
    lab.wire.outside.run("ip", &["address", "add", &network, "dev", "eth0"]).await.unwrap();
    lab.place(0).await;
    lab.until_refused("AddressInUse").await;
    assert!(!lab.addresses(0).await.contains(&lab.address.to_string()));
    let condition = lab.object().await.unwrap().status.unwrap().conditions.remove(0);
    assert!(condition.message.contains(lab.wire.outside.mac()), "{}", condition.message);

    lab.wire.outside.run("ip", &["address", "del", &network, "dev", "eth0"]).await.unwrap();
    lab.until_held(0).await;
}

/// As kube-proxy in IPVS mode does it: every node has every address, on a device that leads nowhere, and would answer.
#[tokio::test]
async fn a_node_with_an_address_that_it_does_not_hold_answers_neither_arp_nor_packets() {
    let lab = Lab::started(2, &[]).await;
    lab.place(0).await;
    lab.until_held(0).await;
    // Before it has heard of the address, it cannot know that it must not answer.
    lab.until_guarded(1).await;
    let network = format!("{}/32", lab.address);
    lab.wire.nodes[1].run("ip", &["address", "add", &network, "dev", "lo"]).await.unwrap();
    let asking = lab.ask().await;
    lab.until_answers(&asking, 0).await;
    let many = asking.answers().len() + 40;
    eventually("forty more answers", SOON, async || {
        let count = asking.answers().len();
        ensure!(count >= many, "{count} of {many}");
        Ok(())
    })
    .await
    .unwrap();
    lab.assert_answered_in_turn(&asking, &[0]);

    // A client that still remembers the other node, where a service proxy would answer.
    let server = "import socket\ns = socket.create_server(('0.0.0.0', 9090))\nprint('serving', flush=True)\nwhile True: s.accept()[0].close()";
    let server = lab.wire.nodes[1].spawn("server", &python(server)).unwrap();
    let serving = async || {
        ensure!(server.log().contains("serving"), "not yet");
        Ok(())
    };
    server.wait_ready(SOON, serving).await.unwrap();
    let (outside, mac) = (&lab.wire.outside, lab.wire.nodes[1].mac());
    let stale = ["neighbour", "replace", &lab.address.to_string(), "lladdr", mac, "dev", "eth0", "nud", "permanent"];
    outside.run("ip", &stale).await.unwrap();
    let connect = async |address: String| {
        let script = format!(
            "import socket\ntry: socket.create_connection(('{address}', 9090), 1); print('connected')\nexcept OSError as e: print(type(e).__name__)"
        );
        outside.run("python3", &["-I", "-c", &script]).await.unwrap().trim().to_owned()
    };
    assert_eq!(connect(lab.wire.nodes[1].address().to_string()).await, "connected");
    assert_eq!(connect(lab.address.to_string()).await, "TimeoutError");
}
