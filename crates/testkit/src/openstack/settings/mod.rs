//! The configuration files of the services.

mod full;
mod net;

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result};

use super::cloud::{ADMIN, REGION};
use super::{PASSWORD, Service, Tier};

pub(super) use full::{CELL, COMPUTE_HOST, LOST_CELL};

/// What the files have to name.
pub(super) struct Site<'a> {
    pub(super) dir: &'a Path,
    pub(super) environment: &'a Path,
    /// Where each service listens.
    pub(super) addresses: BTreeMap<Service, SocketAddr>,
    /// The databases of OVN.
    pub(super) northbound: String,
    pub(super) southbound: String,
    /// The broker.
    pub(super) bus: String,
}

impl<'a> Site<'a> {
    /// One where nothing runs but a database server, which is enough to make its tables.
    pub(super) fn empty(tier: Tier, dir: &'a Path, environment: &'a Path) -> Self {
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 1));
        Self {
            dir,
            environment,
            addresses: tier.services().iter().map(|service| (*service, nowhere)).collect(),
            northbound: "unix:none".into(),
            southbound: "unix:none".into(),
            bus: format!("rabbit://guest:guest@{nowhere}/"),
        }
    }

    /// Writes the files of all services of a tier.
    pub(super) fn write_all(&self, tier: Tier) -> Result<()> {
        self.keystone()?;
        self.neutron()?;
        if tier == Tier::Full {
            self.placement()?;
            self.glance()?;
            self.nova()?;
            self.cinder()?;
            self.octavia()?;
        }
        Ok(())
    }

    /// How a service asks Keystone about the tokens that it gets.
    fn auth(&self) -> String {
        let keystone = self.addresses[&Service::Identity];
        format!("[keystone_authtoken]\nwww_authenticate_uri = http://{keystone}\n{}interface = public\n", self.login())
    }

    /// How a service logs in to ask another.
    fn login(&self) -> String {
        format!(
            "auth_url = http://{keystone}/v3
auth_type = password
username = {ADMIN}
password = {PASSWORD}
project_name = {ADMIN}
user_domain_id = default
project_domain_id = default
region_name = {REGION}
",
            keystone = self.addresses[&Service::Identity],
        )
    }

    /// Takes over a file that comes with a service.
    fn copy(&self, from: &str, to: &str) -> Result<()> {
        let from = self.environment.join("etc").join(from);
        fs::copy(&from, self.dir.join(to)).with_context(|| format!("copy {}", from.display())).map(drop)
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.dir.join(name);
        fs::write(&path, text).with_context(|| format!("write {}", path.display()))
    }

    fn make_dirs(&self, names: &[&str]) -> Result<()> {
        for name in names {
            fs::create_dir_all(self.dir.join(name)).with_context(|| format!("create {name}"))?;
        }
        Ok(())
    }
}
