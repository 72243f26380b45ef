//! An OVSDB (RFC 7047) client that one can trust.
//!
//! - [`Client`] sends transactions. Each has a deadline and one of four ends: committed, rejected, certainly not sent, or
//!   [unknown](TransactError::Unknown). Nothing is ever sent twice.
//! - [`Replica`] holds a typed copy of some tables and follows the server. Consumers take [`Snapshot`]s, which cost a
//!   pointer copy, and wait on [`Changes`]. Over reconnects they see the last complete state, never an empty or a half one.
//! - [`table!`] and [`database!`] declare what to replicate.
//!
//! One task per session finds the leader among the endpoints, resumes where the last connection ended if the server
//! still knows, and reads everything anew if not.
#![doc = include_str!("../README.md")]
#![warn(missing_docs)]

mod client;
pub mod codec;
pub mod column;
mod config;
mod endpoint;
mod error;
mod link;
mod lock;
mod macros;
mod message;
pub mod ops;
mod replica;
pub mod schema;
mod session;
mod state;
mod stream;
mod table;
mod tls;
mod transact;
mod update;
mod value;

pub use client::{Client, Prepared};
pub use column::{BlockSet, Map, Real, Set, StrMap};
pub use config::Config;
pub use endpoint::{Endpoint, EndpointError, parse_list};
pub use error::{Cause, ConnectError, TransactError};
pub use lock::Lock;
pub use ops::{Condition, Op};
pub use replica::{Changed, Changes, Replica, Rows, Snapshot};
pub use state::{Counters, ResyncReason, State};
pub use table::{Index, Row, RowIndexes, Table};
pub use tls::Tls;
pub use transact::OpResult;
pub use update::{Database, RowId, Touched, apply};
pub use uuid::Uuid;
pub use value::{Atom, Value};

/// What the macros expand to. Not for direct use.
#[doc(hidden)]
pub mod __private {
    pub use serde::de::{IgnoredAny, MapAccess};

    pub use crate::column::Column;
    pub use crate::schema::ColumnSpec;
    pub use crate::update::{ColumnSeed, Key};

    /// The indexes of a table without any.
    #[derive(Debug, Clone, Default)]
    pub struct NoIndexes;

    impl<R> crate::RowIndexes<R> for NoIndexes {
        fn update(&mut self, _: uuid::Uuid, _: Option<&R>, _: Option<&R>) {}
    }

    /// A field's column: `r#type` is the column `type`.
    #[must_use]
    pub const fn column_name(field: &'static str) -> &'static str {
        match field.as_bytes() {
            [b'r', b'#', ..] => field.split_at(2).1,
            _ => field,
        }
    }
}
