//! Starts with everything served already: into an empty OVN, and into one that is right.

use std::time::{Duration, Instant};

use anyhow::Result;
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use kube::api::{DeleteParams, PostParams};

use crate::report::{Report, median};
use crate::rig::ovn::{Attached, Layout, Ovn, succeed};
use crate::rig::services::Served;
use crate::rig::writes::Writes;
use crate::rig::{self, PATIENCE, Rig, bare};
use crate::world::{name, namespace, service, slice};

const ROUNDS: usize = 3;
/// Silence for so long is the end of all writing.
const QUIET: Duration = Duration::from_secs(3);

/// Hands on a cluster with `n` served Services and the OVN that serves them.
pub(super) async fn run(n: usize, report: &mut Report) -> Result<(Rig, Ovn)> {
    let rig = Rig::from(&rig::served(n).await?).await?;
    // Once beforehand: what another version of the controller has written may not be to the taste of this one.
    let rows = settle(n, &rig).await?;
    let ovn = empty(n, &rig, &rows, report).await?;
    restart(n, &rig, &ovn, report).await?;
    Ok((rig, ovn))
}

async fn settle(n: usize, rig: &Rig) -> Result<Vec<Attached>> {
    let ovn = Ovn::start(Layout::Tenants).await?;
    let mut rows = ovn.watch()?;
    let running = rig.start(&ovn, &[])?;
    rows.until(n, PATIENCE).await?;
    quiet(rig).await?;
    running.stop().await?;
    ovn.rows().await
}

/// Waits until nobody writes to Kubernetes any more.
async fn quiet(rig: &Rig) -> Result<()> {
    let mut before = Writes::read(&rig.client).await?;
    loop {
        tokio::time::sleep(QUIET).await;
        let now = Writes::since(&rig.client, &before).await?;
        if now.total() == 0.0 {
            return Ok(());
        }
        before = Writes::read(&rig.client).await?;
    }
}

/// The floor reads everything once, in a process of its own, and then sends all rows as one transaction, with the same
/// monitors connected.
async fn empty(n: usize, rig: &Rig, rows: &[Attached], report: &mut Report) -> Result<Ovn> {
    let (mut fills, mut bulks, mut ours, mut peaks) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut last = None;
    for _ in 0..ROUNDS {
        fills.push(bare::cold_list(&rig.plane).await?);
        let ovn = Ovn::start(Layout::Tenants).await?;
        let (mut writer, mut watch, bulk) = (ovn.stand_in()?, ovn.watch()?, ovn.insert(rows)?);
        let started = Instant::now();
        succeed(&tokio::task::block_in_place(|| writer.transact(&bulk))?)?;
        bulks.push(watch.until(n, PATIENCE).await?.duration_since(started));
        drop((writer, watch));

        let ovn = Ovn::start(Layout::Tenants).await?;
        let mut watch = ovn.watch()?;
        let running = rig.start(&ovn, &[])?;
        ours.push(watch.until(n, PATIENCE).await?.duration_since(running.started));
        let commits = running.commits().await?;
        quiet(rig).await?;
        peaks.push(running.peak()?);
        running.stop().await?;
        last = Some((ovn, commits));
    }
    let (ours, floor) = (median(&mut ours).as_secs_f64(), median(&mut fills) + median(&mut bulks));
    report.against_floor("empty OVN: start to all rows", n, "s", ours, floor.as_secs_f64(), 1.5);
    report.below("empty OVN: the same", n, "s", ours, 15.0);
    report.told("empty OVN: bare list, of the floor", n, "s", median(&mut fills).as_secs_f64());
    peaks.sort_by(f64::total_cmp);
    report.below("empty OVN: resident memory, peak", n, "MiB", peaks.last().copied().unwrap_or_default(), 128.0);
    let (ovn, commits) = last.ok_or_else(|| anyhow::anyhow!("no round"))?;
    report.told("empty OVN: commits", n, "", commits);
    Ok(ovn)
}

/// A Service is made while nobody is there to serve it.
async fn restart(n: usize, rig: &Rig, ovn: &Ovn, report: &mut Report) -> Result<()> {
    let client = &rig.client;
    let (mut lists, mut readies, mut gaps) = (Vec::new(), Vec::new(), Vec::new());
    let (mut needless, mut commits) = (0.0_f64, 0.0_f64);
    let mut served = Served::watch(client).await?;
    let mut rows = ovn.watch()?;
    for round in 0..ROUNDS {
        lists.push(bare::cold_list(&rig.plane).await?);
        // A start with nothing to do.
        let (writes, transactions) = (Writes::read(client).await?, ovn.transactions().await?);
        let running = rig.start(ovn, &[])?;
        readies.push(running.ready().await?.duration_since(running.started));
        quiet(rig).await?;
        needless = needless.max(Writes::since(client, &writes).await?.total());
        #[allow(clippy::cast_precision_loss, reason = "a count")]
        let claimed = (ovn.transactions().await? - transactions) as f64;
        // The first transaction of each term moves the epoch on, so that no write of an older term can follow.
        commits = commits.max(claimed - 1.0);
        running.stop().await?;

        let k = n + round;
        let services: Api<Service> = Api::namespaced(client.clone(), &namespace(k));
        Api::namespaced(client.clone(), &namespace(k)).create(&PostParams::default(), &slice(k)?).await?;
        services.create(&PostParams::default(), &service(k)?).await?;
        let running = rig.start(ovn, &[])?;
        let ready = running.ready().await?;
        let done = served.until(n + 1, PATIENCE).await?.max(rows.until(n + 1, PATIENCE).await?);
        gaps.push(done.saturating_duration_since(ready));
        services.delete(&name(k), &DeleteParams::default()).await?;
        served.until(n, PATIENCE).await?;
        rows.until(n, PATIENCE).await?;
        // Its address is given back, and the pool says so: otherwise the next start has something to do.
        quiet(rig).await?;
        running.stop().await?;
    }
    let (ready, list) = (median(&mut readies).as_secs_f64(), median(&mut lists).as_secs_f64());
    report.against_floor("restart: start to ready", n, "s", ready, list, 1.5);
    report.below("restart: ready to the new one served", n, "s", median(&mut gaps).as_secs_f64(), 1.0);
    report.at_most("restart, all right: API writes", n, "", needless, 0.0);
    report.at_most("restart, all right: commits but epoch", n, "", commits, 0.0);
    Ok(())
}
