//! Tells a change behind our back from a new wish, holds repairs that only feed a fight, and reports the others.
//!
//! A Service that differs outside although it wants just what it last had there has drifted. It is put right first;
//! the report comes after, from a task of its own that waits for whatever else belongs to the same change.

mod report;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus::IntGauge;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::drift::{Attribute, Brake, Cause, Drift, DriftMetrics, Held, Round};
use crate::key::ServiceKey;
use crate::leader::{Moment, Term};
use crate::provider::{Difference, Owner, Wanted};
use crate::runtime::Runtime;
pub(super) use report::Reporter;

/// The kind of what belongs to nobody.
const ORPHAN: &str = "orphan";

/// What a difference means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Judgement {
    /// Something else is wanted than before, or nothing is known of before.
    Wish,
    /// Somebody changed it. It may be put right.
    Drift,
    /// Somebody changes it again and again. `news` until this hold was told.
    Held { held: Held, news: bool },
    /// It is only to be reported; `news` unless that was done.
    Report { news: bool },
}

pub(super) struct Drifts {
    state: Mutex<State>,
    reports: mpsc::UnboundedSender<Found>,
    attribute: Arc<dyn Attribute>,
    report_only: bool,
    flapping: IntGauge,
}

#[derive(Default)]
struct State {
    known: HashMap<ServiceKey, Known>,
    brake: Brake,
    /// Holds that were told, and with `report_only` differences that were.
    told: HashMap<ServiceKey, u64>,
}

/// What is known of one Service.
#[derive(Debug, Default)]
struct Known {
    /// The fingerprint of what it wanted when it was last seen to have it.
    settled: Option<u64>,
    /// The drift that is not put right yet. Boxed: hardly anybody has one.
    drifting: Option<Box<Drifting>>,
    /// Whether it was last seen not to have what it wants.
    differs: bool,
    /// How often it was.
    judged: u64,
}

#[derive(Debug, Clone, Copy)]
struct Drifting {
    since: Instant,
    /// Since when just these kinds differ: a router that was gone is back, but empty.
    latest: Instant,
    kinds: u64,
}

/// How often a Service was found to differ; see [`Drifts::unaware`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unaware(u64);

/// One drift that was put right, or is only told.
struct Found {
    drift: Drift,
    /// The same for all that one change hit.
    since: Instant,
    /// The same for the last change before it could be put right.
    latest: Instant,
    /// From then to the answer of the write.
    took: Option<Duration>,
}

impl Drifts {
    pub(super) fn new(
        attribute: Arc<dyn Attribute>,
        report_only: bool,
        runtime: &Runtime,
        term: &watch::Receiver<Option<Term>>,
    ) -> prometheus::Result<(Self, Reporter)> {
        let Runtime { registry, events, about, board, .. } = runtime;
        let (reports, found) = mpsc::unbounded_channel();
        let metrics = DriftMetrics::of_leader(registry, attribute.causes(), term)?;
        let flapping = metrics.flapping.clone();
        let reporter = Reporter {
            found,
            attribute: attribute.clone(),
            events: events.clone(),
            about: about.clone(),
            board: board.clone(),
            metrics,
        };
        Ok((Self { state: Mutex::default(), reports, attribute, report_only, flapping }, reporter))
    }

    /// The Service has what it wants.
    pub(super) fn settled(&self, wanted: &Wanted) {
        let mut state = self.lock();
        let (key, fingerprint) = (&wanted.owner().key, wanted.fingerprint());
        let known = state.known(key);
        (known.settled, known.drifting, known.differs) = (Some(fingerprint), None, false);
        if self.report_only {
            state.told.remove(key);
        }
    }

    pub(super) fn forget(&self, key: &ServiceKey) {
        let mut state = self.lock();
        state.known.remove(key);
        state.told.remove(key);
        state.brake.forget(key);
    }

    /// What a difference means that was seen at `since`.
    pub(super) fn judge(&self, wanted: &Wanted, differences: &[Difference], since: Instant) -> Judgement {
        let (key, now) = (&wanted.owner().key, Moment::now());
        let mut state = self.lock();
        let known = state.known(key);
        known.judged += 1;
        if !known.differs(wanted, differences, since) {
            return Judgement::Wish;
        }
        if self.report_only {
            return Judgement::Report { news: state.is_news(key, described(differences)) };
        }
        match state.brake.admit(key, now) {
            Ok(()) => Judgement::Drift,
            Err(held) => {
                let news = state.is_news(key, hash(&held.until));
                if news {
                    self.measure(&state, now);
                }
                Judgement::Held { held, news }
            }
        }
    }

    /// The same for who has nothing to decide: a follower, or a look that was decided on before.
    pub(super) fn noticed(&self, wanted: &Wanted, differences: &[Difference], since: Instant) {
        self.lock().known(&wanted.owner().key).differs(wanted, differences, since);
    }

    /// Where no look has found this Service to differ that was not seen to be well again since. A scan that finds it to
    /// differ, and after a while has the same answer, was not told of the change.
    pub(super) fn unaware(&self, key: &ServiceKey) -> Option<Unaware> {
        let state = self.lock();
        let (differs, judged) = state.known.get(key).map_or((false, 0), |known| (known.differs, known.judged));
        (!differs).then_some(Unaware(judged))
    }

    /// Its user knows of this hold.
    pub(super) fn told_hold(&self, key: &ServiceKey, held: &Held) {
        self.lock().told.insert(key.clone(), hash(&held.until));
    }

    /// The hold that a Service is under, or was until a moment ago.
    pub(super) fn flapping(&self, key: &ServiceKey, now: Moment) -> Option<Held> {
        self.lock().brake.flapping(key, now)
    }

    /// Tells how many are changed again and again. It looks at all that were ever repaired, so that it is not asked for
    /// each of them.
    pub(super) fn count(&self) {
        self.measure(&self.lock(), Moment::now());
    }

    fn measure(&self, state: &State, now: Moment) {
        self.flapping.set(state.brake.flapping_count(now).try_into().unwrap_or(i64::MAX));
    }

    pub(super) fn is_report_only(&self) -> bool {
        self.report_only
    }

    /// Has it reported.
    pub(super) fn report(&self, owner: &Owner, differences: Vec<Difference>) {
        let mut state = self.lock();
        state.told.insert(owner.key.clone(), described(&differences));
        let drifting = state.known(&owner.key).drifting.as_deref().copied();
        drop(state);
        self.send(owner, differences, drifting, false);
    }

    /// The same for what was put right.
    pub(super) fn repaired(&self, owner: &Owner, differences: Vec<Difference>) {
        let mut state = self.lock();
        state.brake.repaired(&owner.key, Moment::now());
        let drifting = state.known(&owner.key).drifting.take().map(|drifting| *drifting);
        drop(state);
        self.send(owner, differences, drifting, true);
    }

    /// Something outside belongs to a Service that is not there.
    pub(super) fn orphan(&self, owner: &Owner, what: &str, removed: bool) {
        let difference = Difference { kind: ORPHAN, expected: "nothing".into(), found: what.to_owned() };
        self.send(owner, vec![difference], None, removed);
    }

    fn send(&self, owner: &Owner, differences: Vec<Difference>, drifting: Option<Drifting>, repaired: bool) {
        let drift = Drift { owner: owner.clone(), differences };
        let now = Instant::now();
        let (since, latest) = drifting.map_or((now, now), |drifting| (drifting.since, drifting.latest));
        let took = repaired.then(|| latest.elapsed());
        // Nobody listens any more when the process ends.
        let _ = self.reports.send(Found { drift, since, latest, took });
    }

    /// Who changes this Service.
    pub(super) fn cause(&self, owner: &Owner, differences: &[Difference], seen: Moment) -> Cause {
        let drift = Drift { owner: owner.clone(), differences: differences.to_vec() };
        self.attribute.cause(&Round { seen, drifts: vec![drift] })
    }

    /// What else happened near this time, in words.
    pub(super) fn nearby(&self, moment: Moment) -> Option<String> {
        self.attribute.nearby(moment)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    /// Whether somebody else made it so.
    fn differs(&mut self, wanted: &Wanted, differences: &[Difference], since: Instant) -> bool {
        self.differs = true;
        if self.settled != Some(wanted.fingerprint()) {
            return false;
        }
        let kinds = hash(&differences.iter().map(|difference| difference.kind).collect::<BTreeSet<_>>());
        let drifting = self.drifting.get_or_insert_with(|| Box::new(Drifting { since, latest: since, kinds }));
        if drifting.kinds != kinds {
            (drifting.latest, drifting.kinds) = (since, kinds);
        }
        true
    }
}

impl State {
    fn known(&mut self, key: &ServiceKey) -> &mut Known {
        self.known.entry(key.clone()).or_default()
    }

    fn is_news(&self, key: &ServiceKey, what: u64) -> bool {
        self.told.get(key) != Some(&what)
    }
}

fn hash(what: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

fn described(differences: &[Difference]) -> u64 {
    hash(&differences.iter().map(ToString::to_string).collect::<Vec<_>>())
}

/// The kinds in a list of differences, each once.
pub(super) fn kinds<'a>(differences: impl IntoIterator<Item = &'a Difference>) -> String {
    let kinds: BTreeSet<_> = differences.into_iter().map(|difference| difference.kind).collect();
    kinds.into_iter().collect::<Vec<_>>().join(", ")
}
