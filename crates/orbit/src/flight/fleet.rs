//! Which server is which Node, and which servers are the cluster's though no Node says so.

use std::collections::{BTreeMap, BTreeSet};

use groundcrew_core::provider::Instance;

use super::nodes::Node;

/// How a server shows that it is the cluster's. Without any of these, only servers that are Nodes are touched.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Marks {
    /// A tag.
    pub tag: Option<String>,
    /// A key of its metadata with a value.
    pub metadata: Option<(String, String)>,
    /// The servers of the group that the operator named.
    pub group: BTreeSet<String>,
}

impl Marks {
    fn claim(&self, instance: &Instance) -> bool {
        self.tag.as_ref().is_some_and(|tag| instance.tags.contains(tag))
            || self.metadata.as_ref().is_some_and(|(key, value)| instance.metadata.get(key) == Some(value))
            || self.group.contains(&instance.id)
    }
}

/// A server of the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member<'a> {
    /// The server.
    pub instance: &'a Instance,
    /// The Node that it is. `None` if it never registered.
    pub node: Option<&'a Node>,
    /// Whether its Node names it or it carries a mark. A name and an address alone are too little for a repair.
    pub sure: bool,
}

/// All servers of the cluster, by their ids.
#[must_use]
pub fn fleet<'a>(nodes: &'a [Node], instances: &'a [Instance], marks: &Marks) -> Vec<Member<'a>> {
    let by_id: BTreeMap<_, _> = instances.iter().map(|instance| (instance.id.as_str(), instance)).collect();
    let mut by_name: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for instance in instances {
        by_name.entry(instance.name.as_str()).or_default().push(instance);
    }

    let mut members: BTreeMap<&str, Member<'a>> = BTreeMap::new();
    for node in nodes {
        let Some(id) = &node.server else { continue };
        if let Some(instance) = by_id.get(id.as_str()) {
            members.insert(&instance.id, Member { instance, node: Some(node), sure: true });
        }
    }
    for node in nodes.iter().filter(|node| node.server.is_none() && !node.foreign) {
        // A name that two servers have says nothing, and somebody else's server may have it too.
        let Some([instance]) = by_name.get(node.name.as_str()).map(Vec::as_slice) else { continue };
        if instance.addresses.iter().any(|address| node.addresses.contains(address)) {
            let member = Member { instance, node: Some(node), sure: marks.claim(instance) };
            members.entry(&instance.id).or_insert(member);
        }
    }
    // Whatever has the name of a Node may be that Node, also where we could not say which.
    let names: BTreeSet<_> = nodes.iter().map(|node| node.name.as_str()).collect();
    for instance in instances.iter().filter(|one| marks.claim(one) && !names.contains(one.name.as_str())) {
        members.entry(&instance.id).or_insert(Member { instance, node: None, sure: true });
    }
    members.into_values().collect()
}
