use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;
use tokio::net::UnixStream;

use super::{DATABASE, tool};
use crate::command::output;
use crate::daemon::Daemon;
use crate::{ReservedPort, Scratch};

const READY: Duration = Duration::from_mins(1);

/// An `ovsdb-server` that has no database of its own and passes on what another one has.
#[derive(Debug)]
pub struct Relay {
    // Before `dir`: a server must have ended when its directory is removed.
    _daemon: Daemon,
    tcp: ReservedPort,
    _dir: Scratch,
}

impl Relay {
    /// Before the database at this address; it has it when this returns.
    pub async fn before(source: SocketAddr) -> Result<Self> {
        let (dir, tcp) = (Scratch::new("relay")?, ReservedPort::new()?);
        let socket = dir.join("relay.sock");
        let mut server = tool("ovsdb-server", dir.path())?;
        server
            .arg("-vsyslog:off")
            .arg(format!("--unixctl={}", dir.join("relay.ctl").display()))
            .arg(format!("--remote=punix:{}", socket.display()))
            .arg(format!("--remote=ptcp:{}:127.0.0.1", tcp.number()))
            .arg(format!("relay:{DATABASE}:tcp:{source}"));
        let mut daemon = Daemon::new("relay", &server, dir.path())?;
        daemon.start(READY, async || Ok(UnixStream::connect(&socket).await?)).await?;
        let mut wait = tool("ovsdb-client", dir.path())?;
        wait.args(["--timeout=60", "wait"]).arg(format!("unix:{}", socket.display())).args([DATABASE, "connected"]);
        output(wait).await?;
        Ok(Self { _daemon: daemon, tcp, _dir: dir })
    }

    /// As ovsdb-client takes it: `tcp:127.0.0.1:6641`.
    #[must_use]
    pub fn tcp(&self) -> String {
        format!("tcp:{}", self.tcp.address())
    }
}
