//! Addresses that something else in OVN has. They are not given out, whatever a pool says.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use groundcrew_api::names::kube_ovn::is_own_load_balancer;
use ipnet::IpNet;
use ovsdb_client::{Changed, Row, Rows, StrMap};
use tokio_util::sync::CancellationToken;

use super::Addresses;
use crate::marks;
use crate::northbound::{LoadBalancer, LogicalRouterPort, Nat, Northbound, RouterPolicy, StaticRoute};
use crate::view::View;

/// By what each is taken.
pub(crate) type Taken = BTreeMap<IpAddr, &'static str>;

const TABLES: &[&str] =
    &[LogicalRouterPort::TABLE, Nat::TABLE, StaticRoute::TABLE, RouterPolicy::TABLE, LoadBalancer::TABLE];

/// Of several that have one address, the last here is told.
pub(crate) fn taken(nb: &Northbound, cluster: &str) -> Taken {
    let rows = nb.load_balancers.iter().flat_map(|(_, row)| foreign(row, cluster));
    let edges = nb.router_ports.iter().flat_map(|(_, port)| port.networks().flat_map(edges).collect::<Vec<_>>());
    // A gateway that answers somewhere else, too, is the end of every connection that leaves by it.
    let routes = nb.static_routes.iter().map(|(_, route)| &route.nexthop);
    let policies = nb.router_policies.iter().flat_map(|(_, policy)| policy.nexthop.iter().chain(&policy.nexthops));
    let hops = routes.chain(policies).filter_map(|hop| hop.parse().ok());
    let nats = nb.nats.iter().filter_map(|(_, nat)| nat.external_ip.parse().ok());
    let networks = nb.router_ports.iter().flat_map(|(_, port)| port.networks.iter());
    let ports = networks.filter_map(|network| network.split('/').next()?.parse().ok());
    let all = rows.map(|address| (address, "a load balancer in OVN that is not ours"));
    all.chain(edges.map(|address| (address, "the network of a router port, as its first or last address")))
        .chain(hops.map(|address| (address, "the next hop of a route in OVN")))
        .chain(nats.map(|address| (address, "a NAT rule in OVN")))
        .chain(ports.map(|address| (address, "a router port")))
        .collect()
}

/// The addresses of a load balancer that is neither this cluster's nor for what is inside one, as kube-ovn's own are.
fn foreign(row: &LoadBalancer, cluster: &str) -> Vec<IpAddr> {
    if marks::are_of(&row.external_ids, cluster) || is_own_load_balancer(&row.name) {
        return Vec::new();
    }
    addresses(row).collect()
}

/// The addresses of a load balancer of this cluster, and whose marks it has.
pub(crate) fn own<'a>(row: &'a LoadBalancer, cluster: &str) -> impl Iterator<Item = (IpAddr, &'a StrMap)> + use<'a> {
    let is_ours = marks::are_of(&row.external_ids, cluster);
    addresses(row).filter(move |_| is_ours).map(|address| (address, &row.external_ids))
}

fn addresses(row: &LoadBalancer) -> impl Iterator<Item = IpAddr> {
    let address = |vip: &str| vip.parse().or_else(|_| vip.parse::<SocketAddr>().map(|socket| socket.ip())).ok();
    row.vips.iter().filter_map(move |(vip, _)| address(vip))
}

/// What no host of a network can be: its own address, and the one for everybody.
fn edges(network: IpNet) -> impl Iterator<Item = IpAddr> {
    let has_hosts = network.prefix_len() + 1 < network.max_prefix_len();
    let broadcast = network.addr().is_ipv4().then(|| network.broadcast());
    std::iter::once(network.network()).chain(broadcast).filter(move |_| has_hosts)
}

/// Whether other addresses may be taken now. Our own rows come and go all the time.
pub(crate) fn may_be_others(changed: &Changed<Northbound>, cluster: &str) -> bool {
    let Rows::Some(rows) = &changed.rows else { return true };
    rows.iter().filter(|row| TABLES.contains(&&*row.table)).any(|row| {
        let has =
            |nb: &Northbound| nb.load_balancers.get(row.uuid).map(|row| foreign(row, cluster)).unwrap_or_default();
        *row.table != *LoadBalancer::TABLE || has(&changed.before) != has(&changed.after)
    })
}

/// Keeps the book informed until `stop`. It is woken by whoever reads the changes anyway: most are repairs of ours, which
/// wait for nobody.
pub(crate) async fn avoid(addresses: Arc<Addresses>, view: View, cluster: Arc<str>, stop: CancellationToken) {
    while stop.run_until_cancelled(addresses.others.notified()).await.is_some() {
        addresses.avoid(&view.replica.snapshot(), &cluster);
    }
}

impl Addresses {
    pub(crate) fn avoid(&self, nb: &Northbound, cluster: &str) {
        let taken = taken(nb, cluster);
        let own = nb.load_balancers.iter().flat_map(|(_, row)| own(row, cluster));
        let mut state = self.lock();
        let changed = state.book.avoid(taken);
        if state.book.avoid_strays(own, cluster) || changed {
            self.wake_waiting(&mut state);
            self.stirred.notify_one();
        }
    }

    /// Whether a load balancer of ours may have come on an address that no `EIp` has, or gone from one.
    pub(crate) fn may_be_strays(&self, changed: &Changed<Northbound>, cluster: &str) -> bool {
        let Rows::Some(rows) = &changed.rows else { return true };
        let state = self.lock();
        rows.iter().filter(|row| *row.table == *LoadBalancer::TABLE).any(|row| {
            let has = |nb: &Northbound, is: &dyn Fn(IpAddr) -> bool| {
                nb.load_balancers.get(row.uuid).is_some_and(|row| own(row, cluster).any(|(address, _)| is(address)))
            };
            has(&changed.before, &|address| state.book.is_stray(address))
                || has(&changed.after, &|address| state.book.would_stray(address))
        })
    }
}

#[cfg(test)]
mod tests {
    use ovsdb_client::{Touched, Uuid, apply};
    use serde_json::{Value, json};

    use super::*;

    fn northbound(tables: &Value) -> Northbound {
        let mut nb = Northbound::default();
        apply(&tables.to_string(), &mut nb, &mut Touched::default()).unwrap();
        nb
    }

    fn id(n: u128) -> String {
        Uuid::from_u128(n).to_string()
    }

    fn all(nb: &Northbound) -> Vec<String> {
        taken(nb, "c1").keys().map(ToString::to_string).collect()
    }

    #[test]
    fn neither_a_gateway_nor_the_edge_of_a_routers_network_is_free() {
        let port = |networks: &[&str]| json!({ "initial": { "name": "p", "networks": ["set", networks] } });
        let nb = northbound(&json!({
            "Logical_Router_Port": {
                id(1): port(&["198.51.100.1/24", "2001:db8::1/64"]), id(2): port(&["169.254.0.1/31", "192.0.2.9/32"]),
            },
            "Logical_Router_Static_Route": {
                id(3): { "initial": { "ip_prefix": "0.0.0.0/0", "nexthop": "198.51.100.254" } },
                id(4): { "initial": { "ip_prefix": "10.9.0.0/16", "nexthop": "discard" } },
            },
            "Logical_Router_Policy": {
                id(5): { "initial": { "match": "x", "action": "reroute", "nexthop": "203.0.113.1" } },
                id(6): { "initial": { "match": "y", "action": "reroute", "nexthops": ["set", ["203.0.113.2"]] } },
            },
        }));
        assert_eq!(
            all(&nb),
            [
                "169.254.0.1",
                "192.0.2.9",
                "198.51.100.0",
                "198.51.100.1",
                "198.51.100.254",
                "198.51.100.255",
                "203.0.113.1",
                "203.0.113.2",
                "2001:db8::",
                "2001:db8::1",
            ]
        );
    }

    #[test]
    fn a_load_balancer_of_somebody_else_has_its_addresses_and_those_inside_a_cluster_are_not_asked() {
        let row = |name: &str, cluster: &str, vip: &str| {
            let marks = json!(["map", [[marks::CLUSTER, cluster], [marks::UID, id(9)]]]);
            json!({ "initial": { "name": name, "external_ids": marks, "vips": ["map", [[vip, ""]]] } })
        };
        let nb = northbound(&json!({ "Load_Balancer": {
            id(1): row("shop-web-tcp-1", "c1", "192.0.2.1:80"),
            id(2): row("shop-web-tcp-2", "c2", "192.0.2.2:80"),
            id(3): { "initial": { "name": "by-hand", "vips": ["map", [["192.0.2.3", ""], ["[2001:db8::3]:80", ""]]] } },
            id(4): { "initial": { "name": "cluster-tcp-loadbalancer", "vips": ["map", [["10.96.0.1:443", ""]]] } },
        } }));
        assert_eq!(all(&nb), ["192.0.2.2", "192.0.2.3", "2001:db8::3"]);
    }
}
