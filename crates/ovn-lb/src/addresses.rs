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
mod lack;
mod nodes;
mod pool;
mod report;
mod reserve;
mod store;
mod taken;
mod tenant;
#[cfg(test)]
mod tests;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use groundcrew_api::eip::EIp;
use groundcrew_api::names::annotation::EXTERNAL_NETWORK_TYPE;
use groundcrew_core::key::ServiceKey;
use groundcrew_core::leader::{Moment, Term};
use groundcrew_core::provider::{AddressAsk, Beside, Caveat, Living, Look, Owned, Owner, ProviderError};
use groundcrew_core::queue::Queue;
use groundcrew_core::watch::Checked;
use k8s_openapi::api::core::v1::Service;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::{Api, Client, Resource};
use prometheus::IntGaugeVec;
use tokio::sync::{Notify, broadcast};
use uuid::Uuid;

use crate::error::Error;
use crate::kube_ovn::KubeOvn;
use crate::projects::Projects;
use book::{Book, Promise};
use eip::{Reader, Seen, Whose};
use lack::Waiter;
use report::Reports;

pub(crate) use book::{Made, Need};
pub(crate) use eip::{EipKey, reference as eip_reference};
pub(crate) use pool::Family;

pub(crate) use book::bound_to;
pub(crate) use nodes::NodeSink;
pub(crate) use report::report;
pub(crate) use taken::{avoid, may_be_others, own as own_addresses};
pub(crate) use tenant::serve;
pub(crate) use watch::{EipSink, PoolSink};

const PAGE: u32 = 250;

/// Of those who are asked for in one scan.
const MOST_STRANGERS: usize = 64;

pub(crate) struct Addresses {
    client: Client,
    reader: Reader,
    /// The type of network for whoever does not name one.
    network_type: Option<String>,
    projects: Projects,
    /// Who has the routers that replies leave by, and the addresses that it gave out.
    kube_ovn: Option<Arc<KubeOvn>>,
    /// Whether new addresses are from pools all the same.
    from_pools: bool,
    deadline: Duration,
    state: Mutex<State>,
    looks: broadcast::Sender<Look>,
    /// Tenants' own `EIp`s that somebody should look at, and others that somebody deletes.
    tenants: Queue<EipKey>,
    /// What a pool should say about itself may have changed.
    stirred: Notify,
    /// Other addresses may be taken in OVN now.
    pub(crate) others: Notify,
}

/// Every `EIp` that there is.
#[derive(Default)]
struct Listed {
    eips: Vec<Seen>,
    /// Those that the book has, and that are not there.
    unlisted: BTreeMap<EipKey, Uuid>,
    /// Those that cannot be read.
    unread: Vec<EipKey>,
}

struct State {
    book: Book,
    /// When the list began that the watch goes on from.
    listed_since: Option<Moment>,
    /// Services that got no address, or not of each family. They look again when one may have become free.
    waiting: BTreeMap<ServiceKey, Waiter>,
    /// Likewise the tenants' own, and those whose address may be somebody else's.
    unserved: BTreeSet<EipKey>,
    reports: Reports,
    version: u64,
}

/// How addresses are given out.
#[derive(Default)]
pub(crate) struct Rules {
    /// The type of network for whoever does not name one.
    pub(crate) network_type: Option<String>,
    /// What the projects say about it.
    pub(crate) projects: Projects,
    /// Who has the routers that replies leave by, and the addresses that it gave out.
    pub(crate) kube_ovn: Option<Arc<KubeOvn>>,
    /// Whether new addresses are from pools all the same.
    pub(crate) from_pools: bool,
    /// How long a released address is not given to anybody.
    pub(crate) rest: Duration,
    /// Whether tenants' own `EIp`s get addresses here.
    pub(crate) serve_eips: bool,
    /// Whether `EIp`s that kube-dc serves are ours from now on.
    pub(crate) take_over: bool,
}

impl Addresses {
    pub(crate) fn new(
        client: Client,
        cluster: Arc<str>,
        rules: Rules,
        deadline: Duration,
        looks: broadcast::Sender<Look>,
        pools: IntGaugeVec,
    ) -> Self {
        let Rules { network_type, projects, kube_ovn, from_pools, rest, serve_eips, take_over } = rules;
        let reader = Reader { cluster, take_over };
        let book = Book::new(reader.clone(), rest, serve_eips);
        let state = Mutex::new(State {
            book,
            listed_since: None,
            waiting: BTreeMap::new(),
            unserved: BTreeSet::new(),
            reports: Reports::new(pools),
            version: 0,
        });
        let tenants = Queue::default();
        let (stirred, others) = (Notify::new(), Notify::new());
        Self {
            client,
            reader,
            network_type,
            projects,
            kube_ovn,
            from_pools,
            deadline,
            state,
            looks,
            tenants,
            stirred,
            others,
        }
    }

    /// Reads every `EIp` anew: the watch of a process that only followed so far may lag behind its predecessor's last
    /// writes. Then come addresses that are published, whether or not an `EIp` says so.
    pub(crate) async fn begin(&self, term: &Term, living: &[Living]) -> Result<(), Error> {
        if let Some(kube_ovn) = &self.kube_ovn {
            kube_ovn.begin().await?;
        }
        // A process that leads from the start has read them in this term.
        let is_fresh = self.lock().listed_since.is_some_and(|since| since >= term.began());
        let Listed { eips, unlisted, unread } = if is_fresh {
            Listed { unread: self.lock().book.unread(), ..Listed::default() }
        } else {
            self.list().await?
        };
        let unread = self.held_by(unread).await?;
        let mut state = self.lock();
        state.book.begin(eips, &unlisted, living, Moment::now());
        state.book.avoid_unread(unread);
        drop(state);
        self.refer_imported();
        Ok(())
    }

    /// The term has begun, and everything is looked at once. Not before: who looks earlier knows of no term.
    pub(crate) fn begun(&self, living: &[Living]) {
        self.tenants.add_all(self.lock().book.to_attend());
        self.stirred.notify_one();
        if let Some(kube_ovn) = &self.kube_ovn {
            let elsewhere = living.iter().filter(|l| self.leaves_elsewhere(&l.owner.key, &l.addresses));
            kube_ovn.begin_routes(&elsewhere.map(|living| &living.owner).collect::<Vec<_>>());
        }
    }

    /// Reads all of them.
    async fn list(&self) -> Result<Listed, Error> {
        let api: Api<Checked<EIp>> = Api::all(self.client.clone());
        let mut params = ListParams::default().limit(PAGE);
        let mut listed = Listed { unlisted: self.lock().book.stored(), ..Listed::default() };
        loop {
            let page = tokio::time::timeout(self.deadline, api.list(&params)).await;
            let page = page.map_err(|_| unanswered("list EIps"))?.map_err(|e| kubernetes("list EIps", &e))?;
            for guarded in page.items {
                let meta = guarded.meta();
                let key = EipKey::new(meta.namespace.as_deref(), meta.name.as_deref());
                listed.unlisted.remove(&key);
                match guarded.0 {
                    Ok(eip) => listed.eips.extend(eip::read(&eip, &self.reader)),
                    // The watch tells of it.
                    Err(_) => listed.unread.push(key),
                }
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok(listed),
            }
        }
    }

    /// The addresses that `EIp`s hold which cannot be read: of them nothing else is asked.
    async fn held_by(&self, unread: Vec<EipKey>) -> Result<BTreeMap<EipKey, Option<IpAddr>>, Error> {
        let resource = ApiResource::erase::<EIp>(&());
        let mut held = BTreeMap::new();
        for key in unread {
            let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &key.namespace, &resource);
            let tried = format!("read EIp {key}");
            let found = tokio::time::timeout(self.deadline, api.get_opt(&key.name)).await;
            let found = found.map_err(|_| unanswered(&tried))?.map_err(|error| kubernetes(&tried, &error))?;
            if let Some(eip) = found {
                let address = eip.data["status"]["ipAddress"].as_str().and_then(|text| text.trim().parse().ok());
                held.insert(key, address);
            }
        }
        Ok(held)
    }

    /// The addresses of this Service, written down: of each family, or of those that it can do with for now.
    pub(crate) async fn hold(&self, ask: &AddressAsk, term: &Term) -> Result<Vec<IpAddr>, Error> {
        // It waits from before it asks: an address that becomes free meanwhile wakes it.
        self.lock().waits(&ask.owner);
        let left = self.lock().book.unbind(ask, Moment::now());
        for key in &left {
            self.store(key, term).await?;
        }
        let (keys, refused) = self.promise(ask, term).await?;
        self.note(ask, refused);
        for key in &keys {
            self.safeguard(key, term).await;
            self.store(key, term).await?;
        }
        self.lock().book.addresses(&keys)
    }

    /// One `EIp` for each family that is asked for, the same ones every time; and what was refused to who can do without.
    async fn promise(&self, ask: &AddressAsk, term: &Term) -> Result<(Vec<EipKey>, Option<(Family, Error)>), Error> {
        let annotation = |name: &str| ask.annotations.get(name).map(|value| &**value);
        let network_type = self.network_type(&ask.owner.key.namespace, annotation(EXTERNAL_NETWORK_TYPE));
        let (mut keys, mut refused) = (Vec::new(), None);
        for family in Family::in_order(ask.families) {
            match self.promise_of(ask, *family, network_type.as_deref(), term).await {
                Ok(key) => keys.push(key),
                Err(error) if refused.is_none() && lack::is_bearable(ask, *family, &error) => {
                    refused = Some((*family, error));
                }
                Err(error) => return Err(error),
            }
        }
        match refused {
            Some((_, error)) if keys.is_empty() => Err(error),
            refused => Ok((keys, refused)),
        }
    }

    async fn promise_of(
        &self,
        ask: &AddressAsk,
        family: Family,
        network_type: Option<&str>,
        term: &Term,
    ) -> Result<EipKey, Error> {
        match (self.ask_book(ask, family, network_type)?, self.giver()) {
            (Promise::Kept(key), _) => Ok(key),
            (Promise::Needs(need), Some(kube_ovn)) => {
                let (name, address) = self.reserve(&ask.owner, &need, kube_ovn, term).await?;
                self.lock().book.reserve(&ask.owner, address, name)
            }
            (Promise::Needs(need), None) => self.lock().book.assign(&ask.owner, &need, Moment::now()),
        }
    }

    fn ask_book(&self, ask: &AddressAsk, family: Family, network_type: Option<&str>) -> Result<Promise, Error> {
        self.lock().book.hold(ask, family, network_type)
    }

    /// What a served Service asks for now and does not get, because a living address does not change.
    pub(crate) fn kept(&self, ask: &AddressAsk) -> Option<Caveat> {
        self.lock().book.kept(ask)
    }

    /// Whether this Service uses the address.
    pub(crate) fn holds(&self, owner: &Owner, address: IpAddr) -> bool {
        self.lock().book.holds(owner, address)
    }

    /// Who uses the `EIp`s that this Service uses, and the one of this name.
    pub(crate) fn beside(&self, owner: &Owner, named: Option<&str>) -> Beside {
        self.lock().book.beside(owner, named)
    }

    /// Whether nobody else can answer on the addresses of this Service.
    pub(crate) fn is_alone(&self, owner: &Owner) -> bool {
        self.lock().book.is_alone(owner)
    }

    /// Whether an `EIp` has this address, and none says that it is this Service's.
    pub(crate) fn is_anothers(&self, owner: &Owner, address: IpAddr) -> bool {
        self.lock().book.is_anothers(owner, address)
    }

    /// The addresses that `EIp`s say are this Service's, published or not.
    pub(crate) fn said_of(&self, owner: &Owner) -> Vec<IpAddr> {
        self.lock().book.said_of(owner)
    }

    /// Whether this Service has an address that it has not published and leaves for another one.
    pub(crate) fn is_to_move(&self, ask: &AddressAsk) -> bool {
        !self.lock().book.to_leave(ask).is_empty()
    }

    /// Whether this Service is served on the `EIp` of this name.
    pub(crate) fn is_on(&self, owner: &Owner, name: &str) -> bool {
        self.lock().book.is_on(owner, name)
    }

    /// The addresses of this Service if all is written down already; no I/O.
    pub(crate) fn settled(&self, ask: &AddressAsk) -> Option<Vec<IpAddr>> {
        let state = self.lock();
        let settled = state.book.settled(ask, state.lacking(ask))?;
        drop(state);
        self.are_kept(ask, &settled).then_some(settled)
    }

    /// Nothing is held for this owner any more. What was made for it goes; what others share stays.
    pub(crate) async fn release(&self, owner: &Owner, term: &Term) -> Result<(), Error> {
        let keys = {
            let mut state = self.lock();
            state.waits_no_more(owner);
            state.book.leave(owner, Moment::now())
        };
        self.release_routes(owner);
        for key in &keys {
            self.store(key, term).await?;
        }
        // What was asked for, and never written down.
        self.unreserve(owner, None, term).await
    }

    /// Gives back the addresses of families that the Service does not have any more.
    pub(crate) async fn release_surplus(&self, ask: &AddressAsk, term: &Term) -> Result<(), Error> {
        if !self.lock().book.has_surplus(ask) {
            return Ok(());
        }
        let left = self.lock().book.leave_surplus(ask, Moment::now());
        for key in &left {
            self.store(key, term).await?;
        }
        self.unreserve(&ask.owner, None, term).await
    }

    /// What carries this cluster's mark.
    pub(crate) fn owned(&self) -> Vec<Owned> {
        let reserved = self.kube_ovn.as_ref().map(|kube_ovn| kube_ovn.ours()).unwrap_or_default();
        let state = self.lock();
        let references = state.book.references();
        let unused = |key| state.book.is_unused(key);
        let owned = state.book.owned();
        let owned = owned.map(|(key, owner)| Owned { owner, what: format!("EIp {key}"), unused: unused(key) });
        // One that an EIp refers to goes with it, and one that a tenant's own waits for is not to be asked for anew.
        let is_alone = |name: &str, owner: &Owner| !references.contains(name) && !state.book.is_awaited_by(owner);
        let alone = reserved.into_iter().filter(|(name, owner)| is_alone(name, owner));
        let alone = alone.map(|(name, owner)| Owned { owner, what: format!("OvnEip {name}"), unused: false });
        owned.chain(alone).collect()
    }

    /// Users of our `EIp`s that are names and nothing else: no Service is called so. They have a uid that nobody has, so
    /// that whoever comes under such a name meanwhile is not taken for one of them.
    pub(crate) async fn forgotten(&self) -> Vec<Owned> {
        let strangers: Vec<_> =
            self.lock().book.strangers().map(|(key, service)| (key.clone(), service)).take(MOST_STRANGERS).collect();
        let mut forgotten = Vec::new();
        for (key, service) in strangers {
            let api: Api<Service> = Api::namespaced(self.client.clone(), &service.namespace);
            if let Ok(Ok(None)) = tokio::time::timeout(self.deadline, api.get_metadata_opt(&service.name)).await {
                let what = format!("the name of Service {} on EIp {key}", service.name);
                forgotten.push(Owned { owner: Owner { key: service, uid: Uuid::nil() }, what, unused: false });
            }
        }
        forgotten
    }

    /// We deleted the object with this uid.
    fn forget(&self, key: &EipKey, uid: Option<Uuid>) {
        self.stirred.notify_one();
        let mut state = self.lock();
        state.book.deleted(key, uid, Moment::now());
        self.wake_waiting(&mut state);
    }

    /// The object with this uid is gone, and not by us.
    fn vanish(&self, key: &EipKey, uid: Uuid) {
        let mut state = self.lock();
        if state.book.uid(key) == Some(uid) {
            // Its load balancer may still answer.
            self.others.notify_one();
        }
        let services = state.book.vanish(key, uid, Moment::now());
        self.stirred.notify_one();
        self.wake_waiting(&mut state);
        drop(state);
        self.wake(services);
    }

    fn observe(&self, eip: &EIp) {
        let Some(seen) = eip::read(eip, &self.reader) else { return };
        let (key, is_named) = (seen.key.clone(), !matches!(seen.whose, Whose::Service(_)));
        let mut state = self.lock();
        let services = state.book.observe(seen);
        if state.book.is_attended(&key) {
            self.tenants.add(key.clone());
        }
        if is_named {
            self.wake_namespace(&mut state, &key.namespace);
        }
        drop(state);
        self.stirred.notify_one();
        self.wake(services);
    }

    /// An address may have become free.
    fn wake_waiting(&self, state: &mut State) {
        self.wake(std::mem::take(&mut state.waiting).into_keys());
        self.tenants.add_all(std::mem::take(&mut state.unserved));
    }

    /// An `EIp` that Services may name has changed.
    fn wake_namespace(&self, state: &mut State, namespace: &Arc<str>) {
        let first = ServiceKey::new(namespace.clone(), "");
        let woken: Vec<_> = state
            .waiting
            .range(first..)
            .map(|(key, _)| key)
            .take_while(|key| key.namespace == *namespace)
            .cloned()
            .collect();
        for key in &woken {
            state.waiting.remove(key);
        }
        self.wake(woken);
    }

    pub(crate) fn wake(&self, services: impl IntoIterator<Item = ServiceKey>) {
        for service in services {
            // Nobody listens while the controller starts; it looks at everything then.
            let _ = self.looks.send(Look::At(service));
        }
    }

    /// Moves on with every change; while it stays, so does everything that is said here of a Service. None where that
    /// depends on others, too.
    pub(crate) fn version(&self) -> Option<u64> {
        self.kube_ovn.is_none().then(|| self.lock().version)
    }

    fn lock(&self) -> Locked<'_> {
        Locked(self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The state. Whoever has it to change moves its version on.
struct Locked<'a>(MutexGuard<'a, State>);

impl Deref for Locked<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.0
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut State {
        self.0.version += 1;
        &mut self.0
    }
}

fn kubernetes(tried: &str, error: &kube::Error) -> Error {
    ProviderError::from_kube(&format!("cannot {tried}"), error).into()
}

fn unanswered(tried: &str) -> Error {
    let message = format!("cannot {tried}: no answer in time");
    ProviderError::new(groundcrew_core::provider::ErrorKind::Unavailable, message).into()
}
