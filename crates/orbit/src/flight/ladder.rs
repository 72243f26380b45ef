//! What to do about sick servers: one mild step, then a hard one, then, if the operator allows it, their end.
//!
//! Pure: the same view gives the same repairs. Whatever speaks against one is data too.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use groundcrew_api::node_repair::{RepairOutcome, RepairStep};
use groundcrew_core::provider::{Instance, InstanceState};
use jiff::Timestamp;

use super::fleet::{Member, Tie};
use super::nodes::Node;

/// When, and how much at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// How long a Node must be unready before its server counts as sick.
    pub unready_after: Duration,
    /// How long a new server may take to become a Node.
    pub register_within: Duration,
    /// How long a step has to help before the next one.
    pub cooldown: Duration,
    /// How long the API server and the cloud must have answered without a break: Nodes that could not report look like sick
    /// ones.
    pub steady_for: Duration,
    /// The most servers that may be under repair at once.
    pub max_repairs: usize,
    /// The most percent of the servers that may be under repair at once. At least one may.
    pub max_percent: usize,
    /// Whether servers that two reboots did not help are deleted.
    pub delete: bool,
}

/// The last step with a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    /// Which.
    pub step: RepairStep,
    /// When it was begun.
    pub at: Timestamp,
    /// What is known about its order.
    pub outcome: RepairOutcome,
    /// How often in a row the cloud did not take the order.
    pub refusals: u32,
}

/// What is known when the plan is made.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// The servers of the cluster.
    pub fleet: &'a [Member<'a>],
    /// All Nodes.
    pub nodes: &'a [Node],
    /// Whether every part of the cloud showed its servers.
    pub complete: bool,
    /// How long the API server and the cloud have answered without a break.
    pub steady: Duration,
    /// How long Nodes have been seen unready, by their [`spell`](Node::spell). What they say themselves is by their own clocks.
    pub unready: &'a BTreeMap<String, Duration>,
    /// How long servers of the cluster have been seen without a Node, by their ids.
    pub nodeless: &'a BTreeMap<String, Duration>,
    /// The last steps, by the id of the server.
    pub taken: &'a BTreeMap<String, Taken>,
    /// The time.
    pub now: Timestamp,
}

/// What is wrong with a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sickness {
    /// Its Node is not ready.
    Unready(Timestamp),
    /// It never became a Node, or is none any more.
    NeverRegistered(Timestamp),
    /// The cloud says that it failed.
    Failed(Option<String>),
}

/// One step with one server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repair<'a> {
    /// Which server.
    pub member: Member<'a>,
    /// What to do.
    pub step: RepairStep,
    /// What is wrong with it.
    pub why: Sickness,
    /// How often in a row the cloud did not take this order.
    pub refusals: u32,
}

/// Why sick servers are left as they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Held<'a> {
    /// No Node is there: more likely we cannot see them than that there are none.
    NoNodes,
    /// A part of the cloud did not answer.
    Incomplete,
    /// A part of the cloud did not show its ports.
    PortsHidden,
    /// Nodes name their servers, and the cloud shows none of them.
    Elsewhere,
    /// A Node is not ready, and the cloud does not show the server that it names.
    Unseen(&'a Node),
    /// A Node names no server and has no address, so that it may be any server.
    Unplaced(&'a Node),
    /// The API server or the cloud was away not long ago: they must answer for so long.
    Unsteady(Duration),
    /// So many are sick that it is not the servers.
    MostAreSick {
        /// How many are sick.
        sick: usize,
        /// Of how many.
        of: usize,
    },
    /// Enough are under repair.
    Brake {
        /// How many have to wait.
        waiting: usize,
        /// How many may be under repair.
        limit: usize,
    },
    /// The cloud says that the server failed, and its Node is ready.
    Serving(Member<'a>),
    /// It is not certain which Node the server is.
    Unsure(Member<'a>),
    /// Somebody may be at work on it.
    Cordoned(Member<'a>),
    /// Somebody locked the server.
    Locked(Member<'a>),
    /// The server says something else than the operator would have it say, under this key.
    Labelled(Member<'a>, &'a str),
    /// The cloud does not take the order for this step.
    Refused(Member<'a>, RepairStep),
    /// Nothing that we may do has helped.
    Exhausted(Member<'a>, Sickness),
}

/// The outcome of one look.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ladder<'a> {
    /// What to do, those first that have been sick the longest.
    pub repairs: Vec<Repair<'a>>,
    /// What is not done, and why.
    pub held: Vec<Held<'a>>,
    /// The servers whose last step can be forgotten: they are well, or gone.
    pub forget: Vec<&'a str>,
}

/// Decides about all servers.
#[must_use]
pub fn climb<'a>(view: View<'a>, rules: &Rules) -> Ladder<'a> {
    let mut ladder = Ladder { forget: forgettable(view, rules), ..Ladder::default() };
    if elsewhere(view) {
        ladder.held.push(Held::Elsewhere);
        return ladder;
    }
    ladder.held.extend(view.nodes.iter().filter(|node| is_unseen(node, view, rules)).map(Held::Unseen));
    ladder.held.extend(view.fleet.iter().filter(|member| serving(member)).map(|member| Held::Serving(*member)));
    let mut sick: Vec<_> =
        view.fleet.iter().filter_map(|member| Some((*member, sickness(*member, view, rules)?))).collect();
    if sick.is_empty() {
        return ladder;
    }
    ladder.held.extend(sick.iter().filter_map(|(member, _)| match view.taken.get(&member.instance.id) {
        Some(Taken { step, outcome: RepairOutcome::Refused, .. }) if !member.node.is_some_and(|node| node.paused) => {
            Some(Held::Refused(*member, *step))
        }
        _ => None,
    }));
    if let Some(why_none) = doubt(view, &sick, rules) {
        ladder.held.push(why_none);
        return ladder;
    }
    sick.sort_by(|(a, why_a), (b, why_b)| (why_a.since(), &a.instance.id).cmp(&(why_b.since(), &b.instance.id)));

    let limit = rules.max_repairs.min((view.fleet.len() * rules.max_percent / 100).max(1));
    // Those that are gone count too: a server that was deleted has yet to be replaced.
    let under_way = view.taken.iter().filter(|(_, taken)| taken.outcome != RepairOutcome::Refused);
    let under_way = under_way.filter(|(id, _)| cooling(id, view, rules)).count();
    let mut room = limit.saturating_sub(under_way);
    let mut waiting = 0;
    let unplaced = view.nodes.iter().find(|node| !node.foreign && node.server.is_none() && node.addresses.is_empty());
    for (member, why) in sick {
        let taken = view.taken.get(&member.instance.id);
        if member.node.is_some_and(|node| node.paused) {
            continue;
        }
        if cooling(&member.instance.id, view, rules) {
            continue;
        }
        if member.tie != Tie::Sure {
            ladder.held.push(Held::Unsure(member));
            continue;
        }
        if let (None, Some(node)) = (member.node, unplaced) {
            if !ladder.held.contains(&Held::Unplaced(node)) {
                ladder.held.push(Held::Unplaced(node));
            }
            continue;
        }
        if member.node.is_some_and(|node| node.cordoned) {
            ladder.held.push(Held::Cordoned(member));
            continue;
        }
        if member.instance.locked {
            ladder.held.push(Held::Locked(member));
            continue;
        }
        match next(member.instance, taken, rules) {
            None => ladder.held.push(Held::Exhausted(member, why)),
            Some(_) if room == 0 => waiting += 1,
            Some(step) => {
                room -= 1;
                let refusals = taken.filter(|taken| taken.step == step).map_or(0, |taken| taken.refusals);
                ladder.repairs.push(Repair { member, step, why, refusals });
            }
        }
    }
    if waiting > 0 {
        ladder.held.push(Held::Brake { waiting, limit });
    }
    ladder
}

/// Whether it is another project or region than that of the Nodes: then nothing that it shows is about them.
fn elsewhere(view: View<'_>) -> bool {
    let mut named = view.nodes.iter().filter_map(|node| node.server.as_deref()).peekable();
    view.complete && named.peek().is_some() && !named.any(|id| is_shown(id, view))
}

fn is_shown(id: &str, view: View<'_>) -> bool {
    view.fleet.binary_search_by(|member| member.instance.id.as_str().cmp(id)).is_ok()
}

/// Whether a Node would be repaired if its server were there: that is gone, or another project's.
fn is_unseen(node: &Node, view: View<'_>, rules: &Rules) -> bool {
    let gone = view.complete && node.server.as_deref().is_some_and(|id| !is_shown(id, view));
    gone && !node.paused && unready_for_long(node, view, rules).is_some()
}

/// Since when a Node has been unready for too long, by its own word and as it was seen.
fn unready_for_long(node: &Node, view: View<'_>, rules: &Rules) -> Option<Timestamp> {
    let seen = node.spell().and_then(|spell| view.unready.get(&spell).copied()).unwrap_or_default();
    let since = node.unready_since.filter(|since| elapsed(*since, view.now) >= rules.unready_after)?;
    (seen >= rules.unready_after).then_some(since)
}

/// What speaks against every repair.
fn doubt<'a>(view: View<'a>, sick: &[(Member<'a>, Sickness)], rules: &Rules) -> Option<Held<'a>> {
    if view.nodes.is_empty() {
        Some(Held::NoNodes)
    } else if !view.complete {
        Some(Held::Incomplete)
    } else if view.steady < rules.steady_for {
        Some(Held::Unsteady(rules.steady_for))
    } else {
        common_cause(view, sick)
    }
}

/// Those that are not ready for a moment only count too: what takes one Node after the other has begun with somebody.
fn common_cause<'a>(view: View<'a>, sick: &[(Member<'a>, Sickness)]) -> Option<Held<'a>> {
    let is_unready = |node: &Node| node.unready_since.is_some();
    let unready = view.fleet.iter().filter(|member| member.node.is_some_and(is_unready)).count();
    let nodeless = sick.iter().filter(|(member, _)| member.node.is_none()).count();
    // Nodes may be unready whose servers are nowhere to be seen.
    let all = view.nodes.iter().filter(|node| is_unready(node)).count();
    let counts = [(unready + nodeless, view.fleet.len()), (all, view.nodes.len())];
    counts.into_iter().find(|(sick, of)| sick * 2 > *of).map(|(sick, of)| Held::MostAreSick { sick, of })
}

/// A move to another host that went wrong leaves such servers behind: nothing is wrong with what runs on them.
fn serving(member: &Member<'_>) -> bool {
    let ready = member.node.is_some_and(|node| node.unready_since.is_none() && !node.paused);
    ready && member.instance.state == InstanceState::Failed && member.instance.task.is_none()
}

fn sickness(member: Member<'_>, view: View<'_>, rules: &Rules) -> Option<Sickness> {
    let instance = member.instance;
    let past = |since: Timestamp, patience: Duration| elapsed(since, view.now) >= patience;
    let unready = |node: &Node| unready_for_long(node, view, rules);
    // A Node that somebody deleted a moment ago leaves an old server behind that is not sick.
    let nodeless = |patience: Duration| view.nodeless.get(&instance.id).is_some_and(|time| *time >= patience);
    match (instance.state, member.node) {
        // Somebody is at it.
        _ if instance.task.is_some() => None,
        (InstanceState::Failed, Some(node)) => unready(node).map(|_| Sickness::Failed(instance.fault.clone())),
        (InstanceState::Failed, None) => {
            nodeless(rules.unready_after).then(|| Sickness::Failed(instance.fault.clone()))
        }
        (InstanceState::Running, Some(node)) => unready(node).map(Sickness::Unready),
        (InstanceState::Running, None) => {
            let made = instance.created.filter(|since| past(*since, rules.register_within));
            made.filter(|_| nodeless(rules.register_within)).map(Sickness::NeverRegistered)
        }
        // Off because somebody wants it off, not finished, or not to be known.
        _ => None,
    }
}

fn next(instance: &Instance, taken: Option<&Taken>, rules: &Rules) -> Option<RepairStep> {
    use RepairStep::{Delete, HardReboot, SoftReboot};
    let first = if instance.state == InstanceState::Running { SoftReboot } else { HardReboot };
    let delete = rules.delete.then_some(Delete);
    let Some(Taken { step, outcome, .. }) = taken else { return Some(first) };
    match (step, outcome) {
        (SoftReboot, RepairOutcome::Ordered) => Some(HardReboot),
        (HardReboot, RepairOutcome::Ordered) => delete,
        (Delete, RepairOutcome::Ordered) => None,
        // Nobody knows that it was ordered, so it comes again: the next one would follow on nothing.
        (SoftReboot, _) => Some(first),
        (HardReboot, _) => Some(HardReboot),
        (Delete, _) => delete,
    }
}

fn cooling(id: &str, view: View<'_>, rules: &Rules) -> bool {
    view.taken.get(id).is_some_and(|taken| elapsed(taken.at, view.now) < patience(taken, rules))
}

/// How long after its last step a server is let be. An order that may have been taken has a cool-down to help; one that was
/// not comes again sooner, and ever later while the cloud does not change its mind.
fn patience(taken: &Taken, rules: &Rules) -> Duration {
    match taken.outcome {
        RepairOutcome::Begun | RepairOutcome::Ordered => rules.cooldown,
        RepairOutcome::Refused => rules.cooldown / 8 * (1 << taken.refusals.saturating_sub(1).min(5)),
    }
}

/// A server that is well right after a reboot may not stay so: its step is forgotten a cool-down later.
fn forgettable<'a>(view: View<'a>, rules: &Rules) -> Vec<&'a str> {
    let gone_is_gone = view.complete && !view.nodes.is_empty() && !elsewhere(view);
    let done = view.taken.keys().map(String::as_str).filter(|id| !cooling(id, view, rules));
    done.filter(|id| match view.fleet.iter().find(|member| member.instance.id == *id) {
        Some(Member { instance, node: Some(node), .. }) => {
            instance.state == InstanceState::Running && node.unready_since.is_none()
        }
        Some(_) => false,
        None => gone_is_gone,
    })
    .collect()
}

/// None at all where a clock ran backwards.
fn elapsed(since: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(since)).unwrap_or_default()
}

/// What a step does to a server, in words.
pub(crate) fn verb(step: RepairStep) -> &'static str {
    match step {
        RepairStep::SoftReboot => "reboot",
        RepairStep::HardReboot => "turn off and on",
        RepairStep::Delete => "delete",
    }
}

impl Sickness {
    /// Since when. The cloud does not say it of a server that failed: those come first.
    fn since(&self) -> Option<Timestamp> {
        match self {
            Self::Unready(since) | Self::NeverRegistered(since) => Some(*since),
            Self::Failed(_) => None,
        }
    }
}

impl fmt::Display for Sickness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unready(since) => write!(f, "its Node is not ready since {since:.0}"),
            Self::NeverRegistered(since) => write!(f, "it was made at {since:.0} and is no Node"),
            Self::Failed(None) => f.write_str("the cloud says that it failed"),
            Self::Failed(Some(fault)) => write!(f, "the cloud says that it failed: {fault}"),
        }
    }
}

impl fmt::Display for Held<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoNodes => f.write_str("no server is repaired: the cluster shows no Node at all"),
            Self::Incomplete => f.write_str(
                "no server is repaired and no port gets the group: a part of the cloud does not show its servers",
            ),
            Self::PortsHidden => f.write_str(
                "a part of the cloud does not show its ports: nobody knows whether all of them have the group",
            ),
            Self::Elsewhere => f.write_str(
                "nothing is repaired: the cloud shows none of the servers that Nodes name; is it the right project and region?",
            ),
            Self::Unseen(node) => {
                let (name, id) = (&node.name, node.server.as_deref().unwrap_or_default());
                write!(f, "Node {name} is not ready, and the cloud does not show server {id}, which it names: ")?;
                f.write_str("it is gone, or another project's")
            }
            Self::Unplaced(node) => write!(
                f,
                "no server without a Node is repaired: Node {} has neither spec.providerID nor an address, and may be it",
                node.name
            ),
            Self::Unsteady(patience) => {
                let seconds = patience.as_secs();
                write!(f, "no server is repaired before the API server and the cloud have answered for {seconds} s")
            }
            Self::MostAreSick { sick, of } => {
                write!(f, "no server is repaired: {sick} of {of} are sick, so look for a common cause")
            }
            Self::Brake { waiting, limit } => {
                write!(f, "{waiting} sick servers have to wait: at most {limit} are repaired at once")
            }
            Self::Serving(member) => {
                let Instance { name, id, fault, .. } = member.instance;
                let fault = fault.as_deref().unwrap_or("it does not say why");
                write!(f, "the cloud says that server {name} ({id}) failed, but its Node is ready: {fault}")
            }
            Self::Unsure(member) => {
                let Instance { name, id, .. } = member.instance;
                let node = member.node.map_or("", |node| node.name.as_str());
                write!(f, "server {name} ({id}) is sick, but ")?;
                match member.tie {
                    Tie::Contested => f.write_str("more than one Node may be it: delete the Nodes that are gone"),
                    Tie::Disputed => {
                        write!(f, "Node {node}, which names it, has none of its addresses: is spec.providerID right?")
                    }
                    Tie::Theirs => f.write_str("it carries another cluster's mark: see --owned-metadata"),
                    Tie::Sure | Tie::Likely => f.write_str("its Node does not name it: set spec.providerID"),
                }
            }
            Self::Cordoned(member) => {
                let Instance { name, id, .. } = member.instance;
                write!(f, "server {name} ({id}) is sick, and its Node is cordoned: uncordon it to have it repaired")
            }
            Self::Locked(member) => {
                let Instance { name, id, .. } = member.instance;
                write!(f, "server {name} ({id}) is sick and locked: unlock it to have it repaired")
            }
            Self::Labelled(member, key) => {
                let Instance { name, id, .. } = member.instance;
                write!(
                    f,
                    "server {name} ({id}) has another {key} than --server-metadata: if it is yours, change it by hand"
                )
            }
            Self::Refused(member, step) => {
                let Instance { name, id, .. } = member.instance;
                let verb = verb(*step);
                write!(f, "the cloud does not take the order to {verb} server {name} ({id}): see NodeRepair {id}")
            }
            Self::Exhausted(member, why) => {
                let Instance { name, id, .. } = member.instance;
                write!(f, "server {name} ({id}) is still sick after all that may be done: {why}")
            }
        }
    }
}
