//! A control plane, a project on a model of OpenStack, and the program.

use std::process::Command;
use std::sync::Arc;

use anyhow::Result;
use futures::stream::{self, StreamExt, TryStreamExt};
use groundcrew_testkit::Scratch;
use groundcrew_testkit::kube::ControlPlane;
use groundcrew_testkit::openstack::fake::PASSWORD;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::PostParams;
use kube::{Api, Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, from_value, json};

use super::place::Place;
use crate::rig::beside_us;

pub(super) const CLUSTER: &str = "bench";
pub(super) const CSI: &str = "bench-csi";
/// Requests at once.
const AT_ONCE: usize = 16;

pub(super) struct Rig {
    pub(super) plane: ControlPlane,
    pub(super) client: Client,
    pub(super) namespace: String,
    pub(super) place: Arc<Place>,
    pub(super) dir: Scratch,
}

impl Rig {
    pub(super) async fn start(controllers: &[&str]) -> Result<Self> {
        let mut plane = ControlPlane::start().await?;
        plane.define(&groundcrew_api::crds()).await?;
        if !controllers.is_empty() {
            plane.start_controller_manager(controllers).await?;
        }
        let client = plane.client().await?;
        let classes: Api<StorageClass> = Api::all(client.clone());
        for (name, provisioner) in [("cinder", super::standins::DRIVER), ("nfs", "nfs.csi.k8s.io")] {
            let class = json!({"metadata": {"name": name}, "provisioner": provisioner, "reclaimPolicy": "Delete"});
            classes.create(&PostParams::default(), &from_value(class)?).await?;
        }
        let namespace = plane.namespace("shop").await?;
        let (cloud, dir) = (Arc::new(Place::model().await), Scratch::new("bench")?);
        let conf = format!(
            "[Global]\nauth-url = {}/v3\nusername = demo\npassword = {PASSWORD}\ntenant-name = kluster\ndomain-id = default\n",
            cloud.fake().fake.url()
        );
        std::fs::write(dir.path().join("cloud.conf"), conf)?;
        Ok(Self { plane, client, namespace, place: cloud, dir })
    }

    /// `groundcrew` with these words, on this cluster and in this project.
    pub(super) fn command(&self, words: &[&str]) -> Result<Command> {
        let mut command = Command::new(beside_us("groundcrew")?);
        command.args(words).args(["--ccm-cluster", CLUSTER, "--csi-cluster", CSI, "--lease-namespace", "default"]);
        command.args(["--router", &self.place.router, "--pod-cidr", "100.100.0.0/16"]);
        command.arg("--cloud-conf").arg(self.dir.path().join("cloud.conf"));
        command.arg("--kubeconfig").arg(self.plane.kubeconfig_path());
        // As the image sets them.
        command.envs([("MALLOC_ARENA_MAX", "2"), ("MALLOC_TRIM_THRESHOLD_", "131072")]);
        command.env("MALLOC_MMAP_THRESHOLD_", "131072");
        Ok(command)
    }

    pub(super) async fn uid(&self) -> Result<String> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        Ok(namespaces.get("kube-system").await?.uid().unwrap_or_default())
    }

    pub(super) fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Makes objects, many at once. Gives them as the API server has them.
    pub(super) async fn make<K>(&self, api: &Api<K>, objects: Vec<Value>) -> Result<Vec<K>>
    where
        K: Resource + Clone + std::fmt::Debug + DeserializeOwned + Serialize,
    {
        let made = stream::iter(objects)
            .map(|object| async { anyhow::Ok(api.create(&PostParams::default(), &from_value(object)?).await?) });
        made.buffer_unordered(AT_ONCE).try_collect().await
    }
}

pub(super) fn claim(name: &str, class: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": class,
        "resources": {"requests": {"storage": "10Gi"}}}})
}
