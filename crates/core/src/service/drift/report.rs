//! Reports what drifted: counts it, asks who did it, and tells people.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::core::v1::ObjectReference;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{Fate, Found, ORPHAN, kinds};
use crate::drift::{Attribute, Cause, Drift, DriftMetrics, Round};
use crate::events::{Events, Severity, reference};
use crate::key::ServiceKey;
use crate::leader::Moment;
use crate::page::Board;

/// What comes within this time of each other is one change, told once.
const BREATH: Duration = Duration::from_millis(500);
/// A change that does not end is told all the same.
const LONGEST_ROUND: Duration = Duration::from_secs(10);
/// From here on one summary is told as well.
const MASS: usize = 10;
/// From here on only the summary is: nobody reads a thousand Events, and they would crowd out others.
const CROWD: usize = 100;

/// The task that reports.
pub(in crate::service) struct Reporter {
    pub(super) found: mpsc::UnboundedReceiver<Found>,
    pub(super) attribute: Arc<dyn Attribute>,
    pub(super) events: Events,
    /// What a summary is about: this controller itself.
    pub(super) about: ObjectReference,
    /// The last are on the status page.
    pub(super) board: Board,
    pub(super) metrics: DriftMetrics,
}

impl Reporter {
    pub(in crate::service) async fn run(mut self, stop: CancellationToken) {
        while let Some(Some(first)) = stop.run_until_cancelled(self.found.recv()).await {
            let found = self.gather(first, &stop).await;
            let (orphans, drifted): (Vec<_>, Vec<_>) = found.into_iter().partition(Found::is_orphan);
            for found in &orphans {
                self.count(found, &Cause::unknown());
                self.tell_one(found, &Cause::unknown());
            }
            for (cause, found) in by_cause(drifted, &*self.attribute) {
                self.tell(&cause, &found);
            }
        }
    }

    /// Everything that comes close to each other.
    async fn gather(&mut self, first: Found, stop: &CancellationToken) -> Vec<Found> {
        let latest = Instant::now() + LONGEST_ROUND;
        let mut found = vec![first];
        loop {
            let breath = latest.min(Instant::now() + BREATH);
            match stop.run_until_cancelled(timeout_at(breath, self.found.recv())).await {
                Some(Ok(Some(next))) => found.push(next),
                _ => return found,
            }
        }
    }

    fn tell(&self, cause: &Cause, found: &[Found]) {
        for found in found {
            self.count(found, cause);
        }
        let found: Vec<_> = found.iter().filter(|found| found.fate != Fate::Over).collect();
        if found.is_empty() {
            return;
        }
        // A crowd would only push itself out again.
        for Found { drift, fate, .. } in found.iter().take(CROWD) {
            self.board.drifted(drift.owner.to_string(), kinds(&drift.differences), cause.words.clone(), fate.took());
        }
        let services: BTreeSet<_> = found.iter().map(|found| &found.drift.owner.key).collect();
        let what = kinds(found.iter().flat_map(|found| &found.drift.differences));
        let remedy = cause.remedy.as_deref().unwrap_or_default();
        if services.len() >= MASS {
            let outcome = outcome(&found);
            if found.iter().any(|found| found.counted.is_empty()) {
                self.metrics.mass.with_label_values(&[cause.label]).inc();
            }
            let note =
                format!("{} Services were changed by {}: {what}; {outcome}. {remedy}", services.len(), cause.words);
            warn!(services = services.len(), cause = cause.label, remedy, "drift: {what}; {outcome}");
            self.events.tell(self.about.clone(), Severity::Warning, "MassDrift", note.trim_end());
        } else {
            for Found { drift, fate, .. } in &found {
                let lines: Vec<_> = drift.differences.iter().map(ToString::to_string).collect();
                let outcome = fate.words();
                info!(service = %drift.owner, cause = cause.label, remedy, "drift: {}; {outcome}", lines.join("; "));
            }
        }
        if services.len() < CROWD {
            // Who is held is told so by an Event of its own.
            for found in found.into_iter().filter(|found| found.fate != Fate::Held) {
                self.tell_one(found, cause);
            }
        }
    }

    fn tell_one(&self, found: &Found, cause: &Cause) {
        let (about, reason, note) = found.event(cause);
        self.events.tell(about, Severity::Warning, reason, note);
    }

    fn count(&self, found: &Found, cause: &Cause) {
        let mut kinds: BTreeSet<_> = found.drift.differences.iter().map(|difference| difference.kind).collect();
        for kind in kinds.difference(&found.counted) {
            self.metrics.found.with_label_values(&[kind, cause.label]).inc();
        }
        // All of it is over, so that what was found less what was put right is what is open.
        if matches!(found.fate, Fate::Repaired(_) | Fate::Over) {
            kinds.extend(&found.counted);
            for kind in kinds {
                self.metrics.repaired.with_label_values(&[kind, cause.label]).inc();
            }
        }
        // Nobody waits for an orphan to go.
        if let Some(took) = found.fate.took().filter(|_| !found.is_orphan()) {
            self.metrics.repair.observe(took.as_secs_f64());
        }
    }
}

/// What was seen at the very same time was one change, and has one cause. What only came close to it may be somebody
/// else's. What nobody saw come is told together.
pub(super) fn by_cause(found: Vec<Found>, attribute: &dyn Attribute) -> Vec<(Cause, Vec<Found>)> {
    let mut changes = BTreeMap::<_, Vec<Found>>::new();
    let unseen = found.iter().filter(|found| found.unseen).map(|found| found.since).min();
    for found in found {
        let unseen = unseen.filter(|_| found.unseen).map(|since| (since, since));
        changes.entry(unseen.unwrap_or((found.since, found.latest))).or_default().push(found);
    }
    let mut causes: Vec<(Cause, Vec<Found>)> = Vec::new();
    for ((since, latest), found) in changes {
        let drifts = found.iter().map(|found| found.drift.clone()).collect();
        let mut round = Round { seen: Moment::ago(since.elapsed()), drifts };
        let mut cause = attribute.cause(&round);
        if cause.label == Cause::unknown().label && latest > since {
            round.seen = Moment::ago(latest.elapsed());
            cause = attribute.cause(&round);
        }
        match causes.iter_mut().find(|(same, _)| *same == cause) {
            Some((_, others)) => others.extend(found),
            None => causes.push((cause, found)),
        }
    }
    causes
}

impl Found {
    fn is_orphan(&self) -> bool {
        self.drift.differences.iter().any(|difference| difference.kind == ORPHAN)
    }

    /// What it is about, its reason and its words.
    fn event(&self, cause: &Cause) -> (ObjectReference, &'static str, String) {
        let Drift { owner, differences } = &self.drift;
        let ServiceKey { namespace, name } = &owner.key;
        if self.is_orphan() {
            let what = differences.iter().map(|difference| difference.found.as_str()).collect::<Vec<_>>().join(", ");
            let note = format!("{what} was left for Service {name}, which is not served");
            // There may be no Service to tell it.
            let about = reference::<core::Namespace>(None, namespace, None);
            return match self.fate {
                Fate::Repaired(_) => (about, "OrphanRemoved", format!("{note}; removed")),
                _ => (about, "OrphanFound", format!("{note}; not removed")),
            };
        }
        let note = format!("{} changed by {}; {}", kinds(differences), cause.words, self.fate.words());
        let about = reference::<core::Service>(Some(namespace.clone()), name, Some(owner.uid.to_string()));
        (about, if self.fate.took().is_some() { "DriftRepaired" } else { "DriftFound" }, note)
    }
}

impl Fate {
    pub(super) fn took(&self) -> Option<Duration> {
        match self {
            Self::Repaired(took) => Some(*took),
            _ => None,
        }
    }

    fn words(&self) -> String {
        match self {
            Self::Repaired(took) => format!("put right after {} ms", took.as_millis()),
            Self::Failed(why) => format!("not put right yet: {why}"),
            Self::Held => "held back".to_owned(),
            Self::Left => "not put right (--report-only)".to_owned(),
            Self::Over => "over".to_owned(),
        }
    }
}

/// What became of many.
fn outcome(found: &[&Found]) -> String {
    let longest = found.iter().map(|found| &found.fate).max_by_key(|fate| fate.took());
    let open: Vec<_> = found.iter().filter(|found| found.fate.took().is_none()).collect();
    match (longest, open.first()) {
        (Some(longest @ Fate::Repaired(_)), None) => longest.words(),
        (Some(longest @ Fate::Repaired(_)), Some(one)) => {
            format!("{}, but for {} of them: {}", longest.words(), open.len(), one.fate.words())
        }
        (_, one) => one.map(|one| one.fate.words()).unwrap_or_default(),
    }
}
