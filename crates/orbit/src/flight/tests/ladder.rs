//! Sick servers.

use std::collections::BTreeSet;

use groundcrew_api::node_repair::RepairStep::{self, Delete, HardReboot, SoftReboot};
use groundcrew_core::provider::{Instance, InstanceState};
use proptest::prelude::*;

use super::{Cluster, HOUR, MINUTE, ago, instance, node, rules};
use crate::flight::fleet::{Member, fleet};
use crate::flight::ladder::{Held, Ladder, Rules};

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
fn while_the_api_server_was_away_not_long_ago_nothing_is_repaired() {
    let cluster = Cluster { steady: 9 * MINUTE, ..Cluster::default() };
    assert_eq!(cluster.held(&rules()), ["no server is repaired yet: the API server has answered for 540 s only"]);
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

prop_compose! {
    fn servers()(of in prop::collection::vec((0u8..3, any::<bool>(), 0u64..120, prop::option::of(0u64..60), 0u8..3), 1..12))
        -> Cluster
    {
        let mut cluster = Cluster { nodes: vec![], instances: vec![], ..Cluster::default() };
        cluster.marks.tag = Some("ours".into());
        for (n, (kind, marked, minutes, taken, step)) in of.into_iter().enumerate() {
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
                cluster.take(&id, step, u32::try_from(before).unwrap() * MINUTE);
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
        let under_way = cluster.taken.values().filter(|taken| taken.at > ago(15 * MINUTE)).count();
        cluster.look(&limits, |ladder| {
            prop_assert!(ladder.repairs.is_empty() || ladder.repairs.len() + under_way <= max);
            for repair in &ladder.repairs {
                let Member { instance, node, .. } = repair.member;
                prop_assert!(node.is_some() || instance.tags.contains("ours"));
                let last = cluster.taken.get(&instance.id);
                prop_assert!(last.is_none_or(|last| last.at <= ago(15 * MINUTE) && last.step < repair.step));
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
            let told = matches!(ladder.held[..], [] | [Held::NoNodes | Held::Incomplete | Held::Unsteady(_)]);
            prop_assert!(told, "{:?}", ladder.held);
            Ok(())
        })?;
    }
}
