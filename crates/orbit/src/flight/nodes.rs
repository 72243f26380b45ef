//! The few fields of Nodes that decide about repairs.

use std::collections::BTreeMap;
use std::net::IpAddr;

use groundcrew_api::names::annotation::PAUSED;
use ipnet::IpNet;
use jiff::Timestamp;
use k8s_openapi::api::core::v1;

use super::conditions::Kind;
use crate::nodes::server;

/// A Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Its uid, for Events.
    pub uid: String,
    /// The id of the server that it is, if it says so.
    pub server: Option<String>,
    /// Whether it says that it is something else than a server of an OpenStack.
    pub foreign: bool,
    /// Its own addresses.
    pub addresses: Vec<IpAddr>,
    /// The ranges that its pods have their addresses from.
    pub pod_ranges: Vec<IpNet>,
    /// What it shows to be wrong with it.
    pub troubles: BTreeMap<Kind, String>,
    /// Since when it is not ready. `None` while it is; a Node that never said anything counts from its making.
    pub unready_since: Option<Timestamp>,
    /// Whether nothing new is to run on it: somebody may be at work on it.
    pub cordoned: bool,
    /// Whether people asked us to leave it alone, or it is being deleted.
    pub paused: bool,
}

impl From<v1::Node> for Node {
    fn from(node: v1::Node) -> Self {
        let (meta, spec, status) = (node.metadata, node.spec.unwrap_or_default(), node.status.unwrap_or_default());
        let made = meta.creation_timestamp.map(|time| time.0);
        let ready = status.conditions.iter().flatten().find(|condition| condition.type_ == "Ready");
        let unready_since = match ready {
            Some(ready) if ready.status == "True" => None,
            Some(ready) => ready.last_transition_time.as_ref().map(|time| time.0).or(made),
            None => made,
        };
        let asked = meta.annotations.iter().flatten().any(|(key, value)| key == PAUSED && value == "true");
        let addresses = status.addresses.iter().flatten();
        let ranges = spec.pod_cidrs.filter(|ranges| !ranges.is_empty()).or_else(|| Some(vec![spec.pod_cidr?]));
        let troubles = Kind::ALL.into_iter().filter_map(|kind| {
            let mut shown = status.conditions.iter().flatten();
            let shown = shown.find(|condition| condition.type_ == kind.name() && condition.status == "True")?;
            Some((kind, shown.message.clone().unwrap_or_default()))
        });
        let server = spec.provider_id.as_deref().and_then(server);
        Self {
            name: meta.name.unwrap_or_default(),
            uid: meta.uid.unwrap_or_default(),
            foreign: server.is_none() && spec.provider_id.is_some_and(|id| !id.is_empty()),
            server,
            pod_ranges: ranges.iter().flatten().filter_map(|range| range.parse().ok()).collect(),
            troubles: troubles.collect(),
            addresses: addresses.filter_map(|address| address.address.parse().ok()).collect(),
            unready_since,
            cordoned: spec.unschedulable.unwrap_or_default(),
            paused: asked || meta.deletion_timestamp.is_some(),
        }
    }
}

impl Node {
    /// What its being unready this time is known by: it has another name when it was ready in between.
    #[must_use]
    pub fn spell(&self) -> Option<String> {
        self.unready_since.map(|since| format!("{} {since}", self.uid))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_value, json};

    use super::*;

    fn node(value: Value) -> Node {
        from_value::<v1::Node>(value).unwrap().into()
    }

    #[test]
    fn a_node_names_its_server_with_or_without_a_region() {
        for (provider_id, server, foreign) in [
            ("openstack:///5f0c", Some("5f0c"), false),
            ("openstack://lab/5f0c", Some("5f0c"), false),
            ("openstack:///", None, true),
            ("aws:///eu/i-1", None, true),
            ("5f0c", None, true),
            ("", None, false),
        ] {
            let node = node(json!({"metadata": {"name": "n"}, "spec": {"providerID": provider_id}}));
            assert_eq!((node.server.as_deref(), node.foreign), (server, foreign), "{provider_id}");
        }
    }

    #[test]
    fn a_node_is_unready_since_it_changed_or_since_it_was_made() {
        let (made, changed) = ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z");
        let with = |conditions: Value| {
            let meta = json!({"name": "n", "creationTimestamp": made});
            node(json!({"metadata": meta, "status": {"conditions": conditions}})).unready_since
        };
        let ready = |status: &str| json!([{"type": "Ready", "status": status, "lastTransitionTime": changed}]);
        assert_eq!(with(ready("True")), None);
        assert_eq!(with(ready("False")), Some(changed.parse().unwrap()));
        assert_eq!(with(ready("Unknown")), Some(changed.parse().unwrap()));
        assert_eq!(with(json!([])), Some(made.parse().unwrap()));
    }
}
