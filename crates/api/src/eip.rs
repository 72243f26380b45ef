//! `EIp`: an external address that a project holds, whoever answers on it.
//!
//! The type is kube-dc's: names, columns and rules are those of its definition, except where that one lets an address be
//! talked into something it cannot do (see [`crd`]).

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::core::Rule;
use kube::{CustomResource, CustomResourceExt, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

/// Where the address should come from. Fixed once the EIp exists: an address in use never changes. All of it may be left
/// out; the address then comes from the project's default network.
#[derive(CustomResource, KubeSchema, Serialize, Debug, Clone, Default, PartialEq, Eq)]
#[kube(
    group = "kube-dc.com",
    version = "v1",
    kind = "EIp",
    plural = "eips",
    singular = "eip",
    namespaced,
    status = "EIpStatus",
    derive = "PartialEq",
    doc = "EIp is an external address that a project holds. Services and floating addresses of the same namespace can be served on it.",
    printcolumn(name = "External IP", type_ = "string", json_path = ".status.ipAddress"),
    printcolumn(name = "Ready", type_ = "boolean", json_path = ".status.ready"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Ownership", type_ = "string", json_path = ".status.ownershipType"),
    validation = immutable("externalNetworkType"),
    validation = immutable("childRef")
)]
#[x_kube(validation = (
    "!has(self.externalNetworkType) || self.externalNetworkType == '' || !has(self.childRef) || self.childRef == ''",
    "externalNetworkType and childRef cannot be set at the same time"
))]
#[serde(rename_all = "camelCase")]
pub struct EIpSpec {
    /// The network to take the address from, as the operator named it. By convention "public" is reachable from the
    /// internet and "cloud" only from inside the cloud. Left out: the project's default. Cannot be changed later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub external_network_type: Option<String>,
    /// The name of an existing OvnEip of this project to use instead of a new address; the gateway address default-gw
    /// is made this way. Cannot be set together with externalNetworkType, and cannot be changed later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub child_ref: Option<String>,
}

/// What is known about the address.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct EIpStatus {
    /// The address itself, IPv4 or IPv6. It stays the same until the EIp is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub ip_address: Option<String>,
    /// Where the address was taken from: the name of the OvnEip that holds it, or of the AddressPool it belongs to. Empty
    /// while there is none.
    #[serde(rename = "ovnEIpRef")]
    pub ovn_eip_ref: String,
    /// Whether the address is in use, and whether others may use it too: Released (nobody uses it), Shared (Services and
    /// the project's outgoing traffic use it) or Exclusive (one floating address has it alone).
    #[serde(default)]
    pub ownership_type: OwnershipType,
    /// Who uses the address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub owners: Vec<EIpOwner>,
    /// Whether the EIp is deleted when its last user goes. True for those that were made for a Service; one that you made
    /// stays until you delete it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "bool")]
    pub delete_released: Option<bool>,
    /// Whether the address is assigned and can be used.
    #[serde(default)]
    pub ready: bool,
    /// The present state in detail; the message of a condition that is not True says what is missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

/// Whether an address is in use, and whether others may use it too.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OwnershipType {
    /// Nobody uses the address.
    #[default]
    Released,
    /// Services and the project's outgoing traffic use it, and more may join.
    Shared,
    /// One floating address has it alone.
    Exclusive,
    /// Something else. kube-dc's definition allows any string, and one that we do not know must not keep all other EIps
    /// from being read. Whoever meets it leaves the address alone.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

/// One user of an address.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "camelCase")]
pub struct EIpOwner {
    /// What uses the address: Snat (the project's outgoing traffic), ServiceLb (a Service of type LoadBalancer) or FIp (a
    /// floating address).
    // A string and not an enum: the list is written back whole, and an entry of a kind that we do not know must survive.
    #[serde(rename = "type", default, skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// The name of the user, in the namespace of the EIp.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub owner_ref: String,
}

impl EIpOwner {
    /// [`kind`](Self::kind) of the project's outgoing traffic.
    pub const SNAT: &str = "Snat";
    /// [`kind`](Self::kind) of a Service of type LoadBalancer.
    pub const SERVICE_LB: &str = "ServiceLb";
    /// [`kind`](Self::kind) of a floating address.
    pub const FIP: &str = "FIp";
}

/// A rule for the whole object, not for the field: one on an optional field is not asked when the field is added or taken
/// away, so that two edits would change what one edit may not. Empty is the same as absent, as with kube-dc.
fn immutable(field: &str) -> Rule {
    let value = |of: &str| format!("(has({of}.spec) && has({of}.spec.{field}) ? {of}.spec.{field} : '')");
    Rule::new(format!("{} == {}", value("self"), value("oldSelf")))
        .message(format!("{field} is immutable").as_str())
        .field_path(format!(".spec.{field}"))
}

/// Like the derived one, but an EIp without a spec reads as one with an empty spec: kube-dc's definition does not ask for
/// a spec, and a single object that does not parse would keep the whole list from being read.
impl<'de> Deserialize<'de> for EIpSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Fields {
            external_network_type: Option<String>,
            child_ref: Option<String>,
        }
        // serde offers "nothing" to a field that is missing, which only an `Option` takes.
        let fields = Option::<Fields>::deserialize(deserializer)?;
        Ok(fields.map_or_else(Self::default, |f| Self {
            external_network_type: f.external_network_type,
            child_ref: f.child_ref,
        }))
    }
}

/// The definition to install.
///
/// It accepts every manifest that kube-dc's accepts. It refuses two edits more, both of which kube-dc's lets pass
/// without effect: taking `externalNetworkType` or `childRef` away, and adding it afterwards.
#[must_use]
pub fn crd() -> CustomResourceDefinition {
    let mut crd = EIp::crd();
    // The derive makes every spec mandatory.
    for version in &mut crd.spec.versions {
        if let Some(schema) = version.schema.as_mut().and_then(|s| s.open_api_v3_schema.as_mut()) {
            schema.required = None;
        }
    }
    crd
}
