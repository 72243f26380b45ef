//! The stories of one address, then many nodes, a controller and every kind of delay against the one promise: never two
//! nodes with the same address.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const TIMINGS: Timings = Timings::DEFAULT;

fn wish(claim: Claim) -> Wish {
    Wish { wanted: true, serial: 1, claim }
}

fn alive(now: Moment) -> Authority {
    let mut authority = Authority::default();
    authority.renewed(TIMINGS.deadline(now), now);
    authority
}

fn ask(wish: Wish, authority: &Authority, standing: &Standing, now: Moment) -> Act {
    next(Some(wish), true, authority, standing, TIMINGS, now)
}

#[test]
fn an_address_is_claimed_probed_shown_announced_and_reported_in_this_order() {
    let now = Moment::now();
    let authority = alive(now);
    let mut standing = Standing::default();
    let claim = Act::Claim { term: 1, clear: false };
    assert_eq!(ask(wish(Claim::Never), &authority, &standing, now), claim);
    standing.claim = Some((1, 1));
    assert_eq!(ask(wish(Claim::Ours), &authority, &standing, now), Act::Probe);
    standing.clear = true;
    assert_eq!(ask(wish(Claim::Ours), &authority, &standing, now), Act::Show { seconds: 6 });
    standing.shown = Some(now + Duration::from_secs(6));
    assert_eq!(ask(wish(Claim::Ours), &authority, &standing, now), Act::Announce);
    standing.announced = Some((1, now));
    assert_eq!(ask(wish(Claim::Ours), &authority, &standing, now), Act::Report);
    standing.reported = true;
    let until = Some(now + Duration::from_millis(1_100));
    assert_eq!(ask(wish(Claim::Ours), &authority, &standing, now), Act::Wait { until });
}

#[test]
fn after_a_confirmed_release_nobody_is_asked() {
    let now = Moment::now();
    let claim = Act::Claim { term: 1, clear: true };
    assert_eq!(ask(wish(Claim::Released), &alive(now), &Standing::default(), now), claim);
}

#[test]
fn the_claim_of_another_node_is_waited_for_until_it_is_evicted() {
    let now = Moment::now();
    let ask = |evicted| ask(wish(Claim::Theirs { evicted }), &alive(now), &Standing::default(), now);
    assert_eq!(ask(false), Act::Wait { until: None });
    assert_eq!(ask(true), Act::Claim { term: 1, clear: false });
}

#[test]
fn what_is_no_longer_wanted_is_hidden_first_and_released_then() {
    let now = Moment::now();
    let mut standing = Standing {
        claim: Some((1, 1)),
        clear: true,
        shown: Some(now + Duration::from_secs(6)),
        announced: Some((1, now)),
        reported: true,
        ..Standing::default()
    };
    let unwanted = Wish { wanted: false, ..wish(Claim::Ours) };
    for (wish, able) in [(Some(unwanted), true), (None, true), (Some(wish(Claim::Ours)), false)] {
        assert_eq!(next(wish, able, &alive(now), &standing, TIMINGS, now), Act::Hide);
    }
    standing.shown = None;
    assert_eq!(ask(unwanted, &alive(now), &standing, now), Act::Release);
    assert_eq!(next(Some(wish(Claim::Ours)), false, &alive(now), &standing, TIMINGS, now), Act::Release);
    let released = Wish { claim: Claim::Released, ..unwanted };
    assert_eq!(ask(released, &alive(now), &standing, now), Act::Wait { until: None });
}

#[test]
fn a_node_that_cannot_have_an_address_says_so_once_unless_another_still_holds_it() {
    let now = Moment::now();
    let mut standing = Standing::default();
    let ask = |claim, standing: &Standing| next(Some(wish(claim)), false, &alive(now), standing, TIMINGS, now);
    for claim in [Claim::Never, Claim::Released, Claim::Theirs { evicted: true }] {
        assert_eq!(ask(claim, &standing), Act::Refuse, "{claim:?}");
    }
    assert_eq!(ask(Claim::Theirs { evicted: false }, &standing), Act::Wait { until: None });
    let unwanted = Wish { wanted: false, ..wish(Claim::Never) };
    assert_eq!(next(Some(unwanted), false, &alive(now), &standing, TIMINGS, now), Act::Wait { until: None });
    standing.refused = Some(1);
    assert_eq!(ask(Claim::Never, &standing), Act::Wait { until: None });
    let again = Wish { serial: 2, ..wish(Claim::Released) };
    assert_eq!(next(Some(again), false, &alive(now), &standing, TIMINGS, now), Act::Refuse, "it was placed here anew");
}

#[test]
fn an_address_shown_in_an_earlier_term_is_hidden_and_claimed_anew() {
    let start = Moment::now();
    let mut authority = alive(start);
    let mut standing = Standing { claim: Some((1, 1)), clear: true, ..Standing::default() };
    standing.shown = Some(start + Duration::from_secs(6));
    let later = start + Duration::from_secs(30);
    assert_eq!(ask(wish(Claim::Ours), &authority, &standing, later), Act::Hide, "no authority");
    authority.renewed(TIMINGS.deadline(later), later);
    assert_eq!(ask(wish(Claim::Ours), &authority, &standing, later), Act::Hide, "another term");
    standing.shown = None;
    let claim = Act::Claim { term: 2, clear: false };
    assert_eq!(ask(wish(Claim::Ours), &authority, &standing, later), claim);
}

#[test]
fn an_address_that_the_kernel_does_not_prolong_is_tried_again_later_and_not_announced_once_it_is_gone() {
    let start = Moment::now();
    let authority = alive(start);
    let mut standing = Standing { claim: Some((1, 1)), clear: true, ..Standing::default() };
    standing.shown = Some(start + Duration::from_secs(1));
    let later = start + PATIENCE;
    standing.not_before = Some(later);
    assert_eq!(ask(wish(Claim::Ours), &authority, &standing, start), Act::Announce, "it is there still");
    let gone = start + Duration::from_millis(1_500);
    assert_eq!(ask(wish(Claim::Ours), &authority, &standing, gone), Act::Wait { until: Some(later) });
    assert_eq!(ask(wish(Claim::Ours), &authority, &standing, later), Act::Show { seconds: 5 });
}

#[test]
fn announcements_are_a_few_soon_and_one_now_and_then() {
    let start = Moment::now();
    let gaps: Vec<_> = (1..8).map(|times| start.until(announcement_due(Some((times, start))).unwrap())).collect();
    assert_eq!(gaps[..5], [Duration::from_millis(1_100); 5]);
    assert_eq!(gaps[5..], [ANNOUNCE_AGAIN; 2]);
}

/// One `FloatingIP` on the API server, the Leases of the nodes, and a controller that keeps to its part of the agreement.
struct World {
    start: Moment,
    now: Moment,
    object: Object,
    leases: Vec<u64>,
    nodes: Vec<Node>,
    /// What the controller saw of each Lease, and since when.
    seen: BTreeMap<usize, (u64, Moment)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Object {
    version: u64,
    holder: usize,
    serial: i64,
    evicted: Option<usize>,
    claim: Option<usize>,
    touched: bool,
}

struct Node {
    authority: Authority,
    standing: Standing,
    /// The object as last read; it may be old.
    known: Object,
    /// A renewal on its way: when it was sent.
    renewal: Option<Moment>,
}

#[derive(Debug, Clone)]
enum Move {
    Pass(u64),
    /// A node sends a renewal, and the server takes it.
    Renew(usize),
    /// The answer to it arrives.
    Answer(usize),
    /// A node's watch catches up.
    Watch(usize),
    /// A node carries out its next step.
    Step(usize),
    /// The controller looks at the Leases, and moves the address away from a node that has been silent.
    Control,
    /// The controller wants the address on this node.
    Plan(usize),
    /// An agent dies and is started again: it knows nothing, the kernel keeps the address.
    Restart(usize),
}

const NODES: usize = 3;

impl World {
    fn new() -> Self {
        let start = Moment::now();
        let object = Object { version: 1, holder: 0, serial: 1, evicted: None, claim: None, touched: false };
        let node =
            || Node { authority: Authority::default(), standing: Standing::default(), known: object, renewal: None };
        let nodes = (0..NODES).map(|_| node()).collect();
        Self { start, now: start, object, leases: vec![0; NODES], nodes, seen: BTreeMap::new() }
    }

    fn carry_out(&mut self, step: &Move) {
        match *step {
            Move::Pass(millis) => self.now = self.now + Duration::from_millis(millis),
            Move::Renew(node) => {
                self.leases[node] += 1;
                self.nodes[node].renewal = Some(self.now);
            }
            Move::Answer(node) => {
                let (now, node) = (self.now, &mut self.nodes[node]);
                if let Some(sent) = node.renewal.take() {
                    node.authority.renewed(TIMINGS.deadline(sent), now);
                }
            }
            Move::Watch(node) => self.nodes[node].known = self.object,
            Move::Step(node) => self.step(node),
            Move::Control => self.control(),
            Move::Plan(node) => {
                if self.object.holder != node {
                    self.object.holder = node;
                    self.object.serial += 1;
                    self.object.evicted = self.object.evicted.filter(|evicted| *evicted != node);
                    self.object.version += 1;
                }
            }
            // What an agent finds of itself at its start it hides before anything else.
            Move::Restart(node) => {
                let known = self.object;
                self.nodes[node] =
                    Node { authority: Authority::default(), standing: Standing::default(), known, renewal: None };
            }
        }
    }

    fn step(&mut self, index: usize) {
        let now = self.now;
        let node = &mut self.nodes[index];
        // The kernel's own clock.
        node.standing.shown = node.standing.shown.filter(|until| now < *until);
        let known = node.known;
        let claim = match known.claim {
            None if known.touched => Claim::Released,
            None => Claim::Never,
            Some(holder) if holder == index => Claim::Ours,
            Some(holder) => Claim::Theirs { evicted: known.evicted == Some(holder) },
        };
        let wish = Wish { wanted: known.holder == index, serial: known.serial, claim };
        match next(Some(wish), true, &node.authority, &node.standing, TIMINGS, now) {
            Act::Hide => node.standing = Standing::default(),
            Act::Show { seconds } => node.standing.shown = Some(now + Duration::from_secs(seconds.into())),
            Act::Probe => node.standing.clear = true,
            Act::Announce => node.standing.announced = Some((1, now)),
            Act::Report => node.standing.reported = true,
            Act::Claim { term, clear } if known.version == self.object.version => {
                self.object = Object { claim: Some(index), touched: true, version: known.version + 1, ..known };
                node.known = self.object;
                node.standing = Standing { claim: Some((term, known.serial)), clear, ..Standing::default() };
            }
            Act::Release if known.version == self.object.version => {
                self.object = Object { claim: None, version: known.version + 1, ..known };
                node.known = self.object;
                node.standing = Standing::default();
            }
            // A conflict: somebody else was quicker.
            Act::Claim { .. } | Act::Release => node.known = self.object,
            Act::Wait { .. } | Act::Refuse => {}
        }
    }

    fn control(&mut self) {
        for (node, lease) in self.leases.iter().enumerate() {
            if self.seen.get(&node).is_none_or(|(seen, _)| seen != lease) {
                self.seen.insert(node, (*lease, self.now));
            }
        }
        let silent = |node: usize| self.seen[&node].1 + TIMINGS.take_over() <= self.now;
        let holder = self.object.claim.unwrap_or(self.object.holder);
        let Some(next) = (0..NODES).find(|node| !silent(*node)) else { return };
        if silent(holder) && self.object.evicted != Some(holder) {
            self.object.evicted = Some(holder);
            self.object.holder = next;
            self.object.serial += 1;
            self.object.version += 1;
        }
    }

    fn holders(&self) -> Vec<usize> {
        let holds = |node: &Node| node.standing.shown.is_some_and(|until| self.now < until);
        self.nodes.iter().enumerate().filter(|(_, node)| holds(node)).map(|(index, _)| index).collect()
    }
}

/// What happens in one go. Single moves at random would hardly ever get as far as an address that is held, let alone
/// taken over.
fn scenes() -> impl Strategy<Value = Vec<Move>> {
    let work = |node: usize| (0..6).map(move |_| Move::Step(node));
    let all_is_well = move |node: usize| {
        [Move::Renew(node), Move::Answer(node), Move::Watch(node)].into_iter().chain(work(node)).collect::<Vec<_>>()
    };
    let watch_is_late =
        move |node: usize| [Move::Renew(node), Move::Answer(node)].into_iter().chain(work(node)).collect::<Vec<_>>();
    let answer_is_late = move |(node, millis): (usize, u64)| {
        [Move::Renew(node), Move::Control, Move::Pass(millis), Move::Answer(node)]
            .into_iter()
            .chain(work(node))
            .collect()
    };
    let node = 0..NODES;
    prop_oneof![
        6 => node.clone().prop_map(all_is_well),
        2 => node.clone().prop_map(watch_is_late),
        3 => (node.clone(), 1u64..2_000).prop_map(answer_is_late),
        1 => node.clone().prop_map(|node| vec![Move::Renew(node)]),
        2 => node.clone().prop_map(|node| vec![Move::Watch(node), Move::Step(node)]),
        3 => node.clone().prop_map(move |node| work(node).collect()),
        5 => prop_oneof![1u64..400, 400u64..9_000].prop_map(|millis| vec![Move::Pass(millis)]),
        6 => Just(vec![Move::Control]),
        1 => node.clone().prop_map(|node| vec![Move::Plan(node)]),
        1 => node.prop_map(|node| vec![Move::Restart(node)]),
    ]
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    prop::collection::vec(scenes(), 1..60).prop_map(|scenes| scenes.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn never_two_nodes_have_the_address_whatever_is_late_or_lost(moves in moves()) {
        let mut world = World::new();
        for step in moves {
            world.carry_out(&step);
            let holders = world.holders();
            prop_assert!(holders.len() <= 1, "{holders:?} after {:?}", world.start.until(world.now));
        }
    }

    #[test]
    fn once_all_is_well_exactly_the_wanted_node_has_it(moves in moves(), wanted in 0..NODES) {
        let mut world = World::new();
        for step in moves {
            world.carry_out(&step);
        }
        world.carry_out(&Move::Plan(wanted));
        for _ in 0..20 {
            for node in 0..NODES {
                for step in [Move::Renew(node), Move::Answer(node), Move::Watch(node), Move::Step(node), Move::Step(node)] {
                    world.carry_out(&step);
                }
            }
            world.carry_out(&Move::Pass(1_000));
            world.carry_out(&Move::Control);
        }
        prop_assert_eq!(world.holders(), [wanted]);
    }
}
