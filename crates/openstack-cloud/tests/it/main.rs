//! The provider on a model of OpenStack. `e2e` runs the same bodies on the services themselves, so that the model cannot
//! lie.
#![allow(clippy::unwrap_used, clippy::panic, reason = "these are tests, their helpers too")]

mod bodies;
mod model;
