//! The operations of a transaction.
//!
//! ```
//! use ovsdb_client::{Condition, Op, Value, ops::Mutator};
//! use uuid::Uuid;
//!
//! # let router = Uuid::nil();
//! let ops = [
//!     Op::insert("Load_Balancer").set("name", "web").set("vips", Value::map([("192.0.2.1:80", "")])).named("web").into(),
//!     Op::mutate("Logical_Router", [Condition::uuid(router)])
//!         .mutation("load_balancer", Mutator::Insert, Value::set([ovsdb_client::Atom::named_uuid("web")]))
//!         .into(),
//!     Op::comment("a load balancer for web"),
//! ];
//! # let _: [Op; 3] = ops;
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Serialize, Serializer};
use uuid::Uuid;

use crate::value::{Atom, Value};

/// Columns with their values.
pub type Columns = BTreeMap<String, Value>;

/// One operation. Those with options are built by a type of their own and turned into an `Op` by `into()`.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub enum Op {
    /// See [`Op::insert`].
    Insert(Insert),
    /// See [`Op::select`].
    Select(Select),
    /// See [`Op::update`].
    Update(Update),
    /// See [`Op::mutate`].
    Mutate(Mutate),
    /// See [`Op::delete`].
    Delete {
        /// The table.
        table: String,
        /// Which rows; none means all.
        r#where: Vec<Condition>,
    },
    /// See [`Op::wait`].
    Wait(Wait),
    /// See [`Op::commit`].
    Commit {
        /// Whether the answer waits for the disk.
        durable: bool,
    },
    /// See [`Op::abort`].
    Abort {},
    /// See [`Op::comment`].
    Comment {
        /// Words for the server's log.
        comment: String,
    },
    /// See [`Op::assert`].
    Assert {
        /// The lock's name.
        lock: String,
    },
}

impl Op {
    /// Adds a row.
    pub fn insert(table: impl Into<String>) -> Insert {
        Insert { table: table.into(), row: Columns::new(), uuid_name: None, uuid: None }
    }

    /// Reads rows.
    pub fn select(table: impl Into<String>, r#where: impl IntoIterator<Item = Condition>) -> Select {
        Select { table: table.into(), r#where: r#where.into_iter().collect(), columns: None }
    }

    /// Replaces columns of the rows that match.
    pub fn update(table: impl Into<String>, r#where: impl IntoIterator<Item = Condition>) -> Update {
        Update { table: table.into(), r#where: r#where.into_iter().collect(), row: Columns::new() }
    }

    /// Changes columns of the rows that match relative to what they hold, so that writers of different elements of one
    /// set or map do not undo each other.
    pub fn mutate(table: impl Into<String>, r#where: impl IntoIterator<Item = Condition>) -> Mutate {
        Mutate { table: table.into(), r#where: r#where.into_iter().collect(), mutations: Vec::new() }
    }

    /// Removes the rows that match; without a condition, all of them.
    pub fn delete(table: impl Into<String>, r#where: impl IntoIterator<Item = Condition>) -> Self {
        Self::Delete { table: table.into(), r#where: r#where.into_iter().collect() }
    }

    /// Guards the transaction: it is rejected with `timed out` unless the rows that match look as told.
    pub fn wait(table: impl Into<String>, r#where: impl IntoIterator<Item = Condition>) -> Wait {
        Wait {
            table: table.into(),
            r#where: r#where.into_iter().collect(),
            columns: Vec::new(),
            until: Until::Equal,
            rows: Vec::new(),
            timeout: 0,
        }
    }

    /// Commits with a promise about the disk.
    #[must_use]
    pub fn commit(durable: bool) -> Self {
        Self::Commit { durable }
    }

    /// Rejects the transaction; what came before it is still checked.
    #[must_use]
    pub fn abort() -> Self {
        Self::Abort {}
    }

    /// Words for the server's log.
    pub fn comment(text: impl Into<String>) -> Self {
        Self::Comment { comment: text.into() }
    }

    /// Rejects the transaction unless this session holds the lock.
    pub fn assert(lock: impl Into<String>) -> Self {
        Self::Assert { lock: lock.into() }
    }
}

/// An `insert` under construction.
#[derive(Debug, Clone, Serialize)]
pub struct Insert {
    table: String,
    row: Columns,
    #[serde(rename = "uuid-name", skip_serializing_if = "Option::is_none")]
    uuid_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "bare_uuid")]
    uuid: Option<Uuid>,
}

// The explicit uuid of an insert is a plain string, unlike every other UUID on the wire.
#[allow(clippy::ref_option, reason = "serde's signature")]
fn bare_uuid<S: Serializer>(uuid: &Option<Uuid>, serializer: S) -> Result<S::Ok, S::Error> {
    uuid.map(|uuid| uuid.hyphenated().to_string()).serialize(serializer)
}

impl Insert {
    /// Gives a column its value; the others get their default.
    #[must_use]
    pub fn set(mut self, column: impl Into<String>, value: impl Into<Value>) -> Self {
        self.row.insert(column.into(), value.into());
        self
    }

    /// A name by which other operations of this transaction refer to the row: letters, digits and `_`.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.uuid_name = Some(name.into());
        self
    }

    /// The row's UUID, chosen by the caller: a repeated insert is then rejected with `duplicate uuid` instead of making a
    /// second row. Choose it with random leading bits (`UUIDv4`, `UUIDv5`), a common prefix makes the server slow.
    #[must_use]
    pub fn uuid(mut self, uuid: Uuid) -> Self {
        self.uuid = Some(uuid);
        self
    }
}

/// A `select` under construction.
#[derive(Debug, Clone, Serialize)]
pub struct Select {
    table: String,
    r#where: Vec<Condition>,
    #[serde(skip_serializing_if = "Option::is_none")]
    columns: Option<Vec<String>>,
}

impl Select {
    /// Reads only these columns.
    #[must_use]
    pub fn columns<C: Into<String>>(mut self, columns: impl IntoIterator<Item = C>) -> Self {
        self.columns = Some(columns.into_iter().map(Into::into).collect());
        self
    }
}

/// An `update` under construction.
#[derive(Debug, Clone, Serialize)]
pub struct Update {
    table: String,
    r#where: Vec<Condition>,
    row: Columns,
}

impl Update {
    /// Gives a column its new value.
    #[must_use]
    pub fn set(mut self, column: impl Into<String>, value: impl Into<Value>) -> Self {
        self.row.insert(column.into(), value.into());
        self
    }
}

/// A `mutate` under construction.
#[derive(Debug, Clone, Serialize)]
pub struct Mutate {
    table: String,
    r#where: Vec<Condition>,
    mutations: Vec<(String, Mutator, Value)>,
}

impl Mutate {
    /// Adds a change to a column.
    #[must_use]
    pub fn mutation(mut self, column: impl Into<String>, mutator: Mutator, value: impl Into<Value>) -> Self {
        self.mutations.push((column.into(), mutator, value.into()));
        self
    }
}

/// How [`Mutate`] changes a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Mutator {
    /// Adds to each number.
    #[serde(rename = "+=")]
    Add,
    /// Subtracts from each number.
    #[serde(rename = "-=")]
    Subtract,
    /// Multiplies each number.
    #[serde(rename = "*=")]
    Multiply,
    /// Divides each number.
    #[serde(rename = "/=")]
    Divide,
    /// Takes the remainder of each integer.
    #[serde(rename = "%=")]
    Remainder,
    /// Adds elements to a set, or pairs to a map. A key that is there keeps its value.
    #[serde(rename = "insert")]
    Insert,
    /// Takes elements out of a set, or pairs (given as a set: keys) out of a map.
    #[serde(rename = "delete")]
    Delete,
}

/// A `wait` under construction.
#[derive(Debug, Clone, Serialize)]
pub struct Wait {
    table: String,
    r#where: Vec<Condition>,
    columns: Vec<String>,
    until: Until,
    rows: Vec<Columns>,
    timeout: u64,
}

#[derive(Debug, Clone, Copy, Serialize)]
enum Until {
    #[serde(rename = "==")]
    Equal,
    #[serde(rename = "!=")]
    Different,
}

impl Wait {
    /// The rows that match must be exactly these, compared by the columns named in them (`columns` where there are none).
    #[must_use]
    pub fn are(self, rows: impl IntoIterator<Item = Columns>) -> Self {
        self.until(Until::Equal, rows)
    }

    /// The rows that match must not be exactly these.
    #[must_use]
    pub fn are_not(self, rows: impl IntoIterator<Item = Columns>) -> Self {
        self.until(Until::Different, rows)
    }

    /// One row matches, and its column has this value. May be called for several columns of that row.
    #[must_use]
    pub fn has(mut self, column: impl Into<String>, value: impl Into<Value>) -> Self {
        let column = column.into();
        if self.rows.is_empty() {
            self.rows.push(Columns::new());
        }
        self.columns.push(column.clone());
        self.rows[0].insert(column, value.into());
        self
    }

    /// How long the server may wait for it to become true. Zero, the default, makes the operation an assertion.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        self
    }

    /// Compares these columns; needed where no row is given, as in "there is none".
    #[must_use]
    pub fn columns<C: Into<String>>(mut self, columns: impl IntoIterator<Item = C>) -> Self {
        self.columns = columns.into_iter().map(Into::into).collect();
        self
    }

    fn until(mut self, until: Until, rows: impl IntoIterator<Item = Columns>) -> Self {
        self.until = until;
        self.rows = rows.into_iter().collect();
        if self.columns.is_empty() {
            let named: std::collections::BTreeSet<_> = self.rows.iter().flat_map(BTreeMap::keys).cloned().collect();
            self.columns = named.into_iter().collect();
        }
        self
    }
}

macro_rules! op_from {
    ($($op:ident),*) => {$(
        impl From<$op> for Op {
            fn from(op: $op) -> Self {
                Self::$op(op)
            }
        }
    )*};
}
op_from!(Insert, Select, Update, Mutate, Wait);

/// What a row must look like for an operation to act on it.
#[derive(Debug, Clone, Serialize)]
pub struct Condition(String, Function, Value);

/// How a [`Condition`] compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Function {
    /// Less than.
    #[serde(rename = "<")]
    Less,
    /// At most.
    #[serde(rename = "<=")]
    AtMost,
    /// Equal.
    #[serde(rename = "==")]
    Equal,
    /// Different.
    #[serde(rename = "!=")]
    Different,
    /// At least.
    #[serde(rename = ">=")]
    AtLeast,
    /// Greater than.
    #[serde(rename = ">")]
    Greater,
    /// The column has all of these elements or pairs.
    #[serde(rename = "includes")]
    Includes,
    /// The column has none of these elements or pairs.
    #[serde(rename = "excludes")]
    Excludes,
}

impl Condition {
    /// Compares a column.
    pub fn new(column: impl Into<String>, function: Function, value: impl Into<Value>) -> Self {
        Self(column.into(), function, value.into())
    }

    /// The row with this UUID.
    #[must_use]
    pub fn uuid(uuid: Uuid) -> Self {
        Self("_uuid".into(), Function::Equal, Value::Atom(Atom::Uuid(uuid)))
    }

    /// Rows whose column equals this value.
    pub fn eq(column: impl Into<String>, value: impl Into<Value>) -> Self {
        Self::new(column, Function::Equal, value)
    }

    /// Rows whose column has these elements or pairs.
    pub fn includes(column: impl Into<String>, value: impl Into<Value>) -> Self {
        Self::new(column, Function::Includes, value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn operations_look_as_rfc_7047_writes_them() {
        let id = Uuid::from_u128(1);
        let wire = |op: Op| serde_json::to_value(op).unwrap();
        assert_eq!(
            wire(Op::insert("T").set("a", 1).uuid(id).into()),
            json!({"op": "insert", "table": "T", "row": {"a": 1}, "uuid": id.to_string()})
        );
        assert_eq!(
            wire(Op::insert("T").named("n").into()),
            json!({"op": "insert", "table": "T", "row": {}, "uuid-name": "n"})
        );
        assert_eq!(
            wire(Op::mutate("T", [Condition::uuid(id)]).mutation("s", Mutator::Delete, Value::set([1])).into()),
            json!({"op": "mutate", "table": "T", "where": [["_uuid", "==", ["uuid", id.to_string()]]],
                   "mutations": [["s", "delete", ["set", [1]]]]})
        );
        assert_eq!(
            wire(Op::wait("T", [Condition::eq("name", "x")]).columns(["name"]).are([]).into()),
            json!({"op": "wait", "table": "T", "where": [["name", "==", "x"]], "columns": ["name"], "until": "==",
                   "rows": [], "timeout": 0})
        );
        assert_eq!(
            wire(Op::wait("T", []).has("a", 1).has("b", "x").timeout(Duration::from_secs(2)).into()),
            json!({"op": "wait", "table": "T", "where": [], "columns": ["a", "b"], "until": "==",
                   "rows": [{"a": 1, "b": "x"}], "timeout": 2000})
        );
        assert_eq!(wire(Op::abort()), json!({"op": "abort"}));
        assert_eq!(wire(Op::commit(true)), json!({"op": "commit", "durable": true}));
        assert_eq!(wire(Op::assert("l")), json!({"op": "assert", "lock": "l"}));
    }
}
