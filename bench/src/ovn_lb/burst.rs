//! Services that are made while the controller runs: one after the other, and a thousand at once.

use std::time::{Duration, Instant};

use anyhow::Result;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Service;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client};

use crate::ovsdb::raw::Raw;
use crate::report::{Report, median, millis, percentile};
use crate::rig::ovn::{Attached, Layout, Ovn, RowWatch, succeed};
use crate::rig::services::Served;
use crate::rig::{CONCURRENCY, PATIENCE, Rig, bare};
use crate::world::{name, namespace, service, slice};

const ALONE: usize = 200;
const AT_ONCE: usize = 1_000;
const ROUNDS: usize = 3;

pub(super) async fn run(report: &mut Report) -> Result<()> {
    let rig = Rig::empty().await?;
    let ovn = Ovn::start(Layout::Tenants).await?;
    // There before their Services, as the rows should have backends from the start.
    make_slices(&rig.client, AT_ONCE).await?;
    alone(&rig, &ovn, report).await?;
    at_once(&rig, &ovn, report).await
}

/// From the answer to the creation to the row in OVN.
async fn alone(rig: &Rig, ovn: &Ovn, report: &mut Report) -> Result<()> {
    let client = &rig.client;
    let mut rows = ovn.watch()?;
    let mut ours = Vec::new();
    let running = rig.start(ovn, &[])?;
    running.ready().await?;
    for k in 0..ALONE {
        create(client, k).await?;
        let created = Instant::now();
        let seen = rows.next(PATIENCE).await?;
        ours.push(seen.at.saturating_duration_since(created));
    }
    let made = ovn.rows().await?;
    let mut served = Served::watch(client).await?;
    served.until(ALONE, PATIENCE).await?;
    remove(client, ALONE).await?;
    rows.until(0, PATIENCE).await?;
    served.until(0, PATIENCE).await?;
    running.stop().await?;

    let mut floor = Vec::new();
    let mut writer = ovn.stand_in()?;
    for (k, row) in made.iter().enumerate().take(ALONE) {
        create(client, k).await?;
        floor.push(bare_row(client, ovn, k, row, &mut writer, &mut rows).await?);
    }
    clear(client, ovn, &mut rows, ALONE).await?;
    let p99 = percentile(&mut ours, 0.99);
    report.against_floor(
        "created to row, p50",
        ALONE,
        "ms",
        millis(median(&mut ours)),
        millis(median(&mut floor)),
        3.0,
    );
    report.below("created to row, p99", ALONE, "ms", millis(p99), 100.0);
    report.told("the same by a bare client, p99", ALONE, "ms", millis(percentile(&mut floor, 0.99)));
    Ok(())
}

async fn bare_row(
    client: &Client,
    ovn: &Ovn,
    k: usize,
    row: &Attached,
    writer: &mut Raw,
    rows: &mut RowWatch,
) -> Result<Duration> {
    let request = ovn.insert(std::slice::from_ref(row))?;
    let started = Instant::now();
    bare::before_the_row(client, k).await?;
    succeed(&tokio::task::block_in_place(|| writer.transact(&request))?)?;
    Ok(rows.next(PATIENCE).await?.at.duration_since(started))
}

/// From the first creation to the last status; the floor's worker does everything for its Service itself.
async fn at_once(rig: &Rig, ovn: &Ovn, report: &mut Report) -> Result<()> {
    let client = &rig.client;
    let (mut floor, mut ours) = (Vec::new(), Vec::new());
    let mut rows = ovn.watch()?;
    let mut served = Served::watch(client).await?;
    for _ in 0..ROUNDS {
        let started = Instant::now();
        let one = |k| async move {
            create(client, k).await?;
            bare::before_the_row(client, k).await?;
            bare::after_the_row(client, k).await
        };
        stream::iter(0..AT_ONCE).map(one).buffer_unordered(CONCURRENCY).try_collect::<()>().await?;
        floor.push(served.until(AT_ONCE, PATIENCE).await?.duration_since(started));
        clear(client, ovn, &mut rows, AT_ONCE).await?;
        served.until(0, PATIENCE).await?;

        let running = rig.start(ovn, &[])?;
        running.ready().await?;
        let started = Instant::now();
        let one = |k| create(client, k);
        stream::iter(0..AT_ONCE).map(one).buffer_unordered(CONCURRENCY).try_collect::<()>().await?;
        rows.until(AT_ONCE, PATIENCE).await?;
        ours.push(served.until(AT_ONCE, PATIENCE).await?.duration_since(started));
        remove(client, AT_ONCE).await?;
        rows.until(0, PATIENCE).await?;
        served.until(0, PATIENCE).await?;
        running.stop().await?;
    }
    report.against_floor(
        "made at once to all served",
        AT_ONCE,
        "s",
        median(&mut ours).as_secs_f64(),
        median(&mut floor).as_secs_f64(),
        1.5,
    );
    Ok(())
}

async fn create(client: &Client, k: usize) -> Result<()> {
    let api: Api<Service> = Api::namespaced(client.clone(), &namespace(k));
    api.create(&PostParams::default(), &service(k)?).await?;
    Ok(())
}

async fn make_slices(client: &Client, n: usize) -> Result<()> {
    let one = |k| async move {
        Api::namespaced(client.clone(), &namespace(k)).create(&PostParams::default(), &slice(k)?).await?;
        anyhow::Ok(())
    };
    stream::iter(0..n).map(one).buffer_unordered(CONCURRENCY).try_collect().await
}

/// Deletes Services that a controller serves.
async fn remove(client: &Client, n: usize) -> Result<()> {
    let one = |k| async move {
        let api: Api<Service> = Api::namespaced(client.clone(), &namespace(k));
        api.delete(&name(k), &DeleteParams::default()).await?;
        anyhow::Ok(())
    };
    stream::iter(0..n).map(one).buffer_unordered(CONCURRENCY).try_collect().await
}

/// Takes away what the floor made.
async fn clear(client: &Client, ovn: &Ovn, rows: &mut RowWatch, n: usize) -> Result<()> {
    bare::unserve(client, 0..n).await?;
    succeed(&ovn.raw()?.exchange(&Ovn::delete_all()?)?)?;
    rows.until(0, PATIENCE).await.map(drop)
}
