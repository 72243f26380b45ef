//! `groundcrew flight` on a real kube-apiserver and a real Neutron.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test's helpers are tests too")]

mod bad_input;
mod cloud;
mod leading;
mod push;

use std::fs::Permissions;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Parser;
use groundcrew_api::net_probe::{Report, lease_of};
use groundcrew_api::node_repair::{NodeRepair, RepairOutcome, RepairStep};
use groundcrew_core::leader::Moment;
use groundcrew_core::provider::{Access, Instances, Ports, Routes, SecurityGroups};
use groundcrew_core::runtime::{RuntimeArgs, StartError, run_until};
use groundcrew_openstack_cloud::OpenStack;
use groundcrew_orbit::flight::{self, Args};
use groundcrew_testkit::controller::metric;
use groundcrew_testkit::kube::{ControlPlane, Part};
use groundcrew_testkit::openstack::{self, Method, PASSWORD, REGION, Service};
use groundcrew_testkit::{Scratch, Signal, eventually};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::events::v1::Event;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use openstack_client::{Auth, Config, Domain, Secret, User};
use serde_json::{Value, from_value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use cloud::Cloud;

const SOON: Duration = Duration::from_mins(3);
/// With a Neutron that is slow: a write that was given up is one more, and seldom undone.
const PATIENCE: Duration = Duration::from_mins(1);
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
    admin: SocketAddr,
}

impl Running {
    /// Waits until a metric is as `probe` wants it.
    async fn until_metric(&self, series: &str, probe: impl Fn(f64) -> bool) {
        eventually(series, SOON, async || {
            let value = metric(self.admin, series).await?;
            ensure!(probe(value), "it is {value}");
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

impl Lab {
    async fn new() -> Self {
        let plane = ControlPlane::start().await.unwrap();
        plane.define(&groundcrew_api::crds()).await.unwrap();
        let client = plane.client().await.unwrap();
        Self { plane, client, cloud: Cloud::default() }
    }

    async fn start(&self, flags: &[&str]) -> Running {
        self.start_on(Arc::new(self.cloud.clone()), flags).await
    }

    async fn start_on<C>(&self, cloud: Arc<C>, flags: &[&str]) -> Running
    where
        C: Access + Instances + Ports + Routes + SecurityGroups,
    {
        let kubeconfig = self.plane.kubeconfig_path().to_str().unwrap();
        let common = ["flight", "--kubeconfig", kubeconfig, "--admin-address", "127.0.0.1:0", "--cluster-id", "test"];
        let often = ["--pod-cidr", "198.19.0.0/16", "--interval", "1s"];
        // Who names a namespace for the Lease wants one.
        let alone = (!flags.contains(&"--lease-namespace")).then_some("--no-leader-election");
        let line = Line::parse_from(common.iter().chain(&often).chain(&alone).chain(flags));
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let (tell_admin, admin) = oneshot::channel();
        let ended = tokio::spawn(async move {
            run_until(stopped, CancellationToken::new(), "flight", line.runtime, async move |runtime| {
                tell_admin.send(runtime.admin).unwrap();
                flight::start(&runtime, line.flight, cloud).await
            })
            .await
        });
        Running { stop, ended, admin: admin.await.unwrap() }
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

    /// What the probe of a Node says.
    async fn report(&self, of: &str, reached: &[&str], unreached: &[&str]) {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), "default");
        let names = |names: &[&str]| names.iter().map(|name| format!("node-{name}")).collect();
        let report = Report { node: format!("node-{of}"), reached: names(reached), unreached: names(unreached) };
        let lease = report.lease(Timestamp::now(), Duration::from_mins(10));
        let apply = PatchParams::apply("test").force();
        leases.patch(&lease_of(&report.node), &apply, &Patch::Apply(&lease)).await.unwrap();
    }

    /// Gives pods to a Node.
    async fn pods(&self, server: &str, range: &str) {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let range = Patch::Merge(json!({"spec": {"podCIDR": range, "podCIDRs": [range]}}));
        nodes.patch(&format!("node-{server}"), &PatchParams::default(), &range).await.unwrap();
    }

    fn repairs(&self) -> Api<NodeRepair> {
        Api::all(self.client.clone())
    }

    /// The notes of the Events of this reason about this object.
    async fn events(&self, about: &str, reason: &str) -> anyhow::Result<Vec<String>> {
        let events: Api<Event> = Api::all(self.client.clone());
        let all = events.list(&ListParams::default()).await?.items.into_iter().filter(|event| {
            let regarding = event.regarding.as_ref().and_then(|regarding| regarding.name.as_deref());
            regarding == Some(about) && event.reason.as_deref() == Some(reason)
        });
        Ok(all.filter_map(|event| event.note).collect())
    }

    /// Waits until somebody told this about the Node.
    async fn told(&self, server: &str, reason: &str) {
        self.told_about(&format!("node-{server}"), reason).await;
    }

    async fn told_about(&self, about: &str, reason: &str) {
        eventually(&format!("{reason} is told about {about}"), SOON, async || {
            ensure!(!self.events(about, reason).await?.is_empty(), "not yet");
            Ok(())
        })
        .await
        .unwrap();
    }

    /// Waits until a Node shows this.
    async fn shows(&self, server: &str, condition: &str, status: &str) {
        let nodes: Api<Node> = Api::all(self.client.clone());
        eventually(&format!("{condition} of node-{server} is {status}"), SOON, async || {
            let node = nodes.get(&format!("node-{server}")).await?;
            let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
            let found = conditions.iter().find(|one| one.type_ == condition).context("not there")?;
            ensure!(found.status == status, "{found:?}");
            Ok(())
        })
        .await
        .unwrap();
    }
}

/// The counter of this action with this outcome.
fn steps(action: &str, outcome: &str) -> String {
    format!("groundcrew_flight_steps_total{{action=\"{action}\",outcome=\"{outcome}\"}}")
}

/// The cloud as a member of this project sees it.
fn neutron(openstack: &openstack::Cloud, project: &openstack::Project) -> Arc<OpenStack> {
    let auth = Auth::Password {
        user: User::Name(project.name.clone(), Domain::Id("default".into())),
        password: Secret::new(PASSWORD),
        project: openstack_client::Project::Id(project.id.clone()),
    };
    let config = Config::new(&openstack.auth_url(), auth).unwrap().region(REGION).attempt_timeout(PATIENCE);
    Arc::new(OpenStack::new(openstack_client::Client::new(config).unwrap(), PATIENCE))
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

    let running = lab.start(&["--security-group", "nodes", "--server-tag", "k8s"]).await;
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
    lab.pods("a", "198.19.1.0/24").await;
    let running = lab.start(&["--router", &lan.router, "--required-role", "member,admin"]).await;
    lab.shows("a", "RouteMissing", "True").await;
    let routes = json!({"router": {"routes": [{"destination": "198.19.1.0/24", "nexthop": "10.180.0.7"}]}});
    let path = format!("v2.0/routers/{}/add_extraroutes", lan.router);
    project.ask(Service::Network, Method::PUT, &path, Some(&routes)).await.unwrap().ok().unwrap();
    lab.shows("a", "RouteMissing", "False").await;
    lab.told_about("groundcrew-flight", "RolesMissing").await;
    lab.told("a", "RouteMissing").await;
    running.stop().await;
    let roles = lab.events("groundcrew-flight", "RolesMissing").await.unwrap();
    assert!(roles[0].contains(": admin;"), "Keystone gives it member and no more: {roles:?}");
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

    let first = lab.start(&[&quick[..], &["--cooldown", "1h"]].concat()).await;
    ordered(&["Soft a"]).await;
    lab.told("a", "SoftReboot").await;
    first.until_metric(&steps("soft_reboot", "done"), |n| (n - 1.0).abs() < 0.1).await;
    first.stop().await;
    let kept = lab.repairs().get("a").await.unwrap();
    let status = kept.status.unwrap();
    assert_eq!((kept.spec.node.as_deref(), status.step), (Some("node-a"), RepairStep::SoftReboot));
    assert_eq!(status.outcome, RepairOutcome::Ordered);

    let second = lab.start(&[&quick[..], &["--cooldown", "1s"]].concat()).await;
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
    let running = lab.start(&[&quick[..], &["--cooldown", "1s"]].concat()).await;
    eventually("three refusals", SOON, async || {
        let orders = lab.cloud.orders();
        ensure!(orders.len() >= 3, "{orders:?}");
        Ok(())
    })
    .await
    .unwrap();
    lab.told("a", "RepairFailed").await;
    running.until_metric(&steps("soft_reboot", "failed"), |n| n >= 3.0).await;
    lab.shows("a", "RepairRefused", "True").await;
    // Each further try is noted as begun first.
    eventually("the refusal is noted", SOON, async || {
        let status = lab.repairs().get("a").await?.status.context("no status")?;
        let noted = (status.outcome, status.refusal.as_deref());
        ensure!(noted == (RepairOutcome::Refused, Some("not in this state")), "{noted:?}");
        Ok(())
    })
    .await
    .unwrap();
    lab.cloud.refuse(false);
    eventually("the first order that is taken", SOON, async || {
        let orders = lab.cloud.orders();
        let taken = orders.iter().find(|order| !order.starts_with("no ")).context("none")?;
        ensure!(taken == "Soft a", "{orders:?}");
        Ok(())
    })
    .await
    .unwrap();
    lab.shows("a", "RepairRefused", "False").await;
    running.stop().await;
    let told = lab.events("node-a", "RepairFailed").await.unwrap();
    assert_eq!(told.iter().filter(|note| note.contains("not in this state")).count(), 1, "told once: {told:?}");
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
    let running = lab.start(&["--steady-for", "0s", "--unready-after", "1s"]).await;
    lab.told("a", "ServerSick").await;
    running.until_metric(&steps("soft_reboot", "reported"), |n| (n - 1.0).abs() < 0.1).await;
    running.stop().await;
    assert_eq!(lab.cloud.orders(), [""; 0]);
    assert_eq!(lab.repairs().list(&ListParams::default()).await.unwrap().items, []);
}

#[tokio::test]
async fn a_cloud_that_is_down_is_told_and_nothing_is_repaired_before_it_has_answered_for_a_while() {
    let lab = Lab::new().await;
    for (server, ready) in [("a", false), ("b", true), ("c", true)] {
        lab.cloud.boot(server);
        lab.node(server, "10.180.0.7", ready).await;
    }
    lab.cloud.down(true);
    let running = lab.start(&["--nodes", "repair", "--steady-for", "1h", "--unready-after", "1s"]).await;
    running.until_metric("groundcrew_flight_condition_bool{condition=\"CloudUnavailable\"}", |so| so > 0.5).await;
    lab.told_about("groundcrew-flight", "CloudUnavailable").await;
    lab.cloud.down(false);
    running.until_metric("groundcrew_flight_condition_bool{condition=\"RepairsHeld\"}", |so| so > 0.5).await;
    running.until_metric("groundcrew_flight_condition_bool{condition=\"CloudUnavailable\"}", |so| so < 0.5).await;
    lab.told_about("groundcrew-flight", "RepairsHeld").await;
    running.stop().await;
    assert_eq!(lab.cloud.orders(), [""; 0]);
}

#[tokio::test]
async fn an_api_server_that_was_away_has_to_answer_for_a_while_before_a_server_is_repaired() {
    const STEADY: Duration = Duration::from_secs(20);
    let mut lab = Lab::new().await;
    for (server, ready) in [("a", false), ("b", true), ("c", true)] {
        lab.cloud.boot(server);
        lab.node(server, "10.180.0.7", ready).await;
    }
    let (passes, held) = ("groundcrew_flight_passes_total{outcome=\"ok\"}", "RepairsHeld");
    let condition = |name: &str| format!("groundcrew_flight_condition_bool{{condition=\"{name}\"}}");
    let running = lab.start(&["--nodes", "repair", "--steady-for", "20s", "--unready-after", "1s"]).await;
    running.until_metric(&condition(held), |so| so > 0.5).await;
    let began = Moment::now();
    lab.plane.stop(Part::ApiServer, Signal::SIGKILL).await.unwrap();
    running.until_metric(&condition("NodesUnknown"), |so| so > 0.5).await;
    let before = metric(running.admin, passes).await.unwrap();
    eventually("the first pass is long enough ago", SOON, async || {
        ensure!(began.until(Moment::now()) > STEADY, "not yet");
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(lab.cloud.orders(), [""; 0]);
    // It answers for a while before it says that it is ready, and the time begins with the first answer.
    let Lab { plane, cloud, .. } = &mut lab;
    let looked = async {
        running.until_metric(passes, |passes| passes > before).await;
        running.until_metric(&condition(held), |so| so > 0.5).await;
        assert_eq!(cloud.orders(), [""; 0], "the time begins anew");
    };
    let (restarted, ()) = tokio::join!(plane.restart(Part::ApiServer), looked);
    restarted.unwrap();
    running.stop().await;
}

#[tokio::test]
async fn one_probe_is_only_told_and_two_that_agree_are_shown_and_have_the_hook_called() {
    let lab = Lab::new().await;
    for server in ["a", "b", "c"] {
        lab.cloud.boot(server);
        lab.node(server, "10.180.0.7", true).await;
    }
    let scratch = Scratch::new("hook").unwrap();
    let (hook, called) = (scratch.path().join("hook"), scratch.path().join("called"));
    std::fs::write(&hook, format!("#!/bin/sh\necho \"$@\" >> {}\n", called.display())).unwrap();
    std::fs::set_permissions(&hook, Permissions::from_mode(0o755)).unwrap();
    let doubted = "groundcrew_flight_condition_bool{condition=\"ProbesDoubted\"}";

    lab.report("a", &["b"], &["c"]).await;
    let quick = ["--unreachable-after", "1s", "--push-every", "1s", "--routes", "repair"];
    let hooked = ["--probe-namespace", "default", "--resync-hook", hook.to_str().unwrap()];
    let running = lab.start(&[&quick[..], &hooked].concat()).await;
    running.until_metric(doubted, |so| so > 0.5).await;
    running.until_metric("groundcrew_flight_passes_total{outcome=\"ok\"}", |passes| passes >= 5.0).await;
    assert!(!called.exists(), "one voice is not enough");
    lab.told_about("groundcrew-flight", "ProbesDoubted").await;

    lab.report("b", &["a"], &["c"]).await;
    lab.shows("c", "PodNetworkUnreachable", "True").await;
    running.until_metric(doubted, |so| so < 0.5).await;
    eventually("the hook is called", SOON, async || {
        let calls = std::fs::read_to_string(&called)?;
        ensure!(!calls.is_empty() && calls.lines().all(|call| call == "node-c"), "{calls}");
        anyhow::Ok(())
    })
    .await
    .unwrap();

    lab.report("b", &["a", "c"], &[]).await;
    lab.shows("c", "PodNetworkUnreachable", "False").await;
    running.stop().await;
    let nodes: Api<Node> = Api::all(lab.client.clone());
    for node in ["node-a", "node-b"] {
        let conditions = nodes.get(node).await.unwrap().status.and_then(|status| status.conditions).unwrap_or_default();
        assert!(conditions.iter().all(|one| one.type_ != "PodNetworkUnreachable"), "{node}");
    }
}
