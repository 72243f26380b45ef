//! Events for users, without floods.
//!
//! The same text about the same object is told at most once in ten minutes; beyond 100 at once and 20 a second on the
//! long run, Events are dropped and counted. Telling never delays a reconcile.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::PostParams;
use kube::{Api, Client};
use prometheus::{IntCounterVec, Registry};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::metrics;

const REST: Duration = Duration::from_mins(10);
const BURST: f64 = 100.0;
const PER_SECOND: f64 = 20.0;
/// Waiting Events; past it they are dropped.
const WAITING: usize = 1_000;
/// Texts that are remembered for [`REST`]. Past it the oldest half is forgotten: a repetition is better than a leak.
const REMEMBERED: usize = 8_192;
const DEADLINE: Duration = Duration::from_secs(5);
/// The API server refuses longer notes.
const LONGEST_NOTE: usize = 1_000;

/// Normal or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Severity {
    /// `Normal`
    Normal,
    /// `Warning`
    Warning,
}

/// Tells users what happened to an object. Cheap to clone.
#[derive(Clone)]
pub struct Events {
    sender: mpsc::Sender<Told>,
    dropped: IntCounterVec,
}

struct Told {
    about: ObjectReference,
    severity: Severity,
    reason: &'static str,
    note: String,
}

pub(crate) struct PostEvents {
    client: Client,
    controller: String,
    instance: String,
    told: mpsc::Receiver<Told>,
    dropped: IntCounterVec,
    pace: Pace,
}

impl Events {
    pub(crate) fn new(
        client: Client,
        controller: &str,
        instance: &str,
        registry: &Registry,
    ) -> prometheus::Result<(Self, PostEvents)> {
        let dropped = metrics::events_dropped(registry)?;
        let (sender, told) = mpsc::channel(WAITING);
        let post = PostEvents {
            client,
            controller: format!("groundcrew.dev/{controller}"),
            instance: instance.chars().take(128).collect(),
            told,
            dropped: dropped.clone(),
            pace: Pace::new(Instant::now()),
        };
        Ok((Self { sender, dropped }, post))
    }

    /// Nobody hears these.
    #[cfg(feature = "testing")]
    pub fn unheard() -> prometheus::Result<Self> {
        Ok(Self { sender: mpsc::channel(1).0, dropped: metrics::events_dropped(&Registry::new())? })
    }

    /// Tells. The reason is a `PascalCase` word, the note a sentence for the object's user.
    pub fn tell(&self, about: ObjectReference, severity: Severity, reason: &'static str, note: impl Into<String>) {
        if self.sender.try_send(Told { about, severity, reason, note: note.into() }).is_err() {
            self.dropped.with_label_values(&["queue"]).inc();
        }
    }
}

impl PostEvents {
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        while let Some(Some(told)) = stop.run_until_cancelled(self.told.recv()).await {
            self.post(told).await;
        }
        // What was told before the stop is still worth posting; the caller bounds how long this may take.
        while let Ok(told) = self.told.try_recv() {
            self.post(told).await;
        }
    }

    async fn post(&mut self, told: Told) {
        if let Err(cause) = self.pace.admit(fingerprint(&told), Instant::now()) {
            self.dropped.with_label_values(&[cause]).inc();
            return;
        }
        let event = self.event(&told);
        let namespace = told.about.namespace.as_deref().unwrap_or("default");
        let api: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        match timeout(DEADLINE, api.create(&PostParams::default(), &event)).await {
            Ok(Ok(_)) => {}
            // The same words in the same minute, by our former self.
            Ok(Err(kube::Error::Api(status))) if status.is_already_exists() => {}
            Ok(Err(error)) => self.failed(&error.to_string()),
            Err(_) => self.failed("no answer"),
        }
    }

    fn failed(&self, error: &str) {
        debug!(error, "event not posted");
        self.dropped.with_label_values(&["failed"]).inc();
    }

    fn event(&self, told: &Told) -> Event {
        let now = Timestamp::now();
        let about = told.about.name.as_deref().unwrap_or_default();
        // Deterministic within a minute, so that a retry or a successor does not tell it twice.
        let mut hasher = DefaultHasher::new();
        (fingerprint(told), now.as_second() / 60).hash(&mut hasher);
        let name = format!("{}.{:016x}", about.chars().take(230).collect::<String>(), hasher.finish());
        Event {
            metadata: ObjectMeta {
                name: Some(name),
                namespace: Some(told.about.namespace.clone().unwrap_or_else(|| "default".into())),
                ..ObjectMeta::default()
            },
            action: Some(told.reason.to_owned()),
            event_time: Some(MicroTime(now)),
            note: Some(cut(&told.note)),
            reason: Some(told.reason.to_owned()),
            regarding: Some(told.about.clone()),
            reporting_controller: Some(self.controller.clone()),
            reporting_instance: Some(self.instance.clone()),
            type_: Some(match told.severity {
                Severity::Normal => "Normal".to_owned(),
                Severity::Warning => "Warning".to_owned(),
            }),
            ..Event::default()
        }
    }
}

fn cut(note: &str) -> String {
    match note.char_indices().nth(LONGEST_NOTE) {
        Some((end, _)) => format!("{}…", &note[..end]),
        None => note.to_owned(),
    }
}

fn fingerprint(told: &Told) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&told.about.uid, &told.about.name, &told.about.namespace, told.severity, told.reason, &told.note)
        .hash(&mut hasher);
    hasher.finish()
}

/// What may be told now.
#[derive(Debug)]
struct Pace {
    told: HashMap<u64, Instant>,
    tokens: f64,
    counted: Instant,
}

impl Pace {
    fn new(now: Instant) -> Self {
        Self { told: HashMap::new(), tokens: BURST, counted: now }
    }

    fn admit(&mut self, fingerprint: u64, now: Instant) -> Result<(), &'static str> {
        if self.told.get(&fingerprint).is_some_and(|then| now.duration_since(*then) < REST) {
            return Err("repeated");
        }
        let refilled = now.duration_since(self.counted).as_secs_f64() * PER_SECOND;
        self.tokens = (self.tokens + refilled).min(BURST);
        self.counted = now;
        if self.tokens < 1.0 {
            return Err("rate");
        }
        self.tokens -= 1.0;
        if self.told.len() >= REMEMBERED {
            let mut times: Vec<_> = self.told.values().copied().collect();
            times.sort_unstable();
            let middle = times[times.len() / 2];
            self.told.retain(|_, then| *then > middle);
        }
        self.told.insert(fingerprint, now);
        Ok(())
    }
}

/// A reference to an object of a kind known at compile time.
#[must_use]
pub fn reference<K>(namespace: Option<Arc<str>>, name: &str, uid: Option<String>) -> ObjectReference
where
    K: k8s_openapi::Resource,
{
    ObjectReference {
        api_version: Some(K::API_VERSION.to_owned()),
        kind: Some(K::KIND.to_owned()),
        namespace: namespace.map(|n| n.to_string()),
        name: Some(name.to_owned()),
        uid,
        ..ObjectReference::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_words_rest_and_new_words_pass() {
        let now = Instant::now();
        let mut pace = Pace::new(now);
        assert_eq!(pace.admit(1, now), Ok(()));
        assert_eq!(pace.admit(1, now + REST / 2), Err("repeated"));
        assert_eq!(pace.admit(2, now), Ok(()));
        assert_eq!(pace.admit(1, now + REST), Ok(()));
    }

    #[test]
    fn a_flood_is_cut_and_the_pace_recovers() {
        let now = Instant::now();
        let mut pace = Pace::new(now);
        let told = (0..10_000).filter(|n| pace.admit(*n, now).is_ok()).count();
        assert_eq!(told, 100);
        let told = (0..10_000).filter(|n| pace.admit(*n + 20_000, now + Duration::from_secs(1)).is_ok()).count();
        assert_eq!(told, 20);
    }

    #[test]
    fn memory_is_bounded() {
        let mut now = Instant::now();
        let mut pace = Pace::new(now);
        for n in 0..50_000 {
            now += Duration::from_millis(50);
            let _ = pace.admit(n, now);
        }
        assert!(pace.told.len() <= REMEMBERED);
    }

    #[test]
    fn a_note_is_cut_at_a_character() {
        let cut = cut(&"é".repeat(2_000));
        assert_eq!(cut.chars().count(), LONGEST_NOTE + 1);
    }
}
