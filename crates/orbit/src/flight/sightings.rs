//! The memory between passes: since when something has been so in every one of them.
//!
//! It is in this process alone. After a restart or a pass that failed every age begins anew, which delays a repair and
//! never hastens one.

use std::collections::BTreeMap;
use std::time::Duration;

use groundcrew_core::leader::Moment;

/// When each was first seen, of those that have been seen in every pass since.
#[derive(Debug, Default)]
pub(crate) struct Sightings(BTreeMap<String, Moment>);

impl Sightings {
    /// Takes a pass in, and returns how long each has been seen.
    pub(crate) fn look<'a>(&mut self, ids: impl Iterator<Item = &'a str>, now: Moment) -> BTreeMap<String, Duration> {
        let known = std::mem::take(&mut self.0);
        self.0 = ids.map(|id| (id.to_owned(), known.get(id).copied().unwrap_or(now))).collect();
        self.0.iter().map(|(id, first)| (id.clone(), first.until(now))).collect()
    }

    /// A pass has failed: nobody knows what it would have seen.
    pub(crate) fn forget(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_mins(1);

    #[test]
    fn an_age_begins_anew_after_it_was_not_seen_and_after_a_pass_that_failed() {
        let (start, mut sightings) = (Moment::now(), Sightings::default());
        let mut age = |ids: &[&str], minutes: u32| {
            sightings.look(ids.iter().copied(), start + MINUTE * minutes).get("a").copied()
        };
        assert_eq!(age(&["a"], 0), Some(Duration::ZERO));
        assert_eq!(age(&["a", "b"], 50), Some(50 * MINUTE));
        assert_eq!(age(&["b"], 51), None);
        assert_eq!(age(&["a"], 52), Some(Duration::ZERO));
        assert_eq!(age(&["a"], 53), Some(MINUTE));
        sightings.forget();
        assert_eq!(sightings.look(["a"].into_iter(), start + 54 * MINUTE)["a"], Duration::ZERO);
    }
}
