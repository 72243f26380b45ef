//! Sick servers.

use std::collections::BTreeSet;
use std::time::Duration;

use groundcrew_api::node_repair::RepairOutcome::{Begun, Ordered, Refused};
use groundcrew_api::node_repair::RepairStep::{self, Delete, HardReboot, SoftReboot};
use groundcrew_core::provider::{Instance, InstanceState};
use proptest::prelude::*;

use super::{Cluster, HOUR, MINUTE, ago, instance, node, rules};
use crate::flight::fleet::{Member, fleet};
use crate::flight::ladder::{Held, Ladder, Rules, Taken};
use crate::flight::nodes::Node;

fn one(id: &str, step: RepairStep) -> Vec<(String, RepairStep)> {
    vec![(id.to_owned(), step)]
}

#[test]
fn an_unready_node_is_rebooted_softly_then_hard_and_then_only_told() {
    let mut cluster = Cluster::default();
    assert_eq!(cluster.repairs(&rules()), one("a", SoftReboot));
    cluster.take("a", SoftReboot, 20 * MINUTE);
    assert_eq!(cluster.repairs(&rules()), one("a", HardReboot));
    cluster.take("a", HardReboot, 20 * MINUTE);
    assert!(cluster.held(&rules())[0].starts_with("server name-a (a) is still sick after all that may be done: "));
}

#[test]
fn a_server_is_deleted_only_where_the_operator_allows_it_and_only_once() {
    let allowed = Rules { delete: true, ..rules() };
    let mut cluster = Cluster::default();
    cluster.take("a", HardReboot, 20 * MINUTE);
    assert_eq!(cluster.repairs(&allowed), one("a", Delete));
    cluster.take("a", Delete, 20 * MINUTE);
    assert_eq!(cluster.repairs(&allowed), []);
}

#[test]
fn a_step_that_nobody_knows_to_have_been_ordered_comes_again_and_nothing_follows_on_it() {
    let allowed = Rules { delete: true, ..rules() };
    let mut cluster = Cluster::default();
    for outcome in [Begun, Refused] {
        for step in [SoftReboot, HardReboot, Delete] {
            cluster.note("a", step, HOUR, outcome, 1);
            assert_eq!(cluster.repairs(&allowed), one("a", step), "{outcome:?}");
        }
    }
    cluster.note("a", Delete, HOUR, Begun, 0);
    assert_eq!(cluster.repairs(&rules()), [], "the operator has changed his mind");
    cluster.instances[0].state = InstanceState::Failed;
    cluster.note("a", SoftReboot, HOUR, Begun, 0);
    assert_eq!(cluster.repairs(&allowed), one("a", HardReboot), "it cannot be asked any more");
}

#[test]
fn a_step_that_may_have_been_ordered_has_its_cool_down() {
    let mut cluster = Cluster::default();
    cluster.note("a", HardReboot, 14 * MINUTE, Begun, 0);
    assert_eq!(cluster.repairs(&rules()), []);
    cluster.note("a", HardReboot, 15 * MINUTE, Begun, 0);
    assert_eq!(cluster.repairs(&rules()), one("a", HardReboot));
}

#[test]
fn a_refused_step_is_tried_again_ever_later_and_told_in_the_same_words() {
    let mut cluster = Cluster::default();
    let told = "the cloud does not take the order to reboot server name-a (a): see NodeRepair a";
    for (refusals, seconds) in [(1, 113), (2, 225), (3, 450), (4, 900), (6, 3_600), (7, 3_600), (u32::MAX, 3_600)] {
        let patience = Duration::from_secs(seconds);
        cluster.note("a", SoftReboot, Duration::from_secs(seconds - 1), Refused, refusals);
        assert_eq!(cluster.held(&rules()), [told], "{refusals}");
        cluster.note("a", SoftReboot, patience, Refused, refusals);
        cluster.look(&rules(), |ladder| {
            assert_eq!(ladder.held.iter().map(ToString::to_string).collect::<Vec<_>>(), [told]);
            assert_eq!(ladder.repairs[0].refusals, refusals);
        });
    }
}

#[test]
fn a_server_that_the_cloud_does_not_let_us_repair_does_not_hold_up_another() {
    let single = Rules { max_repairs: 1, ..rules() };
    let mut cluster = Cluster::default();
    cluster.nodes[1].unready_since = Some(ago(HOUR));
    cluster.note("a", SoftReboot, MINUTE, Refused, 3);
    assert_eq!(cluster.repairs(&single), one("b", SoftReboot));
}

#[test]
fn a_step_has_a_cool_down_to_help() {
    let mut cluster = Cluster::default();
    cluster.take("a", SoftReboot, 14 * MINUTE);
    assert_eq!(cluster.repairs(&rules()), []);
    cluster.take("a", SoftReboot, 15 * MINUTE);
    assert_eq!(cluster.repairs(&rules()), one("a", HardReboot));
}

#[test]
fn a_step_is_forgotten_once_its_server_has_been_well_for_a_cool_down() {
    let mut cluster = Cluster::default();
    cluster.nodes[0].unready_since = None;
    cluster.take("a", SoftReboot, 14 * MINUTE);
    cluster.look(&rules(), |ladder| assert_eq!(ladder.forget, [""; 0]));
    cluster.take("a", SoftReboot, 15 * MINUTE);
    cluster.look(&rules(), |ladder| assert_eq!(ladder.forget, ["a"]));
}

#[test]
fn the_step_of_a_server_that_is_gone_is_forgotten_on_a_whole_listing_only() {
    let mut cluster = Cluster::default();
    cluster.take("gone", Delete, HOUR);
    cluster.look(&rules(), |ladder| assert_eq!(ladder.forget, ["gone"]));
    cluster.complete = false;
    cluster.look(&rules(), |ladder| assert_eq!(ladder.forget, [""; 0]));
}

#[test]
fn a_node_that_is_unready_for_a_moment_is_let_be() {
    let mut cluster = Cluster::default();
    cluster.nodes[0].unready_since = Some(ago(14 * MINUTE));
    cluster.look(&rules(), |ladder| assert_eq!(ladder, Ladder::default()));
}

#[test]
fn without_nodes_nothing_is_repaired() {
    let mut cluster = Cluster { nodes: vec![], ..Cluster::default() };
    cluster.marks.tag = Some("ours".into());
    cluster.instances[0].tags.insert("ours".into());
    assert_eq!(cluster.held(&rules()), ["no server is repaired: the cluster shows no Node at all"]);
}

#[test]
fn on_half_a_listing_nothing_is_repaired() {
    let cluster = Cluster { complete: false, ..Cluster::default() };
    assert_eq!(
        cluster.held(&rules()),
        ["no server is repaired and no port gets the group: a part of the cloud does not show its servers"]
    );
}

#[test]
fn while_the_api_server_or_the_cloud_was_away_not_long_ago_nothing_is_repaired() {
    let cluster = Cluster { steady: 9 * MINUTE, ..Cluster::default() };
    assert_eq!(
        cluster.held(&rules()),
        ["no server is repaired before the API server and the cloud have answered for 600 s"]
    );
}

#[test]
fn when_more_than_half_are_sick_it_is_not_the_servers() {
    let mut cluster = Cluster::default();
    cluster.nodes[1].unready_since = Some(ago(HOUR));
    assert_eq!(cluster.repairs(&rules()).len(), 2, "half is not more than half");
    cluster.nodes[2].unready_since = Some(ago(HOUR));
    assert_eq!(cluster.held(&rules()), ["no server is repaired: 3 of 4 are sick, so look for a common cause"]);
}

#[test]
fn the_brake_counts_those_under_repair_and_the_longest_sick_come_first() {
    let mut cluster = Cluster::default();
    cluster.nodes[1].unready_since = Some(ago(2 * HOUR));
    let single = Rules { max_repairs: 1, ..rules() };
    assert_eq!(cluster.repairs(&single), one("b", SoftReboot));
    cluster.take("b", SoftReboot, MINUTE);
    assert_eq!(cluster.held(&single), ["1 sick servers have to wait: at most 1 are repaired at once"]);
    let quarter = Rules { max_percent: 25, ..rules() };
    assert_eq!(cluster.held(&quarter), ["1 sick servers have to wait: at most 1 are repaired at once"]);
}

#[test]
fn a_server_that_was_deleted_holds_the_brake_until_its_cool_down_is_over() {
    let single = Rules { max_repairs: 1, ..rules() };
    let mut cluster = Cluster::default();
    cluster.take("gone", Delete, MINUTE);
    assert_eq!(cluster.held(&single), ["1 sick servers have to wait: at most 1 are repaired at once"]);
    cluster.take("gone", Delete, 15 * MINUTE);
    assert_eq!(cluster.repairs(&single), one("a", SoftReboot));
}

#[test]
fn a_locked_server_is_told_and_left_alone() {
    let mut cluster = Cluster::default();
    cluster.instances[0].locked = true;
    assert_eq!(cluster.held(&rules()), ["server name-a (a) is sick and locked: unlock it to have it repaired"]);
}

#[test]
fn a_server_that_is_off_at_work_or_paused_is_let_be() {
    let changes: [fn(&mut Cluster); 4] = [
        |cluster| cluster.instances[0].state = InstanceState::Stopped,
        |cluster| cluster.instances[0].state = InstanceState::Deleting,
        |cluster| cluster.instances[0].task = Some("rebooting".into()),
        |cluster| cluster.nodes[0].paused = true,
    ];
    for change in changes {
        let mut cluster = Cluster::default();
        change(&mut cluster);
        cluster.look(&rules(), |ladder| assert_eq!(ladder, Ladder::default()));
    }
}

#[test]
fn a_failed_server_whose_node_is_unready_is_turned_off_and_on_because_it_cannot_be_asked() {
    let mut cluster = Cluster::default();
    cluster.instances[0].state = InstanceState::Failed;
    assert_eq!(cluster.repairs(&rules()), one("a", HardReboot));
    cluster.nodes[0].unready_since = Some(ago(14 * MINUTE));
    cluster.look(&rules(), |ladder| assert_eq!(ladder, Ladder::default()));
}

#[test]
fn a_failed_server_whose_node_is_ready_is_told_and_left_alone() {
    let mut cluster = Cluster::default();
    cluster.nodes[0].unready_since = None;
    cluster.instances[0].state = InstanceState::Failed;
    cluster.instances[0].fault = Some("no host".into());
    let told = "the cloud says that server name-a (a) failed, but its Node is ready: no host";
    assert_eq!(cluster.held(&rules()), [told]);
    cluster.nodes[1].unready_since = Some(ago(HOUR));
    assert_eq!(cluster.repairs(&rules()), one("b", SoftReboot), "it stops no other repair");
    cluster.nodes.iter_mut().for_each(|node| node.paused = true);
    cluster.look(&rules(), |ladder| assert_eq!(ladder, Ladder::default()));
}

#[test]
fn a_failed_server_without_a_node_is_repaired_when_it_has_been_seen_so_for_long_enough() {
    let mut cluster = Cluster { nodeless: 14 * MINUTE, ..Cluster::default() };
    cluster.nodes.remove(0);
    cluster.instances[0].state = InstanceState::Failed;
    cluster.marks.group = BTreeSet::from(["a".into()]);
    assert_eq!(cluster.repairs(&rules()), []);
    cluster.nodeless = 15 * MINUTE;
    assert_eq!(cluster.repairs(&rules()), one("a", HardReboot));
}

#[test]
fn an_old_server_whose_node_was_deleted_has_the_time_of_a_new_one_to_come_back() {
    let mut cluster = Cluster { nodeless: 44 * MINUTE, ..Cluster::default() };
    cluster.nodes.remove(0);
    cluster.marks.group = BTreeSet::from(["a".into()]);
    cluster.look(&rules(), |ladder| assert_eq!(ladder, Ladder::default()));
    cluster.nodeless = 45 * MINUTE;
    assert_eq!(cluster.repairs(&rules()), one("a", SoftReboot));
}

#[test]
fn a_server_that_never_became_a_node_is_touched_only_with_a_mark() {
    let mut cluster = Cluster::default();
    cluster.nodes[0].unready_since = None;
    cluster.instances.push(instance("new"));
    assert_eq!(cluster.repairs(&rules()), [], "no mark is configured");

    cluster.marks.metadata = Some(("cluster".into(), "demo".into()));
    cluster.instances[4].metadata.insert("cluster".into(), "demo-2".into());
    assert_eq!(cluster.repairs(&rules()), [], "another cluster's");
    cluster.instances[4].metadata.insert("cluster".into(), "demo".into());
    assert_eq!(cluster.repairs(&rules()), one("new", SoftReboot));

    cluster.instances[4].created = Some(ago(44 * MINUTE));
    assert_eq!(cluster.repairs(&rules()), [], "it may still come");
    cluster.instances[4].created = None;
    assert_eq!(cluster.repairs(&rules()), [], "nobody knows since when");
}

#[test]
fn a_server_that_only_name_and_address_say_is_a_node_is_repaired_only_with_a_mark() {
    let mut cluster = Cluster::default();
    cluster.nodes[0].server = None;
    cluster.nodes[0].addresses = vec!["10.0.0.1".parse().unwrap()];
    cluster.instances[0].addresses = cluster.nodes[0].addresses.clone();
    let told = "server name-a (a) is sick, but its Node does not name it: set spec.providerID";
    assert_eq!(cluster.held(&rules()), [told]);
    cluster.marks.group = BTreeSet::from(["a".into()]);
    assert_eq!(cluster.repairs(&rules()), one("a", SoftReboot));
    cluster.instances.push(Instance { name: "name-a".into(), ..instance("twin") });
    cluster.marks.group = BTreeSet::from(["a".into(), "twin".into()]);
    assert_eq!(cluster.repairs(&rules()), [], "either may be the Node, so neither never registered");
}

#[test]
fn a_node_that_says_it_has_been_unready_for_long_is_not_believed_before_it_was_seen_so_for_as_long() {
    // Its clock is a day late.
    let mut cluster = Cluster { unready: 14 * MINUTE, ..Cluster::default() };
    cluster.nodes[0].unready_since = Some(ago(24 * HOUR));
    cluster.look(&rules(), |ladder| assert_eq!(ladder, Ladder::default()));
    cluster.instances[0].state = InstanceState::Failed;
    cluster.look(&rules(), |ladder| assert_eq!(ladder, Ladder::default()));
    cluster.unready = 15 * MINUTE;
    assert_eq!(cluster.repairs(&rules()), one("a", HardReboot));
}

#[test]
fn a_server_whose_node_got_another_name_is_not_rebooted_for_what_the_old_one_shows() {
    for new in [
        // It names the same server.
        Node { name: "new".into(), ..node("a", None) },
        // It names none, and has the address or the name of the server.
        Node { name: "new".into(), server: None, addresses: vec!["10.0.0.1".parse().unwrap()], ..node("a", None) },
        Node { name: "name-a".into(), server: None, addresses: vec![], ..node("a", None) },
    ] {
        let mut cluster = Cluster::default();
        cluster.nodes[0].name = "old".into();
        cluster.nodes[0].addresses = vec!["10.0.0.1".parse().unwrap()];
        cluster.instances[0].addresses = cluster.nodes[0].addresses.clone();
        assert_eq!(cluster.repairs(&rules()), one("a", SoftReboot));
        cluster.nodes.push(new);
        cluster.look(&rules(), |ladder| assert_eq!(ladder, Ladder::default(), "one of them is ready"));
        cluster.nodes[4].unready_since = Some(ago(HOUR));
        let told = "server name-a (a) is sick, but more than one Node may be it: delete the Nodes that are gone";
        assert_eq!(cluster.held(&rules()), [told]);
    }
}

#[test]
fn a_server_that_a_node_names_without_having_its_address_is_told_and_left_alone() {
    let mut cluster = Cluster::default();
    cluster.nodes[0].addresses = vec!["10.0.0.1".parse().unwrap()];
    cluster.instances[0].addresses = vec!["10.0.0.2".parse().unwrap(), "192.0.2.7".parse().unwrap()];
    let told = "server name-a (a) is sick, but Node name-a, which names it, has none of its addresses: \
        is spec.providerID right?";
    assert_eq!(cluster.held(&rules()), [told]);
    cluster.marks.group = BTreeSet::from(["a".into()]);
    assert_eq!(cluster.held(&rules()), [told], "a mark says that it is ours, and not that it is this Node");
    cluster.nodes[0].addresses.push("192.0.2.7".parse().unwrap());
    assert_eq!(cluster.repairs(&rules()), one("a", SoftReboot));
}

#[test]
fn a_marked_server_that_has_a_nodes_address_is_no_server_that_never_registered() {
    let mut cluster = Cluster::default();
    cluster.nodes[0] = Node { name: "host-1".into(), server: None, ..node("a", None) };
    cluster.instances[0].addresses = cluster.nodes[0].addresses.clone();
    cluster.marks.group = BTreeSet::from(["a".into()]);
    cluster.look(&rules(), |ladder| assert_eq!(ladder, Ladder::default()));
    cluster.nodes[0].unready_since = Some(ago(HOUR));
    let told = "server name-a (a) is sick, but its Node does not name it: set spec.providerID";
    assert_eq!(cluster.held(&rules()), [told]);
}

#[test]
fn a_server_with_another_clusters_mark_is_told_and_left_alone_whatever_its_node_says() {
    let mut cluster = Cluster::default();
    cluster.marks.metadata = Some(("cluster".into(), "demo".into()));
    assert_eq!(cluster.repairs(&rules()), one("a", SoftReboot), "without a mark the Node's word counts");
    for near_miss in ["demo-2", "demo_x", "Demo", ""] {
        cluster.instances[0].metadata.insert("cluster".into(), near_miss.into());
        let told = "server name-a (a) is sick, but it carries another cluster's mark: see --owned-metadata";
        assert_eq!(cluster.held(&rules()), [told], "{near_miss}");
    }
    cluster.nodes.remove(0);
    cluster.marks.tag = Some("ours".into());
    cluster.instances[0].tags.insert("ours".into());
    assert_eq!(cluster.repairs(&rules()), [], "nor where another mark says otherwise");
}

#[test]
fn a_cordoned_node_is_somebodys_work_and_is_told() {
    let mut cluster = Cluster::default();
    cluster.nodes[0].cordoned = true;
    let told = "server name-a (a) is sick, and its Node is cordoned: uncordon it to have it repaired";
    assert_eq!(cluster.held(&rules()), [told]);
}

#[test]
fn nodes_that_are_unready_for_a_moment_or_without_a_server_count_when_most_are_sick() {
    let mut cluster = Cluster::default();
    cluster.nodes[1].unready_since = Some(ago(MINUTE));
    assert_eq!(cluster.repairs(&rules()), one("a", SoftReboot));
    cluster.nodes[2].unready_since = Some(ago(MINUTE));
    assert_eq!(cluster.held(&rules()), ["no server is repaired: 3 of 4 are sick, so look for a common cause"]);
    let mut cluster = Cluster::default();
    cluster.nodes.extend((0..4).map(|n| node(&format!("z{n}"), Some(MINUTE))));
    assert_eq!(cluster.held(&rules()), ["no server is repaired: 5 of 8 are sick, so look for a common cause"]);
}

#[test]
fn a_server_that_only_shares_the_name_of_a_node_is_nobody_we_know() {
    let changes: [fn(&mut Cluster); 2] = [
        |cluster| cluster.nodes[0].foreign = true,
        |cluster| cluster.instances[0].addresses = vec!["10.0.0.2".parse().unwrap()],
    ];
    for change in changes {
        let mut cluster = Cluster::default();
        cluster.nodes[0].server = None;
        cluster.nodes[0].addresses = vec!["10.0.0.1".parse().unwrap()];
        cluster.instances[0].addresses = cluster.nodes[0].addresses.clone();
        change(&mut cluster);
        let fleet = fleet(&cluster.nodes, &cluster.instances, &cluster.marks);
        assert!(fleet.iter().all(|member| member.instance.id != "a"), "{fleet:?}");
        cluster.look(&rules(), |ladder| assert_eq!(ladder, Ladder::default()));
    }
}

#[test]
fn a_marked_server_whose_node_has_the_name_that_nova_made_of_its_own_never_counts_as_unregistered() {
    for (server, host) in [
        ("Web_1", "web-1"),
        ("web 1", "web-1"),
        ("web-1", "web-1.example.com"),
        ("web-1.example.com", "web-1"),
        ("web-1.example.com", "web-1.novalocal"),
        ("web-1.example.com", "web-1-example-com"),
        ("wéb(1)", "wéb1"),
        (&"w".repeat(70), &"w".repeat(63)),
    ] {
        let mut cluster = Cluster::default();
        cluster.marks.tag = Some("ours".into());
        cluster.nodes[0] = Node { name: host.into(), server: None, ..node("a", None) };
        cluster.instances[0].name = server.into();
        cluster.instances[0].tags.insert("ours".into());
        cluster.look(&rules(), |ladder| assert_eq!(ladder, Ladder::default(), "{server} {host}"));
        cluster.nodes[0].name = "other".into();
        assert_eq!(cluster.repairs(&rules()), one("a", SoftReboot), "{server}");
    }
}

#[test]
fn a_first_label_that_another_server_has_too_keeps_nobody_from_being_repaired() {
    // All Nodes name their servers, so the one that is none is known to be none.
    let mut cluster = Cluster::default();
    cluster.marks.tag = Some("ours".into());
    for n in 0..4 {
        cluster.nodes[n].name = format!("cluster.node-{n}");
        cluster.instances[n].name = format!("cluster.node-{n}");
    }
    cluster.nodes[0].unready_since = None;
    cluster.instances.push(Instance { name: "cluster.node-9".into(), tags: ["ours".into()].into(), ..instance("new") });
    assert_eq!(cluster.repairs(&rules()), one("new", SoftReboot));
    cluster.nodes[0].server = None;
    assert_eq!(cluster.repairs(&rules()), [], "that Node may be it");
}

#[test]
fn while_a_node_may_be_any_server_none_counts_as_unregistered() {
    let mut cluster = Cluster::default();
    cluster.marks.tag = Some("ours".into());
    cluster.instances.push(Instance { tags: ["ours".into()].into(), ..instance("new") });
    cluster.nodes[0] = Node { name: "host".into(), server: None, addresses: vec![], ..node("a", None) };
    let told =
        "no server without a Node is repaired: Node host has neither spec.providerID nor an address, and may be it";
    assert_eq!(cluster.held(&rules()), [told]);
    cluster.nodes[1].unready_since = Some(ago(HOUR));
    assert_eq!(cluster.repairs(&rules()), one("b", SoftReboot), "those that are Nodes are not held up");
    cluster.nodes[1].unready_since = None;
    cluster.nodes[0].foreign = true;
    assert_eq!(cluster.repairs(&rules()), one("new", SoftReboot));
}

#[test]
fn a_cloud_that_shows_none_of_the_servers_that_nodes_name_is_another_and_nothing_is_forgotten() {
    let mut cluster = Cluster::default();
    cluster.take("a", SoftReboot, HOUR);
    let told =
        "nothing is repaired: the cloud shows none of the servers that Nodes name; is it the right project and region?";
    let servers = std::mem::take(&mut cluster.instances);
    assert_eq!(cluster.held(&rules()), [told]);
    cluster.instances = vec![instance("theirs")];
    assert_eq!(cluster.held(&rules()), [told]);
    cluster.look(&rules(), |ladder| assert_eq!(ladder.forget, [""; 0]));
    cluster.instances = servers[1..].to_vec();
    let told = "Node name-a is not ready, and the cloud does not show server a, which it names: it is gone, or another project's";
    assert_eq!(cluster.held(&rules()), [told], "only this one");
    cluster.look(&rules(), |ladder| assert_eq!(ladder.forget, ["a"]));
    cluster.instances.clear();
    cluster.nodes.iter_mut().for_each(|node| node.server = None);
    assert_eq!(cluster.held(&rules()), [""; 0], "nobody says where it should be");
}

prop_compose! {
    fn servers()(of in prop::collection::vec((0u8..3, any::<bool>(), 0u64..120, prop::option::of(0u64..60), 0u8..3, 0u8..3), 1..12))
        -> Cluster
    {
        let mut cluster = Cluster { nodes: vec![], instances: vec![], ..Cluster::default() };
        cluster.marks.tag = Some("ours".into());
        for (n, (kind, marked, minutes, taken, step, outcome)) in of.into_iter().enumerate() {
            let id = format!("s{n}");
            let mut one = instance(&id);
            one.created = Some(ago(u32::try_from(minutes).unwrap() * MINUTE));
            if marked {
                one.tags.insert("ours".into());
            }
            match kind {
                0 => cluster.nodes.push(node(&id, None)),
                1 => cluster.nodes.push(node(&id, Some(u32::try_from(minutes).unwrap() * MINUTE))),
                _ => {}
            }
            if let Some(before) = taken {
                let step = [SoftReboot, HardReboot, Delete][usize::from(step)];
                let outcome = [Begun, Ordered, Refused][usize::from(outcome)];
                cluster.note(&id, step, u32::try_from(before).unwrap() * MINUTE, outcome, 1);
            }
            cluster.instances.push(one);
        }
        cluster
    }
}

proptest! {
    #[test]
    fn never_more_than_the_limit_never_without_a_mark_never_within_a_cool_down(cluster in servers(), max in 0usize..4) {
        let limits = Rules { max_repairs: max, delete: true, ..rules() };
        let recent = |taken: &&Taken| taken.at > ago(15 * MINUTE) && taken.outcome != Refused;
        let under_way = cluster.taken.values().filter(recent).count();
        cluster.look(&limits, |ladder| {
            prop_assert!(ladder.repairs.is_empty() || ladder.repairs.len() + under_way <= max);
            for repair in &ladder.repairs {
                let Member { instance, node, .. } = repair.member;
                prop_assert!(node.is_some() || instance.tags.contains("ours"));
                let last = cluster.taken.get(&instance.id);
                let fits = last.is_none_or(|last| match last.outcome {
                    Ordered => last.at <= ago(15 * MINUTE) && last.step < repair.step,
                    Begun => last.at <= ago(15 * MINUTE) && last.step == repair.step,
                    Refused => last.step == repair.step,
                });
                prop_assert!(fits, "{:?} after {:?}", repair.step, last);
            }
            Ok(())
        })?;
    }

    #[test]
    fn in_doubt_nothing_is_done(cluster in servers(), doubt in 0u8..3) {
        let mut cluster = cluster;
        match doubt {
            0 => cluster.nodes.clear(),
            1 => cluster.complete = false,
            _ => cluster.steady = MINUTE,
        }
        cluster.look(&rules(), |ladder| {
            prop_assert_eq!(&ladder.repairs, &vec![]);
            let held: Vec<_> = ladder.held.iter().filter(|held| !matches!(held, Held::Refused(..))).collect();
            let told = matches!(held[..], [] | [Held::NoNodes | Held::Incomplete | Held::Unsteady(_)]);
            prop_assert!(told, "{:?}", ladder.held);
            Ok(())
        })?;
    }
}
