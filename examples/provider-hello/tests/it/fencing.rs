//! Two processes, one Lease: who may write, and what becomes of a late write.

use std::time::{Duration, Instant};

use groundcrew_testkit::Signal;
use tokio::sync::Mutex;

use crate::lab::{Lab, SHORT_LEASE, SOON};

const LEADING: &str = "groundcrew_leader_leading_bool";
/// Where nobody may lose it but who is stopped. It is waited for.
const LEASE: Duration = Duration::from_secs(8);
/// How often a hand-over is tried: a busy machine makes one late, and none early.
const TRIES: usize = 5;

/// These measure time, so they do not run at once.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

#[tokio::test]
async fn after_a_sigkill_the_successor_acts_within_the_lease_and_a_second() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let lab = Lab::with_lease("sigkill", SHORT_LEASE).await;
    let mut leader = lab.start("first").await;
    lab.until_leads(&leader).await;
    for tried in 1.. {
        let follower = lab.start(&format!("heir-{tried}")).await;
        let [before, after] = ["before", "after"].map(|when| format!("{when}-{tried}"));
        lab.create(&before).await;
        lab.until_served(&before, SOON).await;

        let killed = Instant::now();
        leader.process.signal(Signal::SIGKILL).unwrap();
        lab.create(&after).await;
        lab.until_served(&after, SOON).await;
        let took = killed.elapsed();
        if took < SHORT_LEASE + Duration::from_secs(1) {
            break;
        }
        assert!(tried < TRIES, "took {took:?}");
        leader = follower;
    }
}

#[tokio::test]
async fn after_a_sigterm_the_process_leaves_in_order_and_the_successor_acts_within_two_seconds() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let lab = Lab::new("sigterm").await;
    let mut leader = lab.start("first").await;
    lab.until_leads(&leader).await;
    for tried in 1.. {
        let follower = lab.start(&format!("heir-{tried}")).await;
        let after = format!("after-{tried}");
        let asked = Instant::now();
        leader.process.signal(Signal::SIGTERM).unwrap();
        lab.create(&after).await;
        lab.until_served(&after, SOON).await;
        let took = asked.elapsed();
        assert!(leader.process.wait_exit(SOON).await.unwrap().success(), "{}", leader.process.last_words());
        lab.until_leads(&follower).await;
        if took.as_secs() < 2 {
            break;
        }
        assert!(tried < TRIES, "took {took:?}");
        leader = follower;
    }
}

#[tokio::test]
async fn a_leader_that_slept_past_its_lease_writes_nothing_when_it_wakes() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let lab = Lab::with_lease("sigstop", LEASE).await;
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
    first.until_metric(LEADING, SOON, |leading| leading < 0.5).await.unwrap();
    let now = lab.services().get("after").await.unwrap();
    assert_eq!(now.metadata.resource_version, served.metadata.resource_version);
    lab.until_leads(&second).await;
}

/// Writes of a process that serves its first Service, in order: 1 claim (API), 2 address (cloud), 3 load balancer
/// (cloud), 4 status (API).
async fn stopped_between_check_and_send(lab: &str, write: u32) {
    let lab = Lab::with_lease(lab, LEASE).await;
    let fault = format!("between check and send@{write}");
    let first = lab.start_as("first", |command| command.env("GROUNDCREW_FAULT", &fault)).await;
    lab.until_leads(&first).await;
    lab.create("web").await;
    first.until_stopped(SOON).await.unwrap();

    // Not before: it would take over from a leader that is only late, and that one would never come to this write.
    let second = lab.start("second").await;
    lab.until_leads(&second).await;
    let served = lab.until_served("web", SOON).await;
    let file = lab.file("web").unwrap();
    first.process.signal(Signal::SIGCONT).unwrap();
    let refused = "groundcrew_service_reconciles_total{outcome=\"conflict\"}";
    first.until_metric(refused, SOON, |count| count > 0.5).await.unwrap();
    let now = lab.services().get("web").await.unwrap();
    assert_eq!(now.metadata.resource_version, served.metadata.resource_version, "the API server took nothing of it");
    assert_eq!(lab.file("web").unwrap(), file);
    first.until_metric(LEADING, SOON, |leading| leading < 0.5).await.unwrap();
}

#[tokio::test]
async fn a_claim_or_a_status_sent_after_the_lease_was_lost_is_refused() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let late = stopped_between_check_and_send;
    tokio::join!(late("late-claim", 1), late("late-status", 4));
}
