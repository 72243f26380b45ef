//! One row goes, and is back.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};

use super::start;
use crate::ovsdb::raw::Raw;
use crate::report::{Report, median, millis, percentile};
use crate::rig::ovn::{Attached, Layout, Ovn, RowWatch, succeed};
use crate::rig::{self, PATIENCE, Rig};

const BLOCKS: usize = 5;
const IN_BLOCK: usize = 40;
/// Between two deletions.
const PAUSE: Duration = Duration::from_millis(25);

/// Who else works on each deletion and each repair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Beside {
    /// northd, which computes on one of the cores from the moment of the deletion.
    Northd,
    /// Somebody who says what northd says, and translates nothing.
    Nobody,
}

pub(super) async fn run(n: usize, layout: Layout, beside: Beside, slowest: f64, report: &mut Report) -> Result<()> {
    let rig = Rig::from(&rig::served(n).await?).await?;
    let ovn = match beside {
        Beside::Northd => Ovn::with_northd(layout).await?,
        Beside::Nobody => Ovn::start(layout).await?,
    };
    // The server serves its sessions in this order. A watch before the deleter, or behind the repairer, would now and then
    // be told of both together, which is nothing.
    let mut deleter = ovn.raw()?;
    let mut watch = ovn.watch()?;
    let running = rig.start(&ovn, &[])?;
    watch.until(n, PATIENCE).await?;
    running.stop().await?;
    ovn.wait_northd().await?;
    let rows = ovn.rows().await?;
    let (mut floor, mut ours, mut cpu) = (Vec::new(), Vec::new(), 0.0);
    for block in 0..BLOCKS {
        let chosen: Vec<_> = (0..IN_BLOCK).map(|k| &rows[(block * IN_BLOCK + k) * 37 % n]).collect();
        let mut stand_in = ovn.stand_in()?;
        for row in &chosen {
            tokio::time::sleep(PAUSE).await;
            let (took, back) = bare(&ovn, row, stand_in, &mut deleter, &mut watch).await?;
            stand_in = back;
            floor.push(took);
        }
        drop(stand_in);

        let running = start(n, &rig, &ovn, &[]).await?;
        let before = running.cpu()?;
        for row in &chosen {
            tokio::time::sleep(PAUSE).await;
            let sent = delete(row, &mut deleter)?;
            ours.push(repaired(n, sent, &mut watch).await?);
        }
        cpu += running.cpu()? - before;
        running.stop().await?;
    }
    let place = match (layout, beside) {
        (Layout::Tenants, Beside::Northd) => "100 routers",
        (Layout::Tenants, Beside::Nobody) => "no northd",
        (Layout::One, _) => "one router",
    };
    let p99 = percentile(&mut ours, 0.99);
    let (value, of) = (millis(median(&mut ours)), millis(median(&mut floor)));
    report.against_floor(&format!("row gone to back, {place}, p50"), n, "ms", value, of, 1.6);
    report.below(&format!("row gone to back, {place}, p99"), n, "ms", millis(p99), slowest);
    #[allow(clippy::cast_precision_loss, reason = "a count")]
    report.told(&format!("CPU for each, {place}"), n, "ms", cpu / ours.len() as f64);
    report.told(&format!("by a bare client, {place}, p99"), n, "ms", millis(percentile(&mut floor, 0.99)));
    Ok(())
}

/// When the deletion was sent; returns when it was answered.
fn delete(row: &Attached, deleter: &mut Raw) -> Result<Instant> {
    let request = Ovn::delete(row.uuid)?;
    let sent = Instant::now();
    tokio::task::block_in_place(|| deleter.exchange(&request))?;
    Ok(sent)
}

async fn repaired(n: usize, sent: Instant, watch: &mut RowWatch) -> Result<Duration> {
    loop {
        let seen = watch.next(PATIENCE).await?;
        if seen.inserted > 0 && seen.total == n {
            return Ok(seen.at.duration_since(sent));
        }
    }
}

async fn bare(
    ovn: &Ovn,
    row: &Attached,
    mut stand_in: Raw,
    deleter: &mut Raw,
    watch: &mut RowWatch,
) -> Result<(Duration, Raw)> {
    let repair = ovn.insert(std::slice::from_ref(row))?;
    let n = watch.total();
    let repairing = thread::spawn(move || {
        stand_in.read_until(br#""delete""#)?;
        succeed(&stand_in.transact(&repair)?)?;
        anyhow::Ok(stand_in)
    });
    // It should be reading by then.
    tokio::time::sleep(Duration::from_millis(2)).await;
    let sent = delete(row, deleter)?;
    let took = repaired(n, sent, watch).await?;
    let stand_in =
        tokio::task::block_in_place(|| repairing.join()).map_err(|_| anyhow!("the bare repairer died"))??;
    Ok((took, stand_in))
}
