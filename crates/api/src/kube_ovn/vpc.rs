use kube::core::ObjectMeta;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::lenient::{empty_as_none, null_as_default};
use super::resource;

/// A logical router and the networks behind it: one project.
#[derive(Deserialize, Debug, Clone, Default, PartialEq)]
pub struct Vpc {
    /// Standard metadata.
    pub metadata: ObjectMeta,
    /// How the project is connected.
    #[serde(default, deserialize_with = "null_as_default")]
    pub spec: VpcSpec,
    /// What kube-ovn made of it; nothing until it has.
    #[serde(default)]
    pub status: Option<VpcStatus>,
}
resource!(Vpc, "vpcs");

/// How the project is connected.
#[derive(Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct VpcSpec {
    /// The namespaces that belong to the project.
    #[serde(default, deserialize_with = "null_as_default")]
    pub namespaces: Vec<String>,
    /// The router's policies. kube-ovn deletes every policy of the router that is not listed here, so this is the only
    /// place where one of ours can live.
    #[serde(default, deserialize_with = "null_as_default")]
    pub policy_routes: Vec<PolicyRoute>,
    /// The router's routes, besides those that kube-ovn makes by itself.
    #[serde(default, deserialize_with = "null_as_default")]
    pub static_routes: Vec<StaticRoute>,
    /// Whether the router is connected to external networks.
    #[serde(default, deserialize_with = "null_as_default")]
    pub enable_external: bool,
    /// The external networks to connect it to, instead of the default one. Without `enable_external` they mean nothing.
    #[serde(default, deserialize_with = "null_as_default")]
    pub extra_external_subnets: Vec<String>,
}

/// One route.
#[derive(Deserialize, Debug, Clone, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct StaticRoute {
    /// The packets it is about, by their destination unless `policy` says otherwise.
    #[serde(default)]
    pub cidr: Option<String>,
    /// Where they are sent.
    #[serde(rename = "nextHopIP", default)]
    pub next_hop_ip: Option<String>,
    /// `policyDst`, which absent is, or `policySrc`.
    #[serde(default)]
    pub policy: Option<String>,
    /// Absent or empty: the table that everything is looked up in.
    #[serde(default)]
    pub route_table: Option<String>,
}

/// One router policy. Written back with the whole list, so what we do not know of others' entries is kept.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PolicyRoute {
    /// The highest number is asked first, up to 32767.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// The packets it is about, in OVN's language.
    #[serde(rename = "match", default, skip_serializing_if = "Option::is_none")]
    pub matches: Option<String>,
    /// `allow`, `drop` or `reroute`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// Where `reroute` sends them.
    #[serde(rename = "nextHopIP", default, skip_serializing_if = "Option::is_none")]
    pub next_hop_ip: Option<String>,
    /// Fields of another version of kube-ovn.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// What kube-ovn made of a Vpc.
#[derive(Deserialize, Debug, Clone, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct VpcStatus {
    /// The logical router.
    #[serde(default, deserialize_with = "empty_as_none")]
    pub router: Option<String>,
    /// The logical switch of pods that ask for no other.
    #[serde(default, deserialize_with = "empty_as_none")]
    pub default_logical_switch: Option<String>,
    /// The logical switches connected to the router.
    #[serde(default, deserialize_with = "null_as_default")]
    pub subnets: Vec<String>,
    /// The external networks besides the default one that the router is connected to.
    #[serde(default, deserialize_with = "null_as_default")]
    pub extra_external_subnets: Vec<String>,
}
