use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};

use super::installed;
use crate::netns::Netns;
use crate::process::Process;

/// How long a probe waits for an answer. In the lab one comes within milliseconds, unless the machine is busy with
/// something else. Longer than it takes to find that nobody answers for an address.
const PATIENCE: Duration = Duration::from_secs(5);

/// A pod or a client of the lab: a network namespace with an `eth0` that is plugged into the virtual switch.
#[derive(Debug)]
pub struct Host {
    name: String,
    address: Ipv4Addr,
    address6: Ipv6Addr,
    netns: Netns,
    agent: PathBuf,
    serving: Option<Process>,
}

/// Why a probe has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoAnswer {
    /// Silence: dropped on the way, or nobody's address while the neighbour cache is warm.
    Timeout,
    /// Somebody said no.
    Refused,
    /// Nobody answers for that address: no ARP, no neighbour discovery.
    NoRoute,
    /// Anything else, in the words of the system.
    Other(String),
}

impl std::fmt::Display for NoAnswer {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Timeout => out.write_str("timeout"),
            Self::Refused => out.write_str("connection refused"),
            Self::NoRoute => out.write_str("no route to host"),
            Self::Other(reason) => out.write_str(reason),
        }
    }
}

impl std::error::Error for NoAnswer {}

impl Host {
    /// The port on which every backend serves HTTP.
    pub const HTTP: u16 = 31416;
    /// The port on which every backend answers datagrams.
    pub const UDP: u16 = 5353;

    pub(super) fn new(name: &str, (address, address6): (Ipv4Addr, Ipv6Addr), netns: Netns, agent: &Path) -> Self {
        Self { name: name.to_owned(), address, address6, netns, agent: agent.to_owned(), serving: None }
    }

    /// Its name, which is also what it answers as a backend.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its address.
    #[must_use]
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Its address of the other family.
    #[must_use]
    pub fn address6(&self) -> Ipv6Addr {
        self.address6
    }

    pub(super) fn netns(&self) -> &Netns {
        &self.netns
    }

    /// Starts to answer HTTP and datagrams with the host's name, on every address of both families.
    pub(super) async fn serve(&mut self, dir: &Path) -> Result<()> {
        let command = self.agent(&["serve", &self.name, &Self::HTTP.to_string(), &Self::UDP.to_string()])?;
        let serving = Process::spawn_bound(&format!("{}-backend", self.name), self.netns.inside_bound(&command)?, dir)?;
        serving
            .wait_ready(Duration::from_mins(1), async || Ok(self.tcp(Ipv4Addr::LOCALHOST.into(), Self::HTTP).await?))
            .await?;
        self.serving = Some(serving);
        Ok(())
    }

    /// A dead backend, whose host lives on and refuses.
    pub(super) fn stop_serving(&mut self) {
        self.serving = None;
    }

    /// The body of an HTTP GET.
    pub async fn get(&self, url: &str) -> Result<String, NoAnswer> {
        self.probe(&["get", url, &seconds()]).await
    }

    /// The same from another address of the host's; see [`Host::add_address`].
    pub async fn get_from(&self, source: IpAddr, url: &str) -> Result<String, NoAnswer> {
        self.probe(&["get", url, &seconds(), &source.to_string()]).await
    }

    /// The answers to `count` requests one after the other, each on a connection of its own. Ends at the first failure.
    pub async fn get_many(&self, url: &str, count: usize) -> Result<Vec<String>, NoAnswer> {
        let said = self.probe(&["many", url, &count.to_string(), &seconds()]).await?;
        Ok(said.lines().map(str::to_owned).collect())
    }

    /// Opens a TCP connection and closes it.
    pub async fn tcp(&self, address: IpAddr, port: u16) -> Result<(), NoAnswer> {
        self.probe(&["tcp", &address.to_string(), &port.to_string(), &seconds()]).await.map(drop)
    }

    /// Sends a datagram and gives the one that comes back.
    pub async fn udp(&self, address: IpAddr, port: u16) -> Result<String, NoAnswer> {
        self.probe(&["udp", &address.to_string(), &port.to_string(), &seconds()]).await
    }

    /// The same from a port of one's own: to the network, datagrams from one port are one connection.
    pub async fn udp_from(&self, source: u16, address: IpAddr, port: u16) -> Result<String, NoAnswer> {
        self.probe(&["udp", &address.to_string(), &port.to_string(), &seconds(), &source.to_string()]).await
    }

    /// The hardware address that answers for `address`.
    pub async fn arp(&self, address: Ipv4Addr) -> Result<String, NoAnswer> {
        self.probe(&["arp", &address.to_string(), &seconds()]).await
    }

    /// The hardware address that answered for `address` when it was last talked to, of either family.
    pub async fn neighbour(&self, address: IpAddr) -> Result<Option<String>> {
        let entry = self.netns.ip(["neigh", "show", "to", &address.to_string(), "dev", "eth0"]).await?;
        let mut words = entry.split_whitespace().skip_while(|word| *word != "lladdr");
        Ok(words.nth(1).map(str::to_owned))
    }

    /// Gives the host one more address.
    pub async fn add_address(&self, address: IpAddr) -> Result<()> {
        let (network, more): (_, &[&str]) = match address {
            IpAddr::V4(address) => (format!("{address}/24"), &[]),
            IpAddr::V6(address) => (format!("{address}/64"), &["nodad"]),
        };
        let add = ["addr", "replace", &network, "dev", "eth0"];
        self.netns.ip(add.iter().chain(more)).await.map(drop)
    }

    /// Empties the neighbour cache: with a warm one, an address that nobody answers for looks like silence.
    pub async fn forget_neighbours(&self) -> Result<()> {
        self.netns.ip(["neigh", "flush", "dev", "eth0"]).await.map(drop)
    }

    /// Any program, inside the namespace of this host.
    pub fn command(&self, command: &Command) -> Result<Command> {
        self.netns.inside(command)
    }

    async fn probe(&self, args: &[&str]) -> Result<String, NoAnswer> {
        let other = |error: anyhow::Error| NoAnswer::Other(format!("{error:#}"));
        let command = self.agent(args).and_then(|command| self.netns.inside(&command)).map_err(other)?;
        let mut command = tokio::process::Command::from(command);
        let output = command.stdin(Stdio::null()).kill_on_drop(true).output().await;
        let output = output.with_context(|| format!("probe from {}", self.name)).map_err(other)?;
        let said = String::from_utf8_lossy(&output.stdout).trim_end().to_owned();
        match (output.status.code(), said.as_str()) {
            (Some(0), _) => Ok(said),
            (Some(3), "timeout") => Err(NoAnswer::Timeout),
            (Some(3), "refused") => Err(NoAnswer::Refused),
            (Some(3), "no-route") => Err(NoAnswer::NoRoute),
            _ => Err(NoAnswer::Other(format!("{said}{}", String::from_utf8_lossy(&output.stderr)))),
        }
    }

    fn agent(&self, args: &[&str]) -> Result<Command> {
        // The system's: one of a version manager takes ten times as long to start.
        let mut agent = Command::new(installed("/usr/bin/python3")?);
        // Neither the user's site packages nor the environment change what it does.
        agent.arg("-I").arg(&self.agent).args(args);
        Ok(agent)
    }
}

fn seconds() -> String {
    PATIENCE.as_secs_f64().to_string()
}
