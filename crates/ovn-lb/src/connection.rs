//! Tells operators how the connection to OVN stands.

use groundcrew_core::runtime::Readiness;
use ovsdb_client::{Client, State};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::metrics::Metrics;
use crate::view::explain;

/// What readiness calls it.
pub(crate) const OVN: &str = "OVN's northbound database";

/// Follows the connection until `stop`. Ready is said once: a controller that has lost OVN is not better restarted.
pub(crate) async fn follow(client: Client, metrics: Metrics, ready: Readiness, stop: CancellationToken) {
    let mut states = client.watch_state();
    loop {
        let state = states.borrow_and_update().clone();
        metrics.connected.set(matches!(state, State::InSync { .. }).into());
        match &state {
            State::InSync { endpoint } => {
                info!(%endpoint, "in sync with {OVN}");
                ready.done(OVN);
            }
            State::Disconnected { error } => {
                warn!(%error, "cannot see {OVN}; trying again");
                ready.explain(OVN, explain(&state));
            }
            State::Connecting | State::Syncing { .. } => ready.explain(OVN, explain(&state)),
        }
        if !matches!(stop.run_until_cancelled(states.changed()).await, Some(Ok(()))) {
            // The session ends with its last user, which is us; so this is the stop.
            return stop.cancelled().await;
        }
    }
}
