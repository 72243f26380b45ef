//! Replies on a router that has several ways out, where nobody but the operator writes its routes. Pure.
//!
//! The router sends what backends answer by its default route. An address of another of its external networks is reached,
//! and the reply leaves where nobody expects it.

use std::collections::BTreeSet;
use std::net::IpAddr;

use groundcrew_core::provider::{Caveat, Wanted};
use ipnet::IpNet;

use crate::northbound::Northbound;

/// How many backends a message names.
const MOST_NAMED: usize = 3;

/// Whether the router of this name has more than one external network of a family.
pub(crate) fn are_several(router: &str, nb: &Northbound) -> bool {
    let outside = nb.outside(router);
    let count = |v4: bool| outside.iter().filter(|nets| nets.iter().any(|net| net.addr().is_ipv4() == v4)).count();
    count(true) > 1 || count(false) > 1
}

/// The backends of this Service whose replies leave by another network than its addresses are of, in words.
pub(crate) fn missing(want: &Wanted, router: &str, nb: &Northbound) -> Vec<Caveat> {
    if !are_several(router, nb) {
        return Vec::new();
    }
    let outside = nb.outside(router);
    let caveat = |address: &IpAddr| {
        let home = outside.iter().find(|nets| nets.iter().any(|net| net.contains(address)))?;
        let is_home = |hop: &IpAddr| home.iter().any(|net| net.contains(hop));
        let defaults: BTreeSet<_> = nb.default_hops(router).filter(|hop| hop.is_ipv4() == address.is_ipv4()).collect();
        // Without a default route the operator has others, which may be right.
        let elsewhere = defaults.iter().find(|hop| !is_home(hop))?;
        let backends = want.frontends.iter().flat_map(|frontend| &frontend.backends).map(|backend| backend.address);
        let stray: BTreeSet<_> = backends
            .filter(|backend| backend.is_ipv4() == address.is_ipv4())
            .filter(|backend| !nb.hops_from(router, *backend).any(|hop| is_home(&hop)))
            .collect();
        let net = home.iter().find(|net| net.contains(address))?;
        (!stray.is_empty()).then(|| told(*address, net, *elsewhere, router, &stray))
    };
    want.addresses.iter().filter_map(caveat).collect()
}

fn told(address: IpAddr, net: &IpNet, hop: IpAddr, router: &str, stray: &BTreeSet<IpAddr>) -> Caveat {
    let source = if address.is_ipv4() { "ip4.src" } else { "ip6.src" };
    let more = match stray.len().saturating_sub(MOST_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let named: Vec<_> = stray.iter().take(MOST_NAMED).map(|backend| format!("\"{source} == {backend}\"")).collect();
    let message = format!(
        "replies from {address} leave router {router} by its default route to {hop}, and not by {}: it needs a policy, \
         ovn-nbctl lr-policy-add {router} 30010 MATCH reroute GATEWAY, with a gateway in that network, for the match {}{more}",
        net.trunc(),
        named.join(", "),
    );
    Caveat { reason: "ReturnRouteMissing", message, stops: false }
}

#[cfg(test)]
mod tests {
    use ovsdb_client::Touched;
    use serde_json::{Value, json};
    use uuid::Uuid;

    use super::*;
    use crate::testing::{owner, wanted};

    /// Router `shop` with gateway ports in 192.0.2.0/24 and 198.51.100.0/24, and these policies and routes: match, action and
    /// next hop; policy, prefix and next hop.
    fn router(policies: &[(&str, &str, &str)], routes: &[(&str, &str, &str)]) -> Northbound {
        let id = |n: usize| Uuid::from_u128(n as u128);
        let port = |network: &str| json!({ "initial": { "name": network, "networks": network, "gateway_chassis": ["uuid", id(9)] } });
        let refs = |from: usize, count: usize| {
            json!(["set", (from..from + count).map(|n| json!(["uuid", id(n)])).collect::<Vec<_>>()])
        };
        let policies: serde_json::Map<String, Value> = policies
            .iter()
            .enumerate()
            .map(|(n, (matches, action, hop))| {
                (id(100 + n).to_string(), json!({ "initial": { "match": matches, "action": action, "nexthop": hop } }))
            })
            .collect();
        let routes: serde_json::Map<String, Value> = routes
            .iter()
            .enumerate()
            .map(|(n, (policy, prefix, hop))| {
                let row = json!({ "policy": policy, "ip_prefix": prefix, "nexthop": hop });
                (id(200 + n).to_string(), json!({ "initial": row }))
            })
            .collect();
        let tables = json!({
            "Logical_Router": { id(1).to_string(): { "initial": {
                "name": "shop", "ports": refs(2, 2),
                "policies": refs(100, policies.len()), "static_routes": refs(200, routes.len()) } } },
            "Logical_Router_Port": {
                id(2).to_string(): port("192.0.2.1/24"), id(3).to_string(): port("198.51.100.1/24") },
            "Logical_Router_Policy": policies,
            "Logical_Router_Static_Route": routes,
        });
        let mut nb = Northbound::default();
        ovsdb_client::apply(&tables.to_string(), &mut nb, &mut Touched::default()).unwrap();
        nb
    }

    const DEFAULT: (&str, &str, &str) = ("dst-ip", "0.0.0.0/0", "192.0.2.254");

    fn says(address: &str, nb: &Northbound) -> Vec<String> {
        let caveats = missing(&wanted(&owner("shop", "web"), &[address]), "shop", nb);
        caveats.into_iter().map(|caveat| caveat.message).collect()
    }

    #[test]
    fn an_address_of_the_second_network_needs_a_way_back_and_one_of_the_first_does_not() {
        let nb = router(&[], &[DEFAULT]);
        assert_eq!(says("192.0.2.7", &nb), [""; 0]);
        let told = says("198.51.100.7", &nb);
        assert!(told[0].contains("default route to 192.0.2.254, and not by 198.51.100.0/24"), "{told:?}");
        assert!(told[0].contains("\"ip4.src == 10.1.0.41\""), "{told:?}");
        assert_eq!(says("203.0.113.7", &nb), [""; 0], "nobody knows where that one is");
        assert_eq!(says("198.51.100.7", &router(&[], &[])), [""; 0], "without a default route there is nothing to say");
    }

    #[test]
    fn a_policy_or_a_route_by_source_is_a_way_back() {
        let gateway = "198.51.100.254";
        let policy = |matches, action, hop| says("198.51.100.7", &router(&[(matches, action, hop)], &[DEFAULT])).len();
        assert_eq!(policy("ip4.src == 10.1.0.41", "reroute", gateway), 0);
        assert_eq!(policy("ip4.src == {10.1.0.40, 10.1.0.41}", "reroute", gateway), 0);
        assert_eq!(policy("ip4.src == 10.1.0.0/16 && ip4.dst != 10.0.0.0/8", "reroute", gateway), 0);
        assert_eq!(policy("ip4.src != 10.1.0.41", "reroute", gateway), 1);
        assert_eq!(policy("ip4.src == 10.1.0.4", "reroute", gateway), 1);
        assert_eq!(policy("ip4.src == 10.1.0.41", "reroute", "192.0.2.254"), 1);
        assert_eq!(policy("ip4.src == 10.1.0.41", "drop", gateway), 1);
        let route = |prefix| says("198.51.100.7", &router(&[], &[DEFAULT, ("src-ip", prefix, gateway)])).len();
        assert_eq!((route("10.1.0.0/16"), route("10.2.0.0/16")), (0, 1));
    }
}
