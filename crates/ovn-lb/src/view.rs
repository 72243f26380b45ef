//! The northbound database as it is now, or the reason why nobody can tell.

use ovsdb_client::{Database, Replica, Snapshot};

use crate::error::Error;
use crate::northbound::Northbound;

/// The replica, with one rule: what was seen before the connection was lost is not what is there.
#[derive(Debug, Clone)]
pub(crate) struct View<D = Northbound> {
    pub(crate) replica: Replica<D>,
}

impl<D: Database> View<D> {
    /// What is there now.
    pub(crate) fn now(&self) -> Result<Snapshot<D>, Error> {
        let client = self.replica.client();
        if client.is_in_sync() {
            return Ok(self.replica.snapshot());
        }
        Err(Error::OutOfSight { why: client.state().to_string() })
    }
}
