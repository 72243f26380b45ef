//! Peers that no real server would be, to be survived all the same.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use groundcrew_testkit::ovn::Northbound as Server;
use ovsdb_client::codec::{FrameError, FrameReader};
use ovsdb_client::{Cause, Client, Op, Replica, Rows, State, TransactError, Uuid};
use serde_json::{Value, json};
use tokio::io::{AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::Instant;

use crate::nb::{PATIENCE, config, in_time, soon};

ovsdb_client::table! {
    pub(crate) struct Thing = "Thing" { pub(crate) name: Box<str>, pub(crate) tags: ovsdb_client::Set<Box<str>> }
}
ovsdb_client::database! {
    pub(crate) struct Things = "Things" { pub(crate) things: Thing }
}

/// A server in the test's hands. It has one table, and no `_Server` unless it leads a cluster: old servers have none.
struct Peer {
    listener: TcpListener,
    endpoint: String,
}

/// A client as the peer sees it.
struct Visitor {
    reader: FrameReader<ReadHalf<TcpStream>>,
    writer: WriteHalf<TcpStream>,
}

impl Peer {
    async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("tcp:{}", listener.local_addr().unwrap());
        Self { listener, endpoint }
    }

    async fn accept(&self) -> Visitor {
        let (stream, _) = soon(self.listener.accept()).await.unwrap();
        // What is sent is there.
        stream.set_nodelay(true).unwrap();
        let (read, writer) = tokio::io::split(stream);
        Visitor { reader: FrameReader::new(read, usize::MAX), writer }
    }

    /// Accepts a client and takes it as far as the request for its monitor, which is returned.
    async fn accept_to_monitor(&self) -> (Visitor, Value) {
        let mut visitor = self.accept().await;
        visitor.answer("list_dbs", json!(["Things"])).await;
        let request = visitor.until_monitor().await;
        (visitor, request)
    }

    /// Accepts a client and gives it one thing of this name.
    async fn accept_to_sync(&self, name: &str) -> Visitor {
        let (mut visitor, request) = self.accept_to_monitor().await;
        visitor.sync(&request, name).await;
        visitor
    }

    /// Accepts a client as the leader of a cluster, that far in its log.
    async fn accept_as_leader(&self, cid: u128, index: i64) -> Visitor {
        let mut visitor = self.accept().await;
        visitor.answer("list_dbs", json!(["Things", "_Server"])).await;
        visitor.answer("set_db_change_aware", json!({})).await;
        let cid = json!(["uuid", Uuid::from_u128(cid)]);
        let row = json!({"name": "Things", "model": "clustered", "connected": true, "leader": true, "cid": cid, "index": index});
        visitor.answer("monitor_cond", json!({"Database": {thing(99): {"initial": row}}})).await;
        visitor
    }
}

impl Visitor {
    /// The next request that is no probe.
    async fn request(&mut self) -> Value {
        loop {
            let request: Value = serde_json::from_str(soon(self.reader.next()).await.unwrap().text()).unwrap();
            if request["method"] != "echo" {
                return request;
            }
            self.reply(&request, json!([])).await;
        }
    }

    async fn until_monitor(&mut self) -> Value {
        self.answer("get_schema", schema()).await;
        self.request().await
    }

    async fn sync(&mut self, request: &Value, name: &str) {
        let rows = things(json!({thing(1): {"initial": {"name": name}}}));
        self.reply(request, json!([false, Uuid::nil(), rows])).await;
    }

    async fn answer(&mut self, method: &str, result: Value) {
        let request = self.request().await;
        assert_eq!(request["method"], method);
        self.reply(&request, result).await;
    }

    async fn reply(&mut self, request: &Value, result: Value) {
        self.send(&json!({"id": request["id"], "result": result, "error": null})).await;
    }

    async fn send(&mut self, message: &Value) {
        self.writer.write_all(message.to_string().as_bytes()).await.unwrap();
    }
}

fn schema() -> Value {
    json!({"name": "Things", "version": "1.0.0", "tables": {"Thing": {"columns": {
        "name": {"type": "string"},
        "tags": {"type": {"key": {"type": "string"}, "min": 0, "max": "unlimited"}},
    }}}})
}

fn things(rows: impl Into<Value>) -> Value {
    json!({"Thing": rows.into()})
}

fn thing(n: u128) -> String {
    Uuid::from_u128(n).to_string()
}

/// Patient: a peer in the test's hands says nothing while the test, or the machine, is busy with something else.
fn open(peer: &Peer) -> Replica<Things> {
    open_for(peer, PATIENCE)
}

fn open_for(peer: &Peer, dead_after: Duration) -> Replica<Things> {
    Replica::open(config(&peer.endpoint).dead_after(dead_after).handshake_timeout(PATIENCE))
}

async fn named(replica: &Replica<Things>, names: &[&str]) {
    let mut changes = replica.changes();
    soon(async {
        loop {
            let now: Vec<_> = changes.next().await.after.things.iter().map(|(_, row)| row.name.to_string()).collect();
            if now == names {
                return;
            }
        }
    })
    .await;
}

async fn failed_with(replica: &Replica<Things>, wanted: impl Fn(&Cause) -> bool) {
    let mut states = replica.client().watch_state();
    let found = |state: &State| matches!(state, State::Disconnected { error } if wanted(&error.cause));
    soon(states.wait_for(found)).await.unwrap();
}

#[tokio::test]
async fn an_old_server_is_monitored_in_the_words_of_rfc_7047() {
    let peer = Peer::new().await;
    let replica = open(&peer);
    let (mut visitor, mut request) = peer.accept_to_monitor().await;
    for method in ["monitor_cond_since", "monitor_cond"] {
        assert_eq!(request["method"], method);
        visitor.send(&json!({"id": request["id"], "result": null, "error": "unknown method"})).await;
        request = visitor.request().await;
    }
    assert_eq!(request["method"], "monitor");
    assert_eq!(request["params"][2], json!({"Thing": [{"columns": ["name", "tags"]}]}));
    let rows = json!({thing(1): {"new": {"name": "a", "tags": ["set", ["x", "y"]]}}, thing(2): {"new": {"name": "b"}}});
    visitor.reply(&request, things(rows)).await;
    named(&replica, &["a", "b"]).await;
    let update = json!({thing(1): {"old": {"tags": ["set", ["x", "y"]]}, "new": {"name": "a", "tags": "y"}}, thing(2): {"old": {"name": "b"}}});
    visitor.send(&json!({"id": null, "method": "update", "params": ["replica", things(update)]})).await;
    named(&replica, &["a"]).await;
    assert_eq!(replica.snapshot().things.get(Uuid::from_u128(1)).unwrap().tags[..], ["y".into()]);
}

#[tokio::test]
async fn a_server_without_history_is_monitored_by_differences_all_the_same() {
    let peer = Peer::new().await;
    let replica = open(&peer);
    let (mut visitor, request) = peer.accept_to_monitor().await;
    assert_eq!(request["method"], "monitor_cond_since");
    visitor.send(&json!({"id": request["id"], "result": null, "error": "unknown method"})).await;
    let request = visitor.request().await;
    assert_eq!(request["method"], "monitor_cond");
    assert_eq!(request["params"], json!(["Things", "replica", {"Thing": [{"columns": ["name", "tags"]}]}]));
    let rows = json!({thing(1): {"initial": {"name": "a", "tags": ["set", ["x", "y"]]}}, thing(2): {"initial": {"name": "b"}}});
    visitor.reply(&request, things(rows)).await;
    named(&replica, &["a", "b"]).await;
    let update = json!({
        thing(1): {"modify": {"tags": ["set", ["x", "z"]]}},
        thing(2): {"delete": null},
        thing(3): {"insert": {"name": "c"}},
    });
    visitor.send(&json!({"id": null, "method": "update2", "params": ["replica", things(update)]})).await;
    named(&replica, &["a", "c"]).await;
    assert_eq!(replica.snapshot().things.get(Uuid::from_u128(1)).unwrap().tags[..], ["y".into(), "z".into()]);

    // Nothing to resume from: the next connection starts with everything again.
    drop(visitor);
    let (mut visitor, request) = peer.accept_to_monitor().await;
    assert_eq!((&request["method"], &request["params"][3]), (&json!("monitor_cond_since"), &json!(Uuid::nil())));
    visitor.send(&json!({"id": request["id"], "result": null, "error": "unknown method"})).await;
    let request = visitor.request().await;
    visitor.reply(&request, things(json!({thing(4): {"initial": {"name": "d"}}}))).await;
    named(&replica, &["d"]).await;
    assert_eq!(replica.client().counters().resyncs_no_history, 1);
}

#[tokio::test]
async fn an_update_that_overtakes_its_snapshot_is_applied_after_it() {
    let peer = Peer::new().await;
    let replica = open(&peer);
    let (mut visitor, request) = peer.accept_to_monitor().await;
    let early = things(json!({thing(1): {"modify": {"name": "new"}}}));
    visitor.send(&json!({"id": null, "method": "update3", "params": ["replica", Uuid::nil(), early]})).await;
    visitor.reply(&request, json!([false, Uuid::nil(), things(json!({thing(1): {"initial": {"name": "old"}}}))])).await;
    named(&replica, &["new"]).await;
}

#[tokio::test]
async fn garbage_ends_the_connection_but_not_the_replica() {
    let peer = Peer::new().await;
    let replica = open(&peer);
    let mut visitor = peer.accept_to_sync("kept").await;
    named(&replica, &["kept"]).await;
    visitor.writer.write_all(b"HTTP/1.1 400 Bad Request\r\n").await.unwrap();
    failed_with(&replica, |cause| matches!(cause, Cause::Frame(FrameError::Garbage { byte: b'H' }))).await;
    assert_eq!(replica.snapshot().things.len(), 1);
    let _visitor = peer.accept_to_sync("again").await;
    named(&replica, &["again"]).await;
}

#[tokio::test]
async fn json_that_is_no_ovsdb_ends_the_connection_but_not_the_replica() {
    let peer = Peer::new().await;
    let replica = open(&peer);
    let mut visitor = peer.accept_to_sync("kept").await;
    named(&replica, &["kept"]).await;
    for nonsense in [
        json!({"hello": "world"}),
        json!({"id": null, "method": "update3", "params": ["replica", Uuid::nil(), {"Thing": [1, 2]}]}),
        json!({"id": null, "method": "update3", "params": ["replica", Uuid::nil(), {"Thing": {thing(1): {"modify": {"tags": 7}}}}]}),
        json!({"id": null, "method": "update3", "params": ["replica", Uuid::nil(), {"Thing": {thing(9): {"modify": {"name": "x"}}}}]}),
    ] {
        visitor.send(&nonsense).await;
        failed_with(&replica, |cause| matches!(cause, Cause::Protocol(_))).await;
        assert_eq!(&*replica.snapshot().things.get(Uuid::from_u128(1)).unwrap().name, "kept");
        visitor = peer.accept_to_sync("kept").await;
        soon(replica.synced()).await;
    }
    assert_eq!(replica.client().counters().resyncs_inconsistent, 3);
}

#[tokio::test]
async fn a_snapshot_cut_in_the_middle_is_never_seen() {
    let peer = Peer::new().await;
    let replica = open(&peer);
    drop(peer.accept_to_sync("whole").await);
    named(&replica, &["whole"]).await;

    let (mut visitor, request) = peer.accept_to_monitor().await;
    let rows = json!({thing(1): {"initial": {"name": "half"}}, thing(2): {"initial": {"name": "other half"}}});
    let reply = json!({"id": request["id"], "result": [false, Uuid::nil(), things(rows)], "error": null}).to_string();
    visitor.writer.write_all(&reply.as_bytes()[..reply.len() - 40]).await.unwrap();
    drop(visitor);
    failed_with(&replica, |cause| matches!(cause, Cause::Frame(FrameError::Closed { inside: true }))).await;
    assert_eq!(replica.snapshot().generation(), 1);
    let _visitor = peer.accept_to_sync("next").await;
    named(&replica, &["next"]).await;
}

#[tokio::test]
async fn a_message_of_200_mib_is_refused_before_it_is_in_memory() {
    const SIZE: usize = 200 * 1024 * 1024;
    let _alone = alone_in_memory().await;
    let peer = Peer::new().await;
    let replica = open(&peer);
    let mut visitor = peer.accept_to_sync("kept").await;
    named(&replica, &["kept"]).await;
    let before = peak_memory();
    visitor.writer.write_all(b"{\"id\":null,\"method\":\"").await.unwrap();
    let chunk = vec![b'a'; 1024 * 1024];
    let mut sent = 0;
    while sent < SIZE && visitor.writer.write_all(&chunk).await.is_ok() {
        sent += chunk.len();
    }
    assert!(sent < SIZE, "the whole message was taken");
    failed_with(&replica, |cause| matches!(cause, Cause::Frame(FrameError::TooLarge { limit }) if *limit == 128 << 20))
        .await;
    let grown = peak_memory() - before;
    assert!(grown < 200 << 20, "memory grew by {grown} bytes");
    assert_eq!(replica.snapshot().things.len(), 1);
    let _visitor = peer.accept_to_sync("again").await;
    named(&replica, &["again"]).await;
}

/// The memory of the process is everybody's: who measures it, and who takes much of it, come one after the other.
async fn alone_in_memory() -> MutexGuard<'static, ()> {
    static MEMORY: Mutex<()> = Mutex::const_new(());
    MEMORY.lock().await
}

/// The most this process ever had in memory, in bytes.
fn peak_memory() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
}

#[tokio::test]
async fn a_server_that_stops_reading_is_left_and_what_it_did_not_get_was_not_sent() {
    let _alone = alone_in_memory().await;
    let peer = Peer::new().await;
    let replica = open_for(&peer, Duration::from_secs(5));
    let visitor = peer.accept_to_sync("kept").await;
    named(&replica, &["kept"]).await;
    // More than socket buffers hold: the first call is stuck half-way, so the second never starts.
    let large = [Op::comment("x".repeat(16 << 20))];
    let client = replica.client();
    // Before the server is given up, and after all of it could have been written.
    let deadline = Instant::now() + Duration::from_secs(3);
    let (first, second) = tokio::join!(client.transact(&large, deadline), async {
        tokio::task::yield_now().await;
        client.transact(&[Op::comment("small")], deadline).await
    });
    assert!(matches!(first, Err(TransactError::Unknown { .. })), "{first:?}");
    assert!(matches!(second, Err(TransactError::NotSent { .. })), "{second:?}");
    failed_with(&replica, |cause| matches!(cause, Cause::NotReading | Cause::Silent(_))).await;
    drop(visitor);
    let _visitor = peer.accept_to_sync("again").await;
    named(&replica, &["again"]).await;
}

#[tokio::test]
async fn a_write_whose_answer_is_cut_off_is_open_and_is_not_sent_again() {
    let peer = Peer::new().await;
    let replica = open(&peer);
    let mut visitor = peer.accept_to_sync("kept").await;
    named(&replica, &["kept"]).await;
    let client = replica.client().clone();
    let call = tokio::spawn(async move { client.transact(&[Op::comment("once")], in_time()).await });
    let request = visitor.request().await;
    assert_eq!(request["method"], "transact");
    visitor.writer.write_all(format!("{{\"id\":{},\"resu", request["id"]).as_bytes()).await.unwrap();
    drop(visitor);
    let outcome = soon(call).await.unwrap();
    assert!(
        matches!(&outcome, Err(TransactError::Unknown { endpoint, .. }) if endpoint.to_string() == peer.endpoint),
        "{outcome:?}"
    );

    let mut visitor = peer.accept_to_sync("again").await;
    named(&replica, &["again"]).await;
    let later = replica.client().clone();
    let call = tokio::spawn(async move { later.transact(&[Op::comment("later")], in_time()).await });
    let request = visitor.request().await;
    assert_eq!(request["params"][1]["comment"], "later", "something was sent again");
    visitor.reply(&request, json!([{}])).await;
    soon(call).await.unwrap().unwrap();
}

#[tokio::test]
async fn an_answer_after_the_deadline_is_nobodys_and_harms_nobody() {
    let peer = Peer::new().await;
    let replica = open(&peer);
    let mut visitor = peer.accept_to_sync("kept").await;
    named(&replica, &["kept"]).await;
    let deadline = Instant::now() + Duration::from_millis(100);
    let outcome = replica.client().transact(&[Op::comment("late")], deadline).await;
    assert!(matches!(outcome, Err(TransactError::Unknown { .. })), "{outcome:?}");
    let late = visitor.request().await;
    visitor.reply(&late, json!([{}])).await;
    let client = replica.client().clone();
    let call = tokio::spawn(async move { client.transact(&[Op::comment("next")], in_time()).await });
    let next = visitor.request().await;
    visitor.reply(&next, json!([{"count": 3}])).await;
    assert_eq!(soon(call).await.unwrap().unwrap()[0].count, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_accepts_and_says_nothing_delays_nobody() {
    let mute = Peer::new().await;
    let server = Server::standalone().await.unwrap();
    let endpoints = format!("{},{}", mute.endpoint, server.tcp(0));
    let client = Client::open(config(&endpoints).handshake_timeout(10 * PATIENCE), "OVN_Northbound");
    client.transact(&[Op::comment("x")], in_time()).await.unwrap();
}

#[tokio::test]
async fn a_peer_that_accepts_and_says_nothing_is_tried_again_with_pauses() {
    let mute = Peer::new().await;
    let attempts = Arc::new(AtomicUsize::new(0));
    let replica = Replica::<Things>::open(config(&mute.endpoint).handshake_timeout(Duration::from_millis(50)));
    let counted = Arc::clone(&attempts);
    let accepting = tokio::spawn(async move {
        let mut kept = Vec::new();
        loop {
            kept.push(mute.accept().await);
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    failed_with(&replica, |cause| matches!(cause, Cause::Timeout(_))).await;
    let started = Instant::now();
    groundcrew_testkit::eventually("five attempts", PATIENCE, async || {
        let n = attempts.load(Ordering::SeqCst);
        if n >= 5 { Ok(()) } else { Err(n) }
    })
    .await
    .unwrap();
    // 100, 200, 400 and 800 ms, each cut by half at most.
    assert!(started.elapsed() > Duration::from_millis(700), "{:?}", started.elapsed());
    accepting.abort();
}

#[tokio::test]
async fn a_leader_that_has_not_come_to_what_was_seen_is_waited_for() {
    let peer = Peer::new().await;
    let replica = open(&peer);
    let mut visitor = peer.accept_as_leader(1, 5).await;
    let request = visitor.until_monitor().await;
    visitor.sync(&request, "acknowledged").await;
    named(&replica, &["acknowledged"]).await;
    let further = json!({"Database": {thing(99): {"modify": {"index": 7}}}});
    visitor.send(&json!({"id": null, "method": "update2", "params": ["_server", further]})).await;
    // What is read after it was sent after it.
    visitor.send(&json!({"id": null, "method": "update3", "params": ["replica", Uuid::nil(), things(json!({thing(2): {"insert": {"name": "too"}}}))]})).await;
    named(&replica, &["acknowledged", "too"]).await;
    drop(visitor);

    // It leads, and has yet to commit what its predecessor has acknowledged.
    let mut visitor = peer.accept_as_leader(1, 6).await;
    failed_with(&replica, |cause| matches!(cause, Cause::Stale { index: 6, seen: 7 })).await;
    let further = json!({"Database": {thing(99): {"modify": {"index": 8}}}});
    visitor.send(&json!({"id": null, "method": "update2", "params": ["_server", further]})).await;
    let request = visitor.until_monitor().await;
    visitor.sync(&request, "kept").await;
    named(&replica, &["kept"]).await;
    drop(visitor);

    // A cluster that was built anew counts anew.
    let mut visitor = peer.accept_as_leader(2, 1).await;
    let request = visitor.until_monitor().await;
    visitor.sync(&request, "built anew").await;
    named(&replica, &["built anew"]).await;
}

#[tokio::test]
async fn a_leader_that_stays_behind_was_put_back_from_an_older_file_and_is_believed() {
    let peer = Peer::new().await;
    let replica = Replica::<Things>::open(config(&peer.endpoint).restored_after(Duration::from_millis(200)));
    let mut visitor = peer.accept_as_leader(1, 7).await;
    let request = visitor.until_monitor().await;
    visitor.sync(&request, "newer").await;
    named(&replica, &["newer"]).await;
    drop(visitor);
    let mut visitor = peer.accept_as_leader(1, 3).await;
    failed_with(&replica, |cause| matches!(cause, Cause::Stale { index: 3, seen: 7 })).await;
    let request = visitor.until_monitor().await;
    visitor.sync(&request, "older").await;
    named(&replica, &["older"]).await;
}

#[tokio::test]
async fn a_probe_of_the_server_is_answered() {
    let peer = Peer::new().await;
    let replica = open(&peer);
    let mut visitor = peer.accept_to_sync("kept").await;
    named(&replica, &["kept"]).await;
    visitor.send(&json!({"id": "echo", "method": "echo", "params": ["still there?"]})).await;
    let answer = soon(async {
        loop {
            let message: Value = serde_json::from_str(visitor.reader.next().await.unwrap().text()).unwrap();
            if message["method"] != "echo" {
                return message;
            }
            visitor.reply(&message, json!([])).await;
        }
    })
    .await;
    assert_eq!(answer, json!({"id": "echo", "result": ["still there?"], "error": null}));
}

#[tokio::test]
async fn what_came_while_we_stood_still_is_read_before_the_server_is_called_silent() {
    let peer = Peer::new().await;
    let dead_after = 10 * PATIENCE;
    let replica = open_for(&peer, dead_after);
    let mut visitor = peer.accept_to_sync("0").await;
    named(&replica, &["0"]).await;
    for n in 1..=20 {
        let name = n.to_string();
        let update = things(json!({thing(1): {"modify": {"name": name}}}));
        tokio::time::pause();
        // It looks whether anything came since its last look, as it does when nothing is said.
        tokio::time::advance(Duration::from_secs(1)).await;
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        visitor.send(&json!({"id": null, "method": "update3", "params": ["replica", Uuid::nil(), update]})).await;
        tokio::time::advance(dead_after).await;
        tokio::time::resume();
        named(&replica, &[&name]).await;
        assert_eq!(replica.client().counters().disconnects, 0);
    }
}

#[tokio::test]
async fn a_flood_of_changes_reaches_a_consumer_as_everything() {
    let _alone = alone_in_memory().await;
    let peer = Peer::new().await;
    let replica = open(&peer);
    let mut visitor = peer.accept_to_sync("kept").await;
    named(&replica, &["kept"]).await;
    let mut changes = replica.changes();
    soon(changes.next()).await;
    for round in 0..3u128 {
        let rows: serde_json::Map<_, _> =
            (0..40_000).map(|n| (thing(100 + round * 40_000 + n), json!({"insert": {}}))).collect();
        visitor.send(&json!({"id": null, "method": "update3", "params": ["replica", Uuid::nil(), things(rows)]})).await;
    }
    soon(async {
        while replica.snapshot().things.len() < 120_001 {
            replica.client().watch_state().borrow_and_update();
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(soon(changes.next()).await.rows, Rows::Everything);
}
