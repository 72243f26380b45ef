//! Tells operators how the connection to OVN stands.

use groundcrew_core::page;
use groundcrew_core::runtime::Readiness;
use ovsdb_client::{Client, State};
use prometheus::IntGauge;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// What readiness calls it.
pub const OVN: &str = "OVN's northbound database";

/// How it stands, for the status page.
#[must_use]
pub fn shown(client: &Client) -> page::Connection {
    let state = client.state();
    page::Connection { up: matches!(state, State::InSync { .. }), state: state.to_string() }
}

/// Follows the connection until `stop`, and calls `back` each time that everything was read. Ready is said once: a
/// controller that has lost OVN is not better restarted.
pub async fn follow(
    client: Client,
    connected: IntGauge,
    ready: Readiness,
    stop: CancellationToken,
    back: impl Fn() + Send,
) {
    let mut states = client.watch_state();
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
                warn!(%error, "cannot see {OVN}; trying again");
                ready.explain(OVN, state.to_string());
            }
            State::Connecting | State::Syncing { .. } => ready.explain(OVN, state.to_string()),
        }
        if !matches!(stop.run_until_cancelled(states.changed()).await, Some(Ok(()))) {
            // The session ends with its last user, which is us; so this is the stop.
            return stop.cancelled().await;
        }
    }
}
