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

use super::{Found, ORPHAN, kinds};
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
        // A crowd would only push itself out again.
        for Found { drift, took, .. } in found.iter().take(CROWD) {
            self.board.drifted(drift.owner.to_string(), kinds(&drift.differences), cause.words.clone(), *took);
        }
        let services: BTreeSet<_> = found.iter().map(|found| &found.drift.owner.key).collect();
        let what = kinds(found.iter().flat_map(|found| &found.drift.differences));
        let remedy = cause.remedy.as_deref().unwrap_or_default();
        if services.len() >= MASS {
            let outcome = words(found.iter().filter_map(|found| found.took).max());
            self.metrics.mass.with_label_values(&[cause.label]).inc();
            let note =
                format!("{} Services were changed by {}: {what}; {outcome}. {remedy}", services.len(), cause.words);
            warn!(services = services.len(), cause = cause.label, remedy, "drift: {what}; {outcome}");
            self.events.tell(self.about.clone(), Severity::Warning, "MassDrift", note.trim_end());
        } else {
            for Found { drift, took, .. } in found {
                let lines: Vec<_> = drift.differences.iter().map(ToString::to_string).collect();
                let outcome = words(*took);
                info!(service = %drift.owner, cause = cause.label, remedy, "drift: {}; {outcome}", lines.join("; "));
            }
        }
        if services.len() < CROWD {
            for found in found {
                self.tell_one(found, cause);
            }
        }
    }

    fn tell_one(&self, found: &Found, cause: &Cause) {
        let (about, reason, note) = found.event(cause);
        self.events.tell(about, Severity::Warning, reason, note);
    }

    fn count(&self, found: &Found, cause: &Cause) {
        let kinds: BTreeSet<_> = found.drift.differences.iter().map(|difference| difference.kind).collect();
        for kind in kinds {
            self.metrics.found.with_label_values(&[kind, cause.label]).inc();
            if found.took.is_some() {
                self.metrics.repaired.with_label_values(&[kind, cause.label]).inc();
            }
        }
        // Nobody waits for an orphan to go.
        if let Some(took) = found.took.filter(|_| !found.is_orphan()) {
            self.metrics.repair.observe(took.as_secs_f64());
        }
    }
}

/// What was seen at the very same time was one change, and has one cause. What only came close to it may be somebody
/// else's.
pub(super) fn by_cause(found: Vec<Found>, attribute: &dyn Attribute) -> Vec<(Cause, Vec<Found>)> {
    let mut changes = BTreeMap::<_, Vec<Found>>::new();
    for found in found {
        changes.entry((found.since, found.latest)).or_default().push(found);
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
            return match self.took {
                Some(_) => (about, "OrphanRemoved", format!("{note}; removed")),
                None => (about, "OrphanFound", format!("{note}; not removed")),
            };
        }
        let note = format!("{} changed by {}; {}", kinds(differences), cause.words, words(self.took));
        let about = reference::<core::Service>(Some(namespace.clone()), name, Some(owner.uid.to_string()));
        (about, if self.took.is_some() { "DriftRepaired" } else { "DriftFound" }, note)
    }
}

fn words(took: Option<Duration>) -> String {
    match took {
        Some(took) => format!("put right after {} ms", took.as_millis()),
        None => "not put right (--report-only)".to_owned(),
    }
}
