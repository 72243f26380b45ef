//! The client against real servers, and against peers that no real server would be.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    unreachable_pub,
    reason = "these are tests, their helpers too"
)]

mod cluster;
mod nb;
mod peer;
mod server;
mod standalone;
mod tail;
mod tls;
