//! Keeps a project's load balancers to backends of the project. Pure.
//!
//! A tenant writes the endpoints of its Services by hand if it likes, and OVN sends packets wherever a row says. What
//! lies inside a project is told by its router: the networks of the ports that do not lead out through a gateway chassis.
//! A router that is bound to a chassis as a whole has no such ports; the network of its that the Service's own address is
//! in is the one outside.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::net::IpAddr;

use groundcrew_core::provider::{Caveat, Wanted};
use ipnet::IpNet;

use crate::northbound::Northbound;

/// How many addresses a message names.
const MOST_NAMED: usize = 3;

/// The wish without the backends that lie outside, and a word about those.
pub(crate) fn fence<'a>(want: &'a Wanted, router: &str, nb: &Northbound) -> (Cow<'a, Wanted>, Option<Caveat>) {
    let mut inside = nb.inside(router);
    // Without a network of a family the router says nothing about it.
    let [says_v4, says_v6] = [true, false].map(|v4| inside.iter().any(|net| net.addr().is_ipv4() == v4));
    if nb.is_bound(router) {
        inside.retain(|net| !want.addresses.iter().any(|vip| net.contains(vip)));
    }
    let is_outside = |address: IpAddr| {
        let says = if address.is_ipv4() { says_v4 } else { says_v6 };
        says && !inside.iter().any(|net| net.contains(&address))
    };
    let is_served = |address: &IpAddr| want.addresses.iter().any(|vip| vip.is_ipv4() == address.is_ipv4());
    let used = want.frontends.iter().flat_map(|f| &f.backends).map(|b| b.address).filter(is_served);
    let outside: BTreeSet<IpAddr> = used.filter(|address| is_outside(*address)).collect();
    if outside.is_empty() {
        return (Cow::Borrowed(want), None);
    }
    let mut fenced = want.clone();
    for frontend in &mut fenced.frontends {
        frontend.backends.retain(|backend| !outside.contains(&backend.address));
    }
    let stops = !fenced.frontends.iter().flat_map(|f| &f.backends).any(|backend| is_served(&backend.address));
    let caveat = Caveat { reason: "BackendOutsideProject", message: message(&outside, router, &inside), stops };
    (Cow::Owned(fenced), Some(caveat))
}

fn message(outside: &BTreeSet<IpAddr>, router: &str, inside: &BTreeSet<IpNet>) -> String {
    let list = |items: &mut dyn Iterator<Item = String>| items.collect::<Vec<_>>().join(", ");
    let named = list(&mut outside.iter().take(MOST_NAMED).map(ToString::to_string));
    let more = match outside.len().saturating_sub(MOST_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let networks = list(&mut inside.iter().map(|net| net.trunc().to_string()));
    format!("endpoints outside the networks of router {router} ({networks}) are left out: {named}{more}")
}

#[cfg(test)]
mod tests {
    use groundcrew_core::provider::Protocol;
    use ovsdb_client::Touched;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::testing::{frontend, owner, wanted};

    /// Router `shop` with an inside port of these networks and a gateway port of 10.9.0.0/16.
    fn router(networks: &[&str]) -> Northbound {
        router_with(networks, &json!(["map", []]))
    }

    fn router_with(networks: &[&str], options: &serde_json::Value) -> Northbound {
        let id = uuid::Uuid::from_u128;
        let port = |networks: &[&str], gateway: bool| {
            let gateway = if gateway { json!(["uuid", id(9)]) } else { json!(["set", []]) };
            json!({ "initial": { "name": "p", "networks": ["set", networks], "gateway_chassis": gateway } })
        };
        let tables = json!({
            "Logical_Router": { id(1).to_string(): { "initial": {
                "name": "shop", "options": options, "ports": ["set", [["uuid", id(2)], ["uuid", id(3)]]] } } },
            "Logical_Router_Port": {
                id(2).to_string(): port(networks, false), id(3).to_string(): port(&["10.9.0.1/16"], true) },
        });
        let mut nb = Northbound::default();
        ovsdb_client::apply(&tables.to_string(), &mut nb, &mut Touched::default()).unwrap();
        nb
    }

    fn want(backends: &[&str]) -> Wanted {
        let mut want = wanted(&owner("shop", "web"), &["192.0.2.7", "2001:db8::7"]);
        want.frontends = vec![frontend(Protocol::Tcp, 80, backends)];
        want
    }

    #[test]
    fn what_lies_outside_is_left_out_and_told_and_the_rest_is_served() {
        let want = want(&["10.1.0.41:80", "10.2.0.1:80", "[fd00::41]:80"]);
        let (fenced, caveat) = fence(&want, "shop", &router(&["10.1.0.1/16"]));
        assert_eq!(fenced.frontends, super::tests::want(&["10.1.0.41:80", "[fd00::41]:80"]).frontends);
        let caveat = caveat.unwrap();
        assert!(!caveat.stops);
        assert_eq!(
            caveat.message,
            "endpoints outside the networks of router shop (10.1.0.0/16) are left out: 10.2.0.1"
        );
    }

    #[test]
    fn a_network_behind_a_gateway_chassis_is_not_inside() {
        let want = want(&["10.9.0.5:80"]);
        let (fenced, caveat) = fence(&want, "shop", &router(&["10.1.0.1/16"]));
        assert!(!fenced.has_backends());
        assert!(caveat.unwrap().stops);
    }

    #[test]
    fn of_a_router_on_one_chassis_the_network_that_the_services_own_address_is_in_is_not_inside() {
        let want = want(&["10.1.0.41:80", "192.0.2.9:80"]);
        let bound = |networks: &[&str]| router_with(networks, &json!(["map", [["chassis", "gw-1"]]]));
        let (fenced, caveat) = fence(&want, "shop", &bound(&["10.1.0.1/16", "192.0.2.1/24"]));
        assert_eq!(fenced.frontends, super::tests::want(&["10.1.0.41:80"]).frontends);
        assert!(caveat.unwrap().message.ends_with("(10.1.0.0/16) are left out: 192.0.2.9"));
        let (fenced, _) = fence(&want, "shop", &bound(&["192.0.2.1/24"]));
        assert!(!fenced.has_backends(), "and there may be no other");
        let (_, caveat) = fence(&want, "shop", &router(&["10.1.0.1/16", "192.0.2.1/24"]));
        assert_eq!(caveat, None, "others have a gateway port outside");
    }

    #[test]
    fn a_router_that_says_nothing_keeps_nobody_out() {
        let want = want(&["10.2.0.1:80", "[fd00::41]:80"]);
        for nb in [Northbound::default(), router(&[]), router(&["nonsense"])] {
            assert_eq!(fence(&want, "shop", &nb), (Cow::Borrowed(&want), None));
        }
        let (fenced, _) = fence(&want, "shop", &router(&["fd00:1::1/64"]));
        assert_eq!(fenced.frontends[0].backends.len(), 1, "each family for itself");
    }

    proptest! {
        #[test]
        fn nothing_outside_passes_and_nothing_inside_is_lost(backends in prop::collection::vec(0u32.., 0..6), length in 0u8..=32) {
            let net = ipnet::Ipv4Net::new([10, 1, 0, 0].into(), length).unwrap();
            let sockets: Vec<_> = backends.iter().map(|n| format!("{}:80", std::net::Ipv4Addr::from(*n))).collect();
            let want = want(&sockets.iter().map(String::as_str).collect::<Vec<_>>());
            let nb = router(&[&net.to_string()]);
            let (fenced, caveat) = fence(&want, "shop", &nb);
            let inside: Vec<_> =
                want.frontends[0].backends.iter().filter(|b| IpNet::V4(net).contains(&b.address)).cloned().collect();
            prop_assert_eq!(caveat.is_some(), inside.len() < want.frontends[0].backends.len());
            prop_assert_eq!(&fenced.frontends[0].backends, &inside);
        }
    }
}
