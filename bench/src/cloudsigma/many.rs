//! Many addresses on many nodes, whose agents are simulated, and one node lost.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use groundcrew_api::floating_ip::FloatingIP;
use groundcrew_testkit::agents::Agents;
use groundcrew_testkit::cloudsigma::{CloudSigma, Nic, PASSWORD, USER};
use groundcrew_testkit::controller::Controller;
use groundcrew_testkit::kube::ControlPlane;
use groundcrew_testkit::{Scratch, Signal, eventually};
use k8s_openapi::api::core::v1::{Node, Service};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;

use crate::report::Report;
use crate::rig::beside_us;
use crate::rig::writes::Writes;

const NAMESPACE: &str = "default";
const CLUSTER: &str = "bench";
/// What the Leases of real agents promise.
const LEASE_SECONDS: u64 = 8;
/// Written by the agents.
const OF_AGENTS: &[&str] = &["PATCH floatingips/status"];
const PATIENCE: std::time::Duration = std::time::Duration::from_mins(5);

struct Cluster {
    client: Client,
    cloud: CloudSigma,
    agents: Agents,
    scratch: Scratch,
    plane: ControlPlane,
}

pub(super) async fn run(addresses: u8, nodes: usize, report: &mut Report) -> Result<()> {
    let cluster = Cluster::start(addresses, nodes).await?;
    let controller = cluster.controller().await?;
    let services: Api<Service> = Api::namespaced(cluster.client.clone(), NAMESPACE);
    let created = stream::iter(0..addresses).map(|n| {
        let service = json!({
            "metadata": { "name": format!("web-{n}") },
            "spec": { "type": "LoadBalancer", "allocateLoadBalancerNodePorts": false, "ports": [{ "port": 80 }] },
        });
        let services = services.clone();
        async move { anyhow::Ok(services.create(&PostParams::default(), &serde_json::from_value(service)?).await?) }
    });
    let created: Vec<_> = created.buffer_unordered(16).try_collect().await?;
    let before = cluster.settled(created.len(), "").await?;
    // Tags are written beside: they are not part of what is measured next.
    cluster.until_quiet().await?;

    let (lost, held) = most_loaded(&before).context("nobody holds anything")?;
    let (api, cloud) = (Writes::read(&cluster.client).await?, cluster.cloud.writes().len());
    let started = Instant::now();
    cluster.agents.die(&lost);
    let after = cluster.settled(before.len(), &lost).await?;
    let took = started.elapsed().as_secs_f64();
    let moved = before.iter().filter(|(address, holder)| after.get(*address) != Some(*holder)).count();
    ensure!(moved == held, "{moved} addresses moved, and {held} had to");
    report.below("a node of 20 lost, its addresses moved", before.len(), "s", took, 10.0);
    let writes = Writes::since(&cluster.client, &api).await?.without(OF_AGENTS).without(&["POST events"]);
    #[allow(clippy::cast_precision_loss, reason = "a figure for people")]
    let each = writes.total() / moved.max(1) as f64;
    report.at_most("writes to Kubernetes for each of them", moved, "", each, 1.0);
    #[allow(clippy::cast_precision_loss, reason = "a figure for people")]
    report.at_most("writes to the cloud", moved, "", (cluster.cloud.writes().len() - cloud) as f64, 0.0);
    cluster.agents.live(&lost);

    restart(&cluster, controller, &after, report).await
}

/// The controller ends and another one begins: nothing changes.
async fn restart(
    cluster: &Cluster,
    controller: Controller,
    before: &BTreeMap<String, String>,
    report: &mut Report,
) -> Result<()> {
    cluster.until_quiet().await?;
    let (api, cloud) = (Writes::read(&cluster.client).await?, cluster.cloud.writes().len());
    controller.process.end(Signal::SIGTERM).await?;
    let successor = cluster.controller().await?;
    // Longer than a silent node is waited for, counted by the account's readings.
    let before_it = cluster.readings();
    eventually("the account was read for a while", PATIENCE, async || {
        let readings = cluster.readings() - before_it;
        ensure!(readings > 12, "{readings} times");
        Ok(())
    })
    .await?;
    let moved =
        cluster.holders().await?.iter().filter(|(address, holder)| before.get(*address) != Some(*holder)).count();
    #[allow(clippy::cast_precision_loss, reason = "a figure for people")]
    report.at_most("controller restart, addresses moved", before.len(), "", moved as f64, 0.0);
    let writes = Writes::since(&cluster.client, &api).await?;
    report.at_most("writes to Kubernetes after it", before.len(), "", writes.total(), 0.0);
    #[allow(clippy::cast_precision_loss, reason = "a figure for people")]
    report.at_most(
        "writes to the cloud after it",
        before.len(),
        "",
        (cluster.cloud.writes().len() - cloud) as f64,
        0.0,
    );
    successor.process.end(Signal::SIGTERM).await.map(drop)
}

fn most_loaded(holders: &BTreeMap<String, String>) -> Option<(String, usize)> {
    let mut load: BTreeMap<&String, usize> = BTreeMap::new();
    for holder in holders.values() {
        *load.entry(holder).or_default() += 1;
    }
    load.into_iter().max_by_key(|(_, count)| *count).map(|(node, count)| (node.clone(), count))
}

impl Cluster {
    async fn start(addresses: u8, nodes: usize) -> Result<Self> {
        let plane = ControlPlane::start().await?;
        plane.define(&groundcrew_api::crds()).await?;
        let client = plane.client().await?;
        let cloud = CloudSigma::start().await?;
        cloud.account(|account| (0..addresses).for_each(|n| account.add_ip(IpAddr::from([198, 18, 0, n]))));
        let agents = Agents::start(&client, NAMESPACE, CLUSTER, LEASE_SECONDS);
        let api: Api<Node> = Api::all(client.clone());
        for n in 0..nodes {
            let name = format!("node-{n}");
            let server = cloud.account(|account| account.add_server(&name, Nic::Manual));
            let node =
                json!({ "metadata": { "name": name }, "spec": { "providerID": format!("cloudsigma://{server}") } });
            api.create(&PostParams::default(), &serde_json::from_value(node)?).await?;
            let ready = json!({ "status": { "conditions": [{ "type": "Ready", "status": "True" }] } });
            api.patch_status(&name, &PatchParams::default(), &Patch::Strategic(ready)).await?;
            agents.live(&name);
        }
        Ok(Self { client, cloud, agents, scratch: Scratch::new("many")?, plane })
    }

    async fn controller(&self) -> Result<Controller> {
        let mut command = Command::new(beside_us("groundcrew")?);
        command
            .args(["cloudsigma-ccm", "--api-url", &self.cloud.url(), "--username", USER, "--cluster-id", CLUSTER])
            .args(["--lease-namespace", NAMESPACE, "--discovery-interval", "1s", "--claim-settle", "500ms"])
            .arg("--kubeconfig")
            .arg(self.plane.kubeconfig_path())
            .env("CLOUDSIGMA_PASSWORD", PASSWORD);
        let controller = Controller::start("controller", command, self.scratch.path(), PATIENCE).await?;
        controller.until_leads(&self.client, NAMESPACE, "groundcrew-cloudsigma-ccm", PATIENCE).await?;
        Ok(controller)
    }

    /// Who holds each address, for those on whom everybody agrees.
    async fn holders(&self) -> Result<BTreeMap<String, String>> {
        let objects = Api::<FloatingIP>::all(self.client.clone()).list(&ListParams::default()).await?;
        let holders = objects.into_iter().filter_map(|object| {
            let status = object.status.as_ref()?;
            let settled = status.serial == object.spec.serial && status.holder == object.spec.holder;
            Some((object.name_any(), status.holder.clone().filter(|_| settled)?))
        });
        Ok(holders.collect())
    }

    /// Waits until so many addresses are held, none of them by this node.
    async fn settled(&self, count: usize, without: &str) -> Result<BTreeMap<String, String>> {
        eventually("all addresses are held", PATIENCE, async || {
            let holders = self.holders().await?;
            let there = holders.values().filter(|holder| *holder != without).count();
            ensure!(there == count, "{there} of {count}");
            Ok(holders)
        })
        .await
    }

    /// Waits until nothing was written during two readings of the account.
    async fn until_quiet(&self) -> Result<()> {
        let mut last = (self.written().await?, self.readings());
        eventually("nothing is written any more", PATIENCE, async || {
            let written = self.written().await?;
            if written != last.0 {
                last = (written, self.readings());
            }
            ensure!(self.readings() > last.1 + 2, "{:?}", last.0);
            Ok(())
        })
        .await
    }

    /// What was written so far, to the cloud and to Kubernetes.
    async fn written(&self) -> Result<(usize, String)> {
        Ok((self.cloud.writes().len(), Writes::read(&self.client).await?.to_string()))
    }

    /// How often the controller has read the account.
    fn readings(&self) -> usize {
        self.cloud.calls().iter().filter(|call| call.path.starts_with("servers/detail/")).count()
    }
}
