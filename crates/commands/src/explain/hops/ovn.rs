//! The way through OVN: row, VIPs, router, switch, gateway, northd, backends, health checks.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use groundcrew_api::names::{annotation, condition};
use groundcrew_ovn::mark;
use ipnet::IpNet;
use k8s_openapi::api::core::v1::Service;
use ovsdb_client::{Set, Uuid};

use super::super::facts::{Facts, Protocol, addresses, annotation as annotated, condition as told, ports};
use super::endpoints::{self, some};
use super::remedy::remedy;
use crate::finding::Finding;
use crate::ovn::{LoadBalancer, LogicalRouterPort, Northbound, Southbound};

/// How the rows of a Service are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rows {
    /// By our marks.
    Marked,
    /// By their name: kube-dc's manager marks nothing.
    Named,
}

/// The row that stands beside another for clients inside, where those need one of their own.
const INSIDE: &str = "-inside";

pub(super) fn hops(facts: &Facts, service: &Service, rows: Rows) -> Vec<Finding> {
    let mut hops = match &facts.northbound {
        None => vec![Finding::unknown("row", "OVN was not looked at", "give --ovn-nb, as the controller has it")],
        Some(Err(why)) => {
            let next = "look whether OVN's northbound database runs and can be reached from here";
            vec![Finding::unknown("row", why.to_string(), next)]
        }
        Some(Ok(_)) if addresses(service).is_empty() => no_address(),
        Some(Ok(nb)) => Way::new(facts, service, nb, rows).hops(),
    };
    hops.push(endpoints::ready(facts, service));
    if let Some(Ok(nb)) = &facts.northbound {
        let way = Way::new(facts, service, nb, rows);
        hops.push(way.backends());
        hops.extend(way.health());
    }
    hops
}

fn no_address() -> Vec<Finding> {
    ["row", "vips", "router", "switch", "gateway"].map(|name| Finding::skipped(name, "there is no address")).into()
}

/// A Service and what OVN has of it.
struct Way<'a> {
    facts: &'a Facts,
    service: &'a Service,
    nb: &'a Northbound,
    rows: BTreeMap<Protocol, Vec<(Uuid, &'a Arc<LoadBalancer>)>>,
    router: String,
    switch: String,
}

impl<'a> Way<'a> {
    fn new(facts: &'a Facts, service: &'a Service, nb: &'a Northbound, by: Rows) -> Self {
        let uid = service.metadata.uid.as_deref().unwrap_or_default();
        let mut rows: BTreeMap<Protocol, Vec<_>> = BTreeMap::new();
        for (uuid, row) in nb.load_balancers.iter() {
            let protocol = Protocol::of(row.protocol.as_deref());
            let is_its = match by {
                Rows::Marked => row.external_ids.get(mark::UID) == Some(uid),
                Rows::Named => *row.name == *format!("{}-{}-{}", facts.namespace, facts.name, protocol.word()),
            };
            if is_its {
                rows.entry(protocol).or_default().push((uuid, row));
            }
        }
        let marked = |key| rows.values().flatten().find_map(|(_, row)| row.external_ids.get(key)).map(str::to_owned);
        let router = marked(mark::ROUTER).unwrap_or_else(|| facts.namespace.clone());
        let switch = marked(mark::SWITCH).unwrap_or_else(|| format!("{}-default", facts.namespace));
        Self { facts, service, nb, rows, router, switch }
    }

    fn hops(&self) -> Vec<Finding> {
        let row = self.row();
        let mut hops = vec![row];
        if self.rows.is_empty() {
            hops.extend(["vips", "router", "switch"].map(|name| Finding::skipped(name, "there is no row")));
        } else {
            hops.extend([self.vips(), self.attached("router"), self.attached("switch")]);
        }
        hops.push(self.gateway());
        hops.push(self.northd());
        hops
    }

    fn protocols(&self) -> BTreeSet<Protocol> {
        ports(self.service).iter().map(|port| port.protocol).collect()
    }

    /// Whether every protocol has its row, and nobody else has the same VIP on the same router.
    fn row(&self) -> Finding {
        const NAME: &str = "row";
        let missing: Vec<_> = self.protocols().into_iter().filter(|each| !self.rows.contains_key(each)).collect();
        if !missing.is_empty() {
            let words: Vec<_> = missing.iter().map(|protocol| protocol.word()).collect();
            return Finding::bad(
                NAME,
                format!(
                    "OVN has no Load_Balancer of this Service for {}: somebody deleted it, or it was never made",
                    words.join(", ")
                ),
                "look into the controller's log and at the Events of the Service; groundcrew doctor tells whether kube-ovn deletes it",
            );
        }
        if let Some((vip, other)) = self.rival() {
            return Finding::bad(
                NAME,
                format!("Load_Balancer {} ({}) has {vip} on the same router: either may answer", other.1.name, other.0),
                "find out whose it is with groundcrew ovn-rows, and remove it or give one of the two another address",
            );
        }
        let names = self.rows.values().flatten().map(|(_, row)| row.name.to_string());
        Finding::good(NAME, format!("Load_Balancer {}", some(names)))
    }

    /// Another's row with one of our VIPs on our router.
    fn rival(&self) -> Option<(String, (Uuid, &'a Arc<LoadBalancer>))> {
        let ours: BTreeSet<_> = self.rows.values().flatten().map(|(uuid, _)| *uuid).collect();
        let on_router: BTreeSet<_> = self.members("router").into_iter().flatten().copied().collect();
        let wanted: BTreeSet<_> = self.wanted().into_iter().map(|(protocol, vip, _)| (protocol, vip)).collect();
        let mut others =
            self.nb.load_balancers.iter().filter(|(uuid, _)| on_router.contains(uuid) && !ours.contains(uuid));
        others.find_map(|(uuid, row)| {
            let protocol = Protocol::of(row.protocol.as_deref());
            let vip =
                row.vips.iter().map(|(vip, _)| vip).find(|vip| wanted.contains(&(protocol, (*vip).to_owned())))?;
            Some((vip.to_owned(), (uuid, row)))
        })
    }

    /// Every VIP that should be there, with its backends.
    fn wanted(&self) -> Vec<(Protocol, String, BTreeSet<SocketAddr>)> {
        let slices = self.facts.slices.as_deref().unwrap_or_default();
        let mut all = Vec::new();
        for address in addresses(self.service) {
            for protocol in self.protocols() {
                let vips = endpoints::wanted(slices, self.service, protocol, address);
                all.extend(vips.into_iter().map(|(vip, backends)| (protocol, vip, backends)));
            }
        }
        all
    }

    fn rows_of(&self, protocol: Protocol) -> &[(Uuid, &'a Arc<LoadBalancer>)] {
        self.rows.get(&protocol).map(Vec::as_slice).unwrap_or_default()
    }

    fn vips(&self) -> Finding {
        const NAME: &str = "vips";
        let wanted = self.wanted();
        for (protocol, vip, _) in &wanted {
            if let Some((_, row)) = self.rows_of(*protocol).iter().find(|(_, row)| row.vips.get(vip).is_none()) {
                let refused = told(self.service, condition::SERVICE_READY).filter(|told| told.reason == "PortConflict");
                if let Some(told) = refused {
                    return Finding::bad(NAME, told.message.clone(), remedy(&told.reason));
                }
                let found = format!("{} has no VIP {vip}", row.name);
                return Finding::bad(NAME, found, "look into the controller's log: it should put the VIP back at once");
            }
        }
        let known: BTreeSet<_> = wanted.iter().map(|(_, vip, _)| vip.as_str()).collect();
        let strange = self.rows.values().flatten().find_map(|(_, row)| {
            row.vips.iter().map(|(vip, _)| vip).find(|vip| !known.contains(vip)).map(|vip| (vip, row))
        });
        if let Some((vip, row)) = strange {
            let found = format!("{} has the VIP {vip}, which this Service has not published", row.name);
            return Finding::bad(NAME, found, "look into the controller's log: it should take the VIP away at once");
        }
        Finding::good(NAME, some(known.into_iter().map(str::to_owned)))
    }

    /// The members of the router or switch, those of its groups included; `None` where there is none of this name.
    fn members(&self, place: &str) -> Option<Vec<&'a Uuid>> {
        let nb = self.nb;
        let grouped = |groups: &'a Set<Uuid>| {
            groups.iter().filter_map(|uuid| nb.groups.get(*uuid)).flat_map(|group| group.load_balancer.iter())
        };
        if place == "router" {
            let (_, row) = nb.routers.iter().find(|(_, row)| *row.name == *self.router)?;
            return Some(row.load_balancer.iter().chain(grouped(&row.load_balancer_group)).collect());
        }
        let (_, row) = nb.switches.iter().find(|(_, row)| *row.name == *self.switch)?;
        Some(row.load_balancer.iter().chain(grouped(&row.load_balancer_group)).collect())
    }

    fn attached(&self, place: &'static str) -> Finding {
        let name = if place == "router" { &self.router } else { &self.switch };
        let Some(members) = self.members(place) else {
            let next = format!(
                "ovn-nbctl {}-list; if its name is another, tell the controller with --ovn-{place}",
                if place == "router" { "lr" } else { "ls" }
            );
            return Finding::bad(place, format!("OVN has no {place} {name}"), next);
        };
        for rows in self.rows.values() {
            // With a row of their own, clients inside come by the switch and all others by the router.
            let split = rows.iter().any(|(_, row)| row.name.ends_with(INSIDE));
            let here = rows.iter().filter(|(_, row)| !split || row.name.ends_with(INSIDE) == (place == "switch"));
            for (uuid, row) in here {
                if !members.contains(&uuid) {
                    let who = if place == "router" { "outside" } else { "inside the project" };
                    let found = format!("{} is not on {place} {name}: nobody answers clients {who}", row.name);
                    return Finding::bad(place, found, "look into the controller's log: it should attach it at once");
                }
            }
        }
        Finding::good(place, format!("on {place} {name}"))
    }

    /// Who answers for the address outside.
    fn gateway(&self) -> Finding {
        const NAME: &str = "gateway";
        let Some((_, router)) = self.nb.routers.iter().find(|(_, row)| *row.name == *self.router) else {
            return Finding::skipped(NAME, "there is no router");
        };
        if let Some(chassis) = router.options.get("chassis") {
            return self.chassis_is_there(format!("router {} is on chassis {chassis}", router.name), chassis);
        }
        let ports: Vec<_> = router.ports.iter().filter_map(|port| self.nb.router_ports.get(*port)).collect();
        for address in addresses(self.service) {
            let mut facing = ports.iter().filter(|port| has_network_of(port, address));
            let Some(port) = facing.next() else {
                return Finding::bad(
                    NAME,
                    format!(
                        "no port of router {} is in a network that {address} belongs to: nobody answers for it",
                        router.name
                    ),
                    "connect the router to that network (kube-ovn: spec.enableExternal and spec.extraExternalSubnets of the Vpc), or route the address to it",
                );
            };
            if port.gateway_chassis.is_empty() && port.ha_chassis_group.is_none() {
                return Finding::bad(
                    NAME,
                    format!("port {} has no gateway chassis: the address is answered for nowhere", port.name),
                    format!(
                        "ovn-nbctl lrp-set-gateway-chassis {} CHASSIS (kube-ovn: label a node ovn.kubernetes.io/external-gw=true)",
                        port.name
                    ),
                );
            }
        }
        let port = ports.iter().find(|port| addresses(self.service).iter().any(|each| has_network_of(port, *each)));
        port.map_or_else(|| Finding::skipped(NAME, "there is no address"), |port| self.active(port))
    }

    /// Which chassis of a port answers, as far as it can be seen.
    fn active(&self, port: &LogicalRouterPort) -> Finding {
        const NAME: &str = "gateway";
        let mut chassis: Vec<_> = port.gateway_chassis.iter().filter_map(|uuid| self.nb.gateways.get(*uuid)).collect();
        chassis.sort_by_key(|chassis| std::cmp::Reverse(chassis.priority));
        let names = some(chassis.iter().map(|chassis| chassis.chassis_name.to_string()));
        let names = if names.is_empty() { "a group of chassis".to_owned() } else { names };
        match &self.facts.southbound {
            None => Finding::good(NAME, format!("port {} by {names} (which one is active: --ovn-sb)", port.name)),
            Some(Err(why)) => {
                Finding::unknown(NAME, why.to_string(), "look whether the southbound database can be reached")
            }
            Some(Ok(sb)) => match bound(sb, &port.name) {
                Some(host) => Finding::good(NAME, format!("port {} is on chassis {host}", port.name)),
                None => Finding::bad(
                    NAME,
                    format!("port {} is on no chassis, though {names} should have it", port.name),
                    "look whether ovn-controller runs there and reaches the southbound database: ovn-sbctl show",
                ),
            },
        }
    }

    fn chassis_is_there(&self, found: String, chassis: &str) -> Finding {
        const NAME: &str = "gateway";
        match &self.facts.southbound {
            Some(Ok(sb)) if !sb.chassis.iter().any(|(_, row)| *row.name == *chassis) => {
                let next = "look whether ovn-controller runs there: ovn-sbctl show";
                Finding::bad(NAME, format!("{found}, which is not there"), next)
            }
            _ => Finding::good(NAME, found),
        }
    }

    /// Whether what was written is also in effect.
    fn northd(&self) -> Finding {
        const NAME: &str = "northd";
        const NEXT: &str = "look whether ovn-northd runs: ovn-nbctl --wait=sb --timeout=10 sync";
        if self.facts.northd_behind {
            return Finding::bad(NAME, "ovn-northd does not take what is written into the northbound database", NEXT);
        }
        match told(self.service, condition::SERVICE_REALISED).filter(|told| told.status != "True") {
            Some(told) => Finding::bad(NAME, told.message.clone(), NEXT),
            None => Finding::good(NAME, "ovn-northd has taken what is written"),
        }
    }

    /// Whether the rows lead to those who are ready.
    fn backends(&self) -> Finding {
        const NAME: &str = "backends";
        if self.rows.is_empty() {
            return Finding::skipped(NAME, "there is no row");
        }
        if let Err(why) = &self.facts.slices {
            return Finding::unknown(NAME, why.to_string(), "ask as a user who may list EndpointSlices");
        }
        let mut seen = BTreeSet::new();
        for (protocol, vip, wanted) in self.wanted() {
            for (_, row) in self.rows_of(protocol) {
                let Some(text) = row.vips.get(&vip) else { continue };
                let has: BTreeSet<SocketAddr> = text.split(',').filter_map(|each| each.trim().parse().ok()).collect();
                seen.extend(has.iter().copied());
                if has == wanted {
                    continue;
                }
                return self.differing(&vip, &has, &wanted);
            }
        }
        match seen.len() {
            0 => Finding::note(NAME, "none: connections are refused"),
            _ => Finding::good(NAME, some(seen.iter().map(ToString::to_string))),
        }
    }

    fn differing(&self, vip: &str, has: &BTreeSet<SocketAddr>, wanted: &BTreeSet<SocketAddr>) -> Finding {
        const NAME: &str = "backends";
        let missing = some(wanted.difference(has).map(ToString::to_string));
        let strange = some(has.difference(wanted).map(ToString::to_string));
        let outside =
            told(self.service, condition::SERVICE_READY).filter(|told| told.reason == "BackendOutsideProject");
        match (missing.is_empty(), strange.is_empty(), outside) {
            (false, true, Some(told)) => Finding::bad(NAME, told.message.clone(), remedy(&told.reason)),
            (false, true, None) => {
                let found = format!("{vip} does not lead to {missing}, which is ready");
                Finding::bad(NAME, found, "look into the controller's log: it should add it at once")
            }
            (true, ..) => {
                let found = format!("{vip} leads to {strange}, which is no ready endpoint of the Service");
                Finding::bad(NAME, found, "look into the controller's log: it should take it away at once")
            }
            _ => {
                let found = format!("{vip} leads to {strange} instead of {missing}");
                Finding::bad(NAME, found, "look into the controller's log: it should put it right at once")
            }
        }
    }

    /// What the probes say, where the Service asks for any.
    fn health(&self) -> Option<Finding> {
        const NAME: &str = "health checks";
        annotated(self.service.metadata.annotations.as_ref(), annotation::HEALTH_CHECK)
            .filter(|asked| *asked != "false")?;
        if self.rows.is_empty() {
            return Some(Finding::skipped(NAME, "there is no row"));
        }
        if self.rows.values().flatten().any(|(_, row)| row.health_check.is_empty()) {
            let ready = told(self.service, condition::SERVICE_READY);
            let why = ready.filter(|told| told.reason.starts_with("HealthCheck"));
            return Some(Finding::bad(
                NAME,
                why.map_or_else(|| "the backends are not probed".to_owned(), |told| told.message.clone()),
                remedy(why.map_or("", |told| &told.reason)),
            ));
        }
        Some(match &self.facts.southbound {
            None => Finding::note(NAME, "on; what the probes say: --ovn-sb"),
            Some(Err(why)) => {
                Finding::unknown(NAME, why.to_string(), "look whether the southbound database can be reached")
            }
            Some(Ok(sb)) => self.probed(sb),
        })
    }

    fn probed(&self, sb: &Southbound) -> Finding {
        const NAME: &str = "health checks";
        let wanted: BTreeSet<_> = self
            .wanted()
            .into_iter()
            .flat_map(|(protocol, _, all)| all.into_iter().map(move |at| (protocol, at)))
            .collect();
        let probes = sb.monitors.iter().filter_map(|(_, row)| {
            let at = SocketAddr::new(row.ip.parse().ok()?, u16::try_from(row.port).ok()?);
            let status = row.status.as_deref().unwrap_or("not probed yet");
            wanted.contains(&(Protocol::of(row.protocol.as_deref()), at)).then_some((at, status))
        });
        let probes: BTreeMap<_, _> = probes.collect();
        let down: Vec<_> = probes.iter().filter(|(_, status)| **status == "offline" || **status == "error").collect();
        let words = some(down.iter().map(|(at, status)| format!("{at} {status}")));
        match down.len() {
            0 => Finding::good(NAME, format!("{} backends probed", probes.len())),
            n if n == probes.len() => {
                let next = "look whether the pods answer on that port, and whether a NetworkPolicy drops the probes";
                Finding::bad(NAME, format!("no backend answers: {words}"), next)
            }
            _ => Finding::note(NAME, format!("get no new connections: {words}")),
        }
    }
}

fn has_network_of(port: &LogicalRouterPort, address: IpAddr) -> bool {
    port.networks.iter().filter_map(|network| network.parse::<IpNet>().ok()).any(|network| network.contains(&address))
}

/// Where the gateway of a port is.
fn bound(sb: &Southbound, port: &str) -> Option<String> {
    let redirect = format!("cr-{port}");
    let (_, binding) = sb.bindings.iter().find(|(_, row)| *row.logical_port == *redirect)?;
    let chassis = sb.chassis.get(binding.chassis?)?;
    Some(format!("{} ({})", chassis.name, chassis.hostname))
}
