//! Who has which address. Pure: no client, and the time is an argument.
//!
//! The book is what the `EIp`s say, plus what has been promised in this term and not written yet. A promise is kept until
//! it is released or the term is over: an interrupted or failed write is tried again for the same address.

mod binding;
mod holding;
mod observed;
mod reserved;
mod shortage;
mod survey;
mod tenant;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use groundcrew_api::eip::EIp;
use groundcrew_core::key::ServiceKey;
use groundcrew_core::leader::Moment;
use groundcrew_core::provider::{AddressAsk, Living, Owner};
use jiff::Timestamp;
use serde_json::Value;
use uuid::Uuid;

use super::eip::{self, EipKey, Reader, Says, Seen, Whose};
use super::pool::{Family, Pool};
use super::taken::Taken;
use crate::error::Error;
use crate::few::Few;
use holding::Holding;

pub(crate) use binding::bound_to;
pub(crate) use reserved::Made;
pub(crate) use tenant::Care;

#[derive(Debug)]
pub(crate) struct Book {
    reader: Reader,
    /// How long a released address is not given to anybody.
    rest: Duration,
    /// Whether tenants' own `EIp`s get addresses here.
    serve_eips: bool,
    /// Whether this process has led. Before that it promises nothing, and the book is just what the `EIp`s say.
    begun: bool,
    pools: BTreeMap<Arc<str>, Pool>,
    /// Boxed: a tree is half empty where it was filled in order, as a list does.
    holdings: BTreeMap<EipKey, Box<Holding>>,
    /// Two `EIp`s may say the same address when others write them, too.
    by_address: BTreeSet<(IpAddr, EipKey)>,
    /// The `EIp`s of ours that say a Service uses them, or should say so.
    by_service: BTreeMap<ServiceKey, Few<EipKey>>,
    resting: BTreeMap<IpAddr, Rest>,
    /// What is taken by something in OVN that is no `EIp`.
    taken: Taken,
    /// What load balancers of ours have and no `EIp`, and the one that each belongs on where the marks say so.
    strays: BTreeMap<IpAddr, Option<EipKey>>,
    /// What the cluster's own nodes have.
    nodes: BTreeSet<IpAddr>,
    /// `EIp`s that cannot be read, and the address that each seems to hold.
    unread: BTreeMap<EipKey, Option<IpAddr>>,
    /// Objects that we deleted and whose end the watch has not told yet. What it still tells of them is old.
    gone: BTreeSet<Uuid>,
    /// Where the search in each pool goes on.
    last: BTreeMap<(Arc<str>, Family), IpAddr>,
}

/// An address that was given back.
#[derive(Debug)]
struct Rest {
    until: Moment,
    /// Who had it; not known of one that another process let rest.
    namespace: Option<Arc<str>>,
}

/// What the book says to a Service that asks for an address.
#[derive(Debug)]
pub(crate) enum Promise {
    /// It has one: this `EIp`'s.
    Kept(EipKey),
    /// It has none yet. Whoever gives out addresses is asked, and what it gives is reserved.
    Needs(Need),
}

/// An address that an `EIp` needs: one that is made for a Service, or a tenant's own.
#[derive(Debug, Clone)]
pub(crate) struct Need {
    pub(crate) eip: EipKey,
    pub(crate) family: Family,
    pub(crate) network_type: Option<Box<str>>,
    /// The one that the user asked for by number. No other will do.
    pub(crate) requested: Option<IpAddr>,
}

/// What must be written so that an `EIp` says what it should.
#[derive(Debug)]
pub(crate) enum Write {
    Create(Box<EIp>),
    /// Our marks on what a tenant made.
    Marks(Value),
    Status(Value),
    /// What a tenant made and deletes may go.
    LetGo(Value),
    Delete,
}

impl Book {
    pub(crate) fn new(reader: Reader, rest: Duration, serve_eips: bool) -> Self {
        Self {
            reader,
            rest,
            serve_eips,
            begun: false,
            pools: BTreeMap::new(),
            holdings: BTreeMap::new(),
            by_address: BTreeSet::new(),
            by_service: BTreeMap::new(),
            resting: BTreeMap::new(),
            taken: Taken::new(),
            strays: BTreeMap::new(),
            nodes: BTreeSet::new(),
            unread: BTreeMap::new(),
            gone: BTreeSet::new(),
            last: BTreeMap::new(),
        }
    }

    /// There is an `EIp` of this name that cannot be read.
    pub(crate) fn unreadable(&mut self, key: EipKey) {
        self.unread.entry(key).or_default();
    }

    /// It can be read again, or is gone.
    pub(crate) fn readable(&mut self, key: &EipKey) {
        self.unread.remove(key);
    }

    pub(crate) fn unread(&self) -> Vec<EipKey> {
        self.unread.keys().cloned().collect()
    }

    /// What those that cannot be read seem to hold; all others can be read, or are gone.
    pub(crate) fn avoid_unread(&mut self, unread: BTreeMap<EipKey, Option<IpAddr>>) {
        self.unread = unread;
    }

    /// Whether anything changed. What was given out stays given out, in the pool or not.
    pub(crate) fn put_pool(&mut self, pool: Pool) -> bool {
        if self.pools.get(&pool.name) == Some(&pool) {
            return false;
        }
        self.pools.insert(pool.name.clone(), pool);
        true
    }

    pub(crate) fn remove_pool(&mut self, name: &str) {
        self.pools.remove(name);
    }

    pub(crate) fn pool_names(&self) -> Vec<Arc<str>> {
        self.pools.keys().cloned().collect()
    }

    /// Addresses that are published are their Services', whatever became of the `EIp`s. An address that somebody else
    /// has too is left to him; its Service is told when it asks.
    fn import(&mut self, living: &[Living]) {
        for Living { owner, addresses } in living {
            for address in addresses {
                // Two of a namespace that have published the same one share it, also where no EIp lists the second.
                let near = || self.holders(*address).find(|key| key.namespace == owner.key.namespace).cloned();
                let ours = |key: &EipKey| self.holdings.get(key).is_some_and(|h| h.whose != Whose::Other);
                if let Some(key) = self.listed(owner, *address).or_else(|| near().filter(ours)) {
                    self.join(&key, owner);
                } else if self.held(owner, Family::of(*address)).is_none() && self.holders(*address).next().is_none() {
                    // Refused only if the name of its EIp is somebody else's, which the Service is told when it asks.
                    let _ = self.reserve(owner, *address, self.pool_of(*address));
                }
            }
        }
    }

    /// The `EIp` of this Service for one family, the same one every time; or the address that is needed for it.
    pub(crate) fn hold(
        &mut self,
        ask: &AddressAsk,
        family: Family,
        network_type: Option<&str>,
    ) -> Result<Promise, Error> {
        if let Some(key) = self.held(&ask.owner, family) {
            self.join(&key, &ask.owner);
            return Ok(Promise::Kept(key));
        }
        let current = ask.current.iter().copied().find(|address| Family::of(*address) == family);
        let bound = bound_to(&ask.annotations).map(|name| self.bindable(ask, name, family));
        let own = EipKey::of(&ask.owner, family);
        let own_address = self.holdings.get(&own).filter(|h| h.made_for() == Some(&ask.owner));
        let own_address = own_address.and_then(|holding| holding.should.address);
        let named = match (&bound, current) {
            (Some(Ok(Some(key))), None) => Some(key.clone()),
            (Some(Ok(Some(key))), Some(current)) => Some(key.clone()).filter(|key| self.address(key) == Some(current)),
            _ => None,
        };
        let is_shared = ask.share_families.is_none_or(|families| Family::in_order(families).contains(&family));
        let shared = ask.share_with.as_ref().filter(|_| bound.is_none() && is_shared);
        let shared = shared.map(|other| (other, self.held(other, family)));
        if let Some(user) = self.stranger_on(&own, ask)
            && current.is_none()
            && bound.is_none()
            && shared.as_ref().is_none_or(|(_, key)| key.as_ref() != Some(&own))
        {
            return Err(Error::OwnInUse { eip: own.name.to_string(), user: user.to_string() });
        }
        let found = if own_address.is_some() && (bound.is_none() || own_address == current) {
            // It was released and is not gone yet: an EIp never changes its address.
            Some(own.clone())
        } else if let Some(key) = current.and_then(|address| self.listed(&ask.owner, address)) {
            Some(key)
        } else {
            named
        };
        if let Some(key) = found {
            self.join(&key, &ask.owner);
            return Ok(Promise::Kept(key));
        }
        match (current, shared, bound) {
            (Some(address), Some((_, Some(key))), _) if self.holders(address).any(|holder| *holder == key) => {
                self.join(&key, &ask.owner);
                Ok(Promise::Kept(key))
            }
            (Some(address), _, _) => {
                self.check_free(address, &ask.owner.key.namespace)?;
                self.reserve(&ask.owner, address, self.pool_of(address)).map(Promise::Kept)
            }
            (None, _, Some(Err(error))) => Err(error),
            (None, Some((_, Some(key))), _) => {
                self.join(&key, &ask.owner);
                Ok(Promise::Kept(key))
            }
            (None, Some((other, None)), _) => Err(Error::NothingToShare { holder: other.key.clone() }),
            (None, None, _) => Ok(Promise::Needs(Need {
                eip: own,
                family,
                network_type: network_type.map(Into::into),
                requested: ask.requested.iter().copied().find(|address| Family::of(*address) == family),
            })),
        }
    }

    /// Somebody else who uses the `EIp` that was made for this Service.
    fn stranger_on(&self, own: &EipKey, ask: &AddressAsk) -> Option<&Arc<str>> {
        let holding = self.holdings.get(own).filter(|holding| holding.made_for() == Some(&ask.owner))?;
        holding.should.services.iter().find(|name| **name != ask.owner.key.name)
    }

    /// An address of the pools for whoever needs one, and the pool that it is from.
    pub(crate) fn choose(&mut self, need: &Need, now: Moment) -> Result<(Arc<str>, IpAddr), Error> {
        let Need { eip, family, network_type, requested } = need;
        let (namespace, network_type) = (&*eip.namespace, network_type.as_deref());
        let mut pools: Vec<_> = self.pools.values().filter(|pool| pool.serves(namespace, network_type)).collect();
        pools.sort_by(|a, b| (b.priority, &a.name).cmp(&(a.priority, &b.name)));
        if let Some(address) = *requested {
            let Some(pool) = pools.iter().find(|pool| pool.contains(address)) else {
                return Err(Error::AddressOutside { address, namespace: namespace.to_owned() });
            };
            self.check_free(address, namespace)?;
            self.check_not_taken(address, eip)?;
            self.check_limit(namespace, pool)?;
            return match self.rests(address, now).filter(|_| !self.was_of(address, namespace)) {
                Some(left) => Err(Error::AddressRests { address, left }),
                None => Ok((pool.name.clone(), address)),
            };
        }
        let is_free = |address| {
            let taken = self.taken_by(address, eip).is_some() || self.holders(address).next().is_some();
            !taken && self.rests(address, now).is_none()
        };
        let open = pools.iter().filter(|pool| self.check_limit(namespace, pool).is_ok());
        let found = open.into_iter().find_map(|pool| {
            let last = self.last.get(&(pool.name.clone(), *family)).copied();
            Some((pool.name.clone(), pool.next_free(*family, last, is_free)?))
        });
        let Some((pool, address)) = found else { return Err(self.exhausted(&pools, need, now)) };
        self.last.insert((pool.clone(), *family), address);
        Ok((pool, address))
    }

    /// Whether the namespace may have one more of this pool.
    fn check_limit(&self, namespace: &str, pool: &Pool) -> Result<(), Error> {
        if !pool.unclear.is_empty() {
            return Err(Error::PoolClosed { pool: pool.name.to_string(), lines: pool.unclear.join(", ") });
        }
        let Some(limit) = pool.limit else { return Ok(()) };
        let has = self.of_namespace(namespace).filter(|(_, holding)| self.counts_for(pool, &holding.should));
        let most = usize::try_from(limit).unwrap_or(usize::MAX);
        if has.take(most).count() < most {
            return Ok(());
        }
        let pool = format!("AddressPool {}", pool.name);
        Err(Error::LimitReached { namespace: namespace.to_owned(), pool, limit })
    }

    /// Whether an address is one of this pool: it names it, or is in it and the pool that it names has it no longer.
    fn counts_for(&self, pool: &Pool, says: &Says) -> bool {
        let Some(address) = says.address else { return false };
        let is_elsewhere = || self.pools.get(&says.pool).is_some_and(|named| named.contains(address));
        // What something in OVN has is not from a pool: the address of the project's own router, above all.
        let may_be_of = || pool.contains(address) && !self.taken.contains_key(&address);
        says.pool == pool.name || (may_be_of() && !is_elsewhere())
    }

    /// An address of the pools for a Service that needs one, written down.
    pub(crate) fn assign(&mut self, owner: &Owner, need: &Need, now: Moment) -> Result<EipKey, Error> {
        let (pool, address) = self.choose(need, now)?;
        self.reserve(owner, address, pool)
    }

    /// Refuses an address that something has which is no `EIp`.
    pub(crate) fn check_not_taken(&self, address: IpAddr, eip: &EipKey) -> Result<(), Error> {
        match self.taken_by(address, eip) {
            Some(what) => Err(Error::AddressTaken { address, holder: what.to_owned() }),
            None => Ok(()),
        }
    }

    pub(crate) fn check_free(&self, address: IpAddr, namespace: &str) -> Result<(), Error> {
        let Some(holder) = self.holders(address).next() else { return Ok(()) };
        // Names of another project are not this tenant's business.
        let own = *holder.namespace == *namespace;
        let holder = if own { format!("EIp {}", holder.name) } else { "another project".to_owned() };
        Err(Error::AddressTaken { address, holder })
    }

    /// The `EIp` that holds this owner's address, its own or one that it shares.
    fn held(&self, owner: &Owner, family: Family) -> Option<EipKey> {
        let keys = self.by_service.get(&owner.key)?;
        let key = keys.iter().find(|key| {
            let Some(holding) = self.holdings.get(*key) else { return false };
            holding.should.address.map(Family::of) == Some(family) && holding.is_used_by(owner)
        });
        key.cloned()
    }

    /// The `EIp` that lists this owner as a user of an address that it has published.
    pub(crate) fn listed(&self, owner: &Owner, address: IpAddr) -> Option<EipKey> {
        let mut holders = self.holders(address).filter(|key| key.namespace == owner.key.namespace);
        holders.find(|key| self.holdings.get(*key).is_some_and(|holding| holding.lists(owner))).cloned()
    }

    fn holders(&self, address: IpAddr) -> impl Iterator<Item = &EipKey> {
        let first = EipKey { namespace: "".into(), name: "".into() };
        let from = self.by_address.range((address, first)..);
        from.take_while(move |(other, _)| *other == address).map(|(_, key)| key)
    }

    fn of_namespace(&self, namespace: &str) -> impl Iterator<Item = (&EipKey, &Holding)> {
        let first = EipKey { namespace: namespace.into(), name: "".into() };
        let from = self.holdings.range(first..).map(|(key, holding)| (key, &**holding));
        from.take_while(move |(key, _)| *key.namespace == *namespace)
    }

    fn rests(&self, address: IpAddr, now: Moment) -> Option<Duration> {
        let left = now.until(self.resting.get(&address)?.until);
        (!left.is_zero()).then_some(left)
    }

    /// Whether a namespace itself gave this address back. It is on the same router, and its clients meant to reach it.
    fn was_of(&self, address: IpAddr, namespace: &str) -> bool {
        self.resting.get(&address).is_some_and(|rest| rest.namespace.as_deref() == Some(namespace))
    }

    /// For an address that is living: the pool that it seems to be from, empty where none has it any more.
    fn pool_of(&self, address: IpAddr) -> Arc<str> {
        self.pools.values().find(|pool| pool.contains(address)).map(|pool| pool.name.clone()).unwrap_or_default()
    }

    /// Writes an address down for its owner; it is his from here on.
    pub(crate) fn reserve(&mut self, owner: &Owner, address: IpAddr, pool: Arc<str>) -> Result<EipKey, Error> {
        let key = EipKey::of(owner, Family::of(address));
        let holding = self.holdings.entry(key.clone()).or_insert_with(|| Box::new(Holding::promise(owner)));
        if holding.made_for() != Some(owner) {
            return Err(Error::ForeignEip { namespace: key.namespace.to_string(), name: key.name.to_string() });
        }
        if holding.should.address.is_some_and(|has| has != address)
            && let Some(user) = holding.should.services.iter().next()
        {
            // Somebody who shares it lives on it still.
            return Err(Error::OwnInUse { eip: key.name.to_string(), user: user.to_string() });
        }
        self.change(&key, |holding| {
            holding.should.address = Some(address);
            holding.should.pool = pool;
        });
        self.join(&key, owner);
        Ok(key)
    }

    fn join(&mut self, key: &EipKey, owner: &Owner) {
        self.change(key, |holding| holding.join(owner));
    }

    /// Every change of a holding goes through here, so that it is found by what it says from then on.
    fn change<R>(&mut self, key: &EipKey, change: impl FnOnce(&mut Holding) -> R) -> Option<R> {
        let holding = self.holdings.get_mut(key)?;
        let (address, services) = (holding.should.address, holding.services());
        let outcome = change(holding);
        let (new_address, new_services) = (holding.should.address, holding.services());
        holding.uids.retain(|name, _| new_services.contains(name));
        self.unlist(key, address, &services);
        self.list(key, new_address, new_services);
        Some(outcome)
    }

    fn list(&mut self, key: &EipKey, address: Option<IpAddr>, services: Few<Arc<str>>) {
        self.by_address.extend(address.map(|address| (address, key.clone())));
        for name in services {
            let service = ServiceKey::new(key.namespace.clone(), name);
            self.by_service.entry(service).or_default().insert(key.clone());
        }
    }

    fn unlist(&mut self, key: &EipKey, address: Option<IpAddr>, services: &Few<Arc<str>>) {
        if let Some(address) = address {
            self.by_address.remove(&(address, key.clone()));
        }
        for name in services {
            let service = ServiceKey::new(key.namespace.clone(), name.clone());
            if let Some(keys) = self.by_service.get_mut(&service) {
                keys.remove(key);
                if keys.is_empty() {
                    self.by_service.remove(&service);
                }
            }
        }
    }

    /// This owner uses nothing any more. What is left to write is told by [`Book::pending`] for each of these.
    pub(crate) fn leave(&mut self, owner: &Owner, now: Moment) -> BTreeSet<EipKey> {
        let used = self.by_service.get(&owner.key).cloned().unwrap_or_default();
        let own = [Family::V4, Family::V6].map(|family| EipKey::of(owner, family));
        let is_left = |key: &EipKey| self.holdings.get(key).is_some_and(|holding| holding.is_left_by(owner));
        let mut left: BTreeSet<_> = used.into_iter().chain(own).filter(is_left).collect();
        if left.is_empty() {
            // Whatever their names are: a tenant can write marks of ours on an `EIp` of his own.
            let made = self.of_namespace(&owner.key.namespace).filter(|(_, holding)| holding.made_for() == Some(owner));
            left = made.map(|(key, _)| key.clone()).filter(is_left).collect();
        }
        left.retain(|key| self.part(key, owner, now));
        left
    }

    /// This owner does not use that one any more. Returns whether there is anything to write: what was only promised is over
    /// with its last user.
    fn part(&mut self, key: &EipKey, owner: &Owner, now: Moment) -> bool {
        self.change(key, |holding| holding.part(&owner.key.name));
        let was_only_promised = self.holdings.get(key).is_some_and(|h| h.stored.is_none() && h.is_unused());
        if was_only_promised {
            self.forget(key, now);
        }
        !was_only_promised
    }

    /// What to write next for this `EIp`; `None` when it says what it should.
    pub(crate) fn pending(&self, key: &EipKey, now: Timestamp) -> Option<Write> {
        let holding = self.holdings.get(key)?;
        let status =
            |seen: &Seen| holding.is_stored_otherwise().then(|| Write::Status(eip::status(&holding.should, seen, now)));
        match (&holding.whose, &holding.stored) {
            (Whose::Service(_), Some(_)) if holding.is_unused() => Some(Write::Delete),
            (Whose::Service(_), None) if holding.is_unused() => None,
            (Whose::Service(owner), None) => {
                Some(Write::Create(Box::new(eip::object(key, owner, &self.reader.cluster))))
            }
            (Whose::Service(owner), Some(seen)) if seen.unmarked => {
                Some(Write::Marks(eip::mark(seen, owner, &self.reader.cluster)))
            }
            (Whose::Service(_), Some(seen)) => status(seen),
            (Whose::Tenant | Whose::Nobody, Some(seen)) if seen.deleting => {
                if seen.finalizer && holding.is_unused() {
                    Some(Write::LetGo(eip::let_go(seen)))
                } else {
                    status(seen).filter(|_| seen.finalizer)
                }
            }
            (Whose::Tenant | Whose::Nobody, Some(seen)) => {
                // Marks first: what says an address must not go without our hearing of it.
                let marked = seen.finalizer && seen.label;
                if holding.should.address.is_some() && !marked {
                    Some(Write::Marks(eip::claim(seen, &self.reader.cluster)))
                } else if seen.delete_released && holding.is_left && holding.is_unused() {
                    Some(Write::Delete)
                } else {
                    status(seen)
                }
            }
            (Whose::Other, Some(seen)) if holding.is_stored_otherwise() => {
                Some(Write::Status(eip::owners(&holding.should, seen)))
            }
            (_, _) => None,
        }
    }

    /// The `EIp`s that are in the API server, by uid.
    pub(crate) fn stored(&self) -> BTreeMap<EipKey, Uuid> {
        let stored = self.holdings.iter().filter_map(|(key, h)| Some((key.clone(), h.stored.as_ref()?.uid)));
        stored.collect()
    }

    pub(crate) fn address(&self, key: &EipKey) -> Option<IpAddr> {
        self.holdings.get(key)?.should.address
    }

    /// The addresses of these, as they are written down. Whoever wants one that has gone meanwhile asks again: to have fewer
    /// would take a living one from him.
    pub(crate) fn addresses(&self, keys: &[EipKey]) -> Result<Vec<IpAddr>, Error> {
        keys.iter().map(|key| self.address(key).ok_or(Error::Lost)).collect()
    }

    pub(crate) fn uid(&self, key: &EipKey) -> Option<Uuid> {
        Some(self.holdings.get(key)?.stored.as_ref()?.uid)
    }

    /// Uid and resourceVersion of the object as it was last seen.
    pub(crate) fn version(&self, key: &EipKey) -> Option<(Uuid, String)> {
        let stored = self.holdings.get(key)?.stored.as_ref()?;
        Some((stored.uid, stored.resource_version.to_string()))
    }

    /// The addresses that are held and written down for this wish, in its order. `None` if any is missing but one of the
    /// family that it lacks.
    pub(crate) fn settled(&self, ask: &AddressAsk, lacking: Option<Family>) -> Option<Vec<IpAddr>> {
        let wanted = Family::in_order(ask.families).iter().filter(|family| lacking != Some(**family));
        let each = wanted.map(|family| {
            // Who never led does not know the uids of all users, but sees what is published.
            let published = || {
                let address = ask.current.iter().find(|address| Family::of(**address) == *family)?;
                self.listed(&ask.owner, *address).filter(|_| !self.begun)
            };
            let key = self.held(&ask.owner, *family).or_else(published)?;
            let holding = self.holdings.get(&key)?;
            let settled = holding.stored.is_some() && !holding.is_stored_otherwise();
            holding.should.address.filter(|_| settled)
        });
        each.collect()
    }

    /// Every `EIp` that this cluster serves, once for each user that is known; one that it made and that has no users belongs
    /// to whom it was made for. While others share it, it is not his any more once he has left.
    pub(crate) fn owned(&self) -> impl Iterator<Item = (&EipKey, Owner)> {
        self.served().flat_map(|(key, holding)| {
            let maker = holding.made_for().filter(|_| holding.should.services.is_empty()).cloned();
            let users = holding.should.services.iter().filter_map(|name| {
                let uid = holding.uid(name)?;
                Some(Owner { key: ServiceKey::new(key.namespace.clone(), name.clone()), uid })
            });
            maker.into_iter().chain(users).map(move |owner| (key, owner))
        })
    }

    /// Whether nobody is written down as a user of this one.
    pub(crate) fn is_unused(&self, key: &EipKey) -> bool {
        self.holdings.get(key).is_some_and(|holding| holding.is_unused())
    }

    /// The users of such `EIp`s of whom nothing but the name is known. A leader has heard of all that it serves: these are
    /// others', or have gone without a word.
    pub(crate) fn strangers(&self) -> impl Iterator<Item = (&EipKey, ServiceKey)> {
        let served = self.served().filter(|_| self.begun);
        served.flat_map(|(key, holding)| {
            let unknown = holding.should.services.iter().filter(|name| holding.uid(name).is_none());
            unknown.map(move |name| (key, ServiceKey::new(key.namespace.clone(), name.clone())))
        })
    }

    fn served(&self) -> impl Iterator<Item = (&EipKey, &Holding)> {
        self.holdings
            .iter()
            .filter(|(_, holding)| matches!(holding.whose, Whose::Service(_) | Whose::Tenant))
            .map(|(key, holding)| (key, &**holding))
    }
}
