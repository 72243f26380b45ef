//! One `EIp` in the book: what it should say, and what it says.

use std::collections::BTreeSet;
use std::sync::Arc;

use groundcrew_core::provider::Owner;

use super::super::eip::{Says, Seen};

#[derive(Debug, Clone)]
pub(super) struct Holding {
    pub(super) should: Says,
    pub(super) made_for: Option<Owner>,
    pub(super) stored: Option<Seen>,
}

impl Holding {
    /// One that is not written yet, and says nothing yet.
    pub(super) fn promise(owner: &Owner) -> Self {
        Self { should: Says::default(), made_for: Some(owner.clone()), stored: None }
    }

    pub(super) fn seen(seen: &Seen) -> Self {
        Self { should: seen.says.clone(), made_for: seen.made_for.clone(), stored: None }
    }

    /// Takes what is stored for what should be.
    pub(super) fn follow(&mut self) {
        if let Some(seen) = &self.stored {
            self.should = seen.says.clone();
            self.made_for = seen.made_for.clone();
        }
    }

    pub(super) fn is_stored_otherwise(&self) -> bool {
        self.stored.as_ref().is_some_and(|seen| seen.says != self.should)
    }

    /// The Services that it says use it, or should say. One that has left is among them until that is written: the one
    /// who leaves again after a failed write finds what is left to do.
    pub(super) fn services(&self) -> BTreeSet<Arc<str>> {
        if self.made_for.is_none() {
            return BTreeSet::new();
        }
        let stored = self.stored.iter().flat_map(|seen| &seen.says.services);
        self.should.services.iter().chain(stored).cloned().collect()
    }

    /// Whether this owner may use it: it was made for him, or for another Service that shares it. A namesake from before
    /// is neither.
    pub(super) fn is_for(&self, owner: &Owner) -> bool {
        self.made_for.as_ref().is_some_and(|made_for| made_for.uid == owner.uid || made_for.key != owner.key)
    }

    pub(super) fn is_used_by(&self, owner: &Owner) -> bool {
        self.should.services.contains(&owner.key.name) && self.is_for(owner)
    }

    pub(super) fn is_unused(&self) -> bool {
        self.should.services.is_empty() && self.should.others.is_empty()
    }
}
