//! The controller of `EIp`s that tenants made: each gets an address, and keeps it until its tenant deletes it.

use std::sync::Arc;

use groundcrew_api::eip::EIp;
use groundcrew_core::events::{Events, Severity};
use groundcrew_core::leader::{Moment, Term};
use groundcrew_core::provider::ProviderError;
use groundcrew_core::queue::Outcome;
use groundcrew_core::runtime::Runtime;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource;
use tokio::sync::watch;
use tracing::{info, warn};

use super::Addresses;
use super::book::Care;
use super::eip::EipKey;

/// Few: each is two writes, and Services come first.
const CONCURRENCY: usize = 8;

/// Serves them until the runtime stops. `term` is the one whose addresses have been imported.
pub(crate) async fn serve(addresses: Arc<Addresses>, term: watch::Receiver<Option<Term>>, runtime: Runtime) {
    let (addresses, events) = (&*addresses, &runtime.events);
    let look = |key: EipKey| {
        // Who does not lead looks at none; a new term looks at all.
        let term = term.borrow().clone().filter(|_| runtime.role.borrow().term().is_some());
        async move {
            match term {
                Some(term) => addresses.look(&key, events, &term).await,
                None => Outcome::Done,
            }
        }
    };
    addresses.tenants.run(CONCURRENCY, runtime.tasks.stop(), look).await;
}

/// What a tenant is told about his `EIp`.
type News = (Severity, &'static str, String);

impl Addresses {
    async fn look(&self, key: &EipKey, events: &Events, term: &Term) -> Outcome {
        let (found, news) = self.decide(key);
        let written = self.store(key, term).await.map_err(ProviderError::from);
        if let Some((severity, reason, note)) = news.filter(|_| written.is_ok()) {
            info!(eip = %key, reason, "{note}");
            events.tell(self.reference(key), severity, reason, note);
        }
        if let Err(error) = &written {
            warn!(eip = %key, "{error}");
        }
        match written.and(found) {
            Ok(()) => Outcome::Done,
            Err(error) => Outcome::Failed(error.response().retry),
        }
    }

    /// What it should say, without a write.
    fn decide(&self, key: &EipKey) -> (Result<(), ProviderError>, Option<News>) {
        let mut guard = self.lock();
        let state = &mut *guard;
        let before = state.book.trouble(key).cloned();
        state.unserved.remove(key);
        let care = state.book.attend(key, self.network_type.as_deref());
        let found = match care {
            Ok(Care::None | Care::Settled) => return (Ok(()), None),
            Ok(Care::InUse) => Ok(None),
            Ok(Care::Needs(need)) => state.book.choose(&need, Moment::now()).map(Some),
            Err(error) => Err(error),
        };
        match found.map_err(ProviderError::from) {
            Ok(Some((pool, address))) => {
                state.book.enter(key, address, pool);
                (Ok(()), Some((Severity::Normal, "Assigned", format!("has the address {address}"))))
            }
            Ok(None) => {
                let now = state.book.trouble(key).filter(|now| before.as_ref() != Some(now));
                (Ok(()), now.map(|now| (Severity::Warning, "InUse", now.message.to_string())))
            }
            Err(error) => {
                state.unserved.insert(key.clone());
                state.book.refuse(key, &error);
                let news = state.book.trouble(key) != before.as_ref();
                let news = news.then(|| (Severity::Warning, error.response().reason, error.to_string()));
                (Err(error), news)
            }
        }
    }

    fn reference(&self, key: &EipKey) -> ObjectReference {
        ObjectReference {
            api_version: Some(EIp::api_version(&()).into_owned()),
            kind: Some(EIp::kind(&()).into_owned()),
            namespace: Some(key.namespace.to_string()),
            name: Some(key.name.to_string()),
            uid: self.lock().book.uid(key).map(|uid| uid.to_string()),
            ..ObjectReference::default()
        }
    }
}
