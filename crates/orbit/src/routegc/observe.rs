//! What is really there: routers, and who has which address.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use groundcrew_core::provider::{
    Device, Instance, Instances, Listing, Port, PortAddress, Ports, ProviderError, RouteLimit, Router, Routes, Subnet,
};
use ipnet::IpNet;
use tracing::debug;

use super::desired::Desired;

/// Who has an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Holder {
    /// A server, by its name.
    Server(Box<str>),
    /// A port, by its id.
    Port(Box<str>),
    /// A port that may send from it, though it is not its own: a VIP.
    Vip(Box<str>),
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(name) => write!(f, "server {name}"),
            Self::Port(id) => write!(f, "port {id}"),
            Self::Vip(id) => write!(f, "port {id} as a VIP"),
        }
    }
}

/// A router with what is known about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedRouter {
    /// As it was read.
    pub router: Router,
    /// How many routes it takes.
    pub limit: RouteLimit,
    /// The subnets of Nodes that it is seen to be connected to.
    pub subnets: BTreeSet<String>,
}

/// Everything that one look has shown.
#[derive(Debug, Clone, Default)]
pub struct Observed {
    /// The routers that are looked after.
    pub routers: Vec<ObservedRouter>,
    /// The subnets that Nodes have their addresses of and that one of the routers is connected to.
    pub subnets: Vec<Subnet>,
    /// Who has which address.
    pub holders: HashMap<IpAddr, Holder>,
    /// The ports of Nodes that may be allowed to send from more than their own addresses.
    pub node_ports: Vec<Port>,
    /// Whether the cloud shows one of the Nodes. By their ids where Nodes tell them: the same addresses are in many projects.
    pub at_home: bool,
    /// The listings that are not complete.
    pub gaps: Vec<&'static str>,
}

/// Why there is nothing to plan with.
#[derive(Debug, thiserror::Error)]
pub enum ObserveError {
    /// The cloud refused, or did not answer.
    #[error(transparent)]
    Cloud(#[from] ProviderError),
    /// Nobody said which router it is, and there is nobody to find it by.
    #[error("there are no Nodes")]
    NoNodes,
    /// Nobody said which router it is, and it cannot be found.
    #[error("no router of the Nodes' subnets is to be seen; name it with --router")]
    NoRouter,
    /// Nobody said which router it is, and there are several.
    #[error("the Nodes' subnets have more than one router ({}); name yours with --router", .0.join(", "))]
    ManyRouters(Vec<String>),
    /// It took so long that what was seen first may be wrong by now.
    #[error("a look at the cloud took {} s, which is too long to act on", .0.as_secs())]
    Slow(Duration),
}

/// Looks at everything once. The number of calls does not depend on how many Nodes there are.
pub async fn observe<C>(cloud: &C, desired: &Desired<'_>, routers: &[String]) -> Result<Observed, ObserveError>
where
    C: Routes + Ports + Instances,
{
    if desired.nodes().is_empty() && routers.is_empty() {
        return Err(ObserveError::NoNodes);
    }
    let mut seen = Observed::default();
    let mut subnets = seen.note("subnets", cloud.subnets().await?);
    subnets.retain(|subnet| fits_a_node(subnet.range, desired));
    let networks: BTreeSet<_> = subnets.iter().map(|subnet| subnet.network.clone()).collect();
    let networks: Vec<_> = networks.into_iter().collect();
    let ports = seen.note("ports", cloud.ports(&networks).await?);
    // Another network may have the same range: only where a Node's port is, Nodes are.
    let inhabited = inhabited(&ports, desired);
    subnets.retain(|subnet| inhabited.contains(subnet.id.as_str()));

    let connected = connections(&ports, &subnets);
    let ids = if routers.is_empty() { vec![the_only(&connected)?] } else { routers.to_vec() };
    for id in ids {
        let router = cloud.router(&id).await?;
        let limit = cloud.route_limit(&router).await.unwrap_or_else(|error| {
            debug!(%error, router = id, "the cloud does not tell its limit of routes");
            RouteLimit::Untold
        });
        seen.routers.push(ObservedRouter { router, limit, subnets: connected.get(&id).cloned().unwrap_or_default() });
    }
    // There may even be a port with a Node's very address: what none of these routers reaches is another cluster's.
    subnets.retain(|subnet| seen.routers.iter().any(|router| router.subnets.contains(&subnet.id)));
    seen.subnets = subnets;
    // Servers come last: whoever got an address since the routes were read must be in.
    let servers = seen.note("servers", cloud.instances().await?);
    seen.hold(servers, ports, desired);
    Ok(seen)
}

impl Observed {
    fn note<T>(&mut self, what: &'static str, listing: Listing<T>) -> Vec<T> {
        if !listing.complete {
            self.gaps.push(what);
        }
        listing.items
    }

    fn hold(&mut self, servers: Vec<Instance>, ports: Vec<Port>, desired: &Desired<'_>) {
        for port in ports {
            // Ranges are no VIPs: some clusters let every port send from everywhere.
            let pairs = port.pairs.iter().flatten();
            let vips =
                pairs.filter_map(|pair| single(&pair.range)).map(|vip| (vip, Holder::Vip(port.id.as_str().into())));
            for (vip, holder) in vips {
                self.holders.entry(vip).or_insert(holder);
            }
            let own = port.addresses.iter().map(|own| (own.address, Holder::Port(port.id.as_str().into())));
            self.holders.extend(own);
            let is_here = |own: &PortAddress| self.subnets.iter().any(|subnet| subnet.id == own.subnet);
            let is_nodes = port.addresses.iter().any(|own| desired.node_at(own.address).is_some() && is_here(own));
            if is_nodes && port.secured && port.pairs.is_some() {
                self.node_ports.push(port);
            }
        }
        let named = desired.servers();
        self.at_home = servers.iter().any(|server| named.contains(server.id.as_str()));
        for server in servers {
            let holder = || Holder::Server(server.name.as_str().into());
            self.holders.extend(server.addresses.iter().map(|address| (*address, holder())));
        }
        if named.is_empty() {
            let mut addresses = desired.nodes().iter().flat_map(|node| &node.addresses);
            self.at_home = addresses.any(|address| self.holders.contains_key(address));
        }
    }
}

fn fits_a_node(range: IpNet, desired: &Desired<'_>) -> bool {
    desired.nodes().iter().flat_map(|node| &node.addresses).any(|address| range.contains(address))
}

/// The subnets on which somebody has a Node's address.
fn inhabited<'a>(ports: &'a [Port], desired: &Desired<'_>) -> BTreeSet<&'a str> {
    let addresses = ports.iter().flat_map(|port| &port.addresses);
    addresses.filter(|own| desired.node_at(own.address).is_some()).map(|own| own.subnet.as_str()).collect()
}

/// Which routers are connected to which of these subnets.
fn connections(ports: &[Port], subnets: &[Subnet]) -> BTreeMap<String, BTreeSet<String>> {
    let mut connected: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for port in ports {
        let Device::Router(router) = &port.device else { continue };
        for own in &port.addresses {
            if subnets.iter().any(|subnet| subnet.id == own.subnet) {
                connected.entry(router.clone()).or_default().insert(own.subnet.clone());
            }
        }
    }
    connected
}

fn the_only(connected: &BTreeMap<String, BTreeSet<String>>) -> Result<String, ObserveError> {
    let mut ids = connected.keys();
    match (ids.next(), ids.next()) {
        (Some(id), None) => Ok(id.clone()),
        (None, _) => Err(ObserveError::NoRouter),
        (Some(_), Some(_)) => Err(ObserveError::ManyRouters(connected.keys().cloned().collect())),
    }
}

fn single(range: &str) -> Option<IpAddr> {
    let range: IpNet = range.parse().or_else(|_| range.parse().map(|address: IpAddr| IpNet::from(address))).ok()?;
    (range.prefix_len() == range.max_prefix_len()).then(|| range.addr())
}
