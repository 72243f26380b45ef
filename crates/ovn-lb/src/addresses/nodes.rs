//! The addresses of the cluster's own nodes. They are not given out, whatever a pool says.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use groundcrew_core::watch::Sink;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::Deserialize;

use super::Addresses;

/// A Node as far as it matters here. The rest of it, with the names of all its images, is not even allocated.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Node {
    metadata: ObjectMeta,
    #[serde(default)]
    status: NodeStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct NodeStatus {
    addresses: Option<Vec<core::NodeAddress>>,
}

impl Resource for Node {
    type DynamicType = ();
    type Scope = <core::Node as Resource>::Scope;

    fn kind((): &()) -> Cow<'_, str> {
        core::Node::kind(&())
    }
    fn group((): &()) -> Cow<'_, str> {
        core::Node::group(&())
    }
    fn version((): &()) -> Cow<'_, str> {
        core::Node::version(&())
    }
    fn plural((): &()) -> Cow<'_, str> {
        core::Node::plural(&())
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl Node {
    fn name(&self) -> Box<str> {
        self.metadata.name.as_deref().unwrap_or_default().into()
    }

    /// Names and host names are no addresses, whatever the field is called.
    fn addresses(&self) -> Vec<IpAddr> {
        let of_kind =
            self.status.addresses.iter().flatten().filter(|a| matches!(&*a.type_, "InternalIP" | "ExternalIP"));
        of_kind.filter_map(|address| address.address.parse().ok()).collect()
    }
}

/// By node.
pub(crate) type Nodes = BTreeMap<Box<str>, Vec<IpAddr>>;

/// Keeps the book informed.
pub(crate) struct NodeSink {
    addresses: Arc<Addresses>,
    nodes: Nodes,
    /// What a list that is under way has so far.
    listed: Nodes,
}

impl NodeSink {
    pub(crate) fn new(addresses: Arc<Addresses>) -> Self {
        Self { addresses, nodes: Nodes::new(), listed: Nodes::new() }
    }

    fn tell(&self) {
        let taken = self.nodes.values().flatten().copied().collect();
        let mut state = self.addresses.lock();
        if state.book.avoid_nodes(taken) {
            self.addresses.wake_waiting(&mut state);
            self.addresses.stirred.notify_one();
        }
    }
}

impl Sink<Node> for NodeSink {
    fn apply(&mut self, node: Node) {
        let addresses = node.addresses();
        if self.nodes.insert(node.name(), addresses.clone()) != Some(addresses) {
            self.tell();
        }
    }

    fn delete(&mut self, node: Node) {
        self.deleted_unread(None, &node.name());
    }

    fn list_begins(&mut self) {
        self.listed.clear();
    }

    fn listed(&mut self, node: Node) {
        self.listed.insert(node.name(), node.addresses());
    }

    fn list_complete(&mut self) {
        self.nodes = std::mem::take(&mut self.listed);
        self.tell();
    }

    fn unreadable(&mut self, _: Option<&str>, name: &str) {
        if let Some((name, addresses)) = self.nodes.get_key_value(name) {
            self.listed.insert(name.clone(), addresses.clone());
        }
    }

    fn deleted_unread(&mut self, _: Option<&str>, name: &str) {
        if self.nodes.remove(name).is_some() {
            self.tell();
        }
    }
}
