//! Tells a change behind our back from a new wish, holds repairs that only feed a fight, and reports the others.
//!
//! A Service that differs outside although it wants just what it last had there has drifted. Where nobody knows what it
//! had, as after a restart, or where it wants something else by now, the provider is asked whether what is there is what
//! was last written: if not, that is drift all the same. It is put right first; the report comes after, from a task of its
//! own that waits for whatever else belongs to the same change. What cannot be put right is told when that has failed.

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
use uuid::Uuid;

use crate::drift::{Attribute, Brake, Cause, Drift, DriftMetrics, Held, Round};
use crate::key::ServiceKey;
use crate::leader::{Moment, Term};
use crate::provider::{Difference, Owner, ProviderError, Wanted};
use crate::runtime::Runtime;
pub(super) use report::Reporter;

/// The kind of what belongs to nobody.
const ORPHAN: &str = "orphan";

/// What a difference means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Judgement {
    /// Something else is wanted than before.
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

#[derive(Debug)]
struct Drifting {
    since: Instant,
    /// Since when just these kinds differ: a router that was gone is back, but empty.
    latest: Instant,
    kinds: u64,
    /// It was there before this process ever saw the Service right.
    unseen: bool,
    /// What was to be put right, while nobody knows that it was: the write failed, or its answer was lost.
    tried: Option<Drift>,
    /// The kinds that were counted as found.
    counted: BTreeSet<&'static str>,
}

/// How often a Service was found to differ; see [`Drifts::unaware`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unaware(u64);

/// One drift, and what became of it.
struct Found {
    drift: Drift,
    /// The same for all that one change hit.
    since: Instant,
    /// The same for the last change before it could be put right.
    latest: Instant,
    /// Nobody saw it come.
    unseen: bool,
    /// The kinds that were counted as found before.
    counted: BTreeSet<&'static str>,
    fate: Fate,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Fate {
    /// It was put right; from the last change to the answer of the write.
    Repaired(Duration),
    /// It could not be put right yet, for this reason.
    Failed(String),
    /// The brake holds it, which its user is told at length.
    Held,
    /// It is only told (`--report-only`).
    Left,
    /// It was told, and is over without our doing.
    Over,
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

    /// The Service has what it wants. What was to be put right is, however that came about: the answer of a write may have
    /// been lost.
    pub(super) fn settled(&self, wanted: &Wanted) {
        let mut state = self.lock();
        let (owner, fingerprint) = (wanted.owner(), wanted.fingerprint());
        let known = state.known(&owner.key);
        let drifting = known.drifting.take();
        (known.settled, known.differs) = (Some(fingerprint), false);
        if self.report_only {
            state.told.remove(&owner.key);
        }
        let Some(mut drifting) = drifting else { return };
        if let Some(tried) = drifting.tried.take() {
            state.brake.repaired(&owner.key, Moment::now());
            self.send(tried, Some(&drifting), Fate::Repaired(drifting.latest.elapsed()));
        } else {
            self.is_over(owner.clone(), &drifting);
        }
    }

    pub(super) fn forget(&self, key: &ServiceKey) {
        let mut state = self.lock();
        let known = state.known.remove(key);
        state.told.remove(key);
        state.brake.forget(key);
        if let Some(drifting) = known.and_then(|known| known.drifting) {
            // Nobody is told any more whose it was.
            self.is_over(Owner { key: key.clone(), uid: Uuid::nil() }, &drifting);
        }
    }

    /// What was counted as found is open no more.
    fn is_over(&self, owner: Owner, drifting: &Drifting) {
        if !drifting.counted.is_empty() {
            self.send(Drift { owner, differences: Vec::new() }, Some(drifting), Fate::Over);
        }
    }

    /// What a difference means that was seen at `since`. Whether what is there is what was last written is asked of
    /// `is_as_left`, with whether the wish is the one that was last seen to be there.
    pub(super) fn judge(
        &self,
        wanted: &Wanted,
        differences: &[Difference],
        since: Instant,
        is_as_left: impl FnOnce(bool) -> bool,
    ) -> Judgement {
        let (key, now) = (&wanted.owner().key, Moment::now());
        let mut state = self.lock();
        let known = state.known(key);
        known.judged += 1;
        if !known.differs(wanted, differences, since, is_as_left) {
            // What is there follows another wish from now on, or nobody knows how much of it.
            known.settled = None;
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
        self.lock().known(&wanted.owner().key).differs(wanted, differences, since, |is_known| !is_known);
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

    /// It is not to be put right, and is reported.
    pub(super) fn report(&self, owner: &Owner, differences: Vec<Difference>) {
        self.lock().told.insert(owner.key.clone(), described(&differences));
        self.found(Drift { owner: owner.clone(), differences }, Fate::Left);
    }

    /// The brake holds it.
    pub(super) fn held(&self, owner: &Owner, differences: Vec<Difference>) {
        self.found(Drift { owner: owner.clone(), differences }, Fate::Held);
    }

    /// It is being put right by a look of its own, or was tried to be: whoever sees it right says so.
    pub(super) fn tries(&self, owner: &Owner, differences: Vec<Difference>) {
        if let Some(drifting) = &mut self.lock().known(&owner.key).drifting {
            drifting.tried = Some(Drift { owner: owner.clone(), differences });
        }
    }

    /// A look of its own has failed.
    pub(super) fn failed(&self, key: &ServiceKey, why: &ProviderError) {
        let tried = self.lock().known.get(key).and_then(|known| known.drifting.as_ref()?.tried.clone());
        if let Some(tried) = tried {
            self.found(tried, Fate::Failed(why.to_string()));
        }
    }

    /// Reports it, unless all of it was.
    fn found(&self, drift: Drift, fate: Fate) {
        let kinds: BTreeSet<_> = drift.differences.iter().map(|difference| difference.kind).collect();
        let mut state = self.lock();
        let Some(drifting) = &mut state.known(&drift.owner.key).drifting else { return };
        if fate == Fate::Left || !kinds.is_subset(&drifting.counted) {
            self.send(drift, Some(&**drifting), fate);
            drifting.counted.extend(kinds);
        }
    }

    /// It was put right together with others.
    pub(super) fn repaired(&self, owner: &Owner, differences: Vec<Difference>) {
        let mut state = self.lock();
        state.brake.repaired(&owner.key, Moment::now());
        let drifting = state.known(&owner.key).drifting.take();
        drop(state);
        let took = drifting.as_ref().map_or(Duration::ZERO, |drifting| drifting.latest.elapsed());
        self.send(Drift { owner: owner.clone(), differences }, drifting.as_deref(), Fate::Repaired(took));
    }

    /// Something outside belongs to a Service that is not there.
    pub(super) fn orphan(&self, owner: &Owner, what: &str, removed: bool) {
        let difference = Difference { kind: ORPHAN, expected: "nothing".into(), found: what.to_owned() };
        let fate = if removed { Fate::Repaired(Duration::ZERO) } else { Fate::Left };
        self.send(Drift { owner: owner.clone(), differences: vec![difference] }, None, fate);
    }

    fn send(&self, drift: Drift, drifting: Option<&Drifting>, fate: Fate) {
        let now = Instant::now();
        let (since, latest) = drifting.map_or((now, now), |drifting| (drifting.since, drifting.latest));
        let unseen = drifting.is_some_and(|drifting| drifting.unseen);
        let counted = drifting.map(|drifting| drifting.counted.clone()).unwrap_or_default();
        // Nobody listens any more when the process ends.
        let _ = self.reports.send(Found { drift, since, latest, unseen, counted, fate });
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
    /// Whether somebody else made it so. What was made so before stays so until it is right, whatever is wanted by then.
    fn differs(
        &mut self,
        wanted: &Wanted,
        differences: &[Difference],
        since: Instant,
        is_as_left: impl FnOnce(bool) -> bool,
    ) -> bool {
        self.differs = true;
        if self.drifting.is_none() && is_as_left(self.settled == Some(wanted.fingerprint())) {
            return false;
        }
        let kinds = hash(&differences.iter().map(|difference| difference.kind).collect::<BTreeSet<_>>());
        let unseen = self.settled.is_none();
        // The news of what nobody saw come is that somebody looks.
        let since = if unseen { Instant::now() } else { since };
        let drifting = self.drifting.get_or_insert_with(|| Box::new(Drifting::new(since, kinds, unseen)));
        if drifting.kinds != kinds {
            (drifting.latest, drifting.kinds) = (since, kinds);
        }
        true
    }
}

impl Drifting {
    fn new(since: Instant, kinds: u64, unseen: bool) -> Self {
        Self { since, latest: since, kinds, unseen, tried: None, counted: BTreeSet::new() }
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
