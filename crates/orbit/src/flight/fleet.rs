//! Which server is which Node, and which servers are the cluster's though no Node says so.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

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

    /// Whether it says of itself that it is another cluster's.
    fn refuse(&self, instance: &Instance) -> bool {
        let other = |(key, value): &(String, String)| instance.metadata.get(key).is_some_and(|has| has != value);
        self.metadata.as_ref().is_some_and(other)
    }
}

/// How well it is known which Node a server is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tie {
    /// Its Node names it and nothing speaks against that, or it carries a mark. Nothing less is enough for a repair.
    Sure,
    /// It looks like a Node that names no server.
    Likely,
    /// More than one Node may be it, as when a Node got another name: the one that is unready may be its past.
    Contested,
    /// A Node names it and has none of its addresses, as one that was made from another's image.
    Disputed,
    /// It carries the mark of another cluster.
    Theirs,
}

/// A server of the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member<'a> {
    /// The server.
    pub instance: &'a Instance,
    /// The Node that it is. `None` if it never registered.
    pub node: Option<&'a Node>,
    /// How well that is known.
    pub tie: Tie,
}

/// All servers of the cluster, by their ids.
#[must_use]
pub fn fleet<'a>(nodes: &'a [Node], instances: &'a [Instance], marks: &Marks) -> Vec<Member<'a>> {
    let index = Index::new(nodes, instances);
    let mut members: Vec<_> = instances.iter().filter_map(|instance| index.member(instance, marks)).collect();
    members.sort_unstable_by_key(|member| &member.instance.id);
    members
}

/// Nodes by what they may be known by.
struct Index<'a> {
    /// Those that name their server.
    by_server: BTreeMap<&'a str, Vec<&'a Node>>,
    /// Those that name nothing, by the first labels of their names.
    by_label: BTreeMap<&'a str, Vec<&'a Node>>,
    by_address: BTreeMap<IpAddr, Vec<&'a Node>>,
    names: BTreeSet<&'a str>,
    /// The first labels of those that are not surely another server.
    labels: BTreeSet<&'a str>,
    /// How many servers a first label may be of.
    namesakes: BTreeMap<String, usize>,
}

impl<'a> Index<'a> {
    fn new(nodes: &'a [Node], instances: &'a [Instance]) -> Self {
        let mut by_server: BTreeMap<_, Vec<_>> = BTreeMap::new();
        let mut by_address: BTreeMap<_, Vec<_>> = BTreeMap::new();
        let mut by_label: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for node in nodes {
            if let Some(server) = &node.server {
                by_server.entry(server.as_str()).or_default().push(node);
            } else if !node.foreign {
                by_label.entry(label(&node.name)).or_default().push(node);
                for address in &node.addresses {
                    by_address.entry(*address).or_default().push(node);
                }
            }
        }
        let mut namesakes = BTreeMap::new();
        // Where every Node names its server, nobody is looked for by name.
        for instance in instances.iter().filter(|_| !by_label.is_empty()) {
            for label in labels(&instance.name) {
                *namesakes.entry(label).or_default() += 1;
            }
        }
        let known: BTreeMap<_, _> = instances.iter().map(|instance| (instance.id.as_str(), instance)).collect();
        let elsewhere = |node: &Node| {
            let named = node.server.as_deref().and_then(|id| known.get(id));
            node.foreign || named.is_some_and(|instance| !differ(node, instance))
        };
        let names = nodes.iter().map(|node| node.name.as_str()).collect();
        let labels = nodes.iter().filter(|node| !elsewhere(node)).map(|node| label(&node.name)).collect();
        Self { by_server, by_label, by_address, names, labels, namesakes }
    }

    fn member(&self, instance: &'a Instance, marks: &Marks) -> Option<Member<'a>> {
        let named = self.by_server.get(instance.id.as_str()).map_or(&[][..], Vec::as_slice);
        let others = self.nameless(instance);
        let candidates: Vec<_> = named.iter().copied().chain(others.values().copied()).collect();
        let marked = marks.claim(instance);
        let node = best(&candidates);
        let tie = match (node, named.len()) {
            _ if marks.refuse(instance) => (marked || !named.is_empty()).then_some(Tie::Theirs)?,
            // Whatever has the name of a Node may be that Node, also where we could not say which.
            (None, _) => (marked && !self.may_be_one(instance)).then_some(Tie::Sure)?,
            (Some(_), _) if candidates.len() > 1 => {
                let ours = marked || !named.is_empty() || candidates.iter().any(|node| self.is_like(node, instance));
                ours.then_some(Tie::Contested)?
            }
            (Some(node), 1..) => {
                if differ(node, instance) {
                    Tie::Disputed
                } else {
                    Tie::Sure
                }
            }
            (Some(node), 0) if self.is_like(node, instance) => {
                if marked {
                    Tie::Sure
                } else {
                    Tie::Likely
                }
            }
            (Some(_), 0) => marked.then_some(Tie::Likely)?,
        };
        Some(Member { instance, node, tie })
    }

    /// The Nodes that name no server and have the name or an address of this one, by their names.
    fn nameless(&self, instance: &Instance) -> BTreeMap<&'a str, &'a Node> {
        let by_address = instance.addresses.iter().filter_map(|address| self.by_address.get(address)).flatten();
        let labels = if self.by_label.is_empty() { BTreeSet::new() } else { labels(&instance.name) };
        let by_label = labels.iter().filter_map(|label| self.by_label.get(label.as_str())).flatten();
        by_address.chain(by_label).map(|node| (node.name.as_str(), *node)).collect()
    }

    fn may_be_one(&self, instance: &Instance) -> bool {
        hosts(&instance.name).iter().any(|host| self.names.contains(host.as_str()))
            || labels(&instance.name).iter().any(|label| self.labels.contains(label.as_str()))
    }

    /// A name that two servers have says nothing, and somebody else's server may have it too.
    fn is_like(&self, node: &Node, instance: &Instance) -> bool {
        let name = is_named_like(node, instance) && self.namesakes.get(label(&node.name)) == Some(&1);
        name && instance.addresses.iter().any(|address| node.addresses.contains(address))
    }
}

/// The host names that Nova may have given to a server of this name: `Web_1.example` is `web-1-example` to a new Nova and
/// `web-1.example` to an older one.
fn hosts(name: &str) -> BTreeSet<String> {
    let host = |dash: &[char]| {
        let kept = name.chars().filter(|c| u32::from(*c) < 256).take(63);
        let kept = kept.map(|c| if dash.contains(&c) { '-' } else { c });
        let kept = kept.filter(|c| c.is_alphanumeric() || matches!(c, '.' | '-'));
        kept.flat_map(char::to_lowercase).collect::<String>().trim_matches(['.', '-']).to_owned()
    };
    BTreeSet::from([host(&[' ', '_', '.']), host(&[' ', '_'])])
}

/// The same without a domain: a kubelet registers with one, without, or with another.
fn labels(name: &str) -> BTreeSet<String> {
    hosts(name).iter().map(|host| label(host).to_owned()).collect()
}

fn label(host: &str) -> &str {
    host.split_once('.').map_or(host, |(first, _)| first)
}

/// Whether a Node has this server's whole name.
pub(crate) fn has_name(node: &Node, instance: &Instance) -> bool {
    hosts(&instance.name).contains(&node.name)
}

/// Whether a Node could have this server's name.
fn is_named_like(node: &Node, instance: &Instance) -> bool {
    labels(&instance.name).contains(label(&node.name))
}

/// Of several, one that is ready: then the server is well, whichever of them it is.
fn best<'a>(candidates: &[&'a Node]) -> Option<&'a Node> {
    let mut ready = candidates.iter().filter(|node| node.unready_since.is_none());
    ready.next().or_else(|| candidates.first()).copied()
}

/// Whether both tell their addresses, and have none in common.
fn differ(node: &Node, instance: &Instance) -> bool {
    let told = !node.addresses.is_empty() && !instance.addresses.is_empty();
    told && !instance.addresses.iter().any(|address| node.addresses.contains(address))
}

/// Whether a Node could be this server, for all that it says of itself.
pub(crate) fn may_be(node: &Node, instance: &Instance) -> bool {
    if let Some(id) = &node.server {
        return *id == instance.id;
    }
    let has = |address| node.addresses.contains(address);
    !node.foreign && (is_named_like(node, instance) || instance.addresses.iter().any(has))
}
