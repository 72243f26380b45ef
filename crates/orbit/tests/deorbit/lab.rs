//! One cluster for all tests of this binary, which take turns with it: a Deorbit is about all of a cluster.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Parser;
use groundcrew_api::deorbit::{Deorbit, DeorbitStatus, Phase};
use groundcrew_core::runtime::{RuntimeArgs, StartError, run_until};
use groundcrew_openstack_cloud::{ServiceLeftovers, VolumeLeftovers};
use groundcrew_orbit::deorbit::cloud::Clouds;
use groundcrew_orbit::deorbit::observe;
use groundcrew_orbit::deorbit::routes::{Recalled, RouteLeftovers};
use groundcrew_orbit::deorbit::{self, Args};
use groundcrew_testkit::eventually;
use groundcrew_testkit::kube::ControlPlane;
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicyBinding;
use k8s_openapi::api::core::v1::{Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::{apps, batch, coordination, networking, storage};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, from_value, json};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Mutex, MutexGuard, OnceCell};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::place::{Everything, Place};
use crate::standins::{Pace, StandIns};

/// The services take seconds for what the model does at once, and longer on a busy machine.
pub(crate) const SOON: Duration = Duration::from_mins(5);
pub(crate) const CLUSTER: &str = "demo";
pub(crate) const CSI: &str = "demo-csi";
const PODS: &str = "100.100.0.0/16";

static PLANE: OnceCell<ControlPlane> = OnceCell::const_new();
static TURN: Mutex<()> = Mutex::const_new(());

/// Without nodes a pod is never scheduled, and goes at once.
const CONTROLLERS: [&str; 8] = [
    "persistentvolume-binder-controller",
    "persistentvolumeclaim-protection-controller",
    "persistentvolume-protection-controller",
    "garbage-collector-controller",
    "namespace-controller",
    "statefulset-controller",
    "deployment-controller",
    "replicaset-controller",
];

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    deorbit: Args,
    #[command(flatten)]
    runtime: RuntimeArgs,
}

pub(crate) struct Lab {
    pub(crate) plane: &'static ControlPlane,
    pub(crate) client: Client,
    pub(crate) place: Arc<Place>,
    pub(crate) standins: StandIns,
    pub(crate) namespace: String,
    /// What the project had before there was a cluster.
    before: Everything,
    _turn: MutexGuard<'static, ()>,
}

/// The controller, with threads and connections of its own.
pub(crate) struct Running {
    stop: CancellationToken,
    ended: JoinHandle<Result<(), StartError>>,
    threads: Option<Runtime>,
}

impl Running {
    pub(crate) async fn stop(mut self) {
        self.stop.cancel();
        (&mut self.ended).await.unwrap().unwrap();
    }

    /// As SIGKILL does: everything that it has under way ends where it is, and what was sent is on its way.
    pub(crate) async fn kill(mut self) {
        let threads = self.threads.take().unwrap();
        tokio::task::spawn_blocking(move || threads.shutdown_timeout(SOON)).await.unwrap();
        assert!((&mut self.ended).await.unwrap_err().is_cancelled(), "it is dead");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(threads) = self.threads.take() {
            threads.shutdown_background();
        }
    }
}

fn definition(group: &str, kind: &str, plural: &str, scope: &str) -> CustomResourceDefinition {
    from_value(json!({
        "metadata": {"name": format!("{plural}.{group}"), "annotations": {"api-approved.kubernetes.io": "unapproved, a test"}},
        "spec": {"group": group, "scope": scope,
            "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]},
    }))
    .unwrap()
}

/// A cluster need not have them.
async fn define(plane: &ControlPlane) -> anyhow::Result<()> {
    let definitions = [
        definition("snapshot.storage.k8s.io", "VolumeSnapshot", "volumesnapshots", "Namespaced"),
        definition("snapshot.storage.k8s.io", "VolumeSnapshotContent", "volumesnapshotcontents", "Cluster"),
        definition("gateway.networking.k8s.io", "Gateway", "gateways", "Namespaced"),
    ];
    plane.define(&definitions).await
}

async fn plane() -> anyhow::Result<ControlPlane> {
    let mut plane = ControlPlane::start().await?;
    plane.define(&groundcrew_api::crds()).await?;
    plane.start_controller_manager(&CONTROLLERS).await?;
    let classes: Api<storage::v1::StorageClass> = Api::all(plane.client().await?);
    for (name, provisioner, policy, mode) in [
        ("cinder", "cinder.csi.openstack.org", "Delete", "Immediate"),
        ("cinder-retain", "cinder.csi.openstack.org", "Retain", "Immediate"),
        ("cinder-late", "cinder.csi.openstack.org", "Delete", "WaitForFirstConsumer"),
        ("nfs", "nfs.csi.k8s.io", "Delete", "Immediate"),
    ] {
        let class = json!({"metadata": {"name": name}, "provisioner": provisioner, "reclaimPolicy": policy,
            "volumeBindingMode": mode});
        classes.create(&PostParams::default(), &from_value(class)?).await?;
    }
    Ok(plane)
}

impl Lab {
    pub(crate) async fn model() -> Self {
        Self::on(async || Place::model().await).await
    }

    /// In a project of its own on all of the services.
    #[allow(dead_code, reason = "one of the two binaries that share this has no services")]
    pub(crate) async fn real(name: &str) -> Self {
        Self::on(async || Place::real(name).await).await
    }

    async fn on(place: impl AsyncFnOnce() -> Place) -> Self {
        let turn = TURN.lock().await;
        let servers = PLANE.get_or_try_init(plane).await.unwrap();
        let client = servers.client().await.unwrap();
        define(servers).await.unwrap();
        purge(&client).await.unwrap();
        let namespace = servers.namespace("shop").await.unwrap();
        let place = Arc::new(place().await);
        let before = place.everything().await;
        let standins = StandIns::start(&client, &place, (CLUSTER, CSI), Pace::default());
        Self { plane: servers, client, place, standins, namespace, before, _turn: turn }
    }

    /// The clouds of a cluster with these names, for whoever has this client.
    pub(crate) fn clouds(&self, (cluster, csi): (&str, &str)) -> impl FnOnce(Client) -> Clouds + Send + 'static {
        let (cloud, router) = (self.place.openstack(), self.place.router.clone());
        let (cluster, csi) = (cluster.to_owned(), csi.to_owned());
        move |client| {
            let leftovers = RouteLeftovers {
                cloud: cloud.clone(),
                client,
                routers: vec![router],
                pod_ranges: vec![PODS.parse().unwrap()],
                recalled: Recalled::default(),
            };
            Clouds::default()
                .with(ServiceLeftovers { cloud: cloud.clone(), cluster, absent: vec![] })
                .with(VolumeLeftovers { cloud, cluster: csi, absent: vec![] })
                .with(leftovers)
        }
    }

    /// The project has what it had before there was a cluster, and nothing else.
    pub(crate) async fn assert_as_before(&self) {
        assert_eq!(self.place.everything().await, self.before);
    }

    pub(crate) fn start(&self) -> Running {
        self.start_as((CLUSTER, CSI), self.plane.kubeconfig_path())
    }

    pub(crate) fn start_on(&self, names: (&str, &str)) -> Running {
        self.start_as(names, self.plane.kubeconfig_path())
    }

    pub(crate) fn start_as(&self, names: (&str, &str), kubeconfig: &Path) -> Running {
        let (clouds, kubeconfig) = (self.clouds(names), kubeconfig.to_str().unwrap());
        let line = Line::parse_from([
            "deorbit",
            "--kubeconfig",
            kubeconfig,
            "--admin-address",
            "127.0.0.1:0",
            "--cluster-id",
            "test",
            "--no-leader-election",
            "--interval",
            "50ms",
            "--lease-namespace",
            "default",
        ]);
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let threads = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let ended = threads.spawn(async move {
            run_until(stopped, CancellationToken::new(), "deorbit", line.runtime, async move |runtime| {
                let clouds = clouds(runtime.client.clone());
                deorbit::start(&runtime, line.deorbit, clouds).await
            })
            .await
        });
        Running { stop, ended, threads: Some(threads) }
    }

    pub(crate) fn deorbits(&self) -> Api<Deorbit> {
        Api::all(self.client.clone())
    }

    /// The uid that confirms.
    pub(crate) async fn uid(&self) -> String {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        namespaces.get("kube-system").await.unwrap().uid().unwrap()
    }

    /// A confirmed Deorbit with these fields beside.
    pub(crate) async fn deorbit(&self, fields: &Value) {
        let mut spec = json!({"confirm": self.uid().await});
        spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let deorbit = from_value(json!({"metadata": {"name": "end"}, "spec": spec})).unwrap();
        self.deorbits().create(&PostParams::default(), &deorbit).await.unwrap();
    }

    /// Gives it other budgets, once it is like this.
    pub(crate) async fn cut_short(&self, what: &str, probe: impl Fn(&DeorbitStatus) -> bool, budgets: &Value) {
        self.until(what, probe).await;
        let budgets = Patch::Merge(json!({"spec": {"budgets": budgets}}));
        self.deorbits().patch("end", &PatchParams::default(), &budgets).await.unwrap();
    }

    /// Deletes a Deorbit, and waits until whoever works on it has let it go.
    pub(crate) async fn gone(&self, name: &str) {
        self.deorbits().delete(name, &DeleteParams::default()).await.unwrap();
        eventually("the Deorbit is gone", SOON, async || {
            ensure!(self.deorbits().get_opt(name).await?.is_none(), "it is there");
            Ok(())
        })
        .await
        .unwrap();
    }

    /// Lifts what somebody forbade.
    pub(crate) async fn touchable(&self) {
        let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(self.client.clone());
        bindings.delete("untouchable", &DeleteParams::default()).await.unwrap();
    }

    pub(crate) async fn status(&self) -> DeorbitStatus {
        self.deorbits().get("end").await.unwrap().status.unwrap_or_default()
    }

    pub(crate) async fn until(&self, what: &str, probe: impl Fn(&DeorbitStatus) -> bool) -> DeorbitStatus {
        eventually(what, SOON, async || {
            let status = self.deorbits().get("end").await?.status.unwrap_or_default();
            ensure!(probe(&status), "{:?} {:?} {} {:?}", status.phase, status.stage, status.message, status.report);
            Ok(status)
        })
        .await
        .unwrap()
    }

    pub(crate) async fn until_phase(&self, phase: Phase) -> DeorbitStatus {
        self.until(&format!("{phase:?}"), |status| status.phase == phase).await
    }

    pub(crate) async fn make<K>(&self, object: Value)
    where
        K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned
            + serde::Serialize,
    {
        let api: Api<K> = Api::namespaced(self.client.clone(), &self.namespace);
        api.create(&PostParams::default(), &from_value(object).unwrap()).await.unwrap();
    }

    pub(crate) async fn service(&self, name: &str) {
        let ports = json!([{"port": 80}]);
        self.make::<Service>(json!({"metadata": {"name": name}, "spec": {"type": "LoadBalancer", "ports": ports}}))
            .await;
    }

    /// Waits until the stand-in has served this Service.
    pub(crate) async fn served(&self, name: &str) {
        self.service(name).await;
        self.until_served(name).await;
    }

    /// Gives the id of its load balancer.
    pub(crate) async fn until_served(&self, name: &str) -> String {
        let api: Api<Service> = Api::namespaced(self.client.clone(), &self.namespace);
        eventually(&format!("Service {name} is served"), SOON, async || {
            let service = api.get(name).await?;
            service.annotations().get("loadbalancer.openstack.org/load-balancer-id").cloned().context("not yet")
        })
        .await
        .unwrap()
    }

    pub(crate) async fn claim(&self, name: &str, class: &str) {
        self.make::<PersistentVolumeClaim>(claim(name, class)).await;
    }

    /// Waits until the claim has a volume.
    pub(crate) async fn bound(&self, name: &str, class: &str) -> String {
        self.claim(name, class).await;
        self.until_bound(name).await
    }

    pub(crate) async fn until_bound(&self, name: &str) -> String {
        let api: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), &self.namespace);
        let volumes: Api<PersistentVolume> = Api::all(self.client.clone());
        eventually(&format!("claim {name} is bound"), SOON, async || {
            let claim = api.get(name).await?;
            let phase = claim.status.and_then(|status| status.phase);
            ensure!(phase.as_deref() == Some("Bound"), "{phase:?}");
            let name = claim.spec.and_then(|spec| spec.volume_name).context("no volume")?;
            let spec = volumes.get(&name).await?.spec.context("no spec")?;
            Ok(spec.csi.context("no source")?.volume_handle)
        })
        .await
        .unwrap()
    }

    /// A `StatefulSet` of one pod with a claim of this class for it. Waits until both are there.
    pub(crate) async fn stateful_set(&self, name: &str, class: &str) {
        let mut claim = claim("data", class);
        claim["metadata"] = json!({"name": "data"});
        self.make::<apps::v1::StatefulSet>(json!({
            "metadata": {"name": name},
            "spec": {"replicas": 1, "serviceName": name, "selector": {"matchLabels": {"app": name}},
                "template": {"metadata": {"labels": {"app": name}},
                    "spec": {"containers": [{"name": "c", "image": "none"}]}},
                "volumeClaimTemplates": [claim]},
        }))
        .await;
        self.until_bound(&format!("data-{name}-0")).await;
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &self.namespace);
        let pod = format!("{name}-0");
        eventually(&format!("pod {pod} is there"), SOON, async || pods.get(&pod).await).await.unwrap();
    }

    /// With its content; the handle is its id in the cloud.
    pub(crate) async fn snapshot(&self, name: &str, driver: &str, policy: &str, handle: &str) {
        let resource = observe::content();
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        let content = json!({"metadata": {"name": format!("{}-{name}", self.namespace)}, "spec": {
            "driver": driver, "deletionPolicy": policy, "source": {"snapshotHandle": handle},
            "volumeSnapshotRef": {"namespace": self.namespace, "name": name}},
            "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent"});
        api.create(&PostParams::default(), &from_value(content).unwrap()).await.unwrap();
        self.dynamic(&observe::snapshot(), name).await;
    }

    /// A snapshot of a claim, as a user asks for one, and waits until the stand-in has made it. Gives its id in the cloud.
    pub(crate) async fn snapshot_of(&self, claim: &str, name: &str) -> String {
        let resource = observe::snapshot();
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &self.namespace, &resource);
        let asked = json!({"source": {"persistentVolumeClaimName": claim}});
        let snapshot = DynamicObject::new(name, &resource).data(json!({"spec": asked}));
        api.create(&PostParams::default(), &snapshot).await.unwrap();
        let contents: Api<DynamicObject> = Api::all_with(self.client.clone(), &observe::content());
        eventually(&format!("snapshot {name} is there"), SOON, async || {
            let content = contents.get(&format!("{}-{name}", self.namespace)).await?;
            let handle = content.data["status"]["snapshotHandle"].as_str().context("no handle")?;
            anyhow::Ok(handle.to_owned())
        })
        .await
        .unwrap()
    }

    /// A Node at 10.180.1.<i> with pods in 100.100.<i>.0/24.
    pub(crate) async fn node(&self, i: u8) {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let name = format!("n{i}");
        let range = format!("100.100.{i}.0/24");
        let node = json!({"metadata": {"name": name}, "spec": {"podCIDR": range, "podCIDRs": [range]}});
        nodes.create(&PostParams::default(), &from_value(node).unwrap()).await.unwrap();
        let address = json!([{"type": "InternalIP", "address": format!("10.180.1.{i}")}]);
        let patch = Patch::Strategic(json!({"status": {"addresses": address}}));
        nodes.patch_status(&name, &PatchParams::default(), &patch).await.unwrap();
    }

    pub(crate) async fn dynamic(&self, resource: &ApiResource, name: &str) {
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &self.namespace, resource);
        api.create(&PostParams::default(), &DynamicObject::new(name, resource)).await.unwrap();
    }

    pub(crate) async fn label_keep<K>(&self, name: &str)
    where
        K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned,
    {
        let api: Api<K> = Api::namespaced(self.client.clone(), &self.namespace);
        let patch = json!({"metadata": {"labels": {"groundcrew.dev/deorbit": "keep"}}});
        api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }
}

pub(crate) fn claim(name: &str, class: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": class,
        "resources": {"requests": {"storage": "10Gi"}}}})
}

/// What a test before left, however it ended.
async fn purge(client: &Client) -> anyhow::Result<()> {
    for resource in [
        ApiResource::erase::<Deorbit>(&()),
        ApiResource::erase::<k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicyBinding>(&()),
        ApiResource::erase::<k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy>(&()),
        ApiResource::erase::<k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration>(&()),
        ApiResource::erase::<apps::v1::StatefulSet>(&()),
        ApiResource::erase::<apps::v1::Deployment>(&()),
        ApiResource::erase::<batch::v1::CronJob>(&()),
        observe::snapshot(),
        observe::content(),
        observe::gateway(),
        ApiResource::erase::<networking::v1::Ingress>(&()),
        ApiResource::erase::<Pod>(&()),
        ApiResource::erase::<Service>(&()),
        ApiResource::erase::<PersistentVolumeClaim>(&()),
        ApiResource::erase::<storage::v1::VolumeAttachment>(&()),
        ApiResource::erase::<PersistentVolume>(&()),
        ApiResource::erase::<Node>(&()),
    ] {
        let all: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        eventually(&format!("no {} is left", resource.plural), SOON, async || {
            let mut left = all.list(&ListParams::default()).await?.items;
            left.retain(|object| !(object.name_any() == "kubernetes" && resource.kind == "Service"));
            ensure_empty(client, &resource, &left).await
        })
        .await?;
    }
    // An API server goes on with a policy for a moment.
    eventually("nothing is blocked", SOON, async || {
        let blocked = groundcrew_orbit::deorbit::freeze::is_blocked(client, Duration::from_secs(5)).await?;
        ensure!(!blocked, "it is");
        Ok(())
    })
    .await?;
    let leases: Api<coordination::v1::Lease> = Api::namespaced(client.clone(), "kube-system");
    for name in ["cloud-controller-manager", "cinder-csi-openstack-org", "snapshot-controller-leader"] {
        let _ = leases.delete(name, &DeleteParams::default()).await;
    }
    Ok(())
}

async fn ensure_empty(client: &Client, resource: &ApiResource, left: &[DynamicObject]) -> anyhow::Result<()> {
    for object in left {
        let api: Api<DynamicObject> = match object.namespace() {
            Some(namespace) => Api::namespaced_with(client.clone(), &namespace, resource),
            None => Api::all_with(client.clone(), resource),
        };
        let free = json!({"metadata": {"finalizers": null}});
        let _ = api.patch(&object.name_any(), &PatchParams::default(), &Patch::Merge(free)).await;
        let _ = api.delete(&object.name_any(), &DeleteParams::default().grace_period(0)).await;
    }
    ensure!(left.is_empty(), "{} of them", left.len());
    Ok(())
}
