//! The memory between passes: what looked stale, how often in a row, and since when.
//!
//! It is in this process alone. After a restart, a new leader or a pass that could not see everything, every age begins
//! anew, which delays a removal and never hastens one.

use std::collections::{BTreeMap, BTreeSet};

use groundcrew_core::leader::Moment;
use groundcrew_core::provider::AddressPair;

use super::findings::{Findings, Stale};
use super::rules::Rules;

/// Something that looks stale.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Suspect {
    /// A route of a router. One that is stale for another reason is another suspect.
    Route {
        /// The router.
        router: String,
        /// The route.
        stale: Stale,
    },
    /// A pair of a port.
    Pair {
        /// The port.
        port: String,
        /// The pair.
        pair: AddressPair,
    },
}

#[derive(Debug, Clone, Copy)]
struct Sighting {
    first: Moment,
    times: u32,
}

/// What looked stale in all passes since it first did. The time is an argument.
#[derive(Debug, Default)]
pub struct Sightings(BTreeMap<Suspect, Sighting>);

impl Sightings {
    /// Takes a pass in, and returns what was seen for long enough and often enough.
    pub fn look(&mut self, findings: &Findings, rules: &Rules, now: Moment) -> BTreeSet<Suspect> {
        if findings.lock.is_some() {
            self.forget();
            return BTreeSet::new();
        }
        let mut known = std::mem::take(&mut self.0);
        for suspect in suspects(findings) {
            let mut sighting = known.remove(&suspect).unwrap_or(Sighting { first: now, times: 0 });
            sighting.times = sighting.times.saturating_add(1);
            self.0.insert(suspect, sighting);
        }
        let is_ripe = |seen: &Sighting| seen.times >= rules.sightings && seen.first.until(now) >= rules.min_age;
        self.0.iter().filter(|(_, seen)| is_ripe(seen)).map(|(suspect, _)| suspect.clone()).collect()
    }

    /// A pass has failed: "in a row" is over.
    pub fn forget(&mut self) {
        self.0.clear();
    }

    /// How many suspects there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn suspects(findings: &Findings) -> impl Iterator<Item = Suspect> {
    let routes = findings.routers.iter().flat_map(|found| {
        let suspect = |stale: &Stale| Suspect::Route { router: found.router.clone(), stale: stale.clone() };
        found.stale.iter().map(suspect)
    });
    let pairs = findings.pairs.iter().flat_map(|found| {
        let suspect = |pair: &AddressPair| Suspect::Pair { port: found.port.id.clone(), pair: pair.clone() };
        found.pairs.iter().map(suspect)
    });
    routes.chain(pairs)
}
