//! The northbound database as it is now, or nothing.

use std::time::Duration;

use groundcrew_core::runtime::Readiness;
use ovsdb_client::{Condition, Op, Replica, Row, Snapshot, State, Uuid};
use prometheus::IntGauge;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::northbound::{LogicalRouter, Northbound};

/// What readiness calls it.
pub(crate) const OVN: &str = "OVN's northbound database";

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
        matches!(self.replica.client().state(), State::InSync { .. }).then(|| self.replica.snapshot())
    }

    /// Whether the server answers, and so has sent everything that it had before. A hung one looks as if nothing
    /// happened any more. Asks for a row that cannot be there: reading is all that we may do.
    pub(crate) async fn is_current(&self) -> bool {
        let nothing = Op::select(LogicalRouter::TABLE, [Condition::uuid(Uuid::nil())]).columns(["name"]).into();
        self.replica.client().transact(&[nothing], Instant::now() + ANSWER).await.is_ok()
    }

    /// Follows the connection until `stop`, and calls `back` each time it is there again. Ready is said once: a watcher
    /// that has lost OVN is not better restarted.
    pub(crate) async fn follow(
        self,
        connected: IntGauge,
        ready: Readiness,
        stop: CancellationToken,
        back: impl Fn() + Send + Sync,
    ) {
        let mut states = self.replica.client().watch_state();
        loop {
            let state = states.borrow_and_update().clone();
            connected.set(matches!(state, State::InSync { .. }).into());
            match &state {
                State::InSync { endpoint } => {
                    info!(%endpoint, "in sync with {OVN}");
                    ready.done(OVN);
                    back();
                }
                State::Disconnected { error } => {
                    warn!(%error, "cannot see {OVN}; nothing is verified until it is back");
                    ready.explain(OVN, error.to_string());
                }
                State::Connecting => ready.explain(OVN, "connecting"),
                State::Syncing { endpoint } => ready.explain(OVN, format!("reading it from {endpoint}")),
            }
            if !matches!(stop.run_until_cancelled(states.changed()).await, Some(Ok(()))) {
                // The session ends with its last user, which is us; so this is the stop.
                return stop.cancelled().await;
            }
        }
    }
}
