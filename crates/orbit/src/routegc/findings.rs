//! What each route of a router is to us. Pure: it reads like the rules that protect users.

use std::collections::HashSet;
use std::fmt;
use std::net::IpAddr;

use groundcrew_core::provider::{AddressPair, Port, Route};
use ipnet::IpNet;

use super::desired::Desired;
use super::headroom::Headroom;
use super::observe::{Holder, Observed, ObservedRouter};
use super::rules::Rules;

/// Why a route has to go.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// No Node has its destination, and nobody has its next hop.
    Orphan,
    /// A Node has its destination, and a route of its own to it.
    Duplicate {
        /// The Node.
        node: String,
    },
}

impl Class {
    /// A word for metrics.
    #[must_use]
    pub fn label(&self) -> &'static str {
        match self {
            Self::Orphan => "orphan",
            Self::Duplicate { .. } => "duplicate",
        }
    }
}

/// A route that has to go.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stale {
    /// The route.
    pub route: Route,
    /// Why.
    pub class: Class,
}

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.class {
            Class::Orphan => write!(f, "{} (orphan)", self.route),
            Class::Duplicate { node } => write!(f, "{} (stale duplicate of Node {node}'s)", self.route),
        }
    }
}

/// Why a route to pods that no Node wants is left alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// It goes to more than pods.
    Wider,
    /// It has no next hop that could be looked for.
    NoNextHop,
    /// Its next hop is on no subnet that the Nodes share with a router: somebody else's.
    OffSubnets,
    /// Its next hop is on a network of which we are not shown every port.
    HiddenPorts,
    /// Somebody has its next hop who is no Node, as another cluster's.
    InUse(Holder),
    /// Its next hop is a Node that has not got this range.
    OtherNode(String),
    /// The Node that has its destination has no address of that family yet.
    NoAddress(String),
    /// The Node that has its destination has no route of its own, so that this one may be all there is.
    NoTwin(String),
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wider => f.write_str("it goes to more than pods"),
            Self::NoNextHop => f.write_str("it has no next hop"),
            Self::OffSubnets => f.write_str("its next hop is on no subnet that the Nodes share with the router"),
            Self::HiddenPorts => f.write_str("the network of its next hop does not show us all its ports"),
            Self::InUse(holder) => write!(f, "its next hop belongs to {holder}, which is no Node"),
            Self::OtherNode(node) => write!(f, "its next hop is Node {node}, which has another pod range"),
            Self::NoAddress(node) => write!(f, "Node {node} has its range and no address yet"),
            Self::NoTwin(node) => write!(f, "Node {node} has its range and no route of its own yet"),
        }
    }
}

/// A route that is left alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Foreign {
    /// The route.
    pub route: Route,
    /// Why.
    pub why: Why,
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.route, self.why)
    }
}

/// The routes of one router.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouterFindings {
    /// The router's id.
    pub router: String,
    /// How many routes a Node wants.
    pub wanted: usize,
    /// How many are none of our business.
    pub others: usize,
    /// Routes that have to go.
    pub stale: Vec<Stale>,
    /// Routes to pods that are left alone.
    pub foreign: Vec<Foreign>,
    /// What Nodes want here and is not there.
    pub missing: Vec<Route>,
    /// Whether there is room.
    pub headroom: Headroom,
}

impl RouterFindings {
    /// How many routes go to pods.
    #[must_use]
    pub fn pod_routes(&self) -> usize {
        self.wanted + self.stale.len() + self.foreign.len()
    }
}

/// Ranges that a Node's port may send from, and that are not the Node's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StalePairs {
    /// The Node.
    pub node: String,
    /// Its port, as it was read.
    pub port: Port,
    /// What has to go.
    pub pairs: Vec<AddressPair>,
}

/// Why nothing may be removed at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lock {
    /// No Nodes: a wrong kubeconfig, or an API server that was restored from nothing.
    NoNodes,
    /// Part of the cloud was not shown.
    Incomplete(Vec<&'static str>),
    /// The cloud shows nobody with a Node's address: a wrong project or region.
    Elsewhere,
}

impl fmt::Display for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoNodes => f.write_str("there are no Nodes"),
            Self::Incomplete(what) => {
                write!(f, "the list of {} is incomplete; the log says what is missing", what.join(" and of "))
            }
            Self::Elsewhere => f.write_str(
                "the cloud shows no server or port with the address of a Node; is it the right project and region?",
            ),
        }
    }
}

/// Everything that one look means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Findings {
    /// Why nothing may be removed, if so.
    pub lock: Option<Lock>,
    /// Router by router.
    pub routers: Vec<RouterFindings>,
    /// Port by port.
    pub pairs: Vec<StalePairs>,
}

/// Compares what Nodes want with what is there.
#[must_use]
pub fn findings(desired: &Desired<'_>, observed: &Observed, rules: &Rules) -> Findings {
    let routers: Vec<_> =
        observed.routers.iter().map(|router| judge_router(router, desired, observed, rules)).collect();
    let pairs = observed.node_ports.iter().filter_map(|port| judge_pairs(port, desired, observed, rules)).collect();
    Findings { lock: lock(desired, observed), routers, pairs }
}

fn lock(desired: &Desired<'_>, observed: &Observed) -> Option<Lock> {
    if desired.nodes().is_empty() {
        return Some(Lock::NoNodes);
    }
    if !observed.gaps.is_empty() {
        return Some(Lock::Incomplete(observed.gaps.clone()));
    }
    let mut addresses = desired.nodes().iter().flat_map(|node| &node.addresses);
    let is_here = addresses.any(|address| observed.holders.contains_key(address));
    (!is_here).then_some(Lock::Elsewhere)
}

/// The routes of a router as pairs, to find twins by.
type Pairs = HashSet<(IpNet, IpAddr)>;

enum Verdict {
    Wanted,
    Other,
    Stale(Class),
    Foreign(Why),
}

fn judge_router(seen: &ObservedRouter, desired: &Desired<'_>, observed: &Observed, rules: &Rules) -> RouterFindings {
    let routes = &seen.router.routes;
    let pairs: Pairs = routes.iter().filter_map(|route| Some((route.range()?, route.hop()?))).collect();
    let (mut wanted, mut others, mut stale, mut foreign) = (0, 0, Vec::new(), Vec::new());
    for route in routes {
        match judge(route, &pairs, desired, observed, rules) {
            Verdict::Wanted => wanted += 1,
            Verdict::Other => others += 1,
            Verdict::Stale(class) => stale.push(Stale { route: route.clone(), class }),
            Verdict::Foreign(why) => foreign.push(Foreign { route: route.clone(), why }),
        }
    }
    let missing = missing(seen, &pairs, desired, observed, rules);
    let headroom = Headroom::new(routes.len(), missing.len(), seen.limit, rules.route_limit);
    RouterFindings { router: seen.router.id.clone(), wanted, others, stale, foreign, missing, headroom }
}

fn judge(route: &Route, pairs: &Pairs, desired: &Desired<'_>, observed: &Observed, rules: &Rules) -> Verdict {
    let Some(range) = route.range() else { return Verdict::Other };
    if !rules.is_pods(range) {
        return if rules.reaches_pods(range) && range.prefix_len() > 0 {
            Verdict::Foreign(Why::Wider)
        } else {
            Verdict::Other
        };
    }
    let Some(hop) = route.hop() else { return Verdict::Foreign(Why::NoNextHop) };
    if desired.wants(range, hop) {
        return Verdict::Wanted;
    }
    let class = match desired.owners(range).first() {
        None => Class::Orphan,
        Some(owner) => {
            let name = || owner.name.clone();
            if owner.addresses_like(range).next().is_none() {
                return Verdict::Foreign(Why::NoAddress(name()));
            }
            let has_twin = |address| pairs.contains(&(range, address));
            if !desired.owners(range).iter().any(|owner| owner.addresses_like(range).any(has_twin)) {
                return Verdict::Foreign(Why::NoTwin(name()));
            }
            Class::Duplicate { node: name() }
        }
    };
    match (desired.node_at(hop), &class) {
        // All Nodes are known, and this one has not got the range.
        (Some(_), Class::Duplicate { .. }) => return Verdict::Stale(class),
        (Some(node), Class::Orphan) => return Verdict::Foreign(Why::OtherNode(node.name.clone())),
        (None, _) => {}
    }
    let mut around = observed.subnets.iter().filter(|subnet| subnet.range.contains(&hop)).peekable();
    if around.peek().is_none() {
        return Verdict::Foreign(Why::OffSubnets);
    }
    if around.any(|subnet| subnet.hides_ports) {
        return Verdict::Foreign(Why::HiddenPorts);
    }
    match observed.holders.get(&hop) {
        Some(holder) => Verdict::Foreign(Why::InUse(holder.clone())),
        None => Verdict::Stale(class),
    }
}

/// What Nodes want of this router and have not got. Only Nodes on subnets that it is seen to be connected to count.
fn missing(
    seen: &ObservedRouter,
    pairs: &Pairs,
    desired: &Desired<'_>,
    observed: &Observed,
    rules: &Rules,
) -> Vec<Route> {
    let here: Vec<_> = observed.subnets.iter().filter(|subnet| seen.subnets.contains(&subnet.id)).collect();
    let mut missing = Vec::new();
    for node in desired.nodes() {
        for range in node.pod_ranges.iter().map(IpNet::trunc).filter(|range| rules.is_pods(*range)) {
            if node.addresses_like(range).any(|address| pairs.contains(&(range, address))) {
                continue;
            }
            let mut near =
                node.addresses_like(range).filter(|address| here.iter().any(|subnet| subnet.range.contains(address)));
            missing.extend(near.next().map(|hop| Route { destination: range.to_string(), next_hop: hop.to_string() }));
        }
    }
    missing
}

/// A pair is stale when it looks like a Node's range (inside the pods' ranges and as long as the Node's own, so neither a VIP
/// nor all pods), is not this Node's, and no route leads through this port to it.
fn judge_pairs(port: &Port, desired: &Desired<'_>, observed: &Observed, rules: &Rules) -> Option<StalePairs> {
    let nodes: Vec<_> = port.addresses.iter().filter_map(|own| desired.node_at(own.address)).collect();
    let node = nodes.first()?;
    let routed = |range: IpNet| {
        let routes = observed.routers.iter().flat_map(|seen| &seen.router.routes);
        let mut here = routes.filter(|route| route.range() == Some(range));
        here.any(|route| port.addresses.iter().any(|own| route.hop() == Some(own.address)))
    };
    let is_stale = |pair: &&AddressPair| {
        let Ok(range) = pair.range.parse::<IpNet>() else { return false };
        let range = range.trunc();
        let mut own = nodes.iter().flat_map(|node| &node.pod_ranges);
        let is_like_a_nodes = own
            .clone()
            .any(|own| own.addr().is_ipv4() == range.addr().is_ipv4() && own.prefix_len() == range.prefix_len());
        rules.is_pods(range) && is_like_a_nodes && !own.any(|own| own.trunc() == range) && !routed(range)
    };
    let pairs: Vec<_> = port.pairs.iter().flatten().filter(is_stale).cloned().collect();
    (!pairs.is_empty()).then(|| StalePairs { node: node.name.clone(), port: port.clone(), pairs })
}
