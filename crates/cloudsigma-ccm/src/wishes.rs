//! What Services want of the addresses that they are on, for whoever places those.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use groundcrew_api::floating_ip::NatPort;
use groundcrew_core::key::ServiceKey;
use groundcrew_core::provider::{Frontend, Protocol, TrafficPolicy, Wanted};
use tokio::sync::watch;
use uuid::Uuid;

use crate::nat;

/// What one Service wants of one address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wish {
    pub(crate) service: ServiceKey,
    /// Nodes with a ready endpoint, where only those may hold it. Empty: none has, and any node will do as well.
    pub(crate) local: Option<BTreeSet<Arc<str>>>,
    /// A port on which somebody should answer who comes from outside.
    pub(crate) tcp_port: Option<u16>,
    /// What a node should do by itself with what arrives, for the addresses of either family.
    nat: [Vec<NatPort>; 2],
}

impl Wish {
    fn new(want: &Wanted, balance: bool) -> Self {
        let nodes = want.frontends.iter().flat_map(|frontend| &frontend.backends).filter_map(|b| b.node.clone());
        let local = (want.traffic_policy == TrafficPolicy::Local).then(|| nodes.collect());
        // Who may not connect from everywhere says nothing about the way.
        let open = want.source_ranges.is_empty();
        let answers =
            |frontend: &&Frontend| open && frontend.protocol == Protocol::Tcp && !frontend.backends.is_empty();
        let tcp_port = want.frontends.iter().find(answers).map(|frontend| frontend.port);
        let nat = if balance { [true, false].map(|v4| nat::ports(want, v4)) } else { Default::default() };
        Self { service: want.owner().key.clone(), local, tcp_port, nat }
    }
}

/// Kept from one look at a Service to the next; a restarted process fills it by looking at all of them.
#[derive(Debug)]
pub(crate) struct Wishes {
    of: Mutex<BTreeMap<IpAddr, BTreeMap<Uuid, Wish>>>,
    changed: watch::Sender<u64>,
    /// Whether nodes balance by themselves.
    balance: bool,
}

impl Wishes {
    pub(crate) fn new(balance: bool) -> Self {
        Self { of: Mutex::default(), changed: watch::Sender::new(0), balance }
    }

    /// An address of a family that is not asked for any more may still be published, and is wanted no more.
    pub(crate) fn set(&self, want: &Wanted) {
        let (uid, wish) = (want.owner().uid, Wish::new(want, self.balance));
        let is_asked_for = |address: &IpAddr| want.ask.families.contains(*address);
        let mut news = false;
        let mut of = self.lock();
        of.retain(|address, wishes| {
            if !is_asked_for(address) {
                news |= wishes.remove(&uid).is_some();
            }
            !wishes.is_empty()
        });
        for address in want.addresses.iter().filter(|address| is_asked_for(address)) {
            let before = of.entry(*address).or_default().insert(uid, wish.clone());
            news |= before.as_ref() != Some(&wish);
        }
        drop(of);
        if news {
            self.changed.send_modify(|count| *count += 1);
        }
    }

    /// The Service wants nothing any more.
    pub(crate) fn forget(&self, uid: Uuid) {
        self.lock().retain(|_, wishes| {
            wishes.remove(&uid);
            !wishes.is_empty()
        });
    }

    pub(crate) fn services(&self, address: IpAddr) -> Vec<ServiceKey> {
        self.lock().get(&address).into_iter().flat_map(BTreeMap::values).map(|wish| wish.service.clone()).collect()
    }

    /// A port of the address on which somebody should answer who comes from outside.
    pub(crate) fn tcp_port(&self, address: IpAddr) -> Option<u16> {
        self.lock().get(&address).into_iter().flat_map(BTreeMap::values).find_map(|wish| wish.tcp_port)
    }

    /// What a node should do by itself with what arrives at the address, for all who share it. `None` where one of them has
    /// not said yet what it wants: until then what is there stays.
    pub(crate) fn nat<'a>(&self, address: IpAddr, mut sharing: impl Iterator<Item = &'a Uuid>) -> Option<Vec<NatPort>> {
        let of = self.lock();
        let wishes = of.get(&address)?;
        if !sharing.all(|uid| wishes.contains_key(uid)) {
            return None;
        }
        let family = usize::from(address.is_ipv6());
        let mut ports: Vec<_> = wishes.values().flat_map(|wish| wish.nat[family].iter().cloned()).collect();
        ports.sort_by_key(|port| (port.protocol, port.port));
        Some(ports)
    }

    /// The nodes that may hold each address that somebody wants; `None` is any.
    pub(crate) fn all(&self) -> BTreeMap<IpAddr, Option<BTreeSet<Arc<str>>>> {
        self.lock().iter().map(|(address, wishes)| (*address, common(wishes.values()))).collect()
    }

    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<IpAddr, BTreeMap<Uuid, Wish>>> {
        self.of.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Nodes that serve all who share the address. Where there is none, a node that serves some of them is better than one
/// that serves nobody.
fn common<'a>(wishes: impl Iterator<Item = &'a Wish> + Clone) -> Option<BTreeSet<Arc<str>>> {
    let mut sets = wishes.filter_map(|wish| wish.local.as_ref()).filter(|nodes| !nodes.is_empty());
    let mut common = sets.next()?.clone();
    let mut some = common.clone();
    for nodes in sets {
        common.retain(|node| nodes.contains(node));
        some.extend(nodes.iter().cloned());
    }
    Some(if common.is_empty() { some } else { common })
}
