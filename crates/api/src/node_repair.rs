//! `NodeRepair`: what was done to bring one server back, so that a restart does not do it again.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which server it is about.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
#[kube(
    group = "groundcrew.dev",
    version = "v1alpha1",
    kind = "NodeRepair",
    plural = "noderepairs",
    singular = "noderepair",
    status = "NodeRepairStatus",
    derive = "PartialEq",
    doc = "NodeRepair is the memory of the flight controller about one server that was sick: the last step and when it was taken. Its name is the id of the server. To have the server treated as if nothing had been done, delete the object.",
    printcolumn(name = "Server", type_ = "string", json_path = ".spec.server"),
    printcolumn(name = "Node", type_ = "string", json_path = ".spec.node"),
    printcolumn(name = "Step", type_ = "string", json_path = ".status.step"),
    printcolumn(name = "Outcome", type_ = "string", json_path = ".status.outcome"),
    printcolumn(name = "When", type_ = "date", json_path = ".status.at"),
    printcolumn(name = "Why", type_ = "string", json_path = ".status.why", priority = 1)
)]
#[serde(rename_all = "camelCase")]
pub struct NodeRepairSpec {
    /// The name of the server in the cloud.
    #[schemars(length(max = 255))]
    pub server: String,
    /// The Node that the server is. Left out: it never registered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 253))]
    pub node: Option<String>,
}

/// The last step. Written as Begun before it is ordered, and again with what became of the order: the next step follows on
/// one that is known to have been ordered, and on no other.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct NodeRepairStatus {
    /// What was to be done.
    pub step: RepairStep,
    /// When it was begun.
    pub at: Time,
    /// What was wrong with the server.
    #[schemars(length(max = 1024))]
    pub why: String,
    /// What is known about the order.
    #[serde(default)]
    pub outcome: RepairOutcome,
    /// How often in a row the cloud did not take the order. Each time it is waited for longer.
    #[serde(default, skip_serializing_if = "is_none")]
    pub refusals: u32,
    /// Why the cloud did not take it, in its own words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(max = 1024))]
    pub refusal: Option<String>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde wants")]
fn is_none(count: &u32) -> bool {
    *count == 0
}

/// The steps, mildest first.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RepairStep {
    /// Its system was asked to reboot.
    SoftReboot,
    /// It was turned off and on.
    HardReboot,
    /// It was deleted.
    Delete,
}

/// What is known about an order.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RepairOutcome {
    /// It may or may not have reached the cloud.
    #[default]
    Begun,
    /// The cloud has taken it.
    Ordered,
    /// The cloud has not taken it.
    Refused,
}
