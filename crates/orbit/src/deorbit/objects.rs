//! What is read of each object: the few fields that a decision needs. A cluster may have thousands.

use groundcrew_api::names::{annotation, label};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{self as core, PodSpec};
use k8s_openapi::api::networking::v1 as networking;
use k8s_openapi::api::storage::v1 as storage;
use kube::api::{DynamicObject, ObjectMeta};
use serde_json::Value;

/// What every object has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Object {
    /// Empty of those that have none.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid: a namesake that was made later is another.
    pub uid: String,
    /// Its resourceVersion.
    pub version: String,
    /// Since when it is being deleted.
    pub terminating: Option<Timestamp>,
    /// Who still has to agree.
    pub finalizers: Vec<String>,
    /// Whether somebody asked by its label that it stays.
    pub keep: bool,
}

impl Object {
    /// `namespace/name`, or the name alone.
    #[must_use]
    pub fn key(&self) -> String {
        if self.namespace.is_empty() { self.name.clone() } else { format!("{}/{}", self.namespace, self.name) }
    }
}

impl From<ObjectMeta> for Object {
    fn from(meta: ObjectMeta) -> Self {
        let keep =
            meta.labels.as_ref().and_then(|labels| labels.get(label::DEORBIT)).is_some_and(|what| what == "keep");
        Self {
            namespace: meta.namespace.unwrap_or_default(),
            name: meta.name.unwrap_or_default(),
            uid: meta.uid.unwrap_or_default(),
            version: meta.resource_version.unwrap_or_default(),
            terminating: meta.deletion_timestamp.map(|time| time.0),
            finalizers: meta.finalizers.unwrap_or_default(),
            keep,
        }
    }
}

impl From<DynamicObject> for Object {
    fn from(object: DynamicObject) -> Self {
        object.metadata.into()
    }
}

/// A Service of the type `LoadBalancer`, or one that was and still has its load balancer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// What every object has.
    pub object: Object,
    /// Who is to serve it.
    pub class: Option<String>,
    /// The class of the controller of ours that does.
    pub claimed: Option<String>,
    /// The id of its load balancer, where OpenStack's controller noted it.
    pub balancer: Option<String>,
    /// Whether its floating address is to stay.
    pub keeps_address: bool,
    /// Whether it has been given an address.
    pub has_address: bool,
    /// The Gateway that it was made for, as `namespace/name`.
    pub gateway: Option<String>,
}

/// OpenStack's controller reads it when the Service goes.
pub const KEEP_ADDRESS: &str = "loadbalancer.openstack.org/keep-floatingip";
/// The same of Octavia's Ingress controller.
pub const KEEP_INGRESS_ADDRESS: &str = "octavia.ingress.kubernetes.io/keep-floatingip";
const BALANCER: &str = "loadbalancer.openstack.org/load-balancer-id";

impl Service {
    /// `None` of a Service that has no load balancer.
    #[must_use]
    pub fn read(service: core::Service) -> Option<Self> {
        let spec = service.spec.unwrap_or_default();
        if spec.type_.as_deref() != Some("LoadBalancer") {
            return None;
        }
        let notes = service.metadata.annotations.clone().unwrap_or_default();
        let balancer = service.status.and_then(|status| status.load_balancer);
        Some(Self {
            has_address: balancer.and_then(|balancer| balancer.ingress).is_some_and(|given| !given.is_empty()),
            class: spec.load_balancer_class,
            claimed: notes.get(annotation::CLAIMED_BY).cloned(),
            balancer: notes.get(BALANCER).cloned(),
            keeps_address: notes.get(KEEP_ADDRESS).is_some_and(|keep| keep == "true"),
            gateway: gateway(&service.metadata),
            object: service.metadata.into(),
        })
    }
}

/// An Ingress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ingress {
    /// What every object has.
    pub object: Object,
    /// Whether its floating address is to stay.
    pub keeps_address: bool,
}

impl From<networking::Ingress> for Ingress {
    fn from(ingress: networking::Ingress) -> Self {
        let note = ingress.metadata.annotations.as_ref().and_then(|notes| notes.get(KEEP_INGRESS_ADDRESS));
        // All that Go takes for true.
        let yes = |note: &String| ["1", "t", "T", "true", "TRUE", "True"].contains(&note.as_str());
        Self { keeps_address: note.is_some_and(yes), object: ingress.metadata.into() }
    }
}

/// By the label that the Gateway API has for it, or by its owner. Envoy Gateway has its Services in a namespace of its own,
/// and labels of its own.
fn gateway(meta: &ObjectMeta) -> Option<String> {
    let label = |name: &str| meta.labels.as_ref()?.get(name).map(String::as_str);
    let elsewhere = label("gateway.envoyproxy.io/owning-gateway-namespace");
    if let Some((namespace, name)) = elsewhere.zip(label("gateway.envoyproxy.io/owning-gateway-name")) {
        return Some(format!("{namespace}/{name}"));
    }
    let owner = meta
        .owner_references
        .iter()
        .flatten()
        .find(|owner| owner.kind == "Gateway" && owner.api_version.starts_with("gateway.networking.k8s.io/"));
    let name = label("gateway.networking.k8s.io/gateway-name").or(owner.map(|owner| owner.name.as_str()))?;
    Some(format!("{}/{name}", meta.namespace.as_deref().unwrap_or_default()))
}

/// A `PersistentVolumeClaim`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// What every object has.
    pub object: Object,
    /// The `PersistentVolume` that it is bound to.
    pub volume: Option<String>,
    /// Its `StorageClass`.
    pub class: Option<String>,
    /// The driver that was asked for its volume.
    pub provisioner: Option<String>,
}

impl From<core::PersistentVolumeClaim> for Claim {
    fn from(claim: core::PersistentVolumeClaim) -> Self {
        let spec = claim.spec.unwrap_or_default();
        let notes = claim.metadata.annotations.clone().unwrap_or_default();
        let asked = ["volume.kubernetes.io/storage-provisioner", "volume.beta.kubernetes.io/storage-provisioner"];
        Self {
            object: claim.metadata.into(),
            volume: spec.volume_name.filter(|name| !name.is_empty()),
            class: spec.storage_class_name,
            provisioner: asked.iter().find_map(|key| notes.get(*key).cloned()),
        }
    }
}

/// Whether volumes of this driver are Cinder's.
#[must_use]
pub fn is_cinder(driver: &str) -> bool {
    driver == "cinder.csi.openstack.org" || driver == "kubernetes.io/cinder"
}

/// A `PersistentVolume`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// What every object has.
    pub object: Object,
    /// Whose it is outside; empty of one that no driver made.
    pub driver: String,
    /// The driver's name for it.
    pub handle: String,
    /// Whether it stays when its claim goes.
    pub retained: bool,
    /// The claim that it is for, as `namespace/name`.
    pub claim: Option<String>,
}

impl From<core::PersistentVolume> for Volume {
    fn from(volume: core::PersistentVolume) -> Self {
        let spec = volume.spec.unwrap_or_default();
        let (driver, handle) = match (spec.csi, spec.cinder) {
            (Some(csi), _) => (csi.driver, csi.volume_handle),
            (None, Some(cinder)) => ("kubernetes.io/cinder".into(), cinder.volume_id),
            (None, None) => (String::new(), String::new()),
        };
        let claim = spec
            .claim_ref
            .map(|claim| format!("{}/{}", claim.namespace.unwrap_or_default(), claim.name.unwrap_or_default()));
        let retained = spec.persistent_volume_reclaim_policy.as_deref() != Some("Delete");
        Self { object: volume.metadata.into(), driver, handle, retained, claim }
    }
}

/// A `VolumeAttachment`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    /// What every object has.
    pub object: Object,
    /// The `PersistentVolume`.
    pub volume: String,
}

impl From<storage::VolumeAttachment> for Attachment {
    fn from(attachment: storage::VolumeAttachment) -> Self {
        let volume = attachment.spec.source.persistent_volume_name.unwrap_or_default();
        Self { object: attachment.metadata.into(), volume }
    }
}

/// A `VolumeSnapshot`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// What every object has.
    pub object: Object,
    /// The claim that it is of, as `namespace/name`.
    pub claim: Option<String>,
}

impl From<DynamicObject> for Snapshot {
    fn from(snapshot: DynamicObject) -> Self {
        let claim = snapshot.data.pointer("/spec/source/persistentVolumeClaimName").and_then(Value::as_str);
        let namespace = snapshot.metadata.namespace.as_deref().unwrap_or_default();
        let claim = claim.map(|claim| format!("{namespace}/{claim}"));
        Self { claim, object: snapshot.metadata.into() }
    }
}

/// A `VolumeSnapshotContent`: whose a snapshot is outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    /// What every object has.
    pub object: Object,
    /// The driver.
    pub driver: String,
    /// The driver's name for the snapshot.
    pub handle: String,
    /// Whether it stays when its `VolumeSnapshot` goes.
    pub retained: bool,
    /// The `VolumeSnapshot`, as `namespace/name`.
    pub snapshot: String,
}

impl From<DynamicObject> for Content {
    fn from(content: DynamicObject) -> Self {
        let text = |pointer: &str| content.data.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let handles = [text("/status/snapshotHandle"), text("/spec/source/snapshotHandle")];
        Self {
            driver: text("/spec/driver"),
            handle: handles.into_iter().find(|handle| !handle.is_empty()).unwrap_or_default(),
            retained: text("/spec/deletionPolicy") != "Delete",
            snapshot: format!("{}/{}", text("/spec/volumeSnapshotRef/namespace"), text("/spec/volumeSnapshotRef/name")),
            object: content.metadata.into(),
        }
    }
}

/// A Pod that uses claims and has not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    /// What every object has.
    pub object: Object,
    /// The names of its claims, those that are made for it too.
    pub claims: Vec<String>,
}

impl Pod {
    /// `None` of one without claims.
    #[must_use]
    pub fn read(pod: core::Pod) -> Option<Self> {
        let ended = matches!(pod.status.and_then(|status| status.phase).as_deref(), Some("Succeeded" | "Failed"));
        let object = Object::from(pod.metadata);
        let claims = pod.spec.map(|spec| claims(&spec, Some(&object.name))).unwrap_or_default();
        (!ended && !claims.is_empty()).then_some(Self { object, claims })
    }
}

/// The claims that a pod names, and with the pod's name also those that are made for it.
fn claims(spec: &PodSpec, pod: Option<&str>) -> Vec<String> {
    let mut names = Vec::new();
    for volume in spec.volumes.iter().flatten() {
        if let Some(claim) = &volume.persistent_volume_claim {
            names.push(claim.claim_name.clone());
        }
        if let (Some(_), Some(pod)) = (&volume.ephemeral, pod) {
            names.push(format!("{pod}-{}", volume.name));
        }
    }
    names
}

/// What runs pods, and how to stop it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum WorkloadKind {
    /// Scaled to zero.
    Deployment,
    /// Scaled to zero.
    StatefulSet,
    /// Scaled to zero, if nothing owns it.
    ReplicaSet,
    /// Suspended.
    CronJob,
    /// Suspended.
    Job,
}

/// Something that makes pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workload {
    /// Which.
    pub kind: WorkloadKind,
    /// What every object has.
    pub object: Object,
    /// How many pods it wants; of what is suspended rather than scaled, 0 or 1.
    pub wants: i32,
    /// What it wanted before we stopped it.
    pub before: Option<String>,
    /// The claims that all its pods name.
    pub claims: Vec<String>,
    /// The classes of the claims that are made for each of its pods: templates, and volumes that end with the pod.
    pub templates: Vec<Template>,
}

/// A claim that is made for a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    /// The template's name.
    pub name: String,
    /// The `StorageClass`.
    pub class: Option<String>,
}

impl Workload {
    fn new(kind: WorkloadKind, mut meta: ObjectMeta, wants: i32, pods: Option<&PodSpec>) -> Self {
        let before = meta.annotations.take().and_then(|mut notes| notes.remove(annotation::BEFORE_DEORBIT));
        let ephemeral = pods.iter().flat_map(|spec| spec.volumes.iter().flatten()).filter_map(|volume| {
            let claim = volume.ephemeral.as_ref()?.volume_claim_template.as_ref()?;
            Some(Template { name: volume.name.clone(), class: claim.spec.storage_class_name.clone() })
        });
        Self {
            kind,
            object: meta.into(),
            wants,
            before,
            claims: pods.map(|spec| claims(spec, None)).unwrap_or_default(),
            templates: ephemeral.collect(),
        }
    }
}

impl From<Deployment> for Workload {
    fn from(deployment: Deployment) -> Self {
        let spec = deployment.spec.unwrap_or_default();
        let wants = spec.replicas.unwrap_or(1);
        Self::new(WorkloadKind::Deployment, deployment.metadata, wants, spec.template.spec.as_ref())
    }
}

impl From<StatefulSet> for Workload {
    fn from(set: StatefulSet) -> Self {
        let spec = set.spec.unwrap_or_default();
        let wants = spec.replicas.unwrap_or(1);
        let mut workload = Self::new(WorkloadKind::StatefulSet, set.metadata, wants, spec.template.spec.as_ref());
        workload.templates.extend(spec.volume_claim_templates.into_iter().flatten().map(|claim| Template {
            name: claim.metadata.name.unwrap_or_default(),
            class: claim.spec.and_then(|spec| spec.storage_class_name),
        }));
        workload
    }
}

impl Workload {
    /// `None` of a `ReplicaSet` that a Deployment scales.
    #[must_use]
    pub fn replica_set(set: ReplicaSet) -> Option<Self> {
        if set.metadata.owner_references.iter().flatten().any(|owner| owner.controller == Some(true)) {
            return None;
        }
        let spec = set.spec.unwrap_or_default();
        let wants = spec.replicas.unwrap_or(1);
        let pods = spec.template.and_then(|template| template.spec);
        Some(Self::new(WorkloadKind::ReplicaSet, set.metadata, wants, pods.as_ref()))
    }

    /// `None` of a Job that has ended.
    #[must_use]
    pub fn job(job: Job) -> Option<Self> {
        if job.status.is_some_and(|status| status.completion_time.is_some()) {
            return None;
        }
        let spec = job.spec.unwrap_or_default();
        let wants = i32::from(spec.suspend != Some(true));
        Some(Self::new(WorkloadKind::Job, job.metadata, wants, spec.template.spec.as_ref()))
    }
}

impl From<CronJob> for Workload {
    fn from(job: CronJob) -> Self {
        let spec = job.spec.unwrap_or_default();
        let wants = i32::from(spec.suspend != Some(true));
        let pods = spec.job_template.spec.and_then(|spec| spec.template.spec);
        Self::new(WorkloadKind::CronJob, job.metadata, wants, pods.as_ref())
    }
}
