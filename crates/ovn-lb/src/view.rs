//! The northbound database as it is now, or the reason why nobody can tell.

use ovsdb_client::{Database, Replica, Snapshot, State};

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
        match self.replica.client().state() {
            State::InSync { .. } => Ok(self.replica.snapshot()),
            state => Err(Error::OutOfSight { why: state.to_string() }),
        }
    }
}
