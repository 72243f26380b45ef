//! Nudges and re-syncs.

use std::collections::BTreeSet;
use std::time::Duration;

use groundcrew_core::leader::Moment;
use groundcrew_core::provider::{Direction, Family, Remote, Rule};

use super::plan::settings;
use super::routes::{table, with_pods};
use super::security::group;
use super::{HOUR, MINUTE};
use crate::flight::hook::{Hook, Target};
use crate::flight::ladder::Ladder;
use crate::flight::nodes::Node;
use crate::flight::observe::Observed;
use crate::flight::plan::plan;
use crate::flight::push::{NUDGE, Pace, Signal};
use crate::flight::settings::{Mode, Settings};

/// What lets all pods through.
fn open() -> Rule {
    Rule {
        id: "open".into(),
        direction: Direction::Ingress,
        family: Family::V4,
        protocol: None,
        ports: None,
        remote: Remote::Anyone,
        description: String::new(),
    }
}

/// One Node whose routes and rules are as they should be.
fn observed(pairs: &[(&str, &str)], limit: u64, rules: Vec<Rule>) -> Observed {
    Observed {
        group: Some(group(rules)),
        tables: vec![table(pairs, limit)],
        complete: true,
        unreachable: Some(BTreeSet::new()),
        ..Observed::default()
    }
}

const OWN: (&str, &str) = ("10.1.1.0/24", "10.0.0.1");

fn with_hook(mode: Mode) -> Settings {
    let target = Target::parse("/bin/resync").unwrap();
    let hook = Some(Hook { target, timeout: MINUTE });
    Settings { routers: vec!["r".into()], hook, ..settings(mode) }
}

/// The steps that are to be taken, and those that are reported, for a Node that nobody reaches.
fn steps(observed: &Observed, mode: Mode, due: bool) -> (Vec<String>, Vec<String>) {
    let nodes = [with_pods("a", 1)];
    let lasting: Vec<&Node> = nodes.iter().collect();
    let signal = Signal { lasting: &lasting, helpless: &lasting, nudge: due, resync: due, hook: due };
    let settings = with_hook(mode);
    let plan = plan(&nodes, &[], observed, Ladder::default(), signal, &settings);
    let actions = |steps: &[crate::flight::plan::Step<'_>]| {
        steps.iter().map(|step| step.action().to_owned()).filter(|action| action != "condition").collect()
    };
    (actions(&plan.steps), actions(&plan.reported))
}

#[test]
fn where_everything_is_right_and_nobody_gets_through_everything_is_sent_again() {
    let seen = observed(&[OWN], 31, vec![open()]);
    let all = ["nudge", "resync", "hook"].map(str::to_owned).to_vec();
    assert_eq!(steps(&seen, Mode::Repair, true), (all.clone(), vec![]));
    assert_eq!(steps(&seen, Mode::Report, true), (vec![], all));
    assert_eq!(steps(&seen, Mode::Off, true), (vec![], vec![]));
    assert_eq!(steps(&seen, Mode::Repair, false), (vec![], vec![]), "not so soon after the last time");
}

#[test]
fn what_is_known_to_be_wrong_is_put_right_first() {
    let (taken, _) = steps(&observed(&[OWN], 31, vec![]), Mode::Repair, true);
    assert!(!taken.contains(&"nudge".to_owned()), "rules are missing: {taken:?}");
    let (taken, _) = steps(&observed(&[], 31, vec![open()]), Mode::Repair, true);
    assert!(!taken.contains(&"resync".to_owned()), "the route is missing: {taken:?}");
    let twice = [OWN, ("10.1.1.0/24", "10.0.0.77")];
    let (taken, _) = steps(&observed(&twice, 31, vec![open()]), Mode::Repair, true);
    assert!(!taken.contains(&"resync".to_owned()), "the route is double: {taken:?}");
}

#[test]
fn a_full_router_is_not_made_to_send_again_and_that_is_told() {
    let nodes = [with_pods("a", 1)];
    let lasting: Vec<&Node> = nodes.iter().collect();
    let signal = Signal { lasting: &lasting, resync: true, ..Signal::default() };
    let (seen, settings) = (observed(&[OWN], 1, vec![open()]), with_hook(Mode::Repair));
    let plan = plan(&nodes, &[], &seen, Ladder::default(), signal, &settings);
    assert_eq!(plan.full, ["router r is full, so it is not made to send its routes again"]);
    assert!(!plan.steps.iter().any(|step| step.action() == "resync"));
}

#[test]
fn what_a_crash_left_behind_is_known_by_its_mark_and_removed() {
    let left = Rule { id: "left".into(), description: NUDGE.into(), ..open() };
    let near = [("192.0.2.1/32", "10.0.0.1"), ("192.0.2.1/32", "10.0.0.99"), ("192.0.2.2/32", "10.0.0.1"), OWN];
    let seen = observed(&near, 31, vec![open(), left]);
    let nodes = [with_pods("a", 1)];
    let settings = with_hook(Mode::Repair);
    let plan = plan(&nodes, &[], &seen, Ladder::default(), Signal::default(), &settings);
    let steps: Vec<_> = plan.steps.iter().map(ToString::to_string).collect();
    assert_eq!(
        steps,
        [
            "delete rule left, which a nudge has left behind",
            "remove route 192.0.2.1/32 via 10.0.0.1 from router r, which a re-sync has left behind",
        ]
    );
}

#[test]
fn each_action_has_a_pace_of_its_own() {
    let (mut pace, now) = (Pace::default(), Moment::now());
    pace.took("nudge", now);
    assert!(!pace.is_due("nudge", HOUR, now + Duration::from_secs(3_599)));
    assert!(pace.is_due("nudge", HOUR, now + HOUR));
    assert!(pace.is_due("resync", HOUR, now));
}
