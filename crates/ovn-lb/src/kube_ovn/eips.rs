//! Every `OvnEip` of the cluster, as far as it matters here, and who has which address by them. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use groundcrew_api::kube_ovn::OvnEip;
use groundcrew_api::names::{annotation, finalizer, label};
use groundcrew_core::key::ServiceKey;
use groundcrew_core::leader::Moment;
use groundcrew_core::provider::Owner;
use uuid::Uuid;

use crate::addresses::Family;

/// One `OvnEip` as the API server has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Eip {
    pub(crate) uid: Uuid,
    pub(crate) version: Box<str>,
    pub(crate) subnet: Arc<str>,
    /// The address of a router port. kube-ovn deletes the port with the object.
    pub(crate) is_router_port: bool,
    /// What was asked for; once it is assigned, what kube-ovn wrote over it. Of an IPv6 address in the spec it takes no
    /// notice.
    pub(crate) asked: Option<Ipv4Addr>,
    /// What was assigned. The spec may say something else by now, and nobody acts on that.
    pub(crate) v4: Option<Ipv4Addr>,
    pub(crate) v6: Option<Ipv6Addr>,
    /// The address may be used. It is told before this is.
    pub(crate) ready: bool,
    /// It is being deleted, which frees its address at once, whatever finalizers it has.
    pub(crate) leaving: bool,
    /// kube-ovn has to let go of it before it can go.
    pub(crate) is_held: bool,
    /// Set if this cluster made it, and for whom.
    pub(crate) owner: Option<Owner>,
    /// It has the mark of another cluster.
    pub(crate) is_others: bool,
    /// The namespace that it belongs to by our mark or by kube-dc's. Tenants cannot write either.
    pub(crate) namespace: Option<Arc<str>>,
    /// The EIp that kube-dc has it for.
    pub(crate) kube_dc: Option<Box<KubeDc>>,
}

/// kube-dc's marks. Tenants cannot write them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KubeDc {
    /// `{namespace}.{name}` of the EIp.
    pub(crate) eip: Box<str>,
    /// It was made for that EIp and goes with it; else it was there before.
    pub(crate) made: bool,
}

impl Eip {
    /// Name and state; `None` only for an object that no API server sends.
    pub(crate) fn read(object: &OvnEip, cluster: &str) -> Option<(Arc<str>, Self)> {
        let meta = &object.metadata;
        let labels = meta.labels.as_ref();
        let mark = |name: &str| labels.and_then(|labels| labels.get(name));
        let owner = || {
            mark(label::CLUSTER).filter(|value| *value == cluster)?;
            let (namespace, name) = meta.annotations.as_ref()?.get(annotation::OWNER)?.split_once('/')?;
            Some(Owner { key: ServiceKey::new(namespace, name), uid: mark(label::OWNER_UID)?.parse().ok()? })
        };
        let owner = owner();
        let theirs = mark(label::EIP).filter(|value| value.contains('.'));
        let made = meta.annotations.iter().flatten().any(|(key, _)| key == annotation::OVN_EIP_CREATED_BY_EIP);
        let kube_dc = theirs.map(|eip| Box::new(KubeDc { eip: eip.as_str().into(), made }));
        let theirs = || Some(theirs?.split_once('.')?.0.into());
        let status = object.status.clone().unwrap_or_default();
        let is_others = mark(label::CLUSTER).is_some_and(|value| value != cluster);
        let eip = Self {
            uid: meta.uid.as_deref()?.parse().ok()?,
            version: meta.resource_version.as_deref()?.into(),
            subnet: object.spec.external_subnet.as_deref().unwrap_or_default().into(),
            is_router_port: object.spec.kind.as_deref() == Some("lrp"),
            asked: parsed(object.spec.v4_ip.as_deref()),
            v4: parsed(status.v4_ip.as_deref()),
            v6: parsed(status.v6_ip.as_deref()),
            ready: status.ready,
            leaving: meta.deletion_timestamp.is_some(),
            is_held: meta.finalizers.iter().flatten().any(|f| f == finalizer::KUBE_OVN),
            namespace: owner.as_ref().map(|owner| owner.key.namespace.clone()).or_else(theirs),
            owner,
            is_others,
            kube_dc,
        };
        Some((meta.name.as_deref()?.into(), eip))
    }

    pub(crate) fn address(&self, family: Family) -> Option<IpAddr> {
        match family {
            Family::V4 => self.v4.map(Into::into),
            Family::V6 => self.v6.map(Into::into),
        }
    }

    pub(crate) fn asked(&self, family: Family) -> Option<IpAddr> {
        match family {
            Family::V4 => self.asked.map(Into::into),
            Family::V6 => None,
        }
    }

    pub(crate) fn addresses(&self) -> impl Iterator<Item = IpAddr> + use<> {
        self.v4.map(IpAddr::from).into_iter().chain(self.v6.map(IpAddr::from))
    }

    /// kube-ovn has said nothing at all: not that it failed, and not why.
    pub(crate) fn is_silent(&self) -> bool {
        !self.ready && self.v4.is_none() && self.v6.is_none()
    }

    /// There is, or will be in a moment, a router port of this name.
    pub(crate) fn is_port(&self) -> bool {
        self.is_router_port && !self.leaving
    }

    /// The Subnet and the namespace that it counts for. The address of a router is the project's own, and one that is on its
    /// way out is free already.
    fn counts_for(&self) -> Option<(Arc<str>, Arc<str>)> {
        let namespace = self.namespace.clone().filter(|_| !self.leaving && !self.is_router_port)?;
        Some((self.subnet.clone(), namespace))
    }

    fn says_the_same(&self, other: &Self) -> bool {
        *self == Self { version: self.version.clone(), ..other.clone() }
    }
}

fn parsed<T: std::str::FromStr>(text: Option<&str>) -> Option<T> {
    text?.parse().ok()
}

/// An `OvnEip` and since when it has been as it is.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) eip: Eip,
    /// When it was first seen in its present state: waiting, ready, or on its way out.
    pub(crate) since: Moment,
    /// When it was last changed so that kube-ovn looks at it.
    pub(crate) touched: Option<Moment>,
    /// Whether its Service has been woken because kube-ovn is silent.
    pub(crate) told: bool,
}

/// What a change means to others.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct News {
    /// The Service whose mark it carries or carried.
    pub(crate) owner: Option<ServiceKey>,
    /// Addresses that somebody has now, or has no longer.
    pub(crate) addresses: BTreeSet<IpAddr>,
    /// An address has become free.
    pub(crate) freed: bool,
    /// A router is connected to a network, or is not any more.
    pub(crate) connected: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Eips {
    known: BTreeMap<Arc<str>, Known>,
    /// By those that hold them: one that is on its way out holds nothing.
    by_address: BTreeSet<(IpAddr, Arc<str>)>,
    /// Those of this cluster by the uid of whom they were made for.
    by_owner: BTreeSet<(Uuid, Arc<str>)>,
    /// How many hold an address, by Subnet.
    held: BTreeMap<Arc<str>, u64>,
    /// How many hold one or wait for one, by Subnet and namespace.
    used: BTreeMap<(Arc<str>, Arc<str>), usize>,
    /// Those of this cluster that wait for kube-ovn, to be served or to go.
    unsettled: BTreeSet<Arc<str>>,
    /// Those that went while a list was under way, in which they may still be.
    gone: Option<BTreeSet<Uuid>>,
}

impl Eips {
    pub(crate) fn list_begins(&mut self) {
        self.gone = Some(BTreeSet::new());
    }

    pub(crate) fn list_ends(&mut self) {
        self.gone = None;
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Eip> {
        self.known.get(name).map(|known| &known.eip)
    }

    /// Those that were made for this uid.
    pub(crate) fn of(&self, uid: Uuid) -> impl Iterator<Item = (&Arc<str>, &Known)> {
        let from = self.by_owner.range((uid, "".into())..);
        let names = from.take_while(move |(other, _)| *other == uid).map(|(_, name)| name);
        names.filter_map(|name| Some((name, self.known.get(name)?)))
    }

    /// Those that hold this address.
    pub(crate) fn holders(&self, address: IpAddr) -> impl Iterator<Item = (&Arc<str>, &Eip)> {
        let from = self.by_address.range((address, "".into())..);
        let names = from.take_while(move |(other, _)| *other == address).map(|(_, name)| name);
        names.filter_map(|name| Some((name, self.get(name)?)))
    }

    /// How many addresses of this Subnet are held.
    pub(crate) fn held(&self, subnet: &str) -> u64 {
        self.held.get(subnet).copied().unwrap_or_default()
    }

    /// How many of this Subnet a namespace has, or waits for.
    pub(crate) fn used(&self, subnet: &str, namespace: &str) -> usize {
        let place: (Arc<str>, Arc<str>) = (subnet.into(), namespace.into());
        self.used.get(&place).copied().unwrap_or_default()
    }

    pub(crate) fn ours(&self) -> impl Iterator<Item = (&Arc<str>, &Owner)> {
        let names = self.by_owner.iter().map(|(_, name)| name);
        names.filter_map(|name| Some((name, self.get(name)?.owner.as_ref()?)))
    }

    pub(crate) fn unsettled(&self) -> impl Iterator<Item = (&Arc<str>, &Known)> {
        self.unsettled.iter().filter_map(|name| Some((name, self.known.get(name)?)))
    }

    pub(crate) fn uids(&self) -> BTreeMap<Arc<str>, Uuid> {
        self.known.iter().map(|(name, known)| (name.clone(), known.eip.uid)).collect()
    }

    pub(crate) fn mark(&mut self, name: &str, change: impl FnOnce(&mut Known)) {
        if let Some(known) = self.known.get_mut(name) {
            change(known);
        }
    }

    /// Takes what the API server has. A version older than the known one is old news.
    pub(crate) fn put(&mut self, name: Arc<str>, eip: Eip, now: Moment) -> News {
        if self.gone.as_ref().is_some_and(|gone| gone.contains(&eip.uid)) {
            return News::default();
        }
        let before = self.known.get(&name).map(|known| &known.eip);
        if before.is_some_and(|known| known.uid == eip.uid && is_older(&eip.version, &known.version)) {
            return News::default();
        }
        if before.is_some_and(|known| known.says_the_same(&eip)) {
            self.mark(&name, |known| known.eip.version = eip.version);
            return News::default();
        }
        let before = self.take(&name);
        let news = News::of(before.as_ref().map(|known| &known.eip), Some(&eip));
        let same = before.filter(|known| {
            let was = &known.eip;
            (was.uid, was.ready, was.leaving) == (eip.uid, eip.ready, eip.leaving)
        });
        let known = match same {
            Some(known) => Known { eip, ..known },
            None => Known { eip, since: now, touched: None, told: false },
        };
        self.list(&name, &known.eip);
        self.known.insert(name, known);
        news
    }

    /// The object with this uid is gone.
    pub(crate) fn remove(&mut self, name: &str, uid: Uuid) -> News {
        if let Some(gone) = &mut self.gone {
            gone.insert(uid);
        }
        if self.get(name).is_none_or(|eip| eip.uid != uid) {
            return News::default();
        }
        let before = self.take(name);
        News::of(before.as_ref().map(|known| &known.eip), None)
    }

    fn take(&mut self, name: &str) -> Option<Known> {
        let (name, known) = self.known.remove_entry(name)?;
        if !known.eip.leaving {
            for address in known.eip.addresses() {
                self.by_address.remove(&(address, name.clone()));
            }
            if known.eip.addresses().next().is_some()
                && let Some(held) = self.held.get_mut(&known.eip.subnet)
            {
                *held -= 1;
                if *held == 0 {
                    self.held.remove(&known.eip.subnet);
                }
            }
        }
        if let Some(place) = known.eip.counts_for()
            && let Some(used) = self.used.get_mut(&place)
        {
            *used -= 1;
            if *used == 0 {
                self.used.remove(&place);
            }
        }
        if let Some(owner) = &known.eip.owner {
            self.by_owner.remove(&(owner.uid, name.clone()));
        }
        self.unsettled.remove(&name);
        Some(known)
    }

    fn list(&mut self, name: &Arc<str>, eip: &Eip) {
        if !eip.leaving {
            self.by_address.extend(eip.addresses().map(|address| (address, name.clone())));
            if eip.addresses().next().is_some() {
                *self.held.entry(eip.subnet.clone()).or_default() += 1;
            }
        }
        if let Some(place) = eip.counts_for() {
            *self.used.entry(place).or_default() += 1;
        }
        if let Some(owner) = &eip.owner {
            self.by_owner.insert((owner.uid, name.clone()));
            if eip.leaving || !eip.ready {
                self.unsettled.insert(name.clone());
            }
        }
    }
}

impl News {
    fn of(before: Option<&Eip>, after: Option<&Eip>) -> Self {
        let held = |eip: Option<&Eip>| -> BTreeSet<IpAddr> {
            eip.filter(|eip| !eip.leaving).into_iter().flat_map(Eip::addresses).collect()
        };
        let (had, has) = (held(before), held(after));
        let owner = after.or(before).and_then(|eip| eip.owner.as_ref()).map(|owner| owner.key.clone());
        Self {
            owner: owner.or_else(|| Some(before?.owner.as_ref()?.key.clone())),
            freed: had.difference(&has).next().is_some(),
            connected: before.is_some_and(Eip::is_port) != after.is_some_and(Eip::is_port),
            addresses: had.symmetric_difference(&has).copied().collect(),
        }
    }
}

/// Versions are numbers in every Kubernetes there is; one that is not is taken for news.
fn is_older(version: &str, than: &str) -> bool {
    matches!((version.parse::<u64>(), than.parse::<u64>()), (Ok(version), Ok(than)) if version < than)
}
