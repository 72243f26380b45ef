//! The databases and northd, without a hypervisor.

use std::path::Path;

use anyhow::Result;

use super::lab::{READY, database, listens, northd, sbctl};
use super::{Northbound, tool};
use crate::command::output;
use crate::daemon::Daemon;
use crate::{Scratch, Signal};

/// An `ovn-central`: what is written to the northbound database is translated, and nobody acts on it.
#[derive(Debug)]
pub struct Central {
    // In the order in which they are to end; the directory last.
    northd: Daemon,
    _southbound: Daemon,
    northbound: Northbound,
    dir: Scratch,
}

impl Central {
    /// Starts one with empty databases.
    pub async fn start() -> Result<Self> {
        let scratch = Scratch::new("central")?;
        let dir = scratch.path();
        let northbound = Northbound::standalone().await?;
        let southbound = database("sb", "/usr/share/ovn/ovn-sb.ovsschema", dir).await?;
        let mut northd = Daemon::new("ovn-northd", &northd(&northbound.unix(0), dir)?, dir)?;
        northd.start(READY, listens(dir.join("northd.ctl"))).await?;
        Ok(Self { northd, _southbound: southbound, northbound, dir: scratch })
    }

    /// The northbound database.
    #[must_use]
    pub fn northbound(&self) -> &Northbound {
        &self.northbound
    }

    /// Loses the northbound database: an empty one is at the same addresses afterwards.
    pub async fn rebuild_empty(&mut self) -> Result<()> {
        // northd fills an empty database with the one row that everybody needs, and so do we: one of the two would fail.
        self.northd.stop(Signal::SIGTERM).await?;
        self.northbound.rebuild_empty().await?;
        self.northd.start(READY, listens(self.dir.join("northd.ctl"))).await
    }

    /// Converts both databases to the schemas in a directory, as an upgrade of OVN does before its daemons are replaced.
    pub async fn convert(&self, schemas: &Path) -> Result<()> {
        self.northbound.convert(&schemas.join("ovn-nb.ovsschema")).await?;
        let mut convert = tool("ovsdb-client", self.dir.path())?;
        convert.args(["convert", &self.southbound()]).arg(schemas.join("ovn-sb.ovsschema"));
        output(convert).await.map(drop)
    }

    /// Adds a hypervisor of this host name, which is no more than a row: who binds a port to it is not refused.
    pub(crate) async fn add_chassis(&self, name: &str, host: &str) -> Result<()> {
        let dir = self.dir.path();
        sbctl(dir, &["chassis-add", name, "geneve", "127.0.0.1"]).await?;
        sbctl(dir, &["set", "chassis", name, &format!("hostname={host}")]).await?;
        let row = sbctl(dir, &["--bare", "--columns=_uuid", "find", "chassis", &format!("name={name}")]).await?;
        let row = format!("chassis={}", row.trim());
        // When it was last heard of: now, and it will never be heard of again.
        let heard = format!("nb_cfg_timestamp={}", jiff::Timestamp::now().as_millisecond());
        sbctl(dir, &["create", "Chassis_Private", &format!("name={name}"), &row, &heard]).await.map(drop)
    }

    /// `unix:<path>` of the southbound database.
    #[must_use]
    pub fn southbound(&self) -> String {
        format!("unix:{}", self.dir.join("sb.sock").display())
    }
}
