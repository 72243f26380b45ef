//! A `RabbitMQ`, over which the processes of one service talk to each other.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use tokio::net::TcpStream;

use crate::ReservedPort;
use crate::daemon::Daemon;
use crate::pidns::bind_with_children;

/// The program itself: what Debian puts into the PATH changes the user.
const SERVER: &str = "/usr/lib/rabbitmq/bin/rabbitmq-server";
const READY: Duration = Duration::from_mins(2);

/// A running server.
#[derive(Debug)]
pub(super) struct Broker {
    _daemon: Daemon,
    port: ReservedPort,
    /// Of its own, too, because a machine's own Erlang programs meet at the usual port.
    _names: ReservedPort,
    _nodes: ReservedPort,
}

impl Broker {
    /// Starts one with its files in `dir`.
    pub(super) async fn start(dir: &Path) -> Result<Self> {
        ensure!(Path::new(SERVER).is_file(), "{SERVER} is missing: run `hack/setup openstack-full`");
        let dir = dir.join("rabbit");
        fs::create_dir_all(dir.join("home"))?;
        fs::write(dir.join("plugins"), "[].\n")?;
        let (port, names, nodes) = (ReservedPort::new()?, ReservedPort::new()?, ReservedPort::new()?);
        let mut server = Command::new(SERVER);
        server
            .env("HOME", dir.join("home"))
            .env("RABBITMQ_NODENAME", format!("groundcrew{}@localhost", port.number()))
            .env("RABBITMQ_NODE_IP_ADDRESS", "127.0.0.1")
            .env("RABBITMQ_NODE_PORT", port.number().to_string())
            .env("RABBITMQ_DIST_PORT", nodes.number().to_string())
            .env("RABBITMQ_MNESIA_BASE", dir.join("mnesia"))
            .env("RABBITMQ_LOG_BASE", dir.join("log"))
            .env("RABBITMQ_PID_FILE", dir.join("pid"))
            .env("RABBITMQ_ENABLED_PLUGINS_FILE", dir.join("plugins"))
            .env("RABBITMQ_CONFIG_FILE", dir.join("none"))
            .env("RABBITMQ_CONF_ENV_FILE", "/dev/null")
            // Otherwise these two listen on all addresses.
            .env("ERL_EPMD_ADDRESS", "127.0.0.1")
            .env("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", "-kernel inet_dist_use_interface {127,0,0,1}")
            .env("ERL_EPMD_PORT", names.number().to_string());
        let mut daemon = Daemon::bound("rabbitmq", bind_with_children(&server).await?, &dir);
        let address = port.address();
        daemon.start(READY, async || Ok(TcpStream::connect(address).await?)).await?;
        Ok(Self { _daemon: daemon, port, _names: names, _nodes: nodes })
    }

    /// Where a service finds it. The user is the one that every `RabbitMQ` has, for loopback only.
    pub(super) fn url(&self) -> String {
        format!("rabbit://guest:guest@{}/", self.port.address())
    }
}
