//! A controller inside the test process, with a class, a namespace and an OVN of its own so that tests do not meet.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use groundcrew_api::address_pool::{AddressPool, AddressPoolSpec};
use groundcrew_api::eip::EIp;
use groundcrew_core::drift::Nobody;
use groundcrew_core::runtime::{RuntimeArgs, StartError, run_until};
use groundcrew_core::service::names;
pub(crate) use groundcrew_testkit::controller::get;
use groundcrew_testkit::controller::metric;
use groundcrew_testkit::eventually;
use groundcrew_testkit::kube::{ControlPlane, shared};
use groundcrew_testkit::ovn::Northbound;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Generous: a loaded two-core machine, not the controller, decides how long things take here.
pub(crate) const SOON: Duration = Duration::from_secs(30);

#[derive(Parser)]
struct Args {
    #[command(flatten)]
    runtime: RuntimeArgs,
    #[command(flatten)]
    ovn: groundcrew_ovn_lb::Args,
}

/// One test's project in Kubernetes.
pub(crate) struct Project {
    control_plane: &'static ControlPlane,
    pub(crate) client: Client,
    pub(crate) namespace: String,
    pub(crate) class: String,
    /// Addresses are one cluster's, whatever the namespace: each test has a network of its own.
    network: String,
}

pub(crate) struct Controller {
    pub(crate) admin: SocketAddr,
    stop: CancellationToken,
    ended: JoinHandle<Result<(), StartError>>,
}

impl Controller {
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        self.ended.await.unwrap().unwrap();
    }

    /// The value of a metric, labels and all.
    pub(crate) async fn metric(&self, series: &str) -> f64 {
        metric(self.admin, series).await.unwrap()
    }

    pub(crate) async fn until_ready(&self) {
        eventually("the controller is ready", SOON, async || match get(self.admin, "/readyz").await? {
            (200, _) => Ok(()),
            (_, why) => Err(anyhow::anyhow!(why)),
        })
        .await
        .unwrap();
    }
}

impl Project {
    pub(crate) async fn new(name: &str) -> Self {
        Self::on(shared().await.unwrap(), name).await
    }

    pub(crate) async fn on(control_plane: &'static ControlPlane, name: &str) -> Self {
        let client = control_plane.client().await.unwrap();
        control_plane.define(&groundcrew_api::crds()).await.unwrap();
        let namespace = control_plane.namespace(name).await.unwrap();
        let class = format!("test.example/{namespace}");
        let network = format!("100.64.{}", namespace.rsplit('-').next().unwrap());
        Self { control_plane, client, namespace, class, network }
    }

    /// An OVN that has this project's router and switch.
    pub(crate) async fn northbound(&self) -> Northbound {
        let northbound = Northbound::standalone().await.unwrap();
        self.connect(&northbound).await;
        northbound
    }

    pub(crate) async fn connect(&self, northbound: &Northbound) {
        let switch = format!("{}-default", self.namespace);
        northbound.nbctl(["lr-add", &self.namespace, "--", "ls-add", &switch]).await.unwrap();
    }

    /// An address of this test.
    pub(crate) fn address(&self, last: u8) -> String {
        format!("{}.{last}", self.network)
    }

    /// The first addresses of this test's network, for this project alone.
    pub(crate) async fn pool(&self, count: u8) -> AddressPool {
        self.pool_of(&format!("{}-{}", self.address(1), self.address(count))).await
    }

    /// Ranges or networks, comma-separated.
    pub(crate) async fn pool_of(&self, ranges: &str) -> AddressPool {
        let spec = AddressPoolSpec {
            addresses: ranges.split(',').map(str::to_owned).collect(),
            namespaces: vec![self.namespace.clone()],
            ..AddressPoolSpec::default()
        };
        let api: Api<AddressPool> = Api::all(self.client.clone());
        let pool = AddressPool::new(&self.namespace, spec);
        api.patch(&self.namespace, &PatchParams::apply("test").force(), &Patch::Apply(&pool)).await.unwrap()
    }

    /// A controller that runs alone, ready.
    pub(crate) async fn controller(&self, northbound: &Northbound) -> Controller {
        let controller = self.start(&northbound.remotes(), &[]).await;
        controller.until_ready().await;
        controller
    }

    pub(crate) async fn start(&self, remotes: &str, flags: &[&str]) -> Controller {
        let (admin, stop, ended) = self.run(remotes, flags);
        Controller { admin: admin.await.unwrap(), stop, ended }
    }

    /// Why a controller does not start.
    pub(crate) async fn refused(&self, remotes: &str, flags: &[&str]) -> String {
        let (_, _, ended) = self.run(remotes, flags);
        ended.await.unwrap().unwrap_err().to_string()
    }

    fn run(
        &self,
        remotes: &str,
        flags: &[&str],
    ) -> (oneshot::Receiver<SocketAddr>, CancellationToken, JoinHandle<Result<(), StartError>>) {
        let kubeconfig = self.control_plane.kubeconfig_path().to_str().unwrap();
        let common = [
            "test",
            "--kubeconfig",
            kubeconfig,
            "--admin-address",
            "127.0.0.1:0",
            "--no-leader-election",
            "--cluster-id",
            &self.namespace,
            "--class",
            &self.class,
            "--ovn-nb",
            remotes,
        ];
        let args = Args::parse_from(common.iter().chain(flags));
        let (started, admin) = oneshot::channel();
        let stop = CancellationToken::new();
        let running = run_until(stop.clone(), CancellationToken::new(), "ovn-lb", args.runtime, async move |runtime| {
            groundcrew_ovn_lb::start(&runtime, args.ovn, Arc::new(Nobody)).await?;
            let _ = started.send(runtime.admin);
            Ok(())
        });
        (admin, stop, tokio::spawn(running))
    }

    pub(crate) fn services(&self) -> Api<Service> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(crate) fn eips(&self) -> Api<EIp> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Creates a Service of our class with the port `http` 80; `more` is merged over its spec.
    pub(crate) async fn create(&self, name: &str, more: Value) -> Service {
        self.create_annotated(name, json!({}), more).await
    }

    pub(crate) async fn create_annotated(&self, name: &str, annotations: Value, more: Value) -> Service {
        let mut service = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": { "name": name, "annotations": annotations },
            "spec": {
                "type": "LoadBalancer", "loadBalancerClass": self.class, "allocateLoadBalancerNodePorts": false,
                "ports": [{ "name": "http", "port": 80, "targetPort": "web" }],
            },
        });
        for (field, value) in more.as_object().into_iter().flatten() {
            service["spec"][field] = value.clone();
        }
        self.services().create(&PostParams::default(), &serde_json::from_value(service).unwrap()).await.unwrap()
    }

    /// The endpoints of the port `http`.
    pub(crate) async fn endpoints(&self, service: &str, port: u16, addresses: &[&str]) {
        self.slice(service, service, json!([{ "name": "http", "protocol": "TCP", "port": port }]), addresses).await;
    }

    /// One EndpointSlice of a Service; its family is that of the addresses.
    pub(crate) async fn slice(&self, name: &str, service: &str, ports: Value, addresses: &[&str]) {
        let endpoints: Vec<_> =
            addresses.iter().map(|a| json!({ "addresses": [a], "conditions": { "ready": true } })).collect();
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": { "name": name, "labels": { "kubernetes.io/service-name": service } },
            "addressType": if addresses.iter().any(|address| address.contains(':')) { "IPv6" } else { "IPv4" },
            "ports": ports,
            "endpoints": endpoints,
        });
        let api: Api<EndpointSlice> = Api::namespaced(self.client.clone(), &self.namespace);
        api.patch(name, &PatchParams::apply("test").force(), &Patch::Apply(slice)).await.unwrap();
    }

    /// A Service with one endpoint, served.
    pub(crate) async fn served(&self, name: &str) -> String {
        self.endpoints(name, 8080, &["10.1.0.41"]).await;
        self.create(name, json!({})).await;
        self.until_served(name).await
    }

    /// Waits until the Service is as `probe` wants it.
    pub(crate) async fn until<T>(&self, name: &str, what: &str, probe: impl Fn(&Service) -> Option<T>) -> T {
        eventually(what, SOON, async || {
            let service = self.services().get(name).await?;
            probe(&service).ok_or_else(|| anyhow::anyhow!("{:?}", service.status))
        })
        .await
        .unwrap()
    }

    pub(crate) async fn until_served(&self, name: &str) -> String {
        self.until(name, "the Service has an address", |service| addresses(service).first().cloned()).await
    }

    /// Waits for the reason of our condition and hands its message on.
    pub(crate) async fn until_reason(&self, name: &str, reason: &str) -> String {
        self.until(name, &format!("{name} has the reason {reason}"), |service| {
            let conditions = service.status.as_ref()?.conditions.as_ref()?;
            let ready = conditions.iter().find(|c| c.type_ == names::READY)?;
            (ready.reason == reason).then(|| ready.message.clone())
        })
        .await
    }

    pub(crate) async fn delete(&self, name: &str) {
        self.services().delete(name, &DeleteParams::default()).await.unwrap();
        self.until_gone(name).await;
    }

    pub(crate) async fn until_gone(&self, name: &str) {
        eventually("the Service is gone", SOON, async || match self.services().get_opt(name).await? {
            None => Ok(()),
            Some(service) => Err(anyhow::anyhow!("{:?}", service.metadata.finalizers)),
        })
        .await
        .unwrap();
    }

    pub(crate) async fn eip_list(&self) -> Vec<EIp> {
        self.eips().list(&ListParams::default()).await.unwrap().items
    }

    /// Waits until `ovn-nbctl` says something.
    pub(crate) async fn until_nbctl(
        &self,
        northbound: &Northbound,
        args: &[&str],
        what: &str,
        probe: impl Fn(&str) -> bool,
    ) -> String {
        eventually(what, SOON, async || {
            let said = northbound.nbctl(args.iter().copied()).await?;
            anyhow::ensure!(probe(&said), "{said}");
            Ok(said)
        })
        .await
        .unwrap()
    }
}

pub(crate) fn addresses(service: &Service) -> Vec<String> {
    let ingress = service.status.as_ref().and_then(|s| s.load_balancer.as_ref()?.ingress.clone()).unwrap_or_default();
    ingress.into_iter().filter_map(|ingress| ingress.ip).collect()
}

/// The rows in full, without what differs between two lists of the same: nothing.
pub(crate) async fn rows(northbound: &Northbound) -> String {
    let columns = "--columns=_uuid,name,protocol,vips,options,external_ids";
    northbound.nbctl([columns, "list", "Load_Balancer"]).await.unwrap()
}
