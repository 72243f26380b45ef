//! Nodes with agents, each with a way of its own to the API server.

use std::net::IpAddr;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use groundcrew_api::floating_ip::{FloatingIP, FloatingIPSpec, FloatingIPStatus};
use groundcrew_api::names::lease;
use groundcrew_testkit::eventually;
use groundcrew_testkit::kube::{ControlPlane, shared};
use groundcrew_testkit::process::Process;
use groundcrew_testkit::proxy::Proxy;
use groundcrew_testkit::wire::{Asking, Wire};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;

/// For what takes a moment on an idle machine, and for hundreds of answers at the pace of a busy one.
pub(crate) const SOON: Duration = Duration::from_mins(2);

pub(crate) struct Lab {
    pub(crate) wire: Wire,
    pub(crate) client: Client,
    pub(crate) namespace: String,
    pub(crate) address: IpAddr,
    /// The ways to the API server.
    pub(crate) proxies: Vec<Proxy>,
    agents: Vec<Option<Process>>,
    control_plane: &'static ControlPlane,
    flags: &'static [&'static str],
}

impl Lab {
    /// An address that nobody has yet, and nodes without agents.
    pub(crate) async fn new(nodes: u8, flags: &'static [&'static str]) -> Self {
        let control_plane = shared().await.unwrap();
        control_plane.define(&groundcrew_api::crds()).await.unwrap();
        let namespace = control_plane.namespace("nodes").await.unwrap();
        let mut wire = Wire::start(nodes).await.unwrap();
        let mut proxies = Vec::new();
        for node in &mut wire.nodes {
            let proxy = Proxy::before(control_plane.address()).await.unwrap();
            node.forward(proxy.address()).await.unwrap();
            proxies.push(proxy);
        }
        // Objects are the cluster's, whatever the namespace: each test has an address of its own.
        let number: u8 = namespace.rsplit('-').next().unwrap().parse().unwrap();
        Self {
            wire,
            client: control_plane.client().await.unwrap(),
            address: IpAddr::from([198, 51, 100, 100 + number]),
            namespace,
            proxies,
            agents: (0..nodes).map(|_| None).collect(),
            control_plane,
            flags,
        }
    }

    /// The same with an agent on each node, all with a Lease.
    pub(crate) async fn started(nodes: u8, flags: &'static [&'static str]) -> Self {
        let mut lab = Self::new(nodes, flags).await;
        for node in 0..usize::from(nodes) {
            lab.start(node);
        }
        for node in 0..usize::from(nodes) {
            lab.until_alive(node).await;
        }
        for node in 0..usize::from(nodes) {
            lab.until_knows_all(node).await;
        }
        lab
    }

    /// Waits until an agent knows the others, whom it asks when the API server does not answer.
    async fn until_knows_all(&self, node: usize) {
        let url = format!("http://{}:8091/reach", self.wire.nodes[node].address());
        let ask = format!("import urllib.request as r; print(r.urlopen('{url}', timeout=2).read().decode())");
        let known = format!(r#""agents":{}"#, self.agents.len());
        eventually(&format!("node {node} knows the others"), SOON, async || {
            let said = self.wire.outside.run("python3", &["-I", "-c", &ask]).await?;
            ensure!(said.contains(&known), "{said}");
            Ok(())
        })
        .await
        .unwrap();
    }

    pub(crate) fn name(&self, node: usize) -> String {
        format!("{}-{node}", self.namespace)
    }

    /// Starts an agent. One that runs is left to its fate.
    pub(crate) fn start(&mut self, node: usize) {
        let name = self.name(node);
        let machine = &self.wire.nodes[node];
        let kubeconfig = self.control_plane.admin().through(self.proxies[node].address()).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_groundcrew"));
        command
            .args(["node-agent", "--node-name", &name, "--node-ip", &machine.address().to_string()])
            .args(["--kubeconfig", kubeconfig.path().to_str().unwrap()])
            .args(["--lease-namespace", &self.namespace])
            .args(self.flags);
        self.agents[node] = Some(machine.spawn(&name, &command).unwrap());
    }

    pub(crate) fn agent(&self, node: usize) -> &Process {
        self.agents[node].as_ref().unwrap()
    }

    pub(crate) async fn lease(&self, node: usize) -> anyhow::Result<Lease> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), &self.namespace);
        Ok(leases.get(&lease::of_node(&self.name(node))).await?)
    }

    pub(crate) async fn until_alive(&self, node: usize) {
        let what = format!("node {node} has a Lease");
        let waited = eventually(&what, SOON, async || {
            let holder = self.lease(node).await?.spec.and_then(|spec| spec.holder_identity).unwrap_or_default();
            ensure!(!holder.is_empty(), "it is free");
            Ok(())
        });
        waited.await.unwrap_or_else(|error| panic!("{error:#}\n{}", self.agent(node).last_words()));
    }

    pub(crate) fn floating_ips(&self) -> Api<FloatingIP> {
        Api::all(self.client.clone())
    }

    pub(crate) async fn object(&self) -> anyhow::Result<FloatingIP> {
        Ok(self.floating_ips().get(&FloatingIP::name_of(self.address)).await?)
    }

    /// Makes the address this node's; the one that has it lets go by itself.
    pub(crate) async fn place(&self, node: usize) {
        let name = FloatingIP::name_of(self.address);
        let api = self.floating_ips();
        let Some(object) = api.get_opt(&name).await.unwrap() else {
            let spec = FloatingIPSpec {
                address: self.address.to_string(),
                holder: Some(self.name(node)),
                serial: 1,
                ..FloatingIPSpec::default()
            };
            api.create(&PostParams::default(), &FloatingIP::new(&name, spec)).await.unwrap();
            return;
        };
        let spec = json!({ "spec": { "holder": self.name(node), "serial": object.spec.serial + 1, "evicted": null } });
        api.patch(&name, &PatchParams::default(), &Patch::Merge(spec)).await.unwrap();
    }

    /// Nobody should have the address any more.
    pub(crate) async fn release(&self) {
        let serial = self.object().await.unwrap().spec.serial + 1;
        let patch = Patch::Merge(json!({ "spec": { "holder": null, "serial": serial } }));
        let name = FloatingIP::name_of(self.address);
        self.floating_ips().patch(&name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Waits until this node is said to serve the address.
    pub(crate) async fn until_held(&self, node: usize) {
        self.until_status(&format!("node {node} holds {}", self.address), |status| {
            let ready = status.conditions.iter().any(|condition| condition.status == "True");
            ready && status.holder.as_deref() == Some(&*self.name(node))
        })
        .await;
    }

    /// Waits until the status gives this reason for not being ready.
    pub(crate) async fn until_refused(&self, reason: &str) {
        self.until_status(reason, |status| status.conditions.iter().any(|condition| condition.reason == reason)).await;
    }

    async fn until_status(&self, what: &str, probe: impl Fn(&FloatingIPStatus) -> bool) {
        let waited = eventually(what, SOON, async || {
            let status = self.object().await?.status.unwrap_or_default();
            ensure!(probe(&status), "{status:?}");
            Ok(())
        });
        if let Err(error) = waited.await {
            let words: Vec<_> = self.agents.iter().flatten().map(Process::last_words).collect();
            panic!("{error:#}\n{}", words.join("\n"));
        }
    }

    /// Somebody outside who asks for the address from now on.
    pub(crate) async fn ask(&self) -> Asking {
        self.wire.ask(self.address).await.unwrap()
    }

    /// Waits until this node answers.
    pub(crate) async fn until_answers(&self, asking: &Asking, node: usize) {
        let what = format!("node {node} answers");
        let waited = eventually(&what, SOON, async || {
            let last = asking.answers().pop().map(|answer| answer.mac);
            ensure!(last.as_deref() == Some(self.wire.nodes[node].mac()), "it is {last:?}");
            Ok(())
        });
        waited.await.unwrap_or_else(|error| panic!("{error:#}\n{}", self.agent(node).last_words()));
    }

    /// Waits until another node than this one answers; which. The one that is first in line may be late just then.
    pub(crate) async fn until_another_answers(&self, asking: &Asking, node: usize) -> usize {
        let what = format!("another node than {node} answers");
        let waited = eventually(&what, SOON, async || {
            let last = asking.answers().pop().map(|answer| answer.mac);
            let who = self.wire.nodes.iter().position(|machine| Some(machine.mac()) == last.as_deref());
            who.filter(|who| *who != node).with_context(|| format!("it is {last:?}"))
        });
        waited.await.unwrap_or_else(|error| panic!("{error:#}\n{}", self.agent(node).last_words()))
    }

    /// Waits until a node's packet filter knows of the address: only then does it keep the node from answering.
    pub(crate) async fn until_guarded(&self, node: usize) {
        eventually(&format!("node {node} guards {}", self.address), SOON, async || {
            let rules = self.wire.nodes[node].run("nft", &["list", "table", "arp", "groundcrew_node"]).await?;
            ensure!(rules.contains(&self.address.to_string()), "{rules}");
            Ok(())
        })
        .await
        .unwrap();
    }

    /// The addresses of a node's interface, as `ip` tells them.
    pub(crate) async fn addresses(&self, node: usize) -> String {
        self.wire.nodes[node].run("ip", &["-details", "address", "show", "dev", "eth0"]).await.unwrap()
    }

    pub(crate) async fn until_gone(&self, node: usize) {
        eventually(&format!("{} is gone from node {node}", self.address), SOON, async || {
            let addresses = self.addresses(node).await;
            ensure!(!addresses.contains(&format!(" {}/", self.address)), "{addresses}");
            Ok(())
        })
        .await
        .unwrap();
    }

    /// Nobody answered any more once somebody else had begun to: these nodes in this order, and none twice.
    pub(crate) fn assert_answered_in_turn(&self, asking: &Asking, nodes: &[usize]) {
        let mut turns: Vec<String> = asking.answers().into_iter().map(|answer| answer.mac).collect();
        turns.dedup();
        let expected: Vec<_> = nodes.iter().map(|node| self.wire.nodes[*node].mac().to_owned()).collect();
        assert_eq!(turns, expected);
    }
}

/// A script for the system's Python.
pub(crate) fn python(script: &str) -> Command {
    let mut python = Command::new("/usr/bin/python3");
    python.args(["-I", "-c", script]);
    python
}
