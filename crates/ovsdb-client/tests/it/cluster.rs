//! Clusters: resumption, leaders that go in every way there is, quorum lost and back.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use groundcrew_testkit::ovn::Northbound as Server;
use groundcrew_testkit::proxy::Proxy;
use groundcrew_testkit::{Signal, eventually};
use ovsdb_client::ops::Mutator;
use ovsdb_client::{Cause, Client, Op, Replica, Rows, State, TransactError, Uuid};
use tokio::time::Instant;

use crate::nb::{Northbound, PATIENCE, config, in_time, names, new_lb, soon, touched, until, until_state};

async fn behind_a_proxy() -> (Server, Proxy, Replica<Northbound>) {
    let server = Server::cluster(1).await.unwrap();
    let proxy = Proxy::before(server.tcp_address(0)).await.unwrap();
    let replica = Replica::open(config(&format!("tcp:{}", proxy.address())));
    soon(replica.synced()).await;
    (server, proxy, replica)
}

/// Members of a busy machine elect a leader when they please: an end that this leaves open is looked into, as every caller
/// must.
async fn write(client: &Client, name: &str) -> Uuid {
    let id = Uuid::new_v4();
    write_as(client, id, name).await;
    id
}

async fn write_as(client: &Client, id: Uuid, name: &str) {
    soon(async {
        loop {
            match client.transact(&[new_lb(id, name)], in_time()).await {
                Ok(_) => return,
                Err(TransactError::Rejected { error, .. }) if error == "duplicate uuid" => return,
                Err(TransactError::Unknown { .. } | TransactError::NotSent { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_short_absence_costs_only_what_was_missed() {
    let (server, proxy, replica) = behind_a_proxy().await;
    let other = Client::open(config(&server.unix(0)), "OVN_Northbound");
    write(&other, "before").await;
    until(&replica, |now| now.load_balancers.len() == 1).await;
    let mut changes = replica.changes();
    soon(changes.next()).await;

    proxy.partition();
    let missed = write(&other, "missed").await;
    proxy.cut();
    until_state(&replica, |state| !matches!(state, State::InSync { .. })).await;
    proxy.heal();
    let news = soon(changes.next()).await;
    assert_eq!(touched(&news.rows, "Load_Balancer"), [missed]);
    assert_eq!(names(&news.after), ["before".into(), "missed".into()]);
    let counters = replica.client().counters();
    assert_eq!((counters.resumes, counters.resyncs_first, counters.resyncs_no_history), (1, 1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_absence_is_a_full_resync_and_the_old_state_stays_until_the_new_is_complete() {
    let (server, proxy, replica) = behind_a_proxy().await;
    let other = Client::open(config(&server.unix(0)), "OVN_Northbound");
    write(&other, "before").await;
    until(&replica, |now| now.load_balancers.len() == 1).await;
    let mut changes = replica.changes();
    soon(changes.next()).await;

    proxy.partition();
    // The server remembers 100 transactions.
    for n in 0..120 {
        write(&other, &format!("missed{n}")).await;
    }
    proxy.cut();
    until_state(&replica, |state| !matches!(state, State::InSync { .. })).await;
    assert_eq!(replica.snapshot().load_balancers.len(), 1);
    proxy.heal();
    let news = soon(changes.next()).await;
    assert_eq!(news.rows, Rows::Everything);
    assert_eq!((news.before.load_balancers.len(), news.after.load_balancers.len()), (1, 121));
    assert_eq!(replica.client().counters().resyncs_no_history, 1);
}

/// Writes one row after the other and remembers what it was told. An open end is looked into, as every caller must.
#[derive(Default)]
struct Told {
    acknowledged: BTreeSet<Uuid>,
    open: usize,
}

async fn write_steadily(client: Client, stop: Arc<AtomicBool>) -> Told {
    let mut told = Told::default();
    while !stop.load(Ordering::SeqCst) {
        let id = Uuid::new_v4();
        // The counter moves with the row: a write that was applied twice would move it twice.
        let ops = [new_lb(id, "steady"), Op::mutate("NB_Global", []).mutation("nb_cfg", Mutator::Add, 1).into()];
        loop {
            let outcome = client.transact(&ops, Instant::now() + Duration::from_secs(2)).await;
            match outcome {
                Ok(_) => break,
                Err(TransactError::Rejected { error, .. }) if error == "duplicate uuid" => break,
                Err(TransactError::Unknown { .. }) => told.open += 1,
                Err(_) => {}
            }
            if stop.load(Ordering::SeqCst) {
                return told;
            }
        }
        told.acknowledged.insert(id);
    }
    told
}

async fn leader_lost_under_a_steady_writer(signal: Signal) {
    let mut server = Server::cluster(3).await.unwrap();
    let old = server.leader().await.unwrap();
    // For ever, by the measure of a test: that a silent leader is left proves that another was found.
    let replica: Replica<Northbound> = Replica::open(config(&server.remotes()).dead_after(Duration::from_mins(5)));
    soon(replica.synced()).await;
    let stop = Arc::new(AtomicBool::new(false));
    let writer = tokio::spawn(write_steadily(replica.client().clone(), Arc::clone(&stop)));
    until(&replica, |now| now.load_balancers.len() > 20).await;

    // A consumer that must never see rows vanish: nothing is deleted here.
    let watcher = replica.clone();
    let stop_watching = Arc::clone(&stop);
    let watching = tokio::spawn(async move {
        let mut changes = watcher.changes();
        while !stop_watching.load(Ordering::SeqCst) {
            let news = changes.next().await;
            assert!(news.after.load_balancers.len() >= news.before.load_balancers.len(), "rows vanished");
        }
    });

    match signal {
        Signal::SIGSTOP => server.signal(old, signal).unwrap(),
        _ => server.stop(old, signal).await.unwrap(),
    }
    let had = replica.snapshot().load_balancers.len();
    let endpoint = server.tcp(old);
    until_state(&replica, |state| matches!(state, State::InSync { endpoint: at } if at.to_string() != endpoint)).await;
    until(&replica, |now| now.load_balancers.len() > had).await;

    let goal = replica.snapshot().load_balancers.len() + 20;
    until(&replica, |now| now.load_balancers.len() > goal).await;
    if signal == Signal::SIGSTOP {
        // What the stopped member still has in its queues must not come to life.
        server.signal(old, Signal::SIGCONT).unwrap();
    } else {
        server.restart(old).await.unwrap();
    }
    let goal = replica.snapshot().load_balancers.len() + 20;
    until(&replica, |now| now.load_balancers.len() > goal).await;
    stop.store(true, Ordering::SeqCst);
    let told = soon(writer).await.unwrap();
    write(replica.client(), "last").await;
    soon(watching).await.unwrap();

    // The truth, read by a client that has seen nothing of this.
    let fresh: Replica<Northbound> = Replica::open(config(&server.remotes()));
    let truth = soon(fresh.synced()).await;
    let rows: BTreeSet<Uuid> = truth.load_balancers.find(|by| &by.name, "steady").map(|(uuid, _)| uuid).collect();
    let lost: Vec<_> = told.acknowledged.difference(&rows).collect();
    assert!(lost.is_empty(), "acknowledged and lost: {lost:?}");
    assert!(
        rows.len() <= told.acknowledged.len() + told.open,
        "{} rows of {} writes",
        rows.len(),
        told.acknowledged.len()
    );
    let (_, global) = truth.globals.iter().next().unwrap();
    assert_eq!(global.nb_cfg, i64::try_from(rows.len()).unwrap(), "a write was applied twice");
    let ours = replica.snapshot();
    assert!(ours.load_balancers.iter().eq(truth.load_balancers.iter()), "the replica is not what the server has");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_leader_loses_no_acknowledged_write() {
    leader_lost_under_a_steady_writer(Signal::SIGKILL).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminated_leader_loses_no_acknowledged_write() {
    leader_lost_under_a_steady_writer(Signal::SIGTERM).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_leader_loses_no_acknowledged_write() {
    leader_lost_under_a_steady_writer(Signal::SIGSTOP).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_quorum_is_said_and_survived() {
    let mut server = Server::cluster(3).await.unwrap();
    let leader = server.leader().await.unwrap();
    let replica: Replica<Northbound> = Replica::open(config(&server.remotes()));
    soon(replica.synced()).await;
    write(replica.client(), "kept").await;

    let others: Vec<_> = (0..3).filter(|n| *n != leader).collect();
    for other in &others {
        server.stop(*other, Signal::SIGKILL).await.unwrap();
    }
    let attempt = Uuid::new_v4();
    let error = replica
        .client()
        .transact(&[new_lb(attempt, "hangs")], Instant::now() + Duration::from_millis(500))
        .await
        .unwrap_err();
    assert!(matches!(error, TransactError::Unknown { .. } | TransactError::NotSent { .. }), "{error}");
    // Nothing else is told in the end; first perhaps a connection that went with a member who had come to lead meanwhile.
    let is_told = |cause: &Cause| matches!(cause, Cause::NotLeader | Cause::NotConnected | Cause::Refused);
    until_state(&replica, |state| matches!(state, State::Disconnected { error } if is_told(&error.cause))).await;
    let refused = replica.client().transact(&[Op::comment("x")], Instant::now() + Duration::from_millis(200)).await;
    assert!(matches!(refused, Err(TransactError::NotSent { .. })), "{refused:?}");
    assert_eq!(names(&replica.snapshot()), ["kept".into()]);

    for other in others {
        server.restart(other).await.unwrap();
    }
    until_state(&replica, |state| matches!(state, State::InSync { .. })).await;
    // It may have been applied meanwhile; a repetition finds out and never makes a second row.
    write_as(replica.client(), attempt, "hangs").await;
    until(&replica, |now| names(now) == ["hangs".into(), "kept".into()]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_of_any_member_reads_from_a_follower_and_moves_when_it_dies() {
    let mut server = Server::cluster(3).await.unwrap();
    let replica: Replica<Northbound> = Replica::open(config(&server.remotes()).any_member());
    soon(replica.synced()).await;
    write(replica.client(), "a").await;
    let state = until_state(&replica, |state| matches!(state, State::InSync { .. })).await;
    let State::InSync { endpoint } = state else { unreachable!() };
    let used = (0..3).find(|n| server.tcp(*n) == endpoint.to_string()).unwrap();
    server.stop(used, Signal::SIGKILL).await.unwrap();
    until_state(&replica, |state| matches!(state, State::InSync { endpoint: now } if *now != endpoint)).await;
    write(replica.client(), "b").await;
    until(&replica, |now| names(now) == ["a".into(), "b".into()]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rebuilt_cluster_is_read_anew_and_a_pinned_one_is_not_left() {
    let mut old = Server::cluster(1).await.unwrap();
    let new = Server::cluster(1).await.unwrap();
    let cid: Uuid = old.appctl(0, ["cluster/cid", "OVN_Northbound"]).await.unwrap().trim().parse().unwrap();
    write(&Client::open(config(&old.unix(0)), "OVN_Northbound"), "old").await;
    write(&Client::open(config(&new.unix(0)), "OVN_Northbound"), "new").await;

    let proxy = Proxy::before(new.tcp_address(0)).await.unwrap();
    let both = format!("{},tcp:{}", old.unix(0), proxy.address());
    // Out of reach, so that the old cluster is chosen first.
    proxy.partition();
    let open = Replica::<Northbound>::open(config(&both));
    let pinned = Replica::<Northbound>::open(config(&both).cluster(cid));
    for replica in [&open, &pinned] {
        assert_eq!(names(&*soon(replica.synced()).await), ["old".into()]);
    }
    proxy.heal();
    old.stop(0, Signal::SIGKILL).await.unwrap();

    until(&open, |now| names(now) == ["new".into()]).await;
    assert_eq!(open.client().counters().resyncs_cluster_changed, 1);
    eventually("the other cluster is refused", PATIENCE, async || match pinned.client().state() {
        State::Disconnected { error } if matches!(error.cause, Cause::OtherCluster { .. }) => Ok(()),
        state => Err(format!("{state:?}")),
    })
    .await
    .unwrap();
    assert_eq!(names(&pinned.snapshot()), ["old".into()]);
}
