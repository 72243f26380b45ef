//! kube-ovn's Vpcs and Subnets, as far as they matter here. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;

use groundcrew_api::kube_ovn as api;
use groundcrew_api::names::{annotation, label};
use ipnet::IpNet;
use kube::ResourceExt;
use kube::core::Selector;

use super::eips::{Eip, Eips};
use super::members::{Member, Members};
use super::places::Place;
use super::routes::owners;
use crate::addresses::Family;

/// A logical switch: a project's own, or an external network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Subnet {
    pub(crate) name: Arc<str>,
    pub(crate) vpc: Option<Arc<str>>,
    pub(super) namespaces: Box<[Box<str>]>,
    /// Namespaces with such labels are its own, too.
    pub(super) selectors: Box<[Selector]>,
    nets: Box<[Net]>,
    /// Set for a network that external addresses come from.
    external: Option<External>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct External {
    kind: Option<Box<str>>,
    /// Projects are connected to it from the start.
    default: bool,
    /// How many of its addresses a namespace may have.
    limit: Option<u32>,
}

/// What a Subnet has of one family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Net {
    pub(crate) cidr: IpNet,
    pub(crate) gateway: Option<IpAddr>,
    /// kube-ovn gives these out, too, when it is asked for them by number.
    excluded: Box<[RangeInclusive<IpAddr>]>,
}

impl Subnet {
    pub(crate) fn new(subnet: &api::Subnet) -> Self {
        let api::SubnetSpec { vpc, cidr_block, gateway, exclude_ips, namespaces, namespace_selectors, .. } =
            &subnet.spec;
        let labels = subnet.labels();
        let kind = labels.get(label::EXTERNAL_NETWORK_TYPE).filter(|kind| !kind.is_empty());
        let default = labels.get(label::DEFAULT_EXTERNAL).is_some_and(|value| value == "true");
        // Whoever wrote something there did not mean that there is no limit.
        let limit = subnet.annotations().get(annotation::PER_NAMESPACE_LIMIT);
        let limit = limit.map(|text| text.trim().parse().unwrap_or(0));
        let gateways: Vec<IpAddr> = parts(gateway.as_deref()).filter_map(|text| text.parse().ok()).collect();
        let cidrs = parts(cidr_block.as_deref()).filter_map(|text| text.parse::<IpNet>().ok());
        let nets = cidrs.map(|cidr| Net {
            cidr,
            gateway: gateways.iter().copied().find(|gateway| gateway.is_ipv4() == cidr.addr().is_ipv4()),
            excluded: exclude_ips.iter().filter_map(|text| range(text)).filter(|r| cidr.contains(r.start())).collect(),
        });
        Self {
            name: subnet.name_any().into(),
            vpc: vpc.as_deref().map(Into::into),
            namespaces: namespaces.iter().map(|namespace| namespace.as_str().into()).collect(),
            // kube-ovn binds nobody by a selector that it cannot read either.
            selectors: namespace_selectors.iter().filter_map(|selector| selector.clone().try_into().ok()).collect(),
            nets: nets.collect(),
            external: (kind.is_some() || default).then(|| External {
                kind: kind.map(|kind| kind.as_str().into()),
                default,
                limit,
            }),
        }
    }

    pub(crate) fn is_external(&self) -> bool {
        self.external.is_some()
    }

    /// Whether projects are connected to it from the start.
    pub(crate) fn is_default(&self) -> bool {
        self.external.as_ref().is_some_and(|external| external.default)
    }

    /// How many of its addresses a namespace may have.
    pub(crate) fn limit(&self) -> Option<u32> {
        self.external.as_ref()?.limit
    }

    pub(crate) fn net(&self, family: Family) -> Option<&Net> {
        self.nets.iter().find(|net| Family::of(net.cidr.addr()) == family)
    }

    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        self.nets.iter().any(|net| net.cidr.contains(&address))
    }

    /// Whether the operator keeps this address from being given out.
    pub(crate) fn excludes(&self, address: IpAddr) -> bool {
        let net = self.nets.iter().find(|net| net.cidr.contains(&address));
        net.is_some_and(|net| {
            net.gateway == Some(address)
                || net.is_edge(address)
                || net.excluded.iter().any(|range| range.contains(&address))
        })
    }

    /// Addresses that no `OvnEip` holds. Pods and kube-ovn's own things may hold some of them. `status.v4availableIPs` is
    /// not asked: kube-ovn 1.14 shows addresses as free in a Subnet that is full.
    pub(crate) fn free(&self, family: Family, eips: &Eips) -> u128 {
        let capacity = self.net(family).map_or(0, Net::capacity);
        capacity.saturating_sub(eips.held(&self.name).into())
    }

    pub(super) fn is_of_kind(&self, kind: Option<&str>) -> bool {
        let Some(external) = &self.external else { return false };
        kind.is_none_or(|kind| external.kind.as_deref() == Some(kind))
    }
}

impl Net {
    /// The network's own address, and the one for everybody.
    fn is_edge(&self, address: IpAddr) -> bool {
        address == self.cidr.network() || (address.is_ipv4() && address == self.cidr.broadcast())
    }

    pub(crate) fn capacity(&self) -> u128 {
        let (first, last) = (number(self.cidr.network()), number(self.cidr.broadcast()));
        let edges =
            [Some(self.cidr.network()), self.cidr.addr().is_ipv4().then(|| self.cidr.broadcast()), self.gateway];
        let edges = edges.into_iter().flatten().map(|address| (number(address), number(address)));
        let excluded = self.excluded.iter().map(|range| (number(*range.start()), number(*range.end())));
        let mut taken: Vec<_> = excluded.chain(edges).map(|(a, b)| (a.max(first), b.min(last))).collect();
        taken.sort_unstable();
        let (mut gone, mut next) = (0_u128, first);
        for (start, end) in taken {
            let start = start.max(next);
            if start <= end {
                gone += end - start + 1;
                next = end.saturating_add(1);
            }
        }
        (last - first).saturating_add(1).saturating_sub(gone)
    }
}

fn parts(text: Option<&str>) -> impl Iterator<Item = &str> {
    text.into_iter().flat_map(|text| text.split(',')).map(str::trim)
}

fn range(text: &str) -> Option<RangeInclusive<IpAddr>> {
    let (first, last) = text.split_once("..").unwrap_or((text, text));
    Some(first.trim().parse().ok()?..=last.trim().parse().ok()?)
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u32::from(address).into(),
        IpAddr::V6(address) => address.into(),
    }
}

fn default_hop(route: &api::StaticRoute) -> Option<IpAddr> {
    let is = |text: &Option<String>, value: &str| text.as_deref().unwrap_or_default().trim() == value;
    let is_default = is(&route.cidr, "0.0.0.0/0") || is(&route.cidr, "::/0");
    let counts = is_default && !is(&route.policy, "policySrc") && is(&route.route_table, "");
    route.next_hop_ip.as_deref().filter(|_| counts)?.trim().parse().ok()
}

fn policy(route: &api::PolicyRoute) -> Option<(Box<str>, Option<IpAddr>)> {
    let is_reroute = route.action.as_deref() == Some("reroute");
    let next_hop = route.next_hop_ip.as_deref().filter(|_| is_reroute).and_then(|hop| hop.trim().parse().ok());
    Some((route.matches.as_deref()?.trim().into(), next_hop))
}

/// A logical router and what is behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Vpc {
    pub(crate) name: Arc<str>,
    namespaces: Box<[Box<str>]>,
    router: Option<Arc<str>>,
    default_switch: Option<Arc<str>>,
    enable_external: bool,
    extra: BTreeSet<Box<str>>,
    /// Where it sends what it has no other route for, as far as its operator says so.
    default_hops: BTreeSet<IpAddr>,
    /// What the router's policies match, and the next hop of what they send another way than the routes say.
    policies: BTreeSet<(Box<str>, Option<IpAddr>)>,
    /// The clusters that have entries of theirs among them.
    routed_by: BTreeSet<String>,
}

impl Vpc {
    pub(crate) fn new(vpc: &api::Vpc) -> Self {
        let status = vpc.status.clone().unwrap_or_default();
        Self {
            name: vpc.name_any().into(),
            namespaces: vpc.spec.namespaces.iter().map(|namespace| namespace.as_str().into()).collect(),
            router: status.router.map(Into::into),
            default_switch: status.default_logical_switch.map(Into::into),
            enable_external: vpc.spec.enable_external,
            extra: vpc.spec.extra_external_subnets.iter().map(|name| name.as_str().into()).collect(),
            default_hops: vpc.spec.static_routes.iter().filter_map(default_hop).collect(),
            policies: vpc.spec.policy_routes.iter().filter_map(policy).collect(),
            routed_by: owners(vpc.annotations().get(annotation::POLICY_ROUTES).map(String::as_str)),
        }
    }

    /// Whether it has entries of this cluster.
    pub(super) fn is_routed_by(&self, cluster: &str) -> bool {
        self.routed_by.contains(cluster)
    }

    /// Whether packets of this match are sent there.
    pub(crate) fn reroutes(&self, matches: &str, next_hop: IpAddr) -> bool {
        self.policies.contains(&(matches.into(), Some(next_hop)))
    }

    /// Whether there is a policy for packets of this match, whatever it does.
    pub(crate) fn matches(&self, matches: &str) -> bool {
        self.policies.range((matches.into(), None)..).next().is_some_and(|(first, _)| **first == *matches)
    }

    /// Whether packets from this Subnet reach the router. What the spec says is no proof: kube-ovn connects nothing without
    /// `enableExternal`, and the default network only where no other is named at that moment. A router port is, in OVN or
    /// by its address, which is an `OvnEip`.
    pub(crate) fn is_connected_to(&self, subnet: &Subnet, eips: &Eips, ports: &[IpAddr]) -> bool {
        let port = format!("{}-{}", self.name, subnet.name);
        ports.iter().any(|port| subnet.contains(*port)) || eips.get(&port).is_some_and(Eip::is_port)
    }

    /// Why it may not be connected to this one, in words for whoever can change that.
    pub(crate) fn why_apart(&self, subnet: &Subnet) -> &'static str {
        let is_asked_for = self.extra.contains(&*subnet.name) || (subnet.is_default() && self.extra.is_empty());
        match (self.enable_external, is_asked_for) {
            (true, true) => "kube-ovn has not made it yet; look into the log of kube-ovn-controller",
            (true, false) => "add the Subnet to the Vpc's spec.extraExternalSubnets",
            (false, _) => "set the Vpc's spec.enableExternal, and add the Subnet to its spec.extraExternalSubnets",
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Networks {
    subnets: BTreeMap<Arc<str>, Subnet>,
    vpcs: BTreeMap<Arc<str>, Vpc>,
    members: Members,
    /// Subnets by the namespaces that are theirs.
    subnets_of: BTreeMap<Box<str>, BTreeSet<Arc<str>>>,
    vpcs_of: BTreeMap<Box<str>, BTreeSet<Arc<str>>>,
    /// Few beside the projects' own.
    externals: BTreeSet<Arc<str>>,
    /// Few as well: the Subnets that have namespaces by their labels.
    selecting: BTreeSet<Arc<str>>,
}

impl Networks {
    pub(crate) fn subnet(&self, name: &str) -> Option<&Subnet> {
        self.subnets.get(name)
    }

    /// The namespaces whose place may be another now; `None` if nothing changed.
    pub(crate) fn put_subnet(&mut self, subnet: Subnet) -> Option<BTreeSet<Box<str>>> {
        if self.subnets.get(&subnet.name) == Some(&subnet) {
            return None;
        }
        let mut concerned = self.remove_subnet(&subnet.name).unwrap_or_default();
        let namespaces = self.members.of(&subnet);
        for namespace in &namespaces {
            self.subnets_of.entry(namespace.clone()).or_default().insert(subnet.name.clone());
        }
        concerned.extend(namespaces);
        self.externals.extend(subnet.is_external().then(|| subnet.name.clone()));
        self.selecting.extend((!subnet.selectors.is_empty()).then(|| subnet.name.clone()));
        self.subnets.insert(subnet.name.clone(), subnet);
        Some(concerned)
    }

    pub(crate) fn remove_subnet(&mut self, name: &str) -> Option<BTreeSet<Box<str>>> {
        let subnet = self.subnets.remove(name)?;
        self.externals.remove(name);
        self.selecting.remove(name);
        let namespaces = self.members.of(&subnet);
        for namespace in &namespaces {
            unlist(&mut self.subnets_of, namespace, name);
        }
        Some(namespaces)
    }

    pub(crate) fn subnet_names(&self) -> BTreeSet<Arc<str>> {
        self.subnets.keys().cloned().collect()
    }

    /// The namespace, if Subnets select it now that did not before, or the other way round.
    pub(crate) fn put_namespace(&mut self, member: Member) -> Option<BTreeSet<Box<str>>> {
        let namespace = member.name.clone();
        self.change_members(&namespace, |members| members.put(member))
    }

    pub(crate) fn remove_namespace(&mut self, name: &str) -> Option<BTreeSet<Box<str>>> {
        self.change_members(name, |members| members.remove(name))
    }

    fn change_members(
        &mut self,
        namespace: &str,
        change: impl FnOnce(&mut Members) -> bool,
    ) -> Option<BTreeSet<Box<str>>> {
        if !change(&mut self.members) {
            return None;
        }
        let mut is_other = false;
        for name in &self.selecting {
            let Some(subnet) = self.subnets.get(name) else { continue };
            is_other |= if self.members.has(subnet, namespace) {
                self.subnets_of.entry(namespace.into()).or_default().insert(name.clone())
            } else {
                unlist(&mut self.subnets_of, namespace, name)
            };
        }
        is_other.then(|| [namespace.into()].into())
    }

    pub(crate) fn namespace_names(&self) -> BTreeSet<Arc<str>> {
        self.members.names()
    }

    pub(crate) fn put_vpc(&mut self, vpc: Vpc) -> Option<BTreeSet<Box<str>>> {
        if self.vpcs.get(&vpc.name) == Some(&vpc) {
            return None;
        }
        let mut concerned = self.remove_vpc(&vpc.name).unwrap_or_default();
        for namespace in &vpc.namespaces {
            self.vpcs_of.entry(namespace.clone()).or_default().insert(vpc.name.clone());
        }
        concerned.extend(vpc.namespaces.iter().cloned());
        concerned.extend(self.behind(&vpc.name));
        self.vpcs.insert(vpc.name.clone(), vpc);
        Some(concerned)
    }

    pub(crate) fn remove_vpc(&mut self, name: &str) -> Option<BTreeSet<Box<str>>> {
        let vpc = self.vpcs.remove(name)?;
        for namespace in &vpc.namespaces {
            unlist(&mut self.vpcs_of, namespace, name);
        }
        let listed = vpc.namespaces.into_iter().collect::<Vec<_>>();
        Some(self.behind(name).into_iter().chain(listed).collect())
    }

    /// The Vpcs that have entries of this cluster.
    pub(super) fn routed_by(&self, cluster: &str) -> Vec<Arc<str>> {
        self.vpcs.values().filter(|vpc| vpc.is_routed_by(cluster)).map(|vpc| vpc.name.clone()).collect()
    }

    pub(crate) fn vpc_names(&self) -> BTreeSet<Arc<str>> {
        self.vpcs.keys().cloned().collect()
    }

    /// The namespaces of the Subnets that say they are this Vpc's. Every Subnet is looked at: Vpcs change rarely.
    fn behind(&self, vpc: &str) -> Vec<Box<str>> {
        let subnets = self.subnets.values().filter(|subnet| subnet.vpc.as_deref() == Some(vpc));
        subnets.flat_map(|subnet| self.members.of(subnet)).collect()
    }

    /// Where the pods of a namespace live. What kube-ovn does not say is left to the templates.
    pub(crate) fn place(&self, namespace: &str) -> Place {
        let vpc = self.vpc_of(namespace);
        let subnets = self.subnets_of.get(namespace);
        let default = vpc.and_then(|vpc| vpc.default_switch.clone());
        let switch = match subnets {
            // Of several the Vpc's default one; where it says nothing, always the same one.
            Some(subnets) => default.filter(|name| subnets.contains(name)).or_else(|| subnets.first().cloned()),
            None => default,
        };
        let router = vpc.map(|vpc| vpc.router.clone().unwrap_or_else(|| vpc.name.clone()));
        Place { router, switch }
    }

    /// The Vpc of a namespace: the one that lists it, or the one of its Subnet.
    pub(crate) fn vpc_of(&self, namespace: &str) -> Option<&Vpc> {
        let listed = self.vpcs_of.get(namespace).and_then(BTreeSet::first);
        let by_subnet = || {
            let subnets = self.subnets_of.get(namespace)?;
            subnets.iter().find_map(|name| self.subnets.get(name)?.vpc.as_ref())
        };
        self.vpcs.get(listed.or_else(by_subnet)?)
    }

    /// Whether an `OvnEip` of this name would be taken for the address of a router port.
    pub(crate) fn is_router_port(&self, name: &str) -> bool {
        let dashes = name.match_indices('-');
        let mut halves = dashes.map(|(at, _)| (&name[..at], &name[at + 1..]));
        halves.any(|(vpc, subnet)| self.vpcs.contains_key(vpc) && self.subnets.contains_key(subnet))
    }

    /// The external networks that a namespace may have addresses of this family from, best first: those that its router is
    /// connected to, the default one, those with the most free addresses. `ports` are what the router has in OVN.
    pub(crate) fn candidates(
        &self,
        namespace: &str,
        kind: Option<&str>,
        family: Family,
        eips: &Eips,
        ports: &[IpAddr],
    ) -> Vec<&Subnet> {
        let vpc = self.vpc_of(namespace);
        let of_kind = self.externals().filter(|s| s.is_of_kind(kind) && s.net(family).is_some());
        let mut candidates: Vec<_> = of_kind
            .map(|subnet| {
                let is_default = subnet.is_default();
                let is_connected = vpc.is_none_or(|vpc| vpc.is_connected_to(subnet, eips, ports));
                ((!is_connected, !is_default, u128::MAX - subnet.free(family, eips)), subnet)
            })
            .collect();
        candidates.sort_by(|(a, one), (b, other)| a.cmp(b).then_with(|| one.name.cmp(&other.name)));
        candidates.into_iter().map(|(_, subnet)| subnet).collect()
    }

    /// Whether a router sends what it has no other route for by this network. Its own default route says so for sure, where
    /// it leads to an external network; else the type of network that the project leaves by, where that is known.
    pub(crate) fn is_way_out(&self, vpc: &Vpc, subnet: &Subnet, family: Family, egress: Option<&str>) -> bool {
        let hops = vpc.default_hops.iter().filter(|hop| Family::of(**hop) == family);
        let mut hops = hops.filter(|hop| self.external_of(**hop).is_some()).peekable();
        match egress {
            _ if hops.peek().is_some() => hops.any(|hop| subnet.contains(*hop)),
            Some(egress) => subnet.is_of_kind(Some(egress)),
            None => subnet.is_default(),
        }
    }

    /// The external network that an address is of.
    pub(crate) fn external_of(&self, address: IpAddr) -> Option<&Subnet> {
        self.externals().find(|subnet| subnet.contains(address))
    }

    pub(super) fn externals(&self) -> impl Iterator<Item = &Subnet> {
        self.externals.iter().filter_map(|name| self.subnets.get(name))
    }
}

/// Whether it was there.
fn unlist(lists: &mut BTreeMap<Box<str>, BTreeSet<Arc<str>>>, namespace: &str, name: &str) -> bool {
    let Some(names) = lists.get_mut(namespace) else { return false };
    let was_there = names.remove(name);
    if names.is_empty() {
        lists.remove(namespace);
    }
    was_there
}
