//! The handle by which transactions are sent.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use serde::ser::{SerializeSeq, Serializer};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use crate::config::Config;
use crate::error::TransactError;
use crate::link::{CallError, Caller};
use crate::lock::{Lock, Locks};
use crate::message::{Draft, error_words};
use crate::ops::Op;
use crate::replica::Hub;
use crate::schema::{Schema, SchemaError, Wanted};
use crate::session;
use crate::state::{Counters, LiveCounters, State};
use crate::transact::{OpResult, outcome};
use crate::update::{Database, Touched};

/// A session with one database. Clones share it; it ends with the last of them.
#[derive(Clone)]
pub struct Client(Arc<Session>);

/// Operations in the form in which they are sent. What is prepared while another transaction is under way leaves the moment
/// that one is answered.
pub struct Prepared {
    draft: Draft,
    ops: usize,
}

pub(crate) struct Session {
    pub(crate) database: String,
    /// The connection, while it may be used for transactions.
    pub(crate) usable: watch::Receiver<Option<Arc<Caller>>>,
    pub(crate) state: watch::Receiver<State>,
    pub(crate) counters: Arc<LiveCounters>,
    pub(crate) locks: Arc<Locks>,
    pub(crate) task: JoinHandle<()>,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Client {
    /// Starts a session without a replica. Must be called in a tokio runtime; returns before there is a connection.
    #[must_use]
    pub fn open(config: Config, database: impl Into<String>) -> Self {
        let nothing = Nothing(database.into());
        session::start(config, nothing.clone(), Arc::new(Hub::new(nothing)))
    }

    pub(crate) fn new(session: Session) -> Self {
        Self(Arc::new(session))
    }

    /// Executes the operations as one transaction: all of them or none.
    ///
    /// Waits for a connection if there is none, and for the answer, both until `deadline`. It is sent at most once and
    /// never again by itself; [`TransactError`] tells apart what that leaves open. Dropping the future after it was sent
    /// does not take it back.
    ///
    /// A replica of the same session is in sync before its transactions are sent and applies updates in the order in
    /// which the server sent them, so that it has a transaction's effects when this returns.
    pub async fn transact(&self, ops: &[Op], deadline: Instant) -> Result<Vec<OpResult>, TransactError> {
        self.send(self.prepare(ops)?, deadline).await
    }

    /// Does of [`Client::transact`] what can be done before it is sent. Nothing is sent.
    pub fn prepare(&self, ops: &[Op]) -> Result<Prepared, TransactError> {
        let params = Params { database: &self.0.database, ops };
        let draft =
            Draft::new("transact", &params).map_err(|error| TransactError::NotSent { reason: error.to_string() })?;
        Ok(Prepared { draft, ops: ops.len() })
    }

    /// As [`Client::transact`].
    pub async fn send(&self, prepared: Prepared, deadline: Instant) -> Result<Vec<OpResult>, TransactError> {
        let caller = self.caller(deadline).await?;
        match caller.call(prepared.draft, deadline).await {
            Ok(reply) => outcome(&reply, prepared.ops, &caller.endpoint),
            Err(CallError::Refused(error)) => {
                let (error, details) = error_words(&error);
                Err(TransactError::Rejected { op: None, error, details })
            }
            Err(CallError::NotSent(reason)) => Err(TransactError::NotSent { reason }),
            Err(CallError::Unknown(reason)) => {
                Err(TransactError::Unknown { endpoint: caller.endpoint.clone(), reason })
            }
        }
    }

    /// Asks for a lock and keeps asking, over reconnects, until the [`Lock`] is dropped. Locks belong to one server, not to
    /// a cluster.
    #[must_use]
    pub fn lock(&self, name: impl Into<String>) -> Lock {
        self.0.locks.want(name.into(), self.clone())
    }

    pub(crate) fn locks(&self) -> &Locks {
        &self.0.locks
    }

    /// How the session stands.
    #[must_use]
    pub fn state(&self) -> State {
        self.0.state.borrow().clone()
    }

    /// Whether the session is connected and its replica follows: the answer of [`Client::state`] in short.
    #[must_use]
    pub fn is_in_sync(&self) -> bool {
        matches!(*self.0.state.borrow(), State::InSync { .. })
    }

    /// How the session stands, to wait for a change.
    #[must_use]
    pub fn watch_state(&self) -> watch::Receiver<State> {
        self.0.state.clone()
    }

    /// Numbers for metrics.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.0.counters.read()
    }

    async fn caller(&self, deadline: Instant) -> Result<Arc<Caller>, TransactError> {
        let mut usable = self.0.usable.clone();
        let ready = timeout_at(deadline, usable.wait_for(Option::is_some)).await;
        let reason = match ready {
            Ok(Ok(caller)) => match &*caller {
                Some(caller) => return Ok(Arc::clone(caller)),
                None => self.why(),
            },
            // The session has given up before it began.
            Ok(Err(_)) => self.why(),
            Err(_) => format!("no connection before the deadline ({})", self.why()),
        };
        Err(TransactError::NotSent { reason })
    }

    fn why(&self) -> String {
        match self.state() {
            State::Connecting => "still connecting".into(),
            State::Disconnected { error } => error.to_string(),
            State::Syncing { endpoint } => format!("still reading {endpoint}"),
            State::InSync { endpoint } => format!("{endpoint} is silent"),
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("database", &self.0.database)
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

/// `[<database>, <op>, <op>, ...]`
struct Params<'a> {
    database: &'a str,
    ops: &'a [Op],
}

impl Serialize for Params<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut seq = serializer.serialize_seq(Some(1 + self.ops.len()))?;
        seq.serialize_element(self.database)?;
        for op in self.ops {
            seq.serialize_element(op)?;
        }
        seq.end()
    }
}

/// The replica of a client without one: nothing is monitored.
#[derive(Clone)]
struct Nothing(String);

impl Database for Nothing {
    fn name(&self) -> &str {
        &self.0
    }
    fn empty(&self, _: &Schema) -> Result<(Self, Wanted), SchemaError> {
        Ok((self.clone(), Wanted::new()))
    }
    fn apply<'de, A: serde::de::MapAccess<'de>>(
        &mut self,
        _: &str,
        updates: &mut A,
        _: &mut Touched,
    ) -> Result<(), A::Error> {
        updates.next_value::<serde::de::IgnoredAny>().map(|_| ())
    }
}
