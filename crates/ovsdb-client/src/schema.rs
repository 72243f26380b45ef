//! What a server says about a database's tables, and whether it is what the caller declared.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{self, Deserializer};

/// A database schema, as far as a client needs it.
#[derive(Debug, Clone, Deserialize)]
pub struct Schema {
    /// The database's name.
    pub name: String,
    /// The schema's version.
    #[serde(default)]
    pub version: String,
    /// The tables by name.
    pub tables: BTreeMap<String, TableSchema>,
}

/// A table of a [`Schema`].
#[derive(Debug, Clone, Deserialize)]
pub struct TableSchema {
    /// The columns by name.
    pub columns: BTreeMap<String, ColumnSchema>,
}

/// A column of a [`Schema`].
#[derive(Debug, Clone, Deserialize)]
pub struct ColumnSchema {
    /// What it holds.
    pub r#type: ColumnType,
}

/// The type of a scalar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "the names say it")]
pub enum AtomKind {
    Integer,
    Real,
    Boolean,
    String,
    Uuid,
}

/// The type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ColumnType {
    /// The elements, or the keys of a map.
    pub key: AtomKind,
    /// The values of a map.
    pub value: Option<AtomKind>,
    /// Zero for an optional column.
    pub min: u64,
    /// More than one for a set or map. Only those are sent as differences.
    pub max: u64,
}

impl ColumnType {
    /// Whether the server sends changes of such a column as differences.
    #[must_use]
    pub fn is_composite(&self) -> bool {
        self.max > 1
    }
}

impl fmt::Display for ColumnType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |kind: AtomKind| format!("{kind:?}").to_lowercase();
        match (self.value, self.max, self.min) {
            (Some(value), ..) => write!(f, "map of {} to {}", name(self.key), name(value)),
            (None, 1, 1) => f.write_str(&name(self.key)),
            (None, 1, _) => write!(f, "optional {}", name(self.key)),
            _ => write!(f, "set of {}", name(self.key)),
        }
    }
}

impl<'de> Deserialize<'de> for ColumnType {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Base {
            Short(AtomKind),
            Long { r#type: AtomKind },
        }
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Max {
            Count(u64),
            Word(String),
        }
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Wire {
            Short(AtomKind),
            Long { key: Base, value: Option<Base>, min: Option<u64>, max: Option<Max> },
        }
        let kind = |base: Base| match base {
            Base::Short(kind) | Base::Long { r#type: kind } => kind,
        };
        Ok(match Wire::deserialize(deserializer)? {
            Wire::Short(key) => Self { key, value: None, min: 1, max: 1 },
            Wire::Long { key, value, min, max } => Self {
                key: kind(key),
                value: value.map(kind),
                min: min.unwrap_or(1),
                max: match max {
                    None => 1,
                    Some(Max::Count(n)) => n,
                    Some(Max::Word(word)) if word == "unlimited" => u64::MAX,
                    Some(Max::Word(word)) => return Err(de::Error::custom(format!("unknown max {word:?}"))),
                },
            },
        })
    }
}

/// A table that the caller wants replicated.
#[derive(Debug, Clone)]
pub struct TableSpec {
    /// The table's name.
    pub name: &'static str,
    /// Whether a server without it is fine; the table is then empty.
    pub optional: bool,
    /// The columns to replicate.
    pub columns: &'static [ColumnSpec],
}

/// A column that the caller wants replicated.
#[derive(Debug, Clone)]
pub struct ColumnSpec {
    /// The column's name.
    pub name: &'static str,
    /// Whether a server without it is fine; the column then has its default value.
    pub optional: bool,
    /// Whether the field's Rust type can hold such a column.
    pub fits: fn(&ColumnType) -> bool,
    /// The field's Rust type, for messages.
    pub rust_type: &'static str,
}

/// A schema that is not what the caller declared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// The server is too old, or the name is wrong.
    #[error(
        "database {database} (schema {version}) has no table {table}; declare it optional if an older server is fine"
    )]
    NoTable {
        /// The database.
        database: String,
        /// The schema's version.
        version: String,
        /// The missing table.
        table: String,
    },
    /// The server is too old, or the name is wrong.
    #[error(
        "table {table} of {database} (schema {version}) has no column {column}; declare it optional if an older server is fine"
    )]
    NoColumn {
        /// The database.
        database: String,
        /// The schema's version.
        version: String,
        /// The table.
        table: String,
        /// The missing column.
        column: String,
    },
    /// The column holds something else than the field.
    #[error("column {column} of table {table} is {actual}, which a field of type {declared} cannot hold")]
    WrongType {
        /// The table.
        table: String,
        /// The column.
        column: String,
        /// The schema's type.
        actual: String,
        /// The field's type.
        declared: &'static str,
    },
}

/// Which columns of which tables to ask a server for.
pub type Wanted = BTreeMap<String, Vec<String>>;

/// Compares what was declared with what the server has. Optional things that are missing are left out.
pub fn check(schema: &Schema, tables: &[TableSpec]) -> Result<Wanted, SchemaError> {
    let mut wanted = Wanted::new();
    for spec in tables {
        let Some(table) = schema.tables.get(spec.name) else {
            if spec.optional {
                continue;
            }
            return Err(SchemaError::NoTable {
                database: schema.name.clone(),
                version: schema.version.clone(),
                table: spec.name.into(),
            });
        };
        let mut columns = Vec::new();
        for column in spec.columns {
            match table.columns.get(column.name) {
                Some(actual) if (column.fits)(&actual.r#type) => columns.push(column.name.to_owned()),
                Some(actual) => {
                    return Err(SchemaError::WrongType {
                        table: spec.name.into(),
                        column: column.name.into(),
                        actual: actual.r#type.to_string(),
                        declared: column.rust_type,
                    });
                }
                None if column.optional => {}
                None => {
                    return Err(SchemaError::NoColumn {
                        database: schema.name.clone(),
                        version: schema.version.clone(),
                        table: spec.name.into(),
                        column: column.name.into(),
                    });
                }
            }
        }
        wanted.insert(spec.name.into(), columns);
    }
    Ok(wanted)
}
