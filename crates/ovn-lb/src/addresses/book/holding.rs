//! One `EIp` in the book: what it should say, and what it says.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use groundcrew_core::provider::Owner;
use uuid::Uuid;

use super::super::eip::{Says, Seen, Whose};

#[derive(Debug, Clone)]
pub(super) struct Holding {
    pub(super) should: Says,
    pub(super) whose: Whose,
    pub(super) stored: Option<Seen>,
    /// The uids of its users, as far as they are known: an `EIp` has names only, and a Service that is made again under
    /// its old name is another user. What a restart forgets is told again by what is published, or by who asks.
    pub(super) uids: BTreeMap<Arc<str>, Uuid>,
    /// Its last user left in this term. That nobody is written down as its user is no proof that nobody uses it.
    pub(super) is_left: bool,
}

impl Holding {
    /// One that is not written yet, and says nothing yet.
    pub(super) fn promise(owner: &Owner) -> Self {
        Self {
            should: Says::default(),
            whose: Whose::Service(owner.clone()),
            stored: None,
            uids: BTreeMap::new(),
            is_left: false,
        }
    }

    pub(super) fn seen(seen: &Seen) -> Self {
        Self {
            should: seen.says.clone(),
            whose: seen.whose.clone(),
            stored: None,
            uids: BTreeMap::new(),
            is_left: false,
        }
    }

    /// For whom this cluster made it.
    pub(super) fn made_for(&self) -> Option<&Owner> {
        match &self.whose {
            Whose::Service(owner) => Some(owner),
            Whose::Tenant | Whose::Nobody | Whose::Other => None,
        }
    }

    /// Takes what is stored for what should be.
    pub(super) fn follow(&mut self) {
        if let Some(seen) = &self.stored {
            self.should = seen.says.clone();
            self.whose = seen.whose.clone();
        }
    }

    /// Takes what the API server has while we lead. What we serve says what we say, but for users of other kinds; of
    /// others' only the Services that come and go here are ours to say. Returns whether there is something to write
    /// that nobody has asked for.
    pub(super) fn learn(&mut self, seen: Seen) -> bool {
        let before = self.stored.replace(seen);
        let says = self.should.clone();
        self.follow();
        if self.whose == Whose::Other {
            let listed = before.map(|before| before.says.services).unwrap_or_default();
            // An entry that somebody else takes away is written again when its Service asks, not in a race with him.
            self.should.services.extend(says.services.difference(&listed).cloned());
            self.should.services.retain(|name| says.services.contains(name) || !listed.contains(name));
            return false;
        }
        let others = std::mem::take(&mut self.should.others);
        let (address, pool) = match says.address {
            Some(_) => (says.address, says.pool),
            // A leader before us was late. What is written down is given out.
            None => (self.should.address, self.should.pool.clone()),
        };
        self.should = Says { address, pool, others, ..says };
        self.is_stored_otherwise()
    }

    pub(super) fn is_stored_otherwise(&self) -> bool {
        self.stored.as_ref().is_some_and(|seen| seen.says != self.should)
    }

    /// The Services that it says use it, or should say. One that has left is among them until that is written: the one
    /// who leaves again after a failed write finds what is left to do.
    pub(super) fn services(&self) -> BTreeSet<Arc<str>> {
        let stored = self.stored.iter().flat_map(|seen| &seen.says.services);
        self.should.services.iter().chain(stored).cloned().collect()
    }

    pub(super) fn join(&mut self, owner: &Owner) {
        self.should.services.insert(owner.key.name.clone());
        self.uids.insert(owner.key.name.clone(), owner.uid);
        self.is_left = false;
    }

    pub(super) fn part(&mut self, service: &str) {
        self.should.services.remove(service);
        self.is_left = self.is_unused();
    }

    /// The uid behind a name. Of somebody with the name of the one that it was made for, that one's is the likely one.
    pub(super) fn uid(&self, name: &str) -> Option<Uuid> {
        let maker = self.made_for().filter(|made_for| *made_for.key.name == *name);
        self.uids.get(name).copied().or(maker.map(|made_for| made_for.uid))
    }

    pub(super) fn is_used_by(&self, owner: &Owner) -> bool {
        self.should.services.contains(&owner.key.name) && self.uid(&owner.key.name) == Some(owner.uid)
    }

    /// Whether it lists this owner, or a namesake of whom nothing else is known.
    pub(super) fn lists(&self, owner: &Owner) -> bool {
        self.should.services.contains(&owner.key.name)
            && self.uids.get(&owner.key.name).is_none_or(|uid| *uid == owner.uid)
    }

    /// Whether this owner is or was a user, or the one that it was made for. A namesake that is known is neither.
    pub(super) fn is_left_by(&self, owner: &Owner) -> bool {
        let concerned = self.made_for().is_some() || self.services().contains(&owner.key.name);
        concerned && self.uid(&owner.key.name).is_none_or(|uid| uid == owner.uid)
    }

    pub(super) fn is_known_in_use(&self) -> bool {
        let known = self.should.services.iter().any(|name| self.uids.contains_key(name));
        known || !self.should.others.is_empty()
    }

    pub(super) fn is_unused(&self) -> bool {
        self.should.services.is_empty() && self.should.others.is_empty()
    }
}
