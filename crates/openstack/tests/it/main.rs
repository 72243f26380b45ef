//! The client against the real services, and against a cloud that misbehaves on request.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "these are tests, their helpers too")]

mod auth;
mod calls;
mod fake;
mod listing;
mod real;
mod tls;
mod transport;
