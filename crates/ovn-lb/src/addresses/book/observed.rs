//! What the API server has, folded into the book.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use groundcrew_api::eip::EIp;
use groundcrew_core::key::ServiceKey;
use groundcrew_core::leader::Moment;
use groundcrew_core::provider::{Living, Owner};
use uuid::Uuid;

use super::super::eip::{self, EipKey, Seen, Whose};
use super::holding::Holding;
use super::{Book, Rest};

impl Book {
    /// A term begins, with every `EIp` that there is. Promises of an earlier term are void: another process may have led
    /// since, and what it wrote and published is what counts. `unlisted` are those that were there before the list and
    /// are not in it.
    pub(crate) fn begin(
        &mut self,
        listed: Vec<Seen>,
        unlisted: &BTreeMap<EipKey, Uuid>,
        living: &[Living],
        now: Moment,
    ) {
        self.begun = false;
        for key in self.holdings.keys().cloned().collect::<Vec<_>>() {
            match self.uid(&key) {
                None => drop(self.remove(&key)),
                Some(uid) if unlisted.get(&key) == Some(&uid) => self.forget(&key, now),
                Some(_) => {
                    self.change(&key, |holding| {
                        holding.uids.clear();
                        holding.follow();
                    });
                }
            }
        }
        for seen in listed {
            self.observe(seen);
        }
        self.begun = true;
        self.import(living);
    }

    /// Takes what the API server has; returns the Services that must look again.
    pub(crate) fn observe(&mut self, mut seen: Seen) -> Vec<ServiceKey> {
        let key = seen.key.clone();
        self.readable(&key);
        if self.gone.contains(&seen.uid) {
            return Vec::new();
        }
        if let Some(holding) = self.holdings.get(&key) {
            let known = holding.stored.as_ref();
            if known.is_some_and(|known| eip::is_older(&seen.resource_version, &known.resource_version)) {
                return Vec::new();
            }
            if self.begun && holding.made_for().is_some() && seen.whose != holding.whose {
                if known.is_none_or(|known| known.uid != seen.uid) {
                    // Somebody else's under the name of ours. It is not written to, and whoever needs the name is told.
                    return Vec::new();
                }
                // The very one that we made, whatever is written on it now.
                (seen.whose, seen.unmarked) = (holding.whose.clone(), true);
            }
        } else {
            if seen.is_let_go() && matches!(seen.whose, Whose::Service(_) | Whose::Tenant) {
                return Vec::new();
            }
            self.holdings.insert(key.clone(), Box::new(Holding::seen(&seen)));
        }
        let (begun, deleting) = (self.begun, seen.deleting);
        let was_deleting = self.holdings.get(&key).and_then(|holding| Some(holding.stored.as_ref()?.deleting));
        let differs = self.change(&key, |holding| {
            if begun {
                return holding.learn(seen);
            }
            holding.stored = Some(seen);
            holding.follow();
            false
        });
        // That somebody deletes it is told to those who live on it.
        let is_torn = deleting && was_deleting == Some(false);
        if differs == Some(true) || is_torn { self.users(&key) } else { Vec::new() }
    }

    /// Whether somebody else's has the name of one that we make.
    pub(crate) fn is_in_the_way(&self, found: &EIp) -> bool {
        let Some(seen) = eip::read(found, &self.reader) else { return true };
        let Some(holding) = self.holdings.get(&seen.key) else { return false };
        let is_known = holding.stored.as_ref().is_some_and(|known| known.uid == seen.uid);
        holding.made_for().is_some() && holding.whose != seen.whose && !is_known
    }

    /// The object with this uid is gone; returns the Services that must look again. While somebody uses the address it
    /// stays his, and the `EIp` is made anew.
    pub(crate) fn vanish(&mut self, key: &EipKey, uid: Uuid, now: Moment) -> Vec<ServiceKey> {
        self.gone.remove(&uid);
        if self.uid(key) != Some(uid) {
            return Vec::new();
        }
        let users = self.users(key);
        let Some(holding) = self.holdings.get(key) else { return Vec::new() };
        // Who never led has no promise to keep. And where nobody has asked or published in this term, the watch tells
        // late what another leader released; if it was an accident, the Service asks again while the address rests.
        let kept = self.begun && holding.is_known_in_use();
        match holding.whose {
            Whose::Service(_) if kept => {
                // Nobody has deleted the one that is made anew.
                self.change(key, |holding| (holding.stored, holding.should.trouble) = (None, None));
            }
            Whose::Tenant if kept => self.bequeath(key, now),
            _ => self.forget(key, now),
        }
        users
    }

    /// A tenant's own was torn out from under its Services. The address stays theirs, on an `EIp` that is made for the
    /// first of them; under the name of the one that was torn out, where theirs have other addresses that others use.
    fn bequeath(&mut self, key: &EipKey, now: Moment) {
        let Some(holding) = self.holdings.get(key) else { return };
        let (address, pool) = (holding.should.address, holding.should.pool.clone());
        let owner = |(name, uid): (&Arc<str>, &Uuid)| Owner {
            key: ServiceKey::new(key.namespace.clone(), name.clone()),
            uid: *uid,
        };
        let heirs: Vec<_> = holding.uids.iter().map(owner).collect();
        self.forget(key, now);
        let (Some(address), Some(first)) = (address, heirs.first()) else { return };
        let own = heirs.iter().find_map(|heir| self.reserve(heir, address, pool.clone()).ok());
        let own = own.unwrap_or_else(|| {
            self.holdings.insert(key.clone(), Box::new(Holding::promise(first)));
            self.change(key, |holding| (holding.should.address, holding.should.pool) = (Some(address), pool));
            key.clone()
        });
        self.resting.remove(&address);
        for heir in &heirs {
            self.join(&own, heir);
        }
    }

    /// We deleted the `EIp` with this uid. The watch may still tell how it was before. It may have told the end of it already,
    /// and of another one under its name.
    pub(crate) fn deleted(&mut self, key: &EipKey, uid: Option<Uuid>, now: Moment) {
        if self.uid(key) == uid {
            self.gone.extend(uid);
            self.forget(key, now);
        }
    }

    pub(crate) fn gone(&self) -> BTreeSet<Uuid> {
        self.gone.clone()
    }

    /// A list that began after these were gone is complete and has none of them, so nothing more is told of them.
    pub(crate) fn bury(&mut self, gone: &BTreeSet<Uuid>) {
        self.gone.retain(|uid| !gone.contains(uid));
    }

    /// The `EIp` is gone for good, and its address rests.
    pub(super) fn forget(&mut self, key: &EipKey, now: Moment) {
        let Some(address) = self.remove(key).and_then(|holding| holding.should.address) else { return };
        self.resting.retain(|_, rest| !now.until(rest.until).is_zero());
        if self.holders(address).next().is_none() {
            let rest = Rest { until: now + self.rest, namespace: Some(key.namespace.clone()) };
            self.resting.insert(address, rest);
        }
    }

    fn remove(&mut self, key: &EipKey) -> Option<Box<Holding>> {
        let holding = self.holdings.remove(key)?;
        self.unlist(key, holding.should.address, &holding.services());
        Some(holding)
    }

    pub(super) fn users(&self, key: &EipKey) -> Vec<ServiceKey> {
        let names = self.holdings.get(key).into_iter().flat_map(|holding| &holding.should.services);
        names.map(|name| ServiceKey::new(key.namespace.clone(), name.clone())).collect()
    }
}
