//! A real OpenStack on loopback: Keystone and Neutron on a `MariaDB` and an OVN of their own.
//!
//! ```no_run
//! # async fn test() -> anyhow::Result<()> {
//! use groundcrew_testkit::openstack::{self, Service::Network};
//!
//! let project = openstack::shared().await?.project("routes").await?;
//! let lan = project.lan("10.180.0.0/16").await?;
//! let router = project.get(Network, &format!("v2.0/routers/{}", lan.router)).await?;
//! # Ok(()) }
//! ```

mod cloud;
mod database;
pub mod fake;
mod http;
mod project;
mod settings;
mod template;
mod wsgi;

use std::path::PathBuf;

use anyhow::Result;
use tokio::sync::OnceCell;

pub use cloud::{Cloud, REGION};
pub use http::{Answer, Method};
pub use project::{Lan, PASSWORD, Project};

use crate::command::find_pinned;

/// A service that has an API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Service {
    /// Keystone.
    Identity,
    /// Neutron.
    Network,
}

impl Service {
    /// Its type in the catalog.
    #[must_use]
    pub fn kind(self) -> &'static str {
        match self {
            Self::Identity => "identity",
            Self::Network => "network",
        }
    }

    /// The name of its project.
    fn name(self) -> &'static str {
        match self {
            Self::Identity => "keystone",
            Self::Network => "neutron",
        }
    }
}

/// The cloud of this test binary, started by whoever asks first. It ends with the process.
///
/// Tests keep apart by their projects. One that stops a service takes a [`Cloud::start`] of its own.
pub async fn shared() -> Result<&'static Cloud> {
    static SHARED: OnceCell<Cloud> = OnceCell::const_new();
    SHARED.get_or_try_init(Cloud::start).await
}

/// The Python environment with all of the services.
async fn environment() -> Result<PathBuf> {
    find_pinned("openstack").await
}
