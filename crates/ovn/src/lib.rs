//! What the controllers on OVN share: how to reach it, how the connection stands, and how a project's parts are named.
#![warn(missing_docs)]

pub mod collection;
mod connection;
pub mod mark;
mod state;
mod template;

pub use connection::{Connection, TlsFlags};
pub use state::{OVN, follow, shown};
pub use template::Template;
