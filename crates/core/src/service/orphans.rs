//! Things outside that carry our mark and belong to no Service. Pure.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

use uuid::Uuid;

use crate::leader::Moment;
use crate::provider::{Listing, Owned, Owner};

/// How careful to be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Caution {
    /// How long an orphan must have been seen as one before it goes.
    pub(crate) age: Duration,
    /// How many may go in one round.
    pub(crate) limit: usize,
}

/// One round's answer.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Old enough, and few enough.
    pub(crate) release: Vec<Owner>,
    /// How many the brake held back; a wrong view of the cluster looks exactly like many orphans.
    pub(crate) braked: usize,
    /// All orphans of this round.
    pub(crate) found: usize,
}

/// Orphans by the time at which each was first seen as one.
#[derive(Debug, Default)]
pub(crate) struct Orphans {
    since: BTreeMap<Owner, Moment>,
    /// Those that are left and were told.
    told: BTreeSet<Owner>,
}

impl Orphans {
    /// `living` are the owners that may have something outside; both views must be complete for anything to go. They are
    /// known by their uids: what has the uid of one that lives and another name is no orphan but marked wrongly, and would
    /// take with it what he has.
    pub(crate) fn plan(
        &mut self,
        owned: &Listing<Owned>,
        living: &HashSet<Owner>,
        now: Moment,
        caution: Caution,
    ) -> Plan {
        let living: HashSet<Uuid> = living.iter().map(|owner| owner.uid).collect();
        let owners = owned.items.iter().map(|owned| &owned.owner);
        let orphaned: HashSet<&Owner> = owners.filter(|owner| !living.contains(&owner.uid)).collect();
        // One that is gone, or has its Service back, starts anew when it is seen again.
        if owned.complete {
            self.since.retain(|owner, _| orphaned.contains(owner));
            self.told.retain(|owner| orphaned.contains(owner));
        }
        for owner in &orphaned {
            self.since.entry((*owner).clone()).or_insert(now);
        }
        let mut plan = Plan { found: orphaned.len(), ..Plan::default() };
        if !owned.complete {
            return plan;
        }
        let mut due: Vec<_> = self.since.iter().filter(|(_, since)| **since + caution.age <= now).collect();
        due.sort_by_key(|(_, since)| **since);
        let due = due.into_iter();
        let used: HashSet<&Owner> = owned.items.iter().filter(|o| !o.unused).map(|o| &o.owner).collect();
        let (due, unused): (Vec<_>, Vec<_>) =
            due.map(|(owner, _)| owner.clone()).partition(|owner| used.contains(owner));
        if due.len() > caution.limit {
            plan.braked = due.len();
        } else {
            plan.release = due;
        }
        // Whoever can make such things must not be able to stop the rest; nor must those of them that cannot go.
        for owner in unused.into_iter().take(caution.limit) {
            self.since.insert(owner.clone(), now);
            plan.release.push(owner);
        }
        plan
    }

    /// Whether this one is to be told: once, as long as it is there.
    pub(crate) fn is_news(&mut self, owner: &Owner) -> bool {
        self.told.insert(owner.clone())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::key::ServiceKey;

    const AGE: Duration = Duration::from_mins(10);
    const CAUTION: Caution = Caution { age: AGE, limit: 3 };

    fn owner(n: u8) -> Owner {
        Owner { key: ServiceKey::new("ns", format!("s{n}")), uid: Uuid::from_u128(n.into()) }
    }

    fn listing(ids: impl IntoIterator<Item = u8>, complete: bool) -> Listing<Owned> {
        let row = |n| Owned { owner: owner(n), what: "row".into(), unused: false };
        Listing { items: ids.into_iter().map(row).collect(), complete }
    }

    #[test]
    fn an_orphan_goes_only_after_its_age() {
        let (mut orphans, now) = (Orphans::default(), Moment::now());
        let living = HashSet::new();
        assert_eq!(orphans.plan(&listing([1], true), &living, now, CAUTION).release, []);
        assert_eq!(orphans.plan(&listing([1], true), &living, now + AGE / 2, CAUTION).release, []);
        assert_eq!(orphans.plan(&listing([1], true), &living, now + AGE, CAUTION).release, [owner(1)]);
    }

    #[test]
    fn one_that_had_its_service_back_starts_anew() {
        let (mut orphans, now) = (Orphans::default(), Moment::now());
        orphans.plan(&listing([1], true), &HashSet::new(), now, CAUTION);
        orphans.plan(&listing([1], true), &HashSet::from([owner(1)]), now + AGE / 2, CAUTION);
        assert_eq!(orphans.plan(&listing([1], true), &HashSet::new(), now + AGE, CAUTION).release, []);
    }

    #[test]
    fn what_has_the_uid_of_one_that_lives_is_no_orphan_whatever_its_name() {
        let (mut orphans, now) = (Orphans::default(), Moment::now());
        let elsewhere = Owner { key: ServiceKey::new("ns", "s2"), ..owner(1) };
        let living = HashSet::from([elsewhere]);
        orphans.plan(&listing([1], true), &living, now, CAUTION);
        assert_eq!(orphans.plan(&listing([1], true), &living, now + AGE, CAUTION), Plan::default());
    }

    #[test]
    fn the_brake_holds_all_of_too_many() {
        let (mut orphans, now) = (Orphans::default(), Moment::now());
        orphans.plan(&listing(0..10, true), &HashSet::new(), now, CAUTION);
        let plan = orphans.plan(&listing(0..10, true), &HashSet::new(), now + AGE, CAUTION);
        assert_eq!(plan, Plan { release: vec![], braked: 10, found: 10 });
    }

    #[test]
    fn what_nobody_uses_and_cannot_go_keeps_no_other_from_its_turn() {
        let (mut orphans, now) = (Orphans::default(), Moment::now());
        let mut listing = listing(0..7, true);
        listing.items.iter_mut().for_each(|owned| owned.unused = true);
        orphans.plan(&listing, &HashSet::new(), now, CAUTION);
        let turns: Vec<_> = (1..=3)
            .flat_map(|scan| orphans.plan(&listing, &HashSet::new(), now + AGE * scan, CAUTION).release)
            .collect();
        let all: BTreeSet<_> = turns.into_iter().collect();
        assert_eq!(all.len(), 7);
    }

    #[test]
    fn what_nobody_uses_goes_a_few_at_a_time_and_stops_nothing_else() {
        let (mut orphans, now) = (Orphans::default(), Moment::now());
        let listing = |used: u8| {
            let mut listing = listing(0..used + 5, true);
            listing.items[usize::from(used)..].iter_mut().for_each(|owned| owned.unused = true);
            // One of them has something else that somebody may use.
            listing.items.push(Owned { unused: false, ..listing.items[usize::from(used)].clone() });
            listing
        };
        orphans.plan(&listing(2), &HashSet::new(), now, CAUTION);
        let plan = orphans.plan(&listing(2), &HashSet::new(), now + AGE, CAUTION);
        assert_eq!((plan.release, plan.braked), ((0..6).map(owner).collect(), 0));
        let mut orphans = Orphans::default();
        orphans.plan(&listing(3), &HashSet::new(), now, CAUTION);
        let plan = orphans.plan(&listing(3), &HashSet::new(), now + AGE, CAUTION);
        assert_eq!((plan.release, plan.braked), ((4..7).map(owner).collect(), 4));
    }

    proptest! {
        #[test]
        fn nothing_living_goes_and_nothing_on_half_a_view(
            owned in prop::collection::vec(0u8..12, 0..12),
            living in prop::collection::hash_set(0u8..12, 0..12),
            complete: bool,
        ) {
            let (mut orphans, now) = (Orphans::default(), Moment::now());
            let living: HashSet<_> = living.into_iter().map(owner).collect();
            let listing = listing(owned, complete);
            orphans.plan(&listing, &living, now, CAUTION);
            let plan = orphans.plan(&listing, &living, now + AGE, CAUTION);
            prop_assert!(complete || plan.release.is_empty());
            prop_assert!(plan.release.iter().all(|o| !living.contains(o)));
            prop_assert!(plan.release.len() <= CAUTION.limit);
        }
    }
}
