//! Security groups and their rules.

use reqwest::Method;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::Network;
use crate::catalog::Service;
use crate::client::{Ask, Filters};
use crate::error::Error;
use crate::listing::Listing;
use crate::null_as_default;

/// A security group.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct SecurityGroup {
    /// Its id.
    pub id: String,
    /// Its name, not unique.
    #[serde(default, deserialize_with = "null_as_default")]
    pub name: String,
    /// Whose it is.
    #[serde(default, deserialize_with = "null_as_default")]
    pub project_id: String,
    /// What its maker wrote on it.
    #[serde(default, deserialize_with = "null_as_default")]
    pub description: String,
    /// Its rules.
    #[serde(default, rename = "security_group_rules", deserialize_with = "null_as_default")]
    pub rules: Vec<Rule>,
    /// Its tags.
    #[serde(default, deserialize_with = "null_as_default")]
    pub tags: Vec<String>,
}

/// Which way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// To the port.
    Ingress,
    /// From the port.
    Egress,
}

/// Which family of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Ethertype {
    /// `IPv4`
    IPv4,
    /// `IPv6`
    IPv6,
}

/// What a group lets through. A field that is `None` lets everything of its kind through.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Rule {
    /// Its id.
    pub id: String,
    /// Its group.
    #[serde(default, deserialize_with = "null_as_default")]
    pub security_group_id: String,
    /// Which way.
    pub direction: Direction,
    /// Which family.
    pub ethertype: Ethertype,
    /// `tcp`, `udp`, `icmp`, `ipv6-icmp`, ..., or a number; `any` on some Neutrons.
    #[serde(default)]
    pub protocol: Option<String>,
    /// The first port, or the type of ICMP.
    #[serde(default)]
    pub port_range_min: Option<i64>,
    /// The last port, or the code of ICMP.
    #[serde(default)]
    pub port_range_max: Option<i64>,
    /// From or to which range.
    #[serde(default)]
    pub remote_ip_prefix: Option<String>,
    /// From or to which group.
    #[serde(default)]
    pub remote_group_id: Option<String>,
    /// From or to which address group.
    #[serde(default)]
    pub remote_address_group_id: Option<String>,
    /// What its maker wrote on it.
    #[serde(default, deserialize_with = "null_as_default")]
    pub description: String,
}

/// A rule to be made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NewRule {
    /// The group.
    pub security_group_id: String,
    /// Which way.
    pub direction: Direction,
    /// Which family.
    pub ethertype: Ethertype,
    /// Which protocol; all if `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// The first port; all if `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port_range_min: Option<u16>,
    /// The last port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port_range_max: Option<u16>,
    /// From or to which range; everywhere if `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote_ip_prefix: Option<String>,
    /// For whoever finds it.
    pub description: String,
}

impl Network<'_> {
    /// Security groups with their rules.
    pub async fn security_groups(self, filters: Filters<'_>) -> Result<Listing<SecurityGroup>, Error> {
        self.list("security_groups", filters).await
    }

    /// One security group with its rules.
    pub async fn security_group(self, id: &str) -> Result<SecurityGroup, Error> {
        self.0.get(&Ask::new(Service::Network, &["security-groups", id]), "security_group").await
    }

    /// Deletes a security group. Gone already is fine; one in use is a conflict, `SecurityGroupInUse`.
    pub async fn delete_security_group(self, id: &str) -> Result<(), Error> {
        self.0.delete(&Ask::new(Service::Network, &["security-groups", id])).await
    }

    /// Makes a rule. `None` if there is the same one already; another description does not make it another rule.
    pub async fn create_rule(self, rule: &NewRule) -> Result<Option<Rule>, Error> {
        let body = json!({"security_group_rule": rule});
        let ask = Ask::new(Service::Network, &["security-group-rules"]);
        match self.0.write(Method::POST, &ask, &body, None, "security_group_rule").await {
            Ok(rule) => Ok(Some(rule)),
            Err(error) if error.code() == Some("SecurityGroupRuleExists") => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Deletes a rule. Gone already is fine.
    pub async fn delete_rule(self, id: &str) -> Result<(), Error> {
        self.0.delete(&Ask::new(Service::Network, &["security-group-rules", id])).await
    }
}
