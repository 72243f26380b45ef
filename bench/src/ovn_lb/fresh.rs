//! A cluster full of Services that nobody has served yet.

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::report::Report;
use crate::rig::ovn::{Layout, Ovn};
use crate::rig::services::Served;
use crate::rig::writes::Writes;
use crate::rig::{PATIENCE, Rig, bare};
use crate::world;

const POOL: &str = "PATCH addresspools/status";

struct Round {
    took: Duration,
    cpu: f64,
    peak: f64,
    writes: Writes,
    commits: usize,
}

#[allow(clippy::cast_precision_loss, reason = "counts of a benchmark")]
pub(super) async fn run(n: usize, report: &mut Report) -> Result<()> {
    let small = ours(n / 10).await?;
    let floor = floor(n).await?;
    let all = ours(n).await?;
    report.against_floor("new: start to all served", n, "s", all.took.as_secs_f64(), floor.as_secs_f64(), 1.5);
    // The user is told of each new address by an Event as well; beyond twenty a second those are dropped. The pool tells how
    // much of it is left every five seconds, however many come.
    let needed = all.writes.clone().without(&["POST events", POOL]).total() / n as f64;
    report.at_most("new: writes for each Service", n, "", needed, f64::from(bare::WRITES));
    let pool = all.writes.kinds().find(|(kind, _)| *kind == POOL).map_or(0, |(_, count)| count);
    report.at_most("new: writes of the pool's status", n, "", pool as f64, (all.took.as_secs_f64() / 5.0).ceil() + 1.0);
    for (kind, count) in all.writes.kinds() {
        report.told(&format!("new: {kind}"), n, "", count as f64);
    }
    report.told("new: commits to OVN", n, "", all.commits as f64);
    report.told("new: CPU", n, "s", all.cpu / 1e3);
    report.told("new: resident memory, peak", n, "MiB", all.peak);
    let each = |round: &Round, n: usize| round.cpu / n as f64;
    report.against_floor("new: CPU each, of a tenth's", n, "ms", each(&all, n), each(&small, n / 10), 1.3);
    Ok(())
}

async fn floor(n: usize) -> Result<Duration> {
    let rig = Rig::from(&world::created(n).await?).await?;
    let mut served = Served::watch(&rig.client).await?;
    let started = Instant::now();
    bare::serve(&rig.client, 0..n).await?;
    Ok(served.until(n, PATIENCE).await?.duration_since(started))
}

async fn ours(n: usize) -> Result<Round> {
    let rig = Rig::from(&world::created(n).await?).await?;
    let ovn = Ovn::start(Layout::Tenants).await?;
    let (mut served, mut rows) = (Served::watch(&rig.client).await?, ovn.watch()?);
    let before = Writes::read(&rig.client).await?;
    let running = rig.start(&ovn, &[])?;
    let done = served.until(n, PATIENCE).await?;
    rows.until(n, PATIENCE).await?;
    let round = Round {
        took: done.duration_since(running.started),
        cpu: running.cpu()?,
        peak: running.peak()?,
        writes: Writes::since(&rig.client, &before).await?,
        commits: ovn.transactions().await?,
    };
    running.stop().await?;
    Ok(round)
}
