//! Two processes, one Lease: who may write, and what becomes of a late write.

use std::time::Instant;

use groundcrew_testkit::Signal;
use tokio::sync::Mutex;

use crate::lab::{LEASE, Lab, SOON};

/// These measure time, so they do not run at once.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

#[tokio::test]
async fn after_a_sigkill_the_successor_acts_within_the_lease_and_a_second() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let lab = Lab::new("sigkill").await;
    let first = lab.start("first").await;
    lab.until_leads(&first).await;
    let _second = lab.start("second").await;
    lab.create("before").await;
    lab.until_served("before", SOON).await;

    let killed = Instant::now();
    first.process.signal(Signal::SIGKILL).unwrap();
    lab.create("after").await;
    lab.until_served("after", SOON).await;
    let took = killed.elapsed();
    assert!(took < LEASE + std::time::Duration::from_secs(1), "took {took:?}");
}

#[tokio::test]
async fn after_a_sigterm_the_process_leaves_in_order_and_the_successor_acts_within_two_seconds() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let lab = Lab::new("sigterm").await;
    let first = lab.start("first").await;
    lab.until_leads(&first).await;
    let second = lab.start("second").await;

    let asked = Instant::now();
    first.process.signal(Signal::SIGTERM).unwrap();
    lab.create("after").await;
    lab.until_served("after", SOON).await;
    let took = asked.elapsed();
    assert!(took.as_secs() < 2, "took {took:?}");
    assert!(first.process.wait_exit(SOON).await.unwrap().success(), "{}", first.process.last_words());
    lab.until_leads(&second).await;
}

#[tokio::test]
async fn a_leader_that_slept_past_its_lease_writes_nothing_when_it_wakes() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let lab = Lab::new("sigstop").await;
    let first = lab.start("first").await;
    lab.until_leads(&first).await;
    let second = lab.start_as("second", |command| command.args(["--log", "debug"])).await;
    lab.create("before").await;
    lab.until_served("before", SOON).await;

    first.process.signal(Signal::SIGSTOP).unwrap();
    lab.create("after").await;
    // A follower knows what is to be done, and does not do it.
    groundcrew_testkit::eventually("the follower has the plan", SOON, async || {
        let log = second.process.log();
        let planned = |line: &str| line.contains("the leader should change") && line.contains("/after");
        if log.lines().any(planned) { Ok(()) } else { Err("not in its log") }
    })
    .await
    .unwrap();
    lab.until_leads(&second).await;
    let served = lab.until_served("after", SOON).await;
    first.process.signal(Signal::SIGCONT).unwrap();
    first.until_metric("groundcrew_leader_leading_bool", SOON, |leading| leading < 0.5).await.unwrap();
    let now = lab.services().get("after").await.unwrap();
    assert_eq!(now.metadata.resource_version, served.metadata.resource_version);
    lab.until_leads(&second).await;
}

/// Writes of a process that serves its first Service, in order: 1 claim (API), 2 address (cloud), 3 load balancer
/// (cloud), 4 status (API).
async fn stopped_between_check_and_send(lab: &str, write: u32) {
    let lab = Lab::new(lab).await;
    let fault = format!("between check and send@{write}");
    let first = lab.start_as("first", |command| command.env("GROUNDCREW_FAULT", &fault)).await;
    lab.until_leads(&first).await;
    let second = lab.start("second").await;
    lab.create("web").await;
    first.until_stopped(SOON).await.unwrap();

    lab.until_leads(&second).await;
    let served = lab.until_served("web", SOON).await;
    let file = lab.file("web").unwrap();
    first.process.signal(Signal::SIGCONT).unwrap();
    let refused = "groundcrew_service_reconciles_total{outcome=\"conflict\"}";
    first.until_metric(refused, SOON, |count| count > 0.5).await.unwrap();
    let now = lab.services().get("web").await.unwrap();
    assert_eq!(now.metadata.resource_version, served.metadata.resource_version, "the API server took nothing of it");
    assert_eq!(lab.file("web").unwrap(), file);
    assert!(first.metric("groundcrew_leader_leading_bool").await.unwrap() < 0.5);
}

#[tokio::test]
async fn a_claim_or_a_status_sent_after_the_lease_was_lost_is_refused() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let late = stopped_between_check_and_send;
    tokio::join!(late("late-claim", 1), late("late-status", 4));
}
