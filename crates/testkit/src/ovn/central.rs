//! The databases and northd, without a hypervisor.

use anyhow::Result;

use super::Northbound;
use super::lab::{READY, database, listens, northd};
use crate::Scratch;
use crate::daemon::Daemon;

/// An `ovn-central`: what is written to the northbound database is translated, and nobody acts on it.
#[derive(Debug)]
pub struct Central {
    // In the order in which they are to end; the directory last.
    _northd: Daemon,
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
        Ok(Self { _northd: northd, _southbound: southbound, northbound, dir: scratch })
    }

    /// The northbound database.
    #[must_use]
    pub fn northbound(&self) -> &Northbound {
        &self.northbound
    }

    /// `unix:<path>` of the southbound database.
    pub(crate) fn southbound(&self) -> String {
        format!("unix:{}", self.dir.join("sb.sock").display())
    }
}
