//! How to reach a database and how patient to be.

use std::time::Duration;

use uuid::Uuid;

use crate::endpoint::Endpoint;
use crate::tls::Tls;

/// How to reach a database. Every value but the endpoints has a default that suits a cluster.
#[derive(Debug, Clone)]
pub struct Config {
    pub(crate) endpoints: Vec<Endpoint>,
    pub(crate) leader_only: bool,
    pub(crate) cluster: Option<Uuid>,
    pub(crate) tls: Option<Tls>,
    pub(crate) max_message: usize,
    pub(crate) probe: Duration,
    pub(crate) dead_after: Duration,
    pub(crate) handshake: Duration,
    pub(crate) sync: Duration,
    pub(crate) max_backoff: Duration,
    pub(crate) restored_after: Duration,
}

impl Config {
    /// The members of one cluster, or the one standalone server. With none at all, a session ends up
    /// [disconnected](crate::State::Disconnected) for [`Cause::NoEndpoints`](crate::Cause::NoEndpoints) at once.
    #[must_use]
    pub fn new(endpoints: impl IntoIterator<Item = Endpoint>) -> Self {
        Self {
            endpoints: endpoints.into_iter().collect(),
            leader_only: true,
            cluster: None,
            tls: None,
            max_message: 128 * 1024 * 1024,
            probe: Duration::from_millis(500),
            dead_after: Duration::from_secs(10),
            handshake: Duration::from_secs(5),
            sync: Duration::from_mins(1),
            max_backoff: Duration::from_secs(5),
            restored_after: Duration::from_mins(1),
        }
    }

    /// Talks to any member that is connected to its cluster, not only to the leader. Followers lag a little.
    #[must_use]
    pub fn any_member(mut self) -> Self {
        self.leader_only = false;
        self
    }

    /// Refuses servers of another cluster. A cluster that was built anew has another id.
    #[must_use]
    pub fn cluster(mut self, cid: Uuid) -> Self {
        self.cluster = Some(cid);
        self
    }

    /// Certificates for `ssl:` endpoints.
    #[must_use]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// The largest message to accept, 128 MiB unless told; a snapshot is one message. At most 4 GiB.
    #[must_use]
    pub fn max_message(mut self, bytes: u32) -> Self {
        self.max_message = bytes as usize;
        self
    }

    /// How long a server may be silent before it is probed, 0.5 s unless told. When the probe too stays unanswered for as long,
    /// the other members are asked whether one of them leads by now.
    #[must_use]
    pub fn probe(mut self, silence: Duration) -> Self {
        self.probe = silence;
        self
    }

    /// How long a server may be silent before it is given up even without a better one, 10 s unless told. Must be longer
    /// than the server's slowest commit: a busy server does not answer.
    #[must_use]
    pub fn dead_after(mut self, silence: Duration) -> Self {
        self.dead_after = silence;
        self
    }

    /// How long connecting, TLS and the first exchange with a server may take together, 5 s unless told.
    #[must_use]
    pub fn handshake_timeout(mut self, timeout: Duration) -> Self {
        self.handshake = timeout;
        self
    }

    /// How long a server may take to deliver its snapshot, 60 s unless told.
    #[must_use]
    pub fn sync_timeout(mut self, timeout: Duration) -> Self {
        self.sync = timeout;
        self
    }

    /// How long a leader may be behind what was seen before it is believed all the same, one minute unless told. A new one
    /// catches up within the time of an election; one that does not was put back from an older copy of its file.
    #[must_use]
    pub fn restored_after(mut self, behind: Duration) -> Self {
        self.restored_after = behind;
        self
    }

    /// The longest pause between two attempts at one endpoint, 5 s unless told.
    #[must_use]
    pub fn max_backoff(mut self, pause: Duration) -> Self {
        self.max_backoff = pause;
        self
    }
}
