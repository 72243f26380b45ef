//! Addresses for Services, out of `AddressPool`s and written down as `EIp`s.
//!
//! ```text
//! AddressPool, EIp --watch--> book --hold--> promise --store--> EIp --> the Service may publish it
//! ```
//!
//! A promise is made in memory and kept; it is worth publishing once the `EIp` says so, because the next leader reads the
//! `EIp`s before it promises anything.

mod book;
mod eip;
mod pool;
#[cfg(test)]
mod tests;
mod watch;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use groundcrew_api::eip::EIp;
use groundcrew_api::names::annotation::{BIND_ON_DEFAULT_GW_EIP, BIND_ON_EIP, EXTERNAL_NETWORK_TYPE};
use groundcrew_core::key::ServiceKey;
use groundcrew_core::leader::{Moment, Term};
use groundcrew_core::provider::{AddressAsk, Living, Look, Owned, Owner, ProviderError};
use jiff::Timestamp;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::DeserializeGuard;
use kube::{Api, Client, Resource};
use serde_json::Value;
use tokio::sync::broadcast;

use crate::error::Error;
use book::{Book, Promise, Write};
use eip::EipKey;
use pool::Family;

pub(crate) use watch::{EipSink, PoolSink};

const PAGE: u32 = 250;
/// Create, status, and once more of each after a conflict.
const MOST_WRITES: usize = 4;

pub(crate) struct Addresses {
    client: Client,
    cluster: Arc<str>,
    /// The type of network for Services that do not name one.
    network_type: Option<String>,
    deadline: Duration,
    state: Mutex<State>,
    looks: broadcast::Sender<Look>,
}

struct State {
    book: Book,
    /// Services that got no address. They look again when one may have become free.
    waiting: BTreeSet<ServiceKey>,
}

impl Addresses {
    pub(crate) fn new(
        client: Client,
        cluster: Arc<str>,
        network_type: Option<String>,
        rest: Duration,
        deadline: Duration,
        looks: broadcast::Sender<Look>,
    ) -> Self {
        let state = State { book: Book::new(cluster.clone(), rest), waiting: BTreeSet::new() };
        Self { client, cluster, network_type, deadline, state: Mutex::new(state), looks }
    }

    /// Reads every `EIp` anew: the watch of a process that only followed so far may lag behind its predecessor's last
    /// writes. Then come addresses that are published, whether or not an `EIp` says so.
    pub(crate) async fn begin(&self, living: &[Living]) -> Result<(), Error> {
        let api: Api<DeserializeGuard<EIp>> = Api::all(self.client.clone());
        let mut params = ListParams::default().limit(PAGE);
        let (mut listed, mut unlisted) = (Vec::new(), self.lock().book.stored());
        loop {
            let page = tokio::time::timeout(self.deadline, api.list(&params)).await;
            let page = page.map_err(|_| unanswered("list EIps"))?.map_err(|e| kubernetes("list EIps", &e))?;
            for guarded in page.items {
                let meta = guarded.meta();
                unlisted.remove(&EipKey::new(meta.namespace.as_deref(), meta.name.as_deref()));
                // One that does not parse is told by the watch; the address that it may hold is among the living.
                listed.extend(guarded.0.ok().and_then(|eip| eip::read(&eip, &self.cluster)));
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => break,
            }
        }
        self.lock().book.begin(listed, &unlisted, living, Moment::now());
        Ok(())
    }

    /// The addresses of this Service, written down.
    pub(crate) async fn hold(&self, ask: &AddressAsk, term: &Term) -> Result<Vec<IpAddr>, Error> {
        // It waits from before it asks: an address that becomes free meanwhile wakes it.
        self.lock().waiting.insert(ask.owner.key.clone());
        let keys = self.promise(ask)?;
        self.lock().waiting.remove(&ask.owner.key);
        for key in &keys {
            self.store(key, term).await?;
        }
        let state = self.lock();
        Ok(keys.iter().filter_map(|key| state.book.address(key)).collect())
    }

    /// One `EIp` for each family that is asked for: the same ones every time.
    fn promise(&self, ask: &AddressAsk) -> Result<Vec<EipKey>, Error> {
        let annotation = |name: &str| ask.annotations.get(name).map(|value| &**value);
        for name in [BIND_ON_EIP, BIND_ON_DEFAULT_GW_EIP] {
            // Serving on another address than the one that was named would be worse than not serving.
            if annotation(name).is_some_and(|value| !value.is_empty() && value != "false") {
                return Err(Error::BindToEip { service: ask.owner.key.clone(), annotation: name });
            }
        }
        let network_type = annotation(EXTERNAL_NETWORK_TYPE).or(self.network_type.as_deref());
        Family::in_order(ask.families).iter().map(|family| self.promise_one(ask, *family, network_type)).collect()
    }

    fn promise_one(&self, ask: &AddressAsk, family: Family, network_type: Option<&str>) -> Result<EipKey, Error> {
        let mut state = self.lock();
        match state.book.hold(ask, family, network_type)? {
            Promise::Kept(key) => Ok(key),
            Promise::Needs(need) => {
                let (pool, address) = state.book.choose(&need, Moment::now())?;
                state.book.reserve(&need.owner, address, pool)
            }
        }
    }

    /// The addresses of this Service if all is written down already; no I/O.
    pub(crate) fn settled(&self, ask: &AddressAsk) -> Option<Vec<IpAddr>> {
        self.lock().book.settled(ask)
    }

    /// Nothing is held for this owner any more. What was made for it goes; what others share stays.
    pub(crate) async fn release(&self, owner: &Owner, term: &Term) -> Result<(), Error> {
        let keys = {
            let mut state = self.lock();
            state.waiting.remove(&owner.key);
            state.book.leave(owner, Moment::now())
        };
        for key in &keys {
            self.store(key, term).await?;
        }
        Ok(())
    }

    /// What carries this cluster's mark.
    pub(crate) fn owned(&self) -> Vec<Owned> {
        let state = self.lock();
        let owned = state.book.owned();
        owned.map(|(key, owner)| Owned { owner, what: format!("EIp {key}") }).collect()
    }

    /// Writes until the `EIp` says what it should.
    async fn store(&self, key: &EipKey, term: &Term) -> Result<(), Error> {
        let api: Api<EIp> = Api::namespaced(self.client.clone(), &key.namespace);
        for _ in 0..MOST_WRITES {
            let Some(write) = self.lock().book.pending(key, Timestamp::now()) else { return Ok(()) };
            let conflict = match write {
                Write::Create(eip) => self.create(&api, key, &eip, term).await?,
                Write::Status(patch) => self.patch_status(&api, key, &patch, term).await?,
                // What somebody changed may be a new user, so it is decided again whether it goes.
                Write::Delete if self.delete(&api, key, term).await? => return Ok(()),
                Write::Delete => continue,
            };
            if conflict {
                self.refresh(&api, key).await?;
            }
        }
        Err(Error::Lost)
    }

    /// Whether it was there already.
    async fn create(&self, api: &Api<EIp>, key: &EipKey, eip: &EIp, term: &Term) -> Result<bool, Error> {
        let write = async { answer(&format!("make EIp {key}"), api.create(&PostParams::default(), eip).await) };
        self.learn(term.write(self.deadline, write).await)
    }

    /// Whether somebody else was quicker.
    async fn patch_status(&self, api: &Api<EIp>, key: &EipKey, patch: &Value, term: &Term) -> Result<bool, Error> {
        let write = async {
            let patched = api.patch_status(&key.name, &PatchParams::default(), &Patch::Merge(patch)).await;
            answer(&format!("update the status of EIp {key}"), patched)
        };
        self.learn(term.write(self.deadline, write).await)
    }

    fn learn(
        &self,
        written: Result<Option<EIp>, groundcrew_core::leader::WriteError<ProviderError>>,
    ) -> Result<bool, Error> {
        let written = written.map_err(ProviderError::from)?;
        if let Some(eip) = &written {
            self.observe(eip);
        }
        Ok(written.is_none())
    }

    /// Looks at what is there instead of what was expected.
    async fn refresh(&self, api: &Api<EIp>, key: &EipKey) -> Result<(), Error> {
        let tried = format!("read EIp {key}");
        let found = tokio::time::timeout(self.deadline, api.get_opt(&key.name)).await;
        let found = found.map_err(|_| unanswered(&tried))?.map_err(|error| kubernetes(&tried, &error))?;
        let Some(eip) = found else {
            let mut state = self.lock();
            if let Some(uid) = state.book.uid(key) {
                state.book.vanish(key, uid, Moment::now());
            }
            return Ok(());
        };
        self.observe(&eip);
        if eip::read(&eip, &self.cluster).is_none_or(|seen| seen.made_for.is_none()) {
            let (namespace, name) = (key.namespace.to_string(), key.name.to_string());
            return Err(Error::ForeignEip { namespace, name });
        }
        Ok(())
    }

    /// Whether it is gone; if not, somebody changed it and the book knows how. First the deletion, then the finalizer:
    /// cut between the two, the object shows that it is on its way out.
    async fn delete(&self, api: &Api<EIp>, key: &EipKey, term: &Term) -> Result<bool, Error> {
        let tried = format!("delete EIp {key}");
        let marked = self.mark_deleted(api, key, &tried, term).await?;
        if let Marked::Changed = marked {
            return Ok(false);
        }
        if let Marked::Leaving(eip) = marked {
            let patch = eip::without_finalizer(&eip);
            let let_go = async {
                match api.patch(&key.name, &PatchParams::default(), &Patch::Merge(&patch)).await {
                    Ok(_) => Ok(()),
                    Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
                    Err(error) => Err(ProviderError::from_kube(&format!("cannot {tried}"), &error)),
                }
            };
            term.write(self.deadline, let_go).await.map_err(ProviderError::from)?;
        }
        self.forget(key);
        Ok(true)
    }

    /// Deletes exactly the object that is known, in the state in which it is known.
    async fn mark_deleted(&self, api: &Api<EIp>, key: &EipKey, tried: &str, term: &Term) -> Result<Marked, Error> {
        let Some((uid, version)) = self.lock().book.version(key) else { return Ok(Marked::Gone) };
        let known = Preconditions { uid: Some(uid.to_string()), resource_version: Some(version) };
        let params = DeleteParams { preconditions: Some(known), ..DeleteParams::default() };
        let remove = async {
            match api.delete(&key.name, &params).await {
                Ok(deleting) => {
                    let left = deleting.left().filter(|eip| eip.metadata.finalizers.iter().flatten().next().is_some());
                    Ok(left.map_or(Marked::Gone, |eip| Marked::Leaving(Box::new(eip))))
                }
                Err(kube::Error::Api(status)) if status.is_not_found() => Ok(Marked::Gone),
                Err(kube::Error::Api(status)) if status.is_conflict() => Ok(Marked::Changed),
                Err(error) => Err(ProviderError::from_kube(&format!("cannot {tried}"), &error)),
            }
        };
        let marked = term.write(self.deadline, remove).await.map_err(ProviderError::from)?;
        let Marked::Changed = marked else { return Ok(marked) };
        // Somebody changed it, or put another object under its name, which is none of ours.
        let found = tokio::time::timeout(self.deadline, api.get_opt(&key.name)).await;
        let found = found.map_err(|_| unanswered(tried))?.map_err(|error| kubernetes(tried, &error))?;
        match found.filter(|eip| eip.metadata.uid == Some(uid.to_string())) {
            Some(eip) => self.observe(&eip),
            None => return Ok(Marked::Gone),
        }
        Ok(Marked::Changed)
    }

    fn forget(&self, key: &EipKey) {
        let mut state = self.lock();
        state.book.deleted(key, Moment::now());
        self.wake_waiting(&mut state);
    }

    fn observe(&self, eip: &EIp) {
        let Some(seen) = eip::read(eip, &self.cluster) else { return };
        let services = self.lock().book.observe(seen);
        self.wake(services);
    }

    /// An address may have become free.
    fn wake_waiting(&self, state: &mut State) {
        self.wake(std::mem::take(&mut state.waiting));
    }

    fn wake(&self, services: impl IntoIterator<Item = ServiceKey>) {
        for service in services {
            // Nobody listens while the controller starts; it looks at everything then.
            let _ = self.looks.send(Look::At(service));
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What became of a request to delete.
enum Marked {
    Gone,
    /// It stays until its finalizers go.
    Leaving(Box<EIp>),
    Changed,
}

/// `None` for a conflict: it exists already, or has changed.
fn answer(tried: &str, answer: Result<EIp, kube::Error>) -> Result<Option<EIp>, ProviderError> {
    match answer {
        Ok(eip) => Ok(Some(eip)),
        Err(kube::Error::Api(status))
            if status.is_already_exists() || status.is_conflict() || status.is_not_found() =>
        {
            Ok(None)
        }
        Err(error) => Err(ProviderError::from_kube(&format!("cannot {tried}"), &error)),
    }
}

fn kubernetes(tried: &str, error: &kube::Error) -> Error {
    ProviderError::from_kube(&format!("cannot {tried}"), error).into()
}

fn unanswered(tried: &str) -> Error {
    let message = format!("cannot {tried}: no answer in time");
    ProviderError::new(groundcrew_core::provider::ErrorKind::Unavailable, message).into()
}
