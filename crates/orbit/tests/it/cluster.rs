//! The controller in a cluster: Nodes from a real API server, Events, metrics, leadership and the dry run.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use groundcrew_core::runtime::{RuntimeArgs, StartError, run_until};
use groundcrew_orbit::routegc;
use groundcrew_testkit::controller::{get, metric};
use groundcrew_testkit::eventually;
use groundcrew_testkit::kube::ControlPlane;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::events::v1::Event;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::world::{World, address, own, route};

const SOON: Duration = Duration::from_mins(3);

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    routegc: routegc::Args,
    #[command(flatten)]
    runtime: RuntimeArgs,
}

struct Running {
    admin: SocketAddr,
    stop: CancellationToken,
    ended: JoinHandle<Result<(), StartError>>,
}

impl Running {
    async fn start(world: &World, control_plane: &ControlPlane, namespace: &str, more: &[&str]) -> Self {
        let kubeconfig = control_plane.kubeconfig_path().to_str().unwrap();
        let line = [
            "test",
            "--pod-cidr",
            "100.100.0.0/16",
            "--interval",
            "300ms",
            "--sightings",
            "2",
            "--min-age",
            "100ms",
            "--max-percent",
            "50",
            "--kubeconfig",
            kubeconfig,
            "--lease-namespace",
            namespace,
            "--admin-address",
            "127.0.0.1:0",
            "--cluster-id",
            "test",
        ];
        let Line { routegc: args, runtime } = Line::parse_from(line.iter().chain(more));
        let (stop, (told, admin)) = (CancellationToken::new(), oneshot::channel());
        let cloud = Arc::new(world.cloud(Duration::from_secs(5)));
        let ended =
            tokio::spawn(run_until(stop.clone(), CancellationToken::new(), "routegc", runtime, async move |runtime| {
                let _ = told.send(runtime.admin);
                routegc::start(&runtime, args, cloud).await
            }));
        Self { admin: admin.await.unwrap(), stop, ended }
    }

    async fn until(&self, series: &str, probe: impl Fn(f64) -> bool) {
        eventually(series, SOON, async || {
            let value = metric(self.admin, series).await?;
            anyhow::ensure!(probe(value), "it is {value}");
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

/// Nodes are the whole cluster's, so this has one of its own.
async fn cluster(world: &World) -> (ControlPlane, Client) {
    let control_plane = ControlPlane::start().await.unwrap();
    let client = control_plane.client().await.unwrap();
    let nodes: Api<Node> = Api::all(client.clone());
    for node in &world.nodes {
        let range = node.pod_ranges[0].to_string();
        let spec = json!({"podCIDRs": [range], "podCIDR": range});
        let object = serde_json::from_value(json!({"metadata": {"name": node.name}, "spec": spec}));
        nodes.create(&PostParams::default(), &object.unwrap()).await.unwrap();
        let addresses = json!([{"type": "InternalIP", "address": node.addresses[0]}]);
        let status = Patch::Merge(json!({"status": {"addresses": addresses}}));
        nodes.patch_status(&node.name, &PatchParams::default(), &status).await.unwrap();
    }
    (control_plane, client)
}

async fn until_event(client: &Client, namespace: &str, reason: &str, about: &str, words: &str) {
    let events: Api<Event> = Api::namespaced(client.clone(), namespace);
    eventually(&format!("{reason} about {about}"), SOON, async || {
        let all = events.list(&ListParams::default()).await?.items;
        let is_it = |event: &Event| {
            let regarding = event.regarding.as_ref().and_then(|object| object.name.as_deref());
            event.reason.as_deref() == Some(reason)
                && regarding == Some(about)
                && event.note.as_deref().unwrap_or_default().contains(words)
        };
        let told: Vec<_> = all.iter().map(|event| (&event.reason, &event.note)).collect();
        anyhow::ensure!(all.iter().any(is_it), "there are {told:?}");
        Ok(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn in_a_cluster_a_dry_run_shows_a_leader_removes_and_everybody_is_told() {
    let mut world = World::model().await;
    for i in 1..=4 {
        world.join(i).await;
    }
    let duplicate = route("100.100.1.0/24", &address(77));
    world.add(&[own(9), duplicate]).await;
    let before = world.routes().await;
    let (control_plane, client) = cluster(&world).await;
    let namespace = control_plane.namespace("routegc").await.unwrap();
    let series = |state: &str| format!("groundcrew_routegc_routes{{router=\"{}\",state=\"{state}\"}}", world.router);

    let dry = Running::start(&world, &control_plane, &namespace, &["--dry-run"]).await;
    dry.until("groundcrew_routegc_passes_total{outcome=\"ok\"}", |passes| passes >= 5.0).await;
    dry.until(&series("orphan"), |n| n > 0.0).await;
    dry.stop().await;
    assert_eq!(world.routes().await, before, "a dry run writes nothing");
    assert!(world.fake().fake.lines().iter().all(|line| line.starts_with("GET ")));

    // While Keystone refuses, it is not ready and says why.
    world.fake().fake.refuse(true);
    world.fake().fake.revoke();
    let leader = Running::start(&world, &control_plane, &namespace, &[]).await;
    leader.until("groundcrew_routegc_condition_bool{condition=\"CloudUnavailable\"}", |is| is > 0.0).await;
    let (status, why) = get(leader.admin, "/readyz").await.unwrap();
    assert_eq!(status, 503);
    assert!(why.contains("keystone refuses"), "{why}");
    until_event(&client, &namespace, "CloudUnavailable", "groundcrew-routegc", "nothing is removed").await;

    world.fake().fake.refuse(false);
    leader.until("groundcrew_routegc_removed_total{kind=\"orphan\"}", |n| n > 0.0).await;
    leader.until("groundcrew_routegc_removed_total{kind=\"duplicate\"}", |n| n > 0.0).await;
    leader.until(&series("wanted"), |n| (n - 4.0).abs() < 0.1).await;
    assert_eq!(world.routes().await, (1..=4).map(own).collect());
    until_event(&client, &namespace, "CloudUnavailable", "groundcrew-routegc", "over: ").await;
    until_event(&client, &namespace, "RouteRemoved", "groundcrew-routegc", "100.100.9.0/24").await;
    until_event(&client, "default", "RouteRemoved", "n1", "stale duplicate").await;
    assert_eq!(get(leader.admin, "/readyz").await.unwrap().0, 200);

    // A cluster without Nodes is a wrong cluster.
    let nodes: Api<Node> = Api::all(client.clone());
    for node in &world.nodes {
        nodes.delete(&node.name, &kube::api::DeleteParams::default()).await.unwrap();
    }
    leader.until("groundcrew_routegc_condition_bool{condition=\"NodesUnknown\"}", |is| is > 0.0).await;
    let passes = "groundcrew_routegc_passes_total{outcome=\"failed\"}";
    let seen = metric(leader.admin, passes).await.unwrap();
    leader.until(passes, |n| n > seen + 4.0).await;
    assert_eq!(world.routes().await, (1..=4).map(own).collect());
    leader.stop().await;
}

/// A new copy looks once, while the leader has not removed an orphan yet; what it saw must not be told for ever.
#[tokio::test]
async fn a_follower_tells_of_no_routes() {
    let mut world = World::model().await;
    for i in 1..=4 {
        world.join(i).await;
    }
    world.add(&[own(9)]).await;
    let (control_plane, client) = cluster(&world).await;
    let namespace = control_plane.namespace("routegc").await.unwrap();
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": "groundcrew-routegc" },
        "spec": {
            "holderIdentity": "somebody-else", "leaseDurationSeconds": 3600, "leaseTransitions": 1,
            "acquireTime": now, "renewTime": now,
        },
    });
    let leases: Api<Lease> = Api::namespaced(client, &namespace);
    leases.patch("groundcrew-routegc", &PatchParams::apply("test"), &Patch::Apply(lease)).await.unwrap();
    let follower = Running::start(&world, &control_plane, &namespace, &[]).await;
    follower.until("groundcrew_routegc_passes_total{outcome=\"ok\"}", |passes| passes > 0.5).await;
    eventually("it has nothing to say", SOON, async || {
        let (_, page) = get(follower.admin, "/metrics").await?;
        anyhow::ensure!(!page.contains("groundcrew_routegc_route"), "{page}");
        Ok(())
    })
    .await
    .unwrap();
    follower.until("groundcrew_leader_leading_bool", |leads| leads < 0.5).await;
    follower.stop().await;
}
