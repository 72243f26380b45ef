//! `AddressPool`: addresses that groundcrew may give out itself, where no kube-ovn does it.

mod entry;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The addresses of a pool and who may have them. Any edit is allowed at any time: an address in use stays where it is,
/// even when it no longer belongs to the pool.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
#[kube(
    group = "groundcrew.dev",
    version = "v1alpha1",
    kind = "AddressPool",
    plural = "addresspools",
    singular = "addresspool",
    status = "AddressPoolStatus",
    derive = "PartialEq",
    doc = "AddressPool is a set of external addresses that EIps are served from.",
    printcolumn(name = "Priority", type_ = "integer", json_path = ".spec.priority"),
    printcolumn(name = "Disabled", type_ = "boolean", json_path = ".spec.disabled"),
    printcolumn(name = "V4 Used", type_ = "integer", json_path = ".status.ipv4.used"),
    printcolumn(name = "V4 Free", type_ = "integer", json_path = ".status.ipv4.free"),
    printcolumn(name = "V6 Used", type_ = "integer", json_path = ".status.ipv6.used"),
    printcolumn(name = "V6 Free", type_ = "integer", json_path = ".status.ipv6.free"),
    printcolumn(name = "Overlap", type_ = "string", json_path = r#".status.conditions[?(@.type=="Overlap")].status"#),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Addresses", type_ = "string", json_path = ".spec.addresses", priority = 1),
    printcolumn(name = "Namespaces", type_ = "string", json_path = ".spec.namespaces", priority = 1)
)]
#[serde(rename_all = "camelCase")]
pub struct AddressPoolSpec {
    /// The addresses, as CIDRs such as 203.0.113.0/28 and ranges such as 2001:db8::10-2001:db8::1f, of either family. Every
    /// address of a CIDR is given out, its first and last too, but for what a router, a route or a load balancer in OVN has
    /// and for the first and last of a router's network: exclude what else has another use.
    #[schemars(schema_with = "entry::addresses")]
    pub addresses: Vec<String>,
    /// Addresses, CIDRs and ranges that are not given out although they are listed above: gateways, addresses that
    /// something else has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "entry::excluded")]
    pub excluded: Vec<String>,
    /// The network type of EIps that are served from this pool, compared with their externalNetworkType. Left out: the pool
    /// serves EIps of any type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 63))]
    pub external_network_type: Option<String>,
    /// The namespaces that are served from this pool. Left out or empty: all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1024), inner(length(max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub namespaces: Vec<String>,
    /// How many addresses of this pool a namespace may have at once, of both families together. Left out: as many as there
    /// are. A lower limit takes nothing away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i32", range(min = 1))]
    pub per_namespace_limit: Option<u32>,
    /// Which pool comes first where several would do: the one with the highest number; among equals the one whose name
    /// sorts first.
    #[serde(default)]
    pub priority: i32,
    /// Give out no more addresses of this pool. Those in use stay in use.
    #[serde(default)]
    pub disabled: bool,
}

/// How much of a pool is in use.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct AddressPoolStatus {
    /// The IPv4 addresses of the pool. Left out where it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "AddressCounts")]
    pub ipv4: Option<AddressCounts>,
    /// The IPv6 addresses of the pool. Left out where it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "AddressCounts")]
    pub ipv6: Option<AddressCounts>,
    /// Addresses that were given back a moment ago and rest until the time that is told, so that a new leader lets them
    /// rest too. Of more than 256 the last ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub resting: Vec<RestingAddress>,
    /// The present state in detail: Ready, which is False when a line cannot be used, and Overlap, which is True when another
    /// pool has some of the same addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

/// An address that is not given to anybody for a while: neighbours remember who had it.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
pub struct RestingAddress {
    /// The address.
    pub address: String,
    /// When it can be given out again.
    pub until: Time,
}

/// The addresses of one family.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AddressCounts {
    /// How many EIps have an address of this pool.
    #[schemars(range(min = 0))]
    pub used: i64,
    /// How many addresses can still be given out: neither used nor excluded. More than 9223372036854775807 are shown as that.
    #[schemars(range(min = 0))]
    pub free: i64,
}
