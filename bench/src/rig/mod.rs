//! What the scenarios of the whole controller run on: a control plane, an OVN, and `groundcrew ovn-lb` as a process of
//! its own, so that what it costs is its own.

pub(crate) mod bare;
pub(crate) mod ovn;
pub(crate) mod running;
pub(crate) mod services;
pub(crate) mod writes;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use groundcrew_api::address_pool::{AddressPool, AddressPoolSpec};
use groundcrew_testkit::Scratch;
use groundcrew_testkit::kube::ControlPlane;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};

use crate::world;
use ovn::{Layout, Ovn};
use running::Running;
use services::Served;

/// For whatever is waited for: the machine decides how long things take, not a bar.
pub(crate) const PATIENCE: Duration = Duration::from_mins(15);
/// As many as the controller works on at once.
pub(crate) const CONCURRENCY: usize = 128;
pub(crate) const CLUSTER: &str = "bench";
const POOL: &str = "bench";

/// A control plane that has our custom resources and a pool of addresses.
pub(crate) struct Rig {
    pub(crate) plane: ControlPlane,
    pub(crate) client: Client,
    pub(crate) dir: Scratch,
}

impl Rig {
    /// With nothing else in it than the tenants' namespaces.
    pub(crate) async fn empty() -> Result<Self> {
        let rig = Self::on(ControlPlane::start().await?).await?;
        world::make_namespaces(&rig.client).await?;
        Ok(rig)
    }

    /// With what was saved.
    pub(crate) async fn from(saved: &Path) -> Result<Self> {
        let rig = Self::on(ControlPlane::start_from(saved).await?).await?;
        // The API server's own caches fill with the first lists; nobody should pay for that.
        bare::list(&rig.client).await?;
        Ok(rig)
    }

    async fn on(plane: ControlPlane) -> Result<Self> {
        plane.define(&groundcrew_api::crds()).await?;
        let client = plane.client().await?;
        let spec = AddressPoolSpec { addresses: vec!["100.64.0.0/15".into()], ..AddressPoolSpec::default() };
        let pools: Api<AddressPool> = Api::all(client.clone());
        let pool = AddressPool::new(POOL, spec);
        pools.patch(POOL, &PatchParams::apply("bench").force(), &Patch::Apply(&pool)).await?;
        Ok(Self { plane, client, dir: Scratch::new("bench")? })
    }

    /// Starts the controller; it is not ready yet.
    pub(crate) fn start(&self, ovn: &Ovn, flags: &[&str]) -> Result<Running> {
        self.start_at(&ovn.endpoint(), &[ovn.layout.flags(), flags].concat())
    }

    /// The same for an OVN of another kind.
    pub(crate) fn start_at(&self, endpoint: &str, flags: &[&str]) -> Result<Running> {
        Running::start(self.plane.kubeconfig_path(), endpoint, flags, self.dir.path())
    }
}

/// The data of a control plane whose `n` Services are all served: claimed, with an `EIp` and a published address.
#[allow(clippy::print_stderr, reason = "minutes pass")]
pub(crate) async fn served(n: usize) -> Result<PathBuf> {
    world::kept("ovn-served", n, async || {
        let rig = Rig::from(&world::created(n).await?).await?;
        eprintln!("serving {n} Services, once for this machine ...");
        let ovn = Ovn::start(Layout::Tenants).await?;
        let mut services = Served::watch(&rig.client).await?;
        let running = rig.start(&ovn, &[])?;
        services.until(n, PATIENCE).await?;
        running.stop().await?;
        // The API server waits for its watchers before it ends.
        drop(services);
        Ok(rig.plane)
    })
    .await
}

/// A program of this workspace: cargo puts them all into one directory.
pub(crate) fn beside_us(program: &str) -> Result<PathBuf> {
    let path = std::env::current_exe().context("where we are")?.with_file_name(program);
    ensure!(path.is_file(), "{} is missing: run `make bench`", path.display());
    Ok(path)
}
