//! What to do about sick servers: one mild step, then a hard one, then, if the operator allows it, their end.
//!
//! Pure: the same view gives the same repairs. Whatever speaks against one is data too.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use groundcrew_api::node_repair::RepairStep;
use groundcrew_core::provider::{Instance, InstanceState};
use jiff::Timestamp;

use super::fleet::Member;

/// When, and how much at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// How long a Node must be unready before its server counts as sick.
    pub unready_after: Duration,
    /// How long a new server may take to become a Node.
    pub register_within: Duration,
    /// How long a step has to help before the next one.
    pub cooldown: Duration,
    /// How long the API server must have answered without a break: Nodes that could not report look like sick ones.
    pub steady_for: Duration,
    /// The most servers that may be under repair at once.
    pub max_repairs: usize,
    /// The most percent of the servers that may be under repair at once. At least one may.
    pub max_percent: usize,
    /// Whether servers that two reboots did not help are deleted.
    pub delete: bool,
}

/// The last step that was taken with a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    /// Which.
    pub step: RepairStep,
    /// When.
    pub at: Timestamp,
}

/// What is known when the plan is made.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// The servers of the cluster.
    pub fleet: &'a [Member<'a>],
    /// Whether there are Nodes at all.
    pub has_nodes: bool,
    /// Whether every part of the cloud showed its servers.
    pub complete: bool,
    /// How long the API server has answered without a break.
    pub steady: Duration,
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
}

/// Why sick servers are left as they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Held<'a> {
    /// No Node is there: more likely we cannot see them than that there are none.
    NoNodes,
    /// A part of the cloud did not answer.
    Incomplete,
    /// The API server was away not long ago.
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
    /// Only a name and an address say which Node the server is.
    Unsure(Member<'a>),
    /// Somebody locked the server.
    Locked(Member<'a>),
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
    ladder.held.extend(view.fleet.iter().filter(|member| serving(member)).map(|member| Held::Serving(*member)));
    let mut sick: Vec<_> =
        view.fleet.iter().filter_map(|member| Some((*member, sickness(*member, view, rules)?))).collect();
    if sick.is_empty() {
        return ladder;
    }
    if let Some(why_none) = doubt(view, sick.len(), rules) {
        ladder.held.push(why_none);
        return ladder;
    }
    sick.sort_by(|(a, why_a), (b, why_b)| (why_a.since(), &a.instance.id).cmp(&(why_b.since(), &b.instance.id)));

    let limit = rules.max_repairs.min((view.fleet.len() * rules.max_percent / 100).max(1));
    // Those that are gone count too: a server that was deleted has yet to be replaced.
    let under_way = view.taken.keys().filter(|id| cooling(id, view, rules)).count();
    let mut room = limit.saturating_sub(under_way);
    let mut waiting = 0;
    for (member, why) in sick {
        if member.node.is_some_and(|node| node.paused) || cooling(&member.instance.id, view, rules) {
            continue;
        }
        if !member.sure {
            ladder.held.push(Held::Unsure(member));
            continue;
        }
        if member.instance.locked {
            ladder.held.push(Held::Locked(member));
            continue;
        }
        match next(member.instance, view.taken.get(&member.instance.id), rules) {
            None => ladder.held.push(Held::Exhausted(member, why)),
            Some(_) if room == 0 => waiting += 1,
            Some(step) => {
                room -= 1;
                ladder.repairs.push(Repair { member, step, why });
            }
        }
    }
    if waiting > 0 {
        ladder.held.push(Held::Brake { waiting, limit });
    }
    ladder
}

/// What speaks against every repair.
fn doubt<'a>(view: View<'a>, sick: usize, rules: &Rules) -> Option<Held<'a>> {
    let of = view.fleet.len();
    if !view.has_nodes {
        Some(Held::NoNodes)
    } else if !view.complete {
        Some(Held::Incomplete)
    } else if view.steady < rules.steady_for {
        Some(Held::Unsteady(view.steady))
    } else if sick * 2 > of {
        Some(Held::MostAreSick { sick, of })
    } else {
        None
    }
}

/// A move to another host that went wrong leaves such servers behind: nothing is wrong with what runs on them.
fn serving(member: &Member<'_>) -> bool {
    let ready = member.node.is_some_and(|node| node.unready_since.is_none() && !node.paused);
    ready && member.instance.state == InstanceState::Failed && member.instance.task.is_none()
}

fn sickness(member: Member<'_>, view: View<'_>, rules: &Rules) -> Option<Sickness> {
    let instance = member.instance;
    let past = |since: Timestamp, patience: Duration| elapsed(since, view.now) >= patience;
    // A Node that somebody deleted a moment ago leaves an old server behind that is not sick.
    let nodeless = |patience: Duration| view.nodeless.get(&instance.id).is_some_and(|time| *time >= patience);
    match (instance.state, member.node) {
        // Somebody is at it.
        _ if instance.task.is_some() => None,
        (InstanceState::Failed, Some(node)) => {
            let unready = node.unready_since.filter(|since| past(*since, rules.unready_after));
            unready.map(|_| Sickness::Failed(instance.fault.clone()))
        }
        (InstanceState::Failed, None) => {
            nodeless(rules.unready_after).then(|| Sickness::Failed(instance.fault.clone()))
        }
        (InstanceState::Running, Some(node)) => {
            node.unready_since.filter(|since| past(*since, rules.unready_after)).map(Sickness::Unready)
        }
        (InstanceState::Running, None) => {
            let made = instance.created.filter(|since| past(*since, rules.register_within));
            made.filter(|_| nodeless(rules.register_within)).map(Sickness::NeverRegistered)
        }
        // Off because somebody wants it off, not finished, or not to be known.
        _ => None,
    }
}

fn next(instance: &Instance, taken: Option<&Taken>, rules: &Rules) -> Option<RepairStep> {
    match taken.map(|taken| taken.step) {
        None if instance.state == InstanceState::Running => Some(RepairStep::SoftReboot),
        None | Some(RepairStep::SoftReboot) => Some(RepairStep::HardReboot),
        Some(RepairStep::HardReboot) => rules.delete.then_some(RepairStep::Delete),
        Some(RepairStep::Delete) => None,
    }
}

fn cooling(id: &str, view: View<'_>, rules: &Rules) -> bool {
    view.taken.get(id).is_some_and(|taken| elapsed(taken.at, view.now) < rules.cooldown)
}

/// A server that is well right after a reboot may not stay so: its step is forgotten a cool-down later.
fn forgettable<'a>(view: View<'a>, rules: &Rules) -> Vec<&'a str> {
    let done = view.taken.keys().map(String::as_str).filter(|id| !cooling(id, view, rules));
    done.filter(|id| match view.fleet.iter().find(|member| member.instance.id == *id) {
        Some(Member { instance, node: Some(node), .. }) => {
            instance.state == InstanceState::Running && node.unready_since.is_none()
        }
        Some(_) => false,
        None => view.complete && view.has_nodes,
    })
    .collect()
}

/// None at all where a clock ran backwards.
fn elapsed(since: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(since)).unwrap_or_default()
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
            Self::Unsteady(steady) => {
                write!(f, "no server is repaired yet: the API server has answered for {} s only", steady.as_secs())
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
                write!(f, "server {name} ({id}) is sick, but its Node does not name it: set spec.providerID")
            }
            Self::Locked(member) => {
                let Instance { name, id, .. } = member.instance;
                write!(f, "server {name} ({id}) is sick and locked: unlock it to have it repaired")
            }
            Self::Exhausted(member, why) => {
                let Instance { name, id, .. } = member.instance;
                write!(f, "server {name} ({id}) is still sick after all that may be done: {why}")
            }
        }
    }
}
