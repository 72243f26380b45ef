//! The end of a cluster on a model of OpenStack: how much longer it takes than its deletions, what a pass asks for, and a plan
//! for a large cluster.

mod calls;
mod large;
mod overhead;
#[allow(clippy::unwrap_used, clippy::panic, dead_code, reason = "what is shared with tests is written as a test")]
#[path = "../../../crates/orbit/tests/deorbit/place.rs"]
mod place;
mod rig;
#[allow(clippy::unwrap_used, dead_code, reason = "what is shared with tests is written as a test")]
#[path = "../../../crates/orbit/tests/deorbit/standins.rs"]
mod standins;

use anyhow::Result;

use crate::report::Report;

/// `n` is the number of claims whose end is timed; there are as many Services for every five of them as two.
pub(crate) async fn run(n: Option<usize>, report: &mut Report) -> Result<()> {
    overhead::run(n.unwrap_or(50), report).await?;
    calls::run(n.map_or(1000, |n| n * 20), report).await?;
    large::run(n.map_or(5000, |n| n * 100), report).await
}
