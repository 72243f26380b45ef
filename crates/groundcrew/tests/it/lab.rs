//! A project in Kubernetes, its router and switch in OVN, and as many controllers as a test wants.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use anyhow::anyhow;
use groundcrew_api::address_pool::{AddressPool, AddressPoolSpec};
use groundcrew_testkit::controller::Controller;
use groundcrew_testkit::kube::{ControlPlane, shared};
use groundcrew_testkit::ovn::{Central, Northbound};
use groundcrew_testkit::{Scratch, eventually};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;

/// Generous: a loaded two-core machine, not the controller, decides how long things take here.
pub(crate) const SOON: Duration = Duration::from_mins(1);
/// As by default: nobody loses it because the machine stood still for some seconds.
const LEASE: Duration = Duration::from_secs(15);
/// For tests that wait for its end, and in which it may be lost before; writes of a third of it are possible.
pub(crate) const SHORT_LEASE: Duration = Duration::from_secs(3);

pub(crate) struct Lab {
    control_plane: &'static ControlPlane,
    pub(crate) client: Client,
    pub(crate) namespace: String,
    /// How long the leases of its leaders last.
    lease: Duration,
    /// With northd: a Service waits for it before it is published.
    central: Central,
    scratch: Scratch,
}

impl Lab {
    pub(crate) async fn new(name: &str) -> Self {
        Self::on(shared().await.unwrap(), name).await
    }

    pub(crate) async fn with_lease(name: &str, lease: Duration) -> Self {
        Self { lease, ..Self::new(name).await }
    }

    pub(crate) async fn on(control_plane: &'static ControlPlane, name: &str) -> Self {
        control_plane.define(&groundcrew_api::crds()).await.unwrap();
        let namespace = control_plane.namespace(name).await.unwrap();
        let client = control_plane.client().await.unwrap();
        // Addresses are one cluster's, whatever the namespace: each test has a network of its own.
        let network = format!("100.64.{}.0/24", namespace.rsplit('-').next().unwrap());
        let spec = AddressPoolSpec {
            addresses: vec![network],
            namespaces: vec![namespace.clone()],
            ..AddressPoolSpec::default()
        };
        let pools: Api<AddressPool> = Api::all(client.clone());
        pools.create(&PostParams::default(), &AddressPool::new(&namespace, spec)).await.unwrap();
        let (central, scratch) = (Central::start().await.unwrap(), Scratch::new(name).unwrap());
        let lab = Self { control_plane, client, namespace, lease: LEASE, central, scratch };
        lab.connect().await;
        lab
    }

    pub(crate) async fn start(&self, name: &str) -> Controller {
        Controller::start(name, self.command(), self.scratch.path(), SOON).await.unwrap()
    }

    pub(crate) fn spawn(&self, name: &str, more: impl FnOnce(&mut Command) -> &mut Command) -> Controller {
        let mut command = self.command();
        more(&mut command);
        Controller::spawn(name, command, self.scratch.path()).unwrap()
    }

    /// One whose API server is at this address.
    pub(crate) fn astray(&self, name: &str, api_server: SocketAddr, flags: &[&str]) -> Controller {
        let kubeconfig = self.control_plane.admin().through(api_server).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_groundcrew"));
        command.args(["ovn-lb", "--kubeconfig", kubeconfig.path().to_str().unwrap()]);
        command.args(["--cluster-id", &self.namespace, "--ovn-nb", &self.northbound().remotes()]).args(flags);
        Controller::spawn(name, command, self.scratch.path()).unwrap()
    }

    /// The watcher of kube-dc's load balancers, ready.
    pub(crate) async fn watcher(&self, name: &str) -> Controller {
        let mut command = self.sub_command("lb-watcher");
        command.args(["--trigger=annotation", "--settle-time", "500ms", "--kube-ovn-namespace", &self.namespace]);
        Controller::start(name, command, self.scratch.path(), SOON).await.unwrap()
    }

    /// Any controller, on this lab's Kubernetes and in its namespace.
    pub(crate) fn run(&self, name: &str, line: impl FnOnce(&mut Command) -> &mut Command) -> Controller {
        let mut command = self.person();
        line(&mut command).args(["--lease-namespace", &self.namespace]);
        Controller::spawn(name, command, self.scratch.path()).unwrap()
    }

    /// For what a person types.
    pub(crate) fn person(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_groundcrew"));
        command.env("GROUNDCREW_KUBECONFIG", self.control_plane.kubeconfig_path());
        command
    }

    fn command(&self) -> Command {
        let mut command = self.sub_command("ovn-lb");
        command.args(["--cluster-id", &self.namespace]).args(["--class", &self.class()]);
        command
    }

    fn sub_command(&self, name: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_groundcrew"));
        command
            .arg(name)
            .args(["--kubeconfig", self.control_plane.kubeconfig_path().to_str().unwrap()])
            .args(["--lease-namespace", &self.namespace])
            .args(["--lease-duration", &format!("{}s", self.lease.as_secs())])
            .args(["--ovn-nb", &self.northbound().remotes()]);
        command
    }

    /// `groundcrew detach` for what this test's controllers serve: whether it succeeded, and what it said.
    pub(crate) fn detach(&self, more: &[&str]) -> (bool, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_groundcrew"));
        command.arg("detach").args(["--kubeconfig", self.control_plane.kubeconfig_path().to_str().unwrap()]);
        command.args(["--lease-namespace", &self.namespace, "--cluster-id", &self.namespace, "--class", &self.class()]);
        let output = command.args(more).output().unwrap();
        let said = if output.status.success() { output.stdout } else { output.stderr };
        (output.status.success(), String::from_utf8(said).unwrap())
    }

    /// One a test, so that tests do not serve each other's Services.
    pub(crate) fn class(&self) -> String {
        format!("test.example/{}", self.namespace)
    }

    pub(crate) fn services(&self) -> Api<Service> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(crate) async fn create(&self, name: &str) {
        self.create_with(name, &json!({})).await;
    }

    pub(crate) async fn create_with(&self, name: &str, annotations: &serde_json::Value) {
        let service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": { "name": name, "annotations": annotations },
            "spec": {
                "type": "LoadBalancer", "loadBalancerClass": self.class(),
                "allocateLoadBalancerNodePorts": false, "ports": [{ "port": 80 }],
            },
        });
        let service = serde_json::from_value(service).unwrap();
        self.services().create(&PostParams::default(), &service).await.unwrap();
    }

    /// One endpoint of a Service, ready or not.
    pub(crate) async fn endpoint(&self, service: &str, ready: bool) {
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": { "name": service, "labels": { "kubernetes.io/service-name": service } },
            "ports": [{ "name": "", "port": 8080, "protocol": "TCP" }],
            "endpoints": [{ "addresses": ["10.1.0.41"], "conditions": { "ready": ready } }],
        });
        let slices: Api<EndpointSlice> = Api::namespaced(self.client.clone(), &self.namespace);
        slices.patch(service, &PatchParams::apply("test").force(), &Patch::Apply(slice)).await.unwrap();
    }

    pub(crate) async fn until_served(&self, name: &str) -> Service {
        eventually(&format!("{name} has an address"), SOON, async || {
            let service = self.services().get(name).await?;
            let ingress = service.status.as_ref().and_then(|s| s.load_balancer.as_ref()?.ingress.as_ref()?.first());
            if ingress.is_some() { Ok(service) } else { Err(anyhow!("{:?}", service.status)) }
        })
        .await
        .unwrap()
    }

    /// The address that a served Service has published.
    pub(crate) async fn address(&self, name: &str) -> String {
        let service = self.services().get(name).await.unwrap();
        let ingress = service.status.and_then(|status| status.load_balancer?.ingress).unwrap_or_default();
        ingress.into_iter().find_map(|ingress| ingress.ip).unwrap()
    }

    pub(crate) async fn until_leads(&self, controller: &Controller) {
        controller.until_leads(&self.client, &self.namespace, "groundcrew-ovn-lb", SOON).await.unwrap();
    }

    pub(crate) fn northbound(&self) -> &Northbound {
        self.central.northbound()
    }

    /// Loses the northbound database: there is an empty one afterwards.
    pub(crate) async fn rebuild_ovn(&mut self) {
        self.central.rebuild_empty().await.unwrap();
    }

    /// The project's router and switch.
    pub(crate) async fn connect(&self) {
        let switch = format!("{}-default", self.namespace);
        self.northbound().nbctl(["lr-add", &self.namespace, "--", "ls-add", &switch]).await.unwrap();
    }

    /// Names of the load balancer rows, sorted.
    pub(crate) async fn rows(&self) -> Vec<String> {
        let columns = ["--bare", "--columns=name", "find", "Load_Balancer"];
        let names = self.northbound().nbctl(columns).await.unwrap();
        let mut names: Vec<_> = names.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect();
        names.sort();
        names
    }

    /// Everything in OVN that a controller writes.
    pub(crate) async fn written(&self) -> String {
        let mut all = String::new();
        for table in ["Load_Balancer", "Logical_Router", "Logical_Switch"] {
            all.push_str(&self.northbound().nbctl(["list", table]).await.unwrap());
        }
        all + &self.northbound().nbctl(["get", "NB_Global", ".", "external_ids"]).await.unwrap()
    }

    /// The epochs under which transactions were committed, in the order of the commits: number and identity.
    pub(crate) async fn epochs(&self) -> Vec<(u64, String)> {
        let ours = format!("groundcrew {} ", self.namespace);
        let comments = self.northbound().comments().await.unwrap();
        let epochs = comments.iter().filter_map(|comment| comment.strip_prefix(&ours)?.split_once('/'));
        epochs.map(|(number, identity)| (number.parse().unwrap(), identity.to_owned())).collect()
    }
}
