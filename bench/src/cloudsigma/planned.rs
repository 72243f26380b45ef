//! Nodes that are drained: the old one lets go, and the new one takes the address at once.

use anyhow::Result;
use groundcrew_e2e::cloudsigma::Options;
use groundcrew_testkit::wire::now;

use super::{ADDRESS, served};
use crate::report::Report;

pub(super) async fn run(rounds: usize, report: &mut Report) -> Result<()> {
    let (world, asking, requesting) = served(Options::default()).await?;
    let (mut longest, mut failed) = (0.0_f64, 0);
    for _ in 0..rounds {
        let old = world.until_held(ADDRESS, |_| true).await?;
        let begun = now()?;
        world.cordon(old, true).await?;
        let new = world.until_held(ADDRESS, |node| node != old).await?;
        world.until_answers(&asking, new).await?;
        // Longer than a request waits: what was sent meanwhile has ended.
        world.until_steady(&requesting, now()?, 120).await?;
        world.cordon(old, false).await?;
        let during: Vec<_> = requesting.requests().into_iter().filter(|request| request.sent > begun).collect();
        failed = failed.max(during.iter().filter(|request| request.answer.is_none()).count());
        let mut answered: Vec<_> = during.iter().filter(|r| r.answer.is_some()).map(|r| r.ended).collect();
        answered.sort_by(f64::total_cmp);
        let gaps = answered.windows(2).map(|pair| pair[1] - pair[0]);
        longest = gaps.fold(longest, f64::max);
    }
    report.below("planned move, longest gap", rounds, "s", longest, 1.0);
    #[allow(clippy::cast_precision_loss, reason = "a figure for people")]
    report.at_most("failed requests in one, at 50/s", rounds, "", failed as f64, 2.0);
    Ok(())
}
