//! One of our controllers as a process, with its admin port.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::process::Process;
use crate::{ReservedPort, eventually};

/// A running controller. Dropping it kills it.
#[derive(Debug)]
pub struct Controller {
    /// The process, to signal it and to read its log.
    pub process: Process,
    name: String,
    /// The admin port, which is nobody else's while this lives.
    port: ReservedPort,
}

impl Controller {
    /// Starts `command` with an admin port of its own, and `name` as the beginning of its identity in Leases.
    pub fn spawn(name: &str, mut command: Command, dir: &Path) -> Result<Self> {
        let port = ReservedPort::new()?;
        command.env("HOSTNAME", name).args(["--admin-address", &port.address().to_string()]);
        Ok(Self { process: Process::spawn(name, &command, dir)?, name: name.to_owned(), port })
    }

    /// Starts it, and waits until it is ready.
    pub async fn start(name: &str, command: Command, dir: &Path, within: Duration) -> Result<Self> {
        let controller = Self::spawn(name, command, dir)?;
        let ready = async || match controller.get("/readyz").await? {
            (200, _) => Ok(()),
            (_, why) => Err(anyhow!(why)),
        };
        controller.process.wait_ready(within, ready).await?;
        Ok(controller)
    }

    /// Where its admin port listens.
    #[must_use]
    pub fn admin(&self) -> SocketAddr {
        self.port.address()
    }

    /// Status and body of a page of the admin port.
    pub async fn get(&self, path: &str) -> Result<(u16, String)> {
        get(self.admin(), path).await
    }

    /// The value of a metric; see [`metric`].
    pub async fn metric(&self, series: &str) -> Result<f64> {
        metric(self.admin(), series).await
    }

    /// Waits until a metric is as `probe` wants it.
    pub async fn until_metric(&self, series: &str, within: Duration, probe: impl Fn(f64) -> bool) -> Result<()> {
        eventually(&format!("{series} of {}", self.name), within, async || {
            let value = self.metric(series).await?;
            if probe(value) { Ok(()) } else { Err(anyhow!("it is {value}")) }
        })
        .await
    }

    /// Waits until it has been stopped by SIGSTOP.
    pub async fn until_stopped(&self, within: Duration) -> Result<()> {
        eventually(&format!("{} is stopped", self.name), within, async || {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.process.pid()))?;
            let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
            if state == Some('T') { Ok(()) } else { Err(anyhow!("state {state:?}")) }
        })
        .await
    }

    /// Waits until it holds this Lease.
    pub async fn until_leads(&self, client: &Client, namespace: &str, lease: &str, within: Duration) -> Result<()> {
        let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
        eventually(&format!("{} leads", self.name), within, async || {
            let holder = leases.get(lease).await?.spec.and_then(|spec| spec.holder_identity).unwrap_or_default();
            if holder.starts_with(&format!("{}_", self.name)) { Ok(()) } else { Err(anyhow!("{holder:?} leads")) }
        })
        .await
    }
}

/// Status and body of a page of an admin port.
pub async fn get(admin: SocketAddr, path: &str) -> Result<(u16, String)> {
    let mut stream = TcpStream::connect(admin).await?;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\r\n").as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let status = answer.split(' ').nth(1).unwrap_or_default().parse()?;
    let body = answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default();
    Ok((status, body))
}

/// The value of a metric, named as on the page: with its labels.
pub async fn metric(admin: SocketAddr, series: &str) -> Result<f64> {
    let (_, page) = get(admin, "/metrics").await?;
    let value = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    Ok(value.with_context(|| format!("no {series} in:\n{page}"))?.parse()?)
}
