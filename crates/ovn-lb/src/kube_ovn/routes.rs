//! Replies of backends that answer on an address of a second external network.
//!
//! The router sends what they answer by the project's default way, where nobody expects it. A policy of the router must turn
//! it to the gateway of the address's own network. kube-ovn deletes every policy that is not in `Vpc.spec.policyRoutes`. Pure.

use std::collections::BTreeSet;
use std::net::IpAddr;

use groundcrew_core::provider::Caveat;

use super::decide::Catalog;
use crate::addresses::Family;

/// kube-dc's, below that of its floating addresses.
const PRIORITY: u16 = 30_010;
/// How many backends a message names.
const MOST_NAMED: usize = 3;

impl Catalog {
    /// What is missing for these backends to answer on this address. `egress` is the type of network that the project leaves
    /// by, where that is known.
    pub(super) fn return_route(
        &self,
        namespace: &str,
        egress: Option<&str>,
        address: IpAddr,
        backends: &BTreeSet<IpAddr>,
    ) -> Option<Caveat> {
        let (subnet, vpc) = (self.networks.external_of(address)?, self.networks.vpc_of(namespace)?);
        let is_default = match egress {
            Some(egress) => subnet.is_of_kind(Some(egress)),
            None => subnet.is_default(),
        };
        let gateway = subnet.net(Family::of(address))?.gateway.filter(|_| !is_default)?;
        let source = if address.is_ipv4() { "ip4.src" } else { "ip6.src" };
        let of_family = backends.iter().filter(|backend| backend.is_ipv4() == address.is_ipv4());
        let missing: Vec<_> =
            of_family.map(|backend| format!("{source} == {backend}")).filter(|m| !vpc.reroutes(m, gateway)).collect();
        let more = match missing.len().checked_sub(MOST_NAMED) {
            None | Some(0) => String::new(),
            Some(more) => format!(" and {more} more"),
        };
        let named = missing.iter().take(MOST_NAMED).map(|m| format!("\"{m}\"")).collect::<Vec<_>>().join(", ");
        (!missing.is_empty()).then(|| Caveat {
            reason: "ReturnRouteMissing",
            message: format!(
                "replies from {address} do not leave by Subnet {}: spec.policyRoutes of Vpc {} needs priority {PRIORITY}, action \
                 reroute, nextHopIP {gateway} for the match {named}{more}",
                subnet.name, vpc.name
            ),
            stops: false,
        })
    }
}
