//! One `EIp` in the book: what it should say, and what it says.

use std::sync::Arc;

use groundcrew_core::provider::Owner;
use litemap::LiteMap;
use uuid::Uuid;

use super::super::eip::{Says, Seen, Whose};
use crate::few::Few;

#[derive(Debug, Clone)]
pub(super) struct Holding {
    pub(super) should: Says,
    pub(super) whose: Whose,
    pub(super) stored: Option<Seen>,
    /// The uids of its users, as far as they are known: an `EIp` has names only, and a Service that is made again under
    /// its old name is another user. What a restart forgets is told again by what is published, or by who asks.
    pub(super) uids: LiteMap<Arc<str>, Uuid>,
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
            uids: LiteMap::new(),
            is_left: false,
        }
    }

    pub(super) fn seen(seen: &Seen) -> Self {
        Self {
            should: seen.says.clone(),
            whose: seen.whose.clone(),
            stored: None,
            uids: LiteMap::new(),
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

    /// Takes what the API server has while we lead. What we serve says what we say, but for its users: of those only the
    /// Services that come and go here are ours to say. Returns whether there is something to write that nobody has asked
    /// for.
    pub(super) fn learn(&mut self, seen: Seen) -> bool {
        let before = self.stored.replace(seen);
        let mut says = self.should.clone();
        self.follow();
        let listed = before.map(|before| before.says.services).unwrap_or_default();
        let whose = &self.whose;
        // Whom we serve is put back where the `EIp` is ours. On another's an entry that somebody takes away is written again
        // when its Service asks, not in a race with him; and of names that mean nothing to us another controller of this
        // cluster, for another class, knows more.
        let mut services: Few<_> = says.services.iter().filter(|name| !listed.contains(*name)).cloned().collect();
        if *whose != Whose::Other {
            services.extend(says.services.iter().filter(|name| self.uid(name).is_some()).cloned());
        }
        let left = |name: &Arc<str>| listed.contains(name) && !says.services.contains(name);
        services.extend(self.should.services.iter().filter(|name| !left(name)).cloned());
        if *whose == Whose::Other {
            self.should.services = services;
            return false;
        }
        says.services = services;
        if says.address.is_none() {
            // A leader before us was late. What is written down is given out.
            (says.address, says.pool) = (self.should.address, self.should.pool.clone());
        }
        says.others = std::mem::take(&mut self.should.others);
        self.should = says;
        self.is_stored_otherwise()
    }

    pub(super) fn is_stored_otherwise(&self) -> bool {
        self.stored.as_ref().is_some_and(|seen| seen.says != self.should || seen.unmarked)
    }

    /// The Services that it says use it, or should say. One that has left is among them until that is written: the one
    /// who leaves again after a failed write finds what is left to do.
    pub(super) fn services(&self) -> Few<Arc<str>> {
        let stored = self.stored.iter().flat_map(|seen| &seen.says.services);
        self.should.services.iter().chain(stored).cloned().collect()
    }

    pub(super) fn join(&mut self, owner: &Owner) {
        self.should.services.insert(owner.key.name.clone());
        if self.uids.is_empty() {
            // Nearly always the only one; an empty one would make room for four.
            self.uids = LiteMap::with_capacity(1);
        }
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

    /// Whether it was made for this owner, and nobody else uses it.
    pub(super) fn is_own_of(&self, owner: &Owner) -> bool {
        let stored = self.stored.iter().flat_map(|seen| &seen.says.services);
        self.made_for() == Some(owner) && self.should.services.iter().chain(stored).all(|name| *name == owner.key.name)
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

    /// Whether this owner has left, and it does not say so yet.
    pub(super) fn is_to_be_left_by(&self, owner: &Owner) -> bool {
        let Some(stored) = &self.stored else { return false };
        let name = &*owner.key.name;
        let is_told = stored.says.services.contains(name) || (self.made_for() == Some(owner) && self.is_unused());
        self.is_left_by(owner) && !self.should.services.contains(name) && is_told
    }

    pub(super) fn is_known_in_use(&self) -> bool {
        let known = self.should.services.iter().any(|name| self.uids.contains_key(name));
        known || !self.should.others.is_empty()
    }

    pub(super) fn is_unused(&self) -> bool {
        self.should.services.is_empty() && self.should.others.is_empty()
    }
}
