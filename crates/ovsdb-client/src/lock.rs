//! Locks that the server keeps for its clients.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::{Mutex, PoisonError};

use serde::Deserialize;
use tokio::sync::{Notify, watch};

use crate::client::Client;
use crate::error::Cause;
use crate::link::Caller;

/// A lock that the session asks for. It is given back when this is dropped.
///
/// Guard writes with [`Op::assert`](crate::Op::assert) as well: between [`Lock::is_held`] and the write it may be lost.
pub struct Lock {
    name: String,
    held: watch::Receiver<bool>,
    client: Client,
}

impl Lock {
    /// Whether this session holds the lock.
    #[must_use]
    pub fn is_held(&self) -> bool {
        *self.held.borrow()
    }

    /// Waits until this session holds the lock. Cancel safe.
    pub async fn acquired(&mut self) {
        // The sender lives as long as the client that we hold.
        let _ = self.held.wait_for(|held| *held).await;
    }

    /// Waits until this session does not hold the lock. Cancel safe.
    pub async fn lost(&mut self) {
        let _ = self.held.wait_for(|held| !*held).await;
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        self.client.locks().release(&self.name);
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock").field("name", &self.name).field("held", &self.is_held()).finish_non_exhaustive()
    }
}

/// The locks that are wanted, by name; several [`Lock`]s may want one.
#[derive(Default)]
pub(crate) struct Locks {
    wanted: Mutex<BTreeMap<String, (usize, watch::Sender<bool>)>>,
    pub(crate) changed: Notify,
}

impl Locks {
    pub(crate) fn want(&self, name: String, client: Client) -> Lock {
        let mut wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        let (count, sender) = wanted.entry(name.clone()).or_insert_with(|| (0, watch::Sender::new(false)));
        *count += 1;
        let held = sender.subscribe();
        self.changed.notify_one();
        Lock { name, held, client }
    }

    fn release(&self, name: &str) {
        let mut wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((count, _)) = wanted.get_mut(name) {
            *count -= 1;
            if *count == 0 {
                wanted.remove(name);
                self.changed.notify_one();
            }
        }
    }

    fn names(&self) -> BTreeSet<String> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect()
    }

    fn set(&self, name: &str, held: bool) {
        if let Some((_, sender)) = self.wanted.lock().unwrap_or_else(PoisonError::into_inner).get(name) {
            sender.send_replace(held);
        }
    }

    fn set_all_lost(&self) {
        for (_, sender) in self.wanted.lock().unwrap_or_else(PoisonError::into_inner).values() {
            sender.send_replace(false);
        }
    }
}

/// What one connection has asked for. Locks die with the connection.
pub(crate) struct LockCalls<'a> {
    locks: &'a Locks,
    asked: BTreeSet<String>,
    calls: HashMap<u64, String>,
}

#[derive(Deserialize)]
struct LockReply {
    locked: bool,
}

impl<'a> LockCalls<'a> {
    pub(crate) fn new(locks: &'a Locks) -> Self {
        Self { locks, asked: BTreeSet::new(), calls: HashMap::new() }
    }

    /// Asks for what is wanted and was not asked for yet, gives back what is not wanted any more.
    pub(crate) fn reconcile(&mut self, caller: &Caller) -> Result<(), Cause> {
        let wanted = self.locks.names();
        for name in wanted.difference(&self.asked) {
            self.calls.insert(caller.post("lock", &[name])?, name.clone());
        }
        for name in self.asked.difference(&wanted) {
            caller.post("unlock", &[name])?;
        }
        self.asked = wanted;
        Ok(())
    }

    /// Takes a reply if it answers one of our requests.
    pub(crate) fn reply(&mut self, id: u64, result: Result<&str, &str>) -> bool {
        let Some(name) = self.calls.remove(&id) else { return false };
        let locked = result.ok().and_then(|reply| serde_json::from_str::<LockReply>(reply).ok());
        self.locks.set(&name, locked.is_some_and(|reply| reply.locked));
        true
    }

    /// The server's `locked` or `stolen`.
    pub(crate) fn notification(&mut self, params: &str, held: bool) {
        if let Ok([name]) = serde_json::from_str::<[String; 1]>(params) {
            self.locks.set(&name, held);
        }
    }
}

impl Drop for LockCalls<'_> {
    fn drop(&mut self) {
        self.locks.set_all_lost();
    }
}
