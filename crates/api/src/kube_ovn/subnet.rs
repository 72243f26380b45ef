use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::ObjectMeta;
use serde::Deserialize;

use super::lenient::{empty_as_none, null_as_default};
use super::resource;

/// A logical switch: a project's own, or an external network that addresses come from.
///
/// Its count of free addresses is left out on purpose: kube-ovn 1.14 shows addresses as free in a pool that is empty.
#[derive(Deserialize, Debug, Clone, Default, PartialEq)]
pub struct Subnet {
    /// Standard metadata; the labels tell an external network's type.
    pub metadata: ObjectMeta,
    /// How the network is laid out.
    #[serde(default, deserialize_with = "null_as_default")]
    pub spec: SubnetSpec,
}
resource!(Subnet, "subnets");

/// How the network is laid out.
#[derive(Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct SubnetSpec {
    /// The Vpc whose router it is connected to.
    #[serde(default, deserialize_with = "empty_as_none")]
    pub vpc: Option<String>,
    /// One CIDR, or one per family with a comma between them.
    #[serde(default, deserialize_with = "empty_as_none")]
    pub cidr_block: Option<String>,
    /// The next hop: one address, or one per family with a comma between them.
    #[serde(default, deserialize_with = "empty_as_none")]
    pub gateway: Option<String>,
    /// Addresses that kube-ovn assigns only on request, and ranges `first..last` of them.
    #[serde(default, deserialize_with = "null_as_default")]
    pub exclude_ips: Vec<String>,
    /// The Vlan it is connected to the outside by; none on a project's own network.
    #[serde(default, deserialize_with = "empty_as_none")]
    pub vlan: Option<String>,
    /// The namespaces whose pods live here.
    #[serde(default, deserialize_with = "null_as_default")]
    pub namespaces: Vec<String>,
    /// More of them, by their labels.
    #[serde(default, deserialize_with = "null_as_default")]
    pub namespace_selectors: Vec<LabelSelector>,
    /// Whether kube-ovn attaches its own load balancers. It leaves ours alone either way.
    #[serde(default)]
    pub enable_lb: Option<bool>,
}
