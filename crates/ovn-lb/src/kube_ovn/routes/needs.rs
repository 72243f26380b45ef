//! Who needs which entries, gathered by Vpc. Pure but for the lock.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use groundcrew_core::key::ServiceKey;
use groundcrew_core::queue::Queue;

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
    state: Mutex<State>,
    /// Vpcs to look at.
    pub(super) vpcs: Queue<Arc<str>>,
}

#[derive(Debug, Default)]
struct State {
    by_service: BTreeMap<ServiceKey, Needs>,
    /// Services that had an address when the term began and have not said what they need: what is theirs is not known yet.
    unheard: BTreeSet<ServiceKey>,
    /// Why the last write to a Vpc failed.
    failed: BTreeMap<Arc<str>, String>,
}

/// Everything that should be in one Vpc.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) routes: BTreeSet<Route>,
    /// Whether everybody has been heard, so that what nobody wants may go.
    pub(super) is_complete: bool,
}

impl Routes {
    pub(in super::super) fn new(writes: bool) -> Self {
        Self { writes, state: Mutex::default(), vpcs: Queue::default() }
    }

    /// A term begins, with these Services. What was gathered while following may be out of date.
    pub(in super::super) fn begin(&self, unheard: BTreeSet<ServiceKey>) {
        *self.lock() = State { unheard, ..State::default() };
    }

    /// This is what a Service needs now. Returns whether everybody has been heard with it.
    pub(in super::super) fn note(&self, service: &ServiceKey, needs: Option<Needs>) -> bool {
        let mut state = self.lock();
        let is_last = state.unheard.remove(service) && state.unheard.is_empty();
        if state.by_service.get(service) != needs.as_ref() {
            let now = needs.as_ref().map(|needs| needs.vpc.clone());
            let before = match needs {
                Some(needs) => state.by_service.insert(service.clone(), needs),
                None => state.by_service.remove(service),
            };
            drop(state);
            for vpc in before.map(|needs| needs.vpc).iter().chain(&now) {
                self.look(vpc);
            }
        }
        is_last
    }

    /// Whether anybody needs something there.
    pub(in super::super) fn concern(&self, vpc: &str) -> bool {
        self.lock().by_service.values().any(|needs| *needs.vpc == *vpc)
    }

    pub(super) fn wanted(&self, vpc: &str) -> Wanted {
        let state = self.lock();
        let of_vpc = state.by_service.values().filter(|needs| *needs.vpc == *vpc);
        let routes = of_vpc.flat_map(|needs| needs.routes.iter().cloned()).collect();
        Wanted { routes, is_complete: state.unheard.is_empty() }
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
        let concerned = state.by_service.iter().filter(|(_, needs)| needs.vpc == *vpc);
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
