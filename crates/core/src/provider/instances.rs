//! A cloud whose servers are Nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use jiff::Timestamp;

use super::{Listing, ProviderError};
use crate::leader::Term;

/// What a server does, as far as a repair cares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum InstanceState {
    /// It is being made.
    Building,
    /// It runs.
    Running,
    /// It is off, paused or asleep: somebody may want that.
    Stopped,
    /// The cloud could not do what it was told.
    Failed,
    /// It is being deleted, or was and can still be restored.
    Deleting,
    /// The cloud does not know now.
    Unknown,
    /// Something else, as a move to another host.
    Other,
}

/// A server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance {
    /// Its id.
    pub id: String,
    /// Its name, not unique.
    pub name: String,
    /// What it does.
    pub state: InstanceState,
    /// What is being done to it, in the cloud's word, as `rebooting`.
    pub task: Option<String>,
    /// Since when it has been there, where the cloud says so.
    pub created: Option<Timestamp>,
    /// All its addresses, of all networks, those reachable from outside too.
    pub addresses: Vec<IpAddr>,
    /// Whether we may not touch it, because somebody locked it.
    pub locked: bool,
    /// What went wrong, of one that [failed](InstanceState::Failed).
    pub fault: Option<String>,
    /// Its tags.
    pub tags: BTreeSet<String>,
    /// What its makers noted on it.
    pub metadata: BTreeMap<String, String>,
}

/// Servers that belong together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceGroup {
    /// Its id.
    pub id: String,
    /// Its name, not unique.
    pub name: String,
    /// The ids of its servers.
    pub members: BTreeSet<String>,
}

/// How to reboot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reboot {
    /// Ask its system to. Only of one that [runs](InstanceState::Running).
    Soft,
    /// Turn it off and on.
    Hard,
}

/// The verbs of a cloud that has servers.
///
/// Orders are taken, not done: what became of them shows the next listing. One that failed may have been taken
/// ([`ProviderError::maybe_applied`]). A state or a lock that forbids one is a conflict.
pub trait Instances: Send + Sync + 'static {
    /// All servers of our project. A part of the cloud that is down makes the listing incomplete.
    fn instances(&self) -> impl Future<Output = Result<Listing<Instance>, ProviderError>> + Send;

    /// One server. [`ErrorKind::NotFound`](super::ErrorKind) means gone.
    fn instance(&self, id: &str) -> impl Future<Output = Result<Instance, ProviderError>> + Send;

    /// The groups of servers of our project.
    fn instance_groups(&self) -> impl Future<Output = Result<Listing<InstanceGroup>, ProviderError>> + Send;

    /// Orders a reboot.
    fn reboot(&self, id: &str, how: Reboot, term: &Term) -> impl Future<Output = Result<(), ProviderError>> + Send;

    /// Orders its end, with all that is on it. Gone already is fine.
    fn delete_instance(&self, id: &str, term: &Term) -> impl Future<Output = Result<(), ProviderError>> + Send;

    /// Adds tags and sets keys of its metadata; the others stay. There already is fine. Each tag is a write of its own, so
    /// that some may be done when one fails.
    fn mark_instance(
        &self,
        id: &str,
        tags: &BTreeSet<String>,
        metadata: &BTreeMap<String, String>,
        term: &Term,
    ) -> impl Future<Output = Result<(), ProviderError>> + Send;
}
