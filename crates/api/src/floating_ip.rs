//! `FloatingIP`: one address of the cloud, which node should answer for it, and which does.
//!
//! The controller of a cloud writes the spec, the agents on the nodes write the status. Never two nodes answer for one
//! address, because both keep to this:
//!
//! - An agent writes its claim, `status.holder`, with the resourceVersion that it read, before the address is on an
//!   interface, and takes the claim away after the address is gone from there.
//! - It claims where the status names nobody, itself, or the node that `spec.evicted` names. Otherwise it waits.
//! - It renews its Lease ([`names::lease`](crate::names::lease)), and the kernel takes the address away soon after the
//!   last renewal. Whoever was late claims anew, with a fresh resourceVersion, before it holds again.
//! - The controller names a node in `spec.evicted` only after it has read that node's Lease, later than the FloatingIP,
//!   and found it as it had seen it for at least `leaseDurationSeconds`; or free. It writes with the resourceVersion of
//!   that FloatingIP, so that a claim made meanwhile wins.
//! - It evicts nobody while more than half of the Leases are late, which is unchanged for half of
//!   `leaseDurationSeconds`, and counts anew from when that ends. Until then it counts the nodes that were there when it
//!   began: one that was deleted is counted until its server is stopped or gone, a new one is not. Agents that do not reach
//!   the API server keep their addresses as long as more than half of all agents tell each other that they are in that
//!   state; which agents there are, they ask one that does reach it.

use std::net::IpAddr;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::core::Rule;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Who should answer for an address. Written by the controller that places addresses, not by people.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
#[kube(
    group = "groundcrew.dev",
    version = "v1alpha1",
    kind = "FloatingIP",
    plural = "floatingips",
    singular = "floatingip",
    shortname = "fip",
    status = "FloatingIPStatus",
    derive = "PartialEq",
    doc = "FloatingIP is an address that moves between nodes: which node should answer for it, and which one does. Its name is the address, with dashes for colons.",
    printcolumn(name = "Address", type_ = "string", json_path = ".spec.address"),
    printcolumn(name = "Wanted", type_ = "string", json_path = ".spec.holder"),
    printcolumn(name = "Holder", type_ = "string", json_path = ".status.holder"),
    printcolumn(name = "Ready", type_ = "string", json_path = r#".status.conditions[?(@.type=="Ready")].status"#),
    printcolumn(name = "Since", type_ = "date", json_path = ".status.since"),
    printcolumn(name = "Owner", type_ = "string", json_path = ".spec.owner"),
    printcolumn(name = "Serial", type_ = "integer", json_path = ".spec.serial", priority = 1),
    printcolumn(name = "Reason", type_ = "string", json_path = r#".status.conditions[?(@.type=="Ready")].reason"#, priority = 1),
    validation = Rule::new("self.metadata.name == self.spec.address.replace(':', '-')")
        .message("the name must be the address, with dashes for colons: so no address has two objects"),
    validation = Rule::new("self.spec.address == oldSelf.spec.address")
        .message("address is immutable")
        .field_path(".spec.address"),
    validation = Rule::new("self.spec.serial >= oldSelf.spec.serial")
        .message("serial must not fall")
        .field_path(".spec.serial"),
    validation = Rule::new(format!("{} == {} || self.spec.serial > oldSelf.spec.serial", holder("self"), holder("oldSelf")))
        .message("serial must rise when holder changes")
        .field_path(".spec.serial")
)]
#[x_kube(validation = (
    "!has(self.evicted) || !has(self.holder) || self.evicted != self.holder",
    "evicted must not be the holder"
))]
#[serde(rename_all = "camelCase")]
pub struct FloatingIPSpec {
    /// The address, IPv4 or IPv6, in its shortest form. Cannot be changed.
    #[schemars(schema_with = "address")]
    pub address: String,
    /// The node that should answer for the address. Left out: none, and whoever does now should stop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 253))]
    pub holder: Option<String>,
    /// Counts the changes of the holder, so that a status can be told from one that is about an earlier holder.
    #[schemars(range(min = 1))]
    pub serial: i64,
    /// The node whose claim in the status no longer counts: its agent has been silent for so long that it has certainly lost
    /// the address, or its server is known to be stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 253))]
    pub evicted: Option<String>,
    /// The hardware address of the interface that should have the address, such as 22:ab:05:00:00:01. Left out: the interface
    /// of the default route.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", regex(pattern = r"^([0-9a-f]{2}:){5}[0-9a-f]{2}$"))]
    pub mac: Option<String>,
    /// Namespace and name of the Service that the address is for. For people: nothing is decided by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(max = 317))]
    pub owner: Option<String>,
    /// Where the node itself should send what arrives at the address, in clusters without kube-proxy or Cilium. Left out:
    /// the node leaves that to them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub nat: Vec<NatPort>,
}

/// One port of an address, and who answers on it.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct NatPort {
    /// TCP, UDP or SCTP.
    pub protocol: Protocol,
    /// The port of the address.
    #[schemars(range(min = 1))]
    pub port: u16,
    /// Whether the client's address is kept and only backends on the node itself are used: as in Services, Cluster or Local.
    #[serde(default)]
    pub external_traffic_policy: TrafficPolicy,
    /// How long a client stays with the same backend, in seconds. Left out: each connection is balanced anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i32", range(min = 1, max = 86400))]
    pub affinity_seconds: Option<u32>,
    /// Networks whose clients may connect; what others send is dropped. Left out: everybody may.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(max = 43)))]
    pub source_ranges: Vec<String>,
    /// The endpoints that are ready. None: connections are refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1024))]
    pub backends: Vec<NatBackend>,
}

/// One endpoint.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NatBackend {
    /// Its address, of the family of the floating address.
    #[schemars(length(max = 39))]
    pub address: String,
    /// Its port.
    #[schemars(range(min = 1))]
    pub port: u16,
    /// The node that it is on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(max = 253))]
    pub node: Option<String>,
}

/// A transport protocol.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[serde(rename_all = "UPPERCASE")]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

/// Which backends are used for traffic from outside.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TrafficPolicy {
    /// All backends; they see the node as the client.
    #[default]
    Cluster,
    /// Those on the node itself; they see the client.
    Local,
}

/// Who answers for an address. Written by the agents on the nodes.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct FloatingIPStatus {
    /// The node that has claimed the address. It may answer for it as long as its Lease lives. Left out: the last one has
    /// confirmed that it no longer does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub holder: Option<String>,
    /// The serial that was acted on.
    #[serde(default)]
    pub serial: i64,
    /// Since when the holder has been what it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Time")]
    pub since: Option<Time>,
    /// The present state in detail: Ready is True when the address is on an interface and was announced; otherwise its
    /// message says what is missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

impl FloatingIP {
    /// The name of the object of an address.
    #[must_use]
    pub fn name_of(address: IpAddr) -> String {
        address.to_string().replace(':', "-")
    }
}

fn address(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    let form = Rule::new("isIP(self) && ip.isCanonical(self)")
        .message("must be an address in its shortest form, such as 203.0.113.7 or 2001:db8::7");
    // On loopback or a multicast address a node could lose more than this address.
    let unicast = Rule::new("!isIP(self) || ip(self).isGlobalUnicast()")
        .message("must be an address that one host can have: not loopback, link-local, multicast or unspecified");
    schemars::json_schema!({ "type": "string", "maxLength": 39, "x-kubernetes-validations": [form, unicast] })
}

/// CEL cannot compare a field that may be absent.
fn holder(of: &str) -> String {
    format!("(has({of}.spec.holder) ? {of}.spec.holder : '')")
}
