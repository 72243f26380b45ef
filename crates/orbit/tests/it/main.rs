//! The collector against clouds: a model with faults, and real services.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "these are tests, their helpers too")]

mod bad_input;
mod cluster;
mod model;
mod race;
mod real;
mod routes;
mod world;
