//! A controller inside the test process, with a class of its own so that tests do not meet.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use groundcrew_core::key::ServiceKey;
use groundcrew_core::runtime::{Runtime, RuntimeArgs, StartError, run_until};
use groundcrew_core::service::{self, ServiceArgs, names};
use groundcrew_core::testing::MemoryCloud;
use groundcrew_testkit::controller::{get, metric};
use groundcrew_testkit::eventually;
use groundcrew_testkit::kube::{ControlPlane, shared};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Generous: a loaded two-core machine, not the controller, decides how long things take here.
pub(crate) const SOON: Duration = Duration::from_mins(1);

#[derive(Parser)]
struct Args {
    #[command(flatten)]
    runtime: RuntimeArgs,
    #[command(flatten)]
    service: ServiceArgs,
}

/// One test's namespace, class and cloud.
#[derive(Clone)]
pub(crate) struct Lab {
    pub(crate) control_plane: &'static ControlPlane,
    pub(crate) client: Client,
    pub(crate) namespace: String,
    pub(crate) class: String,
    pub(crate) cloud: MemoryCloud,
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

    /// Why it ends by itself.
    pub(crate) async fn ended(self) -> Result<(), StartError> {
        self.ended.await.unwrap()
    }

    pub(crate) async fn metric(&self, series: &str) -> f64 {
        metric(self.admin, series).await.unwrap()
    }

    pub(crate) async fn get(&self, path: &str) -> (u16, String) {
        get(self.admin, path).await.unwrap()
    }
}

impl Lab {
    pub(crate) async fn new(name: &str) -> Self {
        Self::on(shared().await.unwrap(), name).await
    }

    pub(crate) async fn on(control_plane: &'static ControlPlane, name: &str) -> Self {
        let namespace = control_plane.namespace(name).await.unwrap();
        let client = control_plane.client().await.unwrap();
        let class = format!("test.example/{namespace}");
        Self { control_plane, client, namespace, class, cloud: MemoryCloud::default() }
    }

    /// A controller that runs alone, ready.
    pub(crate) async fn controller(&self, flags: &[&str]) -> Controller {
        self.start(&[flags, &["--no-leader-election"]].concat()).await
    }

    pub(crate) async fn start(&self, flags: &[&str]) -> Controller {
        let (class, cloud, service) = (self.class.clone(), Arc::new(self.cloud.clone()), self.args(flags).service);
        self.start_with(flags, async move |runtime| service::start(&runtime, &class, &service, &cloud)).await
    }

    /// Anything on a runtime, ready.
    pub(crate) async fn start_with<F, Fut>(&self, flags: &[&str], start: F) -> Controller
    where
        F: FnOnce(Runtime) -> Fut + Send + 'static,
        Fut: Future<Output = Result<(), StartError>> + Send,
    {
        let (started, admin) = oneshot::channel();
        let stop = CancellationToken::new();
        let (args, stopped) = (self.args(flags).runtime, stop.clone());
        let ended = tokio::spawn(async move {
            run_until(stopped, CancellationToken::new(), "test", args, async move |runtime| {
                let admin = runtime.admin;
                start(runtime).await?;
                let _ = started.send(admin);
                Ok(())
            })
            .await
        });
        let controller = Controller { admin: admin.await.unwrap(), stop, ended };
        eventually("the controller is ready", SOON, async || match controller.get("/readyz").await {
            (200, _) => Ok(()),
            (_, why) => Err(why),
        })
        .await
        .unwrap();
        controller
    }

    fn args(&self, flags: &[&str]) -> Args {
        let kubeconfig = self.control_plane.kubeconfig_path().to_str().unwrap();
        let common = ["test", "--kubeconfig", kubeconfig, "--admin-address", "127.0.0.1:0", "--log", "debug"];
        Args::parse_from(common.iter().chain(&["--lease-namespace", &self.namespace]).chain(flags))
    }

    pub(crate) fn services(&self) -> Api<Service> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(crate) fn key(&self, name: &str) -> ServiceKey {
        ServiceKey::new(self.namespace.as_str(), name)
    }

    /// Creates a Service of our class; `more` is merged over its spec, `annotations` are set.
    pub(crate) async fn create(&self, name: &str, more: Value, annotations: Value) -> Service {
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
        let service = serde_json::from_value(service).unwrap();
        self.services().create(&PostParams::default(), &service).await.unwrap()
    }

    pub(crate) async fn patch(&self, name: &str, patch: Value) -> Service {
        self.services().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap()
    }

    /// An `EndpointSlice` of the Service; each endpoint is its address and its conditions.
    pub(crate) async fn slice(&self, service: &str, name: &str, port: i32, endpoints: &[(&str, Value)]) {
        let endpoints: Vec<_> = endpoints
            .iter()
            .map(|(address, conditions)| json!({ "addresses": [address], "conditions": conditions }))
            .collect();
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": { "name": name, "labels": { "kubernetes.io/service-name": service } },
            "addressType": "IPv4",
            "ports": [{ "name": "http", "protocol": "TCP", "port": port }],
            "endpoints": endpoints,
        });
        let api: Api<EndpointSlice> = Api::namespaced(self.client.clone(), &self.namespace);
        api.patch(name, &PatchParams::apply("test").force(), &Patch::Apply(slice)).await.unwrap();
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
        self.until(name, "the Service has an address", address).await
    }

    pub(crate) async fn until_reason(&self, name: &str, reason: &str) -> String {
        let what = format!("the condition Ready of {name} has the reason {reason}");
        self.until(name, &what, |service| {
            let (_, found, message) = ready(service)?;
            (found == reason).then_some(message)
        })
        .await
    }

    pub(crate) async fn until_gone(&self, name: &str) {
        eventually("the Service is gone", SOON, async || match self.services().get_opt(name).await? {
            None => Ok(()),
            Some(service) => Err(anyhow::anyhow!("{:?}", service.metadata.finalizers)),
        })
        .await
        .unwrap();
    }

    /// Waits for the cloud, not for Kubernetes.
    pub(crate) async fn until_cloud(&self, what: &str, probe: impl Fn(&MemoryCloud) -> bool) {
        eventually(what, SOON, async || if probe(&self.cloud) { Ok(()) } else { Err("not yet") }).await.unwrap();
    }
}

pub(crate) fn address(service: &Service) -> Option<String> {
    service.status.as_ref()?.load_balancer.as_ref()?.ingress.as_ref()?.first()?.ip.clone()
}

/// Status, reason and message of our own condition.
pub(crate) fn ready(service: &Service) -> Option<(String, String, String)> {
    let conditions = service.status.as_ref()?.conditions.as_ref()?;
    let ready = conditions.iter().find(|c| c.type_ == names::READY)?;
    Some((ready.status.clone(), ready.reason.clone(), ready.message.clone()))
}

pub(crate) fn is_claimed(service: &Service) -> bool {
    let finalizer = service.metadata.finalizers.iter().flatten().any(|f| f == names::FINALIZER);
    let claim = service.metadata.annotations.iter().flatten().any(|(name, _)| name == names::CLAIMED_BY);
    finalizer && claim
}
