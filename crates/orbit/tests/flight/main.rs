//! `groundcrew flight` on a real kube-apiserver and a real Neutron.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test's helpers are tests too")]

mod cloud;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Parser;
use groundcrew_api::node_repair::{NodeRepair, RepairStep};
use groundcrew_core::runtime::{RuntimeArgs, StartError, run_until};
use groundcrew_openstack_cloud::OpenStack;
use groundcrew_orbit::flight::{self, Args};
use groundcrew_testkit::eventually;
use groundcrew_testkit::kube::ControlPlane;
use groundcrew_testkit::openstack::{self, Method, PASSWORD, REGION, Service};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::events::v1::Event;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use openstack_client::{Auth, Config, Domain, Secret, User};
use serde_json::{Value, from_value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use cloud::Cloud;

const SOON: Duration = Duration::from_mins(1);
const LONG_AGO: &str = "2026-01-01T00:00:00Z";

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    flight: Args,
    #[command(flatten)]
    runtime: RuntimeArgs,
}

/// A cluster of its own: every Node of it counts.
struct Lab {
    plane: ControlPlane,
    client: Client,
    cloud: Cloud,
}

struct Running {
    stop: CancellationToken,
    ended: JoinHandle<Result<(), StartError>>,
}

impl Running {
    async fn stop(self) {
        self.stop.cancel();
        self.ended.await.unwrap().unwrap();
    }
}

impl Lab {
    async fn new() -> Self {
        let plane = ControlPlane::start().await.unwrap();
        plane.define(&groundcrew_api::crds()).await.unwrap();
        let client = plane.client().await.unwrap();
        Self { plane, client, cloud: Cloud::default() }
    }

    fn start(&self, flags: &[&str]) -> Running {
        let kubeconfig = self.plane.kubeconfig_path().to_str().unwrap();
        let common = ["flight", "--kubeconfig", kubeconfig, "--admin-address", "127.0.0.1:0", "--cluster-id", "test"];
        let alone = ["--no-leader-election", "--pod-cidr", "198.19.0.0/16", "--interval", "1s"];
        let line = Line::parse_from(common.iter().chain(&alone).chain(flags));
        let (stop, cloud) = (CancellationToken::new(), Arc::new(self.cloud.clone()));
        let stopped = stop.clone();
        let ended = tokio::spawn(async move {
            run_until(stopped, CancellationToken::new(), "flight", line.runtime, async move |runtime| {
                flight::start(&runtime, line.flight, cloud).await
            })
            .await
        });
        Running { stop, ended }
    }

    /// A Node that is the server of this id.
    async fn node(&self, server: &str, address: &str, ready: bool) {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let name = format!("node-{server}");
        let node = json!({"metadata": {"name": name}, "spec": {"providerID": format!("openstack:///{server}")}});
        nodes.create(&PostParams::default(), &from_value(node).unwrap()).await.unwrap();
        let addresses = json!([{"type": "InternalIP", "address": address}]);
        self.set_status(server, &json!({"addresses": addresses})).await;
        self.set_ready(server, ready).await;
    }

    async fn set_ready(&self, server: &str, ready: bool) {
        let status = if ready { "True" } else { "Unknown" };
        let condition = json!({"type": "Ready", "status": status, "reason": "Test", "message": "",
            "lastTransitionTime": LONG_AGO, "lastHeartbeatTime": LONG_AGO});
        self.set_status(server, &json!({"conditions": [condition]})).await;
    }

    async fn set_status(&self, server: &str, status: &Value) {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let patch = Patch::Strategic(json!({"status": status}));
        nodes.patch_status(&format!("node-{server}"), &PatchParams::default(), &patch).await.unwrap();
    }

    fn repairs(&self) -> Api<NodeRepair> {
        Api::all(self.client.clone())
    }

    /// Waits until somebody told this about the Node.
    async fn told(&self, server: &str, reason: &str) {
        let events: Api<Event> = Api::all(self.client.clone());
        let about = format!("node-{server}");
        eventually(&format!("{reason} is told about {about}"), SOON, async || {
            let all = events.list(&ListParams::default()).await?.items;
            let found = all.iter().any(|event| {
                let regarding = event.regarding.as_ref().and_then(|regarding| regarding.name.as_deref());
                regarding == Some(about.as_str()) && event.reason.as_deref() == Some(reason)
            });
            ensure!(found, "{} Events", all.len());
            Ok(())
        })
        .await
        .unwrap();
    }
}

/// The cloud as a member of this project sees it.
fn neutron(openstack: &openstack::Cloud, project: &openstack::Project) -> Arc<OpenStack> {
    let auth = Auth::Password {
        user: User::Name(project.name.clone(), Domain::Id("default".into())),
        password: Secret::new(PASSWORD),
        project: openstack_client::Project::Id(project.id.clone()),
    };
    let config = Config::new(&openstack.auth_url(), auth).unwrap().region(REGION);
    Arc::new(OpenStack::new(openstack_client::Client::new(config).unwrap(), Duration::from_secs(30)))
}

#[tokio::test]
async fn what_the_group_and_a_port_lost_is_back_in_a_real_neutron() {
    let mut lab = Lab::new().await;
    let openstack = openstack::shared().await.unwrap();
    let project = openstack.project("flight").await.unwrap();
    lab.cloud.neutron = Some(neutron(openstack, &project));

    let lan = project.lan("10.180.0.0/16").await.unwrap();
    let group = project.create("security_group", json!({"name": "nodes"})).await.unwrap();
    let bare = |server: &str| json!({"network_id": lan.network, "device_id": server, "device_owner": "compute:nova", "security_groups": []});
    let port = project.create("port", bare("a")).await.unwrap();
    let foreign = project.create("port", bare("foreign")).await.unwrap();
    let mut open = bare("a");
    open["port_security_enabled"] = json!(false);
    let open = project.create("port", open).await.unwrap();
    let read =
        async |id: &str| project.get(Service::Network, &format!("v2.0/ports/{id}")).await.unwrap()["port"].clone();
    let address = read(&port).await["fixed_ips"][0]["ip_address"].as_str().unwrap().to_owned();
    lab.cloud.boot("a");
    lab.cloud.boot("foreign");
    lab.node("a", &address, true).await;

    let running = lab.start(&["--security-group", "nodes", "--server-tag", "k8s"]);
    let repaired = async || {
        let found = project.get(Service::Network, &format!("v2.0/security-groups/{group}")).await?;
        let rules = found["security_group"]["security_group_rules"].as_array().context("rules")?;
        let pods = rules.iter().filter(|rule| rule["remote_ip_prefix"] == "198.19.0.0/16");
        let mut pods: Vec<_> = pods.filter_map(|rule| rule["protocol"].as_str()).collect();
        pods.sort_unstable();
        ensure!(pods == ["icmp", "tcp", "udp"], "{pods:?}");
        let groups = &read(&port).await["security_groups"];
        ensure!(*groups == json!([group]), "{groups}");
        Ok(())
    };
    eventually("the group has its rules and the port its group", SOON, repaired).await.unwrap();
    lab.told("a", "GroupAdded").await;
    assert_eq!(lab.cloud.tags("a"), ["k8s".to_owned()].into());

    // Somebody takes it away again.
    let path = format!("v2.0/ports/{port}");
    let none = json!({"port": {"security_groups": []}});
    project.ask(Service::Network, Method::PUT, &path, Some(&none)).await.unwrap().ok().unwrap();
    eventually("the port has its group again", SOON, repaired).await.unwrap();
    running.stop().await;

    assert_eq!(read(&foreign).await["security_groups"], json!([]), "no Node's");
    assert_eq!(read(&open).await["security_groups"], json!([]), "it cannot have one");
    assert_eq!(lab.cloud.orders(), [""; 0]);
}

#[tokio::test]
async fn a_node_shows_that_its_route_is_missing_until_neutron_has_it() {
    let mut lab = Lab::new().await;
    let openstack = openstack::shared().await.unwrap();
    let project = openstack.project("routes").await.unwrap();
    lab.cloud.neutron = Some(neutron(openstack, &project));
    let lan = project.lan("10.180.0.0/16").await.unwrap();
    lab.cloud.boot("a");
    lab.node("a", "10.180.0.7", true).await;
    let nodes: Api<Node> = Api::all(lab.client.clone());
    let range = Patch::Merge(json!({"spec": {"podCIDR": "198.19.1.0/24", "podCIDRs": ["198.19.1.0/24"]}}));
    nodes.patch("node-a", &PatchParams::default(), &range).await.unwrap();
    let shows = async |status: &str| {
        eventually(&format!("RouteMissing is {status}"), SOON, async || {
            let conditions = nodes.get("node-a").await?.status.and_then(|status| status.conditions).unwrap_or_default();
            let found = conditions.iter().find(|condition| condition.type_ == "RouteMissing").context("not there")?;
            ensure!(found.status == status, "{found:?}");
            Ok(())
        })
        .await
        .unwrap();
    };

    let running = lab.start(&["--router", &lan.router]);
    shows("True").await;
    let routes = json!({"router": {"routes": [{"destination": "198.19.1.0/24", "nexthop": "10.180.0.7"}]}});
    let path = format!("v2.0/routers/{}/add_extraroutes", lan.router);
    project.ask(Service::Network, Method::PUT, &path, Some(&routes)).await.unwrap().ok().unwrap();
    shows("False").await;
    running.stop().await;
    lab.told("a", "RouteMissing").await;
}

#[tokio::test]
async fn the_ladder_goes_on_after_a_restart_where_it_was_and_ends_without_a_delete() {
    let lab = Lab::new().await;
    for (server, ready) in [("a", false), ("b", true), ("c", true)] {
        lab.cloud.boot(server);
        lab.node(server, "10.180.0.7", ready).await;
    }
    let quick = ["--nodes", "repair", "--steady-for", "0s", "--unready-after", "1s"];
    let ordered = async |expected: &[&str]| {
        eventually("the orders", SOON, async || {
            let orders = lab.cloud.orders();
            ensure!(orders == expected, "{orders:?}");
            Ok(())
        })
        .await
        .unwrap();
    };

    let first = lab.start(&[&quick[..], &["--cooldown", "1h"]].concat());
    ordered(&["Soft a"]).await;
    lab.told("a", "SoftReboot").await;
    first.stop().await;
    let kept = lab.repairs().get("a").await.unwrap();
    assert_eq!((kept.spec.node.as_deref(), kept.status.unwrap().step), (Some("node-a"), RepairStep::SoftReboot));

    let second = lab.start(&[&quick[..], &["--cooldown", "1s"]].concat());
    ordered(&["Soft a", "Hard a"]).await;
    let exhausted = async || {
        let events: Api<Event> = Api::all(lab.client.clone());
        let all = events.list(&ListParams::default()).await?.items;
        let notes = all.iter().filter_map(|event| event.note.as_deref());
        ensure!(notes.into_iter().any(|note| note.contains("is still sick after all that may be done")), "not told");
        Ok(())
    };
    eventually("it is told that nothing helps", SOON, exhausted).await.unwrap();
    lab.set_ready("a", true).await;
    eventually("a server that is well is forgotten", SOON, async || {
        let left = lab.repairs().list(&ListParams::default()).await?.items;
        ensure!(left.is_empty(), "{left:?}");
        Ok(())
    })
    .await
    .unwrap();
    second.stop().await;
    assert_eq!(lab.cloud.orders(), ["Soft a", "Hard a"]);
}

#[tokio::test]
async fn a_reboot_that_the_cloud_refuses_is_tried_again_and_never_climbed_from() {
    let lab = Lab::new().await;
    for (server, ready) in [("a", false), ("b", true), ("c", true)] {
        lab.cloud.boot(server);
        lab.node(server, "10.180.0.7", ready).await;
    }
    lab.cloud.refuse(true);
    let quick = ["--nodes", "repair", "--delete-servers", "--steady-for", "0s", "--unready-after", "1s"];
    let running = lab.start(&[&quick[..], &["--cooldown", "1s"]].concat());
    eventually("three refusals", SOON, async || {
        let orders = lab.cloud.orders();
        ensure!(orders.len() >= 3, "{orders:?}");
        Ok(())
    })
    .await
    .unwrap();
    lab.told("a", "RepairFailed").await;
    lab.cloud.refuse(false);
    eventually("the first order that is taken", SOON, async || {
        let orders = lab.cloud.orders();
        let taken = orders.iter().find(|order| !order.starts_with("no ")).context("none")?;
        ensure!(taken == "Soft a", "{orders:?}");
        Ok(())
    })
    .await
    .unwrap();
    running.stop().await;
    let orders = lab.cloud.orders();
    assert!(orders.iter().take_while(|order| order.starts_with("no ")).all(|order| order == "no Soft a"), "{orders:?}");
}

#[tokio::test]
async fn by_default_a_sick_server_is_told_and_not_touched() {
    let lab = Lab::new().await;
    for (server, ready) in [("a", false), ("b", true), ("c", true)] {
        lab.cloud.boot(server);
        lab.node(server, "10.180.0.7", ready).await;
    }
    let running = lab.start(&["--steady-for", "0s", "--unready-after", "1s"]);
    lab.told("a", "ServerSick").await;
    running.stop().await;
    assert_eq!(lab.cloud.orders(), [""; 0]);
    assert_eq!(lab.repairs().list(&ListParams::default()).await.unwrap().items, []);
}
