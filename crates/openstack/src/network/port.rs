//! Ports.

use std::net::IpAddr;

use reqwest::Method;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::Network;
use crate::catalog::Service;
use crate::client::{Ask, Filters};
use crate::error::Error;
use crate::listing::Listing;
use crate::null_as_default;

/// An address of a port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
pub struct FixedIp {
    /// The subnet that it is of.
    #[serde(default, deserialize_with = "null_as_default")]
    pub subnet_id: String,
    /// The address.
    pub ip_address: IpAddr,
}

/// An address or a range that a port may send from besides its own. Kept as Neutron spells it, to go back as it came.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AddressPair {
    /// The address or the range.
    pub ip_address: String,
    /// With which hardware address; the port's own if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac_address: Option<String>,
}

/// A port.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Port {
    /// Its id.
    pub id: String,
    /// Its name, not unique.
    #[serde(default, deserialize_with = "null_as_default")]
    pub name: String,
    /// The network that it is on.
    #[serde(default, deserialize_with = "null_as_default")]
    pub network_id: String,
    /// Whose it is.
    #[serde(default, deserialize_with = "null_as_default")]
    pub project_id: String,
    /// The server or router that it belongs to.
    #[serde(default, deserialize_with = "null_as_default")]
    pub device_id: String,
    /// What that is: `compute:nova`, `network:router_interface`, ...
    #[serde(default, deserialize_with = "null_as_default")]
    pub device_owner: String,
    /// `ACTIVE`, `DOWN`, `BUILD` or `ERROR`.
    #[serde(default, deserialize_with = "null_as_default")]
    pub status: String,
    /// Its addresses.
    #[serde(default, deserialize_with = "null_as_default")]
    pub fixed_ips: Vec<FixedIp>,
    /// The ids of its security groups. None if Neutron did not say, which is not the same as an empty list.
    #[serde(default)]
    pub security_groups: Option<Vec<String>>,
    /// What it may send from besides its own addresses. None if Neutron did not say.
    #[serde(default)]
    pub allowed_address_pairs: Option<Vec<AddressPair>>,
    /// Whether groups and pairs mean anything. Where Neutron does not say, they do.
    #[serde(default)]
    pub port_security_enabled: Option<bool>,
    /// Rises with each change.
    #[serde(default)]
    pub revision_number: Option<i64>,
    /// What its maker wrote on it.
    #[serde(default, deserialize_with = "null_as_default")]
    pub description: String,
    /// Its tags.
    #[serde(default, deserialize_with = "null_as_default")]
    pub tags: Vec<String>,
}

impl Port {
    /// Whether it can have security groups and address pairs.
    #[must_use]
    pub fn is_secured(&self) -> bool {
        self.port_security_enabled != Some(false)
    }
}

/// What to change of a port. Each list is replaced as a whole; what is `None` stays.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct PortUpdate {
    /// The ids of all its security groups.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub security_groups: Option<Vec<String>>,
    /// All its address pairs; ten at most on a Neutron that was not told otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed_address_pairs: Option<Vec<AddressPair>>,
}

impl Network<'_> {
    /// Ports. The usual filters are `device_id`, `network_id`, and `fixed_ips` as `ip_address=10.0.0.7`. Of a network that belongs to
    /// another project, we may see only our own.
    pub async fn ports(self, filters: Filters<'_>) -> Result<Listing<Port>, Error> {
        self.list("ports", filters).await
    }

    /// One port.
    pub async fn port(self, id: &str) -> Result<Port, Error> {
        self.0.get(&Ask::new(Service::Network, &["ports", id]), "port").await
    }

    /// Changes a port if it still has this revision, or else fails with a conflict. Without a revision, a change by somebody else since
    /// the port was read is lost.
    pub async fn update_port(self, id: &str, change: &PortUpdate, revision: Option<i64>) -> Result<Port, Error> {
        let body = json!({"port": change});
        self.0.write(Method::PUT, &Ask::new(Service::Network, &["ports", id]), &body, revision, "port").await
    }
}
