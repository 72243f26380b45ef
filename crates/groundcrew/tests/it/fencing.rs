//! Two processes, one Lease, one OVN: after the epoch has moved, nothing of the old leader commits.

use std::collections::BTreeSet;
use std::time::Duration;

use groundcrew_testkit::controller::Controller;
use groundcrew_testkit::{Signal, eventually};
use k8s_openapi::api::core::v1::Service;
use tokio::sync::Mutex;

use crate::lab::{Lab, SHORT_LEASE, SOON};

const LEADING: &str = "groundcrew_leader_leading_bool";
/// Where nobody may lose it but who is stopped. It is waited for.
const LEASE: Duration = Duration::from_secs(8);
/// So long that only a release can explain that another one leads.
const LONG_LEASE: Duration = Duration::from_hours(1);

/// They wait for leases that a busy machine may lose, so they do not run at once.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

/// The database's own log is the witness: once an epoch has begun, no transaction of an older one follows.
async fn assert_epochs_only_grow(lab: &Lab) {
    let epochs = lab.epochs().await;
    assert!(!epochs.is_empty());
    assert!(epochs.is_sorted_by_key(|(number, _)| number), "{epochs:#?}");
    for pair in epochs.windows(2) {
        assert!(pair[0].0 < pair[1].0 || pair[0].1 == pair[1].1, "two leaders in one epoch: {pair:#?}");
    }
}

#[tokio::test]
async fn after_a_sigkill_the_successor_serves_when_the_lease_has_run_out() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let lab = Lab::with_lease("ovn-sigkill", LEASE).await;
    let leader = lab.start("first").await;
    lab.until_leads(&leader).await;
    let follower = lab.start("heir").await;
    lab.create("before").await;
    lab.until_served("before").await;

    lab.until_leads(&leader).await;
    leader.process.signal(Signal::SIGKILL).unwrap();
    lab.create("after").await;
    lab.until_served("after").await;
    lab.until_leads(&follower).await;
    assert_epochs_only_grow(&lab).await;
}

#[tokio::test]
async fn after_a_sigterm_the_successor_serves_long_before_the_lease_has_run_out() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let lab = Lab::with_lease("ovn-sigterm", LONG_LEASE).await;
    let leader = lab.start("first").await;
    lab.until_leads(&leader).await;
    let follower = lab.start("heir").await;
    leader.process.signal(Signal::SIGTERM).unwrap();
    assert!(leader.process.wait_exit(SOON).await.unwrap().success(), "{}", leader.process.last_words());
    lab.create("after").await;
    lab.until_served("after").await;
    lab.until_leads(&follower).await;
    assert_epochs_only_grow(&lab).await;
}

/// Served, and confirmed by northd: where northd is late, that is told later, by one more write of the status.
async fn until_confirmed(lab: &Lab, name: &str) -> Service {
    eventually(&format!("northd has taken {name}"), SOON, async || {
        let service = lab.until_served(name).await;
        let conditions = service.status.as_ref().and_then(|status| status.conditions.as_ref());
        let late = conditions.into_iter().flatten().any(|condition| condition.reason == "NotConfirmed");
        if late { Err(format!("{:?}", service.status)) } else { Ok(service) }
    })
    .await
    .unwrap()
}

/// The process is stopped at `fault`, after the check of its lease and before the write.
async fn stopped_at(lab: &Lab, fault: &str) -> Controller {
    // Not waited for: it may be stopped before anybody can ask whether it is ready.
    let first = lab.spawn("first", |command| command.env("GROUNDCREW_FAULT", fault));
    lab.until_leads(&first).await;
    lab.create("web").await;
    first.until_stopped(SOON).await.unwrap();

    // Not before: it would take over from a leader that is only late, and that one would never come to this write.
    let second = lab.start("second").await;
    lab.until_leads(&second).await;
    let served = until_confirmed(lab, "web").await;
    let before = lab.written().await;
    first.process.signal(Signal::SIGCONT).unwrap();
    first.until_metric(LEADING, SOON, |leading| leading < 0.5).await.unwrap();
    // Whatever the sleeper had sent before it learnt that it follows was answered before this transaction of ours.
    lab.northbound().nbctl(["set", "NB_Global", ".", "options:witness=1"]).await.unwrap();
    assert_eq!(lab.written().await, before);
    let now = lab.services().get("web").await.unwrap();
    assert_eq!(now.metadata.resource_version, served.metadata.resource_version);
    assert_epochs_only_grow(lab).await;
    first
}

#[tokio::test]
async fn an_epoch_claimed_too_late_is_refused() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let lab = Lab::with_lease("late-epoch", LEASE).await;
    stopped_at(&lab, "between check and transaction@1").await;
    let of_first = lab.epochs().await.into_iter().filter(|(_, identity)| identity.starts_with("first_")).count();
    assert_eq!(of_first, 0, "its term never began");
}

#[tokio::test]
async fn rows_sent_too_late_are_refused() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let lab = Lab::with_lease("late-rows", LEASE).await;
    let first = stopped_at(&lab, "between check and transaction@2").await;
    // Not sent, because their own deadline had passed too; or sent before the clock was looked at, and refused by the guard on
    // the epoch.
    eventually("they are refused", SOON, async || {
        let mut refused = 0.0;
        for outcome in ["failed", "lost"] {
            let series = format!("groundcrew_ovn_commits_total{{outcome=\"{outcome}\"}}");
            refused += first.metric(&series).await.unwrap_or_default();
        }
        if refused > 0.5 { Ok(()) } else { Err("neither failed nor lost") }
    })
    .await
    .unwrap();
}

/// Writes of a leader that serves its first Service: the epoch, then in the API the claim, the `EIp` and its status, the
/// rows, the status. The reports of pools come in between, so that a number may be the write before.
///
/// All at once: each has a lab of its own, and none measures time.
#[tokio::test]
async fn whatever_is_sent_too_late_to_the_api_server_is_refused() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let late = async |name: &str, write: u32| {
        let lab = Lab::with_lease(name, LEASE).await;
        stopped_at(&lab, &format!("between check and send@{write}")).await;
    };
    tokio::join!(late("late-claim", 2), late("late-eip", 3), late("late-eip-status", 4), late("late-status", 6));
}

/// One round: the leader is stopped, killed or told to go at a random moment of steady churn; then it comes back.
async fn random_round(lab: &Lab, round: usize, leader: Controller, follower: Controller) -> (Controller, Controller) {
    let churn = format!("churn-{round}");
    lab.create(&churn).await;
    let delay = Duration::from_millis(u64::from(uuid_byte()) % 60);
    // Not to wait for anything: the random moment is what is tested.
    tokio::time::sleep(delay).await;
    let back = match uuid_byte() % 3 {
        0 => {
            leader.process.signal(Signal::SIGKILL).unwrap();
            None
        }
        1 => {
            leader.process.signal(Signal::SIGTERM).unwrap();
            None
        }
        _ => {
            leader.process.signal(Signal::SIGSTOP).unwrap();
            Some(leader)
        }
    };
    lab.until_leads(&follower).await;
    lab.until_served(&churn).await;
    let back = match back {
        Some(sleeper) => {
            sleeper.process.signal(Signal::SIGCONT).unwrap();
            sleeper.until_metric(LEADING, SOON, |leading| leading < 0.5).await.unwrap();
            sleeper
        }
        None => lab.start(&format!("round-{round}")).await,
    };
    (follower, back)
}

fn uuid_byte() -> u8 {
    uuid::Uuid::new_v4().as_bytes()[0]
}

/// Two rounds here; `make soak` runs fifty.
#[tokio::test]
async fn random_stops_of_the_leader_never_let_an_old_epoch_write() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let rounds = std::env::var("GROUNDCREW_ROUNDS").map_or(2, |rounds| rounds.parse().unwrap());
    let lab = Lab::with_lease("random", SHORT_LEASE).await;
    let (mut leader, mut follower) = (lab.start("a").await, lab.start("b").await);
    lab.until_leads(&leader).await;
    let mut published = Vec::new();
    for round in 0..rounds {
        (leader, follower) = random_round(&lab, round, leader, follower).await;
        assert_epochs_only_grow(&lab).await;
        assert_eq!(lab.rows().await.len(), round + 1, "one row a Service");
        published.push(lab.address(&format!("churn-{round}")).await);
        for (round, address) in published.iter().enumerate() {
            assert_eq!(lab.address(&format!("churn-{round}")).await, *address, "a living address never changes");
        }
        let distinct: BTreeSet<_> = published.iter().collect();
        assert_eq!(distinct.len(), published.len(), "no address is given twice");
    }
}
