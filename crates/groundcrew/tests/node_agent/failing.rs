//! Whatever happens to a node or to its way to the API server: somebody answers soon, and never two.

use std::time::Duration;

use anyhow::ensure;
use groundcrew_api::names::annotation;
use groundcrew_testkit::wire::Asking;
use groundcrew_testkit::{Signal, eventually};

use crate::lab::{Lab, SOON};
use crate::mover;

/// Three nodes, the first of which holds the address, and somebody who moves it.
async fn held() -> (Lab, Asking, tokio_util::task::AbortOnDropHandle<()>) {
    let lab = Lab::started(3, &[]).await;
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

#[tokio::test]
async fn a_hung_agent_loses_its_address_and_does_not_bring_it_back_when_it_goes_on() {
    let (lab, asking, _mover) = held().await;
    lab.agent(0).signal(Signal::SIGSTOP).unwrap();
    let before = renewal(&lab, 0).await;
    lab.until_answers(&asking, 1).await;
    lab.agent(0).signal(Signal::SIGCONT).unwrap();
    until_renewed(&lab, 0, &before).await;
    settle(&lab, &asking).await;
    lab.assert_answered_in_turn(&asking, &[0, 1]);
}

#[tokio::test]
async fn a_killed_agent_is_followed_by_another_node_and_cleans_up_when_it_is_back() {
    let (mut lab, asking, _mover) = held().await;
    lab.agent(0).end(Signal::SIGKILL).await.unwrap();
    lab.until_answers(&asking, 1).await;
    let before = renewal(&lab, 0).await;
    lab.start(0);
    until_renewed(&lab, 0, &before).await;
    settle(&lab, &asking).await;
    lab.assert_answered_in_turn(&asking, &[0, 1]);
}

#[tokio::test]
async fn an_agent_that_is_back_before_anybody_moved_its_address_takes_away_what_it_left_and_holds_it_again() {
    let mut lab = Lab::started(1, &[]).await;
    lab.place(0).await;
    lab.until_held(0).await;
    lab.agent(0).end(Signal::SIGKILL).await.unwrap();
    assert!(lab.addresses(0).await.contains(&lab.address.to_string()), "the kernel keeps it for its lifetime");
    lab.start(0);
    eventually("the new agent holds it", SOON, async || {
        let log = lab.agent(0).log();
        let (left, held) = (log.find("address of an earlier run taken away"), log.rfind("put on the interface"));
        ensure!(left.is_some() && left < held, "{log}");
        Ok(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_node_that_alone_is_cut_off_from_the_api_server_lets_go() {
    let (lab, asking, _mover) = held().await;
    lab.proxies[0].partition();
    lab.until_answers(&asking, 1).await;
    let before = renewal(&lab, 0).await;
    lab.proxies[0].heal();
    until_renewed(&lab, 0, &before).await;
    settle(&lab, &asking).await;
    lab.assert_answered_in_turn(&asking, &[0, 1]);
}

#[tokio::test]
async fn when_no_node_reaches_the_api_server_addresses_stay_where_they_are() {
    let (lab, asking, _mover) = held().await;
    let said = "most agents do not reach the API server: addresses are kept";
    for proxy in &lab.proxies {
        proxy.partition();
    }
    eventually("the agents have asked each other", SOON, async || {
        ensure!(lab.agent(0).log().contains(said), "{}", lab.agent(0).last_words());
        Ok(())
    })
    .await
    .unwrap();
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
    lab.until_answers(&asking, 1).await;
    lab.until_held(1).await;
    let annotations = lab.lease(0).await.unwrap().metadata.annotations.unwrap();
    assert_eq!(annotations[annotation::UNABLE], "the interface eth0 has no link");
    lab.until_gone(0).await;
    lab.assert_answered_in_turn(&asking, &[0, 1]);

    lab.wire.plug(0).await.unwrap();
    eventually("the node is able again", SOON, async || {
        let annotations = lab.lease(0).await?.metadata.annotations.unwrap_or_default();
        ensure!(!annotations.contains_key(annotation::UNABLE), "{annotations:?}");
        anyhow::Ok(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn an_agent_that_stops_in_order_is_not_waited_for() {
    let (lab, asking, _mover) = held().await;
    lab.agent(0).end(Signal::SIGTERM).await.unwrap();
    lab.until_answers(&asking, 1).await;
    lab.assert_answered_in_turn(&asking, &[0, 1]);
}
