//! Kubernetes nodes and the servers that they are.

mod controller;
mod initialise;
mod lifecycle;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;

use crate::mirror::Mirror;

pub(crate) use controller::{Controller, Site};

/// What a providerID of this cloud begins with.
pub(crate) const PROVIDER: &str = "cloudsigma://";
const EXCLUDE: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
const AUTOSCALER: &str = "ToBeDeletedByClusterAutoscaler";

/// The cluster's nodes as they were last told. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Nodes {
    pub(crate) mirror: Mirror<Node>,
}

impl Nodes {
    pub(crate) fn all(&self) -> Vec<Arc<Node>> {
        self.mirror.all()
    }

    pub(crate) fn server_of(&self, node: &str) -> Option<String> {
        server(&*self.mirror.get(node)?).map(str::to_owned)
    }

    /// Uuids of the servers that are nodes.
    pub(crate) fn servers(&self) -> BTreeSet<String> {
        self.all().iter().filter_map(|node| server(node)).map(str::to_owned).collect()
    }

    /// Every address that a node calls its own.
    pub(crate) fn addresses(&self) -> BTreeSet<IpAddr> {
        self.all().iter().flat_map(|node| addresses(node)).collect()
    }
}

/// The uuid of a node's server, where its providerID names one of this cloud.
pub(crate) fn server(node: &Node) -> Option<&str> {
    let id = node.spec.as_ref()?.provider_id.as_deref()?;
    id.strip_prefix(PROVIDER).map(|uuid| uuid.trim_start_matches('/')).filter(|uuid| !uuid.is_empty())
}

fn addresses(node: &Node) -> Vec<IpAddr> {
    let addresses = node.status.as_ref().and_then(|status| status.addresses.as_ref()).into_iter().flatten();
    addresses.filter_map(|address| address.address.parse().ok()).collect()
}

fn condition<'a>(node: &'a Node, kind: &str) -> Option<&'a str> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == kind).map(|condition| condition.status.as_str())
}

pub(crate) fn is_ready(node: &Node) -> bool {
    condition(node, "Ready") == Some("True")
}

/// Why a node should hold no address, whatever its agent says. A node that is not ready may still answer: only its agent
/// tells, so that this alone takes nothing away.
pub(crate) fn unfit(node: &Node, ignore_exclusion: bool) -> Option<&'static str> {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref()).into_iter().flatten();
    let cordoned = node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true);
    // The value is read as a boolean; one that is none excludes, as an empty one does.
    let excluded = node
        .labels()
        .get(EXCLUDE)
        .is_some_and(|value| !matches!(value.as_str(), "false" | "False" | "0" | "f" | "F" | "FALSE"));
    if node.metadata.deletion_timestamp.is_some() {
        Some("it is being deleted")
    } else if excluded && !ignore_exclusion {
        Some("it is excluded by its label")
    } else if taints.into_iter().any(|taint| taint.key == AUTOSCALER) {
        Some("the autoscaler is about to delete it")
    } else if cordoned {
        Some("it is cordoned")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(value: serde_json::Value) -> Node {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_providerid_of_another_cloud_names_no_server() {
        let of = |id: &str| server(&node(json!({ "metadata": {}, "spec": { "providerID": id } }))).map(str::to_owned);
        assert_eq!(of("cloudsigma://abc"), Some("abc".to_owned()));
        assert_eq!(of("cloudsigma:///abc"), Some("abc".to_owned()));
        assert_eq!(of("openstack:///abc"), None);
        assert_eq!(of("cloudsigma://"), None);
    }

    #[test]
    fn the_exclusion_is_read_as_kubernetes_reads_it() {
        let labelled =
            |value: &str| unfit(&node(json!({ "metadata": { "labels": { EXCLUDE: value } } })), false).is_some();
        assert!(labelled("") && labelled("true") && labelled("perhaps"));
        assert!(!labelled("false"));
        assert_eq!(
            unfit(&node(json!({ "metadata": { "labels": { EXCLUDE: "" } } })), true),
            None,
            "a single node may need it"
        );
    }

    #[test]
    fn a_node_on_its_way_out_holds_nothing_new() {
        assert!(unfit(&node(json!({ "metadata": {}, "spec": { "unschedulable": true } })), false).is_some());
        let tainted = json!({ "metadata": {}, "spec": { "taints": [{ "key": AUTOSCALER, "effect": "NoSchedule" }] } });
        assert!(unfit(&node(tainted), false).is_some());
        assert_eq!(unfit(&node(json!({ "metadata": {} })), false), None);
    }
}
