//! One ordinary server.

use std::collections::BTreeSet;
use std::time::Duration;

use groundcrew_testkit::ovn::Northbound as Server;
use groundcrew_testkit::proxy::Proxy;
use ovsdb_client::ops::{Columns, Mutator};
use ovsdb_client::{Atom, Cause, Client, Condition, Config, Op, Replica, Rows, State, TransactError, Uuid, Value};
use tokio::time::Instant;

use crate::nb::{Northbound, config, in_time, names, new_lb, soon, touched};

async fn open() -> (Server, Replica<Northbound>) {
    let server = Server::standalone().await.unwrap();
    let replica = Replica::open(config(&server.unix(0)));
    soon(replica.synced()).await;
    (server, replica)
}

fn rejected(error: &TransactError) -> (Option<usize>, &str) {
    match error {
        TransactError::Rejected { op, error, .. } => (*op, error),
        other => panic!("{other}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn typed_rows_and_indexes_follow_what_another_client_writes() {
    let (server, replica) = open().await;
    let mut changes = replica.changes();
    assert_eq!(soon(changes.next()).await.rows, Rows::Everything);

    server.nbctl(["lb-add", "web", "192.0.2.1:80", "10.0.0.1:80,10.0.0.2:80"]).await.unwrap();
    let news = soon(changes.next()).await;
    let [uuid] = touched(&news.rows, "Load_Balancer")[..] else { panic!("{news:?}") };
    let row = news.after.load_balancers.get(uuid).unwrap();
    assert_eq!(row.vips.iter().collect::<Vec<_>>(), [("192.0.2.1:80", "10.0.0.1:80,10.0.0.2:80")]);
    assert_eq!(row.protocol.as_deref(), Some("tcp"));

    server
        .nbctl(["set", "load_balancer", "web", "external_ids:owner=a/b", "selection_fields=[ip_src,tp_src]"])
        .await
        .unwrap();
    let news = soon(changes.next()).await;
    let (found, row) = news.after.load_balancers.find(|by| &by.owner, "a/b").next().unwrap();
    assert_eq!((found, row.selection_fields.len()), (uuid, 2));

    server.nbctl(["set", "load_balancer", "web", "external_ids:owner=c/d", "selection_fields=ip_src"]).await.unwrap();
    let news = soon(changes.next()).await;
    assert_eq!(news.after.load_balancers.find(|by| &by.owner, "a/b").count(), 0);
    assert_eq!(news.after.load_balancers.find(|by| &by.owner, "c/d").count(), 1);
    assert_eq!(news.after.load_balancers.get(uuid).unwrap().selection_fields.len(), 1);

    server.nbctl(["lb-del", "web"]).await.unwrap();
    let news = soon(changes.next()).await;
    assert_eq!(touched(&news.rows, "Load_Balancer"), [uuid]);
    assert_eq!(news.before.load_balancers.get(uuid).unwrap().external_ids.get("owner"), Some("c/d"));
    assert!(news.after.load_balancers.is_empty());
    assert_eq!(news.after.load_balancers.find(|by| &by.name, "web").count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acknowledged_write_is_in_the_next_snapshot() {
    let (_server, replica) = open().await;
    for n in 0..200 {
        let uuid = Uuid::new_v4();
        replica.client().transact(&[new_lb(uuid, &format!("lb{n}"))], in_time()).await.unwrap();
        assert!(replica.snapshot().load_balancers.get(uuid).is_some(), "write {n} is not there");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_one_transaction_are_seen_together_or_not_at_all() {
    let (_server, replica) = open().await;
    let router = replica.client().transact(&[Op::insert("Logical_Router").set("name", "r").into()], in_time()).await;
    let router = router.unwrap()[0].uuid.unwrap();
    let reader = replica.clone();
    let watching = tokio::spawn(async move {
        let mut changes = reader.changes();
        loop {
            let now = changes.next().await.after;
            for (uuid, _) in now.load_balancers.iter() {
                assert_eq!(now.routers.find(|by| &by.load_balancer, uuid).count(), 1, "half a transaction was seen");
            }
            if now.load_balancers.len() == 50 {
                return;
            }
        }
    });
    for n in 0..50 {
        let attach = Op::mutate("Logical_Router", [Condition::uuid(router)]).mutation(
            "load_balancer",
            Mutator::Insert,
            Value::set([Atom::named_uuid("new")]),
        );
        let insert = Op::insert("Load_Balancer").set("name", format!("lb{n}")).named("new");
        replica.client().transact(&[insert.into(), attach.into()], in_time()).await.unwrap();
    }
    soon(watching).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn every_operation_does_what_it_says() {
    let (_server, replica) = open().await;
    let client = replica.client();
    let id = Uuid::new_v4();
    let results = client
        .transact(
            &[
                Op::comment("a test"),
                new_lb(id, "a"),
                Op::update("Load_Balancer", [Condition::uuid(id)]).set("name", "b").into(),
                Op::mutate("Load_Balancer", [Condition::eq("name", "b")])
                    .mutation("external_ids", Mutator::Delete, Value::set(["cluster"]))
                    .mutation("external_ids", Mutator::Insert, Value::map([("k", "v")]))
                    .into(),
                Op::select("Load_Balancer", [Condition::includes("external_ids", Value::map([("k", "v")]))])
                    .columns(["name", "external_ids", "_uuid"])
                    .into(),
                Op::wait("Load_Balancer", [Condition::uuid(id)]).has("name", "b").into(),
                Op::commit(false),
            ],
            in_time(),
        )
        .await
        .unwrap();
    assert_eq!(results[1].uuid, Some(id));
    assert_eq!((results[2].count, results[3].count), (1, 1));
    let row = &results[4].rows[0];
    assert_eq!((&row["name"], &row["_uuid"]), (&Value::from("b"), &Value::from(id)));
    assert_eq!(row["external_ids"], Value::map([("k", "v"), ("owner", "a")]));
    assert_eq!(&*replica.snapshot().load_balancers.get(id).unwrap().name, "b");

    let results = client.transact(&[Op::delete("Load_Balancer", [Condition::uuid(id)])], in_time()).await.unwrap();
    assert_eq!(results[0].count, 1);
    assert!(replica.snapshot().load_balancers.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rejection_names_the_operation_and_changes_nothing() {
    let (server, replica) = open().await;
    let client = replica.client();
    let id = Uuid::new_v4();
    client.transact(&[new_lb(id, "a")], in_time()).await.unwrap();

    let guard = Op::wait("Load_Balancer", [Condition::uuid(id)]).has("name", "other").into();
    let error =
        client.transact(&[Op::comment("x"), guard, Op::delete("Load_Balancer", [])], in_time()).await.unwrap_err();
    assert_eq!((rejected(&error), error.is_guard()), ((Some(1), "timed out"), true));

    let none = Op::wait("Load_Balancer", [Condition::eq("name", "a")]).columns(["name"]).are([]).into();
    assert!(client.transact(&[none], in_time()).await.unwrap_err().is_guard());
    let one = Op::wait("Load_Balancer", []).are_not([Columns::from([("name".into(), "a".into())])]).into();
    assert!(client.transact(&[one], in_time()).await.unwrap_err().is_guard());

    let error = client.transact(&[new_lb(id, "a")], in_time()).await.unwrap_err();
    assert_eq!(rejected(&error), (Some(0), "duplicate uuid"));
    let error = client.transact(&[new_lb(Uuid::new_v4(), "b"), Op::abort()], in_time()).await.unwrap_err();
    assert_eq!(rejected(&error), (Some(1), "aborted"));
    let error = client.transact(&[Op::assert("nobodys")], in_time()).await.unwrap_err();
    assert_eq!(rejected(&error), (Some(0), "not owner"));
    let error = client.transact(&[Op::insert("No_Such_Table").into()], in_time()).await.unwrap_err();
    assert_eq!(rejected(&error).0, Some(0));

    // NB_Global may have one row; the server checks that at commit.
    let error = client.transact(&[Op::insert("NB_Global").into()], in_time()).await.unwrap_err();
    assert_eq!(rejected(&error), (None, "constraint violation"));

    server.set_read_only(true).await.unwrap();
    let error = soon(async {
        loop {
            match client.transact(&[new_lb(Uuid::new_v4(), "c")], in_time()).await {
                // Becoming read-only disconnects clients; what was on its way then is open.
                Err(error @ TransactError::Rejected { .. }) => return error,
                Err(_) => {}
                Ok(_) => panic!("a read-only server wrote"),
            }
        }
    })
    .await;
    assert_eq!(rejected(&error).1, "not allowed");
    assert_eq!(names(&replica.snapshot()), ["a".into()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn five_hundred_concurrent_calls_each_get_their_own_answer() {
    let (_server, replica) = open().await;
    let calls = (0..500).map(|n| {
        let client = replica.client().clone();
        async move {
            let id = Uuid::new_v4();
            let results = client.transact(&[new_lb(id, &format!("lb{n}"))], in_time()).await.unwrap();
            assert_eq!(results[0].uuid, Some(id));
        }
    });
    soon(futures::future::join_all(calls)).await;
    assert_eq!(replica.snapshot().load_balancers.len(), 500);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_consumer_gets_every_row_in_one_go_and_holds_nobody_up() {
    let (_server, replica) = open().await;
    let mut changes = replica.changes();
    soon(changes.next()).await;
    let mut written = BTreeSet::new();
    for n in 0..300 {
        let id = Uuid::new_v4();
        written.insert(id);
        replica.client().transact(&[new_lb(id, &format!("lb{n}"))], in_time()).await.unwrap();
    }
    let news = soon(changes.next()).await;
    assert!(news.before.load_balancers.is_empty());
    assert_eq!(touched(&news.rows, "Load_Balancer").into_iter().collect::<BTreeSet<_>>(), written);
    assert_eq!(news.after.load_balancers.len(), 300);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_stays_as_it_was_taken() {
    let (_server, replica) = open().await;
    let ids: Vec<_> = (0..100).map(|_| Uuid::new_v4()).collect();
    let inserts: Vec<_> = ids.iter().map(|id| new_lb(*id, "old")).collect();
    replica.client().transact(&inserts, in_time()).await.unwrap();
    let before = replica.snapshot();
    let rename = Op::update("Load_Balancer", []).set("name", "new").into();
    replica.client().transact(&[rename], in_time()).await.unwrap();
    assert!(before.load_balancers.iter().all(|(_, row)| &*row.name == "old"));
    assert_eq!(before.load_balancers.find(|by| &by.name, "old").count(), 100);
    assert_eq!(replica.snapshot().load_balancers.find(|by| &by.name, "new").count(), 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_goes_from_one_client_to_the_next_and_guards_writes() {
    let server = Server::standalone().await.unwrap();
    let proxy = Proxy::before(server.tcp_address(0)).await.unwrap();
    let first = Client::open(config(&server.unix(0)), "OVN_Northbound");
    let second = Client::open(config(&format!("tcp:{}", proxy.address())), "OVN_Northbound");
    let mut held = first.lock("writer");
    soon(held.acquired()).await;
    let mut waiting = second.lock("writer");
    let guarded = [Op::assert("writer"), new_lb(Uuid::new_v4(), "a")];
    let error = second.transact(&guarded, in_time()).await.unwrap_err();
    assert_eq!(rejected(&error), (Some(0), "not owner"));
    assert!(!waiting.is_held());
    first.transact(&guarded, in_time()).await.unwrap();

    drop(held);
    soon(waiting.acquired()).await;
    second.transact(&[Op::assert("writer")], in_time()).await.unwrap();

    // Out of reach until that was seen, or it would be held again before anybody looks.
    proxy.partition();
    proxy.cut();
    soon(waiting.lost()).await;
    proxy.heal();
    soon(waiting.acquired()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_connection_a_transaction_is_certainly_not_sent() {
    let client = Client::open(config("unix:/nonexistent/nb.sock"), "OVN_Northbound");
    // Before the first attempt there is no reason that could be told.
    let mut states = client.watch_state();
    soon(states.wait_for(|state| matches!(state, State::Disconnected { .. }))).await.unwrap();
    let deadline = Instant::now() + Duration::from_millis(300);
    let error = client.transact(&[Op::comment("x")], deadline).await.unwrap_err();
    assert!(
        matches!(&error, TransactError::NotSent { reason } if reason.contains("unix:/nonexistent/nb.sock")),
        "{error}"
    );
}

#[tokio::test]
async fn a_configuration_without_endpoints_is_an_error_at_once() {
    let client = Client::open(Config::new([]), "OVN_Northbound");
    let error = soon(client.transact(&[Op::comment("x")], Instant::now() + 2 * crate::nb::PATIENCE)).await.unwrap_err();
    assert_eq!(error, TransactError::NotSent { reason: "no endpoint is configured".into() });
    let state = client.state();
    assert!(matches!(&state, State::Disconnected { error } if matches!(error.cause, Cause::NoEndpoints)), "{state:?}");
}

ovsdb_client::table! {
    /// Every pod has a switch port; few of them lead to a router.
    struct RouterPeer = "Logical_Switch_Port" where r#type == "router" {
        name: std::sync::Arc<str>,
        r#type: Box<str>,
    }
}

ovsdb_client::table! {
    struct OwnGroup = "Port_Group" where external_ids["owner"] == "me" {
        name: std::sync::Arc<str>,
        external_ids: ovsdb_client::StrMap,
    }
}

ovsdb_client::database! {
    struct Few = "OVN_Northbound" {
        peers: RouterPeer,
        groups: OwnGroup,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_table_with_a_condition_only_the_rows_that_fit_are_there() {
    let server = Server::standalone().await.unwrap();
    server.nbctl(["ls-add", "s", "--", "lsp-add", "s", "pod", "--", "lsp-add", "s", "up"]).await.unwrap();
    server.nbctl(["lsp-set-type", "up", "router", "--", "pg-add", "ours", "--", "pg-add", "theirs"]).await.unwrap();
    server.nbctl(["set", "port_group", "ours", "external_ids:owner=me", "external_ids:more=x"]).await.unwrap();
    let replica: Replica<Few> = Replica::open(config(&server.unix(0)));
    let seen = |few: &Few| {
        let peers: BTreeSet<_> = few.peers.iter().map(|(_, row)| row.name.to_string()).collect();
        let groups: BTreeSet<_> = few.groups.iter().map(|(_, row)| row.name.to_string()).collect();
        (peers, groups)
    };
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    let mut changes = replica.changes();
    assert_eq!(seen(&soon(changes.next()).await.after), (set(&["up"]), set(&["ours"])));

    server.nbctl(["lsp-add", "s", "another", "--", "pg-add", "third"]).await.unwrap();
    server.nbctl(["lsp-set-type", "pod", "router"]).await.unwrap();
    assert_eq!(seen(&soon(changes.next()).await.after), (set(&["pod", "up"]), set(&["ours"])), "one comes to fit");
    server.nbctl(["set", "port_group", "ours", "external_ids:owner=you"]).await.unwrap();
    let news = soon(changes.next()).await;
    assert_eq!(seen(&news.after), (set(&["pod", "up"]), set(&[])), "one fits no more");
    assert_eq!(seen(&news.before).1, set(&["ours"]));
    server.nbctl(["set", "port_group", "theirs", "external_ids:owner=me"]).await.unwrap();
    assert_eq!(seen(&soon(changes.next()).await.after).1, set(&["theirs"]));
}
