//! The brake on repairs. Against another writer that never gives up, repairing at once is a war that costs everybody.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use crate::key::ServiceKey;
use crate::leader::Moment;

const WINDOW: Duration = Duration::from_mins(1);
/// Repairs of one Service within the window that are taken for accidents.
const MOST: usize = 10;
const FIRST_HOLD: Duration = Duration::from_secs(10);
const LONGEST_HOLD: Duration = Duration::from_mins(5);
/// Below it nobody sweeps.
const SWEEP_AT: usize = 1_024;

/// Counts the repairs of each Service. Pure: the time is an argument.
#[derive(Debug)]
pub struct Brake {
    keys: HashMap<ServiceKey, Entry>,
    sweep_at: usize,
}

#[derive(Debug)]
struct Entry {
    repairs: VecDeque<Moment>,
    /// All since it was last calm.
    total: u64,
    /// How often in a row it was held.
    level: u32,
    until: Option<Moment>,
    /// When it was first found changed since it was last calm, and when last, repaired or not.
    first: Moment,
    seen: Moment,
}

/// A Service that is changed again and again, and is not repaired until the time is up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// The next repair comes not before.
    pub until: Moment,
    /// How often it was repaired since it was last left alone.
    pub repairs: u64,
    /// When it was first found changed since then.
    pub since: Moment,
}

impl Default for Brake {
    fn default() -> Self {
        Self { keys: HashMap::new(), sweep_at: SWEEP_AT }
    }
}

impl Brake {
    /// Whether this Service, which was found changed, may be repaired now.
    pub fn admit(&mut self, key: &ServiceKey, now: Moment) -> Result<(), Held> {
        self.sweep(now);
        let entry = self.keys.entry(key.clone()).or_insert_with(|| Entry::new(now));
        entry.forget_old(now);
        entry.seen = now;
        match entry.until {
            Some(until) if !now.until(until).is_zero() => Err(entry.held(until)),
            None if entry.repairs.len() >= MOST => Err(entry.hold(now)),
            _ => Ok(()),
        }
    }

    /// The Service was repaired. A repair that failed changed nothing, so that nobody answered it.
    pub fn repaired(&mut self, key: &ServiceKey, now: Moment) {
        let entry = self.keys.entry(key.clone()).or_insert_with(|| Entry::new(now));
        entry.repairs.push_back(now);
        entry.total += 1;
        if entry.until.is_some() {
            // One try after the time is up; if it does not last, the next comes later still.
            entry.hold(now);
        }
    }

    /// The Service, if it is held or was until a moment ago.
    #[must_use]
    pub fn flapping(&self, key: &ServiceKey, now: Moment) -> Option<Held> {
        let entry = self.keys.get(key).filter(|entry| !entry.is_calm(now))?;
        Some(entry.held(entry.until?))
    }

    /// How many Services are changed again and again.
    #[must_use]
    pub fn flapping_count(&self, now: Moment) -> usize {
        self.keys.values().filter(|entry| entry.until.is_some() && !entry.is_calm(now)).count()
    }

    /// The Service is gone.
    pub fn forget(&mut self, key: &ServiceKey) {
        self.keys.remove(key);
    }

    fn sweep(&mut self, now: Moment) {
        if self.keys.len() >= self.sweep_at {
            self.keys.retain(|_, entry| !entry.is_calm(now));
            self.sweep_at = (2 * self.keys.len()).max(SWEEP_AT);
        }
    }
}

impl Entry {
    fn new(now: Moment) -> Self {
        Self { repairs: VecDeque::new(), total: 0, level: 0, until: None, first: now, seen: now }
    }

    fn hold(&mut self, now: Moment) -> Held {
        let hold = FIRST_HOLD.saturating_mul(1 << self.level.min(16)).min(LONGEST_HOLD);
        self.level += 1;
        let until = now + hold;
        self.until = Some(until);
        self.held(until)
    }

    fn held(&self, until: Moment) -> Held {
        Held { until, repairs: self.total, since: self.first }
    }

    /// Nothing was changed for a whole window, in which it could have been repaired. Who only ever undoes a repair does
    /// nothing while it is held.
    fn is_calm(&self, now: Moment) -> bool {
        let left_alone = |since: Moment| now.until(since + WINDOW).is_zero();
        left_alone(self.seen) && self.until.is_none_or(left_alone)
    }

    fn forget_old(&mut self, now: Moment) {
        if self.is_calm(now) {
            *self = Self::new(now);
        }
        while self.repairs.front().is_some_and(|first| now.until(*first + WINDOW).is_zero()) {
            self.repairs.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Not;

    use super::*;

    fn key() -> ServiceKey {
        ServiceKey::new("shop", "web")
    }

    /// Found changed, and repaired if that is allowed.
    fn change(brake: &mut Brake, key: &ServiceKey, now: Moment) -> Result<(), Held> {
        brake.admit(key, now).inspect(|()| brake.repaired(key, now))
    }

    fn second(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn ten_repairs_a_minute_pass_and_the_eleventh_is_held() {
        let (mut brake, start) = (Brake::default(), Moment::now());
        for n in 0..10 {
            assert_eq!(change(&mut brake, &key(), start + second(n)), Ok(()));
        }
        assert_eq!(brake.flapping(&key(), start + second(9)), None);
        let held = Held { until: start + second(20), repairs: 10, since: start };
        assert_eq!(change(&mut brake, &key(), start + second(10)), Err(held));
        assert_eq!(brake.flapping(&key(), start + second(10)), Some(held));
        assert_eq!(
            change(&mut brake, &ServiceKey::new("shop", "other"), start + second(10)),
            Ok(()),
            "others are not held"
        );
    }

    #[test]
    fn repairs_that_fail_do_not_count() {
        let (mut brake, start) = (Brake::default(), Moment::now());
        assert!((0..100).all(|_| brake.admit(&key(), start).is_ok()));
    }

    #[test]
    fn one_repair_every_ten_seconds_is_no_flapping() {
        let (mut brake, start) = (Brake::default(), Moment::now());
        assert!((0..100).all(|n| change(&mut brake, &key(), start + second(10 * n)).is_ok()));
    }

    #[test]
    fn against_a_writer_that_never_stops_repairs_get_rare() {
        let (mut brake, start) = (Brake::default(), Moment::now());
        let mut repairs = 0;
        for tenth in 0..36_000u64 {
            repairs += usize::from(change(&mut brake, &key(), start + Duration::from_millis(100 * tenth)).is_ok());
        }
        assert!((15..=30).contains(&repairs), "{repairs} repairs in an hour");
    }

    #[test]
    fn who_undoes_each_repair_at_once_and_does_nothing_else_is_held_too() {
        let (mut brake, mut now) = (Brake::default(), Moment::now());
        let (start, mut repairs) = (now, 0);
        while now.until(start + second(3_600)).is_zero().not() {
            match change(&mut brake, &key(), now) {
                Ok(()) => repairs += 1,
                Err(held) => now = held.until,
            }
        }
        assert!((15..=30).contains(&repairs), "{repairs} repairs in an hour");
    }

    #[test]
    fn once_it_is_left_alone_it_is_forgiven() {
        let (mut brake, start) = (Brake::default(), Moment::now());
        for _ in 0..11 {
            let _ = change(&mut brake, &key(), start);
        }
        assert_eq!(brake.flapping_count(start), 1);
        assert_eq!(brake.flapping_count(start + second(69)), 1, "the hold is over, but not for long");
        let later = start + second(71);
        assert_eq!((brake.flapping(&key(), later), brake.flapping_count(later)), (None, 0));
        assert!((0..10).all(|_| change(&mut brake, &key(), later).is_ok()));
        assert_eq!(change(&mut brake, &key(), later).map_err(|held| held.until), Err(later + FIRST_HOLD));
    }

    #[test]
    fn a_mass_of_single_repairs_is_not_remembered_for_ever() {
        let (mut brake, start) = (Brake::default(), Moment::now());
        for n in 0..5_000 {
            change(&mut brake, &ServiceKey::new("shop", n.to_string()), start).unwrap();
        }
        for n in 5_000..20_000 {
            change(&mut brake, &ServiceKey::new("shop", n.to_string()), start + second(61)).unwrap();
        }
        assert!(brake.keys.len() <= 15_000, "{}", brake.keys.len());
    }
}
