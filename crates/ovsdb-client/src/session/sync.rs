//! Brings a replica up to date on a new connection and keeps it so.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::{self, DeserializeSeed, Deserializer, SeqAccess, Visitor};
use serde_json::json;
use uuid::Uuid;

use crate::error::Cause;
use crate::link::Caller;
use crate::message::error_words;
use crate::replica::{Hub, Rows};
use crate::schema::{Schema, Wanted};
use crate::state::{LiveCounters, ResyncReason};
use crate::update::{Database, Key, Touched, Updates, apply};

/// The id of the replica's monitor.
const MONITOR: &str = "replica";
/// Updates that overtake the reply which they build on; more than this is no race but a broken server.
const MOST_EARLY_BYTES: usize = 16 * 1024 * 1024;

/// The replica as the session sees it.
pub(super) struct Follower<D> {
    prototype: D,
    hub: Arc<Hub<D>>,
    counters: Arc<LiveCounters>,
    /// What was published last, and what it takes to resume from there.
    current: Option<Current<D>>,
    phase: Phase<D>,
}

struct Current<D> {
    database: D,
    wanted: Wanted,
    /// Nil where the server has no history.
    transaction: Uuid,
    cid: Option<Uuid>,
    /// Something did not fit: only a full read helps.
    broken: bool,
}

enum Phase<D> {
    Idle,
    Schema { id: u64 },
    Monitor { id: u64, dialect: Dialect, empty: D, wanted: Wanted, reason: ResyncReason, early: Vec<Box<str>> },
    Live,
}

/// The ways to monitor, best first. Servers without one of them say `unknown method`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dialect {
    CondSince,
    Cond,
    Plain,
}

impl Dialect {
    fn method(self) -> &'static str {
        match self {
            Self::CondSince => "monitor_cond_since",
            Self::Cond => "monitor_cond",
            Self::Plain => "monitor",
        }
    }

    fn next(self) -> Option<Self> {
        match self {
            Self::CondSince => Some(Self::Cond),
            Self::Cond => Some(Self::Plain),
            Self::Plain => None,
        }
    }
}

impl<D: Database> Follower<D> {
    pub(super) fn new(prototype: D, hub: Arc<Hub<D>>, counters: Arc<LiveCounters>) -> Self {
        Self { prototype, hub, counters, current: None, phase: Phase::Idle }
    }

    pub(super) fn is_live(&self) -> bool {
        matches!(self.phase, Phase::Live)
    }

    /// Starts over on a connection: the schema may be another one.
    pub(super) fn start(&mut self, caller: &Caller) -> Result<(), Cause> {
        self.phase = Phase::Schema { id: caller.post("get_schema", &[self.prototype.name()])? };
        Ok(())
    }

    /// Takes a reply if it belongs to the sync.
    pub(super) fn reply(
        &mut self,
        id: u64,
        result: Result<&str, &str>,
        caller: &Caller,
        cid: Option<Uuid>,
    ) -> Result<(), Cause> {
        match std::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Schema { id: asked } if asked == id => {
                let schema = result.map_err(|error| refusal("get_schema", error))?;
                let schema: Schema = serde_json::from_str(schema).map_err(protocol)?;
                let (empty, wanted) = self.prototype.empty(&schema)?;
                if wanted.is_empty() {
                    // A monitor of nothing is refused, and complete as it is.
                    self.hub.publish(empty, &Rows::Everything);
                    self.phase = Phase::Live;
                    return Ok(());
                }
                self.ask(Dialect::CondSince, empty, wanted, caller, cid)
            }
            Phase::Monitor { id: asked, dialect, empty, wanted, reason, early } if asked == id => match result {
                Ok(reply) => self.synced(reply, dialect, empty, wanted, reason, cid, &early),
                Err(error) => match dialect.next() {
                    Some(next) if error_words(error).0 == "unknown method" => {
                        self.ask(next, empty, wanted, caller, cid)
                    }
                    _ => Err(refusal(dialect.method(), error)),
                },
            },
            phase => {
                self.phase = phase;
                Ok(())
            }
        }
    }

    fn ask(
        &mut self,
        dialect: Dialect,
        empty: D,
        wanted: Wanted,
        caller: &Caller,
        cid: Option<Uuid>,
    ) -> Result<(), Cause> {
        let (since, reason) = match &self.current {
            None => (Uuid::nil(), ResyncReason::First),
            Some(current) if current.broken => (Uuid::nil(), ResyncReason::Inconsistent),
            // Rows that we have would lack the columns that are new.
            Some(current) if current.wanted != wanted => (Uuid::nil(), ResyncReason::SchemaChanged),
            Some(current) if current.cid != cid => (Uuid::nil(), ResyncReason::ClusterChanged),
            Some(current) => (current.transaction, ResyncReason::NoHistory),
        };
        let request = |table: &str, columns: &[String]| match self.prototype.condition(table) {
            Some(condition) if dialect != Dialect::Plain => json!({"columns": columns, "where": [condition]}),
            _ => json!({"columns": columns}),
        };
        let tables: BTreeMap<_, _> = wanted.iter().map(|(table, columns)| (table, [request(table, columns)])).collect();
        let database = self.prototype.name();
        let id = match dialect {
            Dialect::CondSince => caller.post(dialect.method(), &(database, MONITOR, tables, since)),
            Dialect::Cond | Dialect::Plain => caller.post(dialect.method(), &(database, MONITOR, tables)),
        }?;
        self.phase = Phase::Monitor { id, dialect, empty, wanted, reason, early: Vec::new() };
        Ok(())
    }

    #[allow(clippy::too_many_arguments, reason = "the fields of the phase that ends here")]
    fn synced(
        &mut self,
        reply: &str,
        dialect: Dialect,
        empty: D,
        wanted: Wanted,
        reason: ResyncReason,
        cid: Option<Uuid>,
        early: &[Box<str>],
    ) -> Result<(), Cause> {
        let mut touched = Touched::default();
        let (resumed, transaction, database) = if dialect == Dialect::CondSince {
            let seed = SinceReply {
                current: self.current.as_ref().map(|current| &current.database),
                empty,
                touched: &mut touched,
            };
            let mut deserializer = serde_json::Deserializer::from_str(reply);
            match seed.deserialize(&mut deserializer).and_then(|read| deserializer.end().map(|()| read)) {
                Ok(reply) => reply,
                Err(error) => {
                    if let Some(current) = &mut self.current {
                        current.broken = true;
                    }
                    return Err(protocol(error));
                }
            }
        } else {
            let mut database = empty;
            apply(reply, &mut database, &mut touched).map_err(protocol)?;
            (false, Uuid::nil(), database)
        };
        let rows = if resumed {
            LiveCounters::count(&self.counters.resumes);
            Rows::Some(touched.into_rows())
        } else {
            self.counters.resync(reason);
            Rows::Everything
        };
        // Nothing was missed: nobody needs to look.
        if rows != Rows::Some(BTreeSet::new()) {
            self.hub.publish(database.clone(), &rows);
        }
        self.current = Some(Current { database, wanted, transaction, cid, broken: false });
        self.phase = Phase::Live;
        early.iter().try_for_each(|params| self.update(params))
    }

    /// Takes an `update`, `update2` or `update3`.
    pub(super) fn notification(&mut self, params: &str) -> Result<(), Cause> {
        match &mut self.phase {
            Phase::Live => self.update(params),
            Phase::Monitor { early, .. } => {
                early.push(params.into());
                if early.iter().map(|params| params.len()).sum::<usize>() > MOST_EARLY_BYTES {
                    return Err(Cause::Protocol("updates without the snapshot that they build on".into()));
                }
                Ok(())
            }
            // Leftovers of a monitor that was canceled.
            Phase::Idle | Phase::Schema { .. } => Ok(()),
        }
    }

    fn update(&mut self, params: &str) -> Result<(), Cause> {
        let Some(current) = &mut self.current else { return Ok(()) };
        // A broken update must leave what consumers see alone, so it is applied to a copy; copies are cheap.
        let mut update = Update { database: current.database.clone(), touched: Touched::default(), transaction: None };
        let mut deserializer = serde_json::Deserializer::from_str(params);
        match update.deserialize_into(&mut deserializer).and_then(|ours| deserializer.end().map(|()| ours)) {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(error) => {
                current.broken = true;
                return Err(protocol(error));
            }
        }
        current.database = update.database.clone();
        current.transaction = update.transaction.unwrap_or(Uuid::nil());
        LiveCounters::count(&self.counters.updates);
        self.hub.publish(update.database, &Rows::Some(update.touched.into_rows()));
        Ok(())
    }

    /// Whether the server has ended our monitor.
    pub(super) fn is_canceled(params: &str) -> bool {
        serde_json::from_str::<[&str; 1]>(params).is_ok_and(|[id]| id == MONITOR)
    }
}

#[allow(clippy::needless_pass_by_value, reason = "used with map_err")]
fn protocol(error: serde_json::Error) -> Cause {
    Cause::Protocol(error.to_string())
}

fn refusal(method: &'static str, error: &str) -> Cause {
    let (error, details) = error_words(error);
    Cause::Refusal { method, error: format!("{error} {details}").trim_end().into() }
}

/// `[<found>, <last transaction>, <table updates>]`: the first element decides what the last is applied to.
struct SinceReply<'a, D> {
    current: Option<&'a D>,
    empty: D,
    touched: &'a mut Touched,
}

impl<'de, D: Database> DeserializeSeed<'de> for SinceReply<'_, D> {
    type Value = (bool, Uuid, D);
    fn deserialize<T: Deserializer<'de>>(self, deserializer: T) -> Result<Self::Value, T::Error> {
        deserializer.deserialize_tuple(3, self)
    }
}

impl<'de, D: Database> Visitor<'de> for SinceReply<'_, D> {
    type Value = (bool, Uuid, D);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the reply to monitor_cond_since")
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let short = || de::Error::custom("a short reply to monitor_cond_since");
        let found: bool = seq.next_element()?.ok_or_else(short)?;
        let transaction: Uuid = seq.next_element()?.ok_or_else(short)?;
        let mut database = if let Some(current) = self.current.filter(|_| found) {
            current.clone()
        } else {
            self.touched.ignore();
            self.empty
        };
        seq.next_element_seed(Updates { database: &mut database, touched: self.touched })?.ok_or_else(short)?;
        Ok((found, transaction, database))
    }
}

/// `[<id>, <last transaction>, <table updates>]`, or without the transaction in the older dialects.
struct Update<D> {
    database: D,
    touched: Touched,
    transaction: Option<Uuid>,
}

impl<D: Database> Update<D> {
    /// `false`: the notification is for another monitor.
    fn deserialize_into<'de, T: Deserializer<'de>>(&mut self, deserializer: T) -> Result<bool, T::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de, D: Database> Visitor<'de> for &mut Update<D> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the parameters of an update")
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<bool, A::Error> {
        if seq.next_element::<Key<'de>>()?.is_none_or(|id| id.0 != MONITOR) {
            while seq.next_element::<de::IgnoredAny>()?.is_some() {}
            return Ok(false);
        }
        while let Some(transaction) = seq.next_element_seed(TransactionOrUpdates(self))? {
            self.transaction = transaction.or(self.transaction);
        }
        Ok(true)
    }
}

/// A string is the transaction, an object the updates.
struct TransactionOrUpdates<'a, D>(&'a mut Update<D>);

impl<'de, D: Database> DeserializeSeed<'de> for TransactionOrUpdates<'_, D> {
    type Value = Option<Uuid>;
    fn deserialize<T: Deserializer<'de>>(self, deserializer: T) -> Result<Self::Value, T::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, D: Database> Visitor<'de> for TransactionOrUpdates<'_, D> {
    type Value = Option<Uuid>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a transaction id or updates by table")
    }
    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
        Uuid::deserialize(de::value::StrDeserializer::new(text)).map(Some)
    }
    fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        Updates { database: &mut self.0.database, touched: &mut self.0.touched }.visit_map(map)?;
        Ok(None)
    }
}
