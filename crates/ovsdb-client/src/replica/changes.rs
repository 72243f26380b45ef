//! Which rows changed, for consumers of any speed.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use futures::Stream;
use tokio::sync::Notify;

use super::{Replica, Snapshot};
use crate::update::{Database, RowId};

/// Past this many row ids waiting for one consumer, looking at everything is no more work than looking at each.
const MOST_ROWS: usize = 100_000;

/// Which rows may have changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rows {
    /// These, and no others.
    Some(BTreeSet<RowId>),
    /// Any: the replica was read anew, or more rows changed than are worth listing.
    Everything,
}

/// What happened since the last time the consumer looked.
pub struct Changed<D> {
    /// What the consumer saw last, nothing at first: where rows are that are gone now.
    pub before: Snapshot<D>,
    /// What there is now.
    pub after: Snapshot<D>,
    /// Where to look.
    pub rows: Rows,
}

impl<D> fmt::Debug for Changed<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Changed").field("rows", &self.rows).finish_non_exhaustive()
    }
}

/// A consumer's place. Updates that come while it is busy are joined; no row id is lost.
pub struct Changes<D> {
    mailbox: Arc<Mailbox<D>>,
    seen: Snapshot<D>,
    /// Keeps the session alive.
    _replica: Replica<D>,
}

impl<D: Database> Changes<D> {
    pub(super) fn new(mailbox: Arc<Mailbox<D>>, seen: Snapshot<D>, replica: Replica<D>) -> Self {
        Self { mailbox, seen, _replica: replica }
    }

    /// Waits until something may have changed. Cancel safe.
    pub async fn next(&mut self) -> Changed<D> {
        loop {
            if let Some((after, rows)) = self.mailbox.take() {
                let before = std::mem::replace(&mut self.seen, after.clone());
                return Changed { before, after, rows };
            }
            self.mailbox.wake.notified().await;
        }
    }

    /// The same as an endless stream.
    pub fn into_stream(self) -> impl Stream<Item = Changed<D>> + Send {
        futures::stream::unfold(self, async |mut changes| {
            let changed = changes.next().await;
            Some((changed, changes))
        })
    }
}

impl<D> fmt::Debug for Changes<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Changes").field("seen", &self.seen.generation()).finish_non_exhaustive()
    }
}

/// What waits for one consumer. Rows and snapshot change under one lock: a row that is gone must still be found in `before`.
pub(super) struct Mailbox<D> {
    waiting: Mutex<Option<(Snapshot<D>, Rows)>>,
    wake: Notify,
    /// The tables that the consumer asked for, if not all.
    tables: Option<&'static [&'static str]>,
}

impl<D> Mailbox<D> {
    pub(super) fn new(waiting: Option<(Snapshot<D>, Rows)>, tables: Option<&'static [&'static str]>) -> Self {
        Self { waiting: Mutex::new(waiting), wake: Notify::new(), tables }
    }

    pub(super) fn put(&self, after: &Snapshot<D>, rows: &Rows) {
        let Some(tables) = self.tables else { return self.add(after, rows) };
        match rows {
            Rows::Everything => self.add(after, rows),
            Rows::Some(rows) => {
                let asked: BTreeSet<_> = rows.iter().filter(|row| tables.contains(&&*row.table)).cloned().collect();
                if !asked.is_empty() {
                    self.add(after, &Rows::Some(asked));
                }
            }
        }
    }

    fn add(&self, after: &Snapshot<D>, rows: &Rows) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let rows = match (waiting.take(), rows) {
            (Some((_, Rows::Some(mut old))), Rows::Some(new)) if old.len() + new.len() <= MOST_ROWS => {
                old.extend(new.iter().cloned());
                Rows::Some(old)
            }
            (None, rows) => rows.clone(),
            _ => Rows::Everything,
        };
        *waiting = Some((after.clone(), rows));
        drop(waiting);
        self.wake.notify_one();
    }

    fn take(&self) -> Option<(Snapshot<D>, Rows)> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
