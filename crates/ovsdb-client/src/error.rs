//! Why a server cannot be used, and how a transaction ended if not well.

use std::io;
use std::time::Duration;

use uuid::Uuid;

use crate::codec::FrameError;
use crate::endpoint::Endpoint;
use crate::schema::SchemaError;

/// Why one endpoint cannot be used, now or any more. It is tried again.
#[derive(Debug, thiserror::Error)]
#[error("{}{cause}", .endpoint.as_ref().map(|endpoint| format!("{endpoint}: ")).unwrap_or_default())]
pub struct ConnectError {
    /// Which endpoint; there is none for [`Cause::NoEndpoints`].
    pub endpoint: Option<Endpoint>,
    /// What is wrong with it.
    pub cause: Cause,
}

/// What is wrong with an endpoint.
#[derive(Debug, thiserror::Error)]
pub enum Cause {
    /// The configuration has no endpoint at all.
    #[error("no endpoint is configured")]
    NoEndpoints,
    /// The host name means nothing to the resolver.
    #[error("host name does not resolve: {0}")]
    Resolve(io::Error),
    /// Nobody listens there.
    #[error("connection refused")]
    Refused,
    /// The transport failed before there was a connection.
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    /// The endpoint is `ssl:` and there is nothing to verify it with.
    #[error("an ssl: endpoint needs certificates; give the client a TLS configuration")]
    NoTls,
    /// A certificate or key file of ours cannot be used.
    #[error("{file}: {reason}")]
    OwnCertificate {
        /// The file.
        file: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The server's certificate comes from a CA that we do not trust, or is expired or broken.
    #[error("the server's certificate is not trusted: {0}")]
    Untrusted(String),
    /// The server's certificate is for another name.
    #[error("the server's certificate is for another name; `ovs-pki` certificates need `Tls::any_name`: {0}")]
    WrongName(String),
    /// The TLS handshake failed for another reason, for example a server that does not accept our certificate.
    #[error("tls: {0}")]
    Tls(String),
    /// The server did not answer while the connection was being made.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    /// The server does not serve the database.
    #[error("the server has no database {database}; it has {known}")]
    NoDatabase {
        /// What was asked for.
        database: String,
        /// What there is.
        known: String,
    },
    /// The member does not lead its cluster.
    #[error("the server does not lead its cluster")]
    NotLeader,
    /// The member has lost its cluster.
    #[error("the server has lost its cluster, or the server that it relays")]
    NotConnected,
    /// The member belongs to a cluster other than the configured one.
    #[error("the server belongs to cluster {found:?} instead of {wanted}")]
    OtherCluster {
        /// The configured id.
        wanted: Uuid,
        /// The server's.
        found: Option<Uuid>,
    },
    /// The member is behind what has been read already.
    #[error("the server is at index {index}, and {seen} was seen already")]
    Stale {
        /// Where the member is.
        index: i64,
        /// How far we were.
        seen: i64,
    },
    /// The schema is not what was declared.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// The byte stream ended or is no OVSDB.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// A message that OVSDB does not have, or that contradicts what was sent before.
    #[error("the server sent something that cannot be understood: {0}")]
    Protocol(String),
    /// The server answered one of our own requests with an error.
    #[error("the server refused {method}: {error}")]
    Refusal {
        /// The request.
        method: &'static str,
        /// The server's words.
        error: String,
    },
    /// Not even a probe was answered.
    #[error("silent for {0:?}")]
    Silent(Duration),
    /// The server does not read what it is sent.
    #[error("the server has stopped reading")]
    NotReading,
    /// Writing failed.
    #[error("cannot send: {0}")]
    Send(io::Error),
}

/// How a transaction ended if it did not commit, or not to our knowledge.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TransactError {
    /// The server looked at it and changed nothing.
    #[error("transaction rejected{}: {error}{}", at(*.op), details_of(.details))]
    Rejected {
        /// The operation that failed; `None` when the commit did, as for a constraint that is checked at the end.
        op: Option<usize>,
        /// The server's word for it: `timed out` for a failed `wait`, `duplicate uuid`, `not allowed`, `constraint violation`, ...
        error: String,
        /// The server's explanation, often empty.
        details: String,
    },
    /// No byte of it left: certainly not applied.
    #[error("transaction not sent: {reason}")]
    NotSent {
        /// Why not.
        reason: String,
    },
    /// It was sent and nothing came back: it may have been applied, or may be applied later. Look before doing it again.
    #[error("transaction sent to {endpoint} but not answered: {reason}; it may or may not be applied")]
    Unknown {
        /// Where it went.
        endpoint: Endpoint,
        /// Why there is no answer.
        reason: String,
    },
}

impl TransactError {
    /// Whether a guard ([`Op::wait`](crate::Op::wait)) found something else than expected: look again and plan anew.
    #[must_use]
    pub fn is_guard(&self) -> bool {
        matches!(self, Self::Rejected { error, .. } if error == "timed out")
    }
}

fn at(op: Option<usize>) -> String {
    op.map_or_else(|| " at commit".into(), |op| format!(" at operation {op}"))
}

fn details_of(details: &str) -> String {
    if details.is_empty() { String::new() } else { format!(" ({details})") }
}
