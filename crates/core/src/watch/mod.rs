//! A watch that folds into a cache and never gives up.

mod guard;

use std::fmt::Debug;
use std::time::Duration;

use futures::StreamExt;
use kube::runtime::WatchStreamExt;
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Resource};
use rand::RngExt;
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;
use tracing::warn;

pub use guard::{Checked, Guarded, describe};

use crate::runtime::Readiness;

/// Small pages: the list of ten thousand objects as one answer would be most of the process's memory.
const PAGE: u32 = 250;

/// How long one watch request lasts. A connection that died without a word is noticed only at its end, so it is short;
/// the next request goes on where it ended.
const WATCH_SECONDS: u32 = 60;

/// Where a watch's objects go. What a relist no longer has is gone when the list is complete, not before: a consumer
/// never sees an empty or half cache.
pub trait Sink<K>: Send {
    /// The object is new or changed.
    fn apply(&mut self, object: K);
    /// The object is gone; this is how it last was.
    fn delete(&mut self, object: K);
    /// A list begins, at the start and after each watch that broke.
    fn list_begins(&mut self);
    /// One object of the list.
    fn listed(&mut self, object: K);
    /// The list is complete.
    fn list_complete(&mut self);
    /// The object is there, also in a list, but cannot be read ([`Guarded`]): what was known of it stays.
    fn unreadable(&mut self, _namespace: Option<&str>, _name: &str) {}
    /// An object that could not be read is gone.
    fn deleted_unread(&mut self, _namespace: Option<&str>, _name: &str) {}
}

/// Keeps `sink` fed until `stop`. `what` is waited for by [`Readiness`] until the first list is complete.
pub async fn follow<K>(api: Api<K>, what: &'static str, sink: impl Sink<K>, ready: Readiness, stop: CancellationToken)
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let mut sink = sink;
    let config = watcher::Config::default().page_size(PAGE).timeout(WATCH_SECONDS);
    let events = watcher(api, config).backoff(Pauses::default());
    tokio::pin!(events);
    while let Some(Some(event)) = stop.run_until_cancelled(events.next()).await {
        match event {
            Ok(Event::Apply(object)) => sink.apply(object),
            Ok(Event::Delete(object)) => sink.delete(object),
            Ok(Event::Init) => sink.list_begins(),
            Ok(Event::InitApply(object)) => sink.listed(object),
            Ok(Event::InitDone) => {
                sink.list_complete();
                ready.done(what);
            }
            Err(error) => {
                warn!(%error, "watch of {what} broken; trying again");
                ready.explain(what, error.to_string());
            }
        }
    }
}

/// From a fifth of a second to five: short, because while a watch is broken its controller is blind.
#[derive(Debug, Default)]
struct Pauses {
    failures: u32,
}

impl Iterator for Pauses {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let longest = Duration::from_millis(200).saturating_mul(1 << self.failures.min(10)).min(Duration::from_secs(5));
        self.failures = self.failures.saturating_add(1);
        Some(longest.mul_f64(rand::rng().random_range(0.5..1.0)))
    }
}

impl Backoff for Pauses {
    fn reset(&mut self) {
        self.failures = 0;
    }
}
