//! One connection: frames in, requests out, replies to whoever waits for them.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tokio::io::{AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};

use crate::codec::FrameReader;
use crate::config::Config;
use crate::endpoint::Endpoint;
use crate::error::Cause;
use crate::message::{self, Draft, Message};
use crate::stream::Stream;

/// Callers beyond this many wait for room: what a server does not read stays with those who want it written.
const QUEUED_CALLS: usize = 64;
/// Our own probes, answers and monitors. That many unread means that the server does not read at all.
const QUEUED_OWN: usize = 1024;

/// The reading end of a connection. Dropping it closes the connection and ends every call.
pub(crate) struct Link {
    reader: FrameReader<ReadHalf<Box<dyn Stream>>>,
    writer: JoinHandle<Cause>,
    pub(crate) caller: Arc<Caller>,
}

impl Link {
    pub(crate) fn new(stream: Box<dyn Stream>, endpoint: Endpoint, config: &Config) -> Self {
        let (read, write) = tokio::io::split(stream);
        let (calls, call_queue) = mpsc::channel(QUEUED_CALLS);
        let (own, own_queue) = mpsc::channel(QUEUED_OWN);
        let writer = tokio::spawn(write_frames(write, own_queue, call_queue, config.dead_after));
        let caller =
            Caller { endpoint, calls, own, waiting: Mutex::new(Some(HashMap::new())), next_id: AtomicU64::new(0) };
        Self { reader: FrameReader::new(read, config.max_message), writer, caller: Arc::new(caller) }
    }

    /// The next message. Cancel safe.
    pub(crate) async fn message(&mut self) -> Result<Message<'_>, Cause> {
        let frame = tokio::select! {
            frame = self.reader.next() => frame?,
            ended = &mut self.writer => return Err(ended.unwrap_or(Cause::NotReading)),
        };
        Message::parse(frame).map_err(Cause::Protocol)
    }

    /// How many bytes have arrived.
    pub(crate) fn received(&self) -> u64 {
        self.reader.received()
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.writer.abort();
        self.caller.close();
    }
}

/// The sending end of a connection.
pub(crate) struct Caller {
    pub(crate) endpoint: Endpoint,
    calls: mpsc::Sender<Outgoing>,
    own: mpsc::Sender<Vec<u8>>,
    /// Who waits for which reply; `None` once the connection is gone.
    waiting: Mutex<Option<HashMap<u64, oneshot::Sender<Answer>>>>,
    next_id: AtomicU64,
}

type Answer = Result<Box<str>, Box<str>>;

/// How a call ended without a result.
#[derive(Debug)]
pub(crate) enum CallError {
    /// The server's error.
    Refused(Box<str>),
    /// No byte left.
    NotSent(String),
    /// Some or all of it left.
    Unknown(String),
}

impl Caller {
    /// Sends a request for somebody who waits for the reply until `deadline`.
    pub(crate) async fn call(&self, draft: Draft, deadline: Instant) -> Result<Box<str>, CallError> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let bytes = draft.numbered(id);
        let fate = Fate::default();
        let Some((_registered, answer)) = self.register(id, fate.clone()) else {
            return Err(CallError::NotSent(self.gone()));
        };
        let outgoing = Outgoing { bytes, fate: fate.clone() };
        match timeout_at(deadline, self.calls.send(outgoing)).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return Err(CallError::NotSent(self.gone())),
            Err(_) => return Err(CallError::NotSent(format!("{} does not read what it is sent", self.endpoint))),
        }
        let reason = match timeout_at(deadline, answer).await {
            Ok(Ok(answer)) => return answer.map_err(CallError::Refused),
            Ok(Err(_)) => self.gone(),
            Err(_) => "no answer before the deadline".into(),
        };
        Err(if fate.withdraw() { CallError::NotSent(reason) } else { CallError::Unknown(reason) })
    }

    /// Sends a request of the session itself; the reply comes out of [`Caller::route`].
    pub(crate) fn post(&self, method: &str, params: &impl Serialize) -> Result<u64, Cause> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let draft = Draft::new(method, params).map_err(|error| Cause::Protocol(error.to_string()))?;
        self.own.try_send(draft.numbered(id)).map_err(|_| Cause::NotReading)?;
        Ok(id)
    }

    /// Answers what can be answered and hands replies to those who wait. What is left is for the session.
    pub(crate) fn route<'a>(&self, message: Message<'a>) -> Result<Option<Message<'a>>, Cause> {
        match message {
            Message::Request { id, method, params } => {
                let result = if method == "echo" { Ok(params) } else { Err("unknown method") };
                let bytes = message::answer(id, result).map_err(|error| Cause::Protocol(error.to_string()))?;
                self.own.try_send(bytes).map_err(|_| Cause::NotReading)?;
                Ok(None)
            }
            Message::Reply { id, result } => match self.waiting(|waiting| waiting.remove(&id)) {
                Some(waiter) => {
                    // The waiter may have given up in between; its answer is nobody's then.
                    let _ = waiter.send(result.map(Into::into).map_err(Into::into));
                    Ok(None)
                }
                None => Ok(Some(message)),
            },
            Message::Notification { .. } => Ok(Some(message)),
        }
    }

    fn register(&self, id: u64, fate: Fate) -> Option<(Registered<'_>, oneshot::Receiver<Answer>)> {
        let (sender, receiver) = oneshot::channel();
        self.waiting(|waiting| {
            waiting.insert(id, sender);
            Some((Registered { caller: self, id, fate }, receiver))
        })
    }

    fn waiting<T>(&self, look: impl FnOnce(&mut HashMap<u64, oneshot::Sender<Answer>>) -> Option<T>) -> Option<T> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).as_mut().and_then(look)
    }

    fn close(&self) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    fn gone(&self) -> String {
        format!("the connection to {} is gone", self.endpoint)
    }
}

/// Forgets the waiter when its call ends in whatever way. One that is dropped while it still waits in line is not sent.
struct Registered<'a> {
    caller: &'a Caller,
    id: u64,
    fate: Fate,
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        self.fate.withdraw();
        self.caller.waiting(|waiting| waiting.remove(&self.id));
    }
}

struct Outgoing {
    bytes: Vec<u8>,
    fate: Fate,
}

/// Settles, between writer and caller, whether a request was sent: exactly one of them wins.
#[derive(Clone, Default)]
struct Fate(Arc<AtomicU8>);

impl Fate {
    const QUEUED: u8 = 0;
    const SENT: u8 = 1;
    const WITHDRAWN: u8 = 2;

    fn settle(&self, as_what: u8) -> bool {
        self.0.compare_exchange(Self::QUEUED, as_what, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
    /// The writer is about to write the first byte.
    fn send(&self) -> bool {
        self.settle(Self::SENT)
    }
    /// The caller has given up; `true` if nothing was or will be sent.
    fn withdraw(&self) -> bool {
        self.settle(Self::WITHDRAWN)
    }
}

async fn write_frames(
    mut stream: WriteHalf<Box<dyn Stream>>,
    mut own: mpsc::Receiver<Vec<u8>>,
    mut calls: mpsc::Receiver<Outgoing>,
    patience: Duration,
) -> Cause {
    loop {
        let bytes = tokio::select! {
            biased;
            Some(bytes) = own.recv() => bytes,
            Some(outgoing) = calls.recv() => {
                if !outgoing.fate.send() {
                    continue;
                }
                outgoing.bytes
            }
            else => return Cause::NotReading,
        };
        match write_frame(&mut stream, &bytes, patience).await {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::TimedOut => return Cause::NotReading,
            Err(error) => return Cause::Send(error),
        }
    }
}

/// A large frame may take long; a server that takes not a byte of it for as long as `patience` is stuck.
async fn write_frame(stream: &mut (impl AsyncWrite + Unpin), mut bytes: &[u8], patience: Duration) -> io::Result<()> {
    while !bytes.is_empty() {
        let n = timeout(patience, stream.write(bytes)).await??;
        if n == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        bytes = &bytes[n..];
    }
    timeout(patience, stream.flush()).await?
}
