//! A large cluster in memory: a third of a router's routes are stale, and some Nodes are sick.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use anyhow::Result;
use groundcrew_core::leader::Term;
use groundcrew_core::provider::{
    AddressPair, Device, ErrorKind, Instance, InstanceGroup, InstanceState, Instances, Listing, Port, PortAddress,
    Ports, ProviderError, Reboot, Route, RouteLimit, Router, Routes, Subnet,
};
use groundcrew_orbit::routegc::rules::Rules;
use groundcrew_orbit::{flight, routegc};
use ipnet::{IpNet, Ipv4Net};
use jiff::Timestamp;

type Done<T> = Result<T, ProviderError>;

pub(super) const GROUP: &str = "the-group-of-the-nodes";
const ROUTER: &str = "the-router-of-the-nodes";

/// As many servers, as many Nodes, and twice as many routes.
pub(super) struct Large {
    pub(super) instances: Vec<Instance>,
    pub(super) ports: Vec<Port>,
    pub(super) subnets: Vec<Subnet>,
    pub(super) router: Router,
    pub(super) nodes: Vec<routegc::nodes::Node>,
    pub(super) members: Vec<flight::nodes::Node>,
}

pub(super) fn rules() -> Rules {
    Rules {
        pod_ranges: vec![IpNet::from(Ipv4Net::new_assert(Ipv4Addr::new(100, 64, 0, 0), 10))],
        sightings: 2,
        min_age: Duration::from_mins(10),
        // Everything that is stale goes, so that all of it is planned.
        max_removals: usize::MAX,
        max_percent: 100,
        route_limit: 31,
        whole_lists: false,
    }
}

/// The `i`th address of servers: 10.128.0.0/14 has room for a quarter of a million.
fn address(i: usize) -> IpAddr {
    let i = u32::try_from(i).unwrap_or_default();
    Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 128, 1, 0)) + i).into()
}

/// The `i`th range of pods.
fn pods(i: usize) -> IpNet {
    let i = u32::try_from(i).unwrap_or_default();
    IpNet::from(Ipv4Net::new_assert(Ipv4Addr::from(u32::from(Ipv4Addr::new(100, 64, 0, 0)) + (i << 8)), 24))
}

fn id(i: usize) -> String {
    format!("00000000-0000-4000-8000-{i:012}")
}

fn route(destination: IpNet, next_hop: IpAddr) -> Route {
    Route { destination: destination.to_string(), next_hop: next_hop.to_string() }
}

impl Large {
    pub(super) fn new(n: usize) -> Self {
        // Of Nodes that are there; of Nodes that are gone, with their servers; and other ways to Nodes that are there.
        let own = (0..n).map(|i| route(pods(i), address(i)));
        let orphans = (n..n + n / 2).map(|i| route(pods(i), address(i)));
        let duplicates = (0..n - n / 2).map(|i| route(pods(i), address(2 * n + i)));
        let router = Router {
            id: ROUTER.into(),
            name: "router".into(),
            project: "p1".into(),
            routes: own.chain(orphans).chain(duplicates).collect(),
            revision: Some(1),
        };
        let mut ports: Vec<_> = (0..n).map(port).collect();
        let gateway = IpAddr::from(Ipv4Addr::new(10, 128, 0, 1));
        ports.push(Port { device: Device::Router(ROUTER.into()), pairs: None, ..at("gateway".into(), gateway) });
        Self {
            instances: (0..n).map(instance).collect(),
            ports,
            subnets: vec![Subnet {
                id: "s1".into(),
                network: "net1".into(),
                range: IpNet::from(Ipv4Net::new_assert(Ipv4Addr::new(10, 128, 0, 0), 14)),
                hides_ports: false,
            }],
            router,
            nodes: (0..n).map(node).collect(),
            members: (0..n).map(member).collect(),
        }
    }
}

fn instance(i: usize) -> Instance {
    Instance {
        id: id(i),
        name: format!("worker-{i}"),
        state: InstanceState::Running,
        task: None,
        created: Some(Timestamp::UNIX_EPOCH),
        addresses: vec![address(i)],
        locked: false,
        fault: None,
        tags: BTreeSet::new(),
        metadata: BTreeMap::from([("cluster".into(), "bench".into())]),
    }
}

fn at(id: String, address: IpAddr) -> Port {
    Port {
        id,
        network: "net1".into(),
        device: Device::Nothing,
        addresses: vec![PortAddress { subnet: "s1".into(), address }],
        secured: true,
        groups: Some(vec![GROUP.into()]),
        pairs: Some(Vec::new()),
        revision: Some(1),
    }
}

/// Each may send from its own range, and from one that it had before. Some lack their group.
fn port(i: usize) -> Port {
    let pair = |range: IpNet| AddressPair { range: range.to_string(), mac: None };
    let groups = if i.is_multiple_of(50) { Vec::new() } else { vec![GROUP.to_owned()] };
    Port {
        device: Device::Server(id(i)),
        groups: Some(groups),
        pairs: Some(vec![pair(pods(i)), pair(pods(12_000 + i % 4_000))]),
        ..at(format!("port-{i}"), address(i))
    }
}

fn node(i: usize) -> routegc::nodes::Node {
    routegc::nodes::Node {
        name: format!("worker-{i}"),
        uid: id(i),
        server: Some(id(i)),
        pod_ranges: vec![pods(i)],
        addresses: vec![address(i)],
    }
}

/// Every fiftieth is not ready since long ago.
fn member(i: usize) -> flight::nodes::Node {
    flight::nodes::Node {
        name: format!("worker-{i}"),
        uid: id(i),
        server: Some(id(i)),
        foreign: false,
        addresses: vec![address(i)],
        pod_ranges: vec![pods(i)],
        troubles: BTreeMap::new(),
        unready_since: i.is_multiple_of(50).then_some(Timestamp::UNIX_EPOCH),
        cordoned: false,
        paused: false,
    }
}

/// Nothing is written in this scenario.
fn refused<T>() -> Done<T> {
    Err(ProviderError::new(ErrorKind::Denied, "this cloud is only looked at"))
}

impl Routes for Large {
    async fn subnets(&self) -> Done<Listing<Subnet>> {
        Ok(Listing::complete(self.subnets.clone()))
    }

    async fn router(&self, _: &str) -> Done<Router> {
        Ok(self.router.clone())
    }

    async fn route_limit(&self, _: &Router) -> Done<RouteLimit> {
        Ok(RouteLimit::Unlimited)
    }

    async fn single_routes(&self) -> Done<bool> {
        Ok(true)
    }

    async fn add_routes(&self, _: &str, _: &[Route], _: &Term) -> Done<()> {
        refused()
    }

    async fn remove_routes(&self, _: &str, _: &[Route], _: &Term) -> Done<()> {
        refused()
    }

    async fn replace_routes(&self, _: &Router, _: &[Route], _: &Term) -> Done<()> {
        refused()
    }
}

impl Ports for Large {
    async fn ports(&self, _: &[String]) -> Done<Listing<Port>> {
        Ok(Listing::complete(self.ports.clone()))
    }

    async fn port(&self, _: &str) -> Done<Port> {
        refused()
    }

    async fn set_port_groups(&self, _: &Port, _: &[String], _: &Term) -> Done<Port> {
        refused()
    }

    async fn set_port_pairs(&self, _: &Port, _: &[AddressPair], _: &Term) -> Done<Port> {
        refused()
    }
}

impl Instances for Large {
    async fn instances(&self) -> Done<Listing<Instance>> {
        Ok(Listing::complete(self.instances.clone()))
    }

    async fn instance(&self, _: &str) -> Done<Instance> {
        refused()
    }

    async fn instance_groups(&self) -> Done<Listing<InstanceGroup>> {
        Ok(Listing::complete(Vec::new()))
    }

    async fn reboot(&self, _: &str, _: Reboot, _: &Term) -> Done<()> {
        refused()
    }

    async fn delete_instance(&self, _: &str, _: &Term) -> Done<()> {
        refused()
    }

    async fn mark_instance(&self, _: &str, _: &BTreeSet<String>, _: &BTreeMap<String, String>, _: &Term) -> Done<()> {
        refused()
    }
}
