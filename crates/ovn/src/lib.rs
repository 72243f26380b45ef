//! What the controllers on OVN share: how to reach it, how the connection stands, and how a project's parts are named.
#![warn(missing_docs)]

mod connection;
mod state;
mod template;

pub use connection::Connection;
pub use state::{OVN, follow};
pub use template::Template;
