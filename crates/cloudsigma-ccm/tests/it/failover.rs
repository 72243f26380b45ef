//! Addresses move when, and only when, they must.

use groundcrew_testkit::eventually;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::lab::{Lab, SOON};

const QUICK: &[&str] = &["--takeover-delay", "3s"];

#[tokio::test(flavor = "multi_thread")]
async fn the_addresses_of_a_dead_node_move_and_nobody_elses_do() {
    let lab = Lab::new("cs-dead", 3).await;
    lab.add_ips(1..=6);
    let controller = lab.controller(QUICK).await;
    let mut held = Vec::new();
    for n in 1..=6 {
        let name = format!("s{n}");
        lab.create(&name, json!({}), json!({})).await;
        let address = lab.until_served(&name).await;
        held.push((address, lab.until_held(address, |_| true).await));
    }
    let writes = lab.cloud.writes().len();
    let dead = lab.node(1).to_owned();
    assert!(held.iter().any(|(_, node)| *node == dead));
    lab.agents.die(&dead);
    for (address, node) in &held {
        let now = lab.until_held(*address, |now| now != dead).await;
        assert_eq!(now == *node, *node != dead, "{address} was on {node} and is on {now}");
        let evicted = lab.floating(*address).await.spec.evicted;
        assert_eq!(evicted.is_some(), *node == dead, "who lives is not evicted: {evicted:?}");
    }
    assert_eq!(lab.cloud.writes().len(), writes, "a move in manual mode needs no write of the cloud");

    // No fail-back.
    let versions = lab.versions().await;
    lab.agents.live(&dead);
    lab.create("new", json!({ "externalTrafficPolicy": "Cluster" }), json!({})).await;
    lab.until_reason("new", "PoolEmpty").await;
    let after: Vec<_> = lab.versions().await.into_iter().filter(|(name, _)| name != "new").collect();
    let moved = |list: &[(String, Option<String>)]| {
        list.iter().filter(|(name, _)| name.starts_with("198.")).cloned().collect::<Vec<_>>()
    };
    assert_eq!(moved(&after), moved(&versions));
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn when_most_agents_are_silent_nothing_moves_and_the_brake_says_so() {
    let lab = Lab::new("cs-brake", 3).await;
    lab.add_ips([1]);
    let controller = lab.controller(QUICK).await;
    lab.create("web", json!({}), json!({})).await;
    let address = lab.until_served("web").await;
    let holder = lab.until_held(address, |_| true).await;
    let serial = lab.floating(address).await.spec.serial;
    let other = lab.nodes.iter().map(|(node, _)| node).find(|node| **node != holder).unwrap();
    lab.agents.die(&holder);
    lab.agents.die(other);
    eventually("the brake is on", SOON, async || {
        let braked = controller.metric("groundcrew_floating_braked_bool").await;
        if braked > 0.0 { Ok(()) } else { Err("off") }
    })
    .await
    .unwrap();
    assert_eq!(lab.floating(address).await.spec.serial, serial);
    // One of two silent ones is heard again: the other is believed to be dead after the whole delay.
    lab.agents.live(other);
    assert_ne!(lab.until_held(address, |node| node != holder).await, holder);
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_drained_hands_its_addresses_over() {
    let lab = Lab::new("cs-drain", 2).await;
    lab.add_ips([1]);
    let controller = lab.controller(&[]).await;
    lab.create("web", json!({}), json!({})).await;
    let address = lab.until_served("web").await;
    let holder = lab.until_held(address, |_| true).await;
    let cordon = json!({ "spec": { "unschedulable": true } });
    lab.kube_nodes().patch(&holder, &PatchParams::default(), &Patch::Merge(cordon)).await.unwrap();
    let now = lab.until_held(address, |node| node != holder).await;
    assert_eq!(lab.floating(address).await.spec.evicted, None, "{holder} lives and handed it to {now}");
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_local_traffic_an_address_is_where_an_endpoint_is() {
    let lab = Lab::new("cs-local", 3).await;
    lab.add_ips([1]);
    let controller = lab.controller(&["--minimum-hold", "0s"]).await;
    lab.create("web", json!({ "externalTrafficPolicy": "Local" }), json!({})).await;
    lab.slice("web", &[lab.node(2)]).await;
    let address = lab.until_served("web").await;
    lab.until_held(address, |node| node == lab.node(2)).await;
    lab.slice("web", &[lab.node(3)]).await;
    lab.until_held(address, |node| node == lab.node(3)).await;
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_servers_addresses_move_at_once() {
    let lab = Lab::new("cs-stopped", 2).await;
    lab.add_ips([1]);
    // So long that only the server's status can be the reason.
    let controller = lab.controller(&["--takeover-delay", "10m"]).await;
    lab.create("web", json!({}), json!({})).await;
    let address = lab.until_served("web").await;
    let holder = lab.until_held(address, |_| true).await;
    let server = lab.nodes.iter().find(|(node, _)| *node == holder).unwrap().1.clone();
    lab.agents.die(&holder);
    lab.cloud.account(|account| account.set_status(&server, "stopped"));
    lab.until_held(address, |node| node != holder).await;
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_of_a_dead_node_can_be_released() {
    let lab = Lab::new("cs-deadrel", 2).await;
    lab.add_ips([1]);
    let before = lab.cloud.snapshot();
    let controller = lab.controller(QUICK).await;
    lab.create("web", json!({}), json!({})).await;
    let address = lab.until_served("web").await;
    let holder = lab.until_held(address, |_| true).await;
    lab.agents.die(&holder);
    lab.delete("web").await;
    lab.until_gone("web").await;
    lab.until_account(&before).await;
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_attach_mode_an_address_moves_by_detaching_and_attaching_a_nic() {
    let lab = Lab::new("cs-attach", 2).await;
    lab.add_ips([1]);
    lab.cloud.account(|account| account.live_nics = true);
    let before = lab.cloud.snapshot();
    let controller = lab.controller(&["--mode", "attach"]).await;
    lab.create("web", json!({}), json!({})).await;
    let address = lab.until_served("web").await;
    let holder = lab.until_held(address, |_| true).await;
    let server = |node: &str| lab.nodes.iter().find(|(name, _)| name == node).unwrap().1.clone();
    assert_eq!(lab.cloud.ip(address).unwrap()["server"]["uuid"], server(&holder));
    let cordon = json!({ "spec": { "unschedulable": true } });
    lab.kube_nodes().patch(&holder, &PatchParams::default(), &Patch::Merge(cordon)).await.unwrap();
    let now = lab.until_held(address, |node| node != holder).await;
    assert_eq!(lab.cloud.ip(address).unwrap()["server"]["uuid"], server(&now));
    lab.delete("web").await;
    lab.until_gone("web").await;
    lab.until_account(&before).await;
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_ignores_its_new_nic_is_told_and_nothing_is_published() {
    let lab = Lab::new("cs-ignored", 1).await;
    lab.add_ips([1]);
    let controller = lab.controller(&["--mode", "attach"]).await;
    lab.create("web", json!({}), json!({})).await;
    let message = lab.until_reason("web", "AttachIgnored").await;
    assert!(message.contains("--mode=manual"), "{message}");
    assert_eq!(super::lab::address(&lab.services().get("web").await.unwrap()), None);
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hard_fence_cuts_the_power_before_an_address_moves() {
    let lab = Lab::new("cs-fence", 2).await;
    lab.add_ips([1]);
    let controller = lab.controller(&["--takeover-delay", "3s", "--fence-stop"]).await;
    lab.create("web", json!({}), json!({})).await;
    let address = lab.until_served("web").await;
    let holder = lab.until_held(address, |_| true).await;
    let server = lab.nodes.iter().find(|(node, _)| *node == holder).unwrap().1.clone();
    lab.agents.die(&holder);
    lab.until_held(address, |node| node != holder).await;
    assert_eq!(lab.cloud.server(&server).unwrap()["status"], "stopped");
    let other = lab.nodes.iter().find(|(node, _)| *node != holder).unwrap().1.clone();
    assert_eq!(lab.cloud.server(&other).unwrap()["status"], "running");
    controller.stop().await;
}
