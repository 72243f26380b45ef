//! `groundcrew flight` on servers that are Nova's and Nodes of a real kube-apiserver.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Parser;
use groundcrew_core::runtime::{RuntimeArgs, StartError, run_until};
use groundcrew_openstack_cloud::OpenStack;
use groundcrew_orbit::flight::{self, Args};
use groundcrew_testkit::controller::metric;
use groundcrew_testkit::eventually;
use groundcrew_testkit::kube::ControlPlane;
use groundcrew_testkit::openstack::Service;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::events::v1::Event;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use openstack_client::Kind;
use serde_json::{Value, from_value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::member::Member;

const SOON: Duration = Duration::from_mins(2);
const LONG_AGO: &str = "2026-01-01T00:00:00Z";

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    flight: Args,
    #[command(flatten)]
    runtime: RuntimeArgs,
}

/// A cluster whose Nodes are servers of a project.
struct Cluster {
    plane: ControlPlane,
    client: Client,
    member: Member,
}

struct Running {
    stop: CancellationToken,
    ended: JoinHandle<Result<(), StartError>>,
    admin: SocketAddr,
}

impl Running {
    /// Waits until it has looked at everything so many times more.
    async fn passes(&self, more: f64) {
        const PASSES: &str = "groundcrew_flight_passes_total{outcome=\"ok\"}";
        let before = metric(self.admin, PASSES).await.unwrap_or_default();
        eventually("more passes", SOON, async || {
            let passes = metric(self.admin, PASSES).await?;
            ensure!(passes >= before + more, "{passes}");
            Ok(())
        })
        .await
        .unwrap();
    }

    async fn stop(self) {
        self.stop.cancel();
        self.ended.await.unwrap().unwrap();
    }
}

impl Cluster {
    async fn new(name: &str) -> Self {
        let member = Member::new(name).await;
        let plane = ControlPlane::start().await.unwrap();
        plane.define(&groundcrew_api::crds()).await.unwrap();
        let client = plane.client().await.unwrap();
        Self { plane, client, member }
    }

    async fn start(&self, flags: &[&str]) -> Running {
        let kubeconfig = self.plane.kubeconfig_path().to_str().unwrap();
        let common = ["flight", "--kubeconfig", kubeconfig, "--admin-address", "127.0.0.1:0", "--cluster-id", "test"];
        let alone = ["--no-leader-election", "--pod-cidr", "198.19.0.0/16", "--interval", "1s", "--steady-for", "0s"];
        let line = Line::parse_from(common.iter().chain(&alone).chain(flags));
        let cloud = Arc::new(OpenStack::new(self.member.client.clone(), Duration::from_secs(30)));
        let (stop, (tell_admin, admin)) = (CancellationToken::new(), oneshot::channel());
        let stopped = stop.clone();
        let ended = tokio::spawn(async move {
            run_until(stopped, CancellationToken::new(), "flight", line.runtime, async move |runtime| {
                tell_admin.send(runtime.admin).unwrap();
                flight::start(&runtime, line.flight, cloud).await
            })
            .await
        });
        Running { stop, ended, admin: admin.await.unwrap() }
    }

    fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    /// A Node of this name that says it is this server.
    async fn node(&self, name: &str, server: &str, ready: bool) {
        let node = json!({"metadata": {"name": name}, "spec": {"providerID": format!("openstack:///{server}")}});
        self.nodes().create(&PostParams::default(), &from_value(node).unwrap()).await.unwrap();
        self.set_ready(name, ready).await;
    }

    async fn set_address(&self, name: &str, address: IpAddr) {
        let patch = Patch::Strategic(json!({"status": {"addresses": [{"type": "InternalIP", "address": address}]}}));
        self.nodes().patch_status(name, &PatchParams::default(), &patch).await.unwrap();
    }

    async fn set_ready(&self, name: &str, ready: bool) {
        let status = if ready { "True" } else { "Unknown" };
        let condition = json!({"type": "Ready", "status": status, "reason": "Test", "message": "",
            "lastTransitionTime": LONG_AGO, "lastHeartbeatTime": LONG_AGO});
        let patch = Patch::Strategic(json!({"status": {"conditions": [condition]}}));
        self.nodes().patch_status(name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// A server and its Node.
    async fn join(&self, name: &str, ready: bool) -> String {
        let server = self.member.boot(name).await;
        self.node(name, &server, ready).await;
        let found = self.member.client.compute().server(&server).await.unwrap();
        self.set_address(name, found.ips().next().unwrap()).await;
        server
    }

    /// What flight says that it did about a Node, in order. Nova says of a reboot that it was one, not of which kind.
    async fn told(&self, name: &str) -> Vec<String> {
        let events: Api<Event> = Api::all(self.client.clone());
        let all = events.list(&ListParams::default()).await.unwrap().items;
        let about = |event: &Event| event.regarding.as_ref().is_some_and(|node| node.name.as_deref() == Some(name));
        let mut deeds: Vec<_> = all.into_iter().filter(about).map(|event| (event.event_time, event.reason)).collect();
        deeds.sort();
        let steps = ["SoftReboot", "HardReboot", "ServerDeleted"];
        deeds.into_iter().filter_map(|(_, reason)| reason).filter(|reason| steps.contains(&reason.as_str())).collect()
    }

    /// Waits until exactly this was done to a server.
    async fn done_to(&self, server: &str, expected: &[&str]) {
        eventually(&format!("{expected:?} to {server}"), SOON, async || {
            let done = self.member.actions(server).await?;
            ensure!(done == expected, "{done:?}");
            Ok(())
        })
        .await
        .unwrap();
    }
}

#[tokio::test]
async fn a_sick_server_climbs_the_ladder_to_its_end_and_no_other_is_touched() {
    let cluster = Cluster::new("ladder").await;
    let member = &cluster.member;
    let sick = cluster.join("sick", false).await;
    let failed = cluster.join("failed", false).await;
    member.fail(&failed).await;
    let locked = cluster.join("locked", false).await;
    member.lock(&locked).await;
    let mut well = Vec::new();
    // More of them than of the others: with most Nodes unready, nothing would be repaired.
    for name in ["well-1", "well-2", "well-3", "well-4"] {
        well.push(cluster.join(name, true).await);
    }
    // A Node may say that it is any server of the cloud.
    let other = Member::new("other").await;
    let foreign = other.boot("foreign").await;
    cluster.node("foreign", &foreign, false).await;
    // In the project, and nobody's Node.
    let stranger = member.boot("stranger").await;
    let quick = ["--nodes", "repair", "--unready-after", "1s", "--cooldown", "10s", "--max-repairs", "9"];
    let quick = [&quick[..], &["--max-repair-percent", "100"]].concat();

    // Nova does not reach the cell of one that is well: who knows what else it does not show.
    member.cloud.lose(&well[0]).await.unwrap();
    let first = cluster.start(&quick).await;
    first.passes(3.0).await;
    assert_eq!(member.actions(&sick).await.unwrap(), [""; 0]);
    assert_eq!(member.actions(&failed).await.unwrap(), [""; 0]);
    member.cloud.find(&well[0]).await.unwrap();

    // One that failed takes no soft reboot. It helps, and nothing else is done to it.
    cluster.done_to(&failed, &["reboot"]).await;
    cluster.set_ready("failed", true).await;
    cluster.done_to(&sick, &["reboot", "reboot"]).await;
    first.passes(15.0).await;
    assert_eq!(member.actions(&sick).await.unwrap(), ["reboot", "reboot"], "deleted only where the operator says so");
    first.stop().await;
    assert_eq!(cluster.told("sick").await, ["SoftReboot", "HardReboot"]);
    assert_eq!(cluster.told("failed").await, ["HardReboot"]);
    assert_eq!(member.client.compute().server(&failed).await.unwrap().status, "ACTIVE");

    let second = cluster.start(&[&quick[..], &["--delete-servers"]].concat()).await;
    eventually("the sick server is gone", SOON, async || {
        let error = member.client.compute().server(&sick).await.err().context("it is there")?;
        ensure!(error.kind() == Kind::NotFound, "{error}");
        Ok(())
    })
    .await
    .unwrap();
    second.passes(3.0).await;
    second.stop().await;

    assert_eq!(member.actions(&failed).await.unwrap(), ["reboot"]);
    assert_eq!(member.actions(&locked).await.unwrap(), ["lock"]);
    for untouched in well.iter().chain([&stranger, &foreign]) {
        assert_eq!(member.actions(untouched).await.unwrap(), [""; 0], "{untouched}");
    }
}

#[tokio::test]
async fn a_group_that_nova_took_from_a_server_is_back_at_its_port() {
    let cluster = Cluster::new("group").await;
    let member = &cluster.member;
    let group = member.project.create("security_group", json!({"name": "nodes"})).await.unwrap();
    let server = cluster.join("n1", true).await;
    member.act(false, &server, json!({"addSecurityGroup": {"name": "nodes"}})).await;
    let stranger = member.boot("stranger").await;
    let groups = async |server: &str| {
        let ports = member.project.get(Service::Network, &format!("v2.0/ports?device_id={server}")).await?;
        let groups = ports["ports"][0]["security_groups"].as_array().cloned().context("no groups")?;
        anyhow::Ok(groups)
    };
    let of_stranger = groups(&stranger).await.unwrap();
    assert!(groups(&server).await.unwrap().contains(&Value::from(group.clone())));

    let running = cluster.start(&["--security-group", "nodes", "--nodes", "off"]).await;
    running.passes(2.0).await;
    member.act(false, &server, json!({"removeSecurityGroup": {"name": "nodes"}})).await;
    eventually("the port has its group again", SOON, async || {
        let groups = groups(&server).await?;
        ensure!(groups.contains(&Value::from(group.clone())), "{groups:?}");
        Ok(())
    })
    .await
    .unwrap();
    running.stop().await;
    assert_eq!(groups(&stranger).await.unwrap(), of_stranger);
}
