//! A model of the tables, and every state that they may be found in.

use super::*;

/// The two sides of the cable between a router and its switch.
pub(super) fn side(router: Uuid, number: u128) -> Uuid {
    Uuid::from_u128(router.as_u128() + 1_000 * number)
}

/// The tables as plain maps. What a step does to it is what the server does.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Model {
    pub(super) rows: BTreeMap<Uuid, LoadBalancer>,
    pub(super) checks: BTreeMap<Uuid, HealthCheck>,
    pub(super) groups: BTreeMap<Uuid, PortGroup>,
    pub(super) acls: BTreeMap<Uuid, Acl>,
    pub(super) places: BTreeMap<(Kind, Uuid), (String, BTreeSet<Uuid>)>,
    /// Router or switch, and a group that is on it.
    pub(super) joined: BTreeSet<(Uuid, Uuid)>,
    /// Whether the routers' ports lead straight to others.
    pub(super) peered: bool,
}

impl Model {
    pub(super) fn place(mut self, kind: Kind, id: u128, name: &str) -> Self {
        self.places.insert((kind, Uuid::from_u128(id)), (name.to_owned(), BTreeSet::new()));
        self
    }

    /// A project's router and switch.
    pub(super) fn project(namespace: &str) -> Self {
        Self::default().place(Kind::Router, 1, namespace).place(Kind::Switch, 2, &format!("{namespace}-default"))
    }

    pub(super) fn northbound(&self) -> Northbound {
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
                    let groups =
                        Value::set(self.joined.iter().filter(|(place, _)| place == uuid).map(|(_, group)| *group));
                    (
                        uuid.to_string(),
                        json!({ "initial": {
                        "name": name, "load_balancer": members, "ports": ["uuid", side(*uuid, 1)],
                        "load_balancer_group": groups,
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
            "Load_Balancer_Group": places(Kind::Group),
        });
        let mut nb = Northbound::default();
        ovsdb_client::apply(&tables.to_string(), &mut nb, &mut Touched::default()).unwrap();
        nb
    }

    pub(super) fn carry_out(&mut self, plan: &Plan) {
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
                    let others =
                        before.external_ids.iter().filter(|(key, _)| marks::keys(&row.marks).all(|ours| ours != *key));
                    let external_ids = others.chain(row.marks.iter()).collect();
                    *now = LoadBalancer { health_check, external_ids, ..seen(row) };
                }
                Step::Delete { uuid, .. } => {
                    self.rows.remove(uuid).unwrap();
                    for (_, members) in self.places.values_mut() {
                        members.remove(uuid);
                    }
                }
                Step::Discard { uuid, seen } => {
                    assert_eq!(self.rows.remove(uuid).as_ref(), Some(&**seen), "the guard would fail");
                    for (_, members) in self.places.values_mut() {
                        members.remove(uuid);
                    }
                }
                Step::Attach { place, row, .. } => {
                    assert!(self.rows.contains_key(row), "a weak reference to nothing goes at once");
                    self.places.get_mut(&(place.kind, place.uuid)).unwrap().1.insert(*row);
                }
                Step::Join { place, group } => {
                    assert!(self.places.contains_key(&(Kind::Group, group.uuid)), "a strong reference to nothing");
                    assert!(self.joined.insert((place.uuid, group.uuid)));
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
    pub(super) fn guard(&mut self, guard: &Guard, ports: &BTreeSet<Uuid>) {
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

    pub(super) fn carry_out_checks(&mut self, checks: &Checks) {
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
    pub(super) fn collect(&mut self) {
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
pub(super) fn probed(mut desired: Desired) -> Desired {
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
pub(super) fn seen(row: &Row) -> LoadBalancer {
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

/// With a load balancer group and without.
pub(super) fn sites() -> impl Strategy<Value = Site> {
    any::<bool>().prop_map(|grouped| Site { group: grouped.then(|| "{namespace}-group".parse().unwrap()), ..site() })
}

pub(super) fn wishes() -> impl Strategy<Value = Wanted> {
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
    pub(super) fn rows()(protocol in 0usize..3, derived: bool, id in 100u128..104, named: bool, marks in 0u8..7, right: bool, row in 0usize..3)
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
            4 => row.marks.iter().map(|(k, v)| (k, if k == marks::ROUTER { "old" } else { v })).chain([("more", "x")]).collect(),
            _ => row.marks.iter().chain([(marks::GROUP, if marks == 5 { "shop-group" } else { "old-group" })]).collect(),
        };
        // Under a derived uuid there is never another cluster's or another Service's row.
        let uuid = if derived && !matches!(marks, 1 | 3) { row.uuid } else { Uuid::from_u128(id) };
        (uuid, made)
    }
}

prop_compose! {
    pub(super) fn models()(
        rows in prop::collection::btree_map(0u8..6, rows(), 0..6),
        attached in prop::collection::vec((0usize..7, 0usize..6), 0..10),
        joined in prop::collection::btree_set((0usize..5, 5usize..7), 0..6),
        present in 0u8..128,
        peered in prop::bool::weighted(0.1),
        groups in prop::collection::vec((0u8..4, 300u128..303, any::<bool>()), 0..3),
        checked in prop::collection::vec((0usize..6, any::<bool>(), 200u128..203, any::<bool>()), 0..4),
    ) -> Model {
        let names = [
            (Kind::Router, "shop"), (Kind::Router, "shop"), (Kind::Switch, "shop-default"), (Kind::Router, "old"), (Kind::Switch, "x"),
            (Kind::Group, "shop-group"), (Kind::Group, "old-group"),
        ];
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
        for (place, group) in joined {
            let id = |n: usize| Uuid::from_u128(n as u128 + 1);
            if [place, group].iter().all(|n| model.places.contains_key(&(names[*n].0, id(*n)))) {
                model.joined.insert((id(place), id(group)));
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

pub(super) fn is_ours(uuid: Uuid, row: &LoadBalancer) -> bool {
    let me = owner("shop", "web");
    let marked = marks::owner(&row.external_ids, "c1").is_some_and(|owner| owner.uid == me.uid);
    let derived = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp].map(|p| marks::row_uuid("c1", &me, p));
    marked || derived.contains(&uuid) || derived.map(marks::inside_row_uuid).contains(&uuid)
}

/// Rows and members that are none of ours.
pub(super) fn foreign(model: &Model) -> Model {
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
    Model { places: places.collect(), checks, rows, groups, acls, joined: model.joined.clone(), peered: model.peered }
}
