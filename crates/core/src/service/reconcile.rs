//! One look at one Service: what is wanted, what is there, what follows.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1 as core;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tracing::{Instrument, debug, info, warn};

use super::cache::Cache;
use super::class::{Class, Intent};
use super::desired::{desired, trouble};
use super::drift::{self, Drifts, Judgement};
use super::gaps::{self, Gaps};
use super::metrics::ServiceMetrics;
use super::names::{CLAIMED_BY, FINALIZER, PAUSED};
use super::object::Service;
use super::pending::Pending;
use super::preview::outside;
use super::status::{self, Status};
use super::wire;
use crate::diff;
use crate::drift::Held;
use crate::events::{Events, Severity, reference};
use crate::key::ServiceKey;
use crate::leader::{Moment, Term};
use crate::page::{Board, KEPT};
use crate::provider::{
    Difference, ErrorKind, LoadBalancers, Owner, ProviderError, Reachable, Realised, Verdict, Wanted,
};
use crate::queue::Outcome;

/// Around a whole look. Each call in it has a shorter one of its own; this one is for what nobody thought of.
const DEADLINE: Duration = Duration::from_mins(1);

/// When to look again at a Service that somebody changed again and again, and does no more.
const CALM: Duration = Duration::from_mins(1);

pub(super) struct Reconciler<P> {
    pub(super) provider: Arc<P>,
    pub(super) cache: Arc<Cache>,
    pub(super) class: Class,
    pub(super) client: Client,
    pub(super) events: Events,
    pub(super) board: Board,
    pub(super) metrics: ServiceMetrics,
    /// The term under which to write, once it has begun; without one nothing is written.
    pub(super) term: watch::Receiver<Option<Term>>,
    pub(super) write_deadline: Duration,
    pub(super) dry_run: bool,
    pub(super) drifts: Drifts,
    pub(super) gaps: Gaps,
    pub(super) pending: Pending,
}

/// A Service that somebody should look at.
#[derive(Debug)]
pub(super) struct Glance {
    pub(super) key: ServiceKey,
    /// Since when.
    pub(super) since: Instant,
    /// What its difference means, where that was asked already.
    judged: Option<Judgement>,
}

/// What is left to do after one glance at a Service.
pub(super) enum Rest {
    Nothing(Outcome),
    /// It only differs outside, and can be put right together with others.
    Repair(Box<Repair>),
    /// A look of its own, which may take a while.
    Look(Glance),
}

/// What the full comparison finds about a Service.
pub(super) enum Inspection {
    /// It is served as it should be, and says so.
    Quiet,
    /// It differs outside.
    Differs,
    /// It is served as it should be, and does not say so.
    Unsaid,
    /// The provider cannot tell now.
    Unknown,
    /// Something else is to be done about it, or is in the way.
    Other,
}

/// A Service that has its addresses and differs outside.
pub(super) struct Repair {
    glance: Glance,
    wanted: Wanted,
    differences: Vec<Difference>,
    /// Whether somebody else made them, and not a new wish.
    drifted: bool,
}

impl Glance {
    pub(super) fn new(key: ServiceKey, since: Instant) -> Self {
        Self { key, since, judged: None }
    }
}

impl<P: LoadBalancers> Reconciler<P> {
    /// What is left to do about a Service. Nearly always it is nothing, and that is decided from memory alone.
    pub(super) fn glance(&self, mut glance: Glance) -> Rest {
        let key = &glance.key;
        if self.term.borrow().is_none() {
            self.preview(key, glance.since);
            return Rest::Nothing(Outcome::Done);
        }
        let Some(service) = self.cache.service(key).filter(|service| self.is_served(service)) else {
            return Rest::Look(glance);
        };
        let Ok(wanted) = self.wanted(&service) else { return Rest::Look(glance) };
        match self.verify(&wanted) {
            Verdict::Same(mut reachable) => {
                self.drifts.settled(&wanted);
                let (status, outcome) = self.status(&wanted, &mut reachable);
                if reachable.realised != Realised::Awaited && status.patch(&service, Timestamp::now()).is_some() {
                    return Rest::Look(glance);
                }
                self.went_well(key);
                Rest::Nothing(outcome)
            }
            Verdict::Differs(differences) if self.provider.shares_writes() => {
                let judged = self.judge(&wanted, &differences, glance.since);
                match &judged {
                    Judgement::Held { held, news: false } => return Rest::Nothing(until(held)),
                    Judgement::Held { news: true, .. } | Judgement::Report { .. } => {
                        glance.judged = Some(judged);
                        return Rest::Look(glance);
                    }
                    Judgement::Wish | Judgement::Drift => {}
                }
                let drifted = judged == Judgement::Drift;
                glance.judged = Some(judged);
                Rest::Repair(Box::new(Repair { glance, wanted, differences, drifted }))
            }
            Verdict::Differs(_) | Verdict::Unknown => Rest::Look(glance),
        }
    }

    /// What is to be said about a Service, from memory alone and without consequences.
    pub(super) fn inspect(&self, key: &ServiceKey) -> Inspection {
        let Some(service) = self.cache.service(key) else { return Inspection::Other };
        if service.paused && !self.cache.has_departed(key) {
            // One that hangs in its deletion is told again and again.
            return if service.deleting { Inspection::Other } else { Inspection::Quiet };
        }
        if !self.is_served(&service) {
            return Inspection::Other;
        }
        let Ok(wanted) = self.wanted(&service) else { return Inspection::Other };
        match self.verify(&wanted) {
            Verdict::Differs(_) => Inspection::Differs,
            Verdict::Unknown => Inspection::Unknown,
            Verdict::Same(mut reachable) => {
                self.drifts.settled(&wanted);
                let (status, _) = self.status(&wanted, &mut reachable);
                let says_so = status.patch(&service, Timestamp::now()).is_none();
                if says_so { Inspection::Quiet } else { Inspection::Unsaid }
            }
        }
    }

    /// Whether there is nothing to do about it in Kubernetes before something is done outside, nor to be told to its user.
    fn is_served(&self, service: &Service) -> bool {
        !service.paused
            && !service.ingress.is_empty()
            && self.class.claimed(service)
            && self.class.serves(service)
            && !self.cache.has_departed(service.key())
            && trouble(service, &self.group(service)).is_none()
    }

    /// Puts right what only differs outside, all of it together. What fails is left to a look of its own.
    pub(super) async fn repair(&self, repairs: Vec<Repair>) -> (Vec<(ServiceKey, Outcome)>, Vec<Glance>) {
        let term = self.term.borrow().clone();
        let Some(term) = term else {
            return (Vec::new(), repairs.into_iter().map(|repair| repair.glance).collect());
        };
        let (wants, rest): (Vec<_>, Vec<_>) = repairs
            .into_iter()
            .map(|Repair { glance, wanted, differences, drifted }| (wanted, (glance, differences, drifted)))
            .unzip();
        let started = Instant::now();
        let answers = timeout(DEADLINE, self.provider.ensure_all(&wants, &term)).await.unwrap_or_default();
        let took = started.elapsed();
        let (mut done, mut failed) = (Vec::new(), Vec::new());
        let mut answers = answers.into_iter();
        for (n, (wanted, (glance, differences, drifted))) in wants.iter().zip(rest).enumerate() {
            let Some(Ok(mut reachable)) = answers.next() else {
                if drifted {
                    // It may be put right all the same: then it is the next look that sees it.
                    self.drifts.tries(wanted.owner(), differences);
                }
                failed.push(glance);
                continue;
            };
            self.metrics.duration.observe(took.as_secs_f64());
            // More would only push each other out again.
            if n < KEPT {
                self.board.planned(glance.key.to_string(), diff::lines(&differences));
            }
            if drifted {
                self.drifts.repaired(wanted.owner(), differences);
            }
            self.drifts.settled(wanted);
            let (status, outcome) = self.status(wanted, &mut reachable);
            let says_so = reachable.realised == Realised::Awaited
                || self.cache.service(&glance.key).is_some_and(|s| status.patch(&s, Timestamp::now()).is_none());
            if says_so {
                self.went_well(&glance.key);
            }
            done.push((glance.key, if says_so { outcome } else { Outcome::Again(Duration::ZERO) }));
        }
        (done, failed)
    }

    /// What to publish for a Service that is served, and when to look at it again. What its backends leave open is added to
    /// what its user should know.
    pub(super) fn status(&self, wanted: &Wanted, reachable: &mut Reachable) -> (Status, Outcome) {
        let key = &wanted.owner().key;
        let told = || self.cache.service(key).and_then(|service| gaps::told(&service));
        let (gap, lasts) = self.gaps.judge(wanted, told, Instant::now());
        reachable.caveats.extend(gap);
        let flapping = self.drifts.flapping(key, Moment::now());
        let status = Status::served(reachable, wanted.has_backends(), flapping.is_some());
        // Somebody has to say when it is over.
        let calm = flapping.map(|_| CALM);
        let outcome = calm.into_iter().chain(lasts).min().map_or(Outcome::Done, Outcome::Again);
        (status, outcome)
    }

    pub(super) async fn look(&self, glance: Glance) -> (ServiceKey, Outcome) {
        let key = glance.key.clone();
        let term = self.term.borrow().clone();
        let Some(term) = term else {
            self.preview(&key, glance.since);
            return (key, Outcome::Done);
        };
        let span = tracing::info_span!("reconcile", service = %key);
        let outcome = self.look_as_leader(glance, &term).instrument(span).await;
        (key, outcome)
    }

    async fn look_as_leader(&self, glance: Glance, term: &Term) -> Outcome {
        let key = glance.key.clone();
        let started = Instant::now();
        let ended = timeout(DEADLINE, self.reconcile(glance, term)).await;
        self.metrics.duration.observe(started.elapsed().as_secs_f64());
        let error = match ended {
            Ok(Ok(outcome)) => {
                self.went_well(&key);
                return outcome;
            }
            Ok(Err(error)) => error,
            Err(_) => ProviderError::new(ErrorKind::Unavailable, format!("not done within {} s", DEADLINE.as_secs())),
        };
        self.metrics.outcomes.with_label_values(&[error.kind().label()]).inc();
        self.drifts.failed(&key, &error);
        if self.cache.service(&key).is_some_and(|service| !service.deleting && service.ingress.is_empty()) {
            self.pending.begins(&key);
        }
        self.complain(&key, &error, term).await;
        Outcome::Failed(error.response().retry)
    }

    fn went_well(&self, key: &ServiceKey) {
        self.metrics.outcomes.with_label_values(&["ok"]).inc();
        self.pending.ends(key);
    }

    async fn reconcile(&self, glance: Glance, term: &Term) -> Result<Outcome, ProviderError> {
        let key = &glance.key;
        for owner in self.cache.departed(key) {
            self.provider.release(&owner, term).await?;
            self.cache.released(&owner);
            info!(uid = %owner.uid, "released what a vanished Service had");
        }
        let Some(service) = self.cache.service(key) else {
            self.drifts.forget(key);
            self.gaps.forget(key);
            return Ok(Outcome::Done);
        };
        if service.paused {
            debug!("paused by annotation");
            if service.deleting && self.class.intent(&service) == Intent::Leave {
                let note = format!("cannot go while the annotation {PAUSED} is on it: remove it, and the Service goes");
                self.tell(&service, Severity::Warning, "Paused", note);
            }
            return Ok(Outcome::Done);
        }
        match self.class.intent(&service) {
            Intent::Serve => self.serve(&service, glance, term).await,
            Intent::Leave => self.leave(&service, term).await.map(|()| Outcome::Done),
            Intent::Ignore => Ok(Outcome::Done),
        }
    }

    async fn serve(&self, service: &Arc<Service>, glance: Glance, term: &Term) -> Result<Outcome, ProviderError> {
        let mut wanted = self.wanted(service)?;
        let service = &self.claim(service, term).await?;
        let mut verdict = self.verify(&wanted);
        let is_blind = matches!(verdict, Verdict::Unknown) && !wanted.addresses.is_empty();
        if is_blind {
            // Whoever could not see what is there may see it by now: what is missing then is drift, and no first time.
            wanted.addresses = self.provider.hold(&wanted, term).await?.addresses;
            verdict = self.verify(&wanted);
        }
        if let Verdict::Differs(differences) = &verdict {
            if glance.judged.is_some() {
                // What was decided on may have become something else meanwhile.
                self.drifts.noticed(&wanted, differences, Instant::now());
            }
            let judged = glance.judged.unwrap_or_else(|| self.judge(&wanted, differences, glance.since));
            match judged {
                Judgement::Wish => {}
                Judgement::Drift => self.drifts.tries(&service.owner, differences.clone()),
                Judgement::Held { held, news: false } => return Ok(until(&held)),
                Judgement::Held { held, news: true } => return self.hold_back(service, &held, differences, term).await,
                Judgement::Report { news } => {
                    if news {
                        self.drifts.report(&service.owner, differences.clone());
                    }
                    return Ok(Outcome::Done);
                }
            }
        }
        let mut reachable = match verdict {
            Verdict::Same(reachable) => reachable,
            Verdict::Differs(_) | Verdict::Unknown => {
                self.board.planned(service.key().to_string(), outside(service, &verdict));
                if !is_blind {
                    wanted.addresses = self.provider.hold(&wanted, term).await?.addresses;
                }
                self.provider.ensure(&wanted, term).await?
            }
        };
        self.drifts.settled(&wanted);
        // Who is served all the same is told, like who gets nothing because of it.
        if let Some(error) = trouble(service, &self.group(service)).filter(|_| !service.ingress.is_empty()) {
            return Err(error);
        }
        if reachable.realised == Realised::Awaited {
            // Written, and soon in effect: the provider has us look again. Until then no slot is held.
            return Ok(Outcome::Done);
        }
        let (status, outcome) = self.status(&wanted, &mut reachable);
        self.publish(service, &status, term).await?;
        if status::says_flapping(service) {
            self.drifts.count();
        }
        self.announce(service, &reachable);
        Ok(outcome)
    }

    /// Somebody changes it again and again. Its user is told, and it is left as it is for a while.
    async fn hold_back(
        &self,
        service: &Service,
        held: &Held,
        differences: &[Difference],
        term: &Term,
    ) -> Result<Outcome, ProviderError> {
        let now = Moment::now();
        self.drifts.held(&service.owner, differences.to_vec());
        let cause = self.drifts.cause(&service.owner, differences, now);
        let nearby = self.drifts.nearby(now).filter(|words| !cause.words.contains(words));
        let nearby = nearby.map(|words| format!(" ({words})")).unwrap_or_default();
        let note = format!(
            "{} changed again and again since {}, last at {}, probably by {}{nearby}: put right {} times, the next time \
             in {} s. {}",
            drift::kinds(differences),
            held.since.wall_clock(),
            now.wall_clock(),
            cause.words,
            held.repairs,
            now.until(held.until).as_secs(),
            cause.remedy.as_deref().unwrap_or("Find the other writer and stop it."),
        );
        warn!(cause = cause.label, "held back: {note}");
        // Who was not told in the end is told by the next look.
        self.publish(service, &Status::flapping(note.clone()), term).await?;
        self.tell(service, Severity::Warning, "DriftFlapping", note);
        self.drifts.told_hold(service.key(), held);
        Ok(until(held))
    }

    /// In an order that leaves nothing behind wherever it is cut: what is outside, what is published, the finalizer.
    async fn leave(&self, service: &Arc<Service>, term: &Term) -> Result<(), ProviderError> {
        if service.inherited {
            let addresses: Vec<_> = service.ingress.iter().map(|i| i.address).collect();
            self.provider.release_inherited(&service.owner, &addresses, term).await?;
        } else {
            self.provider.release(&service.owner, term).await?;
        }
        let mut service = service.clone();
        if !service.deleting
            && let Some(patch) = status::withdrawal(&service)
        {
            match self.patch(&service, Some("status"), &patch, term).await? {
                Some(now) => service = now,
                None => return Ok(()),
            }
        }
        self.unclaim(&service, term).await?;
        self.drifts.forget(service.key());
        self.gaps.forget(service.key());
        info!("released");
        Ok(())
    }

    /// What the Service wants on the addresses that it has published.
    pub(super) fn wanted(&self, service: &Service) -> Result<Wanted, ProviderError> {
        let (group, addresses) = (self.group(service), self.published(service));
        self.cache.with_slices(service.key(), |slices| desired(service, slices, &group, addresses))
    }

    fn judge(&self, wanted: &Wanted, differences: &[Difference], since: Instant) -> Judgement {
        self.drifts.judge(wanted, differences, since, |is_known| {
            (!is_known || self.provider.may_move_on(differences)) && self.provider.is_as_left(wanted)
        })
    }

    /// A Service without an address has nothing to compare.
    pub(super) fn verify(&self, wanted: &Wanted) -> Verdict {
        if wanted.addresses.is_empty() { Verdict::Unknown } else { self.provider.verify(wanted) }
    }

    /// Puts finalizer and claim on it before anything outside is made for it.
    async fn claim(&self, service: &Arc<Service>, term: &Term) -> Result<Arc<Service>, ProviderError> {
        if self.class.claimed(service) && !service.inherited {
            return Ok(service.clone());
        }
        if let Some(other) = service.claimed_by.as_ref().filter(|_| service.finalizer && !service.inherited) {
            // It knows by that what it has to give back.
            let message = format!(
                "the controller of the class {other} has not let go of it yet; if there is none any more, remove the \
                 annotation {CLAIMED_BY}, and what it had outside"
            );
            return Err(ProviderError::new(ErrorKind::Quota, message).with_reason("ClaimedByAnother"));
        }
        let mut patch = json!({
            "metadata": {
                "resourceVersion": service.resource_version,
                "annotations": { CLAIMED_BY: &*self.class.name },
                // Merges: finalizers of others stay.
                "finalizers": [FINALIZER],
            }
        });
        if service.inherited {
            // In the same write: at no time has the Service none, and the older controller lets go of what is ours now.
            patch["metadata"]["$deleteFromPrimitiveList/finalizers"] = self.provider.takes_over().into();
            info!("taken over from an older controller");
        }
        let gone = || ProviderError::new(ErrorKind::Conflict, format!("Service {} is gone", service.key()));
        self.patch(service, None, &patch, term).await?.ok_or_else(gone)
    }

    async fn unclaim(&self, service: &Service, term: &Term) -> Result<(), ProviderError> {
        let inherited = if service.inherited { self.provider.takes_over() } else { &[] };
        let finalizers: Vec<_> = [FINALIZER].iter().chain(inherited).collect();
        let patch = json!({
            "metadata": {
                "resourceVersion": service.resource_version,
                "annotations": { CLAIMED_BY: null },
                "$deleteFromPrimitiveList/finalizers": finalizers,
            }
        });
        self.patch(service, None, &patch, term).await.map(drop)
    }

    async fn publish(&self, service: &Service, status: &Status, term: &Term) -> Result<(), ProviderError> {
        match status.patch(service, Timestamp::now()) {
            Some(patch) => self.patch(service, Some("status"), &patch, term).await.map(drop),
            None => Ok(()),
        }
    }

    /// One write to the Service. `None` if it is gone, or not ours any more after it.
    async fn patch(
        &self,
        service: &Service,
        subresource: Option<&str>,
        patch: &Value,
        term: &Term,
    ) -> Result<Option<Arc<Service>>, ProviderError> {
        let key = service.key();
        let api: Api<wire::Service> = Api::namespaced(self.client.clone(), &key.namespace);
        let (params, patch) = (PatchParams::default(), Patch::Strategic(patch));
        let write = async {
            let written = match subresource {
                Some(_) => api.patch_status(&key.name, &params, &patch).await,
                None => api.patch(&key.name, &params, &patch).await,
            };
            match written {
                Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
                Err(error) => Err(ProviderError::from_kube(&format!("cannot update Service {key}"), &error)),
                Ok(answer) => Ok(Some(answer)),
            }
        };
        self.metrics.writes.with_label_values(&[subresource.unwrap_or("metadata")]).inc();
        let answer = term.write(self.write_deadline, write).await?;
        Ok(answer.and_then(|answer| self.cache.wrote(&answer)))
    }

    /// Whether the API server itself says that nothing is to be served for this owner: it is gone, or it is still there and
    /// neither ours nor, by its claim, another controller's of ours. The cache is not asked: a watch may have died.
    pub(super) async fn is_forsaken(&self, owner: &Owner) -> Result<bool, ProviderError> {
        let api: Api<wire::Service> = Api::namespaced(self.client.clone(), &owner.key.namespace);
        let tried = format!("cannot read Service {owner}");
        let found = match timeout(self.write_deadline, api.get_opt(&owner.key.name)).await {
            Ok(Ok(found)) => found.filter(|service| service.metadata.uid == Some(owner.uid.to_string())),
            Ok(Err(error)) => return Err(ProviderError::from_kube(&tried, &error)),
            Err(_) => return Err(ProviderError::new(ErrorKind::Unavailable, format!("{tried}: no answer in time"))),
        };
        let Some(found) = found else { return Ok(true) };
        let stopped = |service: Service| {
            let is_claimed = service.finalizer && service.claimed_by.is_some();
            !is_claimed && self.class.intent(&service) == Intent::Ignore
        };
        Ok(self.cache.peek(&found).is_some_and(stopped))
    }

    /// Tells the user what is new: addresses, once they are published, and what keeps some of it from working.
    fn announce(&self, before: &Service, reachable: &Reachable) {
        for caveat in reachable.caveats.iter().filter(|caveat| !status::says_caveat(before, caveat)) {
            warn!(reason = caveat.reason, "{}", caveat.message);
            self.tell(before, Severity::Warning, caveat.reason, caveat.message.clone());
        }
        let new: Vec<_> = reachable.ingress.iter().map(|i| i.address.to_string()).collect();
        if *before.ingress == *reachable.ingress {
            return;
        }
        info!(addresses = new.join(", "), "served");
        self.tell(before, Severity::Normal, "Served", format!("answers on {}", new.join(", ")));
    }

    /// Tells the user why a Service is not as it should be.
    async fn complain(&self, key: &ServiceKey, error: &ProviderError, term: &Term) {
        let response = error.response();
        warn!(kind = error.kind().label(), reason = response.reason, retry = ?response.retry, "{error}");
        let Some(service) = self.cache.service(key) else { return };
        // A Service that is served goes on being served while its backend does not answer us; to write ten thousand
        // conditions then would say nothing true and make the recovery slower. Whoever wants it gone waits for us.
        let is_served = status::says_served(&service) && self.class.intent(&service) == Intent::Serve;
        if !response.tell || (error.kind() == ErrorKind::Unavailable && is_served) {
            return;
        }
        self.tell(&service, Severity::Warning, response.reason, error.to_string());
        if let Err(error) = self.publish(&service, &Status::failed(error), term).await {
            debug!(%error, "condition not written");
        }
    }

    fn tell(&self, service: &Service, severity: Severity, reason: &'static str, note: String) {
        let key = service.key();
        let about =
            reference::<core::Service>(Some(key.namespace.clone()), &key.name, Some(service.owner.uid.to_string()));
        self.events.tell(about, severity, reason, note);
    }
}

fn until(held: &Held) -> Outcome {
    Outcome::Again(Moment::now().until(held.until))
}
