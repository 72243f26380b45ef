//! Keeps one good connection, whatever happens to servers.

mod court;
mod serve;
mod server;
mod sync;

use std::sync::Arc;

use tokio::sync::watch;
use tracing::{info, warn};

use crate::client::{Client, Session};
use crate::config::Config;
use crate::error::{Cause, ConnectError};
use crate::link::Caller;
use crate::lock::Locks;
use crate::replica::Hub;
use crate::state::{LiveCounters, State};
use crate::update::Database;
use court::{Candidate, Court};
use serve::End;
use server::Progress;
use sync::Follower;

/// Starts the session's task.
pub(crate) fn start<D: Database>(config: Config, database: D, hub: Arc<Hub<D>>) -> Client {
    let (state, state_seen) = watch::channel(State::Connecting);
    let (usable, usable_seen) = watch::channel(None);
    let counters = Arc::new(LiveCounters::default());
    let locks = Arc::new(Locks::default());
    let name = database.name().to_owned();

    let told = state.clone();
    let failed = Arc::clone(&counters);
    let on_failure = move |error: Arc<ConnectError>| {
        LiveCounters::count(&failed.failed_attempts);
        // While one server is in use, what the others say is no news.
        told.send_if_modified(|state| {
            let news = matches!(state, State::Connecting | State::Disconnected { .. });
            if news {
                *state = State::Disconnected { error };
            }
            news
        });
    };
    let keeper = Keeper {
        court: Arc::new(Court::new(config, name.clone(), Box::new(on_failure))),
        follower: Follower::new(database, hub, Arc::clone(&counters)),
        state,
        usable,
        counters: Arc::clone(&counters),
        locks: Arc::clone(&locks),
        seen: Progress::default(),
    };
    let task = tokio::spawn(keeper.run());
    Client::new(Session { database: name, usable: usable_seen, state: state_seen, counters, locks, task })
}

struct Keeper<D> {
    court: Arc<Court>,
    follower: Follower<D>,
    state: watch::Sender<State>,
    usable: watch::Sender<Option<Arc<Caller>>>,
    counters: Arc<LiveCounters>,
    locks: Arc<Locks>,
    /// How far the cluster was when we last heard of it.
    seen: Progress,
}

impl<D: Database> Keeper<D> {
    async fn run(mut self) {
        if self.court.config.endpoints.is_empty() {
            let error = ConnectError { endpoint: None, cause: Cause::NoEndpoints };
            self.state.send_replace(State::Disconnected { error: Arc::new(error) });
            // Nobody waits for a connection that cannot come. The state stays, for those who look at it later.
            drop(self.usable);
            return std::future::pending().await;
        }
        let mut next: Option<Candidate> = None;
        loop {
            let candidate = match next.take() {
                Some(candidate) => candidate,
                None => Arc::clone(&self.court).race(self.seen, None).await,
            };
            let at = candidate.at;
            let endpoint = self.court.endpoint(at).clone();
            LiveCounters::count(&self.counters.connects);
            info!(%endpoint, "connected to ovsdb");
            let end = self.serve(candidate).await;
            self.usable.send_replace(None);
            LiveCounters::count(&self.counters.disconnects);
            match end {
                End::Better(candidate) => {
                    info!(left = %endpoint, "moving to another ovsdb server");
                    next = Some(*candidate);
                }
                End::Lost(cause) => {
                    warn!(%endpoint, error = %cause, "ovsdb connection lost");
                    // Before the endpoint is blamed, or the blame would be no news.
                    self.state.send_replace(State::Connecting);
                    self.court.failed(at, cause);
                }
            }
        }
    }
}
