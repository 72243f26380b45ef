//! What to do so that a Service has an address that kube-ovn knows about. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use groundcrew_api::names::{eip, label};
use groundcrew_core::leader::Moment;
use groundcrew_core::provider::Owner;
use uuid::Uuid;

use super::eips::{Eip, Eips, Known, News};
use super::networks::{Networks, Subnet};
use super::why::{Why, why};
use crate::addresses::{Family, Made, Need};
use crate::error::Error;
use crate::marks;

/// How long kube-ovn may say nothing before somebody is told. It answers in a quarter of a second, and in four after it was
/// started.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// Names that are tried for one owner and family: one may be in deletion, or read like that of a router port.
const MOST_NAMES: u32 = 8;

/// Everything that kube-ovn has, as far as it matters here.
#[derive(Debug, Default)]
pub(crate) struct Catalog {
    pub(crate) eips: Eips,
    pub(crate) networks: Networks,
    /// Subnet and namespace of those that are being made, by name: the next one must count them before they are there.
    pub(crate) asked: BTreeMap<String, (Arc<str>, Arc<str>)>,
    /// Whether what kube-dc made for `EIp`s that are ours now is ours, too.
    pub(crate) take_over: bool,
    /// Addresses that became free by our own writes, and of which nobody has been told yet.
    pub(crate) freed: BTreeSet<IpAddr>,
}

/// The next step for a Service that has no address.
#[derive(Debug)]
pub(crate) enum Next {
    /// This one is there and ready.
    Use {
        name: Arc<str>,
        address: IpAddr,
    },
    Make(Wish),
    /// This one of ours will never be what is asked for now.
    Drop(Arc<str>),
    /// kube-ovn has not answered yet.
    Wait {
        name: Arc<str>,
        left: Duration,
    },
    Refuse(Error),
}

/// An `OvnEip` to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wish {
    pub(crate) name: String,
    pub(crate) subnet: Arc<str>,
    /// Only an address that somebody asked for, or has: a field that we send is ours, and kube-ovn fills it in otherwise.
    /// An IPv6 address cannot be asked for.
    pub(crate) address: Option<Ipv4Addr>,
}

/// Whether an address that is in use is safe at kube-ovn.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    /// This one holds it.
    Safe(Arc<str>),
    /// This one holds it and is to get our marks: kube-dc made it for the `EIp`, or somebody took them away.
    Adopt(Arc<str>),
    /// Nothing holds it: kube-ovn may give it to anybody.
    Make(Wish),
    /// kube-ovn has just been asked for it.
    Asked(Why),
    /// It is not safe, and for now there is nothing to do but to tell.
    Unsafe(Why),
    /// It is of no network of kube-ovn's.
    Elsewhere,
}

impl Catalog {
    /// One of ours is gone.
    pub(crate) fn remove(&mut self, name: &str, uid: Uuid) {
        let news = self.eips.remove(name, uid);
        self.note_freed(news);
    }

    pub(crate) fn note_freed(&mut self, news: News) {
        if news.freed {
            self.freed.extend(news.addresses);
        }
    }

    /// What an address is needed for comes nearer with each step; nobody waits inside of one. `needed` are those of this
    /// owner that cannot go, and `ports` those that the namespace's router has in OVN.
    pub(crate) fn next(
        &self,
        owner: &Owner,
        need: &Need,
        needed: &BTreeSet<Arc<str>>,
        ports: &[IpAddr],
        now: Moment,
    ) -> Next {
        let (namespace, kind) = (&*owner.key.namespace, need.network_type.as_deref());
        let candidates = self.networks.candidates(namespace, kind, need.family, &self.eips, ports);
        let fits = |eip: &Eip, address: Option<IpAddr>| {
            candidates.iter().any(|subnet| subnet.name == eip.subnet)
                && need.requested.is_none_or(|requested| address == Some(requested))
        };
        let is_hopeless = |eip: &Eip| {
            self.is_full(eip, need.family)
                && candidates.iter().any(|subnet| self.is_open(subnet, need.family, namespace))
        };
        let mut own = None;
        for (name, known) in self.eips.of(owner.uid).filter(|(_, known)| !known.eip.leaving) {
            let eip = &known.eip;
            // One of a dual-stack Subnet has an address of each family.
            if let Some(address) = eip.address(need.family).filter(|a| eip.ready && fits(eip, Some(*a))) {
                return Next::Use { name: name.clone(), address };
            }
            if !names(owner, need.family).any(|own| *own == **name) {
                continue;
            }
            // Else it has an address and is not ready yet, or has one that is not the one to have.
            let may_become_it = if eip.is_silent() {
                fits(eip, eip.asked(need.family)) && !is_hopeless(eip)
            } else {
                fits(eip, eip.address(need.family))
            };
            // One that has to stay, for its address of the other family, leaves this one to another.
            if may_become_it || !needed.contains(name) {
                own = Some((name, known, may_become_it));
            }
        }
        match own {
            Some((name, known, true)) => self.wait(name, known, need.family, now),
            Some((name, _, false)) => Next::Drop(name.clone()),
            None => self.make(owner, need, &candidates, ports).map_or_else(Next::Refuse, Next::Make),
        }
    }

    /// The family of an address that may be of either.
    pub(crate) fn family(&self, namespace: &str, kind: Option<&str>) -> Family {
        let has = |family| !self.networks.candidates(namespace, kind, family, &self.eips, &[]).is_empty();
        if !has(Family::V4) && has(Family::V6) { Family::V6 } else { Family::V4 }
    }

    fn is_full(&self, eip: &Eip, family: Family) -> bool {
        self.networks.subnet(&eip.subnet).is_some_and(|subnet| subnet.free(family, &self.eips) == 0)
    }

    fn wait(&self, name: &Arc<str>, known: &Known, family: Family, now: Moment) -> Next {
        let left = now.until(known.since + PATIENCE);
        if left.is_zero() {
            let Why { reason, message } = why(name, &known.eip, family, self);
            return Next::Refuse(Error::OvnEipSilent { reason, message });
        }
        Next::Wait { name: name.clone(), left }
    }

    fn make(&self, owner: &Owner, need: &Need, candidates: &[&Subnet], ports: &[IpAddr]) -> Result<Wish, Error> {
        let namespace = &*owner.key.namespace;
        let (subnet, address) = match need.requested {
            // Another one would be given, and dropped again, without end.
            Some(IpAddr::V6(address)) => return Err(Error::NotByNumber { address }),
            Some(IpAddr::V4(address)) => (self.subnet_with(address.into(), namespace, candidates)?, Some(address)),
            None => (self.open_one(need, namespace, candidates, ports)?, None),
        };
        if let Some(vpc) = self.networks.vpc_of(namespace)
            && !vpc.is_connected_to(subnet, &self.eips, ports)
        {
            let (subnet, vpc, why) = (subnet.name.to_string(), vpc.name.to_string(), vpc.why_apart(subnet));
            return Err(Error::SubnetNotConnected { subnet, vpc, why });
        }
        let name = self.name(owner, need.family)?;
        Ok(Wish { name, subnet: subnet.name.clone(), address })
    }

    /// The first network that has an address left for this namespace. In the place of one that it may have no more of, only
    /// one that its router is connected to will do: else it would be told of that instead of its limit.
    fn open_one<'a>(
        &self,
        need: &Need,
        namespace: &str,
        candidates: &[&'a Subnet],
        ports: &[IpAddr],
    ) -> Result<&'a Subnet, Error> {
        let vpc = self.networks.vpc_of(namespace);
        let is_connected = |subnet| vpc.is_none_or(|vpc| vpc.is_connected_to(subnet, &self.eips, ports));
        let mut reached = None;
        for subnet in candidates.iter().copied().filter(|subnet| subnet.free(need.family, &self.eips) > 0) {
            match self.check_limit(subnet, namespace) {
                Ok(()) if reached.is_none() || is_connected(subnet) => return Ok(subnet),
                Ok(()) => {}
                Err(error) => reached = reached.or(Some(error)),
            }
        }
        Err(reached.unwrap_or_else(|| {
            let why = no_address(need, candidates);
            Error::PoolEmpty { namespace: namespace.to_owned(), pools: candidates.len(), why }
        }))
    }

    fn is_open(&self, subnet: &Subnet, family: Family, namespace: &str) -> bool {
        subnet.free(family, &self.eips) > 0 && self.check_limit(subnet, namespace).is_ok()
    }

    /// Whether the namespace may have one more of this network.
    fn check_limit(&self, subnet: &Subnet, namespace: &str) -> Result<(), Error> {
        let Some(limit) = subnet.limit() else { return Ok(()) };
        let is_missing = |name: &str| self.eips.get(name).is_none_or(|eip| eip.leaving);
        let of_it = |(at, by): &(Arc<str>, Arc<str>)| *at == subnet.name && **by == *namespace;
        let asked = self.asked.iter().filter(|(name, place)| of_it(place) && is_missing(name)).count();
        if self.eips.used(&subnet.name, namespace) + asked < usize::try_from(limit).unwrap_or(usize::MAX) {
            return Ok(());
        }
        let pool = format!("Subnet {}", subnet.name);
        Err(Error::LimitReached { namespace: namespace.to_owned(), pool, limit })
    }

    /// The network of an address that a user asked for by number. kube-ovn would give him an excluded one, too.
    fn subnet_with<'a>(
        &self,
        address: IpAddr,
        namespace: &str,
        candidates: &[&'a Subnet],
    ) -> Result<&'a Subnet, Error> {
        let Some(subnet) = candidates.iter().copied().find(|subnet| subnet.contains(address)) else {
            return Err(Error::AddressOutsideSubnets { address, namespace: namespace.to_owned() });
        };
        if subnet.excludes(address) {
            return Err(Error::AddressExcluded { address, subnet: subnet.name.to_string() });
        }
        match self.eips.holders(address).next() {
            Some((name, eip)) => Err(Error::AddressTaken { address, holder: holder(name, eip, namespace) }),
            None => self.check_limit(subnet, namespace).map(|()| subnet),
        }
    }

    /// The name of a new `OvnEip`: always the same one, but for one that is on its way out and one that kube-ovn would take
    /// for a router port. A name that is somebody else's stays his.
    fn name(&self, owner: &Owner, family: Family) -> Result<String, Error> {
        let mut last = None;
        for name in names(owner, family) {
            match self.eips.get(&name) {
                _ if self.networks.is_router_port(&name) => {}
                None => return Ok(name),
                Some(eip) if eip.leaving => {}
                Some(eip) if eip.owner.as_ref() == Some(owner) => {}
                Some(_) => return Err(Error::ForeignOvnEip { name }),
            }
            last = Some(name);
        }
        Err(Error::ForeignOvnEip { name: last.unwrap_or_default() })
    }

    /// Whether an address that is in use is still this owner's at kube-ovn, and what to do if not.
    pub(crate) fn keep(&self, made: &Made, now: Moment) -> Keep {
        let (owner, address) = (&made.owner, made.address);
        let family = Family::of(address);
        let ours = || self.eips.of(owner.uid).filter(|(_, known)| !known.eip.leaving);
        if let Some((name, _)) = ours().find(|(_, known)| known.eip.address(family) == Some(address)) {
            return Keep::Safe(name.clone());
        }
        let namespace = &owner.key.namespace;
        // One that was made for a tenant's EIp which is gone, and left to its Service.
        let is_inherited = |name: &str, eip: &Eip| {
            name == &*made.reference && eip.owner.as_ref().is_some_and(|owner| owner.key.namespace == *namespace)
        };
        if let Some((name, _)) = self.eips.holders(address).find(|(name, eip)| is_inherited(name, eip)) {
            return Keep::Safe(name.clone());
        }
        let own = format!("{namespace}.{}", owner.key.name);
        let is_kube_dcs = |name: &str, eip: &Eip| {
            name == &*made.reference && eip.owner.is_none() && eip.kube_dc.as_ref().is_some_and(|dc| *dc.eip == *own)
        };
        if let Some((name, eip)) = self.eips.holders(address).find(|(name, eip)| is_kube_dcs(name, eip)) {
            let goes_with_it = !eip.is_router_port && eip.kube_dc.as_ref().is_some_and(|dc| dc.made);
            return if self.take_over && goes_with_it { Keep::Adopt(name.clone()) } else { Keep::Safe(name.clone()) };
        }
        let is_unmarked = |name: &str, eip: &Eip| {
            // The name has the uid of the owner in it, so that nobody else's is called so.
            let is_his = || [Family::V4, Family::V6].iter().any(|family| names(owner, *family).any(|own| own == name));
            let has_no_mark = eip.owner.is_none() && eip.kube_dc.is_none() && !eip.is_others;
            has_no_mark && name == &*made.reference && is_his()
        };
        if let Some((name, _)) = self.eips.holders(address).find(|(name, eip)| is_unmarked(name, eip)) {
            return Keep::Adopt(name.clone());
        }
        if let Some((name, eip)) = self.eips.holders(address).next() {
            let holder = holder(name, eip, namespace);
            let message =
                format!("{address} is in use here, but kube-ovn has given it to {holder}; one of the two must go");
            return Keep::Unsafe(Why { reason: "AddressTaken", message });
        }
        if let Some((name, known)) =
            ours().find(|(_, known)| known.eip.is_silent() && known.eip.asked(family) == Some(address))
        {
            let told = |why: &str| format!("{address} is in use here, but not reserved at kube-ovn: {why}");
            if !now.until(known.since + PATIENCE).is_zero() {
                let message = told("kube-ovn has not answered yet");
                return Keep::Asked(Why { reason: "AddressUnreserved", message });
            }
            let why = why(name, &known.eip, family, self);
            return Keep::Unsafe(Why { message: told(&why.message), ..why });
        }
        let Some(subnet) = self.networks.external_of(address) else { return Keep::Elsewhere };
        let IpAddr::V4(address) = address else {
            let message = format!(
                "{address} is in use here, but no OvnEip holds it any more, and kube-ovn cannot be asked for an IPv6 address \
                 by number: it may give it to somebody else"
            );
            return Keep::Unsafe(Why { reason: "AddressUnreserved", message });
        };
        match self.name(owner, family) {
            Ok(name) => Keep::Make(Wish { name, subnet: subnet.name.clone(), address: Some(address) }),
            Err(error) => Keep::Unsafe(Why { reason: "OvnEipTaken", message: error.to_string() }),
        }
    }

    /// The address of an `OvnEip` that an `EIp` names as its child, if it is this namespace's to use.
    pub(crate) fn child(&self, namespace: &str, name: &str) -> Result<IpAddr, Error> {
        let refused = || Error::ForeignChild { name: name.to_owned(), namespace: namespace.to_owned() };
        let eip = self.eips.get(name).ok_or_else(refused)?;
        let port = self.networks.vpc_of(namespace).map(|vpc| format!("{}-{}", vpc.name, eip.subnet));
        let is_gateway = eip.is_router_port && port.as_deref() == Some(name);
        if !is_gateway && eip.namespace.as_deref() != Some(namespace) {
            return Err(refused());
        }
        let address = eip.addresses().next().filter(|_| eip.ready && !eip.leaving);
        address.ok_or_else(|| Error::ChildNotReady { name: name.to_owned() })
    }
}

/// The names for an owner's `OvnEip` of one family, in the order in which they are tried.
fn names(owner: &Owner, family: Family) -> impl Iterator<Item = String> {
    (0..MOST_NAMES).map(move |n| {
        let digest = marks::digest(&format!("{}/{}/{n}", owner.uid, family.word()));
        format!("{}{}-{digest}", eip::SERVICE_PREFIX, owner.key.name)
    })
}

/// What the names of another project are is not this tenant's business.
pub(super) fn holder(name: &str, eip: &Eip, namespace: &str) -> String {
    if eip.namespace.as_deref() == Some(namespace) { format!("OvnEip {name}") } else { "somebody else".to_owned() }
}

fn no_address(need: &Need, candidates: &[&Subnet]) -> String {
    let kind = need.network_type.as_deref();
    match candidates {
        [] => {
            let wanted = kind.map_or_else(
                || format!("the label {}", label::EXTERNAL_NETWORK_TYPE),
                |kind| format!("the label {}={kind}", label::EXTERNAL_NETWORK_TYPE),
            );
            format!("no Subnet with {} addresses has {wanted}", need.family.word())
        }
        subnets => {
            let names: Vec<_> = subnets.iter().map(|subnet| &*subnet.name).collect();
            format!("no {} address is left in Subnet {}", need.family.word(), names.join(", "))
        }
    }
}
