//! Replies of backends that answer on an address of a second external network.
//!
//! The router sends what they answer by the project's default way, where nobody expects it. A policy of the router must turn
//! it to the gateway of the address's own network. kube-ovn deletes every policy that is not in `Vpc.spec.policyRoutes`, so
//! that is where they are written, all of a project together.

mod needs;
mod plan;
mod write;

use std::collections::BTreeSet;
use std::net::IpAddr;

use groundcrew_core::provider::Caveat;

use super::decide::Catalog;
use super::networks::{Subnet, Vpc};
use crate::addresses::Family;

pub(super) use needs::{Needs, Routes};
pub(super) use plan::owners;
pub(crate) use write::write_routes;

/// kube-dc's, below that of its floating addresses.
const PRIORITY: u16 = 30_010;
/// How many backends a message names.
const MOST_NAMED: usize = 3;

/// One entry of `spec.policyRoutes`, as far as we write it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Route {
    pub(super) matches: Box<str>,
    pub(super) next_hop: IpAddr,
}

/// What keeps entries that are needed from being written.
#[derive(Debug, Clone, Copy)]
pub(super) enum Obstacle<'a> {
    /// Nothing that is known.
    None,
    /// They are left to the operator.
    Forbidden,
    /// The last try failed.
    Failed(&'a str),
}

impl Catalog {
    /// The networks other than the project's own way out that these addresses are of.
    fn second<'a>(
        &'a self,
        namespace: &str,
        egress: Option<&str>,
        addresses: &[IpAddr],
    ) -> impl Iterator<Item = (IpAddr, &'a Subnet, &'a Vpc, IpAddr)> {
        let vpc = self.networks.vpc_of(namespace);
        addresses.iter().filter_map(move |address| {
            let (subnet, vpc) = (self.networks.external_of(*address)?, vpc?);
            let family = Family::of(*address);
            let gateway = subnet.net(family)?.gateway?;
            if self.networks.is_way_out(vpc, subnet, family, egress) {
                return None;
            }
            Some((*address, subnet, vpc, gateway))
        })
    }

    /// Whether replies from one of these addresses need a way of their own.
    pub(super) fn leaves_elsewhere(&self, namespace: &str, egress: Option<&str>, addresses: &[IpAddr]) -> bool {
        self.second(namespace, egress, addresses).next().is_some()
    }

    /// What these backends need to answer on these addresses. `egress` is the type of network that the project leaves by,
    /// where that is known.
    pub(super) fn needs(
        &self,
        namespace: &str,
        egress: Option<&str>,
        addresses: &[IpAddr],
        backends: &BTreeSet<IpAddr>,
    ) -> Option<Needs> {
        let mut needs: Option<Needs> = None;
        for (address, _, vpc, gateway) in self.second(namespace, egress, addresses) {
            let needs = needs.get_or_insert_with(|| Needs { vpc: vpc.name.clone(), routes: BTreeSet::new() });
            needs.routes.extend(routes(address, gateway, backends));
        }
        needs
    }

    /// What is missing, in words, unless it is on its way.
    pub(super) fn missing_routes(
        &self,
        namespace: &str,
        egress: Option<&str>,
        addresses: &[IpAddr],
        backends: &BTreeSet<IpAddr>,
        obstacle: Obstacle<'_>,
    ) -> Vec<Caveat> {
        let missing = self.second(namespace, egress, addresses).filter_map(|(address, subnet, vpc, gateway)| {
            let missing: Vec<_> = routes(address, gateway, backends)
                .filter(|route| !vpc.reroutes(&route.matches, gateway))
                .filter(|route| !matches!(obstacle, Obstacle::None) || vpc.matches(&route.matches))
                .collect();
            (!missing.is_empty()).then(|| caveat(address, subnet, vpc, gateway, &missing, obstacle))
        });
        missing.collect()
    }
}

fn routes(address: IpAddr, gateway: IpAddr, backends: &BTreeSet<IpAddr>) -> impl Iterator<Item = Route> {
    let source = if address.is_ipv4() { "ip4.src" } else { "ip6.src" };
    let of_family = backends.iter().filter(move |backend| backend.is_ipv4() == address.is_ipv4());
    of_family.map(move |backend| Route { matches: format!("{source} == {backend}").into(), next_hop: gateway })
}

fn caveat(
    address: IpAddr,
    subnet: &Subnet,
    vpc: &Vpc,
    gateway: IpAddr,
    missing: &[Route],
    obstacle: Obstacle<'_>,
) -> Caveat {
    let more = match missing.len().saturating_sub(MOST_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let named: Vec<_> = missing.iter().take(MOST_NAMED).map(|route| format!("\"{}\"", route.matches)).collect();
    let why = match obstacle {
        Obstacle::Failed(why) => format!("; writing it failed: {why}"),
        _ if missing.iter().any(|route| vpc.matches(&route.matches)) => {
            "; another entry has such a match, and a backend can answer by one network only".to_owned()
        }
        _ => String::new(),
    };
    Caveat {
        reason: "ReturnRouteMissing",
        message: format!(
            "replies from {address} do not leave by Subnet {}: spec.policyRoutes of Vpc {} needs priority {PRIORITY}, action \
             reroute, nextHopIP {gateway} for the match {}{more}{why}",
            subnet.name,
            vpc.name,
            named.join(", ")
        ),
        stops: false,
    }
}
