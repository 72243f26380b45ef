//! Tables of typed rows, with indexes that follow every change.

use std::fmt;
use std::sync::Arc;

use imbl::{OrdMap, OrdSet};
use serde::de::MapAccess;
use uuid::Uuid;

use crate::ops::Condition;
use crate::schema::ColumnSpec;

/// A row type. Made by [`table!`](crate::table).
pub trait Row: Default + Clone + Send + Sync + 'static {
    /// The table's name in the schema.
    const TABLE: &'static str;
    /// The columns that the type has.
    const COLUMNS: &'static [ColumnSpec];
    /// The type's indexes.
    type Indexes: RowIndexes<Self>;

    /// What a row must be like to be replicated; `None` for all rows.
    #[must_use]
    fn condition() -> Option<Condition> {
        None
    }
    /// Reads the columns of a new row; those that are not sent keep their default.
    fn read<'de, A: MapAccess<'de>>(&mut self, columns: A) -> Result<(), A::Error>;
    /// Applies the columns of a change.
    fn change<'de, A: MapAccess<'de>>(&mut self, columns: A) -> Result<(), A::Error>;
}

/// The indexes of a row type. Made by [`table!`](crate::table).
pub trait RowIndexes<R>: Default + Clone + Send + Sync + 'static {
    /// Brings every index from what the row was to what it is.
    fn update(&mut self, uuid: Uuid, before: Option<&R>, after: Option<&R>);
}

/// From a key to the rows that have it. Several rows may share a key, and a row may have several.
#[derive(Clone)]
pub struct Index<K> {
    // One set of pairs instead of a map of sets: nearly every key has one row.
    entries: OrdSet<(K, Uuid)>,
}

impl<K: Ord + Clone> Default for Index<K> {
    fn default() -> Self {
        Self { entries: OrdSet::new() }
    }
}

impl<K: Ord + Clone> Index<K> {
    /// The UUIDs of the rows with this key, in order.
    pub fn get(&self, key: impl Into<K>) -> impl Iterator<Item = Uuid> {
        let key = key.into();
        self.entries.range((key.clone(), Uuid::nil())..=(key, Uuid::max())).map(|(_, uuid)| *uuid)
    }

    /// All keys with their rows, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&K, Uuid)> {
        self.entries.iter().map(|(key, uuid)| (key, *uuid))
    }

    /// Replaces a row's keys.
    pub fn update(&mut self, uuid: Uuid, before: impl IntoIterator<Item = K>, after: impl IntoIterator<Item = K>) {
        let before: Vec<K> = before.into_iter().collect();
        let after: Vec<K> = after.into_iter().collect();
        // Most changes leave the keys alone, and touching a shared tree copies a path of it.
        if before == after {
            return;
        }
        for key in before {
            self.entries.remove(&(key, uuid));
        }
        for key in after {
            self.entries.insert((key, uuid));
        }
    }
}

impl<K: fmt::Debug> fmt::Debug for Index<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Index").field("entries", &self.entries.len()).finish()
    }
}

/// The rows of one table. A clone shares everything with the original until one of them changes.
#[derive(Clone)]
pub struct Table<R: Row> {
    rows: OrdMap<Uuid, Arc<R>>,
    indexes: R::Indexes,
}

impl<R: Row> Default for Table<R> {
    fn default() -> Self {
        Self { rows: OrdMap::new(), indexes: R::Indexes::default() }
    }
}

impl<R: Row> Table<R> {
    /// The row with this UUID.
    #[must_use]
    pub fn get(&self, uuid: Uuid) -> Option<&Arc<R>> {
        self.rows.get(&uuid)
    }

    /// All rows in the order of their UUIDs.
    pub fn iter(&self) -> impl Iterator<Item = (Uuid, &Arc<R>)> {
        self.rows.iter().map(|(uuid, row)| (*uuid, row))
    }

    /// How many rows there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there is no row.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Whether nothing was changed between the two; a quick look, without a comparison. `false` says nothing.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.rows.ptr_eq(&other.rows)
    }

    /// The table's indexes.
    #[must_use]
    pub fn indexes(&self) -> &R::Indexes {
        &self.indexes
    }

    /// The rows with this key in an index, as in `table.find(|by| &by.name, "web")`.
    pub fn find<'a, K: Ord + Clone + 'a>(
        &'a self,
        index: impl FnOnce(&'a R::Indexes) -> &'a Index<K>,
        key: impl Into<K>,
    ) -> impl Iterator<Item = (Uuid, &'a Arc<R>)> {
        index(&self.indexes).get(key).filter_map(|uuid| self.rows.get(&uuid).map(|row| (uuid, row)))
    }

    pub(crate) fn put(&mut self, uuid: Uuid, row: R) {
        let row = Arc::new(row);
        let before = self.rows.insert(uuid, Arc::clone(&row));
        self.indexes.update(uuid, before.as_deref(), Some(&row));
    }

    pub(crate) fn remove(&mut self, uuid: Uuid) {
        if let Some(before) = self.rows.remove(&uuid) {
            self.indexes.update(uuid, Some(&before), None);
        }
    }
}

impl<R: Row + fmt::Debug> fmt::Debug for Table<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}
