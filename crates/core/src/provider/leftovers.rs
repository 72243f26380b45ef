//! What a cluster leaves outside when it goes, and how to prove that it left nothing.

use std::fmt;

use jiff::Timestamp;

use super::{Listing, ProviderError};
use crate::key::ServiceKey;
use crate::leader::Term;

/// What a thing outside is to the people who pay for it. They say for each of these what is to become of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LeftoverClass {
    /// Answers for a Service or an Ingress.
    LoadBalancer,
    /// An address that the world knows.
    FloatingIp,
    /// What a load balancer may be reached by.
    SecurityGroup,
    /// A picture of a volume. Its volume cannot go before it.
    Snapshot,
    /// A copy of a volume that outlives it.
    Backup,
    /// Somebody's data.
    Volume,
    /// The way to the pods of a Node.
    Route,
}

impl LeftoverClass {
    /// A word for people and metric labels.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::LoadBalancer => "load balancer",
            Self::FloatingIp => "floating IP",
            Self::SecurityGroup => "security group",
            Self::Snapshot => "snapshot",
            Self::Backup => "backup",
            Self::Volume => "volume",
            Self::Route => "route",
        }
    }
}

/// A kind of things that a provider knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeftoverKind {
    /// The provider's own name for it, as `octavia-load-balancer`.
    pub name: &'static str,
    /// What it is to people.
    pub class: LeftoverClass,
}

/// An object in the cluster that something outside was made for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum User {
    /// A Service.
    Service(ServiceKey),
    /// An Ingress, by its namespace and name.
    Ingress(ServiceKey),
    /// A claim, by its namespace and name.
    Claim(ServiceKey),
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Service(key) => write!(f, "Service {key}"),
            Self::Ingress(key) => write!(f, "Ingress {key}"),
            Self::Claim(key) => write!(f, "claim {key}"),
        }
    }
}

/// Something outside that carries a cluster's mark.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Leftover {
    /// One of [`Leftovers::kinds`].
    pub kind: LeftoverKind,
    /// What the provider finds it by.
    pub id: String,
    /// What a person knows it by.
    pub name: String,
    /// For whom it was made, as its mark says, and what is odd about it.
    pub about: String,
    /// How large it is, where that is worth money.
    pub gib: Option<u64>,
    /// All that it was made for or is lent to, as its marks say. While one of them lives, it is in use.
    pub users: Vec<User>,
    /// Since when it has been there, of a [volume](LeftoverClass::Volume): a new one may be on its way to its user.
    pub created: Option<Timestamp>,
    /// Why it must not be removed although it carries the mark: others use it, or the mark is one that any cluster may
    /// have.
    pub doubt: Option<String>,
    /// Whether its owner asked on the thing itself that it stays.
    pub kept: bool,
    /// What a person would type to remove it.
    pub command: String,
}

/// Something outside that an object in the cluster names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Named {
    /// The volume of a `PersistentVolume`.
    Volume {
        /// The driver.
        driver: String,
        /// The driver's name for it.
        handle: String,
    },
    /// The snapshot of a `VolumeSnapshotContent`.
    Snapshot {
        /// The driver.
        driver: String,
        /// The driver's name for it.
        handle: String,
    },
    /// The load balancer of a Service, and all that belongs to it.
    LoadBalancer {
        /// The class of the controller that serves it; none for a cloud's own.
        class: Option<String>,
        /// The Service.
        service: ServiceKey,
        /// The id that the Service remembers.
        id: Option<String>,
    },
}

/// Whether something that is [named](Named) is still there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// The cloud itself says that there is no such thing.
    Gone,
    /// It is there.
    There,
    /// It is none of this provider's things, or there is no way to tell.
    Unknown,
}

/// The verbs of a cloud that can show what is left of a cluster, and remove it.
///
/// They are for the end of a cluster, when the controllers that would clean up may be dead. So nothing is believed: what
/// is removed must still carry the mark at that moment, and must have no living user.
pub trait Leftovers: Send + Sync + 'static {
    /// The kinds of things that it knows, in the order in which they must be removed: what answers before what is
    /// answered on.
    fn kinds(&self) -> &'static [LeftoverKind];

    /// The names of the volume drivers whose claims become its volumes.
    fn drivers(&self) -> &'static [&'static str] {
        &[]
    }

    /// The load balancer classes of the Services that it serves. Those without a class are always somebody's.
    fn classes(&self) -> &'static [&'static str] {
        &[]
    }

    /// Told before every [find](Self::find): the ids that it found since a run began, or `None` before the first. What is
    /// this cluster's only by objects in it, as a route by its Node, stays so when those are gone.
    fn recall(&self, _found: Option<&[String]>) {}

    /// Everything outside that carries this cluster's mark, in no order.
    fn find(&self) -> impl Future<Output = Result<Listing<Leftover>, ProviderError>> + Send;

    /// Whether a thing that an object in the cluster names is still there, carrying a mark or not. A finalizer is taken
    /// off only if it is [gone](Presence::Gone).
    fn presence(&self, _named: &Named) -> impl Future<Output = Result<Presence, ProviderError>> + Send {
        async { Ok(Presence::Unknown) }
    }

    /// Removes one of them, or orders its end. Gone already is fine; one that is in use, or not this cluster's any more,
    /// is refused.
    fn remove(&self, leftover: &Leftover, term: &Term) -> impl Future<Output = Result<(), ProviderError>> + Send;
}
