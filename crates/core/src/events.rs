//! Events for users, without floods.
//!
//! The same text about the same object is told at most once in ten minutes; beyond 100 at once and 20 a second on the
//! long run, Events are dropped and counted. Telling never delays a reconcile. One that does not reach the API server is sent
//! again twice; its name is the same each time, so that nobody is told twice.

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
const ATTEMPTS: usize = 3;
const PAUSE: Duration = Duration::from_secs(1);
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
        let mut attempts = 1;
        let error = loop {
            let error = match timeout(DEADLINE, api.create(&PostParams::default(), &event)).await {
                Ok(Ok(_)) => return,
                // The same words in the same minute, by our former self, or by an attempt that was not answered.
                Ok(Err(kube::Error::Api(status))) if status.is_already_exists() => return,
                // As in a namespace that is going. To ask again would not help.
                Ok(Err(error)) if is_final(&error) => break error.to_string(),
                Ok(Err(error)) => error.to_string(),
                Err(_) => "no answer".to_owned(),
            };
            if attempts == ATTEMPTS {
                break error;
            }
            attempts += 1;
            tokio::time::sleep(PAUSE).await;
        };
        debug!(error, "event not posted");
        self.dropped.with_label_values(&["failed"]).inc();
        self.pace.forget(fingerprint(&told));
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

fn is_final(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if (400..500).contains(&status.code) && status.code != 429)
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

    /// Nobody has heard it: who says it again is to be heard.
    fn forget(&mut self, fingerprint: u64) {
        self.told.remove(&fingerprint);
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

    /// An API server that gives one answer after the other, each on a connection of its own, and then none; how many came.
    async fn server(answers: &'static [u16]) -> (Client, tokio::task::JoinHandle<usize>) {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let serving = tokio::spawn(async move {
            for answer in answers {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = [0; 16_384];
                assert!(stream.read(&mut request).await.unwrap() > 0);
                let reason = if *answer == 409 { "AlreadyExists" } else { "Other" };
                let body = format!(
                    r#"{{"kind":"Status","status":"Failure","message":"m","reason":"{reason}","code":{answer}}}"#
                );
                let head = format!(
                    "HTTP/1.1 {answer} {reason}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                    body.len()
                );
                stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
            }
            answers.len()
        });
        (Client::try_from(kube::Config::new(url.parse().unwrap())).unwrap(), serving)
    }

    async fn dropped(answers: &'static [u16]) -> u64 {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let (client, serving) = server(answers).await;
        let (events, mut post) = Events::new(client, "test", "one", &Registry::new()).unwrap();
        let about = ObjectReference { name: Some("web".into()), ..ObjectReference::default() };
        events.tell(about, Severity::Normal, "Served", "answers");
        let told = post.told.recv().await.unwrap();
        let fingerprint = fingerprint(&told);
        post.post(told).await;
        assert_eq!(serving.await.unwrap(), answers.len(), "it asked as often as it was to");
        let failed = events.dropped.with_label_values(&["failed"]).get();
        assert_eq!(post.pace.told.contains_key(&fingerprint), failed == 0, "what nobody heard can be said again");
        failed
    }

    #[tokio::test]
    async fn an_event_is_sent_again_where_that_may_help() {
        assert_eq!(dropped(&[503, 409]).await, 0);
        assert_eq!(dropped(&[404]).await, 1);
        assert_eq!(dropped(&[500, 500, 500]).await, 1);
    }

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
