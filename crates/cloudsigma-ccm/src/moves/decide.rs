//! Which addresses should be on another node. Pure: neither clock nor client.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use crate::placement::{Candidate, place};

/// An address, as its `FloatingIP` says and as Services want it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Address {
    /// The node that should hold it.
    pub(crate) holder: Option<Arc<str>>,
    /// The node that says it does.
    pub(crate) claimed: Option<Arc<str>>,
    /// The node whose word no longer counts.
    pub(crate) evicted: Option<Arc<str>>,
    /// Whether a Service wants it: one that is being released is not placed again.
    pub(crate) wanted: bool,
    /// Nodes that may hold it; `None` is any.
    pub(crate) local: Option<BTreeSet<Arc<str>>>,
    /// The cloud forbids to move it.
    pub(crate) pinned: bool,
    /// It was moved a moment ago.
    pub(crate) rests: bool,
    /// The holder has no interface for it, or one without a link: it lives, but nothing reaches the address there.
    pub(crate) unreachable: bool,
    /// The holder was told another NIC than its server has for it now.
    pub(crate) other_nic: bool,
}

/// What is known of a node's agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Agent {
    /// Its Lease is renewed.
    Alive,
    /// It may be late, or gone: too early to say. It keeps what it has, and gets nothing more.
    Doubtful,
    /// It has been silent for so long that it has certainly lost its addresses.
    Silent,
    /// It said that it ended and holds nothing.
    Left,
}

/// A node, as far as it matters here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) agent: Agent,
    /// Its server is known to be stopped.
    pub(crate) stopped: bool,
    /// Whether kubelet says so. One that is not ready gets nothing new; what it has it keeps while its agent lives.
    pub(crate) ready: bool,
    /// Why it should hold nothing: excluded, being deleted.
    pub(crate) unfit: Option<&'static str>,
    /// Whether its server could use IPv4 addresses, and IPv6 ones.
    pub(crate) takes: [bool; 2],
    /// The number of its physical host, where the cloud tells.
    pub(crate) host: Option<usize>,
    /// Whether it is a node of the cluster that has had an agent: only those say something about how much we see. While
    /// the brake is on, whether it was when that began.
    pub(crate) counts: bool,
}

impl Node {
    /// Whether it certainly answers for nothing. Silence is no proof while most are silent.
    fn is_gone(&self, braked: bool) -> bool {
        self.stopped || self.agent == Agent::Left || (self.agent == Agent::Silent && !braked)
    }

    /// Whether it should not hold this address, although it lives.
    fn is_unfit(&self, ip: IpAddr) -> bool {
        self.unfit.is_some() || !self.takes[usize::from(ip.is_ipv6())]
    }
}

/// Why an address moves: a bounded word for metrics and Events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reason {
    /// It had no node.
    New,
    /// Its node's agent is silent.
    Silent,
    /// Its node's agent ended in order.
    Left,
    /// Its node's server is stopped.
    Stopped,
    /// Its node should hold nothing any more.
    Unfit,
    /// Its node has no ready endpoint any more.
    NoLocalEndpoint,
    /// Its node's link is down.
    LinkDown,
    /// It stays where it is; its node is told another NIC.
    OtherNic,
    /// It stays where it is; an earlier holder's word is taken back.
    Settled,
}

impl Reason {
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Silent => "silent",
            Self::Left => "left",
            Self::Stopped => "stopped",
            Self::Unfit => "unfit",
            Self::NoLocalEndpoint => "no_local_endpoint",
            Self::LinkDown => "link_down",
            Self::OtherNic => "other_nic",
            Self::Settled => "settled",
        }
    }
}

/// One change of one `FloatingIP`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Move {
    pub(crate) address: IpAddr,
    pub(crate) from: Option<Arc<str>>,
    pub(crate) to: Option<Arc<str>>,
    /// The node whose claim no longer counts. It is looked at once more before that is written.
    pub(crate) evict: Option<Arc<str>>,
    pub(crate) reason: Reason,
    /// No Service has said yet what it wants of the address: it may have to move once more, and at once.
    pub(crate) blind: bool,
}

impl Move {
    /// For people: who gets the address, and whose word does not count any more.
    pub(crate) fn lines(&self) -> Vec<String> {
        let why = self.reason.label();
        let holder = match (&self.from, &self.to) {
            (Some(from), Some(to)) if from != to => Some(format!("~ holder {from} becomes {to} ({why})")),
            (None, Some(to)) => Some(format!("+ holder {to} ({why})")),
            (Some(from), None) => Some(format!("- holder {from} ({why})")),
            (Some(_), Some(to)) if self.reason == Reason::OtherNic => Some(format!("~ NIC of holder {to}")),
            _ => None,
        };
        let evicted = self.evict.as_ref().map(|node| format!("- claim of {node}, which answers for nothing any more"));
        holder.into_iter().chain(evicted).collect()
    }
}

/// More nodes are late than can be believed: more likely it is us who see nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Brake {
    pub(crate) late: usize,
    pub(crate) nodes: usize,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Decision {
    pub(crate) moves: Vec<Move>,
    pub(crate) brake: Option<Brake>,
    /// Addresses that should be elsewhere, and for which there is no node.
    pub(crate) stranded: BTreeSet<IpAddr>,
}

pub(crate) fn decide(addresses: &BTreeMap<IpAddr, Address>, nodes: &BTreeMap<Arc<str>, Node>) -> Decision {
    let mut decision = Decision { brake: brake(nodes), ..Decision::default() };
    let mut load: BTreeMap<Arc<str>, usize> = BTreeMap::new();
    for holder in addresses.values().filter_map(|address| address.holder.clone()) {
        *load.entry(holder).or_default() += 1;
    }
    let braked = decision.brake.is_some();
    for (ip, address) in addresses {
        let gone = |node: &Arc<str>| nodes.get(node).is_some_and(|node| node.is_gone(braked));
        // Who was evicted before needs no second word.
        let evict =
            address.claimed.clone().filter(|claimed| gone(claimed) && Some(claimed) != address.evicted.as_ref());
        let reason = reason(*ip, address, nodes, braked);
        if let Some(holder) = address.holder.as_ref().filter(|holder| has_other_nic(*ip, address, holder, nodes))
            && matches!(reason, None | Some(Reason::LinkDown))
        {
            let evict = evict.filter(|claimed| claimed != holder);
            let (from, to) = (Some(holder.clone()), Some(holder.clone()));
            let (reason, blind) = (Reason::OtherNic, !address.wanted);
            decision.moves.push(Move { address: *ip, from, to, evict, reason, blind });
            continue;
        }
        let Some(reason) = reason else {
            let other = evict.filter(|claimed| Some(claimed) != address.holder.as_ref());
            if other.is_some() {
                let holder = address.holder.clone();
                decision.moves.push(Move {
                    address: *ip,
                    from: holder.clone(),
                    to: holder,
                    evict: other,
                    reason: Reason::Settled,
                    blind: !address.wanted,
                });
            }
            continue;
        };
        let failed = address.holder.as_ref().and_then(|holder| nodes.get(holder)?.host);
        let candidates: Vec<_> = nodes
            .iter()
            .filter(|(name, node)| may_hold(*ip, name, node, address))
            .map(|(name, node)| Candidate {
                node: name.clone(),
                load: load.get(name).copied().unwrap_or_default(),
                same_host: failed.is_some() && node.host == failed,
            })
            .collect();
        let Some(to) = place(*ip, &candidates) else {
            decision.stranded.insert(*ip);
            continue;
        };
        *load.entry(to.clone()).or_default() += 1;
        let evict = evict.filter(|claimed| *claimed != to);
        let (from, blind) = (address.holder.clone(), !address.wanted);
        decision.moves.push(Move { address: *ip, from, to: Some(to), evict, reason, blind });
    }
    decision
}

/// More than half of those that count, the doubtful ones among them: agents that are cut off keep their addresses when
/// most of the others are cut off too, and they ask each other before the first of them is silent.
fn brake(nodes: &BTreeMap<Arc<str>, Node>) -> Option<Brake> {
    let counted: Vec<_> = nodes.values().filter(|node| node.counts && node.agent != Agent::Left).collect();
    let is_late = |node: &&&Node| matches!(node.agent, Agent::Silent | Agent::Doubtful) && !node.stopped;
    let late = counted.iter().filter(is_late).count();
    (2 * late > counted.len()).then_some(Brake { late, nodes: counted.len() })
}

/// Why the address should be elsewhere, if it should.
fn reason(ip: IpAddr, address: &Address, nodes: &BTreeMap<Arc<str>, Node>, braked: bool) -> Option<Reason> {
    let Some(holder) = &address.holder else { return address.wanted.then_some(Reason::New) };
    if address.pinned {
        return None;
    }
    let Some(node) = nodes.get(holder) else { return Some(Reason::Unfit) };
    match node.agent {
        _ if node.stopped => return Some(Reason::Stopped),
        Agent::Left => return Some(Reason::Left),
        Agent::Silent => return (!braked).then_some(Reason::Silent),
        // Whether it lives is decided first.
        Agent::Doubtful => return None,
        Agent::Alive => {}
    }
    if address.unreachable {
        return Some(Reason::LinkDown);
    }
    if node.is_unfit(ip) {
        return Some(Reason::Unfit);
    }
    let elsewhere = address.local.as_ref().is_some_and(|nodes| !nodes.contains(holder));
    (elsewhere && !address.rests).then_some(Reason::NoLocalEndpoint)
}

/// Whether its node, which lives, should have it on another NIC. One whose interface is gone may have just got another.
fn has_other_nic(ip: IpAddr, address: &Address, holder: &Arc<str>, nodes: &BTreeMap<Arc<str>, Node>) -> bool {
    let may_have = |node: &Node| node.agent == Agent::Alive && !node.stopped && !node.is_unfit(ip);
    address.other_nic && nodes.get(holder).is_some_and(may_have)
}

fn may_hold(ip: IpAddr, name: &Arc<str>, node: &Node, address: &Address) -> bool {
    node.agent == Agent::Alive
        && node.ready
        && !node.stopped
        && !node.is_unfit(ip)
        && Some(name) != address.holder.as_ref()
        && address.local.as_ref().is_none_or(|nodes| nodes.contains(name))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name(n: u8) -> Arc<str> {
        format!("n{n}").into()
    }

    fn ip(n: u8) -> IpAddr {
        [203, 0, 113, n].into()
    }

    fn node(agent: Agent) -> Node {
        Node { agent, stopped: false, ready: true, unfit: None, takes: [true; 2], host: None, counts: true }
    }

    fn nodes(agents: &[Agent]) -> BTreeMap<Arc<str>, Node> {
        (1..).zip(agents).map(|(n, agent)| (name(n), node(*agent))).collect()
    }

    fn held(n: u8) -> Address {
        Address { holder: Some(name(n)), claimed: Some(name(n)), wanted: true, ..Address::default() }
    }

    fn one(address: Address, nodes: &BTreeMap<Arc<str>, Node>) -> Decision {
        decide(&BTreeMap::from([(ip(1), address)]), nodes)
    }

    /// To whom the first address goes, who is evicted, and why.
    type Moved = (Option<Arc<str>>, Option<Arc<str>>, Reason);

    fn moved(decision: &Decision) -> Option<Moved> {
        decision.moves.first().map(|m| (m.to.clone(), m.evict.clone(), m.reason))
    }

    #[test]
    fn an_address_of_a_living_node_stays() {
        assert_eq!(one(held(1), &nodes(&[Agent::Alive; 3])), Decision::default());
    }

    #[test]
    fn a_node_that_is_not_ready_keeps_what_it_has_and_gets_nothing() {
        let mut nodes = nodes(&[Agent::Alive, Agent::Alive]);
        for node in nodes.values_mut() {
            node.ready = false;
        }
        assert_eq!(one(held(1), &nodes).moves, []);
        let new = Address { wanted: true, ..Address::default() };
        assert_eq!(one(new, &nodes).stranded.len(), 1);
    }

    #[test]
    fn there_is_no_fail_back() {
        let after = Address { holder: Some(name(2)), claimed: Some(name(2)), evicted: Some(name(1)), ..held(2) };
        assert_eq!(one(after, &nodes(&[Agent::Alive; 3])).moves, []);
    }

    #[test]
    fn an_address_of_a_silent_node_moves_and_the_silent_one_is_evicted() {
        let decision = one(held(1), &nodes(&[Agent::Silent, Agent::Alive, Agent::Alive]));
        assert_eq!(moved(&decision), Some((Some(name(2)), Some(name(1)), Reason::Silent)));
        let lines = ["~ holder n1 becomes n2 (silent)", "- claim of n1, which answers for nothing any more"];
        assert_eq!(decision.moves[0].lines(), lines);
    }

    #[test]
    fn a_doubtful_node_keeps_what_it_has_and_gets_nothing() {
        assert_eq!(one(held(1), &nodes(&[Agent::Doubtful, Agent::Alive])).moves, []);
        let new = Address { wanted: true, ..Address::default() };
        let decision = one(new, &nodes(&[Agent::Doubtful, Agent::Doubtful]));
        assert_eq!((decision.moves.len(), decision.stranded.len()), (0, 1));
    }

    #[test]
    fn when_most_nodes_look_dead_nothing_moves_and_nobody_is_evicted() {
        let decision = one(held(1), &nodes(&[Agent::Silent, Agent::Silent, Agent::Alive]));
        assert_eq!(decision.brake, Some(Brake { late: 2, nodes: 3 }));
        assert_eq!(decision.moves, []);
        assert!(one(held(1), &nodes(&[Agent::Silent, Agent::Alive])).brake.is_none(), "half is not most");
        let first = one(held(1), &nodes(&[Agent::Silent, Agent::Doubtful, Agent::Alive]));
        assert_eq!(first.moves, [], "the first of many that are cut off is not taken for the only one");
    }

    #[test]
    fn a_stopped_servers_address_moves_whatever_the_brake_says() {
        let mut nodes = nodes(&[Agent::Silent, Agent::Silent, Agent::Silent, Agent::Alive]);
        nodes.get_mut(&name(1)).unwrap().stopped = true;
        nodes.insert(name(5), node(Agent::Silent));
        let decision = one(held(1), &nodes);
        assert!(decision.brake.is_some());
        assert_eq!(moved(&decision), Some((Some(name(4)), Some(name(1)), Reason::Stopped)));
        assert_eq!(one(held(2), &nodes).moves, []);
    }

    #[test]
    fn nodes_that_never_had_an_agent_or_are_gone_do_not_pull_the_brake() {
        let mut nodes = nodes(&[Agent::Silent, Agent::Alive, Agent::Silent, Agent::Silent]);
        for n in [3, 4] {
            nodes.get_mut(&name(n)).unwrap().counts = false;
        }
        assert_eq!(moved(&one(held(1), &nodes)), Some((Some(name(2)), Some(name(1)), Reason::Silent)));
    }

    #[test]
    fn agents_that_ended_in_order_are_not_counted_by_the_brake_as_other_agents_do_not_count_them() {
        let nodes = nodes(&[Agent::Silent, Agent::Doubtful, Agent::Alive, Agent::Left]);
        assert_eq!(one(held(1), &nodes).brake, Some(Brake { late: 2, nodes: 3 }));
    }

    #[test]
    fn what_a_planned_move_leaves_alive_is_not_evicted() {
        let mut nodes = nodes(&[Agent::Alive, Agent::Alive]);
        nodes.get_mut(&name(1)).unwrap().unfit = Some("excluded");
        assert_eq!(moved(&one(held(1), &nodes)), Some((Some(name(2)), None, Reason::Unfit)));
    }

    #[test]
    fn a_node_that_is_gone_from_the_cluster_is_left_but_not_taken_for_dead() {
        // Its agent may run on: only its Lease proves that it does not.
        let decision = one(held(9), &nodes(&[Agent::Alive]));
        assert_eq!(moved(&decision), Some((Some(name(1)), None, Reason::Unfit)));
    }

    #[test]
    fn a_node_that_could_use_addresses_of_one_family_gets_only_those() {
        let mut nodes = nodes(&[Agent::Alive, Agent::Alive]);
        nodes.get_mut(&name(1)).unwrap().takes = [false, true];
        nodes.get_mut(&name(2)).unwrap().takes = [true, false];
        let new = || Address { wanted: true, ..Address::default() };
        let addresses = BTreeMap::from([(ip(1), new()), ("2001:db8::1".parse().unwrap(), new())]);
        let to: Vec<_> = decide(&addresses, &nodes).moves.into_iter().map(|m| (m.address, m.to)).collect();
        assert_eq!(to, [(ip(1), Some(name(2))), ("2001:db8::1".parse().unwrap(), Some(name(1)))]);
        assert_eq!(moved(&one(held(1), &nodes)), Some((Some(name(2)), None, Reason::Unfit)));
    }

    #[test]
    fn an_address_follows_its_local_endpoints_unless_it_was_just_moved() {
        let local = |rests| Address { local: Some(BTreeSet::from([name(2)])), rests, ..held(1) };
        let nodes = nodes(&[Agent::Alive; 3]);
        assert_eq!(moved(&one(local(false), &nodes)), Some((Some(name(2)), None, Reason::NoLocalEndpoint)));
        assert_eq!(one(local(true), &nodes).moves, []);
    }

    #[test]
    fn a_node_that_has_another_nic_for_its_address_is_told_and_keeps_it() {
        let replaced = |n| Address { other_nic: true, unreachable: true, ..held(n) };
        for agents in [&[Agent::Alive][..], &[Agent::Alive; 3]] {
            let decision = one(replaced(1), &nodes(agents));
            assert_eq!(moved(&decision), Some((Some(name(1)), None, Reason::OtherNic)));
            assert_eq!(decision.moves[0].lines(), ["~ NIC of holder n1"]);
        }
        let decision = one(replaced(1), &nodes(&[Agent::Silent, Agent::Alive, Agent::Alive]));
        assert_eq!(moved(&decision).map(|(.., reason)| reason), Some(Reason::Silent), "it does not live");
        let mut nodes = nodes(&[Agent::Alive; 2]);
        nodes.get_mut(&name(1)).unwrap().unfit = Some("excluded");
        assert_eq!(moved(&one(replaced(1), &nodes)).map(|(.., reason)| reason), Some(Reason::LinkDown), "it should go");
    }

    #[test]
    fn a_dynamic_address_never_moves() {
        let pinned = Address { pinned: true, ..held(1) };
        assert_eq!(one(pinned, &nodes(&[Agent::Silent, Agent::Alive])).moves, []);
    }

    #[test]
    fn what_is_being_released_is_freed_of_a_dead_holder_and_not_placed_again() {
        let released = Address { claimed: Some(name(1)), ..Address::default() };
        let decision = one(released, &nodes(&[Agent::Silent, Agent::Alive]));
        assert_eq!(moved(&decision), Some((None, Some(name(1)), Reason::Settled)));
    }

    #[test]
    fn a_lost_nodes_addresses_are_spread_over_the_others() {
        let addresses: BTreeMap<_, _> = (0..200).map(|n| (ip(n), held(n % 20 + 1))).collect();
        let mut agents = [Agent::Alive; 20];
        agents[0] = Agent::Silent;
        let decision = decide(&addresses, &nodes(&agents));
        assert_eq!(decision.moves.len(), 10, "only what the lost node had");
        let targets: BTreeSet<_> = decision.moves.iter().map(|m| m.to.clone()).collect();
        assert_eq!(targets.len(), 10);
    }

    fn any_node() -> impl Strategy<Value = Node> {
        let agent = prop_oneof![Just(Agent::Alive), Just(Agent::Doubtful), Just(Agent::Silent), Just(Agent::Left)];
        let flags = any::<([bool; 3], [bool; 2])>();
        (agent, flags, prop::option::of(Just("excluded")), prop::option::of(0usize..3)).prop_map(
            |(agent, ([stopped, ready, counts], takes), unfit, host)| Node {
                agent,
                stopped,
                ready,
                unfit,
                takes,
                host,
                counts,
            },
        )
    }

    prop_compose! {
        fn any_address()(
            holder in prop::option::of(0u8..6), claimed in prop::option::of(0u8..6), evicted in prop::option::of(0u8..6),
            wanted: bool, local in prop::option::of(prop::collection::btree_set(0u8..6, 1..3)),
            pinned: bool, rests: bool, unreachable: bool, other_nic: bool,
        ) -> Address {
            Address {
                holder: holder.map(name), claimed: claimed.map(name), evicted: evicted.map(name), wanted,
                local: local.map(|nodes| nodes.into_iter().map(name).collect()), pinned, rests, unreachable,
                other_nic,
            }
        }
    }

    proptest! {
        #[test]
        fn nobody_who_may_still_answer_is_ever_evicted(
            addresses in prop::collection::btree_map((0u8..20).prop_map(ip), any_address(), 0..10),
            nodes in prop::collection::btree_map((0u8..5).prop_map(name), any_node(), 0..5),
        ) {
            for change in decide(&addresses, &nodes).moves {
                let before = &addresses[&change.address];
                if let Some(evicted) = &change.evict {
                    prop_assert!(nodes[evicted].is_gone(brake(&nodes).is_some()));
                    prop_assert_eq!(Some(evicted), before.claimed.as_ref());
                }
                prop_assert!(change.to.is_none() || change.to != change.evict);
                if let Some(to) = change.to.as_ref().filter(|to| Some(*to) != before.holder.as_ref()) {
                    let node = &nodes[to];
                    prop_assert!(node.agent == Agent::Alive && node.ready && !node.stopped);
                    prop_assert!(!node.is_unfit(change.address));
                    prop_assert!(before.local.as_ref().is_none_or(|local| local.contains(to)));
                    prop_assert!(!before.pinned || before.holder.is_none());
                }
            }
        }

        #[test]
        fn what_was_decided_and_done_is_not_decided_again(
            addresses in prop::collection::btree_map((0u8..20).prop_map(ip), any_address(), 0..10),
            nodes in prop::collection::btree_map((0u8..5).prop_map(name), any_node(), 0..5),
        ) {
            let mut after = addresses.clone();
            for change in decide(&addresses, &nodes).moves {
                let address = after.get_mut(&change.address).unwrap();
                if change.reason == Reason::OtherNic {
                    (address.unreachable, address.other_nic) = (false, false);
                }
                if address.holder != change.to {
                    // Its NIC is the one that was told.
                    address.other_nic = false;
                    // The new holder has a link of its own, and the address has just moved.
                    (address.unreachable, address.rests) = (false, true);
                }
                address.holder = change.to;
                address.evicted = change.evict.or(address.evicted.take());
            }
            prop_assert_eq!(decide(&after, &nodes).moves, vec![]);
        }
    }
}
