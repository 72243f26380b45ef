//! `groundcrew ovn-lb` as a process, against bare clients that do the same at the same servers.
//!
//! The floor at the API server sends the requests that each Service needs, as many at once as the controller, and looks
//! at no answer. The floor at OVN sends prepared bytes with the same monitors connected.

mod burst;
mod fresh;
mod start;
mod steady;

use anyhow::Result;

use crate::report::Report;

pub(crate) async fn run(n: Option<usize>, report: &mut Report) -> Result<()> {
    let n = n.unwrap_or(10_000);
    burst::run(report).await?;
    fresh::run(n, report).await?;
    let (mut rig, ovn) = start::run(n, report).await?;
    steady::run(n, &mut rig, &ovn, report).await
}
