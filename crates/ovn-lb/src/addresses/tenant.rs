//! The controller of `EIp`s that tenants made: each gets an address, and keeps it until its tenant deletes it. What they
//! delete that is used, theirs or not, says so.

use std::net::IpAddr;
use std::sync::Arc;

use groundcrew_core::events::{Events, Severity};
use groundcrew_core::leader::{Moment, Term};
use groundcrew_core::provider::{Caveat, ProviderError};
use groundcrew_core::queue::Outcome;
use groundcrew_core::runtime::Runtime;
use tokio::sync::watch;
use tracing::{debug, info, warn};

use super::Addresses;
use super::book::Care;
use super::eip::{self, EipKey, Trouble};
use crate::error::Error;

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
    pub(super) async fn look(&self, key: &EipKey, events: &Events, term: &Term) -> Outcome {
        let doubt = self.doubt(key, term).await;
        let (before, care) = self.attend(key, doubt.as_ref());
        if let Ok(Care::None) = care {
            return Outcome::Done;
        }
        let (found, news) = match care {
            Ok(Care::Settled) => {
                let state = self.lock();
                let is_news = state.book.trouble(key).is_some_and(|now| before.as_ref() != Some(now));
                let news = doubt.filter(|_| is_news).map(|doubt| (Severity::Warning, doubt.reason, doubt.message));
                (Ok(()), news)
            }
            care => {
                let found = self.find(key, care, term).await.map_err(ProviderError::from);
                self.decide(key, before.as_ref(), found)
            }
        };
        let written = self.store(key, term).await.map_err(ProviderError::from);
        if let Some((severity, reason, note)) = news.filter(|_| written.is_ok()) {
            info!(eip = %key, reason, "{note}");
            let uid = self.lock().book.uid(key);
            events.tell(eip::reference(key, uid), severity, reason, note);
        }
        if let Err(error) = &written {
            warn!(eip = %key, "{error}");
        }
        match written.and(found) {
            Ok(()) => Outcome::Done,
            Err(error) => {
                let retry = error.response().retry;
                debug!(eip = %key, ?retry, "{error}");
                Outcome::Failed(retry)
            }
        }
    }

    /// Sees to it that the address that it has is its own, and returns what stands against that. Of one that was made for a
    /// Service, the Service does.
    async fn doubt(&self, key: &EipKey, term: &Term) -> Option<Caveat> {
        if !self.lock().book.is_tenants(key) {
            return None;
        }
        // Also of one that goes: what kube-dc made for it goes with it once it is ours.
        self.safeguard(key, term).await;
        let made = self.lock().book.made(key)?;
        self.keeper(&made)?.caveat(&made)
    }

    /// What there is to do for it, and what was wrong with it before.
    fn attend(&self, key: &EipKey, doubt: Option<&Caveat>) -> (Option<Trouble>, Result<Care, Error>) {
        let default_type = self.network_type(&key.namespace, None);
        let mut guard = self.lock();
        let state = &mut *guard;
        let before = state.book.trouble(key).cloned();
        let trouble =
            doubt.map(|doubt| Trouble { reason: doubt.reason.into(), message: doubt.message.as_str().into() });
        let care = state.book.attend(key, default_type.as_deref(), trouble);
        // It waits from before it asks: an address that becomes free meanwhile wakes it.
        match &care {
            Ok(Care::Needs(_)) | Err(_) => state.unserved.insert(key.clone()),
            Ok(Care::Settled) if doubt.is_some() => state.unserved.insert(key.clone()),
            Ok(_) => state.unserved.remove(key),
        };
        (before, care)
    }

    /// An address for it, entered; `None` where it has one.
    async fn find(&self, key: &EipKey, care: Result<Care, Error>, term: &Term) -> Result<Option<IpAddr>, Error> {
        let (from, address) = match (care, self.giver()) {
            (Ok(Care::Needs(need)), None) => {
                let mut state = self.lock();
                let (pool, address) = state.book.choose(&need, Moment::now())?;
                // Under the same lock: the next one must not be given it, too.
                state.book.enter(key, address, pool);
                return Ok(Some(address));
            }
            (Ok(Care::Needs(mut need)), Some(kube_ovn)) => {
                if need.requested.is_none() {
                    // The book knows of pools alone.
                    need.family = kube_ovn.family(&key.namespace, need.network_type.as_deref());
                }
                let Some(owner) = self.lock().book.self_owned(key) else { return Err(Error::Lost) };
                self.reserve(&owner, &need, kube_ovn, term).await?
            }
            (Err(Error::ChildRef { child }), Some(kube_ovn)) => {
                let address = kube_ovn.child(&key.namespace, &child)?;
                let mut state = self.lock();
                // Who shares an address does it by one `EIp`: only its users are kept from each other's ports.
                state.book.check_free(address, &key.namespace)?;
                state.book.enter(key, address, child.into());
                return Ok(Some(address));
            }
            (Ok(_), _) => return Ok(None),
            (Err(error), _) => return Err(error),
        };
        self.lock().book.enter(key, address, from);
        Ok(Some(address))
    }

    /// What it should say, without a write.
    fn decide(
        &self,
        key: &EipKey,
        before: Option<&Trouble>,
        found: Result<Option<IpAddr>, ProviderError>,
    ) -> (Result<(), ProviderError>, Option<News>) {
        let mut state = self.lock();
        match found {
            Ok(Some(address)) => {
                state.unserved.remove(key);
                (Ok(()), Some((Severity::Normal, "Assigned", format!("has the address {address}"))))
            }
            Ok(None) => {
                let now = state.book.trouble(key).filter(|now| before != Some(now));
                (Ok(()), now.map(|now| (Severity::Warning, "InUse", now.message.to_string())))
            }
            // On its way, and not worth a word.
            Err(error) if !error.response().tell => (Err(error), None),
            Err(error) => {
                state.book.refuse(key, &error);
                let news = state.book.trouble(key) != before;
                let news = news.then(|| (Severity::Warning, error.response().reason, error.to_string()));
                (Err(error), news)
            }
        }
    }
}
