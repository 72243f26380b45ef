//! Applies what a monitor sends, straight from the bytes, to a database's tables.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use uuid::Uuid;

use crate::ops::Condition;
use crate::schema::{Schema, SchemaError, Wanted};
use crate::table::{Row, Table};

/// A set of tables that is replicated as one. Made by [`database!`](crate::database); a clone is a snapshot.
pub trait Database: Clone + Send + Sync + 'static {
    /// The database's name on the server.
    fn name(&self) -> &str;

    /// The same database without rows, ready for what a server with this schema sends, and what to ask that server for.
    fn empty(&self, schema: &Schema) -> Result<(Self, Wanted), SchemaError>;

    /// Which rows of a table to ask for; `None` for all of them. Always the same for one table.
    fn condition(&self, _table: &str) -> Option<Condition> {
        None
    }

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
    // Not in order yet: sorting the rows of a table once is a fraction of the work of finding the place of each.
    tables: Vec<(Arc<str>, Vec<Uuid>)>,
    ignore: bool,
}

impl Touched {
    /// What follows belongs to this table.
    pub fn enter(&mut self, table: &str) {
        if !self.ignore {
            self.tables.push((Arc::from(table), Vec::new()));
        }
    }

    /// Everything is new; no list is wanted.
    pub(crate) fn ignore(&mut self) {
        self.ignore = true;
    }

    /// This row of the table may have changed.
    pub fn row(&mut self, uuid: Uuid) {
        if let Some((_, rows)) = self.tables.last_mut() {
            rows.push(uuid);
        }
    }

    /// The rows that were named.
    #[must_use]
    pub fn into_rows(mut self) -> BTreeSet<RowId> {
        for (_, rows) in &mut self.tables {
            rows.sort_unstable();
        }
        self.tables
            .into_iter()
            .flat_map(|(table, rows)| rows.into_iter().map(move |uuid| RowId { table: Arc::clone(&table), uuid }))
            .collect()
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
        while let Some(Key(table)) = tables.next_key()? {
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
        while let Some(Key(key)) = what.next_key()? {
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
            self.row.change(columns)?;
        } else {
            self.row.read(columns)?;
        }
        Ok(self.row)
    }
}

/// A name in a message, which stays where it is unless it holds an escape. (`Cow` by itself always copies.)
#[doc(hidden)]
#[derive(Debug)]
pub struct Key<'de>(pub Cow<'de, str>);

impl<'de> Deserialize<'de> for Key<'de> {
    fn deserialize<T: Deserializer<'de>>(deserializer: T) -> Result<Self, T::Error> {
        struct Text;

        impl<'de> Visitor<'de> for Text {
            type Value = Key<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }
            fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Borrowed(text)))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Owned(text.to_owned())))
            }
        }

        deserializer.deserialize_str(Text)
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

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;
    use serde_json::{Map, Value, json};

    use super::*;
    use crate::{Set, StrMap};

    crate::table! {
        pub(crate) struct Thing = "Thing" {
            pub(crate) name: Arc<str>,
            pub(crate) size: Option<i64>,
            pub(crate) tags: Set<i64>,
            pub(crate) notes: StrMap,
        }
        indexes ThingsBy {
            name: Arc<str> = |row| Some(row.name.clone()),
            tag: i64 = |row| row.tags.to_vec(),
        }
    }
    crate::database! {
        pub(crate) struct Things = "Things" { pub(crate) things: Thing }
    }

    type Model = BTreeMap<u8, (String, Option<i64>, BTreeSet<i64>, BTreeMap<String, String>)>;

    fn models() -> impl Strategy<Value = Model> {
        let row = (
            "[ab]?",
            prop::option::of(0i64..3),
            prop::collection::btree_set(0i64..5, 0..5),
            prop::collection::btree_map("[kl]{1,2}", "[vw]?", 0..4),
        );
        prop::collection::btree_map(0u8..6, row, 0..6)
    }

    fn uuid(n: u8) -> Uuid {
        Uuid::from_u128(u128::from(n))
    }

    fn set(elements: impl IntoIterator<Item = i64>) -> Value {
        match elements.into_iter().collect::<Vec<_>>()[..] {
            // As the server does, so that both notations are read.
            [one] => json!(one),
            ref all => json!(["set", all]),
        }
    }

    /// What the server sends when its contents go from `old` to `new`. Defaults are left out of inserts.
    fn update3(old: &Model, new: &Model, inserted: &str) -> Value {
        let mut rows = Map::new();
        for n in old.keys().filter(|n| !new.contains_key(*n)) {
            rows.insert(uuid(*n).to_string(), json!({"delete": null}));
        }
        for (n, row) in new {
            let blank = Default::default();
            let before = old.get(n);
            let base = before.unwrap_or(&blank);
            let mut columns = Map::new();
            if row.0 != base.0 {
                columns.insert("name".into(), json!(row.0));
            }
            if row.1 != base.1 {
                columns.insert("size".into(), set(row.1));
            }
            if row.2 != base.2 {
                columns.insert("tags".into(), set(row.2.symmetric_difference(&base.2).copied()));
            }
            if row.3 != base.3 {
                let gone = base.3.iter().filter(|(key, _)| !row.3.contains_key(*key));
                let changed = row.3.iter().filter(|(key, value)| base.3.get(*key) != Some(*value));
                columns.insert("notes".into(), json!(["map", gone.chain(changed).collect::<Vec<_>>()]));
            }
            match before {
                None => rows.insert(uuid(*n).to_string(), json!({inserted: columns})),
                Some(_) if columns.is_empty() => None,
                Some(_) => rows.insert(uuid(*n).to_string(), json!({"modify": columns})),
            };
        }
        json!({"Thing": rows, "Unasked": {"x": [1, 2]}})
    }

    fn load(model: &Model) -> Things {
        let mut things = Things::default();
        apply(&update3(&Model::new(), model, "initial").to_string(), &mut things, &mut Touched::default()).unwrap();
        things
    }

    proptest! {
        #[test]
        fn differences_lead_to_the_same_rows_and_indexes_as_a_fresh_snapshot(states in prop::collection::vec(models(), 1..6)) {
            let mut before = Model::new();
            let mut followed = Things::default();
            for after in states {
                let snapshot = followed.clone();
                let mut touched = Touched::default();
                apply(&update3(&before, &after, "insert").to_string(), &mut followed, &mut touched).unwrap();

                let fresh = load(&after);
                prop_assert!(followed.things.iter().eq(fresh.things.iter()));
                prop_assert!(followed.things.indexes().name.iter().eq(fresh.things.indexes().name.iter()));
                prop_assert!(followed.things.indexes().tag.iter().eq(fresh.things.indexes().tag.iter()));
                prop_assert!(snapshot.things.iter().eq(load(&before).things.iter()), "an old snapshot changed");

                let changed: BTreeSet<_> = (0..6).filter(|n| before.get(n) != after.get(n)).map(uuid).collect();
                let named: BTreeSet<_> = touched.into_rows().into_iter().map(|row| row.uuid).collect();
                prop_assert_eq!(named, changed);
                before = after;
            }
        }

        #[test]
        fn no_json_makes_it_panic(text in r#"\{("Thing":\{("[0-9a-f-]{0,36}":\{("(insert|modify|old)":\{("(tags|notes|size)":(1|"x"|\["set",\[1\]\]|\["map",\[\]\])\}?)?)?)?)?\}{0,4}"#) {
            let _ = apply(&text, &mut Things::default(), &mut Touched::default());
        }
    }
}
