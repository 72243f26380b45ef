//! What to do in one pass, and what is only told.
//!
//! Pure and synchronous. [`Display`](fmt::Display) of a step is what `--dry-run` prints.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use groundcrew_api::node_repair::RepairStep;
use groundcrew_core::diff::Diff;
use groundcrew_core::provider::{NewRule, Port, Route, Rule};

use super::conditions::{Change, Kind, Trouble, changes};
use super::fleet::{Member, Tie};
use super::hook::Hook;
use super::ladder::{Held, Ladder, Repair, verb};
use super::nodes::Node;
use super::observe::Observed;
use super::push::{Signal, left_routes, left_rules, nudge_rule, resync_route};
use super::routes;
use super::security::{bare_ports, missing_rules};
use super::settings::{Label, Mode, Settings};

/// The actions that have a pace of their own.
pub(crate) const NUDGE: &str = "nudge";
pub(crate) const RESYNC: &str = "resync";
pub(crate) const HOOK: &str = "hook";

/// What a change is about that concerns no Node.
const CLUSTER: &str = "the cluster";

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
    Show(Change<'a>),
    /// A rule that comes and goes, so that all ports of the group get their filters once more.
    Nudge {
        /// The id of the group.
        group: &'a str,
        /// The rule.
        rule: NewRule,
    },
    /// A rule that a nudge left behind.
    RemoveRule(&'a Rule),
    /// A route that comes and goes, so that the device behind the router gets all its routes once more.
    Resync {
        /// The id of the router.
        router: &'a str,
        /// The route.
        route: Route,
    },
    /// A route that a re-sync left behind.
    RemoveRoute {
        /// The id of the router.
        router: &'a str,
        /// The route.
        route: &'a Route,
    },
    /// A call of the operator's hook about these Nodes.
    CallHook {
        /// The hook.
        hook: &'a Hook,
        /// The Nodes' names.
        nodes: Vec<&'a str>,
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
    /// Roles that the controller should have in its project, and has not.
    pub lacking_roles: Vec<&'a str>,
    /// Routers that cannot be made to send their routes again, and why.
    pub full: Vec<String>,
}

/// Compares what should be with what is.
#[must_use]
pub fn plan<'a>(
    nodes: &'a [Node],
    fleet: &'a [Member<'a>],
    observed: &'a Observed,
    ladder: Ladder<'a>,
    signal: Signal<'a>,
    settings: &'a Settings,
) -> Plan<'a> {
    let Ladder { repairs, held, forget } = ladder;
    let mut plan = Plan { held, forget, ..Plan::default() };
    if let Some(roles) = &observed.roles {
        let lacking = settings.required_roles.iter().filter(|role| !roles.contains(*role));
        plan.lacking_roles = lacking.map(String::as_str).collect();
    }
    if let Some(group) = &observed.group {
        let rules = missing_rules(group, &settings.pod_ranges).into_iter();
        plan.add(settings.rules, rules.map(|rule| Step::AddRule { group: &group.id, rule }));
        let ports = if settings.groups == Mode::Off { &[][..] } else { &observed.ports };
        let mut bare = bare_ports(ports, fleet, &group.id).peekable();
        if observed.complete {
            plan.add(settings.groups, bare.map(|(member, port)| Step::AddGroup { member, port, group: &group.id }));
        } else if bare.peek().is_some() && !plan.held.contains(&Held::Incomplete) {
            // Among the servers that are not shown may be another one of that name.
            plan.held.push(Held::Incomplete);
        }
        if observed.ports_hidden && settings.groups != Mode::Off {
            plan.held.push(Held::PortsHidden);
        }
    }
    let troubles = troubles(nodes, fleet, observed, &plan.held, settings);
    plan.push(nodes, observed, signal, &troubles, settings);
    let shown = changes(nodes, &looked_at(observed, &plan.held, settings), troubles);
    plan.steps.extend(shown.into_iter().map(Step::Show));
    if settings.labels != Mode::Off {
        plan.held.extend(fleet.iter().flat_map(|member| otherwise_labelled(*member, &settings.label)));
    }
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

    /// For people: what would be done, Node by Node, and what is only told, with a `!`.
    #[must_use]
    pub fn diffs(&self) -> Vec<Diff> {
        let mut lines: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let about = |step: &Step<'_>| step.node().map_or(CLUSTER.to_owned(), |node| format!("Node {}", node.name));
        for step in &self.steps {
            lines.entry(about(step)).or_default().push(format!("{} {step}", step.sign()));
        }
        for step in &self.reported {
            lines.entry(about(step)).or_default().push(format!("! {step}: only reported"));
        }
        let told = self.held.iter().map(ToString::to_string).chain(self.full.iter().cloned());
        for told in told {
            lines.entry(CLUSTER.to_owned()).or_default().push(format!("! {told}"));
        }
        lines.into_iter().map(|(about, lines)| Diff::of(about, lines)).collect()
    }

    /// What makes the cloud send once more what it may have sent in vain.
    fn push(
        &mut self,
        nodes: &'a [Node],
        observed: &'a Observed,
        signal: Signal<'a>,
        troubles: &[Trouble<'a>],
        settings: &'a Settings,
    ) {
        let found_out = |step: &Step<'_>| matches!(step, Step::AddRule { .. } | Step::AddGroup { .. });
        let explained = self.steps.iter().chain(&self.reported).any(found_out);
        if let Some(group) = &observed.group {
            self.add(settings.nudge, left_rules(group).map(Step::RemoveRule));
            // What is known to be missing is put there, which sends everything too.
            let wanted = signal.nudge && !signal.lasting.is_empty() && !explained;
            let rule = nudge_rule().filter(|_| wanted);
            self.add(settings.nudge, rule.into_iter().map(|rule| Step::Nudge { group: &group.id, rule }));
        }
        for table in &observed.tables {
            let router = table.router.id.as_str();
            self.add(settings.routes, left_routes(table, nodes).map(|route| Step::RemoveRoute { router, route }));
            if !signal.resync {
                continue;
            }
            match resync_route(table, signal.lasting, troubles, settings.route_limit) {
                Ok(route) => {
                    self.add(settings.routes, route.into_iter().map(|route| Step::Resync { router, route }));
                }
                Err(full) => self.full.push(full),
            }
        }
        if let Some(hook) = settings.hook.as_ref().filter(|_| signal.hook && !signal.helpless.is_empty()) {
            let nodes = signal.helpless.iter().map(|node| node.name.as_str()).collect();
            self.add(settings.routes, std::iter::once(Step::CallHook { hook, nodes }));
        }
    }
}

/// The conditions that this pass knows about. What may be among the things that are not shown neither begins nor ends.
fn looked_at(observed: &Observed, held: &[Held<'_>], settings: &Settings) -> BTreeSet<Kind> {
    let servers = observed.complete && !held.contains(&Held::Elsewhere);
    let routes = settings.routes != Mode::Off && !settings.routers.is_empty();
    let groups = settings.groups != Mode::Off && settings.security_group.is_some();
    let looked_at = Kind::ALL.into_iter().filter(|kind| match kind {
        Kind::RouteMissing | Kind::RouteDuplicate | Kind::RouteQuotaNearLimit => routes,
        Kind::SecurityGroupDrift => groups && servers && !observed.ports_hidden,
        Kind::RepairRefused => settings.nodes != Mode::Off && servers,
        Kind::PodNetworkUnreachable => observed.unreachable.is_some(),
    });
    looked_at.collect()
}

/// What is wrong with Nodes.
fn troubles<'a>(
    nodes: &'a [Node],
    fleet: &'a [Member<'a>],
    observed: &'a Observed,
    held: &[Held<'a>],
    settings: &Settings,
) -> Vec<Trouble<'a>> {
    let mut troubles = routes::troubles(nodes, observed, settings.route_limit);
    if let Some(group) = &observed.group {
        troubles.extend(bare_ports(&observed.ports, fleet, &group.id).filter_map(|(member, port)| {
            let words = format!("port {} lacks security group {}", port.id, group.id);
            Some(Trouble { node: member.node?, kind: Kind::SecurityGroupDrift, words })
        }));
    }
    let unreachable = observed.unreachable.iter().flatten();
    troubles.extend(unreachable.filter_map(|name| {
        let node = nodes.iter().find(|node| node.name == *name && node.unready_since.is_none())?;
        let words = "probes on other Nodes do not reach its pods".to_owned();
        Some(Trouble { node, kind: Kind::PodNetworkUnreachable, words })
    }));
    troubles.extend(held.iter().filter_map(|held| match held {
        Held::Refused(Member { node: Some(node), .. }, _) => {
            Some(Trouble { node, kind: Kind::RepairRefused, words: held.to_string() })
        }
        _ => None,
    }));
    troubles
}

/// Only what a Node says is its server gets our labels: others might become ours by them.
fn unlabelled<'a>(member: Member<'a>, label: &Label) -> Option<Step<'a>> {
    member.node.filter(|node| is_labelled(member, node))?;
    let has = member.instance;
    let tags: BTreeSet<_> = label.tags.difference(&has.tags).cloned().collect();
    let metadata = label.metadata.iter().filter(|(key, _)| !has.metadata.contains_key(*key));
    let metadata: BTreeMap<_, _> = metadata.map(|(key, value)| (key.clone(), value.clone())).collect();
    (!tags.is_empty() || !metadata.is_empty()).then_some(Step::Label { member, tags, metadata })
}

/// What a server says otherwise may be another cluster's mark, and is not written over.
fn otherwise_labelled<'a>(member: Member<'a>, label: &'a Label) -> impl Iterator<Item = Held<'a>> {
    let ours = member.node.is_some_and(|node| is_labelled(member, node));
    let other = label
        .metadata
        .iter()
        .filter(move |(key, value)| ours && member.instance.metadata.get(*key).is_some_and(|has| has != *value));
    other.map(move |(key, _)| Held::Labelled(member, key))
}

fn is_labelled(member: Member<'_>, node: &Node) -> bool {
    node.server.is_some() && !node.paused && member.tie == Tie::Sure
}

impl<'a> Step<'a> {
    /// The Node that it is about, if it is about one.
    #[must_use]
    pub fn node(&self) -> Option<&'a Node> {
        match self {
            Self::AddRule { .. }
            | Self::Nudge { .. }
            | Self::RemoveRule(_)
            | Self::Resync { .. }
            | Self::RemoveRoute { .. }
            | Self::CallHook { .. } => None,
            Self::Show(change) => Some(change.node),
            Self::AddGroup { member, .. } | Self::Label { member, .. } | Self::Repair(Repair { member, .. }) => {
                member.node
            }
        }
    }

    /// Whether something comes, goes or changes.
    fn sign(&self) -> char {
        match self {
            Self::AddRule { .. } | Self::AddGroup { .. } | Self::Label { .. } => '+',
            Self::Show(change) if change.words.is_some() => '+',
            Self::Show(_)
            | Self::RemoveRule(_)
            | Self::RemoveRoute { .. }
            | Self::Repair(Repair { step: RepairStep::Delete, .. }) => '-',
            Self::Nudge { .. } | Self::Resync { .. } | Self::CallHook { .. } | Self::Repair(_) => '~',
        }
    }

    /// The metric label.
    #[must_use]
    pub fn action(&self) -> &'static str {
        match self {
            Self::AddRule { .. } => "add_rule",
            Self::AddGroup { .. } => "add_group",
            Self::Label { .. } => "label",
            Self::Show(_) => "condition",
            Self::Nudge { .. } => NUDGE,
            Self::RemoveRule(_) => "remove_rule",
            Self::Resync { .. } => RESYNC,
            Self::RemoveRoute { .. } => "remove_route",
            Self::CallHook { .. } => HOOK,
            Self::Repair(repair) => match repair.step {
                RepairStep::SoftReboot => "soft_reboot",
                RepairStep::HardReboot => "hard_reboot",
                RepairStep::Delete => "delete",
            },
        }
    }

    /// Every [`action`](Self::action).
    pub const ACTIONS: [&'static str; 12] = [
        "add_rule",
        "add_group",
        "label",
        "condition",
        NUDGE,
        "remove_rule",
        RESYNC,
        "remove_route",
        HOOK,
        "soft_reboot",
        "hard_reboot",
        "delete",
    ];

    /// The reason of the Event where it is only reported.
    #[must_use]
    pub fn finding(&self) -> &'static str {
        match self {
            Self::AddRule { .. } => "SecurityGroupRuleMissing",
            Self::AddGroup { .. } => "SecurityGroupMissing",
            Self::Label { .. } => "LabelsMissing",
            Self::Show(change) => change.kind.name(),
            Self::Nudge { .. } | Self::Resync { .. } | Self::CallHook { .. } => "PodNetworkUnreachable",
            Self::RemoveRule(_) | Self::RemoveRoute { .. } => "LeftoverFound",
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
            Self::Show(change) => change.kind.name(),
            Self::Nudge { .. } => "GroupNudged",
            Self::Resync { .. } => "RouterResynced",
            Self::CallHook { .. } => "HookCalled",
            Self::RemoveRule(_) | Self::RemoveRoute { .. } => "LeftoverRemoved",
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
            Self::Show(Change { node, kind, words: Some(words) }) => {
                write!(f, "show {} on Node {}: {words}", kind.name(), node.name)
            }
            Self::Show(Change { node, kind, words: None }) => write!(f, "end {} on Node {}", kind.name(), node.name),
            Self::Nudge { group, .. } => {
                write!(f, "add a rule to security group {group} and delete it, so that all filters are sent again")
            }
            Self::RemoveRule(rule) => write!(f, "delete rule {}, which a nudge has left behind", rule.id),
            Self::Resync { router, route } => {
                write!(f, "add route {route} to router {router} and remove it, so that all routes are sent again")
            }
            Self::RemoveRoute { router, route } => {
                write!(f, "remove route {route} from router {router}, which a re-sync has left behind")
            }
            Self::CallHook { hook, nodes } => write!(f, "call {} about {}", hook.target, nodes.join(", ")),
            Self::Repair(Repair { member, step, why, .. }) => {
                let verb = verb(*step);
                write!(f, "{verb} server {} ({}): {why}", member.instance.name, member.instance.id)
            }
        }
    }
}
