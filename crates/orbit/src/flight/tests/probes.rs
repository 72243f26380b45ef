//! What several probes say together.

use groundcrew_api::net_probe::Report;

use super::node;
use crate::flight::nodes::Node;
use crate::flight::probes::{Heard, hear, is_silent};

fn report(of: &str, reached: &[&str], unreached: &[&str]) -> Report {
    let names = |names: &[&str]| names.iter().map(|name| format!("name-{name}")).collect();
    Report { node: format!("name-{of}"), reached: names(reached), unreached: names(unreached) }
}

/// Nodes a to f, all of them ready.
fn nodes() -> Vec<Node> {
    ["a", "b", "c", "d", "e", "f"].map(|name| node(name, None)).into()
}

fn out_of_reach(reports: &[Report]) -> Vec<String> {
    hear(reports, &nodes()).unreachable.into_iter().collect()
}

#[test]
fn a_node_that_two_or_more_and_most_of_those_who_ask_do_not_reach_is_out_of_reach() {
    let reports = [report("a", &["b"], &["d"]), report("b", &["a", "c"], &["d"]), report("c", &["a", "b", "d"], &[])];
    assert_eq!(out_of_reach(&reports), ["name-d"]);
    assert_eq!(hear(&reports, &nodes()).doubts, [""; 0]);
}

#[test]
fn one_voice_is_never_enough_and_is_told() {
    let alone = [report("a", &["b"], &["c"]), report("b", &["a"], &[])];
    let doubt = "one probe alone does not reach the pods of name-c; 2 have to agree";
    assert_eq!(hear(&alone, &nodes()), Heard { doubts: vec![doubt.into()], ..Heard::default() });
    let one_of_two = [report("a", &["b"], &["c"]), report("b", &["a", "c"], &[])];
    assert_eq!(hear(&one_of_two, &nodes()), Heard::default());
    assert_eq!(hear(&[], &nodes()), Heard::default());
}

#[test]
fn as_many_who_reach_it_as_not_leave_a_node_in_peace() {
    let reports = [
        report("a", &["b"], &["e"]),
        report("b", &["a"], &["e"]),
        report("c", &["e", "d"], &[]),
        report("d", &["e", "c"], &[]),
    ];
    assert_eq!(hear(&reports, &nodes()), Heard::default());
}

#[test]
fn a_probe_that_reaches_few_accuses_nobody_and_the_others_say_that_it_is_out_of_reach() {
    let cut_off = report("d", &["c"], &["a", "b"]);
    let told = "probes that reach fewer others than not are not heard: those on name-d";
    assert_eq!(hear(std::slice::from_ref(&cut_off), &nodes()).doubts, [told]);
    let reports = [report("a", &["b"], &["d"]), report("b", &["a"], &["d"]), cut_off];
    assert_eq!(out_of_reach(&reports), ["name-d"]);
}

#[test]
fn two_that_are_cut_off_together_accuse_nobody() {
    let reports = [
        report("e", &["f"], &["a", "b", "c"]),
        report("f", &["e"], &["a", "b", "c"]),
        report("a", &["b", "c"], &[]),
        report("b", &["c", "a"], &[]),
    ];
    assert_eq!(out_of_reach(&reports), [""; 0]);
}

#[test]
fn where_every_probe_is_cut_off_as_by_a_network_policy_nobody_is_accused_and_that_is_told() {
    let all = ["a", "b", "c", "d", "e", "f"];
    let reports = all.map(|own| report(own, &[], &all.into_iter().filter(|name| *name != own).collect::<Vec<_>>()));
    let heard = hear(&reports, &nodes());
    assert!(heard.unreachable.is_empty(), "{heard:?}");
    assert_eq!(heard.doubts.len(), 1, "{heard:?}");
}

#[test]
fn of_two_nodes_that_do_not_reach_each_other_nobody_knows_whose_fault_it_is() {
    let two = [node("a", None), node("b", None)];
    let heard = hear(&[report("a", &[], &["b"]), report("b", &[], &["a"])], &two);
    assert!(heard.unreachable.is_empty(), "{heard:?}");
    assert_eq!(heard.doubts, ["probes that reach fewer others than not are not heard: those on name-a, name-b"]);
}

#[test]
fn of_three_nodes_two_are_enough() {
    let three = [node("a", None), node("b", None), node("c", None)];
    let reports = [report("a", &["b"], &["c"]), report("b", &["a"], &["c"]), report("c", &[], &["a", "b"])];
    let heard = hear(&reports, &three);
    assert_eq!(heard.unreachable.into_iter().collect::<Vec<_>>(), ["name-c"]);
}

#[test]
fn probes_on_nodes_that_are_gone_or_not_ready_are_not_heard_nor_anybody_about_such_nodes_or_itself() {
    let mut nodes = nodes();
    nodes[1].unready_since = Some(super::ago(super::HOUR));
    let against = [report("a", &["d"], &["c"]), report("b", &["d"], &["c"]), report("gone", &["d"], &["c"])];
    assert!(hear(&against, &nodes).unreachable.is_empty(), "two of the three do not count");
    let about = [report("a", &["d"], &["b", "gone"]), report("c", &["d"], &["b", "gone"])];
    assert_eq!(hear(&about, &nodes), Heard::default(), "it is known already");
    let itself = [report("c", &["a", "d"], &["c"]), report("a", &["d"], &["c"])];
    assert!(hear(&itself, &nodes).unreachable.is_empty());
}

#[test]
fn two_leases_in_the_name_of_one_node_are_one_voice() {
    let twice = [report("a", &["b"], &["c"]), report("a", &["b", "d"], &["c"])];
    assert!(out_of_reach(&twice).is_empty());
}

#[test]
fn silence_is_told_where_there_are_two_ready_nodes_and_no_voice_of_one() {
    let unready = Node { unready_since: Some(super::ago(super::HOUR)), ..node("b", None) };
    let (two, one) = ([node("a", None), node("b", None)], [node("a", None), unready]);
    assert!(is_silent(&[], &two));
    assert!(is_silent(&[report("gone", &["a"], &[])], &two), "nobody of ours");
    assert!(!is_silent(&[report("a", &[], &["b"])], &two));
    assert!(!is_silent(&[], &one), "there is nobody to ask");
}
