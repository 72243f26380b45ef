//! A cluster on CloudSigma, all of whose parts but the cloud are real.
//!
//! ```text
//!  client ---- [bridge with the cloud's firewall] ---- node-0  node-1  node-2
//!                                                        |       |       |     agent, kube-proxy, a backend
//!                                                      proxy   proxy   proxy
//!                                                        +-------+-------+
//!  simulated account <--- controller ------------------> API server
//! ```
//!
//! Controller and agents are processes with the rights of `docs/cloudsigma.md` and no others.

mod firewall;
mod node;
mod rights;
mod services;

use std::net::IpAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use groundcrew_testkit::Scratch;
use groundcrew_testkit::cloudsigma::{CloudSigma, PASSWORD, USER};
use groundcrew_testkit::controller::Controller;
use groundcrew_testkit::kube::{ControlPlane, Kubeconfig, ProxyMode};
use groundcrew_testkit::wire::Wire;
use kube::Client;

pub use node::Node;

/// Where Services, controller and agents are.
pub const NAMESPACE: &str = "default";
/// On which every node answers.
pub const TARGET_PORT: u16 = 9090;
/// Generous: what else runs on the machine decides, not groundcrew.
pub const SOON: Duration = Duration::from_mins(1);

/// What differs from one world to another.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// How many nodes there are.
    pub nodes: u8,
    /// Who balances; nobody does where agents do it.
    pub proxy: Option<ProxyMode>,
    /// More flags of the controller.
    pub controller: &'static [&'static str],
    /// More flags of the agents.
    pub agents: &'static [&'static str],
    /// More ports on which every node answers.
    pub ports: &'static [u16],
}

impl Default for Options {
    fn default() -> Self {
        Self { nodes: 3, proxy: Some(ProxyMode::Nftables), controller: &[], agents: &[], ports: &[] }
    }
}

/// The whole.
pub struct World {
    // In the order in which they are to end.
    controller: Option<Controller>,
    /// The nodes, as many as there are machines on the wire.
    pub nodes: Vec<Node>,
    /// What nodes and client are on.
    pub wire: Wire,
    /// The account.
    pub cloud: CloudSigma,
    /// With every right.
    pub client: Client,
    rights: Rights,
    options: Options,
    groundcrew: PathBuf,
    dir: Scratch,
    plane: ControlPlane,
}

/// Who is who to the API server.
struct Rights {
    controller: Kubeconfig,
    agent: Kubeconfig,
    proxy: Kubeconfig,
}

impl World {
    /// Starts everything; `groundcrew` is the binary.
    pub async fn start(groundcrew: PathBuf, options: Options) -> Result<Self> {
        ensure!(groundcrew.is_file(), "{} is missing: run `cargo build -p groundcrew`", groundcrew.display());
        let (plane, wire) = tokio::try_join!(ControlPlane::start(), Wire::start(options.nodes))?;
        plane.define(&groundcrew_api::crds()).await?;
        let client = plane.client().await?;
        let rights = Rights {
            controller: rights::grant(&plane, "groundcrew-cloudsigma-ccm").await?,
            agent: rights::grant(&plane, "groundcrew-node-agent").await?,
            // Kubernetes itself gives this user what kube-proxy needs.
            proxy: plane.user("system:kube-proxy", None)?,
        };
        let mut world = Self {
            controller: None,
            nodes: Vec::new(),
            wire,
            cloud: CloudSigma::start().await?,
            client,
            rights,
            options,
            groundcrew,
            dir: Scratch::new("cloudsigma")?,
            plane,
        };
        for number in 0..usize::from(options.nodes) {
            let node = Node::register(&mut world, number).await?;
            world.nodes.push(node);
        }
        world.refresh_firewall().await?;
        for number in 0..world.nodes.len() {
            world.boot(number).await?;
        }
        world.start_controller().await?;
        for number in 0..world.nodes.len() {
            world.until_heard(number).await?;
        }
        Ok(world)
    }

    /// Starts the controller, and waits until it leads.
    pub async fn start_controller(&mut self) -> Result<()> {
        ensure!(self.controller.is_none(), "the controller runs");
        let mut command = Command::new(&self.groundcrew);
        command
            .args(["cloudsigma-ccm", "--region", "zrh", "--api-url", &self.cloud.url(), "--username", USER])
            .args(["--lease-namespace", NAMESPACE, "--discovery-interval", "1s", "--claim-settle", "500ms"])
            .arg("--kubeconfig")
            .arg(self.rights.controller.path())
            .args(self.options.controller)
            .env("CLOUDSIGMA_PASSWORD", PASSWORD);
        let controller = Controller::start("controller", command, self.dir.path(), SOON).await?;
        controller.until_leads(&self.client, NAMESPACE, "groundcrew-cloudsigma-ccm", SOON).await?;
        self.controller = Some(controller);
        Ok(())
    }

    /// The controller; there is none only between [`World::stop_controller`] and its next start.
    pub fn controller(&self) -> Result<&Controller> {
        self.controller.as_ref().context("the controller is stopped")
    }

    /// Ends the controller in order.
    pub async fn stop_controller(&mut self) -> Result<()> {
        let controller = self.controller.take().context("the controller is stopped")?;
        controller.process.end(groundcrew_testkit::Signal::SIGTERM).await.map(drop)
    }

    /// Subscribes to an address, and lets it through.
    pub async fn subscribe(&self, address: IpAddr) -> Result<()> {
        self.cloud.account(|account| account.add_ip(address));
        self.refresh_firewall().await
    }

    /// Whether anybody asked for more than his rights, or told what nobody should read.
    pub fn ensure_never_refused(&self) -> Result<()> {
        let agents = self.nodes.iter().filter_map(|node| node.agent());
        let processes = self.controller.iter().map(|controller| &controller.process).chain(agents);
        for process in processes {
            let log = process.log();
            ensure!(!log.contains(PASSWORD), "a password is in the log");
            let refused: Vec<_> = log.lines().filter(|line| line.contains("forbidden")).collect();
            ensure!(refused.is_empty(), "rights are missing:\n{}", refused.join("\n"));
        }
        Ok(())
    }
}
