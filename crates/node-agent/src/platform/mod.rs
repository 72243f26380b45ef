//! The machine under the agent, as a trait: addresses, links, frames, packet filter and clock.

mod linux;
mod netlink;
mod packet;
mod programs;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use groundcrew_core::leader::Moment;

pub(crate) use linux::Linux;

use crate::frames::Mac;
use crate::network::Network;

/// What the kernel, or a program that talks to it, refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PlatformError {
    /// It is not ours, so it stays as it is.
    #[error("{0} is on {1} already, and was not put there by groundcrew: remove it from the node's own configuration")]
    Foreign(IpAddr, String),
    #[error("the kernel refused {what}: {source}")]
    Kernel { what: String, source: std::io::Error },
    #[error("{program} is not installed on this node's image")]
    NotInstalled { program: &'static str },
    #[error("{program} failed: {said}")]
    Program { program: &'static str, said: String },
    #[error("{program} failed: no end within {within:?}")]
    Hung { program: &'static str, within: Duration },
}

/// What the agent does to its node. Calls without `async` are one system call, so that a check of the deadline can stand
/// right before it.
pub(crate) trait Platform: Send + Sync + 'static {
    fn now(&self) -> Moment;

    /// Interfaces, default routes and the gateways' hardware addresses.
    fn network(&self) -> Result<Network, PlatformError>;

    /// Addresses with our mark, and the interface of each.
    fn ours(&self) -> Result<Vec<(IpAddr, u32)>, PlatformError>;

    /// Has the kernel keep the address on this interface for so long. A `new` one must not be there yet, unless with our
    /// mark; otherwise its lifetime begins anew.
    fn show(&self, address: IpAddr, link: u32, seconds: u32, new: bool) -> Result<(), PlatformError>;

    /// Takes it away; gone already is fine.
    fn hide(&self, address: IpAddr, link: u32) -> Result<(), PlatformError>;

    /// Sends a whole frame.
    fn send(&self, link: u32, frame: &[u8]) -> Result<(), PlatformError>;

    /// Asks on the wire who has the address, and waits that long for an answer of somebody other than `mac`.
    fn probe(
        &self,
        address: IpAddr,
        link: u32,
        mac: Mac,
        within: Duration,
    ) -> impl Future<Output = Result<Option<Mac>, PlatformError>> + Send;

    /// Runs a script of nftables: all of it or nothing.
    fn filter(&self, script: String) -> impl Future<Output = Result<(), PlatformError>> + Send;

    /// Forgets who talks to the address over UDP, or of those the ones that were sent to this backend: such talk never ends by
    /// itself, and goes on to a backend that is gone.
    fn forget_udp(
        &self,
        address: IpAddr,
        backend: Option<SocketAddr>,
    ) -> impl Future<Output = Result<(), PlatformError>> + Send;
}
