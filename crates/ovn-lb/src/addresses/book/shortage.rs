//! Addresses of the pools that nobody gets, and what is told where none is left.

use std::collections::BTreeSet;
use std::net::IpAddr;

use groundcrew_core::leader::Moment;
use ovsdb_client::StrMap;

use super::super::eip::EipKey;
use super::super::pool::{Family, Pool};
use super::super::taken::Taken;
use super::{Book, Need};
use crate::error::Error;
use crate::marks;

impl Book {
    /// Whether anything changed. What was given out before stays given out.
    pub(crate) fn avoid(&mut self, taken: Taken) -> bool {
        std::mem::replace(&mut self.taken, taken) != self.taken
    }

    /// The same for load balancers of our own whose Services are gone: they answer until they are removed as orphans.
    pub(crate) fn avoid_strays<'a>(&mut self, own: impl Iterator<Item = (IpAddr, &'a StrMap)>, cluster: &str) -> bool {
        let strays = own.filter(|(address, _)| self.would_stray(*address)).map(|(address, marks)| {
            let owner = marks::owner(marks, cluster);
            (address, owner.map(|owner| EipKey::of(&owner, Family::of(address))))
        });
        let strays = strays.collect();
        std::mem::replace(&mut self.strays, strays) != self.strays
    }

    /// Whether a load balancer of ours on this address is nobody's. Who never led is not asked.
    pub(crate) fn would_stray(&self, address: IpAddr) -> bool {
        self.begun && self.holders(address).next().is_none()
    }

    pub(crate) fn is_stray(&self, address: IpAddr) -> bool {
        self.strays.contains_key(&address)
    }

    /// The same for what the nodes have.
    pub(crate) fn avoid_nodes(&mut self, nodes: BTreeSet<IpAddr>) -> bool {
        std::mem::replace(&mut self.nodes, nodes) != self.nodes
    }

    /// What has this address though no `EIp` says so, and `eip` should not.
    pub(super) fn taken_by(&self, address: IpAddr, eip: &EipKey) -> Option<&'static str> {
        let node = || self.nodes.contains(&address).then_some("a node of the cluster");
        let unread = || {
            let held = self.unread.values().any(|held| *held == Some(address));
            held.then_some("an EIp that cannot be read")
        };
        let stray = || {
            let of = self.strays.get(&address)?.as_ref();
            (of != Some(eip)).then_some("a load balancer in OVN whose Service is gone, and which is removed soon")
        };
        self.taken.get(&address).copied().or_else(node).or_else(unread).or_else(stray)
    }

    /// Why none of these pools has an address for whoever needs one. Without numbers that change as others come and go:
    /// each would be a write and an Event for everybody who waits.
    pub(super) fn exhausted(&self, pools: &[&Pool], need: &Need, now: Moment) -> Error {
        let Need { eip, family, network_type, .. } = need;
        let namespace = eip.namespace.to_string();
        let mut near = pools.iter().filter(|pool| pool.has(*family));
        if let Some(error) = near.find_map(|pool| self.check_limit(&namespace, pool).err()) {
            return error;
        }
        let kind = network_type.as_ref().map(|network| format!(" of network type {network}")).unwrap_or_default();
        if pools.is_empty() {
            return Error::PoolEmpty { namespace, pools: 0, why: format!("no AddressPool{kind} serves it") };
        }
        let (word, count) = (family.word(), pools.len());
        let why = format!("no {word} address is left in {count} AddressPool(s){kind}");
        let is_in = |address| Family::of(address) == *family && pools.iter().any(|pool| pool.contains(address));
        let has_strays = self.strays.keys().any(|address| is_in(*address) && self.would_stray(*address));
        let why = if has_strays {
            format!("{why}; some are on load balancers in OVN whose Service is gone, until they are removed")
        } else {
            why
        };
        let is_free = |address| self.taken_by(address, eip).is_none() && self.holders(address).next().is_none();
        let resting = self.resting.keys().filter(|address| is_in(**address) && is_free(**address));
        match resting.filter_map(|address| self.rests(*address, now)).min() {
            None => Error::PoolEmpty { namespace, pools: count, why },
            Some(left) => {
                let why = format!("{why}; some were given back a while ago and rest for now");
                Error::PoolRests { namespace, why, left }
            }
        }
    }
}
