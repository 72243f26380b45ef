//! What to do in one pass, and what is only told.
//!
//! Pure and synchronous. [`Display`](fmt::Display) of a step is what `--dry-run` prints.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use groundcrew_api::node_repair::RepairStep;
use groundcrew_core::provider::{NewRule, Port};

use super::fleet::Member;
use super::ladder::{Held, Ladder, Repair};
use super::nodes::Node;
use super::observe::Observed;
use super::routes::changes;
use super::security::{bare_ports, missing_rules};
use super::settings::{Label, Mode, Settings};

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step<'a> {
    /// A rule that the group of the Nodes lacks.
    AddRule {
        /// The id of the group.
        group: &'a str,
        /// The rule.
        rule: NewRule,
    },
    /// The group, for a port that lacks it.
    AddGroup {
        /// The server.
        member: Member<'a>,
        /// The port as it was seen.
        port: &'a Port,
        /// The id of the group.
        group: &'a str,
    },
    /// A condition of a Node that began or ended to be true.
    Show {
        /// The Node.
        node: &'a Node,
        /// The condition.
        condition: &'static str,
        /// What is wrong; nothing any more if `None`.
        trouble: Option<String>,
    },
    /// A step with a sick server.
    Repair(Repair<'a>),
    /// Tags and metadata that a server lacks.
    Label {
        /// The server.
        member: Member<'a>,
        /// The tags.
        tags: BTreeSet<String>,
        /// The metadata.
        metadata: BTreeMap<String, String>,
    },
}

/// The steps of one pass.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan<'a> {
    /// In the order in which they are carried out.
    pub steps: Vec<Step<'a>>,
    /// What the operator wants to know and not to have done.
    pub reported: Vec<Step<'a>>,
    /// Sick servers that are left as they are.
    pub held: Vec<Held<'a>>,
    /// Servers whose last step can be forgotten.
    pub forget: Vec<&'a str>,
}

/// Compares what should be with what is.
#[must_use]
pub fn plan<'a>(
    nodes: &'a [Node],
    fleet: &'a [Member<'a>],
    observed: &'a Observed,
    ladder: Ladder<'a>,
    settings: &Settings,
) -> Plan<'a> {
    let Ladder { repairs, held, forget } = ladder;
    let mut plan = Plan { held, forget, ..Plan::default() };
    if let Some(group) = &observed.group {
        let rules = missing_rules(group, &settings.pod_ranges).into_iter();
        plan.add(settings.rules, rules.map(|rule| Step::AddRule { group: &group.id, rule }));
        let mut bare = bare_ports(&observed.ports, fleet, &group.id).peekable();
        if observed.complete {
            plan.add(settings.groups, bare.map(|(member, port)| Step::AddGroup { member, port, group: &group.id }));
        } else if bare.peek().is_some() && !plan.held.contains(&Held::Incomplete) {
            // Among the servers that are not shown may be another one of that name.
            plan.held.push(Held::Incomplete);
        }
    }
    let shown = changes(nodes, &observed.tables, settings.route_limit).into_iter();
    plan.steps.extend(shown.map(|(node, (condition, trouble))| Step::Show { node, condition, trouble }));
    plan.add(settings.labels, fleet.iter().filter_map(|member| unlabelled(*member, &settings.label)));
    // Last: what was missing above may be all that was wrong, and shows in the next pass.
    plan.add(settings.nodes, repairs.into_iter().map(Step::Repair));
    plan
}

impl<'a> Plan<'a> {
    fn add(&mut self, mode: Mode, steps: impl Iterator<Item = Step<'a>>) {
        match mode {
            Mode::Off => {}
            Mode::Report => self.reported.extend(steps),
            Mode::Repair => self.steps.extend(steps),
        }
    }
}

/// Only what a Node says is its server gets our labels: others might become ours by them.
fn unlabelled<'a>(member: Member<'a>, label: &Label) -> Option<Step<'a>> {
    let node = member.node.filter(|node| node.server.is_some() && !node.paused)?;
    let has = member.instance;
    let tags: BTreeSet<_> = label.tags.difference(&has.tags).cloned().collect();
    let metadata = label.metadata.iter().filter(|(key, value)| has.metadata.get(*key) != Some(*value));
    let metadata: BTreeMap<_, _> = metadata.map(|(key, value)| (key.clone(), value.clone())).collect();
    let member = Member { node: Some(node), ..member };
    (!tags.is_empty() || !metadata.is_empty()).then_some(Step::Label { member, tags, metadata })
}

impl<'a> Step<'a> {
    /// The Node that it is about, if it is about one.
    #[must_use]
    pub fn node(&self) -> Option<&'a Node> {
        match self {
            Self::AddRule { .. } => None,
            Self::Show { node, .. } => Some(node),
            Self::AddGroup { member, .. } | Self::Label { member, .. } | Self::Repair(Repair { member, .. }) => {
                member.node
            }
        }
    }

    /// The metric label.
    #[must_use]
    pub fn action(&self) -> &'static str {
        match self {
            Self::AddRule { .. } => "add_rule",
            Self::AddGroup { .. } => "add_group",
            Self::Label { .. } => "label",
            Self::Show { .. } => "condition",
            Self::Repair(repair) => match repair.step {
                RepairStep::SoftReboot => "soft_reboot",
                RepairStep::HardReboot => "hard_reboot",
                RepairStep::Delete => "delete",
            },
        }
    }

    /// Every [`action`](Self::action).
    pub const ACTIONS: [&'static str; 7] =
        ["add_rule", "add_group", "label", "condition", "soft_reboot", "hard_reboot", "delete"];

    /// The reason of the Event where it is only reported.
    #[must_use]
    pub fn finding(&self) -> &'static str {
        match self {
            Self::AddRule { .. } => "SecurityGroupRuleMissing",
            Self::AddGroup { .. } => "SecurityGroupMissing",
            Self::Label { .. } => "LabelsMissing",
            Self::Show { condition, .. } => condition,
            Self::Repair(_) => "ServerSick",
        }
    }

    /// The reason of the Event where it was done.
    #[must_use]
    pub fn deed(&self) -> &'static str {
        match self {
            Self::AddRule { .. } => "RuleAdded",
            Self::AddGroup { .. } => "GroupAdded",
            Self::Label { .. } => "ServerLabelled",
            Self::Show { condition, .. } => condition,
            Self::Repair(repair) => match repair.step {
                RepairStep::SoftReboot => "SoftReboot",
                RepairStep::HardReboot => "HardReboot",
                RepairStep::Delete => "ServerDeleted",
            },
        }
    }
}

impl fmt::Display for Step<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AddRule { group, rule } => {
                let protocol = rule.protocol.as_deref().unwrap_or("all");
                write!(f, "let {protocol} from {} through security group {group}", rule.range)
            }
            Self::AddGroup { member, port, group } => {
                write!(f, "add security group {group} to port {} of server {}", port.id, member.instance.name)
            }
            Self::Label { member, tags, metadata } => {
                let keys = metadata.keys().chain(tags).map(String::as_str).collect::<Vec<_>>().join(", ");
                write!(f, "label server {} with {keys}", member.instance.name)
            }
            Self::Show { node, condition, trouble: Some(trouble) } => {
                write!(f, "show {condition} on Node {}: {trouble}", node.name)
            }
            Self::Show { node, condition, trouble: None } => write!(f, "end {condition} on Node {}", node.name),
            Self::Repair(Repair { member, step, why }) => {
                let verb = match step {
                    RepairStep::SoftReboot => "reboot",
                    RepairStep::HardReboot => "turn off and on",
                    RepairStep::Delete => "delete",
                };
                write!(f, "{verb} server {} ({}): {why}", member.instance.name, member.instance.id)
            }
        }
    }
}
