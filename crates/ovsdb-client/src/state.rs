//! What can be observed about a session from outside.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::endpoint::Endpoint;
use crate::error::ConnectError;

/// How a session stands with its servers.
#[derive(Debug, Clone)]
pub enum State {
    /// Just started; nothing has been tried to its end.
    Connecting,
    /// No server can be used. The last attempt says why; there will be others.
    Disconnected {
        /// What happened last, at which endpoint.
        error: Arc<ConnectError>,
    },
    /// Connected; the replica is being brought up to date.
    Syncing {
        /// The server.
        endpoint: Endpoint,
    },
    /// Connected, and the replica follows.
    InSync {
        /// The server.
        endpoint: Endpoint,
    },
}

/// For a person who waits for it.
impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connecting => f.write_str("connecting"),
            Self::Disconnected { error } => error.fmt(f),
            Self::Syncing { endpoint } => write!(f, "reading it from {endpoint}"),
            Self::InSync { endpoint } => write!(f, "in sync with {endpoint}"),
        }
    }
}

/// Why a replica was read anew instead of resumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResyncReason {
    /// There was nothing to resume from.
    First,
    /// The server does not have the history since our last transaction, as no standalone server ever has.
    NoHistory,
    /// The schema has other columns than before.
    SchemaChanged,
    /// The server belongs to another cluster than the last one: the database was rebuilt.
    ClusterChanged,
    /// What the server sent did not fit to what we had.
    Inconsistent,
}

/// Numbers for metrics; each only grows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Connections that were good enough to be used.
    pub connects: u64,
    /// Used connections that were lost or left for a better one.
    pub disconnects: u64,
    /// Attempts that failed.
    pub failed_attempts: u64,
    /// Syncs that fetched only what was missed.
    pub resumes: u64,
    /// First syncs.
    pub resyncs_first: u64,
    /// Syncs in full because the server lacked the history.
    pub resyncs_no_history: u64,
    /// Syncs in full because of another schema.
    pub resyncs_schema_changed: u64,
    /// Syncs in full because of another cluster.
    pub resyncs_cluster_changed: u64,
    /// Syncs in full because an update did not fit.
    pub resyncs_inconsistent: u64,
    /// Updates applied.
    pub updates: u64,
}

#[derive(Debug, Default)]
pub(crate) struct LiveCounters {
    pub(crate) connects: AtomicU64,
    pub(crate) disconnects: AtomicU64,
    pub(crate) failed_attempts: AtomicU64,
    pub(crate) resumes: AtomicU64,
    pub(crate) updates: AtomicU64,
    resyncs: [AtomicU64; 5],
}

impl LiveCounters {
    pub(crate) fn count(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn resync(&self, reason: ResyncReason) {
        Self::count(&self.resyncs[reason as usize]);
    }

    pub(crate) fn read(&self) -> Counters {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let resyncs = |reason: ResyncReason| get(&self.resyncs[reason as usize]);
        Counters {
            connects: get(&self.connects),
            disconnects: get(&self.disconnects),
            failed_attempts: get(&self.failed_attempts),
            resumes: get(&self.resumes),
            resyncs_first: resyncs(ResyncReason::First),
            resyncs_no_history: resyncs(ResyncReason::NoHistory),
            resyncs_schema_changed: resyncs(ResyncReason::SchemaChanged),
            resyncs_cluster_changed: resyncs(ResyncReason::ClusterChanged),
            resyncs_inconsistent: resyncs(ResyncReason::Inconsistent),
            updates: get(&self.updates),
        }
    }
}
