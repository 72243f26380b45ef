//! Addresses move when, and only when, they must.

use std::time::{Duration, Instant};

use groundcrew_api::names::{annotation, lease};
use groundcrew_testkit::cloudsigma::{Effect, Fault, Nic};
use groundcrew_testkit::eventually;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

use super::lab::{Lab, SOON};

const QUICK: &[&str] = &["--takeover-delay", "3s"];
const DELAY: Duration = Duration::from_secs(3);
/// For some tries of what fails: the pauses between them grow.
const TRIES: Duration = Duration::from_mins(5);

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
    // Their tags are the last that is written.
    lab.until_tagged(&held.iter().map(|(address, _)| *address).collect::<Vec<_>>()).await;
    let writes = lab.cloud.writes().len();
    let dead = held[0].1.clone();
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
    let (address, holder) = lab.serve("web").await;
    let serial = lab.floating(address).await.spec.serial;
    let other = lab.nodes.iter().map(|(node, _)| node).find(|node| **node != holder).unwrap();
    lab.agents.die(&holder);
    lab.agents.die(other);
    let died = Instant::now();
    eventually("the brake is on, and both are silent", SOON, async || {
        let braked = controller.is_braked().await;
        if braked && died.elapsed() > DELAY + Duration::from_secs(1) { Ok(()) } else { Err(format!("{braked}")) }
    })
    .await
    .unwrap();
    assert_eq!(lab.floating(address).await.spec.serial, serial);
    eventually("the operator is told in an Event", SOON, async || {
        let told = lab.events("FailoverBraked").await;
        // The third may have been late, too, when it was told.
        let most = |note: &String| note.starts_with("2 of 3 node agents") || note.starts_with("3 of 3 node agents");
        if told.iter().any(most) { Ok(()) } else { Err(format!("{told:?}")) }
    })
    .await
    .unwrap();
    // One of two silent ones is heard again: the other is believed to be dead after the whole delay.
    let heard = Instant::now();
    lab.agents.live(other);
    assert_ne!(lab.until_held(address, |node| node != holder).await, holder);
    assert!(heard.elapsed() >= DELAY, "it begins anew: {:?}", heard.elapsed());
    controller.stop().await;
}

/// Those that are cut off keep their addresses by what they knew: a Node that is gone may go on telling them to.
#[tokio::test(flavor = "multi_thread")]
async fn neither_a_deleted_node_nor_a_new_one_lifts_the_brake_and_a_stopped_server_does() {
    let mut lab = Lab::new("cs-braked", 3).await;
    lab.add_ips([1, 2]);
    let controller = lab.controller(&["--takeover-delay", "3s", "--scan-interval", "300ms"]).await;
    let (address, holder) = lab.serve("web").await;
    let serial = lab.floating(address).await.spec.serial;
    let (other, server) = lab.nodes.iter().find(|(node, _)| *node != holder).unwrap().clone();
    lab.agents.die(&holder);
    lab.agents.die(&other);
    controller.until_braked_by_the_dead(&lab).await;

    lab.kube_nodes().delete(&other, &DeleteParams::default()).await.map(drop).unwrap();
    let leases: Api<Lease> = Api::namespaced(lab.client.clone(), &lab.namespace);
    leases.delete(&lease::of_node(&other), &DeleteParams::default()).await.map(drop).unwrap();
    for n in [4, 5] {
        lab.join(&format!("{}-n{n}", lab.namespace)).await;
    }
    lab.create("new", json!({}), json!({})).await;
    lab.until_served("new").await;
    // More than the delay.
    controller.until_scanned(15).await;
    assert!(controller.is_braked().await);
    assert_eq!(lab.floating(address).await.spec.serial, serial);

    lab.cloud.account(|account| account.set_status(&server, "stopped"));
    lab.until_held(address, |node| node != holder).await;
    controller.stop().await;
}

/// What the brake counted is forgotten with the process; that a node had an address is not.
#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_controller_brakes_for_a_node_that_was_deleted_while_it_had_an_address() {
    let lab = Lab::new("cs-rebraked", 3).await;
    lab.add_ips(1..=3);
    let flags = ["--takeover-delay", "3s", "--scan-interval", "300ms"];
    let controller = lab.controller(&flags).await;
    let mut held = Vec::new();
    for n in 1..=3 {
        held.push(lab.serve(&format!("s{n}")).await);
    }
    let (address, holder) = held[0].clone();
    let other = held.iter().map(|(_, node)| node).find(|node| **node != holder).unwrap();
    let serial = lab.floating(address).await.spec.serial;
    lab.agents.die(&holder);
    lab.agents.die(other);
    controller.until_braked_by_the_dead(&lab).await;
    controller.stop().await;
    lab.kube_nodes().delete(other, &DeleteParams::default()).await.map(drop).unwrap();
    let leases: Api<Lease> = Api::namespaced(lab.client.clone(), &lab.namespace);
    leases.delete(&lease::of_node(other), &DeleteParams::default()).await.map(drop).unwrap();

    let controller = lab.controller(&flags).await;
    controller.until_braked().await;
    // More than the delay.
    controller.until_scanned(15).await;
    assert!(controller.is_braked().await);
    assert_eq!(lab.floating(address).await.spec.serial, serial);
    lab.cloud.account(|account| account.set_status(lab.server(other), "stopped"));
    lab.until_held(address, |node| node != holder).await;
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_drained_hands_its_addresses_over() {
    let lab = Lab::new("cs-drain", 2).await;
    lab.add_ips([1]);
    let controller = lab.controller(&[]).await;
    let (address, holder) = lab.serve("web").await;
    lab.cordon(&holder, true).await;
    let now = lab.until_held(address, |node| node != holder).await;
    assert_eq!(lab.floating(address).await.spec.evicted, None, "{holder} lives and handed it to {now}");
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_should_hold_nothing_hands_its_addresses_over_whatever_says_so() {
    let lab = Lab::new("cs-unfit", 4).await;
    lab.add_ips([1]);
    let controller = lab.controller(&[]).await;
    lab.create("web", json!({}), json!({})).await;
    let address = lab.until_served("web").await;
    let label = json!({ "metadata": { "labels": { "node.kubernetes.io/exclude-from-external-load-balancers": "" } } });
    let taint = json!({ "spec": { "taints": [{ "key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule" }] } });
    let mut holder = lab.until_held(address, |_| true).await;
    for change in [Some(label), Some(taint), None] {
        match change {
            Some(change) => {
                let change = Patch::Merge(change);
                lab.kube_nodes().patch(&holder, &PatchParams::default(), &change).await.map(drop).unwrap();
            }
            None => lab.kube_nodes().delete(&holder, &DeleteParams::default()).await.map(drop).unwrap(),
        }
        let before = holder;
        holder = lab.until_held(address, |node| node != before).await;
        assert_eq!(lab.floating(address).await.spec.evicted, None, "{before} lives and handed it to {holder}");
    }
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_goes_to_another_physical_host_than_the_one_that_failed() {
    let lab = Lab::new("cs-host", 4).await;
    lab.add_ips([1]);
    let controller = lab.controller(QUICK).await;
    let (address, holder) = lab.serve("web").await;
    // All but one share the host that fails.
    let (far, _) = lab.nodes.iter().rfind(|(node, _)| *node != holder).unwrap();
    let (alone, together): (Vec<_>, Vec<_>) = lab.nodes.iter().cloned().partition(|(node, _)| node == far);
    let hosts = [alone, together].map(|host| host.into_iter().map(|(_, server)| server).collect());
    lab.cloud.account(|account| account.hosts = hosts.into());
    let asked = || lab.cloud.calls().iter().filter(|call| call.path.contains("availability_groups")).count();
    let before = asked();
    eventually("the controller has read it", SOON, async || {
        let now = asked();
        if now >= before + 2 { Ok(()) } else { Err(now) }
    })
    .await
    .unwrap();
    lab.agents.die(&holder);
    assert_eq!(lab.until_held(address, |node| node != holder).await, *far);
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_agent_says_that_it_cannot_hold_gets_nothing() {
    let lab = Lab::new("cs-unable", 3).await;
    lab.add_ips(1..=4);
    let leases: Api<Lease> = Api::namespaced(lab.client.clone(), &lab.namespace);
    let name = lease::of_node(lab.node(1));
    let unable = json!({ "metadata": { "annotations": { annotation::UNABLE: "the interface eth0 has no link" } } });
    eventually("its agent has a Lease", SOON, async || leases.get(&name).await.map(drop)).await.unwrap();
    leases.patch(&name, &PatchParams::default(), &Patch::Merge(unable)).await.unwrap();
    let controller = lab.controller(&[]).await;
    for n in 1..=4 {
        let service = format!("s{n}");
        lab.create(&service, json!({}), json!({})).await;
        let address = lab.until_served(&service).await;
        lab.until_held(address, |node| node != lab.node(1)).await;
    }
    controller.stop().await;
}

/// It has the least of all, so that every address would go there and come to nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_an_interface_for_addresses_hands_over_what_it_has_and_gets_nothing() {
    let lab = Lab::new("cs-nonic", 3).await;
    lab.add_ips(1..=9);
    // No agent is taken for dead, or its addresses were placed once more.
    let controller = lab.stubborn(&["--takeover-delay", "10m", "--claim-settle", "3s"]).await;
    lab.create("web", json!({}), json!({})).await;
    let address = lab.until_served("web").await;
    let broken = lab.until_held(address, |_| true).await;
    lab.agents.lose_interface(&broken);
    lab.until_held(address, |node| node != broken).await;
    for n in 1..=4 {
        lab.create(&format!("s{n}"), json!({}), json!({})).await;
    }
    for n in 1..=4 {
        let address = lab.until_served(&format!("s{n}")).await;
        lab.until_held(address, |node| node != broken).await;
        assert_eq!(lab.floating(address).await.spec.serial, 2, "it was not placed there first");
    }
    controller.stop().await;

    // Who does not know it yet finds out.
    let controller = lab.controller(&[]).await;
    lab.delete("s1").await;
    lab.until_gone("s1").await;
    lab.create("late", json!({}), json!({})).await;
    let address = lab.until_served("late").await;
    lab.until_held(address, |node| node != broken).await;
    controller.stop().await;
}

/// As when a server is made anew under the name of its node: there is no other node to go to.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_nic_was_replaced_is_told_the_new_one() {
    let lab = Lab::new("cs-nic", 1).await;
    lab.add_ips([1]);
    let controller = lab.controller(&[]).await;
    let (address, holder) = lab.serve("web").await;
    let before = lab.floating(address).await.spec;
    let mac = "22:aa:bb:cc:dd:ee";
    lab.cloud.account(|account| {
        account.servers.get_mut(lab.server(&holder)).unwrap()["nics"][0]["mac"] = mac.into();
    });
    eventually("it is told", SOON, async || {
        let spec = lab.floating(address).await.spec;
        if spec.mac.as_deref() == Some(mac) { Ok(()) } else { Err(format!("{spec:?}")) }
    })
    .await
    .unwrap();
    let spec = lab.floating(address).await.spec;
    assert_eq!((spec.serial, spec.holder), (before.serial, before.holder), "it stays where it is");
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_local_traffic_an_address_is_where_an_endpoint_is() {
    let lab = Lab::new("cs-local", 3).await;
    lab.add_ips([1]);
    let controller = lab.controller(&["--minimum-hold", "0s"]).await;
    lab.slice("web", &[lab.node(2)]).await;
    lab.create("web", json!({ "externalTrafficPolicy": "Local" }), json!({})).await;
    let address = lab.until_served("web").await;
    lab.until_held(address, |node| node == lab.node(2)).await;
    lab.slice("web", &[lab.node(3)]).await;
    lab.until_held(address, |node| node == lab.node(3)).await;
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_was_just_moved_follows_its_endpoints_only_after_a_while() {
    const HOLD: Duration = Duration::from_secs(6);
    let lab = Lab::new("cs-hold", 2).await;
    lab.add_ips([1]);
    let controller = lab.controller(&["--minimum-hold", "6s"]).await;
    let start = Instant::now();
    lab.slice("web", &[lab.node(1)]).await;
    lab.create("web", json!({ "externalTrafficPolicy": "Local" }), json!({})).await;
    let address = lab.until_served("web").await;
    lab.until_held(address, |node| node == lab.node(1)).await;
    lab.slice("web", &[lab.node(2)]).await;
    lab.until_held(address, |node| node == lab.node(2)).await;
    assert!(start.elapsed() >= HOLD, "{:?}", start.elapsed());
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dynamic_address_stays_with_its_dead_node_while_others_move() {
    let lab = Lab::new("cs-dynamic", 2).await;
    lab.add_ips([1, 2, 3, 4]);
    lab.cloud.account(|account| account.add_dynamic_ip(lab.ip(9)));
    let controller = lab.controller(QUICK).await;
    lab.create("dynamic", json!({}), json!({ "cloudsigma.com/ip-pool": "dynamic" })).await;
    lab.slice("dynamic", &[lab.node(1)]).await;
    assert_eq!(lab.until_served("dynamic").await, lab.ip(9));
    lab.until_reason("dynamic", "DynamicAddress").await;
    let dead = lab.until_held(lab.ip(9), |_| true).await;
    let mut beside = None;
    for service in ["a", "b", "c", "d"] {
        lab.create(service, json!({}), json!({})).await;
        let address = lab.until_served(service).await;
        if lab.until_held(address, |_| true).await == dead {
            beside = Some(address);
            break;
        }
    }
    let spec = lab.floating(lab.ip(9)).await.spec;
    lab.agents.die(&dead);
    lab.until_held(beside.unwrap(), |node| node != dead).await;
    assert_eq!(lab.floating(lab.ip(9)).await.spec, spec, "CloudSigma forbids it");
    controller.stop().await;
}

/// A new leader knows at once who is gone, and only a moment later which nodes have endpoints.
#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_moved_before_its_service_was_looked_at_does_not_rest_on_the_wrong_node() {
    let lab = Lab::new("cs-blind", 4).await;
    lab.add_ips([1]);
    let controller = lab.controller(&[]).await;
    lab.slice("web", &[lab.node(1)]).await;
    lab.create("web", json!({ "externalTrafficPolicy": "Local" }), json!({})).await;
    let address = lab.until_served("web").await;
    lab.until_held(address, |node| node == lab.node(1)).await;
    controller.stop().await;
    lab.cordon(lab.node(1), true).await;
    lab.slice("web", &[lab.node(4)]).await;
    let controller = lab.controller(&["--minimum-hold", "10m"]).await;
    lab.until_held(address, |node| node == lab.node(4)).await;
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_servers_addresses_move_at_once() {
    let lab = Lab::new("cs-stopped", 2).await;
    lab.add_ips([1]);
    // So long that only the server's status can be the reason.
    let controller = lab.controller(&["--takeover-delay", "10m"]).await;
    let (address, holder) = lab.serve("web").await;
    let server = lab.server(&holder).to_owned();
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
    let (_, holder) = lab.serve("web").await;
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
    let (address, holder) = lab.serve("web").await;
    assert_eq!(lab.cloud.ip(address).unwrap()["server"]["uuid"], lab.server(&holder));
    lab.cordon(&holder, true).await;
    let now = lab.until_held(address, |node| node != holder).await;
    assert_eq!(lab.cloud.ip(address).unwrap()["server"]["uuid"], lab.server(&now));
    lab.delete("web").await;
    lab.until_gone("web").await;
    lab.until_account(&before).await;
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_whose_node_was_deleted_is_taken_from_the_server_that_stays() {
    let lab = Lab::new("cs-nodeless", 2).await;
    lab.add_ips([1, 2]);
    lab.cloud.account(|account| account.live_nics = true);
    let before = lab.cloud.snapshot();
    let controller = lab.controller(&["--mode", "attach"]).await;
    let (address, holder) = lab.serve("web").await;
    lab.kube_nodes().delete(&holder, &DeleteParams::default()).await.map(drop).unwrap();
    let now = lab.until_held(address, |node| node != holder).await;
    assert_eq!(lab.cloud.ip(address).unwrap()["server"]["uuid"], lab.server(&now));
    // The last one goes as well: the Service can go all the same.
    lab.kube_nodes().delete(&now, &DeleteParams::default()).await.map(drop).unwrap();
    lab.delete("web").await;
    lab.until_gone("web").await;
    lab.until_account(&before).await;
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_its_server_does_not_let_go_is_attached_nowhere_else_and_that_is_told() {
    let lab = Lab::new("cs-stuck", 2).await;
    lab.add_ips([1]);
    lab.cloud.account(|account| account.live_nics = true);
    let controller = lab.controller(&["--mode", "attach"]).await;
    lab.create("web", json!({}), json!({})).await;
    lab.slice("web", &[lab.node(1), lab.node(2)]).await;
    let address = lab.until_served("web").await;
    let holder = lab.until_held(address, |_| true).await;
    let other = lab.nodes.iter().find(|(node, _)| *node != holder).unwrap().1.clone();
    lab.cloud.account(|account| account.live_nics = false);
    lab.cordon(&holder, true).await;
    assert!(lab.until_reason("web", "AttachIgnored").await.contains("accepted to detach"));
    assert_eq!(lab.cloud.ip(address).unwrap()["server"]["uuid"], lab.server(&holder));
    let writes = lab.cloud.writes();
    assert!(!writes.iter().any(|call| call.path == format!("servers/{other}/")), "{writes:?}");
    assert_eq!(super::lab::address(&lab.services().get("web").await.unwrap()), Some(address), "it is served there");
    lab.cordon(&holder, false).await;
    lab.until_reason("web", "Served").await;
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_ignores_the_switch_of_its_nic_is_written_once_and_told() {
    let lab = Lab::new("cs-unswitched", 0).await;
    lab.add_ips([1]);
    let node = format!("{}-dhcp", lab.namespace);
    let server = lab.cloud.account(|account| account.add_server(&node, Nic::Dhcp(lab.ip(88))));
    lab.add_node(&node, &json!({ "providerID": format!("cloudsigma://{server}") }), true).await;
    lab.agents.live(&node);
    let controller = lab.controller(&["--switch-nics"]).await;
    lab.create("web", json!({}), json!({})).await;
    lab.until_reason("web", "AttachIgnored").await;
    let path = format!("servers/{server}/");
    let count = |method: &str| lab.cloud.calls().iter().filter(|c| c.method == method && c.path == path).count();
    let reads = count("GET");
    eventually("it was tried three times more", TRIES, async || {
        let now = count("GET");
        if now >= reads + 3 { Ok(()) } else { Err(now) }
    })
    .await
    .unwrap();
    assert_eq!(count("PUT"), 1);
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
    // Each write is of the whole server, drives included: what was ignored once is not written again and again.
    let path = format!("servers/{}/", lab.nodes[0].1);
    let count = |method: &str| lab.cloud.calls().iter().filter(|c| c.method == method && c.path == path).count();
    let reads = count("GET");
    eventually("it was tried three times more", TRIES, async || {
        let now = count("GET");
        if now >= reads + 3 { Ok(()) } else { Err(now) }
    })
    .await
    .unwrap();
    assert_eq!(count("PUT"), 1);
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_that_comes_while_a_nic_is_attached_stays_and_is_told() {
    let lab = Lab::new("cs-drives", 1).await;
    lab.add_ips([1]);
    let server = lab.nodes[0].1.clone();
    lab.cloud.account(|account| account.live_nics = true);
    let (uuid, mut writes) = (server.clone(), 0);
    // The CSI driver's own write comes right after ours, and before it is read back.
    lab.cloud.fault(Fault::on(
        "GET",
        format!("servers/{server}/"),
        Effect::Before(Box::new(move |account| {
            let server = account.servers.get_mut(&uuid).unwrap();
            let attached = server["nics"].as_array().unwrap().len() == 2;
            if attached && writes == 0 {
                writes += 1;
                let volume = json!({ "dev_channel": "0:1", "device": "virtio", "drive": { "uuid": "a-volume" } });
                server["drives"].as_array_mut().unwrap().push(volume);
            }
        })),
    ));
    let controller = lab.controller(&["--mode", "attach"]).await;
    lab.create("web", json!({}), json!({})).await;
    let note = lab.until_node_event(lab.node(1), "DrivesChanged").await;
    assert!(note.contains("a-volume") && note.contains("check the volumes"), "{note}");
    lab.until_served("web").await;
    lab.delete("web").await;
    lab.until_gone("web").await;
    let after = lab.cloud.server(&server).unwrap();
    assert_eq!(after["drives"].as_array().unwrap().len(), 2, "{after}");
    assert_eq!(after["nics"].as_array().unwrap().len(), 1, "{after}");
    controller.stop().await;
}

/// Another cluster took the address away by hand, and attached it to a server of its own.
#[tokio::test(flavor = "multi_thread")]
async fn a_service_whose_address_another_cluster_has_attached_can_go() {
    let lab = Lab::new("cs-stolen", 1).await;
    lab.add_ips([1]);
    lab.cloud.account(|account| account.live_nics = true);
    let controller = lab.controller(&["--mode", "attach"]).await;
    lab.create("web", json!({}), json!({})).await;
    let address = lab.until_served("web").await;
    let theirs = lab.cloud.account(|account| {
        account.servers.get_mut(&lab.nodes[0].1).unwrap()["nics"].as_array_mut().unwrap().pop();
        account.ips.get_mut(&address.to_string()).unwrap()["meta"] = json!({ "groundcrew-cluster": "them" });
        account.add_server("theirs", Nic::Static(address))
    });
    lab.delete("web").await;
    lab.until_gone("web").await;
    assert_eq!(lab.cloud.ip(address).unwrap()["server"]["uuid"], theirs);
    assert_eq!(lab.cloud.ip(address).unwrap()["meta"], json!({ "groundcrew-cluster": "them" }));
    controller.stop().await;
}

/// The cloud never says whether the dead node's server is off.
#[tokio::test(flavor = "multi_thread")]
async fn a_move_that_hangs_holds_up_nobody_elses() {
    let lab = Lab::new("cs-hung", 3).await;
    lab.add_ips([1, 2]);
    let controller = lab.stubborn(&["--takeover-delay", "3s", "--fence-stop"]).await;
    let (address, holder) = lab.serve("web").await;
    let server = lab.server(&holder).to_owned();
    let path = format!("servers/{server}/");
    lab.cloud.fault(Fault::on("GET", path.clone(), Effect::Hang));
    lab.agents.die(&holder);
    eventually("the move hangs", SOON, async || {
        let hangs = lab.cloud.calls().iter().any(|call| call.path == path && call.status == 0);
        if hangs { Ok(()) } else { Err("not yet") }
    })
    .await
    .unwrap();
    lab.create("new", json!({}), json!({})).await;
    lab.until_served("new").await;
    assert_eq!(lab.floating(address).await.spec.holder, Some(holder));
    let asked = lab.cloud.calls().iter().filter(|call| call.path == path).count();
    assert_eq!(asked, 1, "it still hangs");
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hard_fence_cuts_the_power_before_an_address_moves() {
    let lab = Lab::new("cs-fence", 2).await;
    lab.add_ips([1]);
    let controller = lab.controller(&["--takeover-delay", "3s", "--fence-stop"]).await;
    let (address, holder) = lab.serve("web").await;
    let server = lab.server(&holder).to_owned();
    lab.agents.die(&holder);
    lab.until_held(address, |node| node != holder).await;
    assert_eq!(lab.cloud.server(&server).unwrap()["status"], "stopped");
    let other = lab.nodes.iter().find(|(node, _)| *node != holder).unwrap().1.clone();
    assert_eq!(lab.cloud.server(&other).unwrap()["status"], "running");
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hard_fence_cuts_the_power_of_a_server_whose_node_was_deleted() {
    let lab = Lab::new("cs-fencedel", 2).await;
    lab.add_ips([1]);
    let controller = lab.controller(&["--takeover-delay", "3s", "--fence-stop"]).await;
    let (address, holder) = lab.serve("web").await;
    lab.agents.die(&holder);
    lab.kube_nodes().delete(&holder, &DeleteParams::default()).await.map(drop).unwrap();
    lab.until_held(address, |node| node != holder).await;
    assert_eq!(lab.cloud.server(lab.server(&holder)).unwrap()["status"], "stopped");
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hard_fence_takes_a_server_that_is_gone_for_stopped() {
    let lab = Lab::new("cs-fenced", 2).await;
    lab.add_ips([1]);
    let controller = lab.controller(&["--takeover-delay", "3s", "--fence-stop"]).await;
    let (address, holder) = lab.serve("web").await;
    let server = lab.server(&holder).to_owned();
    lab.agents.die(&holder);
    lab.cloud.account(|account| account.servers.remove(&server));
    lab.until_held(address, |node| node != holder).await;
    controller.stop().await;
}
