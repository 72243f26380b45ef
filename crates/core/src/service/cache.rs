//! What the controller knows of the cluster: Services of its class, and the `EndpointSlices` of all.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

use litemap::LiteMap;

use super::class::Class;
use super::object::{self, Group, Reads, Service, Slice, Strings};
use super::wire;
use crate::key::ServiceKey;
use crate::provider::{Beside, Living, Owner};
use crate::watch::Sink;

/// Called with each Service that should be looked at again.
pub(crate) type Wake = dyn Fn(ServiceKey) + Send + Sync;
/// The address that a Service names in its annotations, if any.
pub(crate) type Named = dyn Fn(&BTreeMap<Box<str>, Box<str>>) -> Option<String> + Send + Sync;

/// Who uses an address together with this owner, whatever their annotations say now.
pub(crate) type Near = dyn Fn(&Owner) -> Beside + Send + Sync;

/// What the provider knows of who shares an address.
pub(crate) struct Hints {
    pub(crate) named: Box<Named>,
    pub(crate) beside: Box<Near>,
}

pub(crate) struct Cache {
    class: Class,
    reads: Reads,
    state: RwLock<State>,
    hints: Hints,
    wake: Box<Wake>,
}

#[derive(Default)]
struct State {
    strings: Strings,
    services: HashMap<ServiceKey, Arc<Service>>,
    /// Slices of each Service by their own name. Nearly all have one, for which a tree would take the room of eleven.
    slices: HashMap<ServiceKey, LiteMap<Box<str>, Slice>>,
    /// The Service that each slice belongs to, by a digest of the slice's namespace and name: its label can be changed.
    labelled: HashMap<u64, Arc<str>>,
    digests: RandomState,
    /// Members of each sharing group.
    groups: HashMap<(Arc<str>, Group), BTreeSet<ServiceKey>>,
    /// Owners that vanished without our having released them: somebody removed the finalizer by hand.
    departed: HashMap<ServiceKey, BTreeSet<Owner>>,
}

impl Cache {
    pub(crate) fn new(class: Class, reads: Reads, hints: Hints, wake: Box<Wake>) -> Self {
        Self { class, reads, state: RwLock::default(), hints, wake }
    }

    fn object(&self, from: &wire::Service, strings: &mut Strings) -> Option<Service> {
        let mut service = object::service(from, self.reads, strings)?;
        if let Some(name) = (self.hints.named)(&service.annotations) {
            service.group = Some(Group::Named(strings.share(&name)));
        }
        Some(service)
    }

    /// Reads one without keeping anything of it.
    pub(crate) fn peek(&self, from: &wire::Service) -> Option<Service> {
        self.object(from, &mut Strings::default())
    }

    pub(crate) fn service(&self, key: &ServiceKey) -> Option<Arc<Service>> {
        self.read().services.get(key).cloned()
    }

    /// Runs `f` over the slices of a Service.
    pub(crate) fn with_slices<T>(&self, key: &ServiceKey, f: impl FnOnce(&mut dyn Iterator<Item = &Slice>) -> T) -> T {
        let state = self.read();
        let mut slices = state.slices.get(key).into_iter().flat_map(LiteMap::values);
        f(&mut slices)
    }

    /// All Services that share an address with this one, itself included.
    pub(crate) fn group(&self, service: &Service) -> Vec<Arc<Service>> {
        let Some(key) = group_key(service) else { return Vec::new() };
        let state = self.read();
        let members = state.groups.get(&key).into_iter().flatten();
        members.filter_map(|member| state.services.get(member).cloned()).collect()
    }

    pub(crate) fn keys(&self) -> Vec<ServiceKey> {
        let state = self.read();
        state.services.keys().chain(state.departed.keys()).cloned().collect()
    }

    /// All that are known, in no order.
    pub(crate) fn all(&self) -> Vec<Arc<Service>> {
        self.read().services.values().cloned().collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.read().services.len()
    }

    /// Every address that a Service of ours has published. One that is paused answers there also when it is to go.
    pub(crate) fn living(&self) -> Vec<Living> {
        let state = self.read();
        let serving = state.services.values().filter(|s| s.paused || self.class.serves(s));
        let living = serving.map(|s| Living { owner: s.owner.clone(), addresses: self.class.addresses(s) });
        living.filter(|living| !living.addresses.is_empty()).collect()
    }

    /// Owners that may still have something outside.
    pub(crate) fn owners(&self) -> HashSet<Owner> {
        let state = self.read();
        state.services.values().map(|s| s.owner.clone()).chain(state.departed.values().flatten().cloned()).collect()
    }

    pub(crate) fn departed(&self, key: &ServiceKey) -> Vec<Owner> {
        self.read().departed.get(key).into_iter().flatten().cloned().collect()
    }

    pub(crate) fn has_departed(&self, key: &ServiceKey) -> bool {
        self.read().departed.contains_key(key)
    }

    /// This owner has nothing outside any more.
    pub(crate) fn released(&self, owner: &Owner) {
        self.write().forget_departed(owner);
    }

    /// Forgets those departed that have nothing outside: a follower's leader has released them.
    pub(crate) fn keep_departed(&self, owned: &HashSet<Owner>) {
        let mut state = self.write();
        state.departed.retain(|_, owners| {
            owners.retain(|owner| owned.contains(owner));
            !owners.is_empty()
        });
    }

    /// Takes the answer to one of our own writes, so that the next look does not work on what it replaced.
    pub(crate) fn wrote(&self, answer: &wire::Service) -> Option<Arc<Service>> {
        let mut state = self.write();
        let service = self.object(answer, &mut state.strings)?;
        let key = service.key().clone();
        // Who is gone by now is not brought back by what was true before: no event would ever take it away again.
        let mut members = Vec::new();
        if state.services.get(&key).is_some_and(|present| !is_newer(present, &service)) {
            let before = self.concerned(&state, &key);
            let changed = if self.class.concerns(&service) { state.put(service) } else { state.remove(&key).is_some() };
            if changed {
                members.extend(before.into_iter().chain(self.concerned(&state, &key)));
            }
        }
        // The watch may have been quicker, with a later state or with another Service of the same name.
        let now = state.services.get(&key).filter(|s| s.owner.uid.to_string() == answer_uid(answer)).cloned();
        drop(state);
        // The event of it will be no news, and they may wait for what it says.
        for member in members.into_iter().filter(|member| *member != key) {
            (self.wake)(member);
        }
        now
    }

    fn apply_service(&self, from: &wire::Service) -> Option<ServiceKey> {
        let mut state = self.write();
        let service = self.object(from, &mut state.strings)?;
        let key = service.key().clone();
        let woken = if self.class.concerns(&service) {
            state.replace_departed(&service);
            let before = self.concerned(&state, &key);
            state.put(service).then(|| before.into_iter().chain(self.concerned(&state, &key)).collect::<Vec<_>>())
        } else {
            self.depart(&mut state, &key, |_| true)
        };
        drop(state);
        self.wake_all(&key, woken);
        Some(key)
    }

    fn delete_service(&self, from: &wire::Service) {
        let mut state = self.write();
        let Some(gone) = self.object(from, &mut state.strings) else { return };
        let key = gone.key().clone();
        // An event about an older Service of the same name says nothing about the present one.
        let woken = self.depart(&mut state, &key, |present| present.owner.uid == gone.owner.uid);
        drop(state);
        self.wake_all(&key, woken);
    }

    /// Whom a change of this Service may concern: its group, and that of everybody on its address.
    fn concerned(&self, state: &State, key: &ServiceKey) -> Vec<ServiceKey> {
        let Some(service) = state.services.get(key) else { return Vec::new() };
        let Beside { services, names } = (self.hints.beside)(&service.owner);
        let named = names.into_iter().map(|name| (key.namespace.clone(), Group::Named(name)));
        let near =
            services.iter().filter_map(|owner| state.services.get(&owner.key)).filter_map(|near| group_key(near));
        let groups: HashSet<_> = group_key(service).into_iter().chain(named).chain(near).collect();
        let members = groups.iter().filter_map(|group| state.groups.get(group)).flatten().cloned();
        services.into_iter().map(|owner| owner.key).chain(members).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// A Service that we knew is gone; what it had outside must go too. Returns whom to wake, if it was known.
    fn depart(
        &self,
        state: &mut State,
        key: &ServiceKey,
        is_it: impl FnOnce(&Service) -> bool,
    ) -> Option<Vec<ServiceKey>> {
        if !state.services.get(key).is_some_and(|present| is_it(present)) {
            return None;
        }
        let others = self.concerned(state, key);
        let gone = state.remove(key)?;
        state.departed.entry(key.clone()).or_default().insert(gone.owner.clone());
        Some(others)
    }

    /// `others` is `None` where nothing changed.
    fn wake_all(&self, key: &ServiceKey, others: Option<Vec<ServiceKey>>) {
        let Some(others) = others else { return };
        (self.wake)(key.clone());
        for other in others.into_iter().filter(|other| other != key) {
            (self.wake)(other);
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

fn group_key(service: &Service) -> Option<(Arc<str>, Group)> {
    Some((service.key().namespace.clone(), service.group.clone()?))
}

fn answer_uid(answer: &wire::Service) -> &str {
    answer.metadata.uid.as_deref().unwrap_or_default()
}

/// Whether what we have is later than what one of our writes was answered with.
fn is_newer(present: &Service, answer: &Service) -> bool {
    present.owner.uid != answer.owner.uid || is_older(&answer.resource_version, &present.resource_version)
}

/// The API server's versions grow; where they cannot be compared, what came last counts.
fn is_older(a: &str, b: &str) -> bool {
    matches!((a.parse::<u64>(), b.parse::<u64>()), (Ok(a), Ok(b)) if a < b)
}

impl State {
    /// Returns whether anything changed.
    fn put(&mut self, service: Service) -> bool {
        let key = service.key().clone();
        if let Some(present) = self.services.get(&key) {
            // A watch event from before our own write, or one that we have already.
            if **present == service || is_older(&service.resource_version, &present.resource_version) {
                return false;
            }
        }
        // It is back: what it has outside is in use again.
        self.forget_departed(&service.owner);
        self.ungroup(&key);
        if let Some(group) = group_key(&service) {
            self.groups.entry(group).or_default().insert(key.clone());
        }
        self.services.insert(key, Arc::new(service));
        true
    }

    fn remove(&mut self, key: &ServiceKey) -> Option<Arc<Service>> {
        self.ungroup(key);
        self.services.remove(key)
    }

    fn forget_departed(&mut self, owner: &Owner) {
        if let Entry::Occupied(mut owners) = self.departed.entry(owner.key.clone()) {
            owners.get_mut().remove(owner);
            if owners.get().is_empty() {
                owners.remove();
            }
        }
    }

    fn ungroup(&mut self, key: &ServiceKey) {
        let Some(group) = self.services.get(key).and_then(|s| group_key(s)) else { return };
        if let Entry::Occupied(mut members) = self.groups.entry(group) {
            members.get_mut().remove(key);
            if members.get().is_empty() {
                members.remove();
            }
        }
    }

    /// Notes the Service that a slice says it belongs to. Returns the one that it belonged to before, if that is another.
    fn label(&mut self, namespace: &str, slice: &str, service: Option<&Arc<str>>) -> Option<ServiceKey> {
        let id = self.digests.hash_one((namespace, slice));
        let before = match service {
            Some(service) => self.labelled.insert(id, service.clone()),
            None => self.labelled.remove(&id),
        };
        before.filter(|before| service != Some(before)).map(|before| ServiceKey::new(namespace, before))
    }

    /// A slice is not this Service's any more; it may be another's already.
    fn unlabel(&mut self, service: &ServiceKey, slice: &str) {
        let id = self.digests.hash_one((&*service.namespace, slice));
        if let Entry::Occupied(labelled) = self.labelled.entry(id)
            && *labelled.get() == service.name
        {
            labelled.remove();
        }
    }

    /// A Service that was deleted and made again between two events.
    fn replace_departed(&mut self, service: &Service) {
        let key = service.key();
        if let Some(present) = self.services.get(key)
            && present.owner.uid != service.owner.uid
            && let Some(gone) = self.remove(key)
        {
            self.departed.entry(key.clone()).or_default().insert(gone.owner.clone());
        }
    }
}

/// Feeds the Service watch into the cache.
pub(crate) struct ServiceSink {
    pub(crate) cache: Arc<Cache>,
    /// Keys seen since the list began; the others are gone when it ends.
    listed: HashSet<ServiceKey>,
}

impl ServiceSink {
    pub(crate) fn new(cache: Arc<Cache>) -> Self {
        Self { cache, listed: HashSet::new() }
    }
}

impl Sink<wire::Service> for ServiceSink {
    fn apply(&mut self, object: wire::Service) {
        self.cache.apply_service(&object);
    }

    fn delete(&mut self, object: wire::Service) {
        self.cache.delete_service(&object);
    }

    fn list_begins(&mut self) {
        self.listed.clear();
    }

    fn listed(&mut self, object: wire::Service) {
        if let Some(key) = self.cache.apply_service(&object) {
            self.listed.insert(key);
        }
    }

    fn list_complete(&mut self) {
        let listed = std::mem::take(&mut self.listed);
        let mut state = self.cache.write();
        let gone: Vec<_> = state.services.keys().filter(|key| !listed.contains(*key)).cloned().collect();
        let woken: Vec<_> = gone.into_iter().map(|key| (self.cache.depart(&mut state, &key, |_| true), key)).collect();
        drop(state);
        for (others, key) in woken {
            self.cache.wake_all(&key, others);
        }
    }
}

/// Feeds the `EndpointSlice` watch into the cache.
pub(crate) struct SliceSink {
    pub(crate) cache: Arc<Cache>,
    listed: HashSet<(ServiceKey, Box<str>)>,
}

impl SliceSink {
    pub(crate) fn new(cache: Arc<Cache>) -> Self {
        Self { cache, listed: HashSet::new() }
    }

    fn put(&mut self, from: &wire::EndpointSlice) -> Option<(ServiceKey, Box<str>)> {
        let (namespace, name) = (from.metadata.namespace.as_deref()?, from.metadata.name.as_deref()?);
        let mut state = self.cache.write();
        let slice = object::slice(from, &mut state.strings);
        let left = state.label(namespace, name, slice.as_ref().map(|slice| &slice.service.name));
        if let Some(left) = left {
            drop(state);
            self.take(&left, name);
            state = self.cache.write();
        }
        let (slice, name): (_, Box<str>) = (slice?, name.into());
        let key = slice.service.clone();
        let slices = state.slices.entry(key.clone()).or_insert_with(|| LiteMap::with_capacity(1));
        let changed = slices.insert(name.clone(), slice.clone()).as_ref() != Some(&slice);
        let wake = changed && state.services.contains_key(&key);
        drop(state);
        if wake {
            (self.cache.wake)(key.clone());
        }
        Some((key, name))
    }

    fn take(&mut self, key: &ServiceKey, name: &str) {
        let mut state = self.cache.write();
        let Entry::Occupied(mut slices) = state.slices.entry(key.clone()) else { return };
        let changed = slices.get_mut().remove(name).is_some();
        if slices.get().is_empty() {
            slices.remove();
        }
        state.unlabel(key, name);
        let wake = changed && state.services.contains_key(key);
        drop(state);
        if wake {
            (self.cache.wake)(key.clone());
        }
    }
}

impl Sink<wire::EndpointSlice> for SliceSink {
    fn apply(&mut self, object: wire::EndpointSlice) {
        self.put(&object);
    }

    fn delete(&mut self, object: wire::EndpointSlice) {
        let key = object::slice_service(&object, &mut self.cache.write().strings);
        if let (Some(key), Some(name)) = (key, object.metadata.name) {
            self.take(&key, &name);
        }
    }

    fn list_begins(&mut self) {
        self.listed.clear();
    }

    fn listed(&mut self, object: wire::EndpointSlice) {
        if let Some(id) = self.put(&object) {
            self.listed.insert(id);
        }
    }

    fn list_complete(&mut self) {
        let listed = std::mem::take(&mut self.listed);
        let held: Vec<_> = {
            let state = self.cache.read();
            let all = state.slices.iter().flat_map(|(key, slices)| slices.keys().map(move |name| (key, name)));
            all.map(|(key, name)| (key.clone(), name.clone())).collect()
        };
        for (key, name) in held.into_iter().filter(|id| !listed.contains(id)) {
            self.take(&key, &name);
        }
    }
}
