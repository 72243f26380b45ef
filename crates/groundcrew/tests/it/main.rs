//! The binary as its users run it: as processes, against a real kube-apiserver and a real OVN northbound database.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test's helpers are tests too")]

mod drift;
mod fencing;
mod lab;
mod line;
