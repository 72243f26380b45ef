//! Which routes the Nodes want. Nodes in, values out.

use std::collections::HashMap;
use std::net::IpAddr;

use ipnet::IpNet;

use super::nodes::Node;

/// The wishes of all Nodes.
#[derive(Debug)]
pub struct Desired<'a> {
    nodes: &'a [Node],
    /// Two Nodes with one range are a mistake of somebody else, and each of them is believed.
    owners: HashMap<IpNet, Vec<&'a Node>>,
    addresses: HashMap<IpAddr, &'a Node>,
}

impl<'a> Desired<'a> {
    /// What these Nodes want.
    #[must_use]
    pub fn new(nodes: &'a [Node]) -> Self {
        let mut owners: HashMap<IpNet, Vec<&'a Node>> = HashMap::new();
        let mut addresses = HashMap::new();
        for node in nodes {
            for range in &node.pod_ranges {
                owners.entry(range.trunc()).or_default().push(node);
            }
            addresses.extend(node.addresses.iter().map(|address| (*address, node)));
        }
        Self { nodes, owners, addresses }
    }

    /// All Nodes.
    #[must_use]
    pub fn nodes(&self) -> &'a [Node] {
        self.nodes
    }

    /// The Nodes whose pods have their addresses from exactly this range.
    #[must_use]
    pub fn owners(&self, range: IpNet) -> &[&'a Node] {
        self.owners.get(&range).map_or(&[], Vec::as_slice)
    }

    /// The Node that has this address.
    #[must_use]
    pub fn node_at(&self, address: IpAddr) -> Option<&'a Node> {
        self.addresses.get(&address).copied()
    }

    /// Whether a Node has this very pair of range and address.
    #[must_use]
    pub fn wants(&self, range: IpNet, hop: IpAddr) -> bool {
        self.owners(range).iter().any(|node| node.addresses.contains(&hop))
    }
}
