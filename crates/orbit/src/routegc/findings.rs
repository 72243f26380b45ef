//! What each route of a router is to us. Pure: it reads like the rules that protect users.

use std::collections::HashSet;
use std::fmt;
use std::net::IpAddr;

use groundcrew_core::provider::{AddressPair, Port, Route, Subnet};
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
    /// It goes to a part of a Node's range, or to all of it and more: nobody makes such routes for Nodes.
    Overlaps(String),
    /// Its next hop is on no subnet that the Nodes share with its router: somebody else's.
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
            Self::Overlaps(node) => write!(f, "it goes to more than Node {node}'s range, or to a part of that"),
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

/// What is wrong with the ranges that a Node's port may send from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StalePairs {
    /// The Node.
    pub node: String,
    /// Its port, as it was read.
    pub port: Port,
    /// Those that are not the Node's, and have to go.
    pub pairs: Vec<AddressPair>,
    /// Those of the Node that a route leads through this port to, and that it may not send from.
    pub lacking: Vec<AddressPair>,
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
                "the cloud shows no server that is a Node, by spec.providerID or else by address; is it the right project and region?",
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
    let routed = observed.routers.iter().flat_map(|seen| pairs(&seen.router.routes)).collect();
    let pairs = observed.node_ports.iter().filter_map(|port| judge_pairs(port, desired, &routed, rules)).collect();
    Findings { lock: lock(desired, observed), routers, pairs }
}

fn lock(desired: &Desired<'_>, observed: &Observed) -> Option<Lock> {
    if desired.nodes().is_empty() {
        return Some(Lock::NoNodes);
    }
    if !observed.gaps.is_empty() {
        return Some(Lock::Incomplete(observed.gaps.clone()));
    }
    (!observed.at_home).then_some(Lock::Elsewhere)
}

/// The routes of a router as pairs, to find twins by.
type Pairs = HashSet<(IpNet, IpAddr)>;

fn pairs(routes: &[Route]) -> impl Iterator<Item = (IpNet, IpAddr)> {
    routes.iter().filter_map(|route| Some((route.range()?, route.hop()?)))
}

/// What a route is judged by.
struct Court<'a> {
    desired: &'a Desired<'a>,
    observed: &'a Observed,
    rules: &'a Rules,
    /// The subnets that Nodes share with its router. Another network may have the same range, and hide what is on it.
    subnets: Vec<&'a Subnet>,
    /// All routes of its router.
    pairs: Pairs,
}

enum Verdict {
    Wanted,
    Other,
    Stale(Class),
    Foreign(Why),
}

fn judge_router(seen: &ObservedRouter, desired: &Desired<'_>, observed: &Observed, rules: &Rules) -> RouterFindings {
    let routes = &seen.router.routes;
    let subnets = observed.subnets.iter().filter(|subnet| seen.subnets.contains(&subnet.id)).collect();
    let court = Court { desired, observed, rules, subnets, pairs: pairs(routes).collect() };
    let (mut wanted, mut others, mut stale, mut foreign) = (0, 0, Vec::new(), Vec::new());
    for route in routes {
        match court.judge(route) {
            Verdict::Wanted => wanted += 1,
            Verdict::Other => others += 1,
            Verdict::Stale(class) => stale.push(Stale { route: route.clone(), class }),
            Verdict::Foreign(why) => foreign.push(Foreign { route: route.clone(), why }),
        }
    }
    let missing = court.missing();
    let headroom = Headroom::new(routes.len(), missing.len(), seen.limit, rules.route_limit);
    RouterFindings { router: seen.router.id.clone(), wanted, others, stale, foreign, missing, headroom }
}

impl Court<'_> {
    fn judge(&self, route: &Route) -> Verdict {
        let Some(range) = route.range() else { return Verdict::Other };
        if !self.rules.is_pods(range) {
            return if self.rules.reaches_pods(range) && range.prefix_len() > 0 {
                Verdict::Foreign(Why::Wider)
            } else {
                Verdict::Other
            };
        }
        let Some(hop) = route.hop() else { return Verdict::Foreign(Why::NoNextHop) };
        if self.desired.wants(range, hop) {
            return Verdict::Wanted;
        }
        let class = match self.class(range) {
            Ok(class) => class,
            Err(why) => return Verdict::Foreign(why),
        };
        let node = self.desired.node_at(hop);
        if let (Some(node), Class::Orphan) = (node, &class) {
            return Verdict::Foreign(Why::OtherNode(node.name.clone()));
        }
        let mut around = self.subnets.iter().filter(|subnet| subnet.range.contains(&hop)).peekable();
        if around.peek().is_none() {
            return Verdict::Foreign(Why::OffSubnets);
        }
        if node.is_some() {
            // All Nodes are known, and this one has not got the range.
            return Verdict::Stale(class);
        }
        if around.any(|subnet| subnet.hides_ports) {
            return Verdict::Foreign(Why::HiddenPorts);
        }
        match self.observed.holders.get(&hop) {
            Some(holder) => Verdict::Foreign(Why::InUse(holder.clone())),
            None => Verdict::Stale(class),
        }
    }

    /// What a route to this range is that no Node wants, if nobody has its next hop.
    fn class(&self, range: IpNet) -> Result<Class, Why> {
        let owners = self.desired.owners(range);
        let Some(owner) = owners.first() else {
            return match self.desired.neighbour(range) {
                Some(node) => Err(Why::Overlaps(node.name.clone())),
                None => Ok(Class::Orphan),
            };
        };
        let name = owner.name.clone();
        if owner.addresses_like(range).next().is_none() {
            return Err(Why::NoAddress(name));
        }
        let has_twin = |address| self.pairs.contains(&(range, address));
        if !owners.iter().any(|owner| owner.addresses_like(range).any(has_twin)) {
            return Err(Why::NoTwin(name));
        }
        Ok(Class::Duplicate { node: name })
    }

    /// What Nodes want of this router and have not got. Only Nodes on subnets that it is seen to be connected to count.
    fn missing(&self) -> Vec<Route> {
        let mut missing = Vec::new();
        for node in self.desired.nodes() {
            for range in node.pod_ranges.iter().map(IpNet::trunc).filter(|range| self.rules.is_pods(*range)) {
                if node.addresses_like(range).any(|address| self.pairs.contains(&(range, address))) {
                    continue;
                }
                let is_near = |address: &IpAddr| self.subnets.iter().any(|subnet| subnet.range.contains(address));
                let near = node.addresses_like(range).find(is_near);
                missing.extend(near.map(|hop| Route { destination: range.to_string(), next_hop: hop.to_string() }));
            }
        }
        missing
    }
}

/// A pair is stale when it looks like a Node's range (inside the pods' ranges and as long as the Node's own, so neither a VIP
/// nor all pods), is not this Node's, and no route leads through this port to it.
fn judge_pairs(port: &Port, desired: &Desired<'_>, routed: &Pairs, rules: &Rules) -> Option<StalePairs> {
    let nodes: Vec<_> = port.addresses.iter().filter_map(|own| desired.node_at(own.address)).collect();
    let node = nodes.first()?;
    let routed = |range: IpNet| port.addresses.iter().any(|own| routed.contains(&(range, own.address)));
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
    let allowed: Vec<_> = port.pairs.iter().flatten().filter_map(|pair| range(&pair.range)).collect();
    let own = nodes.iter().flat_map(|node| &node.pod_ranges).map(IpNet::trunc);
    let own = own.filter(|own| rules.is_pods(*own) && routed(*own));
    let lacking = own.filter(|own| !allowed.iter().any(|allowed| allowed.contains(own)));
    let lacking: Vec<_> = lacking.map(|own| AddressPair { range: own.to_string(), mac: None }).collect();
    (!pairs.is_empty() || !lacking.is_empty()).then(|| StalePairs {
        node: node.name.clone(),
        port: port.clone(),
        pairs,
        lacking,
    })
}

/// A range, or a single address.
fn range(text: &str) -> Option<IpNet> {
    text.parse().or_else(|_| text.parse().map(|address: IpAddr| IpNet::from(address))).ok()
}
