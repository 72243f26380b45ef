//! Where to find the cloud.

use std::path::PathBuf;
use std::time::Duration;

use openstack_client::{Client, Config, ConfigError};

use crate::OpenStack;

/// Flags of every controller that works on an OpenStack.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "OpenStack options")]
#[group(id = "openstack")]
pub struct Args {
    /// The cloud.conf of OpenStack's cloud controller manager; without it the variables of an openrc file, as `OS_CLOUD`, count
    #[arg(long, env = "GROUNDCREW_CLOUD_CONF", value_name = "FILE")]
    pub cloud_conf: Option<PathBuf>,
}

impl Args {
    /// The cloud, which nobody has talked to yet. `deadline` is for single writes.
    pub fn cloud(&self, deadline: Duration) -> Result<OpenStack, ConfigError> {
        let config = match &self.cloud_conf {
            Some(path) => Config::from_cloud_conf(path)?,
            None => Config::from_env()?,
        };
        Ok(OpenStack::new(Client::new(config)?, deadline))
    }
}
