//! What a Node shows about itself, as conditions that are trouble while they are `True`.

use std::collections::{BTreeMap, BTreeSet};

use super::nodes::Node;

/// A condition. Its name is also the reason of the Event when it begins or ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// No route leads to its pods.
    RouteMissing,
    /// Another route leads to its pods too.
    RouteDuplicate,
    /// The router has little room left.
    RouteQuotaNearLimit,
    /// A port of its server lacks the Nodes' security group.
    SecurityGroupDrift,
    /// The cloud does not take the order that would repair its server.
    RepairRefused,
    /// Probes on other Nodes do not reach its pods.
    PodNetworkUnreachable,
}

impl Kind {
    /// Every one.
    pub const ALL: [Self; 6] = [
        Self::RouteMissing,
        Self::RouteDuplicate,
        Self::RouteQuotaNearLimit,
        Self::SecurityGroupDrift,
        Self::RepairRefused,
        Self::PodNetworkUnreachable,
    ];

    /// Its type.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::RouteMissing => "RouteMissing",
            Self::RouteDuplicate => "RouteDuplicate",
            Self::RouteQuotaNearLimit => "RouteQuotaNearLimit",
            Self::SecurityGroupDrift => "SecurityGroupDrift",
            Self::RepairRefused => "RepairRefused",
            Self::PodNetworkUnreachable => "PodNetworkUnreachable",
        }
    }

    /// How we know it: the reason of a condition that is `True`.
    #[must_use]
    pub fn source(self) -> &'static str {
        match self {
            Self::RouteMissing | Self::RouteDuplicate | Self::RouteQuotaNearLimit => "SeenOnRouter",
            Self::SecurityGroupDrift => "SeenOnPort",
            Self::RepairRefused => "OrderNotTaken",
            Self::PodNetworkUnreachable => "ProbesGetNoAnswer",
        }
    }
}

/// Something that is wrong with a Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble<'a> {
    /// The Node.
    pub node: &'a Node,
    /// What is wrong.
    pub kind: Kind,
    /// The same in words, which must not change while nothing else does.
    pub words: String,
}

/// A condition of a Node that is to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change<'a> {
    /// The Node.
    pub node: &'a Node,
    /// The condition.
    pub kind: Kind,
    /// What is wrong; nothing any more if `None`.
    pub words: Option<String>,
}

/// What changes in the conditions of all Nodes, of those kinds that were looked at. What is as it was is not written again,
/// and what was never wrong never.
#[must_use]
pub fn changes<'a>(nodes: &'a [Node], looked_at: &BTreeSet<Kind>, troubles: Vec<Trouble<'a>>) -> Vec<Change<'a>> {
    let mut words: BTreeMap<(&str, Kind), Vec<String>> = BTreeMap::new();
    for trouble in troubles {
        words.entry((&trouble.node.name, trouble.kind)).or_default().push(trouble.words);
    }
    let changes = nodes.iter().flat_map(|node| looked_at.iter().map(move |kind| (node, *kind)));
    let changes = changes.filter_map(|(node, kind)| {
        let words = words.get(&(node.name.as_str(), kind)).map(|words| words.join("; "));
        (node.troubles.get(&kind) != words.as_ref()).then_some(Change { node, kind, words })
    });
    changes.collect()
}
