//! The watcher on a real kube-apiserver and a real OVN, beside a stand-in for kube-dc's manager.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test's helpers are tests too")]

mod caution;
mod collection;
mod drift;
mod faults;
mod harness;
mod manager;
mod rights;
