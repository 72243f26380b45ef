//! What the controller is told by its operator.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use clap::ValueEnum;
use ipnet::IpNet;

use super::hook::Hook;
use super::ladder::Rules;

/// What to do about what a check finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// Nothing: do not even look.
    Off,
    /// Tell it.
    Report,
    /// Put it right, and tell it.
    Repair,
}

/// What every server that is a Node should carry.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Label {
    /// Tags.
    pub tags: BTreeSet<String>,
    /// Keys of its metadata, with their values.
    pub metadata: BTreeMap<String, String>,
}

/// How servers that are no Nodes are known as the cluster's.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwnedBy {
    /// A tag.
    pub tag: Option<String>,
    /// A key of the metadata with its value.
    pub metadata: Option<(String, String)>,
    /// The id of a group of servers.
    pub group: Option<String>,
}

/// Everything together.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The ranges of the cluster's pods.
    pub pod_ranges: Vec<IpNet>,
    /// The name or the id of the Nodes' security group. Without it, neither rules nor ports are looked at.
    pub security_group: Option<String>,
    /// The ids of the routers that carry the routes to pods. Without any, routes are not looked at.
    pub routers: Vec<String>,
    /// How many routes a router takes where the cloud does not say.
    pub route_limit: u64,
    /// How servers that are no Nodes are known as the cluster's.
    pub owned_by: OwnedBy,
    /// What every server that is a Node should carry.
    pub label: Label,
    /// What to do about rules that the group lacks.
    pub rules: Mode,
    /// What to do about ports that lack the group.
    pub groups: Mode,
    /// What to do about sick servers.
    pub nodes: Mode,
    /// What to do about labels that a server lacks.
    pub labels: Mode,
    /// What to do about routes to pods that are wrong.
    pub routes: Mode,
    /// What to do about filters of ports that may have missed an update.
    pub nudge: Mode,
    /// Where the probes of the pod network write. Without it, nobody says which Nodes are out of reach.
    pub probes: Option<String>,
    /// How long a Node must be out of reach before something is done about it.
    pub unreachable_after: Duration,
    /// How long to wait after each nudge, re-sync and hook.
    pub push_every: Duration,
    /// What the operator has for routes that a re-sync does not mend.
    pub hook: Option<Hook>,
    /// The roles that we should have in our project. None: they are not looked at.
    pub required_roles: BTreeSet<String>,
    /// When a server is sick, and how many may be repaired.
    pub ladder: Rules,
}
