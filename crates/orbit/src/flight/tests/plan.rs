//! What becomes a step.

use std::collections::{BTreeMap, BTreeSet};

use groundcrew_api::node_repair::{RepairOutcome, RepairStep};
use groundcrew_core::provider::Device;

use super::security::group;
use super::{Cluster, MINUTE, port, rules};
use crate::flight::conditions::Kind;
use crate::flight::fleet::{Member, fleet};
use crate::flight::ladder::{Held, Ladder, Repair};
use crate::flight::observe::Observed;
use crate::flight::plan::{Step, plan};
use crate::flight::push::Signal;
use crate::flight::settings::{Label, Mode, OwnedBy, Settings};

pub(super) fn settings(mode: Mode) -> Settings {
    Settings {
        pod_ranges: vec!["10.1.0.0/16".parse().unwrap()],
        security_group: Some("nodes".into()),
        routers: vec![],
        route_limit: 31,
        owned_by: OwnedBy::default(),
        label: Label {
            tags: BTreeSet::from(["k8s".into()]),
            metadata: BTreeMap::from([("cluster".into(), "demo".into())]),
        },
        rules: mode,
        groups: mode,
        nodes: mode,
        labels: mode,
        routes: mode,
        nudge: mode,
        probes: None,
        unreachable_after: MINUTE,
        push_every: MINUTE,
        hook: None,
        required_roles: BTreeSet::from(["member".into()]),
        ladder: rules(),
    }
}

#[test]
fn each_mode_does_what_it_says() {
    let cluster = Cluster::default();
    let fleet = fleet(&cluster.nodes, &cluster.instances, &cluster.marks);
    let observed = Observed {
        group: Some(group(vec![])),
        ports: vec![port("bare", Device::Server("b".into()), Some(&[]))],
        complete: true,
        ..Observed::default()
    };
    let counts = |mode| {
        cluster.look(&rules(), |ladder| {
            // Of two looks the members are the same, but not their addresses.
            let ladder = Ladder { repairs: relend(&fleet, &ladder), ..Ladder::default() };
            let settings = settings(mode);
            let plan = plan(&cluster.nodes, &fleet, &observed, ladder, Signal::default(), &settings);
            (plan.steps.len(), plan.reported.len())
        })
    };
    // Three rules, a port, the labels of four servers, a reboot; the port is also shown on its Node.
    assert_eq!(counts(Mode::Off), (0, 0));
    assert_eq!(counts(Mode::Report), (1, 9));
    assert_eq!(counts(Mode::Repair), (10, 0));
}

fn relend<'a>(fleet: &[Member<'a>], ladder: &Ladder<'_>) -> Vec<Repair<'a>> {
    let find = |id: &str| *fleet.iter().find(|member| member.instance.id == id).unwrap();
    let repairs = ladder.repairs.iter();
    repairs
        .map(|repair| Repair { member: find(&repair.member.instance.id), why: repair.why.clone(), ..*repair })
        .collect()
}

#[test]
fn only_what_a_node_calls_its_server_is_labelled() {
    let mut cluster = Cluster::default();
    cluster.nodes.truncate(2);
    cluster.nodes[1].server = None;
    cluster.nodes[1].addresses = vec!["10.0.0.1".parse().unwrap()];
    cluster.instances[1].addresses = cluster.nodes[1].addresses.clone();
    cluster.marks.tag = Some("ours".into());
    cluster.instances[3].tags.insert("ours".into());
    let fleet = fleet(&cluster.nodes, &cluster.instances, &cluster.marks);
    assert_eq!(fleet.len(), 3);
    let observed = Observed::default();
    let settings = settings(Mode::Repair);
    let plan = plan(&cluster.nodes, &fleet, &observed, Ladder::default(), Signal::default(), &settings);
    let labelled: Vec<_> = plan.steps.iter().filter_map(Step::node).map(|node| &node.name).collect();
    assert_eq!(labelled, ["name-a"]);
}

#[test]
fn what_a_server_says_otherwise_is_told_and_not_written_over() {
    let mut cluster = Cluster::default();
    cluster.nodes.truncate(1);
    cluster.instances[0].metadata.insert("cluster".into(), "demo-2".into());
    let fleet = fleet(&cluster.nodes, &cluster.instances, &cluster.marks);
    let (observed, settings) = (Observed::default(), settings(Mode::Repair));
    let plan = plan(&cluster.nodes, &fleet, &observed, Ladder::default(), Signal::default(), &settings);
    let steps: Vec<_> = plan.steps.iter().map(ToString::to_string).collect();
    assert_eq!(steps, ["label server name-a with k8s"], "the tag alone");
    let told = "server name-a (a) has another cluster than --server-metadata: if it is yours, change it by hand";
    assert_eq!(plan.held.iter().map(ToString::to_string).collect::<Vec<_>>(), [told]);
}

#[test]
fn on_half_a_listing_of_servers_no_port_gets_the_group_and_that_is_told() {
    let cluster = Cluster::default();
    let fleet = fleet(&cluster.nodes, &cluster.instances, &cluster.marks);
    let ports = vec![port("bare", Device::Server("b".into()), Some(&[]))];
    let observed = Observed { group: Some(group(vec![])), ports, complete: false, ..Observed::default() };
    let settings = settings(Mode::Repair);
    let plan = plan(&cluster.nodes, &fleet, &observed, Ladder::default(), Signal::default(), &settings);
    assert!(!plan.steps.iter().any(|step| matches!(step, Step::AddGroup { .. })), "{:?}", plan.steps);
    assert_eq!(plan.held, [Held::Incomplete]);
}

#[test]
fn a_port_without_the_group_is_shown_on_its_node_until_it_has_it() {
    let mut cluster = Cluster::default();
    let shown = |cluster: &Cluster, groups: &[&str]| {
        let fleet = fleet(&cluster.nodes, &cluster.instances, &cluster.marks);
        let ports = vec![port("bare", Device::Server("b".into()), Some(groups))];
        let observed = Observed { group: Some(group(vec![])), ports, complete: true, ..Observed::default() };
        let settings = settings(Mode::Report);
        let plan = plan(&cluster.nodes, &fleet, &observed, Ladder::default(), Signal::default(), &settings);
        plan.steps.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let words = "port bare lacks security group g";
    assert_eq!(shown(&cluster, &[]), [format!("show SecurityGroupDrift on Node name-b: {words}")]);
    cluster.nodes[1].troubles.insert(Kind::SecurityGroupDrift, words.into());
    assert_eq!(shown(&cluster, &[]), [""; 0]);
    assert_eq!(shown(&cluster, &["g"]), ["end SecurityGroupDrift on Node name-b"]);
}

#[test]
fn an_order_that_the_cloud_does_not_take_is_shown_on_the_node() {
    let mut cluster = Cluster::default();
    cluster.note("a", RepairStep::HardReboot, MINUTE, RepairOutcome::Refused, 3);
    let fleet = fleet(&cluster.nodes, &cluster.instances, &cluster.marks);
    let member = fleet[0];
    let ladder = Ladder { held: vec![Held::Refused(member, RepairStep::HardReboot)], ..Ladder::default() };
    let observed = Observed { complete: true, ..Observed::default() };
    let settings = Settings { labels: Mode::Off, ..settings(Mode::Repair) };
    let plan = plan(&cluster.nodes, &fleet, &observed, ladder, Signal::default(), &settings);
    let words = "the cloud does not take the order to turn off and on server name-a (a): see NodeRepair a";
    let steps: Vec<_> = plan.steps.iter().map(ToString::to_string).collect();
    assert_eq!(steps, [format!("show RepairRefused on Node name-a: {words}")]);
}

#[test]
fn roles_that_are_lacking_are_told_by_name_and_only_where_they_are_looked_at() {
    let roles = |has: Option<&[&str]>| {
        let roles = has.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
        let (observed, settings) = (Observed { roles, ..Observed::default() }, settings(Mode::Report));
        plan(&[], &[], &observed, Ladder::default(), Signal::default(), &settings).lacking_roles.join(" ")
    };
    assert_eq!(roles(Some(&["reader"])), "member");
    assert_eq!(roles(Some(&["member", "reader"])), "");
    assert_eq!(roles(None), "");
}

#[test]
fn what_is_only_half_seen_neither_begins_nor_ends_a_condition() {
    let mut cluster = Cluster::default();
    cluster.nodes[1].troubles.insert(Kind::SecurityGroupDrift, "port bare lacks security group g".into());
    cluster.nodes[0].troubles.insert(Kind::RepairRefused, "refused".into());
    let ended = |observed: Observed, held: Vec<Held<'_>>| {
        let fleet = fleet(&cluster.nodes, &cluster.instances, &cluster.marks);
        let observed = Observed { group: Some(group(vec![])), ..observed };
        let settings = Settings { labels: Mode::Off, rules: Mode::Off, ..settings(Mode::Repair) };
        let ladder = Ladder { held, ..Ladder::default() };
        let plan = plan(&cluster.nodes, &fleet, &observed, ladder, Signal::default(), &settings);
        let told = plan.held.iter().map(ToString::to_string);
        (plan.steps.iter().map(ToString::to_string).collect::<Vec<_>>(), told.collect::<Vec<_>>())
    };
    let (refused, drift) = ("end RepairRefused on Node name-a", "end SecurityGroupDrift on Node name-b");
    let whole = || Observed { complete: true, ..Observed::default() };
    assert_eq!(ended(whole(), vec![]), (vec![refused.into(), drift.into()], vec![]));
    let (steps, told) = ended(Observed { ports_hidden: true, ..whole() }, vec![]);
    assert_eq!(steps, [refused], "its port may be one that is not shown");
    assert!(told[0].contains("does not show its ports"), "{told:?}");
    assert_eq!(ended(Observed::default(), vec![]).0, [""; 0], "nor its server");
    assert_eq!(ended(whole(), vec![Held::Elsewhere]).0, [""; 0], "nobody's server is shown");
}

#[test]
fn a_plan_is_a_diff_of_each_node_and_says_what_is_only_told() {
    let mut cluster = Cluster::default();
    cluster.nodes.truncate(2);
    let fleet = fleet(&cluster.nodes, &cluster.instances, &cluster.marks);
    let ports = vec![port("bare", Device::Server("b".into()), Some(&[]))];
    let observed = Observed { group: Some(group(vec![])), ports, complete: true, ..Observed::default() };
    let settings = Settings { labels: Mode::Off, rules: Mode::Report, ..settings(Mode::Repair) };
    let ladder = Ladder { held: vec![Held::Incomplete], ..Ladder::default() };
    let plan = plan(&cluster.nodes, &fleet, &observed, ladder, Signal::default(), &settings);
    let diffs: String = plan.diffs().iter().map(ToString::to_string).collect();
    assert_eq!(
        diffs,
        "Node name-b\n  + add security group g to port bare of server name-b\n  \
         + show SecurityGroupDrift on Node name-b: port bare lacks security group g\n\
         the cluster\n  ! let tcp from 10.1.0.0/16 through security group g: only reported\n  \
         ! let udp from 10.1.0.0/16 through security group g: only reported\n  \
         ! let icmp from 10.1.0.0/16 through security group g: only reported\n  ! no server is repaired and no port gets \
         the group: a part of the cloud does not show its servers\n"
    );
}
