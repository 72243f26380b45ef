//! What the watches of pools and `EIp`s put into the book.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use groundcrew_api::address_pool::AddressPool;
use groundcrew_api::eip::EIp;
use groundcrew_core::leader::Moment;
use groundcrew_core::watch::Sink;
use jiff::Timestamp;
use kube::ResourceExt;
use uuid::Uuid;

use super::Addresses;
use super::eip::{self, EipKey};
use super::pool::Pool;

pub(crate) struct EipSink {
    addresses: Arc<Addresses>,
    /// Those that were there when the list began and have not been listed yet. One that we make meanwhile is not among
    /// them, and so is not missed.
    unlisted: BTreeMap<EipKey, Uuid>,
    /// Those that we had deleted when the list began, and that are not in it.
    buried: BTreeSet<Uuid>,
    /// Those of the list that cannot be read.
    unread: BTreeSet<EipKey>,
    /// When the list began.
    since: Moment,
}

impl EipSink {
    pub(crate) fn new(addresses: Arc<Addresses>) -> Self {
        let (unlisted, buried, unread) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
        Self { addresses, unlisted, buried, unread, since: Moment::now() }
    }
}

impl Sink<EIp> for EipSink {
    fn apply(&mut self, eip: EIp) {
        self.addresses.observe(&eip);
    }

    fn delete(&mut self, eip: EIp) {
        if let Some(seen) = eip::read(&eip, &self.addresses.reader) {
            self.addresses.vanish(&seen.key, seen.uid);
        }
    }

    fn list_begins(&mut self) {
        self.since = Moment::now();
        self.unread.clear();
        let state = self.addresses.lock();
        (self.unlisted, self.buried) = (state.book.stored(), state.book.gone());
    }

    fn listed(&mut self, eip: EIp) {
        if let Some(seen) = eip::read(&eip, &self.addresses.reader) {
            if self.unlisted.get(&seen.key) == Some(&seen.uid) {
                self.unlisted.remove(&seen.key);
            }
            self.buried.remove(&seen.uid);
            self.addresses.observe(&eip);
        }
    }

    fn list_complete(&mut self) {
        for (key, uid) in std::mem::take(&mut self.unlisted) {
            self.addresses.vanish(&key, uid);
        }
        let mut state = self.addresses.lock();
        state.book.bury(&std::mem::take(&mut self.buried));
        let unread = std::mem::take(&mut self.unread);
        for key in state.book.unread().into_iter().filter(|key| !unread.contains(key)) {
            state.book.readable(&key);
        }
        state.listed_since = Some(self.since);
    }

    fn unreadable(&mut self, namespace: Option<&str>, name: &str) {
        let key = EipKey::new(namespace, Some(name));
        self.unlisted.remove(&key);
        self.unread.insert(key.clone());
        self.addresses.lock().book.unreadable(key);
    }

    fn deleted_unread(&mut self, namespace: Option<&str>, name: &str) {
        let key = EipKey::new(namespace, Some(name));
        self.addresses.lock().book.readable(&key);
        let uid = self.addresses.lock().book.uid(&key);
        if let Some(uid) = uid {
            self.addresses.vanish(&key, uid);
        }
    }
}

pub(crate) struct PoolSink {
    addresses: Arc<Addresses>,
    unlisted: BTreeSet<Arc<str>>,
}

impl PoolSink {
    pub(crate) fn new(addresses: Arc<Addresses>) -> Self {
        Self { addresses, unlisted: BTreeSet::new() }
    }

    fn remove(&self, name: &str) {
        let mut state = self.addresses.lock();
        state.book.remove_pool(name);
        state.reports.forget(name);
        // Another pool may have overlapped with it.
        self.addresses.stirred.notify_one();
    }
}

impl Sink<AddressPool> for PoolSink {
    fn apply(&mut self, pool: AddressPool) {
        let mut state = self.addresses.lock();
        if let Some(status) = &pool.status {
            state.book.let_rest(&status.resting, Moment::now(), Timestamp::now());
        }
        state.reports.see(&pool);
        if state.book.put_pool(Pool::new(&pool)) {
            self.addresses.wake_waiting(&mut state);
        }
        self.addresses.stirred.notify_one();
    }

    fn delete(&mut self, pool: AddressPool) {
        self.remove(&pool.name_any());
    }

    fn list_begins(&mut self) {
        self.unlisted = self.addresses.lock().book.pool_names().into_iter().collect();
    }

    fn listed(&mut self, pool: AddressPool) {
        self.unlisted.remove(pool.name_any().as_str());
        self.apply(pool);
    }

    fn list_complete(&mut self) {
        for name in std::mem::take(&mut self.unlisted) {
            self.remove(&name);
        }
    }

    fn unreadable(&mut self, _: Option<&str>, name: &str) {
        self.unlisted.remove(name);
    }

    fn deleted_unread(&mut self, _: Option<&str>, name: &str) {
        self.remove(name);
    }
}
