//! Whether addresses are reached from outside, as somebody outside says.
//!
//! That a node holds an address does not mean that the cloud routes it: a fresh one may take a while, and some are never
//! routed until support looks at them.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use groundcrew_core::provider::Look;
use jiff::Timestamp;
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::floating::{Floating, Word, word};
use crate::wishes::Wishes;

/// What was said last about each address that somebody was asked about.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reachability(Arc<Mutex<BTreeMap<IpAddr, bool>>>);

impl Reachability {
    /// Whether it is reached, where somebody outside has said so.
    pub(crate) fn of(&self, address: IpAddr) -> Option<bool> {
        self.lock().get(&address).copied()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<IpAddr, bool>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) struct Probe {
    /// With `{address}` and `{port}` in it. 200 is yes, any other status no, and no answer says nothing.
    pub(crate) url: String,
    pub(crate) http: reqwest::Client,
    pub(crate) floating: Floating,
    pub(crate) wishes: Arc<Wishes>,
    pub(crate) reachability: Reachability,
    /// How long a node has had an address before anybody is asked.
    pub(crate) grace: Duration,
    pub(crate) interval: Duration,
    pub(crate) looks: broadcast::Sender<Look>,
}

impl Probe {
    pub(crate) async fn run(self, stop: CancellationToken) {
        while stop.run_until_cancelled(tokio::time::sleep(self.interval)).await.is_some() {
            if stop.run_until_cancelled(self.look()).await.is_none() {
                return;
            }
        }
    }

    async fn look(&self) {
        let settled = self.settled();
        self.reachability.lock().retain(|address, _| settled.contains_key(address));
        for (address, port) in settled {
            let Some(reached) = self.ask(address, port).await else { continue };
            if self.reachability.lock().insert(address, reached) == Some(reached) {
                continue;
            }
            if reached {
                info!(%address, port, "reached from outside");
            } else {
                warn!(%address, port, "not reached from outside");
            }
            for service in self.wishes.services(address) {
                let _ = self.looks.send(Look::At(service));
            }
        }
    }

    /// Addresses that their node has had for long enough, with a port on which somebody should answer.
    fn settled(&self) -> BTreeMap<IpAddr, u16> {
        let latest = Timestamp::now() - self.grace;
        let held = self.floating.ours().into_iter().filter(|(_, object)| {
            let since = object.status.as_ref().and_then(|status| status.since.as_ref());
            word(object) == Word::Confirmed && since.is_none_or(|since| since.0 <= latest)
        });
        held.filter_map(|(address, _)| Some((address, self.wishes.tcp_port(address)?))).collect()
    }

    async fn ask(&self, address: IpAddr, port: u16) -> Option<bool> {
        let url = self.url.replace("{address}", &address.to_string()).replace("{port}", &port.to_string());
        match self.http.get(&url).send().await {
            Ok(answer) => Some(answer.status() == reqwest::StatusCode::OK),
            Err(error) => {
                // What is asked may have a key in it.
                let error = error.without_url();
                debug!(%address, %error, "nobody outside answers; nothing is known");
                None
            }
        }
    }
}
