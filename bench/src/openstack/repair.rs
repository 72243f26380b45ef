//! A port that loses its group, on a real Neutron, and the event after which it has it again.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use clap::Parser;
use groundcrew_core::runtime::{RuntimeArgs, StartError, run_until};
use groundcrew_openstack_cloud::OpenStack;
use groundcrew_orbit::flight;
use groundcrew_testkit::controller::metric;
use groundcrew_testkit::kube::ControlPlane;
use groundcrew_testkit::openstack::{self as lab, Method, PASSWORD, Project, REGION, Service};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use openstack_client::{Auth, Config, Domain, Secret, User};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::servers::Cloud;
use crate::report::{Report, median, millis};

const PATIENCE: Duration = Duration::from_mins(1);
const PASSES: &str = "groundcrew_flight_passes_total{outcome=\"ok\"}";

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    flight: flight::Args,
    #[command(flatten)]
    runtime: RuntimeArgs,
}

/// One Node, whose server has a port at a real Neutron.
struct Site {
    project: Project,
    client: Client,
    group: String,
    network: String,
    port: String,
}

pub(super) async fn run(rounds: usize, report: &mut Report) -> Result<()> {
    let cloud = lab::shared().await?;
    let plane = ControlPlane::start().await?;
    plane.define(&groundcrew_api::crds()).await?;
    let (project, client) = (cloud.project("repair").await?, plane.client().await?);
    let site = Site::make(project, client).await?;
    let mut servers = Cloud::default();
    servers.neutron = Some(Arc::new(site.openstack(&cloud.auth_url())?));
    servers.boot("a");
    // So long that no pass comes by itself.
    let running = start(&plane, servers, &["--security-group", "nodes", "--nodes", "off", "--interval", "1h"]).await?;
    running.until_passes(1.0).await?;

    let (mut ours, mut floor, mut most) = (Vec::new(), Vec::new(), 0.0_f64);
    for round in 0..rounds {
        site.set_groups(&[]).await?;
        let started = Instant::now();
        site.bare_repair().await?;
        floor.push(started.elapsed());

        site.set_groups(&[]).await?;
        let before = running.passes().await?;
        let started = Instant::now();
        site.set_ready(round % 2 == 0).await?;
        site.until_grouped().await?;
        ours.push(started.elapsed());
        running.until_passes(before + 1.0).await?;
        most = most.max(running.passes().await? - before);
    }
    running.stop().await?;
    report.at_most("group lost: passes after a Node's event", rounds, "", most, 1.0);
    report.told_beside(
        "event to the group back, p50",
        rounds,
        "ms",
        millis(median(&mut ours)),
        millis(median(&mut floor)),
    );
    Ok(())
}

impl Site {
    async fn make(project: Project, client: Client) -> Result<Self> {
        let lan = project.lan("10.180.0.0/16").await?;
        let group = project.create("security_group", json!({"name": "nodes"})).await?;
        let fields = json!({"network_id": lan.network, "device_id": "a", "device_owner": "compute:nova"});
        let port = project.create("port", fields).await?;
        let site = Self { project, client, group, network: lan.network, port };
        let address = site.read().await?["fixed_ips"][0]["ip_address"].clone();
        let node = json!({"metadata": {"name": "node-a"}, "spec": {"providerID": "openstack:///a"}});
        site.nodes().create(&PostParams::default(), &serde_json::from_value(node)?).await?;
        site.set_status(&json!({"addresses": [{"type": "InternalIP", "address": address}]})).await?;
        site.set_ready(false).await?;
        Ok(site)
    }

    fn openstack(&self, url: &str) -> Result<OpenStack> {
        let auth = Auth::Password {
            user: User::Name(self.project.name.clone(), Domain::Id("default".into())),
            password: Secret::new(PASSWORD),
            project: openstack_client::Project::Id(self.project.id.clone()),
        };
        let config = Config::new(url, auth)?.region(REGION);
        Ok(OpenStack::new(openstack_client::Client::new(config)?, Duration::from_secs(30)))
    }

    fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    async fn set_status(&self, status: &Value) -> Result<()> {
        let patch = Patch::Strategic(json!({"status": status}));
        self.nodes().patch_status("node-a", &PatchParams::default(), &patch).await?;
        Ok(())
    }

    async fn set_ready(&self, ready: bool) -> Result<()> {
        let (status, now) = (if ready { "True" } else { "Unknown" }, jiff::Timestamp::now().to_string());
        let condition = json!({"type": "Ready", "status": status, "reason": "Bench", "message": "",
            "lastTransitionTime": now, "lastHeartbeatTime": now});
        self.set_status(&json!({"conditions": [condition]})).await
    }

    fn path(&self) -> String {
        format!("v2.0/ports/{}", self.port)
    }

    async fn read(&self) -> Result<Value> {
        Ok(self.project.get(Service::Network, &self.path()).await?["port"].take())
    }

    async fn set_groups(&self, groups: &[&str]) -> Result<()> {
        let body = json!({"port": {"security_groups": groups}});
        self.project.ask(Service::Network, Method::PUT, &self.path(), Some(&body)).await?.ok()?;
        Ok(())
    }

    async fn until_grouped(&self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while self.read().await?["security_groups"] != json!([self.group]) {
            ensure!(Instant::now() < deadline, "the port has no group after {PATIENCE:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// The least that any repairer asks: the group, the networks, the ports; then it writes and reads again.
    async fn bare_repair(&self) -> Result<()> {
        let ports = format!("v2.0/ports?network_id={}", self.network);
        for path in ["v2.0/security-groups?name=nodes", "v2.0/subnets", "v2.0/networks", &ports] {
            self.project.get(Service::Network, path).await?;
        }
        self.set_groups(&[&self.group]).await?;
        self.read().await.map(drop)
    }
}

struct Running {
    stop: CancellationToken,
    ended: JoinHandle<Result<(), StartError>>,
    admin: SocketAddr,
}

async fn start(plane: &ControlPlane, cloud: Cloud, flags: &[&str]) -> Result<Running> {
    let kubeconfig = plane.kubeconfig_path().to_str().context("a path that is no text")?;
    let common = ["flight", "--kubeconfig", kubeconfig, "--admin-address", "127.0.0.1:0", "--cluster-id", "bench"];
    let alone = ["--no-leader-election", "--pod-cidr", "198.19.0.0/16"];
    let line = Line::try_parse_from(common.iter().chain(&alone).chain(flags))?;
    let (stop, (tell, admin)) = (CancellationToken::new(), tokio::sync::oneshot::channel());
    let stopped = stop.clone();
    let ended = tokio::spawn(async move {
        run_until(stopped, CancellationToken::new(), "flight", line.runtime, async move |runtime| {
            // Whoever does not wait for it any more needs it no more.
            let _ = tell.send(runtime.admin);
            flight::start(&runtime, line.flight, Arc::new(cloud)).await
        })
        .await
    });
    Ok(Running { stop, ended, admin: admin.await? })
}

impl Running {
    async fn passes(&self) -> Result<f64> {
        metric(self.admin, PASSES).await
    }

    async fn until_passes(&self, least: f64) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while self.passes().await.unwrap_or_default() < least {
            ensure!(Instant::now() < deadline, "no pass within {PATIENCE:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    async fn stop(self) -> Result<()> {
        self.stop.cancel();
        self.ended.await?.map_err(|error| anyhow!("flight ended: {error}"))
    }
}
