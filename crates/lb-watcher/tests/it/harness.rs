//! One test's project as kube-dc makes it, and watchers inside the test process.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use clap::Parser;
use groundcrew_api::names::annotation::LB_RESYNC_TIMESTAMP;
use groundcrew_core::runtime::{RuntimeArgs, StartError, run_until};
use groundcrew_testkit::controller::{get, metric};
use groundcrew_testkit::eventually;
use groundcrew_testkit::kube::{ControlPlane, is_told_by_us, shared};
use groundcrew_testkit::ovn::Northbound;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::events::v1::Event;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::manager::{self, Manager};

/// Generous: a loaded two-core machine, not the watcher, decides how long things take here.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// What a watcher that looks needs to see something. When it is over, it is shown once more.
const SHORTLY: Duration = Duration::from_secs(2);

const KUBE_OVN_CHANGES: &str = "groundcrew_watcher_kube_ovn_changes_total";

/// What kube-ovn keeps of its own for one VPC.
pub(crate) const NATIVE: [&str; 6] = [
    "vpc-x-tcp-load",
    "vpc-x-udp-load",
    "vpc-x-sctp-load",
    "vpc-x-tcp-sess-load",
    "vpc-x-udp-sess-load",
    "vpc-x-sctp-sess-load",
];

#[derive(Parser)]
struct Args {
    #[command(flatten)]
    runtime: RuntimeArgs,
    #[command(flatten)]
    watcher: groundcrew_lb_watcher::Args,
}

pub(crate) struct Project {
    pub(crate) control_plane: &'static ControlPlane,
    pub(crate) client: Client,
    pub(crate) namespace: String,
    pub(crate) northbound: Northbound,
    next: AtomicU8,
}

pub(crate) struct Watcher {
    admin: SocketAddr,
    stop: CancellationToken,
    ended: JoinHandle<Result<(), StartError>>,
}

impl Watcher {
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        self.ended.await.unwrap().unwrap();
    }

    pub(crate) async fn metric(&self, series: &str) -> f64 {
        metric(self.admin, series).await.unwrap()
    }

    pub(crate) async fn until_metric(&self, series: &str, probe: impl Fn(f64) -> bool) {
        eventually(series, SOON, async || {
            let value = metric(self.admin, series).await?;
            anyhow::ensure!(probe(value), "it is {value}");
            Ok(())
        })
        .await
        .unwrap();
    }

    pub(crate) async fn until_ready(&self) {
        eventually("the watcher is ready", SOON, async || match get(self.admin, "/readyz").await? {
            (200, _) => Ok(()),
            (_, why) => Err(anyhow::anyhow!(why)),
        })
        .await
        .unwrap();
    }

    /// Waits until readiness says what it waits for.
    pub(crate) async fn until_unready(&self, what: &str) {
        eventually("the watcher is not ready", SOON, async || match get(self.admin, "/readyz").await? {
            (503, why) if why.contains(what) && why.contains("refused") => Ok(()),
            (status, why) => Err(anyhow::anyhow!("{status} {why}")),
        })
        .await
        .unwrap();
    }

    /// How often it has seen kube-ovn-controller restart or change its leader.
    pub(crate) async fn kube_ovn_changes(&self) -> f64 {
        self.metric(KUBE_OVN_CHANGES).await
    }

    async fn until_kube_ovn_changes(&self, so_far: f64, within: Duration) -> anyhow::Result<()> {
        eventually(KUBE_OVN_CHANGES, within, async || {
            let now = metric(self.admin, KUBE_OVN_CHANGES).await?;
            anyhow::ensure!(now > so_far + 0.5, "it is {now}");
            Ok(())
        })
        .await
    }

    /// Waits until so many Services were seen as they should be.
    pub(crate) async fn until_watches(&self, services: u32) {
        self.until_metric("groundcrew_watcher_services", |n| n >= f64::from(services)).await;
        self.until_metric("groundcrew_drift_open_services", |n| n < 0.5).await;
    }

    /// All drift found so far, whatever it was.
    pub(crate) async fn found(&self) -> f64 {
        self.sum("groundcrew_drift_found_total").await
    }

    async fn sum(&self, metric: &str) -> f64 {
        let (_, page) = get(self.admin, "/metrics").await.unwrap();
        let series = page.lines().filter(|line| line.strip_prefix(metric).is_some_and(|rest| rest.starts_with('{')));
        series.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
    }

    /// Waits until as much was repaired as was found: nothing is open.
    pub(crate) async fn until_even(&self) {
        eventually("found and repaired are even", SOON, async || {
            let (found, repaired) = (self.found().await, self.sum("groundcrew_drift_repaired_total").await);
            anyhow::ensure!(found > 0.5 && (found - repaired).abs() < 0.1, "{found} found, {repaired} repaired");
            Ok(())
        })
        .await
        .unwrap();
    }

    pub(crate) async fn until_found(&self, kind: &str, cause: &str, at_least: f64) {
        let series = format!("groundcrew_drift_found_total{{cause=\"{cause}\",kind=\"{kind}\"}}");
        self.until_metric(&series, |n| n >= at_least).await;
    }

    pub(crate) async fn until_repaired(&self, kind: &str, cause: &str, at_least: f64) {
        let series = format!("groundcrew_drift_repaired_total{{cause=\"{cause}\",kind=\"{kind}\"}}");
        self.until_metric(&series, |n| n >= at_least).await;
    }
}

impl Project {
    /// With its router, its switch, and kube-ovn's own six load balancers.
    pub(crate) async fn new(name: &str) -> Self {
        Self::on(name, Northbound::standalone().await.unwrap()).await
    }

    /// On a database of the test's choice.
    pub(crate) async fn on(name: &str, northbound: Northbound) -> Self {
        let control_plane = shared().await.unwrap();
        let client = control_plane.client().await.unwrap();
        let namespace = control_plane.namespace(name).await.unwrap();
        let project = Self { control_plane, client, namespace, northbound, next: AtomicU8::new(1) };
        project.connect().await;
        project
    }

    pub(crate) async fn connect(&self) {
        let mut line = vec!["lr-add".to_owned(), self.namespace.clone()];
        line.extend(["--", "ls-add"].map(str::to_owned));
        line.push(format!("{}-default", self.namespace));
        for name in NATIVE {
            line.extend(["--", "lb-add", name, "10.96.0.1:443", "10.1.0.1:6443"].map(str::to_owned));
        }
        self.northbound.nbctl(&line).await.unwrap();
    }

    pub(crate) fn services(&self) -> Api<Service> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// The row of a Service of this project.
    pub(crate) fn row(&self, service: &str) -> String {
        format!("{}-{service}-tcp", self.namespace)
    }

    /// A Service that kube-dc has served: with an address, endpoints and its row. Returns the address.
    pub(crate) async fn served(&self, name: &str) -> String {
        let address = self.publish(name).await;
        manager::build(&self.northbound.remotes(), &self.client, &self.namespace, name).await.unwrap();
        address
    }

    /// A Service with an address and endpoints, and no row.
    pub(crate) async fn publish(&self, name: &str) -> String {
        self.publish_in(&self.namespace, name).await
    }

    pub(crate) async fn publish_in(&self, namespace: &str, name: &str) -> String {
        let service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": { "name": name },
            "spec": {
                "type": "LoadBalancer", "allocateLoadBalancerNodePorts": false,
                "ports": [{ "name": "http", "port": 80, "targetPort": "web" }],
            },
        });
        let services: Api<Service> = Api::namespaced(self.client.clone(), namespace);
        self.endpoints_in(namespace, name, &["10.1.0.41", "10.1.0.42"]).await;
        services.create(&PostParams::default(), &serde_json::from_value(service).unwrap()).await.unwrap();
        let address = format!("192.0.2.{}", self.next.fetch_add(1, Ordering::Relaxed));
        let status = json!({ "status": { "loadBalancer": { "ingress": [{ "ip": address, "ipMode": "Proxy" }] } } });
        services.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
        address
    }

    pub(crate) async fn endpoints(&self, service: &str, addresses: &[&str]) {
        self.endpoints_in(&self.namespace, service, addresses).await;
    }

    async fn endpoints_in(&self, namespace: &str, service: &str, addresses: &[&str]) {
        let endpoints: Vec<_> =
            addresses.iter().map(|a| json!({ "addresses": [a], "conditions": { "ready": true } })).collect();
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": { "name": service, "labels": { "kubernetes.io/service-name": service } },
            "addressType": "IPv4",
            "ports": [{ "name": "http", "protocol": "TCP", "port": 8080 }],
            "endpoints": endpoints,
        });
        let api: Api<EndpointSlice> = Api::namespaced(self.client.clone(), namespace);
        api.patch(service, &PatchParams::apply("test").force(), &Patch::Apply(slice)).await.unwrap();
    }

    /// A stand-in for kube-dc's manager: it reacts to the annotation and to nothing else.
    pub(crate) async fn manager(&self) -> Manager {
        Manager::start(&self.client, &self.namespace, &self.northbound).await
    }

    /// A watcher that runs alone, ready. Short times, so that the tests are.
    pub(crate) async fn watcher(&self, flags: &[&str]) -> Watcher {
        let flags: Vec<_> = ["--no-leader-election"].iter().chain(flags).copied().collect();
        let watcher = self.start(&flags).await;
        watcher.until_ready().await;
        watcher
    }

    pub(crate) async fn start(&self, flags: &[&str]) -> Watcher {
        self.start_as(self.control_plane.kubeconfig_path().to_str().unwrap(), flags).await
    }

    pub(crate) async fn start_as(&self, kubeconfig: &str, flags: &[&str]) -> Watcher {
        self.start_at(&self.northbound.remotes(), kubeconfig, flags).await
    }

    /// A watcher of another OVN.
    pub(crate) async fn start_at(&self, remotes: &str, kubeconfig: &str, flags: &[&str]) -> Watcher {
        let common = [
            "test",
            "--kubeconfig",
            kubeconfig,
            "--admin-address",
            "127.0.0.1:0",
            "--kube-ovn-namespace",
            &self.namespace,
            "--lease-namespace",
            &self.namespace,
            "--ovn-nb",
            remotes,
        ];
        let settle: &[&str] = if flags.contains(&"--settle-time") { &[] } else { &["--settle-time", "300ms"] };
        let args = Args::parse_from(common.iter().chain(settle).chain(flags));
        let runtime = groundcrew_lb_watcher::without_marks(args.runtime);
        let (started, admin) = oneshot::channel();
        let stop = CancellationToken::new();
        let running = run_until(stop.clone(), CancellationToken::new(), "lb-watcher", runtime, async move |runtime| {
            groundcrew_lb_watcher::start(&runtime, args.watcher).await?;
            let _ = started.send(runtime.admin);
            Ok(())
        });
        let ended = tokio::spawn(running);
        Watcher { admin: admin.await.unwrap(), stop, ended }
    }

    /// What the watcher last asked the manager with.
    pub(crate) async fn resync(&self, name: &str) -> Option<String> {
        let service = self.services().get(name).await.unwrap();
        service.metadata.annotations.unwrap_or_default().get(LB_RESYNC_TIMESTAMP).cloned()
    }

    /// Reasons of the Events about a Service.
    pub(crate) async fn events(&self, about: &str) -> Vec<String> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), &self.namespace);
        let all = events.list(&ListParams::default()).await.unwrap().items;
        let told = all.into_iter().filter(is_told_by_us);
        let ours = told.filter(|e| e.regarding.as_ref().and_then(|r| r.name.as_deref()) == Some(about));
        ours.filter_map(|event| event.reason).collect()
    }

    /// Waits for an Event about an object of this name, and hands its note on.
    pub(crate) async fn until_event(&self, about: &str, reason: &str) -> String {
        self.until_event_within(SOON, about, reason).await
    }

    pub(crate) async fn until_event_within(&self, within: Duration, about: &str, reason: &str) -> String {
        // Those about a namespace are in `default`.
        let events: Api<Event> = Api::all(self.client.clone());
        eventually(&format!("an Event {reason} about {about}"), within, async || {
            let all = events.list(&ListParams::default()).await?.items;
            let ours = all.iter().filter(|event| {
                let regarding = event.regarding.as_ref();
                let namespace = regarding.and_then(|r| r.namespace.as_deref());
                regarding.and_then(|r| r.name.as_deref()) == Some(about)
                    && (namespace == Some(&self.namespace) || namespace.is_none())
            });
            let ours: Vec<_> = ours.collect();
            let told = ours.iter().find(|event| event.reason.as_deref() == Some(reason));
            let told = told.and_then(|event| event.note.clone());
            told.ok_or_else(|| anyhow::anyhow!("{:?}", ours.iter().map(|e| e.reason.clone()).collect::<Vec<_>>()))
        })
        .await
        .unwrap()
    }

    pub(crate) async fn nbctl(&self, args: &[&str]) -> String {
        self.northbound.nbctl(args.iter().copied()).await.unwrap()
    }

    /// Waits until the Service's row is whole: there once, with its address and backends, on router and switch.
    pub(crate) async fn until_whole(&self, name: &str, address: &str) {
        let (router, switch) = (self.namespace.as_str(), format!("{}-default", self.namespace));
        eventually(&format!("{name} is whole"), SOON, async || {
            let row = self.row(name);
            let find = ["--bare", "--columns=vips", "find", "Load_Balancer", &format!("name={row}"), "protocol=tcp"];
            let vips = self.northbound.nbctl(find).await?;
            anyhow::ensure!(vips.trim() == format!("{address}:80=10.1.0.41:8080,10.1.0.42:8080"), "{vips:?}");
            for attached in [["lr-lb-list", router], ["ls-lb-list", &switch]] {
                let said = self.northbound.nbctl(attached).await?;
                anyhow::ensure!(said.contains(&format!("{address}:80")), "{attached:?}: {said}");
            }
            Ok(())
        })
        .await
        .unwrap();
    }

    /// What kube-ovn's collection does: every row whose name it does not know, in one transaction.
    pub(crate) async fn collect(&self) {
        let names = self.nbctl(&["--bare", "--columns=name", "list", "Load_Balancer"]).await;
        let unknown = names.split_whitespace().filter(|name| !NATIVE.contains(name));
        let line: Vec<_> = unknown.flat_map(|name| ["--", "--if-exists", "lb-del", name]).skip(1).collect();
        if !line.is_empty() {
            self.nbctl(&line).await;
        }
    }

    /// kube-ovn-controller's Lease, held by `holder`.
    pub(crate) async fn lease(&self, holder: &str) {
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": { "name": "kube-ovn-controller" },
            "spec": { "holderIdentity": holder },
        });
        let leases: Api<k8s_openapi::api::coordination::v1::Lease> =
            Api::namespaced(self.client.clone(), &self.namespace);
        let params = PatchParams::apply("test").force();
        leases.patch("kube-ovn-controller", &params, &Patch::Apply(lease)).await.unwrap();
    }

    /// Another leader, seen by the watcher. The one that it finds when it comes is no news to it, so the Lease is given back and
    /// taken until it is.
    pub(crate) async fn new_leader(&self, watcher: &Watcher, holder: &str) {
        let so_far = watcher.kube_ovn_changes().await;
        eventually("the watcher has seen the new leader", SOON, async || {
            self.lease("").await;
            self.lease(holder).await;
            watcher.until_kube_ovn_changes(so_far, SHORTLY).await
        })
        .await
        .unwrap();
    }

    /// A pod that the watcher has seen to restart. What it finds when it comes is no news to it, so it restarts until it is.
    pub(crate) async fn restarted(&self, watcher: &Watcher, pod: &str) {
        let so_far = watcher.kube_ovn_changes().await;
        let mut restarts = 0;
        eventually("the watcher has seen the restart", SOON, async || {
            restarts += 1;
            self.pod(pod, restarts).await;
            watcher.until_kube_ovn_changes(so_far, SHORTLY).await
        })
        .await
        .unwrap();
    }

    /// One of kube-ovn-controller's pods.
    pub(crate) async fn pod(&self, name: &str, restarts: i32) {
        let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(self.client.clone(), &self.namespace);
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": name, "labels": { "app": "kube-ovn-controller" } },
            "spec": { "containers": [{ "name": "kube-ovn-controller", "image": "docker.io/kubeovn/kube-ovn:v1.14.4" }] },
        });
        let params = PatchParams::apply("test").force();
        pods.patch(name, &params, &Patch::Apply(pod)).await.unwrap();
        let container: Value = json!({
            "name": "kube-ovn-controller", "image": "kubeovn/kube-ovn:v1.14.4", "imageID": "", "ready": true,
            "restartCount": restarts,
        });
        let status = json!({ "status": { "containerStatuses": [container] } });
        pods.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    }
}
