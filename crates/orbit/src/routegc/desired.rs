//! Which routes the Nodes want. Nodes in, values out.

use std::collections::{BTreeSet, HashMap, HashSet};
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
    /// In their order, so that those inside another range lie side by side.
    ranges: Vec<(IpNet, &'a Node)>,
    /// How long these are, which is one number in most clusters.
    lengths: BTreeSet<u8>,
    servers: HashSet<&'a str>,
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
        let mut ranges: Vec<_> = owners.iter().map(|(range, nodes)| (*range, nodes[0])).collect();
        ranges.sort_unstable_by_key(|(range, _)| *range);
        let lengths = ranges.iter().map(|(range, _)| range.prefix_len()).collect();
        let servers = nodes.iter().filter_map(|node| node.server.as_deref()).collect();
        Self { nodes, owners, addresses, ranges, lengths, servers }
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

    /// A Node whose range is a part of this one, or has it as a part.
    #[must_use]
    pub fn neighbour(&self, range: IpNet) -> Option<&'a Node> {
        let inside = self.ranges.partition_point(|(known, _)| *known < range);
        let inside = self.ranges.get(inside).filter(|(known, _)| range.contains(known)).map(|(_, node)| *node);
        let mut shorter = self.lengths.iter().filter(|length| **length < range.prefix_len());
        inside.or_else(|| {
            shorter.find_map(|length| {
                let around = IpNet::new(range.addr(), *length).ok()?.trunc();
                self.owners(around).first().copied()
            })
        })
    }

    /// The ids of the servers that Nodes say they are.
    #[must_use]
    pub fn servers(&self) -> &HashSet<&'a str> {
        &self.servers
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
