//! What the API server has, folded into the book.

use std::collections::{BTreeMap, BTreeSet};

use groundcrew_core::key::ServiceKey;
use groundcrew_core::leader::Moment;
use groundcrew_core::provider::Living;
use uuid::Uuid;

use super::super::eip::{self, EipKey, Says, Seen};
use super::Book;
use super::holding::Holding;

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
    pub(crate) fn observe(&mut self, seen: Seen) -> Vec<ServiceKey> {
        let key = seen.key.clone();
        if self.gone.contains(&seen.uid) {
            return Vec::new();
        }
        if let Some(holding) = self.holdings.get(&key) {
            let known = holding.stored.as_ref();
            if known.is_some_and(|known| eip::is_older(&seen.resource_version, &known.resource_version)) {
                return Vec::new();
            }
            if self.begun && holding.made_for.is_some() && seen.made_for != holding.made_for {
                // Somebody else's under the name of ours. It is not written to, and whoever needs the name is told.
                return Vec::new();
            }
        } else {
            if seen.made_for.is_some() && seen.let_go {
                return Vec::new();
            }
            self.holdings.insert(key.clone(), Holding::seen(&seen));
        }
        // Who leads says what ours say, but for users of other kinds; one of others says what they say.
        let begun = self.begun;
        let differs = self.change(&key, |holding| {
            let says = (begun && holding.made_for.is_some()).then(|| holding.should.clone());
            holding.stored = Some(seen);
            holding.follow();
            let Some(says) = says else { return false };
            let others = std::mem::take(&mut holding.should.others);
            holding.should = Says { others, ..says };
            holding.is_stored_otherwise()
        });
        if differs == Some(true) { self.users(&key) } else { Vec::new() }
    }

    /// The object with this uid is gone; returns the Services that must look again. While somebody uses the address it
    /// stays his, and the `EIp` is made anew.
    pub(crate) fn vanish(&mut self, key: &EipKey, uid: Uuid, now: Moment) -> Vec<ServiceKey> {
        self.gone.remove(&uid);
        if self.uid(key) != Some(uid) {
            return Vec::new();
        }
        let users = self.users(key);
        // Who never led has no promise to keep. And where nobody has asked or published in this term, the watch tells
        // late what another leader released; if it was an accident, the Service asks again while the address rests.
        if self.begun && self.holdings.get(key).is_some_and(Holding::is_known_in_use) {
            self.change(key, |holding| holding.stored = None);
        } else {
            self.forget(key, now);
        }
        users
    }

    /// We deleted the `EIp`. The watch may still tell how it was before.
    pub(crate) fn deleted(&mut self, key: &EipKey, now: Moment) {
        self.gone.extend(self.uid(key));
        self.forget(key, now);
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
        self.resting.retain(|_, until| !now.until(*until).is_zero());
        if self.holders(address).next().is_none() {
            self.resting.insert(address, now + self.rest);
        }
    }

    fn remove(&mut self, key: &EipKey) -> Option<Holding> {
        let holding = self.holdings.remove(key)?;
        self.unlist(key, holding.should.address, &holding.services());
        Some(holding)
    }

    fn users(&self, key: &EipKey) -> Vec<ServiceKey> {
        let names = self.holdings.get(key).into_iter().flat_map(|holding| &holding.should.services);
        names.map(|name| ServiceKey::new(key.namespace.clone(), name.clone())).collect()
    }
}
