use kube::core::ObjectMeta;
use serde::{Deserialize, Serialize};

use super::lenient::{empty_as_none, null_as_default};
use super::{API_VERSION, resource};

/// An address of an external Subnet, reserved in kube-ovn.
///
/// kube-ovn says nothing when it cannot serve one: the status stays away, without a condition or an Event. It frees the
/// address at the deletion timestamp, whatever finalizers the object still has.
#[derive(Deserialize, Debug, Clone, Default, PartialEq)]
pub struct OvnEip {
    /// Standard metadata.
    pub metadata: ObjectMeta,
    /// What was asked for, completed by kube-ovn with what it assigned.
    #[serde(default, deserialize_with = "null_as_default")]
    pub spec: OvnEipSpec,
    /// What was assigned; nothing until kube-ovn has.
    #[serde(default)]
    pub status: Option<OvnEipStatus>,
}
resource!(OvnEip, "ovn-eips");

/// What was asked for. The addresses in it are kube-ovn's as often as ours: read them from the status.
#[derive(Deserialize, Debug, Clone, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct OvnEipSpec {
    /// The Subnet that the address belongs to.
    #[serde(default, deserialize_with = "empty_as_none")]
    pub external_subnet: Option<String>,
    /// What the address is for: `nat`, `lrp` or `lsp`.
    #[serde(default, rename = "type", deserialize_with = "empty_as_none")]
    pub kind: Option<String>,
    /// The IPv4 address that was asked for. From the moment of assignment on it is what kube-ovn wrote here.
    #[serde(default, deserialize_with = "empty_as_none")]
    pub v4_ip: Option<String>,
    /// The same for IPv6.
    #[serde(default, deserialize_with = "empty_as_none")]
    pub v6_ip: Option<String>,
}

/// What was assigned.
#[derive(Deserialize, Debug, Clone, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct OvnEipStatus {
    /// Whether the address may be used. The addresses appear before this turns true.
    #[serde(default, deserialize_with = "null_as_default")]
    pub ready: bool,
    /// The IPv4 address.
    #[serde(default, deserialize_with = "empty_as_none")]
    pub v4_ip: Option<String>,
    /// The IPv6 address.
    #[serde(default, deserialize_with = "empty_as_none")]
    pub v6_ip: Option<String>,
    /// What uses the address in kube-ovn's own NAT: `fip`, `snat`, `dnat`, or several with commas. A load balancer of ours
    /// leaves no trace here.
    #[serde(default, deserialize_with = "empty_as_none")]
    pub nat: Option<String>,
}

/// An OvnEip as we ask for it, for server-side apply.
///
/// kube-ovn completes the spec. A field that we send is a field that we own, so the next apply without it would take it
/// away from kube-ovn: send what you sent before.
#[derive(Serialize, Debug, Clone, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct OvnEipApply {
    api_version: &'static str,
    kind: &'static str,
    /// Name, labels and annotations. The name must not be that of a router port, `{vpc}-{subnet}`: kube-ovn deletes the
    /// port with the object.
    pub metadata: ObjectMeta,
    /// What is asked for.
    pub spec: OvnEipApplySpec,
}

impl OvnEipApply {
    /// Asks for an address.
    #[must_use]
    pub fn new(metadata: ObjectMeta, spec: OvnEipApplySpec) -> Self {
        Self { api_version: API_VERSION, kind: "OvnEip", metadata, spec }
    }
}

/// The fields of an OvnEip that are ours.
#[derive(Serialize, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct OvnEipApplySpec {
    /// The Subnet to take the address from.
    pub external_subnet: String,
    /// What the address is for.
    #[serde(rename = "type")]
    pub kind: OvnEipType,
    /// One address in particular. Only for one that a user asked for: kube-ovn gives out even an excluded one on request,
    /// and from 1.15 on sets no finalizer then. There is no such field for IPv6: of `v6Ip` kube-ovn takes no notice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub v4_ip: Option<String>,
}

/// What we ask addresses for.
#[derive(Serialize, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum OvnEipType {
    /// Reserved, with no row in OVN. The only type for a load balancer: `lsp` needs the node daemon to become ready, and
    /// deleting an `lrp` takes away the router port of the same name.
    Nat,
}
