//! A copy of some tables that follows the server.

mod changes;
mod hub;

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

pub use changes::{Changed, Changes, Rows};
pub(crate) use hub::Hub;

use crate::client::Client;
use crate::config::Config;
use crate::session;
use crate::state::State;
use crate::update::Database;

/// One state of the replica: all tables as of one transaction. Cheap to take, to clone and to keep.
pub struct Snapshot<D>(Arc<Numbered<D>>);

struct Numbered<D> {
    generation: u64,
    database: D,
}

impl<D> Snapshot<D> {
    fn new(generation: u64, database: D) -> Self {
        Self(Arc::new(Numbered { generation, database }))
    }

    /// Grows with each state of one replica. Zero is the empty state before the first sync.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.0.generation
    }
}

impl<D> Deref for Snapshot<D> {
    type Target = D;
    fn deref(&self) -> &D {
        &self.0.database
    }
}

impl<D> Clone for Snapshot<D> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<D: fmt::Debug> fmt::Debug for Snapshot<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").field("generation", &self.generation()).field("database", &self.0.database).finish()
    }
}

/// A copy of some tables of a database, kept up to date by a task of its own.
///
/// What a consumer sees is always complete: empty until the first sync, and from then on some state that the server had.
/// Through a lost connection the last state stays until the next is complete.
pub struct Replica<D> {
    client: Client,
    hub: Arc<Hub<D>>,
}

impl<D> Clone for Replica<D> {
    fn clone(&self) -> Self {
        Self { client: self.client.clone(), hub: Arc::clone(&self.hub) }
    }
}

impl<D: Database> Replica<D> {
    /// Starts to replicate. Must be called in a tokio runtime; returns before there is a connection.
    #[must_use]
    pub fn open(config: Config) -> Self
    where
        D: Default,
    {
        Self::open_as(config, D::default())
    }

    /// As [`Replica::open`], for tables that are known at run time only.
    #[must_use]
    pub fn open_as(config: Config, database: D) -> Self {
        let hub = Arc::new(Hub::new(database.clone()));
        Self { client: session::start(config, database, Arc::clone(&hub)), hub }
    }

    /// The state as of the last update. Costs a pointer copy.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot<D> {
        self.hub.snapshot()
    }

    /// Says from now on which rows changed. The first item, once the replica is in sync, says [`Rows::Everything`].
    #[must_use]
    pub fn changes(&self) -> Changes<D> {
        self.hub.subscribe(self.clone(), None)
    }

    /// The same for rows of these tables only: a change of others wakes nobody.
    #[must_use]
    pub fn changes_in(&self, tables: &'static [&'static str]) -> Changes<D> {
        self.hub.subscribe(self.clone(), Some(tables))
    }

    /// Waits until the replica is in sync with a server, and returns what it then holds.
    pub async fn synced(&self) -> Snapshot<D> {
        // The sender lives as long as the client that we hold.
        let _ = self.client.watch_state().wait_for(|state| matches!(state, State::InSync { .. })).await;
        self.snapshot()
    }

    /// For transactions on the same connection. Once one is acknowledged, [`Replica::snapshot`] has it.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }
}

impl<D> fmt::Debug for Replica<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replica").field("client", &self.client).finish_non_exhaustive()
    }
}
