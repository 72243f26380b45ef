//! A namespace and a cluster id in a real API server, an account, nodes with agents, and a controller.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use clap::Parser;
use groundcrew_api::floating_ip::FloatingIP;
use groundcrew_api::names::annotation;
use groundcrew_cloudsigma_ccm::Args;
use groundcrew_core::runtime::{RuntimeArgs, StartError, run_until};
use groundcrew_core::service::names;
use groundcrew_testkit::agents::Agents;
use groundcrew_testkit::cloudsigma::{CloudSigma, Nic, PASSWORD, USER};
use groundcrew_testkit::controller::{get, metric};
use groundcrew_testkit::eventually;
use groundcrew_testkit::kube::{ControlPlane, shared};
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::events::v1::Event;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Generous: a loaded two-core machine, not the controller, decides how long things take here. One look that fails because
/// of that may be repeated only after half a minute.
pub(crate) const SOON: Duration = Duration::from_secs(90);
/// Longer than any test.
const HOUR: Duration = Duration::from_hours(1);

/// Namespaces of tests that have ended. Whoever begins takes their Nodes away: each controller asks its cloud for the
/// server of every Node that it does not know, whenever any of them changes.
static ENDED: Mutex<Vec<String>> = Mutex::new(Vec::new());

#[derive(Parser)]
struct Program {
    #[command(flatten)]
    runtime: RuntimeArgs,
    #[command(flatten)]
    args: Args,
}

pub(crate) struct Lab {
    control_plane: &'static ControlPlane,
    pub(crate) client: Client,
    pub(crate) namespace: String,
    pub(crate) cloud: CloudSigma,
    pub(crate) agents: Agents,
    /// Names of the nodes, and uuids of their servers.
    pub(crate) nodes: Vec<(String, String)>,
    /// The third number of every address of this test: `FloatingIP`s are one cluster's.
    net: u8,
}

/// On a runtime of its own, so that it can end as a process does: with everything that it started.
pub(crate) struct Controller {
    pub(crate) admin: SocketAddr,
    stop: CancellationToken,
    ended: Option<JoinHandle<Result<(), StartError>>>,
    runtime: Option<Runtime>,
}

impl Controller {
    pub(crate) async fn stop(mut self) {
        self.stop.cancel();
        if let Some(ended) = self.ended.take() {
            ended.await.unwrap().unwrap();
        }
    }

    /// As by SIGKILL: nothing is finished.
    pub(crate) fn kill(self) {
        drop(self);
    }

    pub(crate) async fn metric(&self, series: &str) -> f64 {
        metric(self.admin, series).await.unwrap()
    }

    pub(crate) async fn is_braked(&self) -> bool {
        self.metric("groundcrew_floating_braked_bool").await > 0.0
    }

    pub(crate) async fn until_braked(&self) {
        eventually("the brake is on", SOON, async || if self.is_braked().await { Ok(()) } else { Err("off") })
            .await
            .unwrap();
    }

    /// Waits until the brake is on, and nobody who died can lift it by a last word.
    pub(crate) async fn until_braked_by_the_dead(&self, lab: &Lab) {
        lab.agents.quiet().await;
        self.until_braked().await;
        self.until_scanned(2).await;
        self.until_braked().await;
    }

    /// How many looks at Services have failed.
    pub(crate) async fn failed_looks(&self) -> usize {
        let (_, page) = get(self.admin, "/metrics").await.unwrap();
        let failed = page.lines().filter_map(|line| line.strip_prefix("groundcrew_service_reconciles_total{outcome="));
        let failed = failed.filter_map(|line| line.split_once("} ")).filter(|(outcome, _)| *outcome != "\"ok\"");
        failed.map(|(_, count)| count.parse::<usize>().unwrap()).sum()
    }

    /// Waits until everything was compared so many times more.
    pub(crate) async fn until_scanned(&self, times: u32) {
        self.until_more("groundcrew_service_full_scans_total", times).await;
    }

    /// Waits until the account could not be read so many times more, or only a part of it.
    pub(crate) async fn until_misread(&self, times: u32) {
        self.until_more("groundcrew_cloudsigma_read_failures_total", times).await;
    }

    async fn until_more(&self, counter: &str, times: u32) {
        let enough = self.metric(counter).await + f64::from(times);
        eventually(&format!("{counter} is {enough}"), SOON, async || {
            let now = self.metric(counter).await;
            if now >= enough { Ok(()) } else { Err(now) }
        })
        .await
        .unwrap();
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        ENDED.lock().unwrap_or_else(PoisonError::into_inner).push(self.namespace.clone());
    }
}

impl Lab {
    /// With so many nodes, each with a server whose public NIC is in manual mode.
    pub(crate) async fn new(name: &str, nodes: usize) -> Self {
        let control_plane = shared().await.unwrap();
        control_plane.define(&groundcrew_api::crds()).await.unwrap();
        let namespace = control_plane.namespace(name).await.unwrap();
        let client = control_plane.client().await.unwrap();
        clear_up(&client).await;
        let cloud = CloudSigma::start().await.unwrap();
        let agents = Agents::start(&client, &namespace, &namespace, 3);
        let net = namespace.rsplit('-').next().unwrap().parse().unwrap();
        let mut lab = Self { control_plane, client, namespace, cloud, agents, nodes: Vec::new(), net };
        for n in 1..=nodes {
            lab.join(&format!("{}-n{n}", lab.namespace)).await;
        }
        lab
    }

    /// One more node, with a server and an agent.
    pub(crate) async fn join(&mut self, node: &str) {
        let server = self.cloud.account(|account| account.add_server(node, Nic::Manual));
        self.add_node(node, &json!({ "providerID": format!("cloudsigma://{server}") }), true).await;
        self.agents.live(node);
        self.nodes.push((node.to_owned(), server));
    }

    pub(crate) fn ip(&self, n: u8) -> IpAddr {
        [198, 18, self.net, n].into()
    }

    /// The IPv6 address of that number.
    pub(crate) fn ip_v6(&self, n: u16) -> IpAddr {
        [0x2001, 0xdb8, 0x18, self.net.into(), 0, 0, 0, n].into()
    }

    pub(crate) fn add_ips(&self, numbers: impl IntoIterator<Item = u8>) {
        self.cloud.account(|account| numbers.into_iter().for_each(|n| account.add_ip(self.ip(n))));
    }

    pub(crate) fn node(&self, n: usize) -> &str {
        &self.nodes[n - 1].0
    }

    /// The server of a node.
    pub(crate) fn server(&self, node: &str) -> &str {
        &self.nodes.iter().find(|(name, _)| name == node).unwrap().1
    }

    pub(crate) fn class(&self) -> String {
        format!("test.example/{}", self.namespace)
    }

    /// A controller that runs alone, ready.
    pub(crate) async fn controller(&self, flags: &[&str]) -> Controller {
        Self::until_ready(self.spawn(flags).await).await
    }

    /// The same, which gives up nothing that hangs, and forgives no node that could not hold an address.
    pub(crate) async fn stubborn(&self, flags: &[&str]) -> Controller {
        let mut program = self.program(flags);
        (program.args.timeout, program.args.recovery) = (HOUR, HOUR);
        Self::until_ready(Self::run(program, Some(HOUR)).await).await
    }

    async fn until_ready(controller: Controller) -> Controller {
        eventually("the controller is ready", SOON, async || match get(controller.admin, "/readyz").await {
            Ok((200, _)) => Ok(()),
            other => Err(format!("{other:?}")),
        })
        .await
        .unwrap();
        controller
    }

    /// The same, ready or not.
    pub(crate) async fn spawn(&self, flags: &[&str]) -> Controller {
        Self::run(self.program(flags), None).await
    }

    async fn run(program: Program, deadline: Option<Duration>) -> Controller {
        let (started, admin) = oneshot::channel();
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let ended = runtime.spawn(async move {
            let Program { runtime, args } = program;
            run_until(stopped, CancellationToken::new(), "cloudsigma-ccm", runtime, async move |mut runtime| {
                let admin = runtime.admin;
                runtime.write_deadline = deadline.unwrap_or(runtime.write_deadline);
                groundcrew_cloudsigma_ccm::start(&runtime, args).await?;
                let _ = started.send(admin);
                Ok(())
            })
            .await
        });
        Controller { admin: admin.await.unwrap(), stop, ended: Some(ended), runtime: Some(runtime) }
    }

    fn program(&self, flags: &[&str]) -> Program {
        let kubeconfig = self.control_plane.kubeconfig_path().to_str().unwrap();
        let (class, url) = (self.class(), self.cloud.url());
        let mut line = vec!["test", "--admin-address", "127.0.0.1:0", "--no-leader-election"];
        line.extend(["--lease-namespace", &self.namespace]);
        // Unless it has a way of its own to the API server.
        if !flags.contains(&"--kubeconfig") {
            line.extend(["--kubeconfig", kubeconfig]);
        }
        // Unless it is another cluster's.
        if !flags.contains(&"--cluster-id") {
            line.extend(["--cluster-id", &self.namespace, "--class", &class]);
        }
        // Unless a test comes as somebody else.
        if !flags.contains(&"--user-email") {
            line.extend(["--api-url", &url, "--username", USER, "--password", PASSWORD]);
        }
        line.extend(["--discovery-interval", "1s"]);
        // Unless a test counts on a certain address: a mark that a stall makes late is given back for the next one.
        if !flags.contains(&"--claim-settle") {
            line.extend(["--claim-settle", "500ms"]);
        }
        if !flags.contains(&"--class-less") {
            line.push("--leave-classless");
        }
        line.extend(flags.iter().filter(|flag| **flag != "--class-less"));
        Program::parse_from(line)
    }

    pub(crate) fn services(&self) -> Api<Service> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(crate) fn floating_ips(&self) -> Api<FloatingIP> {
        Api::all(self.client.clone())
    }

    pub(crate) fn kube_nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    pub(crate) async fn add_node(&self, name: &str, spec: &Value, ready: bool) {
        let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name }, "spec": spec });
        self.kube_nodes().create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
        self.set_ready(name, ready).await;
    }

    /// No Pod is to come to it any more, or they may again.
    pub(crate) async fn cordon(&self, name: &str, cordoned: bool) {
        let patch = Patch::Merge(json!({ "spec": { "unschedulable": cordoned } }));
        self.kube_nodes().patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    pub(crate) async fn set_ready(&self, name: &str, ready: bool) {
        let status = if ready { "True" } else { "False" };
        let patch = json!({ "status": { "conditions": [{ "type": "Ready", "status": status }] } });
        self.kube_nodes().patch_status(name, &PatchParams::default(), &Patch::Strategic(patch)).await.unwrap();
    }

    /// Creates a Service of our class; `more` is merged over its spec.
    pub(crate) async fn create(&self, name: &str, more: Value, annotations: Value) -> Service {
        let mut service = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": { "name": name, "annotations": annotations },
            "spec": {
                "type": "LoadBalancer", "loadBalancerClass": self.class(), "allocateLoadBalancerNodePorts": false,
                "ports": [{ "name": "http", "port": 80, "targetPort": 8080 }],
            },
        });
        for (field, value) in more.as_object().into_iter().flatten() {
            service["spec"][field] = value.clone();
        }
        self.services().create(&PostParams::default(), &serde_json::from_value(service).unwrap()).await.unwrap()
    }

    /// A Service that is served: its address, and the node that holds it.
    pub(crate) async fn serve(&self, name: &str) -> (IpAddr, String) {
        self.create(name, json!({}), json!({})).await;
        let address = self.until_served(name).await;
        (address, self.until_held(address, |_| true).await)
    }

    pub(crate) async fn delete(&self, name: &str) {
        self.services().delete(name, &DeleteParams::default()).await.unwrap();
    }

    pub(crate) async fn slice(&self, service: &str, nodes: &[&str]) {
        let endpoints: Vec<_> = nodes
            .iter()
            .enumerate()
            .map(|(n, node)| json!({ "addresses": [format!("10.1.0.{}", n + 1)], "conditions": { "ready": true }, "nodeName": node }))
            .collect();
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": { "name": service, "labels": { "kubernetes.io/service-name": service } },
            "addressType": "IPv4", "ports": [{ "name": "http", "protocol": "TCP", "port": 8080 }], "endpoints": endpoints,
        });
        let api: Api<EndpointSlice> = Api::namespaced(self.client.clone(), &self.namespace);
        api.patch(service, &PatchParams::apply("test").force(), &Patch::Apply(slice)).await.unwrap();
    }

    pub(crate) async fn until<T>(&self, name: &str, what: &str, probe: impl Fn(&Service) -> Option<T>) -> T {
        eventually(what, SOON, async || {
            let service = self.services().get(name).await?;
            probe(&service).ok_or_else(|| anyhow::anyhow!("{:?}", service.status))
        })
        .await
        .unwrap()
    }

    pub(crate) async fn until_served(&self, name: &str) -> IpAddr {
        self.until(name, &format!("{name} has an address"), address).await
    }

    /// Waits for a reason of our condition, and hands its message on.
    pub(crate) async fn until_reason(&self, name: &str, reason: &str) -> String {
        let what = format!("the condition of {name} has the reason {reason}");
        self.until(name, &what, |service| {
            let (_, found, message) = ready(service)?;
            (found == reason).then_some(message)
        })
        .await
    }

    pub(crate) async fn until_condition(&self, name: &str, kind: &str, status: &str) {
        self.until(name, &format!("{kind} of {name} is {status}"), |service| {
            let conditions = service.status.as_ref()?.conditions.as_ref()?;
            conditions.iter().find(|c| c.type_ == kind && c.status == status).map(drop)
        })
        .await;
    }

    pub(crate) async fn until_gone(&self, name: &str) {
        eventually(&format!("{name} is gone"), SOON, async || match self.services().get_opt(name).await? {
            None => Ok(()),
            Some(service) => Err(anyhow::anyhow!("{:?} {:?}", service.metadata.finalizers, service.status)),
        })
        .await
        .unwrap();
    }

    pub(crate) async fn floating(&self, address: IpAddr) -> FloatingIP {
        self.floating_ips().get(&FloatingIP::name_of(address)).await.unwrap()
    }

    /// Waits until a node says that it holds the address; the node.
    pub(crate) async fn until_held(&self, address: IpAddr, probe: impl Fn(&str) -> bool) -> String {
        eventually(&format!("{address} is held"), SOON, async || {
            let object = self.floating_ips().get(&FloatingIP::name_of(address)).await?;
            let wanted = object.spec.holder.clone();
            let holder = object.status.as_ref().and_then(|status| status.holder.clone());
            let settled = object.status.as_ref().is_some_and(|status| status.serial == object.spec.serial);
            holder
                .clone()
                .filter(|node| settled && wanted == holder && probe(node))
                .ok_or_else(|| anyhow::anyhow!("{:?} {:?}", object.spec, object.status))
        })
        .await
        .unwrap()
    }

    /// Waits until the account is as it was.
    pub(crate) async fn until_account(&self, before: &groundcrew_testkit::cloudsigma::Account) {
        eventually("the account is as before", SOON, async || {
            let now = self.cloud.snapshot();
            let parts =
                |a: &groundcrew_testkit::cloudsigma::Account| (a.ips.clone(), a.tags.clone(), a.servers.clone());
            if parts(&now) == parts(before) { Ok(()) } else { Err(format!("{:?}", (now.ips, now.tags))) }
        })
        .await
        .unwrap();
    }

    /// Waits until each of these addresses has its three tags: they are written after the Service is served.
    pub(crate) async fn until_tagged(&self, addresses: &[IpAddr]) {
        eventually("the tags are there", SOON, async || {
            let tagged = |address: &IpAddr| self.cloud.account(|account| account.tags_of(*address)).len() == 3;
            if addresses.iter().all(tagged) { Ok(()) } else { Err("not yet") }
        })
        .await
        .unwrap();
    }

    /// Waits until the controller has written to each node what it knows of its server.
    pub(crate) async fn until_initialised(&self) {
        eventually("the nodes are initialised", SOON, async || {
            for (name, _) in &self.nodes {
                let node = self.kube_nodes().get(name).await?;
                anyhow::ensure!(node.annotations().contains_key(annotation::CLOUDSIGMA_ACCOUNT), "{name} is not");
            }
            Ok(())
        })
        .await
        .unwrap();
    }

    /// Notes of Events about a Service with this reason.
    pub(crate) async fn events(&self, reason: &str) -> Vec<String> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), &self.namespace);
        let all = events.list(&ListParams::default()).await.unwrap();
        all.into_iter().filter(|event| event.reason.as_deref() == Some(reason)).filter_map(|event| event.note).collect()
    }

    /// An Event about a Node; its note.
    pub(crate) async fn node_event(&self, node: &str, reason: &str) -> anyhow::Result<String> {
        let events: Api<Event> = Api::all(self.client.clone());
        let all = events.list(&ListParams::default()).await?;
        let about = |event: &Event| event.regarding.as_ref().and_then(|about| about.name.as_deref()) == Some(node);
        let found = all.into_iter().find(|event| about(event) && event.reason.as_deref() == Some(reason));
        found.and_then(|event| event.note).ok_or_else(|| anyhow::anyhow!("none yet"))
    }

    /// Waits for an Event about a Node; its note.
    pub(crate) async fn until_node_event(&self, node: &str, reason: &str) -> String {
        let what = format!("{node} has an Event {reason}");
        eventually(&what, SOON, async || self.node_event(node, reason).await).await.unwrap()
    }

    /// The resourceVersions of everything that a controller writes here.
    pub(crate) async fn versions(&self) -> Vec<(String, Option<String>)> {
        let mut versions: Vec<_> = Vec::new();
        for service in self.services().list(&ListParams::default()).await.unwrap() {
            versions.push((service.name_any(), service.resource_version()));
        }
        for object in self.floating_ips().list(&ListParams::default()).await.unwrap() {
            if object.spec.address.starts_with(&format!("198.18.{}.", self.net)) {
                versions.push((object.name_any(), object.resource_version()));
            }
        }
        for (node, _) in &self.nodes {
            versions.push((node.clone(), self.kube_nodes().get(node).await.unwrap().resource_version()));
        }
        versions
    }
}

async fn clear_up(client: &Client) {
    let ended = std::mem::take(&mut *ENDED.lock().unwrap_or_else(PoisonError::into_inner));
    let nodes: Api<Node> = Api::all(client.clone());
    for node in nodes.list(&ListParams::default()).await.unwrap() {
        let name = node.name_any();
        if ended.iter().any(|namespace| name.starts_with(&format!("{namespace}-"))) {
            // One that is left costs time, and nothing else.
            let _ = nodes.delete(&name, &DeleteParams::default()).await;
        }
    }
}

pub(crate) fn address(service: &Service) -> Option<IpAddr> {
    service.status.as_ref()?.load_balancer.as_ref()?.ingress.as_ref()?.first()?.ip.as_ref()?.parse().ok()
}

/// Status, reason and message of our own condition.
pub(crate) fn ready(service: &Service) -> Option<(String, String, String)> {
    let conditions = service.status.as_ref()?.conditions.as_ref()?;
    let ready = conditions.iter().find(|c| c.type_ == names::READY)?;
    Some((ready.status.clone(), ready.reason.clone(), ready.message.clone()))
}
