//! Where the session puts new states and consumers find them.

use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};

use super::changes::{Changes, Mailbox, Rows};
use super::{Replica, Snapshot};
use crate::update::Database;

pub(crate) struct Hub<D> {
    current: RwLock<Snapshot<D>>,
    /// What a consumer has seen before its first look.
    blank: Snapshot<D>,
    consumers: Mutex<Vec<Weak<Mailbox<D>>>>,
}

impl<D: Database> Hub<D> {
    pub(crate) fn new(empty: D) -> Self {
        let blank = Snapshot::new(0, empty);
        Self { current: RwLock::new(blank.clone()), blank, consumers: Mutex::default() }
    }

    pub(super) fn snapshot(&self) -> Snapshot<D> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn subscribe(&self, replica: Replica<D>, tables: Option<&'static [&'static str]>) -> Changes<D> {
        let mut consumers = self.consumers.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.snapshot();
        let first = (now.generation() > 0).then_some((now, Rows::Everything));
        let mailbox = Arc::new(Mailbox::new(first, tables));
        consumers.push(Arc::downgrade(&mailbox));
        Changes::new(mailbox, self.blank.clone(), replica)
    }

    /// Makes a state the current one and tells every consumer. The only writer is the session.
    pub(crate) fn publish(&self, database: D, rows: &Rows) {
        // Held throughout, so that a consumer who subscribes meanwhile gets this change exactly once.
        let mut consumers = self.consumers.lock().unwrap_or_else(PoisonError::into_inner);
        let (before, after) = {
            let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
            let after = Snapshot::new(current.generation() + 1, database);
            (std::mem::replace(&mut *current, after.clone()), after)
        };
        // Perhaps the last owner of a whole database: freed after the lock, not under it.
        drop(before);
        consumers.retain(|consumer| consumer.upgrade().inspect(|mailbox| mailbox.put(&after, rows)).is_some());
    }
}
