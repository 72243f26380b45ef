//! A real OpenStack on loopback, in one of two sizes: Keystone and Neutron on a `MariaDB` and an OVN of their own, which
//! start in some seconds; or with Nova, Placement, Glance, Cinder and Octavia as well, which take a minute or two and
//! 3 GiB of memory. Servers, volumes and load balancers of the large one are only remembered: its drivers make none.
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

mod broker;
mod cloud;
mod database;
pub mod fake;
mod furnish;
mod http;
mod project;
mod settings;
mod template;
mod worker;
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
    /// Nova.
    Compute,
    /// Placement, for Nova.
    Placement,
    /// Glance, for Nova.
    Image,
    /// Cinder.
    BlockStorage,
    /// Octavia.
    LoadBalancer,
}

impl Service {
    /// Its type in the catalog.
    #[must_use]
    pub fn kind(self) -> &'static str {
        match self {
            Self::Identity => "identity",
            Self::Network => "network",
            Self::Compute => "compute",
            Self::Placement => "placement",
            Self::Image => "image",
            Self::BlockStorage => "block-storage",
            Self::LoadBalancer => "load-balancer",
        }
    }

    /// The name of its project.
    fn name(self) -> &'static str {
        match self {
            Self::Identity => "keystone",
            Self::Network => "neutron",
            Self::Compute => "nova",
            Self::Placement => "placement",
            Self::Image => "glance",
            Self::BlockStorage => "cinder",
            Self::LoadBalancer => "octavia",
        }
    }

    /// What follows the address in the catalog.
    fn path(self) -> &'static str {
        match self {
            Self::Compute => "/v2.1",
            Self::BlockStorage => "/v3/$(project_id)s",
            _ => "",
        }
    }
}

/// How much of an OpenStack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Tier {
    Net,
    Full,
}

impl Tier {
    fn services(self) -> &'static [Service] {
        use Service::{BlockStorage, Compute, Identity, Image, LoadBalancer, Network, Placement};
        match self {
            Self::Net => &[Identity, Network],
            Self::Full => &[Identity, Network, Compute, Placement, Image, BlockStorage, LoadBalancer],
        }
    }
}

/// The cloud of this test binary with Keystone and Neutron, started by whoever asks first. It ends with the process.
///
/// Tests keep apart by their projects. One that stops a service takes a [`Cloud::start`] of its own.
pub async fn shared() -> Result<&'static Cloud> {
    static SHARED: OnceCell<Cloud> = OnceCell::const_new();
    SHARED.get_or_try_init(Cloud::start).await
}

/// The same with all services.
pub async fn shared_full() -> Result<&'static Cloud> {
    static SHARED: OnceCell<Cloud> = OnceCell::const_new();
    SHARED.get_or_try_init(Cloud::start_full).await
}

/// The Python environment with all of the services.
async fn environment() -> Result<PathBuf> {
    find_pinned("openstack").await
}
