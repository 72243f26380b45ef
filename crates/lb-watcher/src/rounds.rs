//! What one change of OVN did to how many Services. Pure.

use std::collections::{BTreeSet, VecDeque};

use groundcrew_core::drift::Cause;
use groundcrew_core::key::ServiceKey;
use groundcrew_core::leader::Moment;

use crate::book::Touch;

/// Changes whose Services are not all looked at yet. Past it the oldest is given up: it only costs a summary.
const MOST: usize = 256;
/// From this many Services on, a summary is worth more than its parts.
const MASS: usize = 2;
/// From here on only the summary is told: nobody reads a thousand Events, and they would crowd out others.
const CROWD: usize = 100;
/// Names in a summary.
const EXAMPLES: usize = 3;

#[derive(Debug, Default)]
pub(crate) struct Rounds {
    next: u64,
    open: VecDeque<Open>,
}

#[derive(Debug)]
struct Open {
    touch: Touch,
    /// Services that nobody has looked at since.
    pending: BTreeSet<ServiceKey>,
    /// How many it concerned.
    services: usize,
    drifted: usize,
    examples: Vec<ServiceKey>,
    cause: Option<Cause>,
}

/// A change that hit several Services.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mass {
    pub(crate) seen: Moment,
    pub(crate) services: usize,
    pub(crate) examples: Vec<ServiceKey>,
    pub(crate) cause: Cause,
}

impl Rounds {
    pub(crate) fn begin(&mut self, seen: Moment, services: &BTreeSet<ServiceKey>) -> Touch {
        let touch = Touch { seen, round: self.next };
        self.next += 1;
        // One Service is no mass.
        if services.len() >= MASS {
            if self.open.len() == MOST {
                self.open.pop_front();
            }
            let pending = services.clone();
            let (services, examples) = (services.len(), Vec::new());
            self.open.push_back(Open { touch, pending, services, drifted: 0, examples, cause: None });
        }
        touch
    }

    /// This Service was hit by that change. Returns whether it is one of so many that only a summary is told.
    pub(crate) fn drifted(&mut self, round: u64, key: &ServiceKey, cause: &Cause) -> bool {
        let Some(open) = self.open.iter_mut().find(|open| open.touch.round == round) else { return false };
        open.drifted += 1;
        if open.examples.len() < EXAMPLES {
            open.examples.push(key.clone());
        }
        open.cause.get_or_insert_with(|| cause.clone());
        open.services >= CROWD
    }

    /// This Service was looked at. Returns the changes of which it was the last, and which hit several.
    pub(crate) fn looked(&mut self, key: &ServiceKey) -> Vec<Mass> {
        let mut over = Vec::new();
        self.open.retain_mut(|open| {
            open.pending.remove(key);
            if open.pending.is_empty() {
                over.extend(open.mass());
            }
            !open.pending.is_empty()
        });
        over
    }
}

impl Open {
    fn mass(&mut self) -> Option<Mass> {
        let cause = self.cause.take().filter(|_| self.drifted >= MASS)?;
        let examples = std::mem::take(&mut self.examples);
        Some(Mass { seen: self.touch.seen, services: self.drifted, examples, cause })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(names: &[&str]) -> BTreeSet<ServiceKey> {
        names.iter().map(|name| ServiceKey::new("shop", *name)).collect()
    }

    #[test]
    fn several_at_once_are_one_mass_and_it_is_told_when_all_were_looked_at() {
        let mut rounds = Rounds::default();
        let touch = rounds.begin(Moment::now(), &keys(&["a", "b", "c"]));
        for name in ["a", "b"] {
            let key = ServiceKey::new("shop", name);
            rounds.drifted(touch.round, &key, &Cause::unknown());
            assert_eq!(rounds.looked(&key), []);
        }
        let mass = rounds.looked(&ServiceKey::new("shop", "c"));
        assert_eq!(mass.iter().map(|mass| (mass.services, mass.examples.len())).collect::<Vec<_>>(), [(2, 2)]);
        assert_eq!(rounds.looked(&ServiceKey::new("shop", "c")), [], "once");
    }

    #[test]
    fn one_of_several_is_no_mass_and_a_flood_of_changes_is_bounded() {
        let mut rounds = Rounds::default();
        let touch = rounds.begin(Moment::now(), &keys(&["a", "b"]));
        rounds.drifted(touch.round, &ServiceKey::new("shop", "a"), &Cause::unknown());
        assert_eq!(rounds.looked(&ServiceKey::new("shop", "a")), []);
        assert_eq!(rounds.looked(&ServiceKey::new("shop", "b")), []);
        for _ in 0..10_000 {
            rounds.begin(Moment::now(), &keys(&["a", "b"]));
        }
        assert!(rounds.open.len() <= MOST);
    }
}
