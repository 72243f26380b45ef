//! Addresses on `CloudSigma` that move: real packets through real agents and kube-proxy, and many addresses on nodes that
//! are not real.

mod failover;
mod many;
mod planned;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use anyhow::Result;
use groundcrew_e2e::cloudsigma::{Options, World};
use groundcrew_testkit::wire::{Asking, Requesting};

use crate::report::Report;
use crate::rig::beside_us;
use failover::Speed;

const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 100));
const ADDRESS_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0x51, 0, 0, 0, 0, 0x100));
/// Of a request. One SYN may get lost and be sent again, as it would be for anybody's client.
const PATIENCE: Duration = Duration::from_secs(2);

/// `n` is the number of fail-overs of an IPv4 address.
pub(crate) async fn run(n: Option<usize>, report: &mut Report) -> Result<()> {
    let failovers = n.unwrap_or(50);
    let slow = failovers * 2 / 5;
    let mut late = failover::run(Speed::Default, slow, report).await?;
    late += failover::run(Speed::Fast, failovers - slow, report).await?;
    #[allow(clippy::cast_precision_loss, reason = "a figure for people")]
    report.at_most("ARP claims by the old MAC after the new", failovers, "", late as f64, 0.0);
    let late = failover::run_v6(slow).await?;
    #[allow(clippy::cast_precision_loss, reason = "a figure for people")]
    report.at_most("ND claims by the old MAC after the new", slow, "", late as f64, 0.0);
    planned::run(10, report).await?;
    many::run(200, 20, report).await
}

/// A Service on an address, somebody who asks for the address, and somebody who sends fifty requests a second.
async fn served(options: Options) -> Result<(World, Asking, Requesting)> {
    let world = World::start(beside_us("groundcrew")?, options).await?;
    world.subscribe(ADDRESS).await?;
    world.serve("web").await?;
    let asking = world.wire.ask(ADDRESS).await?;
    let requesting = world.wire.request((ADDRESS, 80).into(), Duration::from_millis(20), PATIENCE).await?;
    world.until_steady(&requesting, 0.0, 50).await?;
    Ok((world, asking, requesting))
}
