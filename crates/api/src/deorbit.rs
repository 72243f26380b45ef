//! `Deorbit`: the end of a cluster, what is to become of each kind of thing outside, how far it is, and what is left.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is to be done.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
#[kube(
    group = "groundcrew.dev",
    version = "v1alpha1",
    kind = "Deorbit",
    plural = "deorbits",
    singular = "deorbit",
    status = "DeorbitStatus",
    derive = "PartialEq",
    doc = "Deorbit removes what this cluster has outside of Kubernetes (load balancers, floating addresses, volumes, snapshots, routes), waits until the cloud shows nothing of it any more, and tells what is left. Deleting the object before anything was deleted puts everything back.",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Stage", type_ = "string", json_path = ".status.stage"),
    printcolumn(name = "Left", type_ = "integer", json_path = ".status.left"),
    printcolumn(name = "Started", type_ = "date", json_path = ".status.startedAt"),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.message", priority = 1),
    validation = kube::core::Rule::new("self.spec.dryRun == oldSelf.spec.dryRun || self.spec.dryRun == false")
        .message("a run cannot become a dry run; delete the object to stop")
        .field_path(".spec.dryRun")
)]
#[serde(rename_all = "camelCase")]
pub struct DeorbitSpec {
    /// The uid of the namespace kube-system of the cluster that is to go (kubectl get namespace kube-system -o jsonpath={.metadata.uid}). Without the right one nothing is done.
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub confirm: String,
    /// Show the plan in the status, and do nothing.
    #[serde(default)]
    pub dry_run: bool,
    /// What becomes of each kind of thing outside.
    #[serde(default)]
    pub policies: Policies,
    /// What is left alone.
    #[serde(default)]
    pub protect: Protect,
    /// How long things may take.
    #[serde(default)]
    pub budgets: Budgets,
    /// Whether the cluster may go when the time is up and something is left. The report is written first either way.
    #[serde(default)]
    pub on_budget_end: OnBudgetEnd,
    /// The most things that are removed by the cloud's API. More of them: none is removed, and all are reported.
    #[serde(default = "max_cloud_deletes")]
    #[schemars(range(min = 0, max = 10000))]
    pub max_cloud_deletes: u32,
}

fn max_cloud_deletes() -> u32 {
    100
}

/// What becomes of a kind of thing.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// The cluster's own controllers remove it, and what they leave is removed by the cloud's API.
    Delete,
    /// The cluster's own controllers remove it, and what they leave is reported.
    #[default]
    Report,
    /// It stays, and so does the object in the cluster that it belongs to.
    Keep,
}

/// Policies by kind.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Policies {
    /// Volumes of claims.
    #[serde(default)]
    pub volumes: Policy,
    /// Volumes whose PersistentVolume has the reclaim policy Retain. Delete removes them by the cloud's API.
    #[serde(default)]
    pub retained_volumes: Policy,
    /// Snapshots of volumes.
    #[serde(default)]
    pub snapshots: Policy,
    /// Backups of volumes.
    #[serde(default)]
    pub backups: Policy,
    /// Load balancers of Services, Ingresses and Gateways.
    #[serde(default)]
    pub load_balancers: Policy,
    /// Floating addresses of Services.
    #[serde(default)]
    pub floating_ips: Policy,
    /// Security groups of load balancers.
    #[serde(default)]
    pub security_groups: Policy,
    /// Routes to pods.
    #[serde(default)]
    pub routes: Policy,
}

/// What is left alone.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Protect {
    /// Nothing in these namespaces is stopped, blocked or deleted: the controllers live there that are needed to the end.
    #[serde(default = "protected_namespaces")]
    #[schemars(length(max = 64))]
    pub namespaces: Vec<String>,
}

fn protected_namespaces() -> Vec<String> {
    vec!["kube-system".into()]
}

impl Default for Protect {
    fn default() -> Self {
        Self { namespaces: protected_namespaces() }
    }
}

/// How long things may take, as 90s, 15m or 2h.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Budgets {
    /// All of it.
    #[serde(default = "total")]
    #[schemars(regex(pattern = "^[0-9]+(ms|s|m|h)$"))]
    pub total: String,
    /// Each stage that is not named below.
    #[serde(default = "stage")]
    #[schemars(regex(pattern = "^[0-9]+(ms|s|m|h)$"))]
    pub stage: String,
    /// Single stages, by their names in the status.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub stages: BTreeMap<StageName, String>,
}

fn total() -> String {
    "2h".into()
}

fn stage() -> String {
    "15m".into()
}

impl Default for Budgets {
    fn default() -> Self {
        Self { total: total(), stage: stage(), stages: BTreeMap::new() }
    }
}

/// What follows when the time is up and something is left.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnBudgetEnd {
    /// The cluster stays. The cloud is looked at on and on, so that it may go as soon as somebody has removed the rest.
    #[default]
    Hold,
    /// The cluster may go.
    Proceed,
}

/// The stages. Those that do not need each other run side by side.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StageName {
    /// Is everything there that is needed?
    Preflight,
    /// Nobody may make new claims, snapshots, load balancers, Ingresses or Gateways.
    Freeze,
    /// What uses claims is scaled to zero, and CronJobs are suspended.
    Quiesce,
    /// VolumeSnapshots go.
    Snapshots,
    /// Gateways and Ingresses go.
    Gateways,
    /// Services of the type LoadBalancer go.
    LoadBalancers,
    /// Pods that use claims go.
    Pods,
    /// Claims go.
    Claims,
    /// PersistentVolumes and VolumeAttachments go.
    Volumes,
    /// Does the cloud show nothing any more?
    Verify,
    /// What is left goes by the cloud's API.
    Cloud,
    /// Routes to pods go.
    Routes,
}

/// How far it is.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Phase {
    /// Nobody has looked yet.
    #[default]
    Pending,
    /// It was a dry run; the plan is in the status.
    Planned,
    /// Something is missing, and nothing was done.
    Refused,
    /// It runs.
    Running,
    /// Nothing is left, neither in Kubernetes nor in the cloud.
    Clean,
    /// Something is left; the report tells what and why.
    Leftovers,
}

/// How far a stage is.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
pub enum StageState {
    /// It runs.
    Running,
    /// It is done.
    Done,
    /// Its time was up, or there was nobody to wait for; what is left is reported.
    GivenUp,
}

/// What Deorbit did and found.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct DeorbitStatus {
    /// How far it is.
    #[serde(default)]
    pub phase: Phase,
    /// The stages that run now.
    #[serde(default)]
    pub stage: String,
    /// One sentence for people.
    #[serde(default)]
    pub message: String,
    /// The generation that was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i64")]
    pub observed_generation: Option<i64>,
    /// How many things are left, in Kubernetes and outside.
    #[serde(default)]
    pub left: u32,
    /// Whether the cluster may go: it is clean, or onBudgetEnd says so.
    #[serde(default)]
    pub let_go: bool,
    /// When it began. A restart does not set the clock back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Time")]
    pub started_at: Option<Time>,
    /// When the first thing was deleted. From then on it cannot be aborted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Time")]
    pub irreversible_at: Option<Time>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Time")]
    pub ended_at: Option<Time>,
    /// The stages that have begun.
    #[serde(default)]
    pub stages: Vec<StageStatus>,
    /// What would be or was to be done, in numbers.
    #[serde(default)]
    pub plan: Vec<PlanLine>,
    /// Volumes that somebody wants to keep, by the driver's names for them: noted before their objects can go.
    #[serde(default)]
    pub kept_volumes: Vec<KeptVolume>,
    /// Services, as namespace/name, and Ingresses, as Ingress namespace/name, whose floating address somebody wants to keep.
    #[serde(default)]
    pub kept_addresses: Vec<String>,
    /// What objects named outside that does not carry the cluster's mark: asked for one by one until the cloud says that it is gone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unmarked: Vec<UnmarkedThing>,
    /// Routes that led to Nodes of this cluster: noted before the Nodes can go.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<String>,
    /// What is left, the first hundred. All of it is in the ConfigMap.
    #[serde(default)]
    pub report: Vec<ReportLine>,
    /// The ConfigMap that has the whole report, as namespace/name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub report_config_map: String,
}

/// One stage.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct StageStatus {
    /// Which.
    pub name: StageName,
    /// How far.
    pub state: StageState,
    /// When it began.
    pub started_at: Time,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Time")]
    pub ended_at: Option<Time>,
    /// How many things there were at its beginning.
    pub total: u32,
    /// How many of them are there yet.
    pub left: u32,
    /// Why it does not go on.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// One line of a plan.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct PlanLine {
    /// The stage.
    pub stage: StageName,
    /// What becomes of it: delete, scale, report, keep.
    pub action: String,
    /// What kind of thing.
    pub kind: String,
    /// How many.
    pub count: u32,
    /// The first few, by name.
    #[serde(default)]
    pub names: Vec<String>,
}

/// A volume that is not to be removed.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "camelCase")]
pub struct KeptVolume {
    /// The driver's name for it.
    pub handle: String,
    /// Why.
    pub why: String,
    /// Whether it is kept for the reclaim policy Retain alone, which the policy retainedVolumes overrules.
    #[serde(default)]
    pub retained: bool,
}

/// Something that an object of the cluster named, and that no list of what is marked shows.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "camelCase")]
pub struct UnmarkedThing {
    /// What named it: PersistentVolume or VolumeSnapshotContent.
    pub kind: String,
    /// The name of that object.
    pub name: String,
    /// The driver.
    pub driver: String,
    /// The driver's name for it.
    pub handle: String,
}

/// Something that is left.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "camelCase")]
pub struct ReportLine {
    /// What kind of thing: PersistentVolumeClaim, cinder-volume.
    pub kind: String,
    /// By what it is found.
    pub id: String,
    /// By what people know it.
    #[serde(default)]
    pub name: String,
    /// How large it is, as 10 GiB.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub size: String,
    /// Why it is left.
    pub reason: String,
    /// What removes it.
    #[serde(default)]
    pub command: String,
    /// Whether somebody wanted it to stay: then the cluster counts as clean.
    #[serde(default)]
    pub kept: bool,
}
