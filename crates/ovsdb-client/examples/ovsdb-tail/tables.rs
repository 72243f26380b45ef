//! All tables of whatever database the server has: a [`Database`] whose columns are known at run time only.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use imbl::OrdMap;
use ovsdb_client::schema::{Schema, SchemaError, Wanted};
use ovsdb_client::{Atom, Database, Touched, Uuid, Value};
use serde::Deserialize;
use serde::de::MapAccess;

/// A row of some table.
#[derive(Debug, Clone, PartialEq)]
pub struct AnyRow {
    pub table: Arc<str>,
    pub columns: BTreeMap<String, Value>,
}

#[derive(Debug, Clone)]
pub struct AnyTables {
    database: Arc<str>,
    /// None means all.
    tables: Arc<BTreeSet<String>>,
    /// The columns that are sent as differences.
    composite: Arc<BTreeSet<(String, String)>>,
    pub rows: OrdMap<Uuid, Arc<AnyRow>>,
}

impl AnyTables {
    pub fn new(database: &str, tables: impl IntoIterator<Item = String>) -> Self {
        let tables = Arc::new(tables.into_iter().collect());
        Self { database: database.into(), tables, composite: Arc::default(), rows: OrdMap::new() }
    }

    fn is_composite(&self, table: &str, column: &str) -> bool {
        self.composite.contains(&(table.to_owned(), column.to_owned()))
    }
}

#[derive(Deserialize)]
struct Change {
    #[serde(alias = "insert", alias = "new")]
    initial: Option<BTreeMap<String, Value>>,
    modify: Option<BTreeMap<String, Value>>,
}

impl Database for AnyTables {
    fn name(&self) -> &str {
        &self.database
    }

    fn empty(&self, schema: &Schema) -> Result<(Self, Wanted), SchemaError> {
        if let Some(table) = self.tables.iter().find(|table| !schema.tables.contains_key(*table)) {
            return Err(SchemaError::NoTable {
                database: schema.name.clone(),
                version: schema.version.clone(),
                table: table.clone(),
            });
        }
        let mut wanted = Wanted::new();
        let mut composite = BTreeSet::new();
        for (name, table) in &schema.tables {
            if self.tables.is_empty() || self.tables.contains(name) {
                wanted.insert(name.clone(), table.columns.keys().cloned().collect());
                let sets_and_maps = table.columns.iter().filter(|(_, column)| column.r#type.is_composite());
                composite.extend(sets_and_maps.map(|(column, _)| (name.clone(), column.clone())));
            }
        }
        Ok((Self { composite: Arc::new(composite), rows: OrdMap::new(), ..self.clone() }, wanted))
    }

    fn apply<'de, A: MapAccess<'de>>(
        &mut self,
        table: &str,
        updates: &mut A,
        touched: &mut Touched,
    ) -> Result<(), A::Error> {
        let name: Arc<str> = table.into();
        for (uuid, change) in updates.next_value::<BTreeMap<Uuid, Change>>()? {
            touched.row(uuid);
            match (change.initial, change.modify) {
                (Some(columns), _) => {
                    let columns = columns.into_iter().map(|(column, value)| {
                        let value = if self.is_composite(table, &column) { as_set(value) } else { value };
                        (column, value)
                    });
                    let columns = columns.collect();
                    self.rows.insert(uuid, Arc::new(AnyRow { table: Arc::clone(&name), columns }));
                }
                (None, Some(columns)) => {
                    let row = self.rows.get(&uuid).ok_or_else(|| serde::de::Error::custom("a change of no row"))?;
                    let mut row = AnyRow::clone(row);
                    for (column, value) in columns {
                        let value = match row.columns.remove(&column) {
                            _ if !self.is_composite(table, &column) => value,
                            Some(old) => toggle(old, value),
                            None => as_set(value),
                        };
                        row.columns.insert(column, value);
                    }
                    self.rows.insert(uuid, Arc::new(row));
                }
                (None, None) => {
                    self.rows.remove(&uuid);
                }
            }
        }
        Ok(())
    }
}

fn toggle(old: Value, difference: Value) -> Value {
    match (old, difference) {
        (Value::Map(mut pairs), Value::Map(difference)) => {
            for (key, value) in difference {
                match pairs.iter().position(|(own, _)| *own == key) {
                    Some(at) if pairs[at].1 == value => {
                        pairs.remove(at);
                    }
                    Some(at) => pairs[at].1 = value,
                    None => pairs.push((key, value)),
                }
            }
            Value::Map(pairs)
        }
        (old, difference) => {
            let mut atoms = elements(old);
            for atom in elements(difference) {
                match atoms.iter().position(|own| *own == atom) {
                    Some(at) => {
                        atoms.remove(at);
                    }
                    None => atoms.push(atom),
                }
            }
            Value::Set(atoms)
        }
    }
}

fn as_set(value: Value) -> Value {
    if let Value::Map(_) = value { value } else { Value::Set(elements(value)) }
}

/// A set of one is written as its element.
pub fn elements(value: Value) -> Vec<Atom> {
    match value {
        Value::Atom(atom) => vec![atom],
        Value::Set(atoms) => atoms,
        Value::Map(pairs) => pairs.into_iter().map(|(key, _)| key).collect(),
        Value::StrMap(map) => map.iter().map(|(key, _)| key.into()).collect(),
    }
}
