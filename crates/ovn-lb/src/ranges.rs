//! `loadBalancerSourceRanges` as rules of OVN. Pure.
//!
//! The rules are ACLs that drop, and nothing but drop: they turn on no connection tracking where there was none, and allow
//! nothing that somebody else's rules forbid. They stand in the ingress of every switch that is connected to the
//! project's router, which is before any address is translated: there a client is still who he is, and so is the VIP.
//!
//! A `Port_Group` of our own holds them, one for each Service. An ACL of a port group holds on each switch that one of its
//! ports is on; its ports are those that lead to the router. So no row of anybody else is written: kube-ovn empties
//! `Logical_Switch.acls` each time it looks at a subnet, and takes router policies that it does not know.

use std::fmt::Write as _;
use std::net::IpAddr;

use groundcrew_core::provider::{Protocol, Wanted};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use ovsdb_client::StrMap;

use crate::desired::{PROTOCOLS, Site};
use crate::marks;

/// Before the rules of everybody else.
pub(crate) const PRIORITY: i64 = 32_767;
pub(crate) const DIRECTION: &str = "from-lport";
pub(crate) const ACTION: &str = "drop";

/// The port group of one Service, with what its rules match.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Guard {
    pub(crate) name: String,
    /// One for each protocol and family, in order.
    pub(crate) matches: Vec<String>,
    pub(crate) marks: StrMap,
}

impl Guard {
    /// The same for another router.
    pub(crate) fn at(mut self, router: &str) -> Self {
        let now = |key, value| if key == marks::ROUTER { router } else { value };
        self.marks = self.marks.iter().map(|(key, value)| (key, now(key, value))).collect();
        self
    }
}

/// The rules for one Service; none where everybody may connect.
pub(crate) fn guard(want: &Wanted, router: &str, site: &Site) -> Option<Guard> {
    if want.source_ranges.is_empty() {
        return None;
    }
    let mut matches = Vec::new();
    for protocol in PROTOCOLS {
        let frontends = want.frontends.iter().filter(|frontend| frontend.protocol == protocol);
        let ports: Vec<_> = frontends.map(|frontend| frontend.port.to_string()).collect();
        for everybody in [IpNet::V4(Ipv4Net::default()), IpNet::V6(Ipv6Net::default())] {
            let vips = want.addresses.iter().filter(|vip| vip.is_ipv4() == everybody.addr().is_ipv4());
            matches.extend(rule(protocol, &ports, vips, everybody, &want.source_ranges));
        }
    }
    matches.sort();
    if matches.is_empty() {
        return None;
    }
    let owner = want.owner();
    let ranges: Vec<_> = want.source_ranges.iter().map(ToString::to_string).collect();
    let marks = [
        (marks::KIND, marks::SOURCE_RANGES),
        (marks::CLUSTER, &*site.cluster),
        (marks::NAMESPACE, &*owner.key.namespace),
        (marks::SERVICE, &*owner.key.name),
        (marks::UID, &owner.uid.to_string()),
        (marks::ROUTER, router),
        (marks::RANGES, &ranges.join(" ")),
    ];
    Some(Guard { name: marks::group_name(&site.cluster, owner), matches, marks: marks.into_iter().collect() })
}

/// What the rule for one protocol and family matches: everybody who is in no range. No range of a family means nobody
/// of that family may connect.
fn rule<'a>(
    protocol: Protocol,
    ports: &[String],
    vips: impl Iterator<Item = &'a IpAddr>,
    everybody: IpNet,
    ranges: &[IpNet],
) -> Option<String> {
    let vips: Vec<_> = vips.map(ToString::to_string).collect();
    let refused = outside(everybody, ranges);
    if vips.is_empty() || ports.is_empty() || refused.is_empty() {
        return None;
    }
    let ip = if everybody.addr().is_ipv4() { "ip4" } else { "ip6" };
    let set = |values: &[String]| format!("{{{}}}", values.join(", "));
    let mut text = format!("{ip}.dst == {} && {protocol}.dst == {}", set(&vips), set(ports));
    if refused != [everybody] {
        let refused: Vec<_> = refused.iter().map(ToString::to_string).collect();
        let _ = write!(text, " && {ip}.src == {}", set(&refused));
    }
    Some(text)
}

/// The networks that cover what is in none of the ranges.
///
/// Not `ip4.src != {...}`: OVN multiplies the bits of each network with those of the others, while it takes a list of
/// networks as it is.
fn outside(net: IpNet, ranges: &[IpNet]) -> Vec<IpNet> {
    if ranges.iter().any(|range| range.contains(&net)) {
        return Vec::new();
    }
    let within: Vec<_> = ranges.iter().filter(|range| net.contains(*range)).copied().collect();
    if within.is_empty() {
        return vec![net];
    }
    let halves = net.subnets(net.prefix_len() + 1);
    halves.into_iter().flatten().flat_map(|half| outside(half, &within)).collect()
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use proptest::prelude::*;

    use super::*;
    use crate::testing::{frontend, owner, site, wanted};

    fn matches(addresses: &[&str], ranges: &[&str]) -> Vec<String> {
        let mut want = wanted(&owner("shop", "web"), addresses);
        want.frontends.push(frontend(Protocol::Tcp, 443, &[]));
        want.source_ranges = ranges.iter().map(|range| range.parse().unwrap()).collect();
        guard(&want, "shop", &site()).map(|guard| guard.matches).unwrap_or_default()
    }

    #[test]
    fn whoever_is_in_no_range_is_dropped_on_the_services_ports() {
        assert_eq!(
            matches(&["192.0.2.7"], &["0.0.0.0/1", "128.0.0.0/2"]),
            ["ip4.dst == {192.0.2.7} && tcp.dst == {80, 443} && ip4.src == {192.0.0.0/2}"]
        );
        let rules = matches(&["192.0.2.7", "2001:db8::7"], &["198.51.100.0/24", "8000::/1"]);
        assert_eq!(rules[1], "ip6.dst == {2001:db8::7} && tcp.dst == {80, 443} && ip6.src == {::/1}");
    }

    #[test]
    fn without_a_range_of_a_family_nobody_of_that_family_may_connect() {
        let rules = matches(&["192.0.2.7", "2001:db8::7"], &["0.0.0.0/0"]);
        assert_eq!(rules, ["ip6.dst == {2001:db8::7} && tcp.dst == {80, 443}"]);
    }

    #[test]
    fn ranges_that_are_everybody_need_no_rule() {
        assert_eq!(matches(&["192.0.2.7"], &["0.0.0.0/0"]), [""; 0]);
        assert_eq!(matches(&["192.0.2.7"], &[]), [""; 0]);
    }

    proptest! {
        #[test]
        fn an_address_is_refused_exactly_if_no_range_has_it(
            ranges in prop::collection::vec((any::<u32>(), 0u8..=32), 0..6),
            ranges6 in prop::collection::vec((any::<u128>(), 0u8..=128), 0..4),
            address: u32, near in 0usize..8, address6: u128,
        ) {
            let ranges: Vec<IpNet> = ranges
                .iter()
                .map(|(bits, length)| IpNet::V4(Ipv4Net::new(Ipv4Addr::from(*bits), *length).unwrap().trunc()))
                .chain(ranges6.iter().map(|(bits, length)| IpNet::V6(Ipv6Net::new(Ipv6Addr::from(*bits), *length).unwrap().trunc())))
                .collect();
            // Addresses at the edges of a range, as well as any.
            let edge = ranges.get(near).map_or(IpAddr::V4(address.into()), |range| if near % 2 == 0 { range.broadcast() } else { range.network() });
            for address in [edge, IpAddr::V4(address.into()), IpAddr::V6(address6.into())] {
                let everybody = if address.is_ipv4() { IpNet::V4(Ipv4Net::default()) } else { IpNet::V6(Ipv6Net::default()) };
                let refused = outside(everybody, &ranges).iter().any(|net| net.contains(&address));
                prop_assert_eq!(refused, !ranges.iter().any(|range| range.contains(&address)));
            }
        }
    }
}
