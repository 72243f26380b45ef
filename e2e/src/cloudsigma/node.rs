//! A node: a machine on the wire, the server that it is, and what runs on it.

use std::process::Command;

use ::kube::Api;
use ::kube::api::{Patch, PatchParams, PostParams};
use anyhow::{Context, Result, ensure};
use groundcrew_api::names::lease;
use groundcrew_testkit::cloudsigma::Nic;
use groundcrew_testkit::kube;
use groundcrew_testkit::process::Process;
use groundcrew_testkit::proxy::Proxy;
use groundcrew_testkit::{Signal, eventually};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use serde_json::json;

use super::{NAMESPACE, SOON, TARGET_PORT, World};

/// As the chart's `DaemonSet` starts the agent: no file can be written, and root has two capabilities.
const AS_A_POD: &str =
    "mount -o remount,bind,ro / && exec setpriv --bounding-set=-all,+net_admin,+net_raw --no-new-privs -- \"$@\"";

/// One node. What runs on it ends with it.
pub struct Node {
    name: String,
    server: String,
    /// Its way to the API server.
    pub way: Proxy,
    agent: Option<Process>,
    rest: Vec<Process>,
}

impl Node {
    /// Makes the server and the Node, as its kubelet would with `--cloud-provider=external --provider-id --node-ip`.
    pub(super) async fn register(world: &mut World, number: usize) -> Result<Self> {
        let way = Proxy::before(world.plane.address()).await?;
        let machine = world.wire.nodes.get_mut(number).context("no such machine")?;
        machine.forward(way.address()).await?;
        let (name, address) = (machine.name().to_owned(), machine.address());
        let mac = machine.mac().to_owned();
        let forward =
            "for f in ('ipv4/ip_forward', 'ipv6/conf/all/forwarding'): open('/proc/sys/net/' + f, 'w').write('1')";
        machine.run("python3", &["-I", "-c", forward]).await?;
        let server = world.cloud.account(|account| {
            let server = account.add_server(&name, Nic::Manual);
            if let Some(described) = account.servers.get_mut(&server) {
                described["nics"][0]["mac"] = mac.into();
            }
            server
        });
        let node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": { "name": name, "annotations": { "alpha.kubernetes.io/provided-node-ip": address } },
            "spec": {
                "providerID": format!("cloudsigma://{server}"),
                "taints": [{ "key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule" }],
            },
        });
        let api: Api<k8s_openapi::api::core::v1::Node> = Api::all(world.client.clone());
        api.create(&PostParams::default(), &serde_json::from_value(node)?).await.context("create a Node")?;
        let status = json!({ "status": {
            "conditions": [{ "type": "Ready", "status": "True" }],
            "addresses": [{ "type": "InternalIP", "address": address }, { "type": "Hostname", "address": name }],
        } });
        api.patch_status(&name, &PatchParams::default(), &Patch::Strategic(status))
            .await
            .context("make a Node ready")?;
        Ok(Self { name, server, way, agent: None, rest: Vec::new() })
    }

    /// Its name, also as a machine.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The uuid of its server.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Its agent, if that runs.
    #[must_use]
    pub fn agent(&self) -> Option<&Process> {
        self.agent.as_ref()
    }
}

impl World {
    /// Starts what runs on a node.
    pub async fn boot(&mut self, number: usize) -> Result<()> {
        let machine = self.wire.nodes.get(number).context("no such machine")?;
        let node = self.nodes.get_mut(number).context("no such node")?;
        ensure!(node.agent.is_none(), "{} runs", node.name);
        node.rest.push(machine.serve(&[&[TARGET_PORT], self.options.ports].concat()).await?);
        if let Some(mode) = self.options.proxy {
            let kubeconfig = self.rights.proxy.through(node.way.address())?;
            let proxy = kube::proxy(&kubeconfig, &node.name, mode).await?;
            node.rest.push(machine.spawn(&format!("{}-kube-proxy", node.name), &proxy)?);
        }
        self.start_agent(number)
    }

    /// Starts the agent alone.
    pub fn start_agent(&mut self, number: usize) -> Result<()> {
        let machine = self.wire.nodes.get(number).context("no such machine")?;
        let node = self.nodes.get_mut(number).context("no such node")?;
        let kubeconfig = self.rights.agent.through(node.way.address())?;
        let mut command = Command::new("unshare");
        command.args(["--mount", "--", "sh", "-c", AS_A_POD, "sh"]).arg(&self.groundcrew);
        command
            .args(["node-agent", "--node-name", &node.name, "--node-ip", &machine.address().to_string()])
            .args(["--lease-namespace", NAMESPACE])
            .arg("--kubeconfig")
            .arg(kubeconfig.path())
            .args(self.options.agents);
        node.agent = Some(machine.spawn(&format!("{}-agent", node.name), &command)?);
        Ok(())
    }

    /// Pulls the power: everything on the node ends as by SIGKILL, and its link is gone.
    pub async fn kill(&mut self, number: usize) -> Result<()> {
        self.wire.unplug(number).await?;
        let node = self.nodes.get_mut(number).context("no such node")?;
        node.rest.clear();
        node.agent = None;
        Ok(())
    }

    /// Lets a killed node start again.
    pub async fn revive(&mut self, number: usize) -> Result<()> {
        self.wire.plug(number).await?;
        self.boot(number).await?;
        self.until_heard(number).await
    }

    /// Sends a signal to a node's agent.
    pub fn signal_agent(&self, number: usize, signal: Signal) -> Result<()> {
        self.nodes.get(number).and_then(Node::agent).context("no agent there")?.signal(signal)
    }

    /// Waits until the agent of a node renews its Lease.
    pub async fn until_heard(&self, number: usize) -> Result<()> {
        let node = self.nodes.get(number).context("no such node")?;
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), NAMESPACE);
        let agent = node.agent.as_ref().context("no agent there")?;
        let asked = Timestamp::now();
        let heard = agent.wait_ready(SOON, async || {
            let lease = leases.get(&lease::of_node(&node.name)).await?;
            let renewed = lease.spec.and_then(|spec| spec.renew_time);
            ensure!(renewed.as_ref().is_some_and(|at| at.0 > asked), "its Lease was renewed at {renewed:?}");
            Ok(())
        });
        heard.await
    }

    /// Cordons a node, or makes it schedulable again.
    pub async fn cordon(&self, number: usize, cordoned: bool) -> Result<()> {
        let node = self.nodes.get(number).context("no such node")?;
        let api: Api<k8s_openapi::api::core::v1::Node> = Api::all(self.client.clone());
        let patch = Patch::Merge(json!({ "spec": { "unschedulable": cordoned } }));
        api.patch(&node.name, &PatchParams::default(), &patch).await.map(drop).context("cordon")
    }

    /// The addresses of a node's interface, as `ip` tells them.
    pub async fn addresses(&self, number: usize) -> Result<String> {
        let machine = self.wire.nodes.get(number).context("no such machine")?;
        machine.run("ip", &["address", "show", "dev", "eth0"]).await
    }

    /// Waits until a node does not have an address.
    pub async fn until_not_at(&self, number: usize, address: std::net::IpAddr) -> Result<()> {
        eventually(&format!("{address} is gone from node {number}"), SOON, async || {
            let addresses = self.addresses(number).await?;
            ensure!(!addresses.contains(&format!(" {address}/")), "{addresses}");
            Ok(())
        })
        .await
    }
}
