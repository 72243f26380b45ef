//! What one change of OVN did to how many Services. Pure.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use groundcrew_core::drift::Cause;
use groundcrew_core::key::ServiceKey;
use groundcrew_core::leader::Moment;

use crate::book::Touch;

/// Changes whose Services are not all settled yet. Past it the oldest is given up: it only costs a summary.
const MOST: usize = 256;
/// From this many Services on, a summary is worth more than its parts.
const MASS: usize = 2;
/// From here on only the summary is told: nobody reads a thousand Events, and they would crowd out others.
const CROWD: usize = 100;
/// Names in a summary.
const EXAMPLES: usize = 3;
/// A summary waits no longer for the rest once the first of it was told: one Service may be refused for ever.
const LONGEST: Duration = Duration::from_secs(30);
/// How everything was when we came: no change told it.
const FIRST: u64 = 0;

#[derive(Debug, Default)]
pub(crate) struct Rounds {
    last: u64,
    open: VecDeque<Open>,
}

/// Services that one change may have hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Those that it is about.
    These,
    /// All there are, as nobody saw what was changed.
    All,
}

#[derive(Debug)]
struct Open {
    touch: Touch,
    /// Services that are neither told nor known to be fine since.
    pending: BTreeSet<ServiceKey>,
    /// So many are known to be in it before the first was looked at.
    foreseen: usize,
    drifted: usize,
    examples: Vec<ServiceKey>,
    cause: Option<Cause>,
    /// When it is told, whoever is still missing.
    due: Option<Moment>,
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
    /// Whatever is found to be wrong although no change told it was so when these were first looked at.
    pub(crate) fn first(&mut self, seen: Moment, services: BTreeSet<ServiceKey>) {
        self.open(Touch { seen, round: FIRST }, services, Reach::All);
    }

    pub(crate) fn begin(&mut self, seen: Moment, services: BTreeSet<ServiceKey>, reach: Reach) -> Touch {
        self.last += 1;
        let touch = Touch { seen, round: self.last };
        self.open(touch, services, reach);
        touch
    }

    fn open(&mut self, touch: Touch, pending: BTreeSet<ServiceKey>, reach: Reach) {
        // One Service is no mass.
        if pending.len() < MASS {
            return;
        }
        if self.open.len() == MOST {
            self.open.pop_front();
        }
        let foreseen = if reach == Reach::These { pending.len() } else { 0 };
        let (examples, cause, due) = (Vec::new(), None, None);
        self.open.push_back(Open { touch, pending, foreseen, drifted: 0, examples, cause, due });
    }

    /// This Service was hit by that change, and it is told. Returns whether it is one of so many that only a summary is.
    pub(crate) fn drifted(&mut self, touch: Option<Touch>, key: &ServiceKey, cause: &Cause, now: Moment) -> bool {
        let Some(open) = self.of(touch, key) else { return false };
        open.drifted += 1;
        if open.examples.len() < EXAMPLES {
            open.examples.push(key.clone());
        }
        open.cause.get_or_insert_with(|| cause.clone());
        open.due.get_or_insert(now + LONGEST);
        open.is_crowd()
    }

    /// Whether this Service is one of so many that only a summary is told.
    pub(crate) fn is_crowd(&mut self, touch: Option<Touch>, key: &ServiceKey) -> bool {
        self.of(touch, key).is_some_and(|open| open.is_crowd())
    }

    fn of(&mut self, touch: Option<Touch>, key: &ServiceKey) -> Option<&mut Open> {
        let round = touch.map_or(FIRST, |touch| touch.round);
        self.open.iter_mut().find(|open| open.touch.round == round && open.pending.contains(key))
    }

    /// This Service was looked at; `settled` if it is told or fine, and not where somebody has yet to act. Returns the
    /// changes of which it was the last, and which hit several.
    pub(crate) fn looked(&mut self, key: &ServiceKey, settled: bool, now: Moment) -> Vec<Mass> {
        let mut over = Vec::new();
        self.open.retain_mut(|open| {
            if settled {
                open.pending.remove(key);
            }
            let is_over = open.pending.is_empty() || open.due.is_some_and(|due| now >= due);
            if is_over {
                over.extend(open.mass());
            }
            !is_over
        });
        over
    }
}

impl Open {
    fn is_crowd(&self) -> bool {
        self.foreseen.max(self.drifted) >= CROWD
    }

    fn mass(&mut self) -> Option<Mass> {
        // Of a crowd nothing else is told, even if others have seen to all but one of it.
        let is_mass = self.drifted >= MASS || self.is_crowd();
        let cause = self.cause.take().filter(|_| is_mass)?;
        let examples = std::mem::take(&mut self.examples);
        Some(Mass { seen: self.touch.seen, services: self.drifted, examples, cause })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> ServiceKey {
        ServiceKey::new("shop", name)
    }

    fn keys(names: &[&str]) -> BTreeSet<ServiceKey> {
        names.iter().map(|name| key(name)).collect()
    }

    const NONE: [usize; 0] = [];

    /// One change that hits all of these, and each is told.
    struct Scene {
        rounds: Rounds,
        touch: Option<Touch>,
        now: Moment,
    }

    impl Scene {
        fn new(names: &[&str]) -> Self {
            let (mut rounds, now) = (Rounds::default(), Moment::now());
            let touch = rounds.begin(now, keys(names), Reach::These);
            Self { rounds, touch: Some(touch), now }
        }

        fn told(&mut self, name: &str) -> bool {
            self.rounds.drifted(self.touch, &key(name), &Cause::unknown(), self.now)
        }

        /// How many Services each summary is about that is told now.
        fn looked(&mut self, name: &str, settled: bool) -> Vec<usize> {
            self.rounds.looked(&key(name), settled, self.now).iter().map(|mass| mass.services).collect()
        }
    }

    #[test]
    fn several_at_once_are_one_mass_and_it_is_told_when_all_were_looked_at() {
        let mut scene = Scene::new(&["a", "b", "c"]);
        for name in ["a", "b"] {
            scene.told(name);
            assert_eq!(scene.looked(name, true), NONE);
        }
        assert_eq!(scene.looked("c", true), [2], "it was fine");
        assert_eq!(scene.looked("c", true), NONE, "once");
    }

    #[test]
    fn who_cannot_act_yet_does_not_end_a_round() {
        let mut scene = Scene::new(&["a", "b"]);
        // A follower, or the API server refuses.
        for name in ["a", "b", "a", "b"] {
            assert_eq!(scene.looked(name, false), NONE);
        }
        scene.told("a");
        assert_eq!(scene.looked("a", true), NONE);
        scene.told("b");
        assert_eq!(scene.looked("b", true), [2]);
    }

    #[test]
    fn a_summary_does_not_wait_for_ever_for_one_that_is_refused() {
        let mut scene = Scene::new(&["a", "b", "refused"]);
        for name in ["a", "b"] {
            scene.told(name);
            scene.looked(name, true);
        }
        assert_eq!(scene.looked("refused", false), NONE);
        scene.now = scene.now + LONGEST;
        assert_eq!(scene.looked("refused", false), [2]);
    }

    #[test]
    fn what_was_wrong_when_we_came_is_one_round() {
        let mut scene = Scene::new(&[]);
        scene.rounds.first(scene.now, keys(&["a", "b", "c"]));
        scene.touch = None;
        assert_eq!(scene.looked("c", true), NONE);
        for name in ["a", "b"] {
            scene.told(name);
        }
        scene.told("came later");
        assert_eq!(scene.looked("a", true), NONE);
        assert_eq!(scene.looked("b", true), [2]);
    }

    #[test]
    fn one_of_several_is_no_mass_and_a_flood_of_changes_is_bounded() {
        let mut scene = Scene::new(&["a", "b"]);
        scene.told("a");
        assert_eq!(scene.looked("a", true), NONE);
        assert_eq!(scene.looked("b", true), NONE);
        for _ in 0..10_000 {
            scene.rounds.begin(scene.now, keys(&["a", "b"]), Reach::These);
        }
        assert!(scene.rounds.open.len() <= MOST);
    }

    #[test]
    fn only_where_so_many_are_hit_each_of_them_is_silent() {
        let names: Vec<_> = (0..CROWD).map(|n| n.to_string()).collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let mut scene = Scene::new(&names);
        assert!(scene.told("0"), "all of them are hit");
        let settled = names.iter().map(|name| scene.looked(name, true)).collect::<Vec<_>>().concat();
        assert_eq!(settled, [1], "nobody else tells of the one that was left to us");

        scene.touch = Some(scene.rounds.begin(scene.now, keys(&names), Reach::All));
        assert!(!scene.told("0"), "all were looked at, and perhaps it is just this one");
        let settled = names.iter().map(|name| scene.looked(name, true)).collect::<Vec<_>>().concat();
        assert_eq!(settled, NONE);
    }
}
