//! OpenStack as a provider: Neutron's routers, ports and security groups, and Nova's servers, behind the traits of `core`.
//!
//! It translates and decides nothing: what is asked here is one call of [`openstack_client`], or a few that do not depend
//! on how much there is.
#![warn(missing_docs)]

mod args;
mod error;
mod instances;
mod listing;
mod ports;
mod routes;
mod security_groups;

use std::time::Duration;

use groundcrew_core::leader::Term;
use groundcrew_core::provider::ProviderError;
use openstack_client::{Client, Error};

pub use args::Args;

use error::told;
use routes::Abilities;

/// One project of an OpenStack.
pub struct OpenStack {
    client: Client,
    /// How long one write may take.
    deadline: Duration,
    abilities: Abilities,
}

impl OpenStack {
    /// A cloud that nobody has talked to yet.
    #[must_use]
    pub fn new(client: Client, deadline: Duration) -> Self {
        Self { client, deadline, abilities: Abilities::default() }
    }

    async fn write<T>(&self, term: &Term, call: impl Future<Output = Result<T, Error>>) -> Result<T, ProviderError> {
        Ok(term.write(self.deadline, async { call.await.map_err(told) }).await?)
    }
}
