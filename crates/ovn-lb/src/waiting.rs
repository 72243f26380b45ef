//! Services that cannot be served until something in OVN changes, by what they wait for.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use groundcrew_core::key::ServiceKey;

use crate::northbound::Kind;
use crate::plan::Held;

/// What stands in the way. Its row in OVN names no Service, so nothing else would wake those who wait for it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Obstacle {
    /// A router, switch or group of this name that is missing, there twice, or not where it should be.
    Place(Kind, String),
    /// Somebody else's load balancer of this name.
    Row(String),
    /// The ports of a router that cannot be guarded.
    Ports(String),
    /// Routes and policies of routers, by which replies do not leave as they should.
    Ways,
    /// The switch port that has this address.
    Port(IpAddr),
    /// Somebody else's load balancers with this virtual address.
    Vip(String),
}

impl From<&Held> for Obstacle {
    fn from(held: &Held) -> Self {
        match held.clone() {
            Held::Missing { kind, name } | Held::Ambiguous { kind, name } => Self::Place(kind, name),
            Held::GroupDetached { group, .. } | Held::GroupShared { group, .. } => Self::Place(Kind::Group, group),
            Held::Unclear { name, .. } | Held::Marked { name, .. } => Self::Row(name),
            Held::Unguarded { router, .. } => Self::Ports(router),
        }
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Waiting(Arc<Mutex<BTreeMap<Obstacle, BTreeSet<ServiceKey>>>>);

impl Waiting {
    pub(crate) fn add(&self, obstacle: Obstacle, service: &ServiceKey) {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.entry(obstacle).or_default().insert(service.clone());
    }

    /// Who waits for it. They look again, and wait again if they have to.
    pub(crate) fn take(&self, obstacle: &Obstacle) -> BTreeSet<ServiceKey> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(obstacle).unwrap_or_default()
    }
}
