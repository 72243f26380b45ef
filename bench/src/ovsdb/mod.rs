//! The OVSDB client against raw sockets on the same server.

pub(crate) mod memory;
pub(crate) mod raw;
mod rows;

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use groundcrew_testkit::ovn::Northbound as Server;
use ovsdb_client::codec::Scanner;
use ovsdb_client::{Condition, Config, Op, Replica, Row, Touched, Uuid, apply, parse_list};
use serde_json::value::RawValue;

use crate::report::{Report, median, millis, percentile};
use raw::Raw;
use rows::{LoadBalancer, Northbound, insert};

/// Medians are of this many; floor and ours take turns. Fewer do not settle on a machine that has other work.
const ROUNDS: usize = 11;
const WAKES: usize = 1_000;
const SNAPSHOTS: usize = 10_000;

pub(crate) async fn run(n: Option<usize>, report: &mut Report) -> Result<()> {
    let n = n.unwrap_or(10_000);
    let server = Server::standalone().await?;
    let socket: PathBuf = server.unix(0).trim_start_matches("unix:").into();

    bulk_write(n, &server, &socket, report).await?;
    let reply = in_sync(n, &server, &socket, report).await?;
    decode(n, &reply, report)?;
    memory::compare(n, &server, reply.len(), report)?;
    snapshot(n, &server, report).await?;
    wake(n, &server, &socket, report).await
}

pub(crate) fn config(endpoint: &str) -> Result<Config> {
    Ok(Config::new(parse_list(endpoint)?))
}

/// One transaction of `n` inserts by a connection that has the only monitor. The server composes the same update and the same
/// reply for both; the floor sends prepared bytes and looks at nothing, ours serialises, decodes, indexes and publishes.
async fn bulk_write(n: usize, server: &Server, socket: &Path, report: &mut Report) -> Result<()> {
    let (mut floor, mut ours, mut apart) = (Vec::new(), Vec::new(), Vec::new());
    let mut other = Raw::connect(socket)?;
    let clear = Raw::transact_request(&[Op::delete(LoadBalancer::TABLE, [])])?;
    let monitor = Raw::monitor_request(&[(LoadBalancer::TABLE, &rows::columns())]);
    let request = || Raw::transact_request(&(0..n).map(insert).collect::<Vec<Op>>());

    let mut raw = Raw::connect(socket)?;
    raw.exchange(&monitor)?;
    // Every row has other UUIDs and the same length, so the floor need not look for the end of what it reads.
    let length = raw.exchange_for(&request()?, 2)?.len();
    drop(raw);
    other.exchange(&clear)?;
    let reply = other.exchange(&request()?)?.len();
    for round in 0..3 * ROUNDS {
        other.exchange(&clear)?;
        if round % 3 == 0 {
            let mut raw = Raw::connect(socket)?;
            raw.exchange(&monitor)?;
            let request = request()?;
            settle(&mut other).await?;
            let started = Instant::now();
            tokio::task::block_in_place(|| raw.exchange_of(&request, length).map(black_box))?;
            floor.push(started.elapsed());
        } else if round % 3 == 1 {
            let _watch = raw::Watch::start(socket)?;
            let mut raw = Raw::connect(socket)?;
            let request = request()?;
            settle(&mut other).await?;
            let started = Instant::now();
            tokio::task::block_in_place(|| raw.exchange_of(&request, reply).map(black_box))?;
            apart.push(started.elapsed());
        } else {
            let replica = Replica::<Northbound>::open(config(&server.unix(0))?);
            replica.synced().await;
            let ops: Vec<Op> = (0..n).map(insert).collect();
            settle(&mut other).await?;
            let started = Instant::now();
            let results = replica.client().transact(&ops, deadline()).await?;
            ours.push(started.elapsed());
            ensure!(results.len() == n, "results are missing");
            ensure!(replica.snapshot().load_balancers.len() == n, "an acknowledged write is missing from the replica");
        }
        settle(&mut other).await?;
    }
    report.against_floor("bulk write", n, "ms", millis(median(&mut ours)), millis(median(&mut floor)), 1.2);
    // No floor of ours: this writer is answered before the server composes the update that ours must have seen.
    report.told("raw write, monitor on another socket", n, "ms", millis(median(&mut apart)));
    Ok(())
}

/// From connecting to a complete replica. The floor has the same conversation and turns each answer into a `Value`.
async fn in_sync(n: usize, server: &Server, socket: &Path, report: &mut Report) -> Result<Vec<u8>> {
    let (mut floor, mut ours) = (Vec::new(), Vec::new());
    let mut other = Raw::connect(socket)?;
    let mut requests = Raw::handshake();
    requests.push(Raw::monitor_request(&[(LoadBalancer::TABLE, &rows::columns())]));
    // The same rows make a reply of the same length, so the floor need not look for its end.
    let mut raw = Raw::connect(socket)?;
    let lengths: Vec<_> = requests.iter().map(|request| Ok(raw.exchange(request)?.len())).collect::<Result<_>>()?;
    drop(raw);
    let mut reply = Vec::new();
    for _ in 0..ROUNDS {
        settle(&mut other).await?;
        let started = Instant::now();
        let mut raw = Raw::connect(socket)?;
        let mut trees = Vec::new();
        for (request, length) in requests.iter().zip(&lengths) {
            reply = tokio::task::block_in_place(|| raw.exchange_of(request, *length))?;
            trees.push(black_box(serde_json::from_slice::<serde_json::Value>(&reply)?));
        }
        floor.push(started.elapsed());
        // Freeing the tree is no part of reading it.
        drop((raw, trees));

        settle(&mut other).await?;
        let started = Instant::now();
        let replica = Replica::<Northbound>::open(config(&server.unix(0))?);
        let snapshot = replica.synced().await;
        ours.push(started.elapsed());
        ensure!(snapshot.load_balancers.len() == n, "{} rows instead of {n}", snapshot.load_balancers.len());
    }
    report.against_floor(
        "request to replica in sync",
        n,
        "ms",
        millis(median(&mut ours)),
        millis(median(&mut floor)),
        1.15,
    );
    Ok(reply)
}

/// Waits until the server has buried the connections that were dropped before. Otherwise the next round pays for that, or finds
/// the server's cached answer to a monitor that is still there.
async fn settle(other: &mut Raw) -> Result<()> {
    for _ in 0..2 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        other.exchange(&Raw::echo_request())?;
    }
    Ok(())
}

/// The stored bytes into rows and indexes, framing and envelope included.
fn decode(n: usize, reply: &[u8], report: &mut Report) -> Result<()> {
    let (mut floor, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..3 * ROUNDS {
        let started = Instant::now();
        let tree = black_box(serde_json::from_slice::<serde_json::Value>(reply)?);
        floor.push(started.elapsed());
        drop(tree);

        let started = Instant::now();
        let mut scanner = Scanner::default();
        let end = scanner.scan(reply)?.context("half a message")?;
        let frame = scanner.frame(std::str::from_utf8(&reply[..end])?);
        let result = frame.member("result").context("no result")?;
        let (_, _, updates): (bool, Uuid, &RawValue) = serde_json::from_str(result)?;
        let mut database = Northbound::default();
        apply(updates.get(), &mut database, &mut Touched::default())?;
        ours.push(started.elapsed());
        ensure!(database.load_balancers.len() == n, "rows are missing");
        ensure!(database.load_balancers.find(|by| &by.owner, rows::owner(n / 2)).count() == 1, "the index is wrong");
    }
    report.against_floor(
        "decode and index stored bytes",
        n,
        "ms",
        millis(median(&mut ours)),
        millis(median(&mut floor)),
        2.0,
    );
    Ok(())
}

async fn snapshot(n: usize, server: &Server, report: &mut Report) -> Result<()> {
    let replica = Replica::<Northbound>::open(config(&server.unix(0))?);
    replica.synced().await;
    let mut samples = Vec::with_capacity(SNAPSHOTS);
    for _ in 0..SNAPSHOTS {
        let started = Instant::now();
        black_box(replica.snapshot());
        samples.push(started.elapsed());
    }
    report.below("taking a snapshot, p99", n, "us", percentile(&mut samples, 0.99).as_secs_f64() * 1e6, 10.0);
    Ok(())
}

/// How much later than a raw monitor a consumer hears of a change. Half of the rounds connect in the other order: the server
/// tells its monitors one after the other.
async fn wake(n: usize, server: &Server, socket: &Path, report: &mut Report) -> Result<()> {
    let mut later = Vec::with_capacity(WAKES);
    for raw_first in [true, false] {
        let mut watch = raw_first.then(|| raw::Watch::start(socket)).transpose()?;
        let replica = Replica::<Northbound>::open(config(&server.unix(0))?);
        let mut uuids =
            replica.synced().await.load_balancers.iter().map(|(uuid, _)| uuid).collect::<Vec<_>>().into_iter().cycle();
        let watch = match watch.take() {
            Some(watch) => watch,
            None => raw::Watch::start(socket)?,
        };
        let mut changes = replica.changes();
        changes.next().await;
        let mut writer = Raw::connect(socket)?;
        for round in 0..WAKES / 2 {
            let uuid = uuids.next().context("no rows")?;
            // Never a name that the row has: the server is silent about what does not change.
            let op = Op::update(LoadBalancer::TABLE, [Condition::uuid(uuid)])
                .set("name", format!("renamed {round} {raw_first}"))
                .into();
            let request = Raw::transact_request(&[op])?;
            let write = tokio::task::spawn_blocking(move || writer.exchange(&request).map(|_| writer));
            changes.next().await;
            let woken = Instant::now();
            let arrived = tokio::task::block_in_place(|| watch.next())?;
            later.push(woken.saturating_duration_since(arrived));
            writer = write.await??;
        }
    }
    report.below("consumer wake after raw monitor, p50", n, "ms", millis(percentile(&mut later, 0.5)), 0.3);
    report.below("consumer wake after raw monitor, p99", n, "ms", millis(percentile(&mut later, 0.99)), 2.0);
    Ok(())
}

fn deadline() -> tokio::time::Instant {
    tokio::time::Instant::now() + Duration::from_mins(1)
}
