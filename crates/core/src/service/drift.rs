//! Tells a change behind our back from a new wish, holds repairs that only feed a fight, and reports the others.
//!
//! A Service that differs outside although it wants just what it last had there has drifted. It is put right first;
//! the report comes after, from a task of its own that waits for whatever else belongs to the same change.

use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::core::v1::ObjectReference;
use prometheus::{Histogram, IntCounter, IntCounterVec, IntGauge, Registry};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::drift::{Attribute, Brake, Cause, Drift, Held, Round};
use crate::events::{Events, Severity, reference};
use crate::key::ServiceKey;
use crate::leader::Moment;
use crate::metrics::{counter, counters, gauge, seconds};
use crate::provider::{Difference, Owner, Wanted};
use crate::runtime::Runtime;

/// What comes within this time of each other is one change, told once.
const BREATH: Duration = Duration::from_millis(500);
/// A change that does not end is told all the same.
const LONGEST_ROUND: Duration = Duration::from_secs(10);
/// From here on one summary is told as well.
const MASS: usize = 10;
/// From here on only the summary is: nobody reads a thousand Events, and they would crowd out others.
const CROWD: usize = 100;

/// What a difference means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Judgement {
    /// Something else is wanted than before, or nothing is known of before.
    Wish,
    /// Somebody changed it. It may be put right.
    Drift,
    /// Somebody changes it again and again. `news` for the first look of a hold.
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
    /// The fingerprint of what each Service wanted when it was last seen to have it.
    settled: HashMap<ServiceKey, u64>,
    brake: Brake,
    /// Since when those are drifting that are not put right yet.
    drifting: HashMap<ServiceKey, Instant>,
    /// Holds that were told, and with `report_only` differences that were.
    told: HashMap<ServiceKey, u64>,
}

/// One drift that was put right, or is only told.
struct Found {
    drift: Drift,
    seen: Moment,
    /// From when it was seen to the answer of the write.
    took: Option<Duration>,
}

impl Drifts {
    pub(super) fn new(
        attribute: Arc<dyn Attribute>,
        report_only: bool,
        runtime: &Runtime,
    ) -> prometheus::Result<(Self, Reporter)> {
        let Runtime { registry, events, about, .. } = runtime;
        let (reports, found) = mpsc::unbounded_channel();
        let flapping =
            gauge(registry, "groundcrew_drift_flapping_count", "Services that somebody else changes again and again.")?;
        let reporter = Reporter {
            found,
            attribute: attribute.clone(),
            events: events.clone(),
            about: about.clone(),
            metrics: DriftMetrics::new(registry)?,
        };
        Ok((Self { state: Mutex::default(), reports, attribute, report_only, flapping }, reporter))
    }

    /// The Service has what it wants.
    pub(super) fn settled(&self, wanted: &Wanted) {
        let mut state = self.lock();
        let (key, fingerprint) = (&wanted.owner().key, wanted.fingerprint());
        // Nearly always it is there already, and cloning a key is not free.
        match state.settled.get_mut(key) {
            Some(known) => *known = fingerprint,
            None => drop(state.settled.insert(key.clone(), fingerprint)),
        }
        state.drifting.remove(key);
        if self.report_only {
            state.told.remove(key);
        }
    }

    pub(super) fn forget(&self, key: &ServiceKey) {
        let mut state = self.lock();
        state.settled.remove(key);
        state.told.remove(key);
        state.drifting.remove(key);
        state.brake.forget(key);
    }

    /// What a difference means that was seen at `since`.
    pub(super) fn judge(&self, wanted: &Wanted, differences: &[Difference], since: Instant) -> Judgement {
        let (key, now) = (&wanted.owner().key, Moment::now());
        let mut state = self.lock();
        if state.settled.get(key) != Some(&wanted.fingerprint()) {
            return Judgement::Wish;
        }
        state.drifting.entry(key.clone()).or_insert(since);
        if self.report_only {
            let news = state.is_news(key, &differences.iter().map(ToString::to_string).collect::<Vec<_>>());
            return Judgement::Report { news };
        }
        match state.brake.admit(key, now) {
            Ok(()) => Judgement::Drift,
            Err(held) => {
                let news = state.is_news(key, &held.until);
                if news {
                    self.measure(&state, now);
                }
                Judgement::Held { held, news }
            }
        }
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

    /// Has it reported.
    pub(super) fn report(&self, owner: &Owner, differences: Vec<Difference>) {
        self.tell(owner, differences, false);
    }

    /// The same for what was put right.
    pub(super) fn repaired(&self, owner: &Owner, differences: Vec<Difference>) {
        self.lock().brake.repaired(&owner.key, Moment::now());
        self.tell(owner, differences, true);
    }

    fn tell(&self, owner: &Owner, differences: Vec<Difference>, repaired: bool) {
        let since = if repaired { self.lock().drifting.remove(&owner.key) } else { None };
        let took = since.map_or(Duration::ZERO, |since| since.elapsed());
        let drift = Drift { owner: owner.clone(), differences };
        // Nobody listens any more when the process ends.
        let _ = self.reports.send(Found { drift, seen: Moment::ago(took), took: repaired.then_some(took) });
    }

    /// Who changes this Service.
    pub(super) fn cause(&self, owner: &Owner, differences: &[Difference]) -> Cause {
        let drift = Drift { owner: owner.clone(), differences: differences.to_vec() };
        self.attribute.cause(&Round { seen: Moment::now(), drifts: vec![drift] })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn is_news(&mut self, key: &ServiceKey, what: &impl Hash) -> bool {
        let mut hasher = DefaultHasher::new();
        what.hash(&mut hasher);
        let hash = hasher.finish();
        self.told.insert(key.clone(), hash) != Some(hash)
    }
}

/// The kinds in a list of differences, each once.
pub(super) fn kinds(differences: &[Difference]) -> String {
    let kinds: BTreeSet<_> = differences.iter().map(|difference| difference.kind).collect();
    kinds.into_iter().collect::<Vec<_>>().join(", ")
}

struct DriftMetrics {
    found: IntCounterVec,
    repaired: IntCounterVec,
    took: Histogram,
    mass: IntCounter,
}

impl DriftMetrics {
    fn new(registry: &Registry) -> prometheus::Result<Self> {
        let by = &["kind", "cause"];
        Ok(Self {
            found: counters(
                registry,
                "groundcrew_drift_found_total",
                "Differences that somebody else made, by kind and likely cause; one a Service and kind.",
                by,
            )?,
            repaired: counters(
                registry,
                "groundcrew_drift_repaired_total",
                "Differences that somebody else made and that were put right, by kind and likely cause.",
                by,
            )?,
            took: seconds(
                registry,
                "groundcrew_drift_repair_seconds",
                "From the news of a change to the answer of the write that put it right.",
            )?,
            mass: counter(
                registry,
                "groundcrew_drift_mass_total",
                "Changes by somebody else that hit ten Services or more.",
            )?,
        })
    }
}

/// The task that reports.
pub(super) struct Reporter {
    found: mpsc::UnboundedReceiver<Found>,
    attribute: Arc<dyn Attribute>,
    events: Events,
    /// What a summary is about: this controller itself.
    about: ObjectReference,
    metrics: DriftMetrics,
}

impl Reporter {
    pub(super) async fn run(mut self, stop: CancellationToken) {
        while let Some(Some(first)) = stop.run_until_cancelled(self.found.recv()).await {
            let round = self.gather(first, &stop).await;
            self.tell(round);
        }
    }

    /// Everything that comes close to each other.
    async fn gather(&mut self, first: Found, stop: &CancellationToken) -> Vec<Found> {
        let latest = Instant::now() + LONGEST_ROUND;
        let mut round = vec![first];
        loop {
            let breath = latest.min(Instant::now() + BREATH);
            match stop.run_until_cancelled(timeout_at(breath, self.found.recv())).await {
                Some(Ok(Some(found))) => round.push(found),
                _ => return round,
            }
        }
    }

    fn tell(&self, found: Vec<Found>) {
        let Some(seen) = found.iter().map(|found| found.seen).min() else { return };
        let took: Vec<_> = found.iter().map(|found| found.took).collect();
        let round = Round { seen, drifts: found.into_iter().map(|found| found.drift).collect() };
        let cause = self.attribute.cause(&round);
        for (drift, took) in round.drifts.iter().zip(&took) {
            self.count(drift, *took, &cause);
        }
        let services: BTreeSet<_> = round.drifts.iter().map(|drift| &drift.owner.key).collect();
        let slowest = took.iter().flatten().max();
        let what = kinds(&round.drifts.iter().flat_map(|drift| drift.differences.clone()).collect::<Vec<_>>());
        let remedy = cause.remedy.as_deref().unwrap_or_default();
        let outcome = words(slowest.copied());
        if services.len() >= MASS {
            self.metrics.mass.inc();
            let note =
                format!("{} Services were changed by {}: {what}; {outcome}. {remedy}", services.len(), cause.words);
            warn!(services = services.len(), cause = cause.label, remedy, "drift: {what}; {outcome}");
            self.events.tell(self.about.clone(), Severity::Warning, "MassDrift", note.trim_end());
        } else {
            for drift in &round.drifts {
                let lines: Vec<_> = drift.differences.iter().map(ToString::to_string).collect();
                info!(service = %drift.owner, cause = cause.label, remedy, "drift: {}; {outcome}", lines.join("; "));
            }
        }
        if services.len() < CROWD {
            for (drift, took) in round.drifts.iter().zip(&took) {
                let note = format!("{} changed by {}; {}", kinds(&drift.differences), cause.words, words(*took));
                let key = &drift.owner.key;
                let uid = Some(drift.owner.uid.to_string());
                let about = reference::<core::Service>(Some(key.namespace.clone()), &key.name, uid);
                let reason = if took.is_some() { "DriftRepaired" } else { "DriftFound" };
                self.events.tell(about, Severity::Warning, reason, note);
            }
        }
    }

    fn count(&self, drift: &Drift, took: Option<Duration>, cause: &Cause) {
        let kinds: BTreeSet<_> = drift.differences.iter().map(|difference| difference.kind).collect();
        for kind in kinds {
            self.metrics.found.with_label_values(&[kind, cause.label]).inc();
            if took.is_some() {
                self.metrics.repaired.with_label_values(&[kind, cause.label]).inc();
            }
        }
        if let Some(took) = took {
            self.metrics.took.observe(took.as_secs_f64());
        }
    }
}

fn words(took: Option<Duration>) -> String {
    match took {
        Some(took) => format!("put right after {} ms", took.as_millis()),
        None => "not put right (--report-only)".to_owned(),
    }
}
