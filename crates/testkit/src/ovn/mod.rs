//! OVN, started for one test: the northbound database alone, with northd in [`Central`], or the whole with its data path
//! in [`lab`].

pub mod lab;

mod central;
mod host;
mod northbound;
mod relay;
mod tls;

pub use central::Central;
pub use host::{Host, NoAnswer};
pub(crate) use lab::listens;
pub use northbound::Northbound;
pub use relay::Relay;
pub use tls::{ServerName, Tls};

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};

use crate::command::find;

const DATABASE: &str = "OVN_Northbound";

/// The schema of the northbound database, as installed.
pub fn schema() -> Result<PathBuf> {
    installed("/usr/share/ovn/ovn-nb.ovsschema")
}

fn installed(path: &str) -> Result<PathBuf> {
    ensure!(Path::new(path).is_file(), "{path} is missing: run `hack/setup ovn`");
    Ok(path.into())
}

/// A program of OVN or Open vSwitch that keeps its hands off the instances of the machine.
fn tool(program: &str, dir: &Path) -> Result<Command> {
    let mut command = Command::new(find(program, "ovn")?);
    for key in ["OVS_RUNDIR", "OVN_RUNDIR", "OVS_LOGDIR", "OVN_LOGDIR", "OVS_DBDIR", "OVN_DBDIR"] {
        command.env(key, dir);
    }
    // A daemon of somebody else's `ovn-nbctl --detach` would be asked instead of the database.
    command.env_remove("OVN_NB_DAEMON").env_remove("OVN_NB_DB");
    Ok(command)
}
