//! Services that are served on an `EIp` which they name.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use groundcrew_api::names::annotation::{BIND_ON_DEFAULT_GW_EIP, BIND_ON_EIP, EXTERNAL_NETWORK_TYPE};
use groundcrew_api::names::eip::DEFAULT_GATEWAY;
use groundcrew_core::key::ServiceKey;
use groundcrew_core::leader::Moment;
use groundcrew_core::provider::{AddressAsk, Beside, Caveat, Owner};

use super::super::eip::{EipKey, Seen, Whose};
use super::super::pool::Family;
use super::Book;
use crate::error::Error;

/// The `EIp` of its namespace that a Service names.
pub(crate) fn bound_to(annotations: &BTreeMap<Box<str>, Box<str>>) -> Option<&str> {
    let value = |name: &str| annotations.get(name).map(|value| value.trim()).filter(|value| !value.is_empty());
    let gateway = || (value(BIND_ON_DEFAULT_GW_EIP) == Some("true")).then_some(DEFAULT_GATEWAY);
    value(BIND_ON_EIP).or_else(gateway)
}

impl Book {
    /// The `EIp` that this Service names, if it can be used for this family. `None` where it has another one, and the
    /// Service wants both.
    pub(super) fn bindable(&self, ask: &AddressAsk, name: &str, family: Family) -> Result<Option<EipKey>, Error> {
        let key = EipKey { namespace: ask.owner.key.namespace.clone(), name: name.into() };
        let (eip, namespace) = (name.to_owned(), key.namespace.to_string());
        let found = self.holdings.get(&key);
        let Some((holding, seen)) = found.and_then(|holding| Some((holding, holding.stored.as_ref()?))) else {
            return Err(Error::EipMissing { eip, namespace });
        };
        if holding.made_for().is_some_and(|made_for| *made_for != ask.owner) {
            return Err(Error::EipOfService { eip });
        }
        if seen.exclusive {
            return Err(Error::EipExclusive { eip });
        }
        let trouble = || holding.should.trouble.as_ref().map(|trouble| trouble.message.to_string());
        let address = match holding.should.address {
            _ if seen.deleting => return Err(Error::EipNotReady { eip, why: "it is being deleted".into() }),
            Some(address) if seen.ready => address,
            _ => {
                let why = trouble().unwrap_or_else(|| "it has no address yet".into());
                return Err(Error::EipNotReady { eip, why });
            }
        };
        if Family::of(address) == family {
            return Ok(Some(key));
        }
        match Family::in_order(ask.families) {
            [_] => Err(Error::EipFamily { eip, address, wanted: family.word() }),
            _ => Ok(None),
        }
    }

    /// A Service that has not published its address yet may still name another `EIp`. Returns those that it leaves, which
    /// have to be written: those as well that it left before, while that is not written.
    pub(crate) fn unbind(&mut self, ask: &AddressAsk, now: Moment) -> Vec<EipKey> {
        let mut left = self.to_leave(ask);
        left.retain(|key| self.part(key, &ask.owner, now));
        left
    }

    /// The `EIp`s of which [`Self::unbind`] takes this Service.
    pub(crate) fn to_leave(&self, ask: &AddressAsk) -> Vec<EipKey> {
        let bound = bound_to(&ask.annotations);
        let named = bound.map(|name| EipKey { namespace: ask.owner.key.namespace.clone(), name: name.into() });
        let named_family = named.as_ref().and_then(|key| self.address(key)).map(Family::of);
        let used = self.by_service.get(&ask.owner.key).into_iter().flatten();
        let left = used.filter(|key| {
            let Some(holding) = self.holdings.get(*key) else { return false };
            let is_unwritten = || named.is_some() && holding.is_to_be_left_by(&ask.owner);
            if !holding.is_used_by(&ask.owner) && !is_unwritten() {
                return false;
            }
            let Some(address) = holding.should.address.filter(|address| !ask.current.contains(address)) else {
                return false;
            };
            match (&named, &holding.whose) {
                (Some(named), _) if named == *key => false,
                (Some(_), Whose::Service(_)) => named_family == Some(Family::of(address)),
                (None, Whose::Service(_)) => false,
                (Some(_), _) => true,
                (None, _) => ask.share_with.is_none(),
            }
        });
        left.cloned().collect()
    }

    /// The `EIp`s by which a Service has addresses of families that it does not ask for, or has left while that is not
    /// written: whoever could not write it tries again.
    fn surplus(&self, ask: &AddressAsk) -> Vec<EipKey> {
        let used = self.by_service.get(&ask.owner.key).into_iter().flatten().cloned();
        let own = [Family::V4, Family::V6].map(|family| EipKey::of(&ask.owner, family));
        let mut surplus: BTreeSet<_> = used.chain(own).collect();
        surplus.retain(|key| {
            let Some(holding) = self.holdings.get(key) else { return false };
            let is_odd = holding.should.address.is_some_and(|address| !ask.families.contains(address));
            is_odd && (holding.is_used_by(&ask.owner) || holding.is_to_be_left_by(&ask.owner))
        });
        surplus.into_iter().collect()
    }

    pub(crate) fn has_surplus(&self, ask: &AddressAsk) -> bool {
        !self.surplus(ask).is_empty()
    }

    /// The Service has become one of fewer families. Returns what it leaves, which has to be written.
    pub(crate) fn leave_surplus(&mut self, ask: &AddressAsk, now: Moment) -> Vec<EipKey> {
        let mut left = self.surplus(ask);
        left.retain(|key| self.part(key, &ask.owner, now));
        left
    }

    /// Whether this Service is served on the `EIp` of this name.
    pub(crate) fn is_on(&self, owner: &Owner, name: &str) -> bool {
        let key = EipKey { namespace: owner.key.namespace.clone(), name: name.into() };
        let holding = self.holdings.get(&key);
        // Who never led does not know all uids.
        holding.is_some_and(|h| h.is_used_by(owner) || (!self.begun && h.lists(owner)))
    }

    /// Whether this Service uses the address.
    pub(crate) fn holds(&self, owner: &Owner, address: IpAddr) -> bool {
        let mut keys = self.by_service.get(&owner.key).into_iter().flatten();
        keys.any(|key| self.holdings.get(key).is_some_and(|h| h.should.address == Some(address) && h.lists(owner)))
    }

    /// Whether nobody else can answer on the addresses of this Service: those that it has are its own.
    pub(crate) fn is_alone(&self, owner: &Owner) -> bool {
        let mut keys = self.by_service.get(&owner.key).into_iter().flatten();
        keys.all(|key| self.holdings.get(key).is_none_or(|holding| holding.is_own_of(owner)))
    }

    /// Who uses the `EIp`s that this Service uses, and the one of this name. Nobody where it has its own for itself.
    pub(crate) fn beside(&self, owner: &Owner, named: Option<&str>) -> Beside {
        let namespace = &owner.key.namespace;
        let named = named.map(|name| EipKey { namespace: namespace.clone(), name: name.into() });
        let used = self.by_service.get(&owner.key).into_iter().flatten();
        // A name alone may be that of a Service before it.
        let used = used.filter(|key| self.holdings.get(*key).is_some_and(|holding| holding.is_used_by(owner)));
        let mut beside = Beside::default();
        for key in used.chain(&named) {
            let Some(holding) = self.holdings.get(key).filter(|holding| !holding.is_own_of(owner)) else { continue };
            let users = holding.should.services.iter().filter_map(|name| {
                Some(Owner { key: ServiceKey::new(namespace.clone(), name.clone()), uid: holding.uid(name)? })
            });
            beside.services.extend(users);
            beside.names.push(key.name.clone());
        }
        beside
    }

    /// Whether an `EIp` has this address, and none that has it says that it is this Service's.
    pub(crate) fn is_anothers(&self, owner: &Owner, address: IpAddr) -> bool {
        self.holders(address).next().is_some() && self.listed(owner, address).is_none()
    }

    /// The addresses that this Service's name stands on.
    pub(crate) fn said_of(&self, owner: &Owner) -> Vec<IpAddr> {
        let keys = self.by_service.get(&owner.key).into_iter().flatten();
        let listed = keys.filter_map(|key| self.holdings.get(key)).filter(|holding| holding.lists(owner));
        listed.filter_map(|holding| holding.should.address).collect()
    }

    /// What a served Service asks for now and does not get, because a living address does not change.
    pub(crate) fn kept(&self, ask: &AddressAsk) -> Option<Caveat> {
        if ask.current.is_empty() {
            return None;
        }
        let held: Vec<_> = ask.current.iter().filter_map(|address| self.listed(&ask.owner, *address)).collect();
        let held_address = |family| ask.current.iter().find(|address| Family::of(**address) == family);
        let asked = match bound_to(&ask.annotations) {
            Some(name) if held.iter().any(|key| *key.name == *name) => return None,
            Some(name) => format!("EIp {name}"),
            None if held.iter().any(|key| self.is_bound(key)) && ask.share_with.is_none() => {
                "an address of its own".to_owned()
            }
            None => {
                let other = |asked: &&IpAddr| held_address(Family::of(**asked)).is_some_and(|has| has != *asked);
                match ask.requested.iter().find(other) {
                    Some(address) => address.to_string(),
                    None => format!("the network type {}", self.other_network(ask, &held)?),
                }
            }
        };
        let current = ask.current.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let message = format!(
            "stays on {current}, as a living address does not change; to get {asked}, delete the Service and make it again"
        );
        Some(Caveat { reason: "AddressKept", message, stops: false })
    }

    /// What a served Service should know about an `EIp` of ours that somebody has deleted: it goes when the Service does.
    pub(crate) fn torn(&self, ask: &AddressAsk) -> Option<Caveat> {
        let is_torn = |key: &EipKey| {
            let holding = self.holdings.get(key).filter(|holding| holding.whose != Whose::Other);
            holding.is_some_and(|holding| holding.stored.as_ref().is_some_and(|seen| seen.deleting))
        };
        let held = |address: &IpAddr| self.listed(&ask.owner, *address);
        let EipKey { name, .. } = ask.current.iter().filter_map(held).find(is_torn)?;
        let message = format!(
            "somebody has deleted EIp {name}; it stays, with its address, as long as a Service uses it, and no other one can \
             be served on it"
        );
        Some(Caveat { reason: "EipDeleted", message, stops: false })
    }

    /// Whether somebody else than a Service of ours asked for this one.
    fn is_bound(&self, key: &EipKey) -> bool {
        let goes_with_its_service = |seen: &Seen| seen.delete_released;
        self.holdings.get(key).is_some_and(|holding| {
            holding.whose == Whose::Tenant && !holding.stored.as_ref().is_some_and(goes_with_its_service)
        })
    }

    /// The network type that a Service names, if its address is known to be of another.
    fn other_network<'a>(&self, ask: &'a AddressAsk, held: &[EipKey]) -> Option<&'a str> {
        let asked = &**ask.annotations.get(EXTERNAL_NETWORK_TYPE)?;
        let pools = held.iter().filter_map(|key| self.pools.get(&self.holdings.get(key)?.should.pool));
        let other = pools.filter_map(|pool| pool.network_type()).any(|has| has != asked);
        other.then_some(asked)
    }
}
