//! Load balancers that somebody else deletes, against the least that any repairer needs.
//!
//! The floor is a raw socket with the controller's monitor, in the controller's place: it reads the notification and
//! sends the same transaction, prepared. The same thread sees the repair in both cases.

mod comparison;
mod mass;
mod one;
pub(crate) mod requests;

use anyhow::Result;

use crate::report::Report;
use crate::rig::ovn::{Layout, Ovn};
use crate::rig::running::Running;
use crate::rig::{PATIENCE, Rig};
use one::Beside;

pub(crate) async fn run(n: Option<usize>, report: &mut Report) -> Result<()> {
    let n = n.unwrap_or(10_000);
    requests::run(report).await?;
    for beside in [Beside::Nobody, Beside::Northd] {
        one::run(100.min(n), Layout::Tenants, beside, 20.0, report).await?;
    }
    if n > 100 {
        one::run(n, Layout::One, Beside::Northd, 50.0, report).await?;
        one::run(n, Layout::Tenants, Beside::Northd, 50.0, report).await?;
    }
    if n > 1_000 {
        mass::run(1_000, report).await?;
    }
    mass::run(n, report).await?;
    comparison::run(n, report).await
}

/// Starts the controller and waits until it leads and has looked at each of its `n` Services.
async fn start(n: usize, rig: &Rig, ovn: &Ovn, flags: &[&str]) -> Result<Running> {
    let running = rig.start(ovn, flags)?;
    running.ready().await?;
    running.until_looked_at(n, PATIENCE).await?;
    Ok(running)
}
