//! The interfaces of this node, and which of them has the floating addresses. Pure.

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::frames::Mac;

/// What was seen of the node's network at one time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Network {
    pub(crate) links: Vec<Link>,
    /// In the order of preference.
    pub(crate) default_routes: Vec<DefaultRoute>,
    pub(crate) neighbours: Vec<(IpAddr, u32, Mac)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) index: u32,
    pub(crate) name: String,
    pub(crate) mac: Mac,
    /// Switched on, and with a carrier.
    pub(crate) up: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DefaultRoute {
    pub(crate) v6: bool,
    pub(crate) link: u32,
    pub(crate) gateway: Option<IpAddr>,
    pub(crate) metric: u32,
}

/// The interface of an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Uplink {
    pub(crate) link: Link,
    /// Who should hear of the address first.
    pub(crate) gateway: Option<(IpAddr, Mac)>,
}

/// Why this node cannot have the address now; the words are for users.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unable {
    #[error("no interface has the hardware address {0}")]
    NoSuchMac(Mac),
    #[error("there is no default route, so it is unclear which interface should have the address")]
    NoDefaultRoute,
    #[error("the interface {0} has no link")]
    LinkDown(String),
}

impl Unable {
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::NoSuchMac(_) | Self::NoDefaultRoute => "NoInterface",
            Self::LinkDown(_) => "LinkDown",
        }
    }
}

impl Network {
    /// The interfaces that lead outside, whether they have a link or not.
    pub(crate) fn outward(&self) -> BTreeSet<String> {
        self.links.iter().filter(|link| self.leads_outside(link)).map(|link| link.name.clone()).collect()
    }

    fn leads_outside(&self, link: &Link) -> bool {
        self.default_routes.iter().any(|route| route.link == link.index)
    }

    /// The interface with this hardware address, or else of the default route. Where several have one, the route that
    /// the kernel itself prefers decides.
    pub(crate) fn uplink(&self, v6: bool, mac: Option<Mac>) -> Result<Uplink, Unable> {
        let of_family = self.default_routes.iter().filter(|route| route.v6 == v6);
        // A node without a default route for IPv6 may well have such addresses, on the interface that leads outside.
        let route =
            of_family.chain(&self.default_routes).min_by_key(|route| (route.v6 != v6, route.metric, route.link));
        let link = match mac {
            // A bridge or a bond has the hardware address of the interface under it, which answers for nothing itself.
            Some(mac) => self
                .links
                .iter()
                .filter(|link| link.mac == mac)
                .min_by_key(|link| (!self.leads_outside(link), link.index))
                .ok_or(Unable::NoSuchMac(mac))?,
            None => self
                .links
                .iter()
                .find(|link| Some(link.index) == route.map(|route| route.link))
                .ok_or(Unable::NoDefaultRoute)?,
        };
        if !link.up {
            return Err(Unable::LinkDown(link.name.clone()));
        }
        let gateway = route.filter(|route| route.link == link.index && route.v6 == v6).and_then(|route| route.gateway);
        let known = gateway
            .and_then(|gateway| self.neighbours.iter().find(|(ip, index, _)| *ip == gateway && *index == link.index));
        Ok(Uplink { link: link.clone(), gateway: known.map(|(ip, _, mac)| (*ip, *mac)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);
    const GATEWAY: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    fn network() -> Network {
        let link = |index: u32, name: &str| Link {
            index,
            name: name.into(),
            mac: Mac([2, 0, 0, 0, 0, u8::try_from(index).unwrap()]),
            up: true,
        };
        let route = |link, metric| DefaultRoute { v6: false, link, gateway: Some(GATEWAY), metric };
        Network {
            links: vec![link(1, "ens3"), link(2, "ens4"), link(3, "docker0")],
            default_routes: vec![route(2, 100), route(1, 50)],
            neighbours: vec![(GATEWAY, 1, Mac([9; 6]))],
        }
    }

    #[test]
    fn the_preferred_default_route_decides_unless_a_hardware_address_is_named() {
        let uplink = network().uplink(false, None).unwrap();
        assert_eq!((uplink.link.name.as_str(), uplink.gateway), ("ens3", Some((GATEWAY, Mac([9; 6])))));
        assert_eq!(network().uplink(true, None).unwrap().link.name, "ens3", "IPv6 goes where IPv4 does");
        let named = network().uplink(false, Some(Mac([2, 0, 0, 0, 0, 2]))).unwrap();
        assert_eq!((named.link.name.as_str(), named.gateway), ("ens4", None));
        assert_eq!(network().uplink(false, Some(Mac([7; 6]))), Err(Unable::NoSuchMac(Mac([7; 6]))));
    }

    #[test]
    fn of_several_interfaces_with_one_hardware_address_the_one_that_leads_outside_is_meant() {
        let mut network = network();
        let bridge = Link { index: 9, name: "br-ex".into(), ..network.links[0].clone() };
        network.links.push(bridge);
        assert_eq!(network.uplink(false, Some(MAC)).unwrap().link.name, "ens3", "it has the route");
        network.default_routes.iter_mut().filter(|route| route.link == 1).for_each(|route| route.link = 9);
        assert_eq!(network.uplink(false, Some(MAC)).unwrap().link.name, "br-ex");
    }

    #[test]
    fn every_interface_with_a_default_route_leads_outside() {
        assert_eq!(network().outward(), BTreeSet::from(["ens3".into(), "ens4".into()]));
    }

    #[test]
    fn an_interface_without_link_or_without_a_route_cannot_have_it() {
        let mut network = network();
        network.links[0].up = false;
        assert_eq!(network.uplink(false, None), Err(Unable::LinkDown("ens3".into())));
        assert_eq!(network.uplink(false, Some(MAC)), Err(Unable::LinkDown("ens3".into())));
        network.default_routes.clear();
        assert_eq!(network.uplink(false, None), Err(Unable::NoDefaultRoute));
    }
}
