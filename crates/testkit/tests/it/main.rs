//! The fixtures themselves, against the real programs.
#![allow(clippy::unwrap_used, reason = "in a test, also in its helpers, a panic is the report")]

mod northbound;
mod process;
mod proxy;
