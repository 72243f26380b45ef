//! The rules that protect users, as stories and properties.

mod ladder;
mod plan;
mod probes;
mod push;
mod routes;
mod security;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use groundcrew_api::node_repair::{RepairOutcome, RepairStep};
use groundcrew_core::provider::{Device, Instance, InstanceState, Port, PortAddress};
use jiff::Timestamp;
use serde_json::{from_value, json};

use super::fleet::{Marks, fleet};
use super::ladder::{Ladder, Rules, Taken, View, climb};
use super::mark;
use super::nodes::Node;

pub(super) const MINUTE: Duration = Duration::from_mins(1);
pub(super) const HOUR: Duration = Duration::from_hours(1);

pub(super) fn now() -> Timestamp {
    "2026-06-01T12:00:00Z".parse().unwrap()
}

pub(super) fn ago(time: Duration) -> Timestamp {
    now() - time
}

pub(super) fn rules() -> Rules {
    Rules {
        unready_after: 15 * MINUTE,
        register_within: 45 * MINUTE,
        cooldown: 15 * MINUTE,
        steady_for: 10 * MINUTE,
        max_repairs: 2,
        max_percent: 100,
        delete: false,
    }
}

pub(super) fn instance(id: &str) -> Instance {
    Instance {
        id: id.into(),
        name: format!("name-{id}"),
        state: InstanceState::Running,
        task: None,
        created: Some(ago(24 * HOUR)),
        addresses: vec![],
        locked: false,
        fault: None,
        tags: BTreeSet::new(),
        metadata: BTreeMap::new(),
    }
}

/// Of a server, by the first letter of its id.
pub(super) fn address(server: &str) -> IpAddr {
    Ipv4Addr::new(10, 9, 0, server.as_bytes()[0]).into()
}

pub(super) fn node(server: &str, unready: Option<Duration>) -> Node {
    Node {
        name: format!("name-{server}"),
        uid: format!("uid-{server}"),
        server: Some(server.into()),
        foreign: false,
        addresses: vec![address(server)],
        pod_ranges: vec![],
        troubles: BTreeMap::new(),
        unready_since: unready.map(ago),
        cordoned: false,
        paused: false,
    }
}

/// Four servers that are Nodes; the first is unready for an hour.
#[derive(Debug)]
pub(super) struct Cluster {
    pub(super) nodes: Vec<Node>,
    pub(super) instances: Vec<Instance>,
    pub(super) marks: Marks,
    pub(super) taken: BTreeMap<String, Taken>,
    pub(super) complete: bool,
    pub(super) steady: Duration,
    /// How long all unready Nodes have been seen so.
    pub(super) unready: Duration,
    /// How long all servers without a Node have been seen so.
    pub(super) nodeless: Duration,
}

impl Default for Cluster {
    fn default() -> Self {
        let ids = ["a", "b", "c", "d"];
        let mut nodes: Vec<_> = ids.iter().map(|id| node(id, None)).collect();
        nodes[0].unready_since = Some(ago(HOUR));
        Self {
            nodes,
            instances: ids.map(instance).into(),
            marks: Marks::default(),
            taken: BTreeMap::new(),
            complete: true,
            steady: HOUR,
            unready: HOUR,
            nodeless: HOUR,
        }
    }
}

impl Cluster {
    pub(super) fn look<T>(&self, rules: &Rules, then: impl FnOnce(Ladder<'_>) -> T) -> T {
        let fleet = fleet(&self.nodes, &self.instances, &self.marks);
        let alone = fleet.iter().filter(|member| member.node.is_none());
        let nodeless = alone.map(|member| (member.instance.id.clone(), self.nodeless)).collect();
        let unready = self.nodes.iter().filter_map(|node| Some((node.spell()?, self.unready))).collect();
        let view = View {
            fleet: &fleet,
            nodes: &self.nodes,
            complete: self.complete,
            steady: self.steady,
            unready: &unready,
            nodeless: &nodeless,
            taken: &self.taken,
            now: now(),
        };
        then(climb(view, rules))
    }

    pub(super) fn repairs(&self, rules: &Rules) -> Vec<(String, RepairStep)> {
        self.look(rules, |ladder| {
            ladder.repairs.iter().map(|repair| (repair.member.instance.id.clone(), repair.step)).collect()
        })
    }

    pub(super) fn held(&self, rules: &Rules) -> Vec<String> {
        self.look(rules, |ladder| {
            assert_eq!(ladder.repairs, []);
            ladder.held.iter().map(ToString::to_string).collect()
        })
    }

    /// A step that the cloud is known to have taken.
    pub(super) fn take(&mut self, id: &str, step: RepairStep, before: Duration) {
        self.note(id, step, before, RepairOutcome::Ordered, 0);
    }

    pub(super) fn note(&mut self, id: &str, step: RepairStep, before: Duration, outcome: RepairOutcome, refusals: u32) {
        self.taken.insert(id.into(), Taken { step, at: ago(before), outcome, refusals });
    }
}

/// A port of a server is where its Node is.
pub(super) fn port(id: &str, device: Device, groups: Option<&[&str]>) -> Port {
    let addresses = match &device {
        Device::Server(server) => vec![PortAddress { subnet: "s".into(), address: address(server) }],
        _ => vec![],
    };
    Port {
        id: id.into(),
        network: "n".into(),
        device,
        addresses,
        secured: true,
        groups: groups.map(|ids| ids.iter().map(|id| (*id).to_owned()).collect()),
        pairs: None,
        revision: Some(1),
    }
}

#[test]
fn a_node_that_changes_its_mind_is_a_reason_to_look_and_its_heartbeat_is_none() {
    let seen = |ready: bool, heartbeat: &str| {
        let status = if ready { "True" } else { "False" };
        let condition = json!({"type": "Ready", "status": status, "lastHeartbeatTime": heartbeat});
        let meta = json!({"name": "a", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"});
        mark(from_value(json!({"metadata": meta, "status": {"conditions": [condition]}})).unwrap()).1
    };
    let before = seen(true, "2026-01-01T00:00:00Z");
    assert!(seen(true, "2026-01-01T00:01:00Z") == before);
    assert!(seen(false, "2026-01-01T00:01:00Z") != before);
}
