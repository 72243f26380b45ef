//! All rows go in one transaction, as when kube-ovn's controller starts, and are back.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};

use super::start;
use crate::ovsdb::raw::Raw;
use crate::report::{Report, median, millis};
use crate::rig::ovn::{Attached, Layout, Ovn, RowWatch, succeed};
use crate::rig::{self, PATIENCE, Rig};

const ROUNDS: usize = 5;

pub(super) async fn run(n: usize, report: &mut Report) -> Result<()> {
    let rig = Rig::from(&rig::served(n).await?).await?;
    let ovn = Ovn::start(Layout::Tenants).await?;
    // In this order, for the reason that is told in `one`.
    let mut deleter = ovn.raw()?;
    let mut watch = ovn.watch()?;
    let running = rig.start(&ovn, &[])?;
    watch.until(n, PATIENCE).await?;
    running.stop().await?;
    let rows = ovn.rows().await?;
    let (mut floor, mut ours, mut most) = (Vec::new(), Vec::new(), 0);
    for _ in 0..ROUNDS {
        floor.push(bare(&ovn, &rows, &mut deleter, &mut watch).await?);

        let running = start(n, &rig, &ovn, &[]).await?;
        let committed = ovn.transactions().await?;
        let sent = delete_all(&mut deleter)?;
        watch.until(0, PATIENCE).await?;
        ours.push(watch.until(n, PATIENCE).await?.duration_since(sent));
        most = most.max(ovn.transactions().await? - committed);
        running.stop().await?;
    }
    let (value, of) = (millis(median(&mut ours)), millis(median(&mut floor)));
    report.against_floor("all rows gone to all back", n, "ms", value, of, 1.3);
    #[allow(clippy::cast_precision_loss, reason = "a count")]
    report.at_most("all rows gone to all back, commits", n, "", most as f64, 5.0);
    Ok(())
}

/// When it was sent; returns when it was answered.
fn delete_all(deleter: &mut Raw) -> Result<Instant> {
    let request = Ovn::delete_all()?;
    let sent = Instant::now();
    succeed(&tokio::task::block_in_place(|| deleter.exchange(&request))?)?;
    Ok(sent)
}

async fn bare(ovn: &Ovn, rows: &[Attached], deleter: &mut Raw, watch: &mut RowWatch) -> Result<Duration> {
    let (mut stand_in, repair) = (ovn.stand_in()?, ovn.insert(rows)?);
    let repairing = thread::spawn(move || {
        stand_in.read_until(br#""delete""#)?;
        succeed(&stand_in.transact(&repair)?)
    });
    // It should be reading by then.
    tokio::time::sleep(Duration::from_millis(20)).await;
    let sent = delete_all(deleter)?;
    watch.until(0, PATIENCE).await?;
    let back = watch.until(rows.len(), PATIENCE).await?;
    tokio::task::block_in_place(|| repairing.join()).map_err(|_| anyhow!("the bare repairer died"))??;
    Ok(back.duration_since(sent))
}
