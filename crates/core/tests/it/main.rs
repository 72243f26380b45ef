//! The Service controller on a real kube-apiserver, over a cloud in memory.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test's helpers are tests too")]

mod drift;
mod guarded;
mod harness;
mod hung;
mod leadership;
mod serving;
mod trouble;
