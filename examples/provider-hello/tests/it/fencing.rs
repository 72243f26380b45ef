//! Two processes, one Lease: who may write, and what becomes of a late write.

use std::time::Duration;

use groundcrew_testkit::Signal;
use tokio::sync::Mutex;

use crate::lab::{Lab, SOON};

const LEADING: &str = "groundcrew_leader_leading_bool";
/// Where nobody may lose it but who is stopped. It is waited for.
const LEASE: Duration = Duration::from_secs(8);
/// Nobody waits for its end.
const LONG_LEASE: Duration = Duration::from_hours(1);
/// How often a hand-over is tried.
const TRIES: usize = 5;

/// These measure time, so they do not run at once.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

#[tokio::test]
async fn after_a_sigkill_the_successor_acts_and_not_before_the_lease_has_ended() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let lab = Lab::with_lease("sigkill", LEASE).await;
    let leader = lab.start("first").await;
    lab.until_leads(&leader).await;
    let follower = lab.start("heir").await;
    lab.create("before").await;
    lab.until_served("before", SOON).await;

    leader.process.signal(Signal::SIGKILL).unwrap();
    let renewed = lab.lease().await.renew_time.unwrap().0;
    lab.create("after").await;
    lab.until_served("after", SOON).await;
    lab.until_leads(&follower).await;
    let taken = lab.lease().await.acquire_time.unwrap().0;
    assert!(taken >= renewed + LEASE, "renewed at {renewed}, and taken at {taken}");
}

#[tokio::test]
async fn after_a_sigterm_the_process_leaves_in_order_and_the_successor_need_not_wait_for_the_end_of_the_lease() {
    let _alone = ONE_AT_A_TIME.lock().await;
    for tried in 1.. {
        let lab = Lab::with_lease(&format!("sigterm-{tried}"), LONG_LEASE).await;
        let leader = lab.start("first").await;
        lab.until_leads(&leader).await;
        let follower = lab.start("heir").await;
        leader.process.signal(Signal::SIGTERM).unwrap();
        assert!(leader.process.wait_exit(SOON).await.unwrap().success(), "{}", leader.process.last_words());
        // Whoever ends does not wait for long for an API server that is slow.
        if leader.process.log().contains("lease not released") {
            assert!(tried < TRIES, "{}", leader.process.last_words());
            continue;
        }
        lab.create("web").await;
        lab.until_served("web", SOON).await;
        lab.until_leads(&follower).await;
        break;
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
