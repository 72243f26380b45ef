//! What becomes a step.

use std::collections::{BTreeMap, BTreeSet};

use groundcrew_core::provider::Device;

use super::security::group;
use super::{Cluster, port, rules};
use crate::flight::fleet::{Member, fleet};
use crate::flight::ladder::{Held, Ladder, Repair};
use crate::flight::observe::Observed;
use crate::flight::plan::{Step, plan};
use crate::flight::settings::{Label, Mode, OwnedBy, Settings};

fn settings(mode: Mode) -> Settings {
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
            let plan = plan(&cluster.nodes, &fleet, &observed, ladder, &settings(mode));
            (plan.steps.len(), plan.reported.len())
        })
    };
    // Three rules, a port, the labels of four servers, a reboot.
    assert_eq!(counts(Mode::Off), (0, 0));
    assert_eq!(counts(Mode::Report), (0, 9));
    assert_eq!(counts(Mode::Repair), (9, 0));
}

fn relend<'a>(fleet: &[Member<'a>], ladder: &Ladder<'_>) -> Vec<Repair<'a>> {
    let find = |id: &str| *fleet.iter().find(|member| member.instance.id == id).unwrap();
    let repairs = ladder.repairs.iter();
    repairs
        .map(|repair| Repair { member: find(&repair.member.instance.id), step: repair.step, why: repair.why.clone() })
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
    let plan = plan(&cluster.nodes, &fleet, &observed, Ladder::default(), &settings(Mode::Repair));
    let labelled: Vec<_> = plan.steps.iter().filter_map(Step::node).map(|node| &node.name).collect();
    assert_eq!(labelled, ["name-a"]);
}

#[test]
fn on_half_a_listing_of_servers_no_port_gets_the_group_and_that_is_told() {
    let cluster = Cluster::default();
    let fleet = fleet(&cluster.nodes, &cluster.instances, &cluster.marks);
    let ports = vec![port("bare", Device::Server("b".into()), Some(&[]))];
    let observed = Observed { group: Some(group(vec![])), ports, complete: false, ..Observed::default() };
    let plan = plan(&cluster.nodes, &fleet, &observed, Ladder::default(), &settings(Mode::Repair));
    assert!(!plan.steps.iter().any(|step| matches!(step, Step::AddGroup { .. })), "{:?}", plan.steps);
    assert_eq!(plan.held, [Held::Incomplete]);
}
