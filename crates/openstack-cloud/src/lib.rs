//! OpenStack as a provider: Neutron's routers, ports and security groups, and Nova's servers, behind the traits of `core`.
//!
//! It translates and decides nothing: what is asked here is one call of [`openstack_client`], or a few that do not depend
//! on how much there is. [`ServiceLeftovers`] and [`VolumeLeftovers`] also know what carries a cluster's mark.
#![warn(missing_docs)]

mod access;
mod args;
mod error;
mod instances;
mod leftovers;
mod listing;
mod ports;
mod routes;
mod security_groups;

use std::sync::Arc;
use std::time::Duration;

use groundcrew_core::leader::Term;
use groundcrew_core::provider::ProviderError;
use openstack_client::{Client, Error};

pub use args::Args;
pub use leftovers::{Absent, ServiceLeftovers, VolumeLeftovers};

use error::told;
use routes::Abilities;

/// One project of an OpenStack. Cheap to clone.
#[derive(Clone)]
pub struct OpenStack {
    client: Client,
    /// How long one write may take.
    deadline: Duration,
    abilities: Arc<Abilities>,
}

impl OpenStack {
    /// A cloud that nobody has talked to yet.
    #[must_use]
    pub fn new(client: Client, deadline: Duration) -> Self {
        Self { client, deadline, abilities: Arc::default() }
    }

    async fn write<T>(&self, term: &Term, call: impl Future<Output = Result<T, Error>>) -> Result<T, ProviderError> {
        Ok(term.write(self.deadline, async { call.await.map_err(told) }).await?)
    }
}
