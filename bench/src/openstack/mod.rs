//! `routegc` and `flight` on OpenStack: plans for a large cluster, what a pass asks the cloud, and writers that race on a
//! router of a real Neutron.

mod calls;
mod large;
pub(crate) mod plan;
#[allow(clippy::unwrap_used, dead_code, reason = "what is shared with tests is written as a test")]
#[path = "../../../crates/orbit/tests/it/race.rs"]
mod race;
mod races;
mod repair;
#[allow(clippy::unwrap_used, clippy::panic, dead_code, reason = "what is shared with tests is written as a test")]
#[path = "../../../crates/orbit/tests/flight/cloud.rs"]
mod servers;
#[allow(clippy::unwrap_used, clippy::panic, dead_code, reason = "what is shared with tests is written as a test")]
#[path = "../../../crates/orbit/tests/it/world.rs"]
mod world;

use anyhow::Result;

use crate::report::Report;

/// `n` is the number of rounds in which writers race.
pub(crate) async fn run(n: Option<usize>, report: &mut Report) -> Result<()> {
    let rounds = n.unwrap_or(50);
    plan::run(report)?;
    calls::run(report).await?;
    repair::run(10, report).await?;
    races::run(rounds, report).await
}
