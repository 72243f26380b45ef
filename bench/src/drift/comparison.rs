//! The full comparison beside the push.

use anyhow::Result;

use super::start;
use crate::report::Report;
use crate::rig::ovn::{Layout, Ovn};
use crate::rig::{self, PATIENCE, Rig};

const SCANS: f64 = 5.0;
const COUNTER: &str = "groundcrew_service_full_scans_total";

pub(super) async fn run(n: usize, report: &mut Report) -> Result<()> {
    let rig = Rig::from(&rig::served(n).await?).await?;
    let ovn = Ovn::start(Layout::Tenants).await?;
    let mut watch = ovn.watch()?;
    let running = rig.start(&ovn, &[])?;
    watch.until(n, PATIENCE).await?;
    running.stop().await?;
    let running = start(n, &rig, &ovn, &["--scan-interval=3s"]).await?;
    let before = running.metric(COUNTER).await?;
    running.until_metric(COUNTER, before + 1.0, PATIENCE).await?;
    let (first, cpu) = (running.metric(COUNTER).await?, running.cpu()?);
    let received = ovn.count_requests().await?;
    running.until_metric(COUNTER, first + SCANS, PATIENCE).await?;
    let scans = running.metric(COUNTER).await? - first;
    report.below("full comparison, CPU", n, "ms", (running.cpu()? - cpu) / scans, 100.0);
    report.at_most("full comparison, requests to OVN", n, "", received.now()?, 0.0);
    report.at_most(
        "found by it and by no event",
        n,
        "",
        running.metric("groundcrew_service_missed_changes_total").await?,
        0.0,
    );
    running.stop().await
}
