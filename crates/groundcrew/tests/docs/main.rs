//! What the documents say is so: the reference is what the code has, alerts and dashboards ask for metrics that exist,
//! every alert has its runbook, and no link leads nowhere.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test's helpers are tests too")]
mod alerts;
mod dashboards;
mod guide;
mod lines;
mod links;
mod metrics;
mod names;
mod queries;
mod readme;
mod reference;
mod resources;
mod words;

use std::path::PathBuf;

/// A path within the repository.
fn repository(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}
