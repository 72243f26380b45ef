//! What of the book matters to whoever reserves addresses outside: kube-ovn.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use groundcrew_core::key::ServiceKey;
use groundcrew_core::provider::Owner;

use super::super::eip::{EipKey, Whose};
use super::super::pool::Family;
use super::Book;
use crate::error::Error;

/// An `EIp` that has its address from us.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Made {
    /// The Service that it was made for, which may be gone while others share it; or a tenant's `EIp` itself.
    pub(crate) owner: Owner,
    pub(crate) address: IpAddr,
    /// What it says about where the address is from.
    pub(crate) reference: Arc<str>,
    /// It is a tenant's own.
    pub(crate) of_tenant: bool,
    /// Its address is that of an `OvnEip` that a tenant named, and not ours to look after.
    pub(crate) is_child: bool,
}

impl Book {
    pub(crate) fn made(&self, key: &EipKey) -> Option<Made> {
        let holding = self.holdings.get(key)?;
        let (owner, of_tenant) = match &holding.whose {
            Whose::Service(owner) => (owner.clone(), false),
            Whose::Tenant | Whose::Nobody => (self.self_owned(key).filter(|_| self.is_tenants(key))?, true),
            Whose::Other => return None,
        };
        let wish = holding.stored.as_ref().and_then(|seen| seen.wish.as_deref());
        let is_child = wish.is_some_and(|wish| wish.child_ref.is_some());
        Some(Made {
            owner,
            address: holding.should.address?,
            reference: holding.should.pool.clone(),
            of_tenant,
            is_child,
        })
    }

    /// A tenant's `EIp` as the owner of what is made for it.
    pub(crate) fn self_owned(&self, key: &EipKey) -> Option<Owner> {
        Some(Owner { key: ServiceKey::new(key.namespace.clone(), key.name.clone()), uid: self.uid(key)? })
    }

    /// Whether this is a tenant's `EIp` that has no address yet. Of one that has, what it refers to counts.
    pub(crate) fn is_awaited_by(&self, owner: &Owner) -> bool {
        let key = EipKey { namespace: owner.key.namespace.clone(), name: owner.key.name.clone() };
        self.is_tenants(&key) && self.self_owned(&key).as_ref() == Some(owner) && self.address(&key).is_none()
    }

    /// The same for the `EIp` by which this owner has this address.
    pub(crate) fn made_on(&self, owner: &Owner, address: IpAddr) -> Option<Made> {
        let key = self.held(owner, Family::of(address)).or_else(|| self.listed(owner, address))?;
        self.made(&key).filter(|made| made.address == address)
    }

    /// Addresses that are known by their Services alone: no `EIp` says where they are from.
    pub(crate) fn imported(&self) -> Vec<(EipKey, IpAddr)> {
        let promised = self.holdings.iter().filter(|(_, holding)| holding.stored.is_none());
        promised.filter_map(|(key, holding)| Some((key.clone(), holding.should.address?))).collect()
    }

    /// The `EIp` says from now on that its address is from there.
    pub(crate) fn refer(&mut self, key: &EipKey, reference: &Arc<str>) {
        self.change(key, |holding| {
            if holding.should.pool != *reference {
                holding.should.pool = reference.clone();
            }
        });
    }

    /// Whether an `EIp` is from there, where `owner` is whom that was made for and `addresses` are its own. `but` does not
    /// count.
    pub(crate) fn refers(&self, owner: &Owner, reference: &str, addresses: &[IpAddr], but: Option<&EipKey>) -> bool {
        let [v4, v6] = [Family::V4, Family::V6].map(|family| EipKey::of(owner, family));
        let own = [v4, v6, EipKey { namespace: owner.key.namespace.clone(), name: owner.key.name.clone() }];
        let holders = addresses.iter().flat_map(|address| self.holders(*address));
        let keys = own.iter().chain(holders).filter(|key| but != Some(*key));
        let mut others = keys.filter_map(|key| self.holdings.get(key));
        others.any(|holding| {
            // Until the EIp is written anew, what it says counts, too.
            let says = holding.stored.iter().map(|seen| &seen.says).chain([&holding.should]);
            says.into_iter().any(|says| *says.pool == *reference)
        })
    }

    /// Where all the addresses are from.
    pub(crate) fn references(&self) -> BTreeSet<&str> {
        let stored = self.holdings.values().filter_map(|holding| Some(&holding.stored.as_ref()?.says));
        let should = self.holdings.values().map(|holding| &holding.should);
        stored.chain(should).map(|says| &*says.pool).collect()
    }

    /// Refuses an address that somebody uses, whatever its source says.
    pub(crate) fn check_unused(&self, address: IpAddr, namespace: &str) -> Result<(), Error> {
        let leaving = |key: &&EipKey| {
            self.holdings.get(*key).is_some_and(|holding| holding.made_for().is_some() && holding.is_unused())
        };
        match self.holders(address).find(|key| !leaving(key)) {
            Some(_) => self.check_free(address, namespace),
            None => Ok(()),
        }
    }

    /// The Services that use this address.
    pub(crate) fn users_of(&self, address: IpAddr) -> Vec<ServiceKey> {
        self.holders(address).flat_map(|key| self.users(key)).collect()
    }

    /// The tenants' own that have this address.
    pub(crate) fn tenants_on(&self, address: IpAddr) -> Vec<EipKey> {
        self.holders(address).filter(|key| self.is_tenants(key)).cloned().collect()
    }

    /// The Services of a namespace that have an address.
    pub(crate) fn services_of(&self, namespace: &str) -> impl Iterator<Item = ServiceKey> {
        let from = ServiceKey::new(namespace, "");
        let keys = self.by_service.range(from..).map(|(key, _)| key);
        keys.take_while(move |key| *key.namespace == *namespace).cloned()
    }
}
