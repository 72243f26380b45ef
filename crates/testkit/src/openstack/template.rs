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
use super::wsgi::program;
use super::{PASSWORD, settings};
use crate::command::output_within;
use crate::directory::copy;
use crate::{Scratch, eventually};

/// To be raised with every change of what is in it.
const EDITION: u32 = 1;
const DATABASES: [&str; 2] = ["keystone", "neutron"];
/// What it may take on a busy machine.
const MADE: Duration = Duration::from_mins(5);

/// Puts a copy into `dir`, made first if this version has none yet.
pub(super) async fn instantiate(environment: &Path, dir: &Path) -> Result<()> {
    let saved = ensure(environment).await?;
    copy(&saved, dir).with_context(|| format!("copy {}", saved.display()))
}

/// Starts the database server on a copy.
pub(super) async fn serve(dir: &Path) -> Result<Database> {
    Database::start(dir, &DATABASES).await
}

async fn ensure(environment: &Path) -> Result<PathBuf> {
    let mut made_of = DefaultHasher::new();
    (EDITION, database::version().await?).hash(&mut made_of);
    let saved = environment.with_file_name(format!("databases-{:016x}", made_of.finish()));
    if saved.exists() {
        return Ok(saved);
    }
    let lock = saved.with_extension("lock");
    let lock = File::create(&lock).with_context(|| format!("create {}", lock.display()))?;
    eventually("another test process has made the databases", MADE, async || lock.try_lock()).await?;
    if !saved.exists() {
        make(environment, &saved).await.context("make the databases of the cloud")?;
    }
    Ok(saved)
}

async fn make(environment: &Path, into: &Path) -> Result<()> {
    let scratch = Scratch::new("openstack-new")?;
    let dir = scratch.path();
    Database::create(dir).await?;
    let database = serve(dir).await?;
    settings::keystone(dir)?;
    settings::neutron_database(dir)?;
    try_join!(make_keystone(environment, dir), make_neutron(environment, dir))?;
    database.stop().await?;
    // Under another name first, so that a copy that was cut short is never taken for whole.
    let partial = into.with_extension("partial");
    if partial.exists() {
        fs::remove_dir_all(&partial)?;
    }
    for part in ["mysql", "fernet"] {
        copy(&dir.join(part), &partial.join(part)).with_context(|| format!("copy to {}", partial.display()))?;
    }
    Ok(fs::rename(&partial, into)?)
}

async fn make_keystone(environment: &Path, dir: &Path) -> Result<()> {
    let manage = |args: &[&str]| {
        let mut manage = configured(environment, "keystone-manage", &dir.join("keystone.conf"));
        manage.args(args);
        output_within(MADE, manage)
    };
    manage(&["db_sync"]).await?;
    let (user, group) = (database::user()?, group()?);
    manage(&["fernet_setup", "--keystone-user", &user, "--keystone-group", &group]).await?;
    let bootstrap =
        ["bootstrap", "--bootstrap-username", ADMIN, "--bootstrap-password", PASSWORD, "--bootstrap-region-id", REGION];
    manage(&bootstrap).await.map(drop)
}

async fn make_neutron(environment: &Path, dir: &Path) -> Result<()> {
    let mut upgrade = configured(environment, "neutron-db-manage", &dir.join("neutron.conf"));
    upgrade.args(["upgrade", "heads"]);
    output_within(MADE, upgrade).await.map(drop)
}

fn group() -> Result<String> {
    Ok(Group::from_gid(Gid::current())?.with_context(|| format!("group {} has no name", Gid::current()))?.name)
}

fn configured(environment: &Path, name: &str, file: &Path) -> Command {
    let mut command = program(environment, name);
    command.arg("--config-file").arg(file);
    command
}
