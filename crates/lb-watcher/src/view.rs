//! The northbound database as it is now, or nothing.

use std::time::Duration;

use ovsdb_client::{Condition, Op, Replica, Row, Snapshot, Uuid};
use tokio::time::Instant;

use crate::northbound::{LogicalRouter, Northbound};

/// A server that does not answer a question in this time is not believed to have told everything.
const ANSWER: Duration = Duration::from_secs(2);

/// The replica, with one rule: what was seen before the connection was lost is not what is there.
#[derive(Debug, Clone)]
pub(crate) struct View {
    pub(crate) replica: Replica<Northbound>,
}

impl View {
    /// What is there now; `None` while nobody can tell.
    pub(crate) fn now(&self) -> Option<Snapshot<Northbound>> {
        self.replica.client().is_in_sync().then(|| self.replica.snapshot())
    }

    /// Whether the server answers, and so has sent everything that it had before. A hung one looks as if nothing
    /// happened any more. Asks for a row that cannot be there: reading is all that we may do.
    pub(crate) async fn is_current(&self) -> bool {
        let nothing = Op::select(LogicalRouter::TABLE, [Condition::uuid(Uuid::nil())]).columns(["name"]).into();
        self.replica.client().transact(&[nothing], Instant::now() + ANSWER).await.is_ok()
    }
}
