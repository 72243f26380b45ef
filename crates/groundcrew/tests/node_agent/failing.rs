//! Whatever happens to a node or to its way to the API server: somebody answers soon, and never two.

use std::time::Duration;

use anyhow::ensure;
use groundcrew_api::floating_ip::{FloatingIP, FloatingIPSpec};
use groundcrew_api::names::{annotation, lease};
use groundcrew_testkit::wire::Asking;
use groundcrew_testkit::{Signal, eventually};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{DeleteParams, PostParams};

use crate::lab::{Lab, SOON};
use crate::mover;

/// What agents say.
const NOT_RENEWED: &str = "Lease not renewed";
const KEPT: &str = "most agents do not reach the API server: addresses are kept";

/// Three nodes, the first of which holds the address, and somebody who moves it.
async fn held() -> (Lab, Asking, tokio_util::task::AbortOnDropHandle<()>) {
    held_in(Lab::started(3, &[]).await).await
}

async fn held_in(lab: Lab) -> (Lab, Asking, tokio_util::task::AbortOnDropHandle<()>) {
    let asking = lab.ask().await;
    lab.place(0).await;
    lab.until_held(0).await;
    lab.until_answers(&asking, 0).await;
    let mover = mover::start(&lab);
    (lab, asking, mover)
}

/// Waits until this agent has regained its Lease, and lets the others answer on for a while.
async fn settle(lab: &Lab, asking: &Asking) {
    until_answers_more(asking, 60).await;
    lab.until_gone(0).await;
}

/// Twenty a second, if somebody answers.
async fn until_answers_more(asking: &Asking, more: usize) {
    let many = asking.answers().len() + more;
    eventually(&format!("{more} more answers"), SOON, async || {
        let count = asking.answers().len();
        ensure!(count >= many, "{count} of {many}");
        Ok(())
    })
    .await
    .unwrap();
}

async fn renewal(lab: &Lab, node: usize) -> String {
    format!("{:?}", lab.lease(node).await.unwrap().spec.and_then(|spec| spec.renew_time))
}

async fn until_renewed(lab: &Lab, node: usize, before: &str) {
    eventually("the Lease is renewed", SOON, async || {
        ensure!(renewal(lab, node).await != before, "it is not");
        Ok(())
    })
    .await
    .unwrap();
}

/// Cuts a node off from the API server, and waits until its agent says this once more.
async fn cut_off(lab: &Lab, node: usize, says: &str) {
    let count = || lab.agent(node).log().matches(says).count();
    let before = count();
    lab.proxies[node].partition();
    eventually(says, SOON, async || {
        ensure!(count() > before, "{}", lab.agent(node).last_words());
        Ok(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_hung_agent_loses_its_address_and_does_not_bring_it_back_when_it_goes_on() {
    let (lab, asking, _mover) = held().await;
    lab.agent(0).signal(Signal::SIGSTOP).unwrap();
    let before = renewal(&lab, 0).await;
    let next = lab.until_another_answers(&asking, 0).await;
    lab.agent(0).signal(Signal::SIGCONT).unwrap();
    until_renewed(&lab, 0, &before).await;
    settle(&lab, &asking).await;
    lab.assert_answered_in_turn(&asking, &[0, next]);
}

#[tokio::test]
async fn a_hung_agent_loses_its_ipv6_address_likewise() {
    let mut lab = Lab::started(3, &[]).await;
    let number = lab.namespace.rsplit('-').next().unwrap();
    lab.address = format!("2001:db8:51::f01:{number}").parse().unwrap();
    let (lab, asking, _mover) = held_in(lab).await;
    lab.agent(0).signal(Signal::SIGSTOP).unwrap();
    let before = renewal(&lab, 0).await;
    let next = lab.until_another_answers(&asking, 0).await;
    lab.agent(0).signal(Signal::SIGCONT).unwrap();
    until_renewed(&lab, 0, &before).await;
    settle(&lab, &asking).await;
    lab.assert_answered_in_turn(&asking, &[0, next]);
}

#[tokio::test]
async fn a_killed_agent_is_followed_by_another_node_and_cleans_up_when_it_is_back() {
    let (mut lab, asking, _mover) = held().await;
    lab.agent(0).end(Signal::SIGKILL).await.unwrap();
    let next = lab.until_another_answers(&asking, 0).await;
    let before = renewal(&lab, 0).await;
    lab.start(0);
    until_renewed(&lab, 0, &before).await;
    settle(&lab, &asking).await;
    lab.assert_answered_in_turn(&asking, &[0, next]);
}

#[tokio::test]
async fn an_agent_that_is_back_before_anybody_moved_its_address_takes_away_what_it_left_and_holds_it_again() {
    let mut lab = Lab::started(1, &[]).await;
    lab.place(0).await;
    lab.until_held(0).await;
    // The kernel keeps it for some seconds: an agent that a busy machine starts later than that finds nothing.
    for _ in 0..5 {
        lab.agent(0).end(Signal::SIGKILL).await.unwrap();
        let kept = lab.addresses(0).await.contains(&lab.address.to_string());
        let before = lab.agent(0).log().len();
        lab.start(0);
        let log = eventually("the new agent holds it", SOON, async || {
            let log = lab.agent(0).log().split_off(before);
            ensure!(log.contains("put on the interface"), "{log}");
            Ok(log)
        });
        let log = log.await.unwrap();
        let left = log.find("address of an earlier run taken away");
        if kept && left.is_some() {
            assert!(left < log.find("put on the interface"), "{log}");
            return;
        }
    }
    panic!("five times nothing was left: {}", lab.agent(0).log());
}

#[tokio::test]
async fn a_node_that_alone_is_cut_off_from_the_api_server_lets_go() {
    let (lab, asking, _mover) = held().await;
    lab.proxies[0].partition();
    let next = lab.until_another_answers(&asking, 0).await;
    let before = renewal(&lab, 0).await;
    lab.proxies[0].heal();
    until_renewed(&lab, 0, &before).await;
    settle(&lab, &asking).await;
    lab.assert_answered_in_turn(&asking, &[0, next]);
}

#[tokio::test]
async fn when_no_node_reaches_the_api_server_addresses_stay_where_they_are() {
    let (lab, asking, _mover) = held().await;
    // Those that are asked know first: who has to let go before anybody says so has nothing to keep.
    for (node, says) in [(1, NOT_RENEWED), (2, NOT_RENEWED), (0, KEPT)] {
        cut_off(&lab, node, says).await;
    }
    // Three lifetimes.
    until_answers_more(&asking, 360).await;
    let before = renewal(&lab, 0).await;
    for proxy in &lab.proxies {
        proxy.heal();
    }
    until_renewed(&lab, 0, &before).await;
    lab.until_answers(&asking, 0).await;
    lab.assert_answered_in_turn(&asking, &[0]);
}

/// Somebody deletes the Node of one of two that are cut off: the controller counts one of two late, which is not most.
#[tokio::test]
async fn the_word_of_a_node_that_was_deleted_meanwhile_keeps_no_address() {
    let (lab, asking, _mover) = held().await;
    // The one that is asked knows first: who has to let go before anybody says so has nothing to keep.
    for (node, says) in [(2, NOT_RENEWED), (0, KEPT)] {
        cut_off(&lab, node, says).await;
    }
    // As it goes with its Node.
    let leases: Api<Lease> = Api::namespaced(lab.client.clone(), &lab.namespace);
    leases.delete(&lease::of_node(&lab.name(2)), &DeleteParams::default()).await.unwrap();
    lab.until_answers(&asking, 1).await;
    let before = renewal(&lab, 0).await;
    for node in [0, 2] {
        lab.proxies[node].heal();
    }
    until_renewed(&lab, 0, &before).await;
    settle(&lab, &asking).await;
    lab.assert_answered_in_turn(&asking, &[0, 1]);
}

/// Each renewal takes longer than the round trip that costs no lifetime.
#[tokio::test]
async fn an_api_server_that_answers_slowly_costs_no_address() {
    let (lab, asking, _mover) = held().await;
    lab.proxies[0].set_latency(Duration::from_millis(700));
    until_answers_more(&asking, 300).await;
    lab.assert_answered_in_turn(&asking, &[0]);
}

#[tokio::test]
async fn a_node_whose_interface_loses_its_link_hands_over_at_once() {
    let (lab, asking, _mover) = held().await;
    lab.wire.unplug(0).await.unwrap();
    let next = lab.until_another_answers(&asking, 0).await;
    lab.until_held(next).await;
    let annotations = lab.lease(0).await.unwrap().metadata.annotations.unwrap();
    assert_eq!(annotations[annotation::UNABLE], "the interface eth0 has no link");
    lab.until_gone(0).await;
    lab.assert_answered_in_turn(&asking, &[0, next]);

    lab.wire.plug(0).await.unwrap();
    eventually("the node is able again", SOON, async || {
        let annotations = lab.lease(0).await?.metadata.annotations.unwrap_or_default();
        ensure!(!annotations.contains_key(annotation::UNABLE), "{annotations:?}");
        anyhow::Ok(())
    })
    .await
    .unwrap();
}

/// The interface of the default route is fine all the time.
#[tokio::test]
async fn a_node_whose_named_interface_has_no_link_or_is_gone_says_so_and_takes_the_address_when_it_can() {
    let lab = Lab::started(1, &[]).await;
    let (machine, mac) = (&lab.wire.nodes[0], "02:00:00:00:0e:01");
    machine.run("ip", &["link", "add", "eth1", "address", mac, "type", "veth", "peer", "name", "far"]).await.unwrap();
    machine.run("ip", &["link", "set", "far", "up"]).await.unwrap();
    let spec = FloatingIPSpec {
        address: lab.address.to_string(),
        holder: Some(lab.name(0)),
        serial: 1,
        mac: Some(mac.into()),
        ..FloatingIPSpec::default()
    };
    let object = FloatingIP::new(&FloatingIP::name_of(lab.address), spec);
    lab.floating_ips().create(&PostParams::default(), &object).await.unwrap();
    let refused = async |reason| {
        lab.until_refused(reason).await;
        let status = lab.object().await.unwrap().status.unwrap();
        assert_eq!((status.serial, status.holder), (1, None));
    };
    refused("LinkDown").await;
    machine.run("ip", &["link", "set", "eth1", "up"]).await.unwrap();
    lab.until_held(0).await;
    machine.run("ip", &["link", "del", "eth1"]).await.unwrap();
    refused("NoInterface").await;
    let annotations = lab.lease(0).await.unwrap().metadata.annotations.unwrap();
    assert!(!annotations.contains_key(annotation::UNABLE), "other addresses may come");
}

/// More changes than the kernel remembers for one listener: it is told that some were lost.
#[tokio::test]
async fn a_burst_of_link_changes_does_not_make_the_agent_blind() {
    let (lab, asking, _mover) = held().await;
    let burst =
        "for i in $(seq 120); do echo link add name burst$i type bridge; echo link del burst$i; done | ip -batch -";
    lab.agent(0).signal(Signal::SIGSTOP).unwrap();
    lab.wire.nodes[0].run("sh", &["-c", burst]).await.unwrap();
    lab.agent(0).signal(Signal::SIGCONT).unwrap();
    let before = renewal(&lab, 0).await;
    until_renewed(&lab, 0, &before).await;
    lab.wire.unplug(0).await.unwrap();
    eventually("the agent saw that its link is gone", SOON, async || {
        let annotations = lab.lease(0).await?.metadata.annotations.unwrap_or_default();
        ensure!(annotations.contains_key(annotation::UNABLE), "{annotations:?}");
        anyhow::Ok(())
    })
    .await
    .unwrap();
    lab.until_another_answers(&asking, 0).await;
}

#[tokio::test]
async fn an_agent_that_stops_in_order_is_not_waited_for() {
    let (lab, asking, _mover) = held().await;
    lab.agent(0).end(Signal::SIGTERM).await.unwrap();
    let next = lab.until_another_answers(&asking, 0).await;
    lab.assert_answered_in_turn(&asking, &[0, next]);
}
