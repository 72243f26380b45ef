//! A cloud whose servers and routers hold their addresses by ports.

use std::net::IpAddr;

use super::{Listing, ProviderError};
use crate::leader::Term;

/// What a port belongs to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Device {
    /// A server, by its id.
    Server(String),
    /// A router, by its id.
    Router(String),
    /// Something else: a load balancer, a DHCP server. The text says what.
    Other(String),
    /// Nothing, as a port that keeps an address for later or for a VIP.
    Nothing,
}

/// An address of a port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortAddress {
    /// The subnet that it is of.
    pub subnet: String,
    /// The address.
    pub address: IpAddr,
}

/// A range that a port may send from besides its own addresses, as the cloud spells it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AddressPair {
    /// An address or a range.
    pub range: String,
    /// With which hardware address; the port's own if there is none.
    pub mac: Option<String>,
}

/// A port as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// Its id.
    pub id: String,
    /// The network that it is on.
    pub network: String,
    /// What it belongs to.
    pub device: Device,
    /// Its addresses.
    pub addresses: Vec<PortAddress>,
    /// Whether groups and pairs mean anything here. Where they do not, they cannot be set.
    pub secured: bool,
    /// The ids of its security groups. `None` where the cloud did not say, which is not the same as having none.
    pub groups: Option<Vec<String>>,
    /// What it may send from besides its own addresses. `None` where the cloud did not say.
    pub pairs: Option<Vec<AddressPair>>,
    /// Rises with each change, where the cloud counts.
    pub revision: Option<i64>,
}

/// The verbs of a cloud with ports. Each list of a port is written whole: what another writer added since the port was
/// `seen` may be lost. Known to have changed is a conflict; a cloud that compares revisions lessens the risk and does not
/// end it, so the answer shows the port as it is now.
pub trait Ports: Send + Sync + 'static {
    /// All ports on these networks that we may see.
    fn ports(&self, networks: &[String]) -> impl Future<Output = Result<Listing<Port>, ProviderError>> + Send;

    /// One port.
    fn port(&self, id: &str) -> impl Future<Output = Result<Port, ProviderError>> + Send;

    /// Sets all security groups of a port, by their ids.
    fn set_port_groups(
        &self,
        seen: &Port,
        groups: &[String],
        term: &Term,
    ) -> impl Future<Output = Result<Port, ProviderError>> + Send;

    /// Sets all that a port may send from besides its own addresses.
    fn set_port_pairs(
        &self,
        seen: &Port,
        pairs: &[AddressPair],
        term: &Term,
    ) -> impl Future<Output = Result<Port, ProviderError>> + Send;
}
