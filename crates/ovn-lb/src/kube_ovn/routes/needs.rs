//! Who needs which entries, gathered by Vpc. Pure but for the lock.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use groundcrew_core::key::ServiceKey;
use groundcrew_core::provider::Owner;
use groundcrew_core::queue::Queue;
use uuid::Uuid;

use super::{Obstacle, Route};

/// What one Service needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) struct Needs {
    pub(in super::super) vpc: Arc<str>,
    pub(super) routes: BTreeSet<Route>,
}

#[derive(Debug)]
pub(in super::super) struct Routes {
    /// Whether they are written here, and not left to the operator.
    writes: bool,
    take_over: bool,
    state: Mutex<State>,
    /// Vpcs to look at.
    pub(super) vpcs: Queue<Arc<str>>,
}

#[derive(Debug, Default)]
struct State {
    by_service: BTreeMap<ServiceKey, (Uuid, Needs)>,
    /// Services that had an address when the term began and have not said what they need, with their Vpcs: what is theirs
    /// there is not known yet. One that is paused never says.
    unheard: BTreeMap<ServiceKey, (Uuid, Arc<str>)>,
    /// How many those are, by Vpc.
    unheard_in: BTreeMap<Arc<str>, usize>,
    /// Why the last write to a Vpc failed.
    failed: BTreeMap<Arc<str>, String>,
}

/// Everything that should be in one Vpc.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) routes: BTreeSet<Route>,
    /// Whether everybody there has been heard, so that what nobody wants may go.
    pub(super) is_complete: bool,
    /// Whether entries that kube-dc made for these are ours from now on.
    pub(super) take_over: bool,
}

impl Routes {
    pub(in super::super) fn new(writes: bool, take_over: bool) -> Self {
        Self { writes, take_over, state: Mutex::default(), vpcs: Queue::default() }
    }

    /// A term begins, with these Services. What was gathered while following may be out of date.
    pub(in super::super) fn begin<'a>(&self, unheard: impl Iterator<Item = (&'a Owner, Arc<str>)>) {
        let unheard: BTreeMap<_, _> = unheard.map(|(owner, vpc)| (owner.key.clone(), (owner.uid, vpc))).collect();
        let mut unheard_in = BTreeMap::new();
        for (_, vpc) in unheard.values() {
            *unheard_in.entry(vpc.clone()).or_default() += 1;
        }
        *self.lock() = State { unheard, unheard_in, ..State::default() };
    }

    /// This is what a Service needs now.
    pub(in super::super) fn note(&self, owner: &Owner, needs: Option<Needs>) {
        let changed = self.lock().note(owner, needs);
        for vpc in &changed {
            self.look(vpc);
        }
    }

    /// This Service is gone. What another one of its name needs stays.
    pub(in super::super) fn release(&self, owner: &Owner) {
        let mut state = self.lock();
        let known = state.by_service.get(&owner.key).map(|(uid, _)| *uid);
        let known = known.or_else(|| state.unheard.get(&owner.key).map(|(uid, _)| *uid));
        let changed = if known == Some(owner.uid) { state.note(owner, None) } else { BTreeSet::new() };
        drop(state);
        for vpc in &changed {
            self.look(vpc);
        }
    }

    /// Whether anybody needs something there.
    pub(in super::super) fn concern(&self, vpc: &str) -> bool {
        self.lock().by_service.values().any(|(_, needs)| *needs.vpc == *vpc)
    }

    pub(super) fn wanted(&self, vpc: &str) -> Wanted {
        let state = self.lock();
        let of_vpc = state.by_service.values().map(|(_, needs)| needs).filter(|needs| *needs.vpc == *vpc);
        let routes = of_vpc.flat_map(|needs| needs.routes.iter().cloned()).collect();
        Wanted { routes, is_complete: !state.unheard_in.contains_key(vpc), take_over: self.take_over }
    }

    /// Something may have to be written to this Vpc.
    pub(in super::super) fn look(&self, vpc: &Arc<str>) {
        if self.writes {
            self.vpcs.add(vpc.clone());
        }
    }

    /// The Services that have something else to tell from now on.
    pub(super) fn failed(&self, vpc: &Arc<str>, why: Option<&str>) -> Vec<ServiceKey> {
        let mut state = self.lock();
        let before = match why {
            Some(why) => state.failed.insert(vpc.clone(), why.to_owned()),
            None => state.failed.remove(vpc),
        };
        if before.as_deref() == why {
            return Vec::new();
        }
        let concerned = state.by_service.iter().filter(|(_, (_, needs))| needs.vpc == *vpc);
        concerned.map(|(service, _)| service.clone()).collect()
    }

    /// Calls `tell` with what is in the way of this Vpc.
    pub(in super::super) fn with_obstacle<T>(&self, vpc: Option<&str>, tell: impl FnOnce(Obstacle<'_>) -> T) -> T {
        let state = self.lock();
        tell(match vpc.and_then(|vpc| state.failed.get(vpc)) {
            _ if !self.writes => Obstacle::Forbidden,
            Some(why) => Obstacle::Failed(why),
            None => Obstacle::None,
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The Vpcs where something else is needed now.
    fn note(&mut self, owner: &Owner, needs: Option<Needs>) -> BTreeSet<Arc<str>> {
        let mut changed: BTreeSet<Arc<str>> = self.hear(&owner.key).into_iter().collect();
        let needs = needs.map(|needs| (owner.uid, needs));
        if self.by_service.get(&owner.key) != needs.as_ref() {
            changed.extend(needs.as_ref().map(|(_, needs)| needs.vpc.clone()));
            let before = match needs {
                Some(needs) => self.by_service.insert(owner.key.clone(), needs),
                None => self.by_service.remove(&owner.key),
            };
            changed.extend(before.map(|(_, needs)| needs.vpc));
        }
        changed
    }

    /// A Service has said what it needs. Returns its Vpc if it was the last one there.
    fn hear(&mut self, service: &ServiceKey) -> Option<Arc<str>> {
        let (_, vpc) = self.unheard.remove(service)?;
        let left = self.unheard_in.get_mut(&vpc)?;
        *left -= 1;
        if *left > 0 {
            return None;
        }
        self.unheard_in.remove(&vpc);
        Some(vpc)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::owner;

    #[test]
    fn who_has_not_been_heard_keeps_what_is_in_his_own_vpc_and_in_no_other() {
        let routes = Routes::new(true, false);
        let owner = |name: &str| owner("shop", name);
        let unheard = [("paused", "one"), ("web", "two"), ("api", "two")].map(|(name, vpc)| (owner(name), vpc));
        routes.begin(unheard.iter().map(|(owner, vpc)| (owner, (*vpc).into())));
        let is_complete = |vpc: &str| routes.wanted(vpc).is_complete;
        assert_eq!(["one", "two", "three"].map(is_complete), [false, false, true]);
        routes.note(&owner("web"), None);
        assert!(!is_complete("two") && routes.vpcs.depth() == 0);
        routes.note(&owner("api"), None);
        assert_eq!(["one", "two", "three"].map(is_complete), [false, true, true]);
        assert_eq!(routes.vpcs.depth(), 1, "it is looked at, as what nobody wants there may go now");
        routes.note(&owner("api"), None);
        assert!(!is_complete("one"), "nobody is heard twice");
    }

    #[test]
    fn when_one_is_released_another_one_of_its_name_keeps_what_it_needs() {
        let routes = Routes::new(true, false);
        let now = owner("shop", "web");
        let before = Owner { uid: Uuid::from_u128(1), ..now.clone() };
        let needs = Needs { vpc: "one".into(), routes: BTreeSet::new() };
        routes.begin([(&now, "one".into())].into_iter());
        routes.release(&before);
        assert!(!routes.wanted("one").is_complete, "it has not been heard");
        routes.note(&now, Some(needs));
        routes.release(&before);
        assert!(routes.concern("one"));
        routes.release(&now);
        assert!(!routes.concern("one"));
    }
}
