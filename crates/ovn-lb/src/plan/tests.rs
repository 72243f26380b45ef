//! The promises to others as properties, on a model of the tables; then the stories that explain them.

mod legacy;

use std::collections::{BTreeMap, BTreeSet};

use groundcrew_core::provider::{SessionAffinity, Wanted};
use ovsdb_client::{Set, Touched, Value};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::desired::{Check, desired};
use crate::northbound::{Acl, HealthCheck, PortGroup};
use crate::ranges::{ACTION, DIRECTION, Guard, PRIORITY, guard};
use crate::testing::{frontend, owner, site, wanted};

/// The two sides of the cable between a router and its switch.
fn side(router: Uuid, number: u128) -> Uuid {
    Uuid::from_u128(router.as_u128() + 1_000 * number)
}

/// The tables as plain maps. What a step does to it is what the server does.
#[derive(Debug, Clone, Default, PartialEq)]
struct Model {
    rows: BTreeMap<Uuid, LoadBalancer>,
    checks: BTreeMap<Uuid, HealthCheck>,
    groups: BTreeMap<Uuid, PortGroup>,
    acls: BTreeMap<Uuid, Acl>,
    places: BTreeMap<(Kind, Uuid), (String, BTreeSet<Uuid>)>,
    /// Whether the routers' ports lead straight to others.
    peered: bool,
}

impl Model {
    fn place(mut self, kind: Kind, id: u128, name: &str) -> Self {
        self.places.insert((kind, Uuid::from_u128(id)), (name.to_owned(), BTreeSet::new()));
        self
    }

    /// A project's router and switch.
    fn project(namespace: &str) -> Self {
        Self::default().place(Kind::Router, 1, namespace).place(Kind::Switch, 2, &format!("{namespace}-default"))
    }

    fn northbound(&self) -> Northbound {
        let of = |map: &StrMap| json!(Value::from(map));
        let rows: serde_json::Map<_, _> = self
            .rows
            .iter()
            .map(|(uuid, row)| {
                let columns = json!({
                    "name": *row.name, "vips": of(&row.vips), "options": of(&row.options),
                    "protocol": Value::from(row.protocol.clone()), "external_ids": of(&row.external_ids),
                    "health_check": Value::from(&row.health_check), "ip_port_mappings": of(&row.ip_port_mappings),
                    "selection_fields": Value::from(&row.selection_fields),
                });
                (uuid.to_string(), json!({ "initial": columns }))
            })
            .collect();
        let places = |kind| -> serde_json::Map<_, _> {
            let of_kind = self.places.iter().filter(|((k, _), _)| *k == kind);
            of_kind
                .map(|((_, uuid), (name, members))| {
                    let members = Value::set(members.iter().copied());
                    (
                        uuid.to_string(),
                        json!({ "initial": {
                        "name": name, "load_balancer": members, "ports": ["uuid", side(*uuid, 1)],
                    } }),
                    )
                })
                .collect()
        };
        let checks: serde_json::Map<_, _> = self
            .checks
            .iter()
            .map(|(uuid, check)| {
                (uuid.to_string(), json!({ "initial": { "vip": *check.vip, "options": of(&check.options) } }))
            })
            .collect();
        let groups: serde_json::Map<_, _> = self
            .groups
            .iter()
            .map(|(uuid, group)| {
                let columns = json!({
                    "name": *group.name, "external_ids": of(&group.external_ids),
                    "ports": Value::from(&group.ports), "acls": Value::from(&group.acls),
                });
                (uuid.to_string(), json!({ "initial": columns }))
            })
            .collect();
        let acls: serde_json::Map<_, _> = self
            .acls
            .iter()
            .map(|(uuid, acl)| {
                let columns = json!({
                    "priority": acl.priority, "direction": *acl.direction, "match": *acl.r#match, "action": *acl.action,
                    "options": of(&acl.options),
                });
                (uuid.to_string(), json!({ "initial": columns }))
            })
            .collect();
        let routers = || self.places.keys().filter(|(kind, _)| *kind == Kind::Router).map(|(_, uuid)| *uuid);
        let router_ports: serde_json::Map<_, _> = routers()
            .map(|router| {
                let peer = Value::from(self.peered.then(|| "elsewhere".to_owned()));
                (side(router, 1).to_string(), json!({ "initial": { "name": router, "peer": peer } }))
            })
            .collect();
        let switch_ports: serde_json::Map<_, _> = routers()
            .map(|router| {
                let options = Value::map([("router-port", router.to_string())]);
                (side(router, 2).to_string(), json!({ "initial": { "type": "router", "options": options } }))
            })
            .collect();
        let tables = json!({
            "Port_Group": groups, "ACL": acls, "Logical_Router_Port": router_ports, "Logical_Switch_Port": switch_ports,
            "Load_Balancer": rows, "Load_Balancer_Health_Check": checks, "Logical_Router": places(Kind::Router), "Logical_Switch": places(Kind::Switch),
        });
        let mut nb = Northbound::default();
        ovsdb_client::apply(&tables.to_string(), &mut nb, &mut Touched::default()).unwrap();
        nb
    }

    fn carry_out(&mut self, plan: &Plan) {
        for step in &plan.steps {
            match step {
                Step::Insert { row, checks } => {
                    self.carry_out_checks(checks);
                    let health_check = checks.refer.iter().copied().collect();
                    let taken = self.rows.insert(row.uuid, LoadBalancer { health_check, ..seen(row) });
                    assert!(taken.is_none(), "the server refuses a duplicate uuid");
                }
                Step::Update { uuid, seen: before, row, checks } => {
                    self.carry_out_checks(checks);
                    let health_check = checks.refer.iter().copied().collect();
                    let now = self.rows.get_mut(uuid).unwrap();
                    assert_eq!(now, &**before, "the guard would fail");
                    let others = before.external_ids.iter().filter(|(key, _)| row.marks.get(key).is_none());
                    let external_ids = others.chain(row.marks.iter()).collect();
                    *now = LoadBalancer { health_check, external_ids, ..seen(row) };
                }
                Step::Delete { uuid, .. } => {
                    self.rows.remove(uuid).unwrap();
                    for (_, members) in self.places.values_mut() {
                        members.remove(uuid);
                    }
                }
                Step::Attach { place, row, .. } => {
                    assert!(self.rows.contains_key(row), "a weak reference to nothing goes at once");
                    self.places.get_mut(&(place.kind, place.uuid)).unwrap().1.insert(*row);
                }
                Step::Guard { guard, ports, .. } => self.guard(guard, ports),
                Step::Unguard { uuid, .. } => {
                    self.groups.remove(uuid).unwrap();
                }
                Step::Detach { place, row, .. } => {
                    self.places.get_mut(&(place.kind, place.uuid)).unwrap().1.remove(row);
                }
            }
        }
        self.collect();
    }
}

impl Model {
    /// Under stable uuids, so that models can be compared.
    fn guard(&mut self, guard: &Guard, ports: &BTreeSet<Uuid>) {
        let id = |part: &str| Uuid::new_v5(&Uuid::NAMESPACE_OID, format!("{}{part}", guard.name).as_bytes());
        self.groups.retain(|_, group| *group.name != guard.name);
        for rule in &guard.matches {
            let acl = Acl {
                priority: PRIORITY,
                direction: DIRECTION.into(),
                r#match: rule.as_str().into(),
                action: ACTION.into(),
                ..Acl::default()
            };
            self.acls.insert(id(rule), acl);
        }
        let group = PortGroup {
            name: guard.name.as_str().into(),
            ports: ports.iter().copied().collect(),
            acls: guard.matches.iter().map(|rule| id(rule)).collect(),
            external_ids: guard.marks.clone(),
        };
        self.groups.insert(id(""), group);
    }

    fn carry_out_checks(&mut self, checks: &Checks) {
        let made = |check: &Check| HealthCheck { vip: check.vip.as_str().into(), options: check.options.clone() };
        for check in &checks.make {
            let taken = self.checks.insert(check.uuid, made(check));
            assert!(taken.is_none(), "the server refuses a duplicate uuid");
        }
        for (uuid, vip, check) in &checks.change {
            let now = self.checks.get_mut(uuid).unwrap();
            assert_eq!(now.vip, *vip, "the guard would fail");
            *now = made(check);
        }
    }

    /// What the server does at the end of each transaction: a check that nobody refers to goes.
    fn collect(&mut self) {
        for row in self.rows.values() {
            assert!(
                row.health_check.iter().all(|check| self.checks.contains_key(check)),
                "a strong reference to nothing"
            );
        }
        let referred: BTreeSet<_> = self.rows.values().flat_map(|row| row.health_check.to_vec()).collect();
        self.checks.retain(|uuid, _| referred.contains(uuid));
        let referred: BTreeSet<_> = self.groups.values().flat_map(|group| group.acls.to_vec()).collect();
        self.acls.retain(|uuid, _| referred.contains(uuid));
    }
}

/// Every address of the Service is probed.
fn probed(mut desired: Desired) -> Desired {
    for row in &mut desired.rows {
        let check = |(vip, _): (&str, &str)| Check {
            uuid: marks::check_uuid(row.uuid, vip),
            vip: vip.into(),
            options: [("interval", "5")].into_iter().collect(),
        };
        row.checks = row.vips.iter().map(check).collect();
        row.mappings = [("10.1.0.41", "web:10.1.0.250")].into_iter().collect();
    }
    desired
}

/// The row as the server has it after it was made.
fn seen(row: &Row) -> LoadBalancer {
    LoadBalancer {
        name: row.name.as_str().into(),
        vips: row.vips.clone(),
        protocol: Some(row.protocol.to_string().into()),
        options: row.options.clone(),
        health_check: Set::default(),
        ip_port_mappings: row.mappings.clone(),
        selection_fields: row.selection_fields.clone(),
        external_ids: row.marks.clone(),
    }
}

fn wishes() -> impl Strategy<Value = Wanted> {
    (1u8..8, 0u8..2, any::<bool>(), any::<bool>()).prop_map(|(protocols, backends, sticky, ranged)| {
        let mut want = wanted(&owner("shop", "web"), &["192.0.2.7"]);
        want.affinity = sticky.then_some(SessionAffinity { seconds: 60 });
        want.source_ranges = if ranged { vec!["203.0.113.0/24".parse().unwrap()] } else { vec![] };
        let backends: &[&str] = if backends == 0 { &[] } else { &["10.1.0.41:8080"] };
        want.frontends = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp]
            .into_iter()
            .enumerate()
            .filter(|(bit, _)| protocols & (1 << bit) != 0)
            .map(|(_, protocol)| frontend(protocol, 80, backends))
            .collect();
        want
    })
}

prop_compose! {
    /// A row that is like one of ours in some respects, and in others not.
    fn rows()(protocol in 0usize..3, derived: bool, id in 100u128..104, named: bool, marks in 0u8..5, right: bool, row in 0usize..3)
        -> (Uuid, LoadBalancer)
    {
        let mut want = wanted(&owner("shop", "web"), &["192.0.2.7"]);
        want.affinity = (row > 0).then_some(SessionAffinity { seconds: 60 });
        want.frontends[0].protocol = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp][protocol];
        let other = wanted(&owner("shop", "other"), &["192.0.2.8"]);
        let row = desired(&want, &site()).rows.remove(row / 2);
        let other = desired(&other, &site()).rows.remove(0);
        let mut made = seen(&row);
        if !named {
            made.name = "vpc-shop-tcp-load".into();
        }
        if !right {
            made.vips = [("192.0.2.7:80", "10.9.9.9:1")].into_iter().collect();
        }
        made.external_ids = match marks {
            0 => row.marks.clone(),
            1 => other.marks,
            2 => [("vendor", "kube-ovn")].into_iter().collect(),
            3 => row.marks.iter().map(|(k, v)| (k, if k == marks::CLUSTER { "c2" } else { v })).collect(),
            _ => row.marks.iter().map(|(k, v)| (k, if k == marks::ROUTER { "old" } else { v })).chain([("more", "x")]).collect(),
        };
        // Under a derived uuid there is never another cluster's or another Service's row.
        let uuid = if derived && !matches!(marks, 1 | 3) { row.uuid } else { Uuid::from_u128(id) };
        (uuid, made)
    }
}

prop_compose! {
    fn models()(
        rows in prop::collection::btree_map(0u8..6, rows(), 0..6),
        attached in prop::collection::vec((0usize..5, 0usize..6), 0..10),
        present in 0u8..32,
        peered in prop::bool::weighted(0.1),
        groups in prop::collection::vec((0u8..4, 300u128..303, any::<bool>()), 0..3),
        checked in prop::collection::vec((0usize..6, any::<bool>(), 200u128..203, any::<bool>()), 0..4),
    ) -> Model {
        let names =
            [(Kind::Router, "shop"), (Kind::Router, "shop"), (Kind::Switch, "shop-default"), (Kind::Router, "old"), (Kind::Switch, "x")];
        let mut model = Model { rows: rows.into_values().collect(), ..Model::default() };
        for (n, (kind, name)) in names.into_iter().enumerate() {
            // The second router of one name is rarer than one or none.
            if present & (1 << n) != 0 && (n != 1 || present & 0b1100 == 0b1100) {
                model = model.place(kind, n as u128 + 1, name);
            }
        }
        model.peered = peered;
        for (whose, id, right) in groups {
            let service = owner("shop", if whose == 0 { "other" } else { "web" });
            let mut want = wanted(&service, &["192.0.2.7"]);
            want.source_ranges = vec!["203.0.113.0/24".parse().unwrap()];
            let mut guard = guard(&want, "shop", &site()).unwrap();
            if whose == 3 {
                guard.marks = guard.marks.iter().map(|(k, v)| (k, if k == marks::CLUSTER { "c2" } else { v })).collect();
            }
            if !right || whose == 3 {
                guard.name = format!("groundcrew_{id}");
            }
            let ports = if right { model.places.keys().map(|(_, place)| side(*place, 2)).collect() } else { BTreeSet::new() };
            model.guard(&guard, &ports);
        }
        let uuids: Vec<_> = model.rows.keys().copied().collect();
        for (row, derived, id, right) in checked {
            let Some(uuid) = uuids.get(row) else { continue };
            let check = if derived { marks::check_uuid(*uuid, "192.0.2.7:80") } else { Uuid::from_u128(id) };
            let vip = if right { "192.0.2.7:80" } else { "192.0.2.9:80" };
            let options = if id == 200 { [("interval", "5")].into_iter().collect() } else { StrMap::default() };
            // Our own row may be referred to by nobody else's.
            if derived || !model.checks.contains_key(&check) {
                model.checks.insert(check, HealthCheck { vip: vip.into(), options });
                let row = model.rows.get_mut(uuid).unwrap();
                row.health_check = row.health_check.iter().copied().chain([check]).collect();
            }
        }
        for (place, row) in attached {
            let key = (names[place].0, Uuid::from_u128(place as u128 + 1));
            if let (Some((_, members)), Some(uuid)) = (model.places.get_mut(&key), uuids.get(row)) {
                members.insert(*uuid);
            }
        }
        model
    }
}

fn is_ours(uuid: Uuid, row: &LoadBalancer) -> bool {
    let me = owner("shop", "web");
    let marked = marks::owner(&row.external_ids, "c1").is_some_and(|owner| owner.uid == me.uid);
    let derived = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp].map(|p| marks::row_uuid("c1", &me, p));
    marked || derived.contains(&uuid) || derived.map(marks::inside_row_uuid).contains(&uuid)
}

/// Rows and members that are none of ours.
fn foreign(model: &Model) -> Model {
    let rows = model.rows.iter().filter(|(uuid, row)| !is_ours(**uuid, row));
    let rows: BTreeMap<_, _> = rows.map(|(uuid, row)| (*uuid, row.clone())).collect();
    let places = model.places.iter().map(|(key, (name, members))| {
        (*key, (name.clone(), members.iter().filter(|m| rows.contains_key(m)).copied().collect()))
    });
    let referred: BTreeSet<_> = rows.values().flat_map(|row| row.health_check.to_vec()).collect();
    let checks = model.checks.iter().filter(|(uuid, _)| referred.contains(uuid));
    let checks = checks.map(|(uuid, check)| (*uuid, check.clone())).collect();
    let mine = |group: &PortGroup| {
        marks::owner(&group.external_ids, "c1").is_some_and(|found| found.uid == owner("shop", "web").uid)
    };
    let groups = model.groups.iter().filter(|(_, group)| !mine(group));
    let groups: BTreeMap<_, _> = groups.map(|(uuid, group)| (*uuid, group.clone())).collect();
    let held: BTreeSet<_> = groups.values().flat_map(|group| group.acls.to_vec()).collect();
    let acls = model.acls.iter().filter(|(uuid, _)| held.contains(uuid));
    let acls = acls.map(|(uuid, acl)| (*uuid, acl.clone())).collect();
    Model { places: places.collect(), checks, rows, groups, acls, peered: model.peered }
}

proptest! {
    #[test]
    fn a_plan_carried_out_leaves_nothing_to_do(want in wishes(), mut model in models(), checked: bool) {
        let desired = desired(&want, &site());
        let desired = if checked { probed(desired) } else { desired };
        let first = plan(&desired, &site(), &model.northbound());
        model.carry_out(&first);
        let second = plan(&desired, &site(), &model.northbound());
        prop_assert_eq!(second.steps, vec![]);
        prop_assert_eq!(second.held, first.held);
    }

    #[test]
    fn what_is_not_ours_never_changes(want in wishes(), mut model in models(), gone: bool) {
        let before = foreign(&model);
        let desired = if gone { Desired::nothing(want.owner(), &site()) } else { probed(desired(&want, &site())) };
        let plan = plan(&desired, &site(), &model.northbound());
        model.carry_out(&plan);
        prop_assert_eq!(foreign(&model), before);
    }

    #[test]
    fn a_service_that_is_gone_leaves_nothing(mut model in models()) {
        let desired = Desired::nothing(&owner("shop", "web"), &site());
        let plan = plan(&desired, &site(), &model.northbound());
        prop_assert_eq!(&plan.held, &vec![]);
        model.carry_out(&plan);
        prop_assert!(!model.rows.iter().any(|(uuid, row)| is_ours(*uuid, row)));
        prop_assert_eq!(&model.groups, &foreign(&model).groups);
    }

    #[test]
    fn where_ranges_cannot_be_enforced_there_is_no_row(want in wishes(), mut model in models()) {
        let desired = desired(&want, &site());
        let plan = plan(&desired, &site(), &model.northbound());
        model.carry_out(&plan);
        let served = model.rows.iter().any(|(uuid, row)| is_ours(*uuid, row));
        let mine = model.groups.values().filter(|group| marks::uid(&group.external_ids) == Some(want.owner().uid));
        let guarded = mine.filter(|group| group.external_ids.get(marks::CLUSTER) == Some("c1")).count();
        if served && !want.source_ranges.is_empty() {
            let unguarded = plan.held.iter().any(|held| matches!(held, Held::Unguarded { .. }));
            prop_assert!(guarded == 1 && !unguarded);
        }
        if want.source_ranges.is_empty() {
            prop_assert_eq!(guarded, 0);
        }
    }
}

fn kinds(plan: &Plan) -> Vec<&'static str> {
    plan.differences().into_iter().map(|d| d.kind).collect()
}

fn web() -> Desired {
    desired(&wanted(&owner("shop", "web"), &["192.0.2.7"]), &site())
}

/// A project in which the Service is served.
fn served() -> Model {
    let mut model = Model::project("shop");
    let plan = plan(&web(), &site(), &model.northbound());
    assert_eq!(kinds(&plan), ["row_missing", "router_detached", "switch_detached"]);
    model.carry_out(&plan);
    model
}

#[test]
fn every_way_to_spoil_a_row_has_its_word() {
    let uuid = web().rows[0].uuid;
    let spoilt = |spoil: &dyn Fn(&mut LoadBalancer)| {
        let mut model = served();
        spoil(model.rows.get_mut(&uuid).unwrap());
        kinds(&plan(&web(), &site(), &model.northbound()))
    };
    assert_eq!(spoilt(&|row| row.vips = StrMap::default()), ["vips"]);
    assert_eq!(spoilt(&|row| row.protocol = Some("udp".into())), ["protocol"]);
    assert_eq!(spoilt(&|row| row.protocol = None), Vec::<&str>::new(), "absent is tcp");
    assert_eq!(spoilt(&|row| row.options = StrMap::default()), ["options"]);
    assert_eq!(spoilt(&|row| row.external_ids = StrMap::default()), ["marks"]);
    assert_eq!(spoilt(&|row| row.name = "x".into()), ["name"]);
}

/// In one transaction each: there is no moment without a row on the switch.
#[test]
fn affinity_moves_clients_inside_to_a_row_of_their_own_and_back() {
    let mut model = served();
    let mut want = wanted(&owner("shop", "web"), &["192.0.2.7"]);
    want.affinity = Some(SessionAffinity { seconds: 60 });
    let sticky = desired(&want, &site());
    let on = plan(&sticky, &site(), &model.northbound());
    let shown = |plan: &Plan| plan.steps.iter().map(ToString::to_string).collect::<Vec<_>>();
    let (name, inside) = (&sticky.rows[0].name, &sticky.rows[1].name);
    assert_eq!(
        shown(&on),
        [
            format!("~ load balancer {name}"),
            format!("+ load balancer {inside}"),
            format!("+ {inside} on switch shop-default"),
            format!("- {name} on switch shop-default"),
        ]
    );
    assert_eq!(kinds(&on), ["options", "row_missing", "switch_detached", "switch_left"]);
    model.carry_out(&on);
    assert!(plan(&sticky, &site(), &model.northbound()).is_empty());

    let mut spoilt = model.clone();
    spoilt.rows.get_mut(&sticky.rows[1].uuid).unwrap().selection_fields = Set::default();
    assert_eq!(kinds(&plan(&sticky, &site(), &spoilt.northbound())), ["selection_fields"]);

    let off = plan(&web(), &site(), &model.northbound());
    assert_eq!(shown(&off)[..2], [format!("~ load balancer {name}"), format!("+ {name} on switch shop-default")]);
    assert!(shown(&off)[2].starts_with(&format!("- load balancer {inside} (")));
    model.carry_out(&off);
    assert_eq!(model, served());
}

#[test]
fn while_the_row_for_clients_inside_cannot_be_made_they_keep_the_other() {
    let mut model = served();
    let mut want = wanted(&owner("shop", "web"), &["192.0.2.7"]);
    want.affinity = Some(SessionAffinity { seconds: 60 });
    let sticky = desired(&want, &site());
    let foreign = LoadBalancer { name: sticky.rows[1].name.as_str().into(), ..LoadBalancer::default() };
    model.rows.insert(Uuid::from_u128(5), foreign);
    let plan = plan(&sticky, &site(), &model.northbound());
    assert_eq!(kinds(&plan), ["options", "name_taken"]);
}

fn ranged() -> Desired {
    let mut want = wanted(&owner("shop", "web"), &["192.0.2.7"]);
    want.source_ranges = vec!["203.0.113.0/24".parse().unwrap()];
    desired(&want, &site())
}

#[test]
fn source_ranges_come_and_go_in_the_transaction_of_the_row_and_every_way_to_spoil_them_is_drift() {
    let mut model = Model::project("shop");
    let first = plan(&ranged(), &site(), &model.northbound());
    assert_eq!(kinds(&first), ["source_ranges", "row_missing", "router_detached", "switch_detached"]);
    model.carry_out(&first);
    assert!(plan(&ranged(), &site(), &model.northbound()).is_empty());
    let (group, acl) = (*model.groups.keys().next().unwrap(), *model.acls.keys().next().unwrap());
    let spoils: [&dyn Fn(&mut Model); 9] = [
        &|model| drop(model.groups.remove(&group)),
        &|model| model.groups.get_mut(&group).unwrap().acls = Set::default(),
        &|model| model.groups.get_mut(&group).unwrap().ports = Set::default(),
        &|model| drop(model.acls.remove(&acl)),
        &|model| model.acls.get_mut(&acl).unwrap().r#match = "0".into(),
        &|model| model.acls.get_mut(&acl).unwrap().priority = 1,
        &|model| model.acls.get_mut(&acl).unwrap().action = "allow".into(),
        &|model| model.acls.get_mut(&acl).unwrap().direction = "to-lport".into(),
        &|model| model.acls.get_mut(&acl).unwrap().options = [("apply-after-lb", "true")].into_iter().collect(),
    ];
    for spoil in spoils {
        let mut wrong = model.clone();
        spoil(&mut wrong);
        let mend = plan(&ranged(), &site(), &wrong.northbound());
        assert_eq!(kinds(&mend), ["source_ranges"]);
        wrong.carry_out(&mend);
        assert_eq!(wrong, model);
    }
    model.carry_out(&plan(&web(), &site(), &model.northbound()));
    assert_eq!(model, served(), "ranges that are taken out leave nothing");
}

#[test]
fn a_service_that_gets_ranges_that_cannot_be_enforced_is_closed() {
    let mut model = served();
    model.peered = true;
    assert!(plan(&web(), &site(), &model.northbound()).is_empty(), "without ranges it is none of our business");
    let closed = plan(&ranged(), &site(), &model.northbound());
    assert_eq!(kinds(&closed), ["row_left", "source_ranges"]);
    model.carry_out(&closed);
    assert!(model.rows.is_empty());
    model.peered = false;
    model.carry_out(&plan(&ranged(), &site(), &model.northbound()));
    assert!(plan(&ranged(), &site(), &model.northbound()).is_empty());
    assert_eq!(model.rows.len(), 1);
}

#[test]
fn every_way_to_spoil_a_health_check_is_drift_and_mended() {
    let desired = probed(web());
    let mut model = Model::project("shop");
    model.carry_out(&plan(&desired, &site(), &model.northbound()));
    assert!(plan(&desired, &site(), &model.northbound()).is_empty());
    let (uuid, check) = (desired.rows[0].uuid, desired.rows[0].checks[0].uuid);
    let spoils: [&dyn Fn(&mut Model); 5] = [
        &|model| model.rows.get_mut(&uuid).unwrap().health_check = Set::default(),
        &|model| model.rows.get_mut(&uuid).unwrap().ip_port_mappings = StrMap::default(),
        &|model| model.checks.get_mut(&check).unwrap().options = StrMap::default(),
        &|model| model.checks.get_mut(&check).unwrap().vip = "192.0.2.9:80".into(),
        &|model| {
            let extra = Uuid::from_u128(9);
            model.checks.insert(extra, HealthCheck::default());
            model.rows.get_mut(&uuid).unwrap().health_check = [check, extra].into_iter().collect();
        },
    ];
    for spoil in spoils {
        let (before, mut wrong) = (model.clone(), model.clone());
        spoil(&mut wrong);
        wrong.collect();
        let mend = plan(&desired, &site(), &wrong.northbound());
        assert_eq!(kinds(&mend), ["health_check"]);
        wrong.carry_out(&mend);
        assert_eq!(wrong, before);
    }
    model.carry_out(&plan(&web(), &site(), &model.northbound()));
    assert_eq!(model, served(), "without the annotation nothing is left of it");
}

#[test]
fn a_router_made_anew_under_its_old_name_is_attached_again() {
    let mut model = served();
    model.places.remove(&(Kind::Router, Uuid::from_u128(1)));
    assert_eq!(kinds(&plan(&web(), &site(), &model.northbound())), ["router_missing"]);
    model = model.place(Kind::Router, 9, "shop");
    assert_eq!(kinds(&plan(&web(), &site(), &model.northbound())), ["router_detached"]);
}

#[test]
fn after_a_restore_the_row_is_known_by_its_marks_and_kept() {
    let mut model = served();
    let row = model.rows.remove(&web().rows[0].uuid).unwrap();
    model.rows.insert(Uuid::from_u128(77), row);
    for (_, members) in model.places.values_mut() {
        *members = BTreeSet::from([Uuid::from_u128(77)]);
    }
    assert!(plan(&web(), &site(), &model.northbound()).is_empty());
}

#[test]
fn of_two_rows_for_one_service_the_second_goes() {
    let mut model = served();
    let row = model.rows[&web().rows[0].uuid].clone();
    model.rows.insert(Uuid::from_u128(1), row);
    let plan = plan(&web(), &site(), &model.northbound());
    assert_eq!(kinds(&plan), ["duplicate"]);
    assert!(plan.steps[0].to_string().ends_with("(00000000-0000-0000-0000-000000000001)"), "{}", plan.steps[0]);
}

#[test]
fn a_name_taken_by_somebody_else_is_told_and_not_written() {
    let mut model = Model::project("shop");
    let mut row = seen(&web().rows[0]);
    row.external_ids = StrMap::default();
    model.rows.insert(Uuid::from_u128(5), row);
    let plan = plan(&web(), &site(), &model.northbound());
    assert_eq!(plan.steps, []);
    assert_eq!(kinds(&plan), ["name_taken"]);
}

#[test]
fn half_a_project_gets_no_row() {
    let model = Model::default().place(Kind::Router, 1, "shop");
    let plan = plan(&web(), &site(), &model.northbound());
    assert_eq!(plan.steps, []);
    assert_eq!(kinds(&plan), ["switch_missing"]);
}

#[test]
fn a_new_router_template_moves_the_row_and_leaves_the_old_router() {
    let mut model = served().place(Kind::Router, 3, "vpc-shop");
    let site = Site { router: "vpc-{namespace}".parse().unwrap(), ..site() };
    let desired = desired(&wanted(&owner("shop", "web"), &["192.0.2.7"]), &site);
    let moved = plan(&desired, &site, &model.northbound());
    let shown: Vec<_> = moved.steps.iter().map(ToString::to_string).collect();
    let name = &desired.rows[0].name;
    assert_eq!(
        shown,
        [format!("~ load balancer {name}"), format!("- {name} on router shop"), format!("+ {name} on router vpc-shop"),]
    );
    model.carry_out(&moved);
    assert!(plan(&desired, &site, &model.northbound()).is_empty());
}
