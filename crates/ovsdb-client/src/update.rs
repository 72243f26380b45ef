//! Applies what a monitor sends, straight from the bytes, to a database's tables.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use uuid::Uuid;

use crate::schema::{Schema, SchemaError, Wanted};
use crate::table::{Row, Table};

/// A set of tables that is replicated as one. Made by [`database!`](crate::database); a clone is a snapshot.
pub trait Database: Clone + Send + Sync + 'static {
    /// The database's name on the server.
    fn name(&self) -> &str;

    /// The same database without rows, ready for what a server with this schema sends, and what to ask that server for.
    fn empty(&self, schema: &Schema) -> Result<(Self, Wanted), SchemaError>;

    /// Reads the next value of `updates`, which belongs to `table`, and applies it.
    fn apply<'de, A: MapAccess<'de>>(
        &mut self,
        table: &str,
        updates: &mut A,
        touched: &mut Touched,
    ) -> Result<(), A::Error>;
}

/// Names one row.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowId {
    /// The table's name.
    pub table: Arc<str>,
    /// The row.
    pub uuid: Uuid,
}

/// Collects the rows that an update names.
#[derive(Debug, Default)]
pub struct Touched {
    table: Option<Arc<str>>,
    rows: BTreeSet<RowId>,
}

impl Touched {
    /// What follows belongs to this table.
    pub fn enter(&mut self, table: &str) {
        self.table = Some(Arc::from(table));
    }

    /// This row of the table may have changed.
    pub fn row(&mut self, uuid: Uuid) {
        if let Some(table) = &self.table {
            self.rows.insert(RowId { table: Arc::clone(table), uuid });
        }
    }

    /// The rows that were named.
    #[must_use]
    pub fn into_rows(self) -> BTreeSet<RowId> {
        self.rows
    }
}

/// Reads the `<table-updates>` of a monitor's reply or notification, in any of the protocol's three dialects.
///
/// After an error `database` is half changed and must be thrown away.
pub fn apply<D: Database>(json: &str, database: &mut D, touched: &mut Touched) -> Result<(), serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_str(json);
    Updates { database, touched }.deserialize(&mut deserializer)?;
    deserializer.end()
}

/// The tables of one message.
pub(crate) struct Updates<'a, D> {
    pub(crate) database: &'a mut D,
    pub(crate) touched: &'a mut Touched,
}

impl<'de, D: Database> DeserializeSeed<'de> for Updates<'_, D> {
    type Value = ();
    fn deserialize<T: Deserializer<'de>>(self, deserializer: T) -> Result<(), T::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, D: Database> Visitor<'de> for Updates<'_, D> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("updates by table")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut tables: A) -> Result<(), A::Error> {
        while let Some(table) = tables.next_key::<Cow<'de, str>>()? {
            self.touched.enter(&table);
            self.database.apply(&table, &mut tables, self.touched)?;
        }
        Ok(())
    }
}

impl<R: Row> Table<R> {
    /// Reads the next value of `updates` and applies it to this table. Called by [`database!`](crate::database).
    pub fn apply<'de, A: MapAccess<'de>>(&mut self, updates: &mut A, touched: &mut Touched) -> Result<(), A::Error> {
        updates.next_value_seed(TableUpdate { table: self, touched })
    }
}

/// The rows of one table.
struct TableUpdate<'a, R: Row> {
    table: &'a mut Table<R>,
    touched: &'a mut Touched,
}

impl<'de, R: Row> DeserializeSeed<'de> for TableUpdate<'_, R> {
    type Value = ();
    fn deserialize<T: Deserializer<'de>>(self, deserializer: T) -> Result<(), T::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, R: Row> Visitor<'de> for TableUpdate<'_, R> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "updates of table {} by row", R::TABLE)
    }
    fn visit_map<A: MapAccess<'de>>(self, mut rows: A) -> Result<(), A::Error> {
        while let Some(uuid) = rows.next_key::<Uuid>()? {
            self.touched.row(uuid);
            rows.next_value_seed(RowUpdate { table: self.table, uuid })?;
        }
        Ok(())
    }
}

/// What happened to one row.
struct RowUpdate<'a, R: Row> {
    table: &'a mut Table<R>,
    uuid: Uuid,
}

impl<'de, R: Row> DeserializeSeed<'de> for RowUpdate<'_, R> {
    type Value = ();
    fn deserialize<T: Deserializer<'de>>(self, deserializer: T) -> Result<(), T::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, R: Row> Visitor<'de> for RowUpdate<'_, R> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("what happened to a row")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut what: A) -> Result<(), A::Error> {
        let mut gone = false;
        while let Some(key) = what.next_key::<Cow<'de, str>>()? {
            match key.as_ref() {
                // `new` is RFC 7047's `update`: always the whole row.
                "initial" | "insert" | "new" => {
                    let row = what.next_value_seed(Columns { row: R::default(), change: false })?;
                    self.table.put(self.uuid, row);
                    gone = false;
                    while what.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                    break;
                }
                "modify" => {
                    let Some(row) = self.table.get(self.uuid).map(|row| R::clone(row)) else {
                        return Err(de::Error::custom(format_args!(
                            "row {} of table {} was changed but never seen",
                            self.uuid,
                            R::TABLE
                        )));
                    };
                    let row = what.next_value_seed(Columns { row, change: true })?;
                    self.table.put(self.uuid, row);
                }
                "delete" | "old" => {
                    what.next_value::<IgnoredAny>()?;
                    gone = true;
                }
                other => {
                    return Err(de::Error::unknown_field(
                        other,
                        &["initial", "insert", "modify", "delete", "old", "new"],
                    ));
                }
            }
        }
        if gone {
            self.table.remove(self.uuid);
        }
        Ok(())
    }
}

struct Columns<R> {
    row: R,
    change: bool,
}

impl<'de, R: Row> DeserializeSeed<'de> for Columns<R> {
    type Value = R;
    fn deserialize<T: Deserializer<'de>>(self, deserializer: T) -> Result<R, T::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, R: Row> Visitor<'de> for Columns<R> {
    type Value = R;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the columns of a row of {}", R::TABLE)
    }
    fn visit_map<A: MapAccess<'de>>(mut self, columns: A) -> Result<R, A::Error> {
        if self.change {
            self.row.change(columns)?
        } else {
            self.row.read(columns)?
        }
        Ok(self.row)
    }
}

/// Reads one column of a row through a function of the field's type. Used by [`table!`](crate::table).
#[doc(hidden)]
#[derive(Debug)]
pub struct ColumnSeed<'a, C, const CHANGE: bool>(pub &'a mut C);

impl<'de, C: crate::column::Column, const CHANGE: bool> DeserializeSeed<'de> for ColumnSeed<'_, C, CHANGE> {
    type Value = ();
    fn deserialize<T: Deserializer<'de>>(self, deserializer: T) -> Result<(), T::Error> {
        if CHANGE {
            self.0.change(deserializer)
        } else {
            *self.0 = C::read(deserializer)?;
            Ok(())
        }
    }
}
