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
use super::desired::desired;
use super::metrics::ServiceMetrics;
use super::names::{CLAIMED_BY, FINALIZER};
use super::object::Service;
use super::status::{self, Status};
use super::wire;
use crate::events::{Events, Severity, reference};
use crate::key::ServiceKey;
use crate::leader::Term;
use crate::provider::{ErrorKind, LoadBalancers, Owner, ProviderError, Reachable, Realised, Verdict, Wanted};
use crate::queue::Outcome;

/// Around a whole look. Each call in it has a shorter one of its own; this one is for what nobody thought of.
const DEADLINE: Duration = Duration::from_mins(1);

pub(super) struct Reconciler<P> {
    pub(super) provider: Arc<P>,
    pub(super) cache: Arc<Cache>,
    pub(super) class: Class,
    pub(super) client: Client,
    pub(super) events: Events,
    pub(super) metrics: ServiceMetrics,
    /// The term under which to write, once it has begun; without one nothing is written.
    pub(super) term: watch::Receiver<Option<Term>>,
    pub(super) write_deadline: Duration,
    pub(super) dry_run: bool,
}

impl<P: LoadBalancers> Reconciler<P> {
    pub(super) async fn look(&self, key: ServiceKey) -> Outcome {
        let term = self.term.borrow().clone();
        let Some(term) = term else {
            self.preview(&key);
            return Outcome::Done;
        };
        let started = Instant::now();
        let span = tracing::info_span!("reconcile", service = %key);
        let ended = timeout(DEADLINE, self.reconcile(&key, &term).instrument(span.clone())).await;
        self.metrics.duration.observe(started.elapsed().as_secs_f64());
        let error = match ended {
            Ok(Ok(())) => {
                self.metrics.outcomes.with_label_values(&["ok"]).inc();
                return Outcome::Done;
            }
            Ok(Err(error)) => error,
            Err(_) => ProviderError::new(ErrorKind::Unavailable, format!("not done within {} s", DEADLINE.as_secs())),
        };
        self.metrics.outcomes.with_label_values(&[error.kind().label()]).inc();
        self.complain(&key, &error, &term).instrument(span).await;
        Outcome::Failed(error.response().retry)
    }

    async fn reconcile(&self, key: &ServiceKey, term: &Term) -> Result<(), ProviderError> {
        for owner in self.cache.departed(key) {
            self.provider.release(&owner, term).await?;
            self.cache.released(&owner);
            info!(uid = %owner.uid, "released what a vanished Service had");
        }
        let Some(service) = self.cache.service(key) else { return Ok(()) };
        if service.paused {
            debug!("paused by annotation");
            return Ok(());
        }
        match self.class.intent(&service) {
            Intent::Serve => self.serve(&service, term).await,
            Intent::Leave => self.leave(&service, term).await,
            Intent::Ignore => Ok(()),
        }
    }

    async fn serve(&self, service: &Arc<Service>, term: &Term) -> Result<(), ProviderError> {
        let mut wanted = self.wanted(service)?;
        let service = &self.claim(service, term).await?;
        let reachable = match self.verify(&wanted) {
            Verdict::Same(reachable) => reachable,
            Verdict::Differs(_) | Verdict::Unknown => {
                wanted.addresses = self.provider.hold(&wanted.ask, term).await?.addresses;
                self.provider.ensure(&wanted, term).await?
            }
        };
        if reachable.realised == Realised::Awaited {
            // Written, and soon in effect: the provider has us look again. Until then no slot is held.
            return Ok(());
        }
        self.publish(service, &Status::served(&reachable, wanted.has_backends()), term).await?;
        self.announce(service, &reachable);
        Ok(())
    }

    /// In an order that leaves nothing behind wherever it is cut: what is outside, what is published, the finalizer.
    async fn leave(&self, service: &Arc<Service>, term: &Term) -> Result<(), ProviderError> {
        self.provider.release(&service.owner, term).await?;
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
        info!("released");
        Ok(())
    }

    /// What a look would do, for followers and for `--dry-run`; writes nothing.
    fn preview(&self, key: &ServiceKey) {
        let Some(service) = self.cache.service(key).filter(|s| !s.paused) else { return };
        let lines = match self.class.intent(&service) {
            Intent::Ignore => return,
            Intent::Leave => vec!["- everything that is held for it, then the finalizer".to_owned()],
            Intent::Serve => match self.wanted(&service) {
                Err(error) => vec![format!("! {error}")],
                Ok(wanted) => self.preview_serve(&service, &wanted),
            },
        };
        if lines.is_empty() {
            return;
        }
        if self.dry_run {
            info!(service = %key, plan = lines.join("; "), "would change");
        } else {
            debug!(service = %key, plan = lines.join("; "), "the leader should change");
        }
    }

    fn preview_serve(&self, service: &Service, wanted: &Wanted) -> Vec<String> {
        let mut lines = Vec::new();
        if !self.class.claimed(service) {
            lines.push(format!("+ finalizer {FINALIZER}"));
        }
        match self.verify(wanted) {
            Verdict::Same(reachable) => {
                let status = Status::served(&reachable, wanted.has_backends());
                lines.extend(
                    status.patch(service, Timestamp::now()).map(|patch| format!("~ status {}", patch["status"])),
                );
            }
            Verdict::Differs(differences) => lines.extend(differences.iter().map(|d| format!("~ {d}"))),
            Verdict::Unknown if service.ingress.is_empty() => lines.push("+ address and load balancer".to_owned()),
            Verdict::Unknown => {}
        }
        lines
    }

    /// What the Service wants on the addresses that it has published.
    pub(super) fn wanted(&self, service: &Service) -> Result<Wanted, ProviderError> {
        let group = self.cache.group(service);
        let addresses = self.class.addresses(service);
        self.cache.with_slices(service.key(), |slices| desired(service, slices, &group, addresses))
    }

    /// A Service without an address has nothing to compare.
    pub(super) fn verify(&self, wanted: &Wanted) -> Verdict {
        if wanted.addresses.is_empty() { Verdict::Unknown } else { self.provider.verify(wanted) }
    }

    /// Puts finalizer and claim on it before anything outside is made for it.
    async fn claim(&self, service: &Arc<Service>, term: &Term) -> Result<Arc<Service>, ProviderError> {
        if self.class.claimed(service) {
            return Ok(service.clone());
        }
        let patch = json!({
            "metadata": {
                "resourceVersion": service.resource_version,
                "annotations": { CLAIMED_BY: &*self.class.name },
                // Merges: finalizers of others stay.
                "finalizers": [FINALIZER],
            }
        });
        let gone = || ProviderError::new(ErrorKind::Conflict, format!("Service {} is gone", service.key()));
        self.patch(service, None, &patch, term).await?.ok_or_else(gone)
    }

    async fn unclaim(&self, service: &Service, term: &Term) -> Result<(), ProviderError> {
        let patch = json!({
            "metadata": {
                "resourceVersion": service.resource_version,
                "annotations": { CLAIMED_BY: null },
                "$deleteFromPrimitiveList/finalizers": [FINALIZER],
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

    /// Whether the API server itself says that this owner is gone. The cache is not asked: a watch may have died.
    pub(super) async fn is_gone(&self, owner: &Owner) -> Result<bool, ProviderError> {
        let api: Api<wire::Service> = Api::namespaced(self.client.clone(), &owner.key.namespace);
        let tried = format!("cannot read Service {owner}");
        match timeout(self.write_deadline, api.get_opt(&owner.key.name)).await {
            Ok(Ok(found)) => {
                let uid = found.and_then(|service| service.metadata.uid);
                Ok(uid.is_none_or(|uid| uid != owner.uid.to_string()))
            }
            Ok(Err(error)) => Err(ProviderError::from_kube(&tried, &error)),
            Err(_) => Err(ProviderError::new(ErrorKind::Unavailable, format!("{tried}: no answer in time"))),
        }
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
        // conditions then would say nothing true and make the recovery slower.
        if !response.tell || (error.kind() == ErrorKind::Unavailable && status::says_served(&service)) {
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
