//! The controller and its client against a simulated cloud and a real API server.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "these are tests, their helpers too")]

mod client;
mod crash;
mod failover;
mod lab;
mod nodes;
mod serving;
mod trouble;
