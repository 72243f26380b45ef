//! Finds a server that may be used.
//!
//! Every endpoint is tried at its own pace, all at the same time, and the first that qualifies wins. A member that hangs (new
//! connections to it still succeed) therefore delays nobody, and a follower that is connected tells us the moment it
//! becomes the leader.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tracing::{debug, warn};
use uuid::Uuid;

use super::server::{Progress, Server};
use crate::config::Config;
use crate::endpoint::Endpoint;
use crate::error::{Cause, ConnectError};
use crate::link::Link;
use crate::message::{Message, error_words};
use crate::stream;
use crate::update::{Touched, apply};

/// The pause after a first failure.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// Between the starts of attempts where any member will do, so that the first choice usually stays the only one.
const STAGGER: Duration = Duration::from_millis(200);
/// The id of the monitor on `_Server`.
pub(super) const SERVER_MONITOR: &str = "_server";

/// A connection that may be used.
pub(super) struct Candidate {
    pub(super) link: Link,
    pub(super) server: Option<Server>,
    pub(super) progress: Progress,
    /// Which of [`Court::endpoints`] it is.
    pub(super) at: usize,
}

/// The endpoints and what is known about them.
pub(super) struct Court {
    pub(super) config: Config,
    pub(super) database: String,
    endpoints: Vec<(Endpoint, Mutex<Pause>)>,
    pub(super) on_failure: Box<dyn Fn(Arc<ConnectError>) + Send + Sync>,
}

/// How long to leave an endpoint alone. Survives from one race to the next.
#[derive(Default)]
struct Pause {
    failures: u32,
    until: Option<Instant>,
    /// Since when it leads and is behind what was seen. Asking a silent one anew does not end that.
    behind: Option<Instant>,
}

impl Court {
    pub(super) fn new(
        config: Config,
        database: String,
        on_failure: Box<dyn Fn(Arc<ConnectError>) + Send + Sync>,
    ) -> Self {
        let endpoints = config.endpoints.iter().map(|endpoint| (endpoint.clone(), Mutex::default())).collect();
        Self { config, database, endpoints, on_failure }
    }

    pub(super) fn endpoint(&self, at: usize) -> &Endpoint {
        &self.endpoints[at].0
    }

    /// Never ends without a winner.
    pub(super) async fn race(self: Arc<Self>, seen: Progress, but: Option<usize>) -> Candidate {
        let first = random_below(self.endpoints.len());
        let mut runners: FuturesUnordered<_> = (0..self.endpoints.len())
            .map(|n| (n, (first + n) % self.endpoints.len()))
            .filter(|(_, at)| Some(*at) != but)
            .map(|(n, at)| self.run(at, seen, if self.config.leader_only { 0 } else { n }))
            .collect();
        match runners.next().await {
            Some(winner) => winner,
            None => std::future::pending().await,
        }
    }

    async fn run(&self, at: usize, seen: Progress, place: usize) -> Candidate {
        sleep(STAGGER * u32::try_from(place).unwrap_or(u32::MAX)).await;
        loop {
            let until = self.pause(at, |pause| pause.until);
            if let Some(until) = until {
                tokio::time::sleep_until(until).await;
            }
            let cause = match timeout(self.config.handshake, self.shake_hands(at)).await {
                Ok(Ok(candidate)) => match self.qualify(candidate, seen).await {
                    Ok(candidate) => return candidate,
                    Err(cause) => cause,
                },
                Ok(Err(cause)) => cause,
                Err(_) => Cause::Timeout(self.config.handshake),
            };
            self.failed(at, cause);
        }
    }

    /// Opens a connection and learns what the server says about itself.
    async fn shake_hands(&self, at: usize) -> Result<Candidate, Cause> {
        let endpoint = self.endpoint(at);
        let stream = stream::open(endpoint, &self.config).await?;
        let mut link = Link::new(stream, endpoint.clone(), &self.config);

        let known = ask(&mut link, "list_dbs", &json!([])).await?;
        let known: Vec<String> = serde_json::from_str(&known).map_err(|error| Cause::Protocol(error.to_string()))?;
        let server = if known.iter().any(|name| name == "_Server") {
            // A converted or removed database then ends the monitor instead of the connection.
            ask(&mut link, "set_db_change_aware", &json!([true])).await?;
            let request = json!(["_Server", SERVER_MONITOR, {"Database": [{"columns": Server::COLUMNS}]}]);
            let reply = ask(&mut link, "monitor_cond", &request).await?;
            let mut server = Server::default();
            apply(&reply, &mut server, &mut Touched::default()).map_err(|error| Cause::Protocol(error.to_string()))?;
            Some(server)
        } else if known.contains(&self.database) {
            // Older than clusters: whatever it is, it leads.
            None
        } else {
            return Err(Cause::NoDatabase { database: self.database.clone(), known: known.join(", ") });
        };
        Ok(Candidate { link, server, progress: Progress::default(), at })
    }

    /// Waits until the server may be used. One that does not lead may be about to.
    async fn qualify(&self, mut candidate: Candidate, seen: Progress) -> Result<Candidate, Cause> {
        let mut told = false;
        loop {
            let Some(server) = &mut candidate.server else { return Ok(candidate) };
            let mut verdict = server.judge(&self.database, &self.config, seen);
            let is_behind = self.config.leader_only && matches!(verdict, Err(Cause::Stale { .. }));
            let restored = self.behind(candidate.at, is_behind).map(|since| since + self.config.restored_after);
            if restored.is_some_and(|at| at <= Instant::now()) {
                warn!(endpoint = %self.endpoint(candidate.at), "its leader stays behind what was read: taken for restored");
                verdict = server.judge(&self.database, &self.config, Progress::default());
            }
            match verdict {
                Ok(progress) => {
                    candidate.progress = progress;
                    return Ok(candidate);
                }
                Err(cause @ (Cause::NotLeader | Cause::NotConnected | Cause::Stale { .. })) => {
                    if !std::mem::replace(&mut told, true) {
                        self.tell(candidate.at, cause);
                    }
                }
                Err(cause) => return Err(cause),
            }
            let caller = Arc::clone(&candidate.link.caller);
            let silence = self.config.dead_after;
            let silent = Instant::now() + silence;
            // A TCP server probes us within that time; a unix one may really have nothing to say, and asking anew is cheap.
            let message = match timeout_at(restored.map_or(silent, |at| at.min(silent)), candidate.link.message()).await
            {
                Ok(message) => message?,
                Err(_) if Instant::now() < silent => continue,
                Err(_) => return Err(Cause::Silent(silence)),
            };
            if let Some(Message::Notification { params, .. }) = caller.route(message)? {
                update_server(server, params)?;
            }
        }
    }

    /// Since when an endpoint has been behind, if it is.
    fn behind(&self, at: usize, is_behind: bool) -> Option<Instant> {
        self.pause(at, |pause| {
            pause.behind = is_behind.then(|| pause.behind.unwrap_or_else(Instant::now));
            pause.behind
        })
    }

    /// The endpoint is good: it starts afresh when it fails next.
    pub(super) fn praise(&self, at: usize) {
        self.pause(at, |pause| *pause = Pause::default());
    }

    /// The endpoint is left alone for a while, longer each time.
    pub(super) fn failed(&self, at: usize, cause: Cause) {
        let most = self.config.max_backoff;
        self.pause(at, |pause| {
            let full = most.min(FIRST_PAUSE * 2u32.saturating_pow(pause.failures.min(16)));
            pause.failures += 1;
            pause.behind = pause.behind.filter(|_| matches!(cause, Cause::Silent(_)));
            // Half of it at random: many clients lose one server at the same moment.
            pause.until = Some(Instant::now() + full.mul_f64(0.5 + 0.5 * random()));
        });
        self.tell(at, cause);
    }

    fn tell(&self, at: usize, cause: Cause) {
        let error = Arc::new(ConnectError { endpoint: Some(self.endpoint(at).clone()), cause });
        debug!(%error, "cannot use ovsdb endpoint");
        (self.on_failure)(error);
    }

    fn pause<T>(&self, at: usize, look: impl FnOnce(&mut Pause) -> T) -> T {
        look(&mut self.endpoints[at].1.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Applies a notification of the `_Server` monitor; others are none of our business yet.
pub(super) fn update_server(server: &mut Server, params: &str) -> Result<(), Cause> {
    if let Ok((SERVER_MONITOR, updates)) = serde_json::from_str::<(&str, &RawValue)>(params) {
        apply(updates.get(), server, &mut Touched::default()).map_err(|error| Cause::Protocol(error.to_string()))?;
    }
    Ok(())
}

/// Asks and waits, on a connection that nobody else uses yet.
async fn ask(link: &mut Link, method: &'static str, params: &serde_json::Value) -> Result<Box<str>, Cause> {
    let caller = Arc::clone(&link.caller);
    let asked = caller.post(method, params)?;
    loop {
        match caller.route(link.message().await?)? {
            Some(Message::Reply { id, result }) if id == asked => {
                return result.map(Into::into).map_err(|error| Cause::Refusal { method, error: error_words(error).0 });
            }
            _ => {}
        }
    }
}

fn random() -> f64 {
    // 32 of the random bits of a version 4 UUID; good enough to spread reconnects.
    f64::from(Uuid::new_v4().as_fields().0) / f64::from(u32::MAX)
}

#[allow(clippy::cast_possible_truncation, reason = "a remainder by a usize")]
fn random_below(n: usize) -> usize {
    (Uuid::new_v4().as_u128() % n.max(1) as u128) as usize
}
