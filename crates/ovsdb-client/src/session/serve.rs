//! Uses one connection until it is lost or there is a better one.

use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tracing::info;

use super::court::{Candidate, update_server};
use super::sync::Follower;
use super::{Keeper, Progress};
use crate::error::{Cause, ConnectError};
use crate::link::Caller;
use crate::lock::LockCalls;
use crate::message::Message;
use crate::state::State;
use crate::update::Database;

/// How the use of a connection ended.
pub(super) enum End {
    /// Another server is the better one.
    Better(Box<Candidate>),
    /// The connection is of no use any more.
    Lost(Cause),
}

type Race = Pin<Box<dyn Future<Output = Candidate> + Send>>;

impl<D: Database> Keeper<D> {
    pub(super) async fn serve(&mut self, candidate: Candidate) -> End {
        match self.try_serve(candidate).await {
            Ok(better) => End::Better(Box::new(better)),
            Err(cause) => End::Lost(cause),
        }
    }

    async fn try_serve(&mut self, mut active: Candidate) -> Result<Candidate, Cause> {
        let caller = Arc::clone(&active.link.caller);
        let lock_registry = Arc::clone(&self.locks);
        let mut locks = LockCalls::new(&lock_registry);
        let mut pulse = Pulse::new(self.court.config.probe, self.court.config.dead_after);
        let mut race: Option<Race> = None;
        let mut sync_by = Some(Instant::now() + self.court.config.sync);
        self.seen = active.progress;
        self.follower.start(&caller)?;
        self.state.send_replace(State::Syncing { endpoint: caller.endpoint.clone() });

        loop {
            let next_beat = sync_by.map_or(pulse.next(), |by| by.min(pulse.next()));
            tokio::select! {
                biased;
                better = better(&mut race) => return Ok(better),
                () = lock_registry.changed.notified() => locks.reconcile(&caller)?,
                // Before the clock: if we stood still, what has come meanwhile says that the server did not.
                message = active.link.message() => {
                    let message = caller.route(message?)?;
                    pulse.heard();
                    if let Some(message) = message {
                        self.handle(message, &caller, &mut active.server, &mut locks)?;
                    }
                }
                () = sleep_until(next_beat) => pulse.beat(active.link.received(), &caller)?,
            }

            if self.follower.is_live() {
                if sync_by.take().is_some() {
                    self.court.praise(active.at);
                    locks.reconcile(&caller)?;
                }
            } else if let Some(by) = sync_by {
                // Also between messages without end.
                if by <= Instant::now() {
                    return Err(Cause::Timeout(self.court.config.sync));
                }
            } else {
                sync_by = Some(Instant::now() + self.court.config.sync);
                self.state.send_replace(State::Syncing { endpoint: caller.endpoint.clone() });
            }
            match self.doubt(&active, &pulse) {
                Ok(progress) => {
                    self.seen = progress;
                    race = None;
                    self.let_in(&caller);
                }
                Err(cause) => {
                    if race.is_none() {
                        info!(endpoint = %caller.endpoint, %cause, "looking for a better ovsdb server");
                        // Over a silent server only another one can win: connecting anew to the same proves nothing.
                        let but = matches!(cause, Cause::Silent(_)).then_some(active.at);
                        race = Some(Box::pin(Arc::clone(&self.court).race(self.seen, but)));
                    }
                    self.keep_out(&caller, cause);
                }
            }
        }
    }

    /// Whether the server is still the one to use.
    fn doubt(&self, active: &Candidate, pulse: &Pulse) -> Result<Progress, Cause> {
        let config = &self.court.config;
        let progress = match &active.server {
            Some(server) => server.judge(&self.court.database, config, self.seen)?,
            None => active.progress,
        };
        // A busy server is silent too. Only a cluster can tell the difference: it has another leader, or it has not.
        if config.leader_only && config.endpoints.len() > 1 && pulse.unanswered() {
            return Err(Cause::Silent(pulse.silence()));
        }
        Ok(progress)
    }

    /// Lets callers use the connection, once the replica is in sync: what they write must be seen in it.
    fn let_in(&self, caller: &Arc<Caller>) {
        if !self.follower.is_live() {
            self.usable.send_if_modified(|current| current.take().is_some());
            return;
        }
        // First: whoever acts on the state must find that callers are let in.
        self.usable.send_if_modified(|current| {
            let news = current.is_none();
            if news {
                *current = Some(Arc::clone(caller));
            }
            news
        });
        self.state.send_if_modified(|state| {
            let news = !matches!(state, State::InSync { .. });
            if news {
                *state = State::InSync { endpoint: caller.endpoint.clone() };
            }
            news
        });
    }

    /// Keeps callers waiting. A silent server is not called lost before another has won or it is given up.
    fn keep_out(&self, caller: &Caller, cause: Cause) {
        self.usable.send_if_modified(|current| current.take().is_some());
        if matches!(cause, Cause::Silent(_)) {
            return;
        }
        self.state.send_if_modified(|state| {
            let news = !matches!(state, State::Disconnected { .. });
            if news {
                let error = ConnectError { endpoint: Some(caller.endpoint.clone()), cause };
                *state = State::Disconnected { error: Arc::new(error) };
            }
            news
        });
    }

    fn handle(
        &mut self,
        message: Message<'_>,
        caller: &Caller,
        server: &mut Option<super::server::Server>,
        locks: &mut LockCalls<'_>,
    ) -> Result<(), Cause> {
        match message {
            Message::Reply { id, result } => {
                if locks.reply(id, result) {
                    return Ok(());
                }
                self.follower.reply(id, result, caller, self.seen.cid)
            }
            Message::Notification { method, params } => match method.as_ref() {
                "update3" | "update" => self.follower.notification(params),
                "update2" => self.update2(params, server.as_mut()),
                "monitor_canceled" if Follower::<D>::is_canceled(params) => self.follower.start(caller),
                "locked" => {
                    locks.notification(params, true);
                    Ok(())
                }
                "stolen" => {
                    locks.notification(params, false);
                    Ok(())
                }
                _ => Ok(()),
            },
            Message::Request { .. } => Ok(()),
        }
    }

    /// Both `_Server` and an old server's replica speak this dialect.
    fn update2(&mut self, params: &str, server: Option<&mut super::server::Server>) -> Result<(), Cause> {
        if let Some(server) = server {
            update_server(server, params)?;
        }
        self.follower.notification(params)
    }
}

async fn better(race: &mut Option<Race>) -> Candidate {
    match race {
        Some(race) => race.await,
        None => pending().await,
    }
}

/// Watches over the silence of a server.
struct Pulse {
    probe: Duration,
    dead_after: Duration,
    heard: Instant,
    received: u64,
    /// When the probe was sent that has no answer yet.
    probed: Option<Instant>,
}

impl Pulse {
    fn new(probe: Duration, dead_after: Duration) -> Self {
        Self { probe, dead_after, heard: Instant::now(), received: 0, probed: None }
    }

    fn heard(&mut self) {
        self.heard = Instant::now();
        self.probed = None;
    }

    fn silence(&self) -> Duration {
        self.heard.elapsed()
    }

    fn unanswered(&self) -> bool {
        self.probed.is_some_and(|at| at.elapsed() >= self.probe)
    }

    fn next(&self) -> Instant {
        match self.probed {
            None => self.heard + self.probe,
            Some(at) if !self.unanswered() => at + self.probe,
            Some(_) => self.heard + self.dead_after,
        }
    }

    fn beat(&mut self, received: u64, caller: &Caller) -> Result<(), Cause> {
        // Part of a long message is a sign of life too.
        if received != self.received {
            self.received = received;
            self.heard();
        } else if self.silence() >= self.dead_after {
            return Err(Cause::Silent(self.silence()));
        } else if self.probed.is_none() && self.silence() >= self.probe {
            caller.post("echo", &["alive?"])?;
            self.probed = Some(Instant::now());
        }
        Ok(())
    }
}
