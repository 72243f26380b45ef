//! What happens to servers in operation: upgrades, restores, restarts, hangs.

use std::fs;
use std::time::Duration;

use futures::FutureExt;
use groundcrew_testkit::ovn::{Northbound as Server, Relay, schema};
use groundcrew_testkit::proxy::Proxy;
use groundcrew_testkit::{Scratch, Signal, eventually};
use ovsdb_client::{Cause, Client, ConnectError, Database, Op, Replica, Row, Rows, State, TransactError, Uuid};
use tokio::time::timeout;

use crate::nb::{Global, LoadBalancer, Northbound, PATIENCE, config, in_time, names, new_lb, soon, until, until_state};

ovsdb_client::table! {
    pub(crate) struct NewerLoadBalancer = "Load_Balancer" {
        pub(crate) name: Box<str>,
        pub(crate) from_the_future: Option<Box<str>> = optional,
    }
}
ovsdb_client::table! {
    pub(crate) struct Meter = "Meter_From_The_Future" { pub(crate) name: Box<str> }
}
ovsdb_client::database! {
    pub(crate) struct Tolerant = "OVN_Northbound" {
        pub(crate) load_balancers: NewerLoadBalancer,
        pub(crate) meters: Meter = optional,
    }
}
ovsdb_client::table! {
    pub(crate) struct StrictLoadBalancer = "Load_Balancer" { pub(crate) name: Box<str>, pub(crate) from_the_future: Option<Box<str>> }
}
ovsdb_client::database! {
    pub(crate) struct MissesColumn = "OVN_Northbound" { pub(crate) load_balancers: StrictLoadBalancer }
}
ovsdb_client::database! {
    pub(crate) struct MissesTable = "OVN_Northbound" { pub(crate) meters: Meter }
}
ovsdb_client::table! {
    pub(crate) struct Mistyped = "Load_Balancer" { pub(crate) name: ovsdb_client::Set<Box<str>> }
}
ovsdb_client::database! {
    pub(crate) struct MistypedDatabase = "OVN_Northbound" { pub(crate) load_balancers: Mistyped }
}
ovsdb_client::database! {
    pub(crate) struct NoSuchDatabase = "OVN_Westbound" { pub(crate) load_balancers: LoadBalancer }
}

async fn write(client: &Client, name: &str) -> Uuid {
    let id = Uuid::new_v4();
    client.transact(&[new_lb(id, name)], in_time()).await.unwrap();
    id
}

async fn open() -> (Server, Replica<Northbound>) {
    let server = Server::standalone().await.unwrap();
    let replica = Replica::open(config(&server.tcp(0)));
    soon(replica.synced()).await;
    (server, replica)
}

/// The error at which a replica of these tables stands still.
async fn error_of<D: Database + Default>(endpoints: &str) -> std::sync::Arc<ConnectError> {
    let replica = Replica::<D>::open(config(endpoints).handshake_timeout(PATIENCE));
    let mut states = replica.client().watch_state();
    let state = soon(states.wait_for(|state| matches!(state, State::Disconnected { .. }))).await.unwrap().clone();
    match state {
        State::Disconnected { error } => error,
        other => panic!("{other:?}"),
    }
}

/// The northbound schema with one more column in `Load_Balancer`.
fn newer_schema(dir: &Scratch) -> std::path::PathBuf {
    let text = fs::read_to_string(schema().unwrap()).unwrap();
    let mut schema: serde_json::Value = serde_json::from_str(&text).unwrap();
    schema["tables"]["Load_Balancer"]["columns"]["from_the_future"] =
        serde_json::json!({"type": {"key": "string", "min": 0, "max": 1}});
    schema["version"] = "99.0.0".into();
    schema.as_object_mut().unwrap().remove("cksum");
    let file = dir.join("newer.ovsschema");
    fs::write(&file, schema.to_string()).unwrap();
    file
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schema_conversion_is_followed_without_losing_a_row_from_sight() {
    let server = Server::standalone().await.unwrap();
    let replica = Replica::<Tolerant>::open(config(&server.tcp(0)));
    soon(replica.synced()).await;
    let id = write(replica.client(), "a").await;
    let mut changes = replica.changes();
    soon(changes.next()).await;

    let dir = Scratch::new("schema").unwrap();
    server.convert(&newer_schema(&dir)).await.unwrap();
    server.nbctl(["--no-leader-only", "show"]).await.unwrap();
    // The new column is read although nobody said so: it is declared, and now it is there.
    let set = Op::update("Load_Balancer", []).set("from_the_future", Some("yes")).into();
    soon(async { while replica.client().transact(std::slice::from_ref(&set), in_time()).await.is_err() {} }).await;
    soon(async {
        loop {
            let news = changes.next().await;
            let row = news.after.load_balancers.get(id).expect("the row was never gone");
            if row.from_the_future.as_deref() == Some("yes") {
                return;
            }
        }
    })
    .await;
    let counters = replica.client().counters();
    assert_eq!((counters.resyncs_schema_changed, counters.disconnects), (1, 0), "{counters:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_of_one_table_sleeps_through_the_changes_of_others() {
    let (_server, replica) = open().await;
    let mut changes = replica.changes_in(&[Global::TABLE]);
    assert_eq!(soon(changes.next()).await.rows, Rows::Everything);
    let (quiet, row) = (replica.snapshot().generation(), write(replica.client(), "a").await);
    assert!(replica.snapshot().generation() > quiet, "the replica has it");
    assert!(changes.next().now_or_never().is_none(), "nobody was woken");

    let both = [new_lb(Uuid::new_v4(), "b"), Op::update(Global::TABLE, []).set("nb_cfg", 7).into()];
    replica.client().transact(&both, in_time()).await.unwrap();
    let news = soon(changes.next()).await;
    let Rows::Some(rows) = &news.rows else { panic!("{:?}", news.rows) };
    assert!(!rows.is_empty() && rows.iter().all(|row| &*row.table == Global::TABLE), "{rows:?}");
    assert!(news.before.load_balancers.get(row).is_none(), "what it has seen before is as old as its last look");
    assert_eq!(names(&news.after), ["a".into(), "b".into()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_backup_is_one_change_under_new_uuids() {
    let (server, replica) = open().await;
    let kept = write(replica.client(), "kept").await;
    let dir = Scratch::new("backup").unwrap();
    server.backup(&dir.join("nb.backup")).await.unwrap();
    let newer = write(replica.client(), "newer").await;
    let mut changes = replica.changes();
    soon(changes.next()).await;

    server.restore(&dir.join("nb.backup")).await.unwrap();
    let news = soon(changes.next()).await;
    assert_eq!(names(&news.before), ["kept".into(), "newer".into()]);
    assert_eq!(names(&news.after), ["kept".into()]);
    assert!(news.after.load_balancers.get(kept).is_none(), "restored under its old UUID");
    let Rows::Some(rows) = news.rows else { panic!("{:?}", news.rows) };
    assert!([kept, newer].iter().all(|gone| rows.iter().any(|row| row.uuid == *gone)));
    let (found, _) = news.after.load_balancers.find(|by| &by.owner, "kept").next().unwrap();
    assert!(rows.iter().any(|row| row.uuid == found));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_emptied_database_is_seen_only_once_the_new_one_is_complete() {
    let (mut server, replica) = open().await;
    write(replica.client(), "a").await;
    let mut changes = replica.changes();
    soon(changes.next()).await;
    server.rebuild_empty().await.unwrap();
    let news = soon(async {
        loop {
            let news = changes.next().await;
            if news.after.load_balancers.is_empty() {
                return news;
            }
        }
    })
    .await;
    // Empty because the server says so, and it says so for all tables at once.
    assert_eq!(news.before.load_balancers.len(), 1);
    until(&replica, |now| now.globals.len() == 1 && now.load_balancers.is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn being_thrown_out_again_and_again_loses_nothing() {
    let (server, replica) = open().await;
    for n in 0..10 {
        let id = write(replica.client(), &format!("lb{n}")).await;
        server.disconnect_clients(0).await.unwrap();
        eventually("a reconnect", PATIENCE, async || {
            let counters = replica.client().counters();
            if counters.connects == n + 2 { Ok(()) } else { Err(format!("{counters:?}")) }
        })
        .await
        .unwrap();
        assert!(replica.snapshot().load_balancers.get(id).is_some());
        until_state(&replica, |state| matches!(state, State::InSync { .. })).await;
    }
    assert_eq!(replica.snapshot().load_balancers.len(), 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hung_server_leaves_a_write_open_that_lands_later_and_only_once() {
    let server = Server::standalone().await.unwrap();
    // The kernel still accepts for it: one waits for the answer to its next handshake, and the other tries again and again.
    let replica = Replica::<Northbound>::open(config(&server.tcp(0)).handshake_timeout(PATIENCE));
    let hasty = Replica::<Northbound>::open(config(&server.tcp(0)).handshake_timeout(Duration::from_secs(1)));
    write(replica.client(), "before").await;
    until(&hasty, |now| names(now) == ["before".into()]).await;

    server.signal(0, Signal::SIGSTOP).unwrap();
    let id = Uuid::new_v4();
    let error = replica.client().transact(&[new_lb(id, "open")], in_time()).await.unwrap_err();
    assert!(matches!(error, TransactError::Unknown { .. }), "{error}");
    let state = until_state(&replica, |state| matches!(state, State::Disconnected { .. })).await;
    let State::Disconnected { error } = state else { unreachable!() };
    assert!(matches!(error.cause, Cause::Silent(_)), "{error}");
    until_state(
        &hasty,
        |state| matches!(state, State::Disconnected { error } if matches!(error.cause, Cause::Timeout(_))),
    )
    .await;
    for replica in [&replica, &hasty] {
        assert_eq!(names(&replica.snapshot()), ["before".into()]);
    }

    server.signal(0, Signal::SIGCONT).unwrap();
    for replica in [&replica, &hasty] {
        until(replica, |now| names(now) == ["before".into(), "open".into()]).await;
    }
    let again = replica.client().transact(&[new_lb(id, "open")], in_time()).await.unwrap_err();
    assert!(matches!(&again, TransactError::Rejected { error, .. } if error == "duplicate uuid"), "{again}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_column_is_named_with_the_endpoint() {
    let server = Server::standalone().await.unwrap();
    let error = error_of::<MissesColumn>(&server.tcp(0)).await.to_string();
    assert!(error.starts_with(&server.tcp(0)), "{error}");
    assert!(
        error.contains("table Load_Balancer of OVN_Northbound") && error.contains("no column from_the_future"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_table_is_named_with_the_endpoint() {
    let server = Server::standalone().await.unwrap();
    let error = error_of::<MissesTable>(&server.tcp(0)).await.to_string();
    assert!(error.contains(&server.tcp(0)) && error.contains("no table Meter_From_The_Future"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_field_of_the_wrong_type_is_named() {
    let server = Server::standalone().await.unwrap();
    let error = error_of::<MistypedDatabase>(&server.tcp(0)).await.to_string();
    assert!(
        error.contains("column name of table Load_Balancer is string") && error.contains("Set<Box<str>>"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_declared_optional_may_be_missing() {
    let server = Server::standalone().await.unwrap();
    let replica = Replica::<Tolerant>::open(config(&server.tcp(0)));
    soon(replica.synced()).await;
    let id = write(replica.client(), "a").await;
    let now = replica.snapshot();
    assert_eq!(now.load_balancers.get(id).unwrap().from_the_future, None);
    assert!(now.meters.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_the_server_lacks_is_named() {
    let server = Server::standalone().await.unwrap();
    let error = error_of::<NoSuchDatabase>(&server.tcp(0)).await;
    assert!(matches!(&error.cause, Cause::NoDatabase { database, .. } if database == "OVN_Westbound"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_listening_and_a_name_that_is_none_are_errors_of_their_own() {
    let port = groundcrew_testkit::ReservedPort::new().unwrap();
    let nobody = format!("tcp:{}", port.address());
    let error = error_of::<Northbound>(&nobody).await;
    assert_eq!(error.to_string(), format!("{nobody}: connection refused"));
    // Too long for a label: the resolver knows that without asking anybody.
    let nowhere = format!("tcp:{}:6641", "x".repeat(64));
    let error = error_of::<Northbound>(&nowhere).await;
    assert!(matches!(error.cause, Cause::Resolve(_)), "{error}");
    assert!(error.to_string().starts_with(&format!("{nowhere}: host name does not resolve")), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_comes_late_is_found() {
    let mut server = Server::standalone().await.unwrap();
    server.stop(0, Signal::SIGTERM).await.unwrap();
    let replica = Replica::<Northbound>::open(config(&server.tcp(0)));
    until_state(&replica, |state| matches!(state, State::Disconnected { .. })).await;
    server.restart(0).await.unwrap();
    soon(replica.synced()).await;
    assert!(replica.client().counters().failed_attempts > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_that_has_lost_its_source_is_left_for_one_that_has_it() {
    let server = Server::standalone().await.unwrap();
    let way = Proxy::before(server.tcp_address(0)).await.unwrap();
    let (first, second) =
        (Relay::before(way.address()).await.unwrap(), Relay::before(server.tcp_address(0)).await.unwrap());
    let replica = Replica::<Northbound>::open(config(&first.tcp()));
    soon(replica.synced()).await;
    write(replica.client(), "through a relay").await;
    way.partition();
    way.cut();
    // A relay gives its source half a minute to come back before it says that it has lost it.
    let mut states = replica.client().watch_state();
    let lost = states.wait_for(|state| matches!(state, State::Disconnected { .. }));
    let state = timeout(2 * PATIENCE, lost).await.unwrap().unwrap().clone();
    let State::Disconnected { error } = state else { unreachable!() };
    assert!(matches!(error.cause, Cause::NotConnected), "{error}");

    let either = Replica::<Northbound>::open(config(&format!("{},{}", first.tcp(), second.tcp())));
    soon(either.synced()).await;
    write(either.client(), "through the other").await;
    way.heal();
    until(&replica, |now| names(now) == ["through a relay".into(), "through the other".into()]).await;
}
