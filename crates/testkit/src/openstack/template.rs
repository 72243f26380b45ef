//! The databases of a cloud with their tables and its first user. To make them takes longer than everything else, so it
//! is done once for a version of the services and then copied.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::unistd::{Gid, Group};
use tokio::try_join;

use super::cloud::{ADMIN, REGION};
use super::database::{self, Database};
use super::settings::{CELL, COMPUTE_HOST, LOST_CELL, Site};
use super::wsgi::program;
use super::{PASSWORD, Tier};
use crate::command::{find, output, output_within};
use crate::directory::copy;
use crate::{Scratch, eventually};

/// To be raised with every change of what is in it.
const EDITION: u32 = 2;
/// What it may take on a busy machine.
const MADE: Duration = Duration::from_mins(10);

/// Puts a copy into `dir`, made first if this version has none yet.
pub(super) async fn instantiate(tier: Tier, environment: &Path, dir: &Path) -> Result<()> {
    let saved = ensure(tier, environment).await?;
    copy(&saved, dir).with_context(|| format!("copy {}", saved.display()))
}

/// Starts the database server on a copy.
pub(super) async fn serve(tier: Tier, dir: &Path) -> Result<Database> {
    let databases: &[&str] = match tier {
        Tier::Net => &["keystone", "neutron"],
        Tier::Full => {
            &["keystone", "neutron", "nova_api", "nova", "nova_cell0", "placement", "glance", "cinder", "octavia"]
        }
    };
    Database::start(dir, databases).await
}

async fn ensure(tier: Tier, environment: &Path) -> Result<PathBuf> {
    let mut made_of = DefaultHasher::new();
    (EDITION, tier, database::version().await?).hash(&mut made_of);
    let saved = environment.with_file_name(format!("databases-{:016x}", made_of.finish()));
    if saved.exists() {
        return Ok(saved);
    }
    let lock = saved.with_extension("lock");
    let lock = File::create(&lock).with_context(|| format!("create {}", lock.display()))?;
    eventually("another test process has made the databases", MADE, async || lock.try_lock()).await?;
    if !saved.exists() {
        make(tier, environment, &saved).await.context("make the databases of the cloud")?;
    }
    Ok(saved)
}

async fn make(tier: Tier, environment: &Path, into: &Path) -> Result<()> {
    let scratch = Scratch::new("openstack-new")?;
    let dir = scratch.path();
    Database::create(dir).await?;
    let database = serve(tier, dir).await?;
    Site::empty(tier, dir, environment).write_all(tier)?;
    let tools = Tools { environment, dir };
    let mut parts = vec!["mysql", "fernet"];
    match tier {
        Tier::Net => {
            try_join!(tools.keystone(), tools.neutron())?;
        }
        Tier::Full => {
            parts.push("octavia");
            let keystone_and_neutron = async { try_join!(tools.keystone(), tools.neutron()) };
            try_join!(keystone_and_neutron, tools.nova(&database), tools.others(), tools.authority())?;
        }
    }
    database.stop().await?;
    // Under another name first, so that a copy that was cut short is never taken for whole.
    let partial = into.with_extension("partial");
    if partial.exists() {
        fs::remove_dir_all(&partial)?;
    }
    for part in parts {
        copy(&dir.join(part), &partial.join(part)).with_context(|| format!("copy to {}", partial.display()))?;
    }
    Ok(fs::rename(&partial, into)?)
}

/// The services' own programs for their databases.
struct Tools<'a> {
    environment: &'a Path,
    dir: &'a Path,
}

impl Tools<'_> {
    async fn keystone(&self) -> Result<()> {
        let manage = async |args: &[&str]| self.run("keystone-manage", "keystone.conf", args).await;
        manage(&["db_sync"]).await?;
        let (user, group) = (database::user()?, group()?);
        manage(&["fernet_setup", "--keystone-user", &user, "--keystone-group", &group]).await?;
        let first = ["--bootstrap-username", ADMIN, "--bootstrap-password", PASSWORD, "--bootstrap-region-id", REGION];
        manage(&[&["bootstrap"], &first[..]].concat()).await
    }

    async fn neutron(&self) -> Result<()> {
        self.run("neutron-db-manage", "neutron.conf", &["upgrade", "heads"]).await
    }

    /// Addresses of databases and of the broker differ from copy to copy: cells are told to take those of the file.
    async fn nova(&self, database: &Database) -> Result<()> {
        const BUS: &str = "{scheme}://{username}:{password}@{hostname}:{port}/";
        let manage = async |args: &[&str]| self.run("nova-manage", "nova.conf", args).await;
        let place = |name: &str, query: &str| format!("{{scheme}}://{{username}}@{{hostname}}/{name}?{query}");
        let create = async |name: &str, bus: &str, place: String| {
            manage(&["cell_v2", "create_cell", "--name", name, "--transport-url", bus, "--database_connection", &place])
                .await
        };
        manage(&["api_db", "sync"]).await?;
        manage(&["cell_v2", "map_cell0", "--database_connection", &place("nova_cell0", "{query}")]).await?;
        manage(&["db", "sync"]).await?;
        create(CELL, BUS, place("nova", "{query}")).await?;
        create(LOST_CELL, "none://lost/", place("nova", "unix_socket=/nonexistent/nova.sock")).await?;
        // What Nova would find out some time after its first compute process has started.
        let mapped = format!(
            "INSERT INTO nova_api.host_mappings (created_at, cell_id, host) \
             SELECT NOW(), id, '{COMPUTE_HOST}' FROM nova_api.cell_mappings WHERE name = '{CELL}'"
        );
        database.execute(self.environment, &mapped).await
    }

    async fn others(&self) -> Result<()> {
        self.run("placement-manage", "placement.conf", &["db", "sync"]).await?;
        self.run("glance-manage", "glance-api.conf", &["db_sync"]).await?;
        self.run("cinder-manage", "cinder.conf", &["db", "sync"]).await?;
        self.run("octavia-db-manage", "octavia.conf", &["upgrade", "head"]).await
    }

    /// Octavia wants to sign certificates for machines that it will not start.
    async fn authority(&self) -> Result<()> {
        let mut openssl = Command::new(find("openssl", "openstack-full")?);
        openssl
            .args(["req", "-x509", "-newkey", "rsa:2048", "-days", "3650", "-subj", "/CN=lab"])
            .arg("-passout")
            .arg(format!("pass:{PASSWORD}"))
            .arg("-keyout")
            .arg(self.dir.join("octavia/ca.key"))
            .arg("-out")
            .arg(self.dir.join("octavia/ca.pem"));
        output(openssl).await.map(drop)
    }

    async fn run(&self, name: &str, file: &str, args: &[&str]) -> Result<()> {
        let mut command = program(self.environment, name);
        command.arg("--config-file").arg(self.dir.join(file)).args(args);
        output_within(MADE, command).await.map(drop)
    }
}

fn group() -> Result<String> {
    Ok(Group::from_gid(Gid::current())?.with_context(|| format!("group {} has no name", Gid::current()))?.name)
}
