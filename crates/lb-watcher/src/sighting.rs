//! What a change of OVN concerns, and what it is evidence of. It never says what to do about it.

use std::collections::BTreeSet;

use groundcrew_api::names::kube_ovn::is_own_load_balancer;
use groundcrew_core::drift::Shift;
use groundcrew_core::key::ServiceKey;
use ovsdb_client::{Changed, Row, Rows, Uuid};

use crate::cluster::Cluster;
use crate::northbound::{LoadBalancer, Northbound, PlaceKind};
use crate::wanted::Site;

/// Names that are remembered; past it they are forgotten, and a router that comes back is just a new one.
const MOST_GONE: usize = 4_096;

/// Reads changes in their order.
pub(crate) struct Sightings<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) site: &'a Site,
    /// Routers and switches that were deleted: when they come back under their name, they were made again.
    pub(crate) gone: BTreeSet<(PlaceKind, String)>,
}

/// One change.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Sighting {
    /// Services to look at; `None` is all of them.
    pub(crate) services: Option<BTreeSet<ServiceKey>>,
    /// Those among them of which a row is gone.
    pub(crate) taken: BTreeSet<ServiceKey>,
    /// Whether a row came and went before we could see whose it was.
    pub(crate) strays: bool,
    pub(crate) shift: Shift,
}

impl Sightings<'_> {
    pub(crate) fn read(&mut self, changed: &Changed<Northbound>) -> Sighting {
        let (before, after) = (&*changed.before, &*changed.after);
        match &changed.rows {
            Rows::Some(rows) => {
                let of = |table: &str| rows.iter().filter(|row| *row.table == *table).map(|row| row.uuid).collect();
                let touched = Touched {
                    load_balancers: of(LoadBalancer::TABLE),
                    places: PlaceKind::ALL.map(|kind| (kind, of(kind.table()))),
                };
                let services = self.services(before, after, &touched);
                let gone = touched.load_balancers.iter().filter(|uuid| after.load_balancers.get(**uuid).is_none());
                let strays = gone.clone().any(|uuid| before.load_balancers.get(*uuid).is_none());
                let taken = gone.flat_map(|uuid| self.owners(*uuid, before, after)).collect();
                Sighting { services: Some(services), taken, strays, shift: self.shift(before, after, &touched) }
            }
            // The first sight of the database is evidence of nothing.
            Rows::Everything if changed.before.generation() == 0 => Sighting::default(),
            Rows::Everything => {
                let all = |kind| before.all_places(kind).chain(after.all_places(kind)).map(|(uuid, _)| uuid).collect();
                let load_balancers = before.load_balancers.iter().map(|(uuid, _)| uuid).collect();
                let touched = Touched { load_balancers, places: PlaceKind::ALL.map(|kind| (kind, all(kind))) };
                let shift = Shift { unseen: true, ..self.shift(before, after, &touched) };
                Sighting { shift, ..Sighting::default() }
            }
        }
    }

    fn services(&self, before: &Northbound, after: &Northbound, touched: &Touched) -> BTreeSet<ServiceKey> {
        let mut services = BTreeSet::new();
        for uuid in &touched.load_balancers {
            services.extend(self.owners(*uuid, before, after));
        }
        // Names of routers and switches that came, went or got another name.
        let mut names = BTreeSet::new();
        for (kind, uuids) in &touched.places {
            for uuid in uuids {
                match (before.place(*kind, *uuid), after.place(*kind, *uuid)) {
                    (Some((name, were)), Some((same, are))) if name == same => {
                        for member in were.difference(are).chain(are.difference(were)) {
                            services.extend(self.owners(*member, before, after));
                        }
                    }
                    (was, is) => {
                        names.extend([was, is].into_iter().flatten().map(|(name, _)| (*kind, name.to_string())));
                    }
                }
            }
        }
        if !names.is_empty() {
            services.extend(self.cluster.in_namespaces(|namespace| {
                names.contains(&(PlaceKind::Router, self.site.router.of(namespace)))
                    || names.contains(&(PlaceKind::Switch, self.site.switch.of(namespace)))
            }));
        }
        services
    }

    /// Services that a row belongs or belonged to.
    fn owners(&self, row: Uuid, before: &Northbound, after: &Northbound) -> Vec<ServiceKey> {
        let names: BTreeSet<_> =
            [before, after].iter().filter_map(|nb| nb.load_balancers.get(row)).map(|row| &row.name).collect();
        names.into_iter().flat_map(|name| self.cluster.claimants(name)).collect()
    }

    fn shift(&mut self, before: &Northbound, after: &Northbound, touched: &Touched) -> Shift {
        let rewound = after.sequence().is_some_and(|now| before.sequence().is_some_and(|was| now < was));
        let mut shift = Shift { rewound, ..Shift::default() };
        let mut ours_replaced = 0;
        for uuid in &touched.load_balancers {
            let Some(row) = before.load_balancers.get(*uuid) else { continue };
            if after.load_balancers.get(*uuid).is_some() {
                continue;
            }
            let is_new = |uuid| before.load_balancers.get(uuid).is_none();
            let is_ours = self.is_ours(row);
            let was = shift.ours_removed + shift.others_removed;
            if after.load_balancers.find(|by| &by.name, row.name.clone()).any(|(uuid, _)| is_new(uuid)) {
                shift.replaced += 1;
                ours_replaced += usize::from(is_ours);
            } else if is_ours {
                shift.ours_removed += 1;
            } else if !is_own_load_balancer(&row.name) {
                shift.others_removed += 1;
            }
            if shift.ours_removed + shift.others_removed > was && row.is_of_kube_ovns_client() {
                shift.vendor_removed += 1;
            }
        }
        for (kind, uuids) in &touched.places {
            self.places(*kind, uuids, before, after, &mut shift);
        }
        shift.recreated.sort_unstable();
        shift.recreated.dedup();
        if shift.ours_removed + shift.others_removed > 0 {
            // Only now: it reads every row.
            for (_, row) in after.load_balancers.iter() {
                let left = match row {
                    row if is_own_load_balancer(&row.name) => &mut shift.native_left,
                    row if self.is_ours(row) => &mut shift.ours_left,
                    _ => &mut shift.others_left,
                };
                *left += 1;
                if row.is_of_kube_ovns_client() && !is_own_load_balancer(&row.name) {
                    shift.vendor_left += 1;
                }
            }
        }
        shift.emptied = !before.is_empty()
            && (after.is_empty() || (ours_replaced == 0 && shift.ours_removed > 0 && nothing_stayed(before, after)));
        shift
    }

    fn places(
        &mut self,
        kind: PlaceKind,
        uuids: &BTreeSet<Uuid>,
        before: &Northbound,
        after: &Northbound,
        shift: &mut Shift,
    ) {
        let gone = uuids.iter().filter(|uuid| after.place(kind, **uuid).is_none());
        for (name, _) in gone.filter_map(|uuid| before.place(kind, *uuid)) {
            if self.gone.len() >= MOST_GONE {
                self.gone.clear();
            }
            self.gone.insert((kind, name.to_string()));
        }
        let new = uuids.iter().filter(|uuid| before.place(kind, **uuid).is_none());
        for (name, _) in new.filter_map(|uuid| after.place(kind, *uuid)) {
            if self.gone.remove(&(kind, name.to_string())) {
                shift.replaced += 1;
                shift.recreated.push(name.to_string());
            }
        }
    }

    fn is_ours(&self, row: &LoadBalancer) -> bool {
        !row.is_groundcrews() && !self.cluster.namesakes(&row.name).is_empty()
    }
}

struct Touched {
    load_balancers: BTreeSet<Uuid>,
    places: [(PlaceKind, BTreeSet<Uuid>); 2],
}

/// Whether no row of before is there any more.
fn nothing_stayed(before: &Northbound, after: &Northbound) -> bool {
    let stays = |kind| before.all_places(kind).any(|(uuid, _)| after.place(kind, uuid).is_some());
    !before.load_balancers.iter().any(|(uuid, _)| after.load_balancers.get(uuid).is_some())
        && !PlaceKind::ALL.into_iter().any(stays)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::{cluster, place, row, served, site, update, uuid};

    struct Scene {
        cluster: std::sync::Arc<Cluster>,
        site: Site,
        nb: Northbound,
        gone: BTreeSet<(PlaceKind, String)>,
    }

    impl Scene {
        fn new() -> Self {
            let mut nb = served();
            let others = json!({ "Load_Balancer": {
                uuid(2).to_string(): row("shop-api-tcp"),
                uuid(3).to_string(): row("theirs"),
                uuid(4).to_string(): row("vpc-shop-tcp-load"),
            } });
            update(&mut nb, &others);
            Self { cluster: cluster(&[("shop", "web"), ("shop", "api")]), site: site(), nb, gone: BTreeSet::new() }
        }

        fn sees(&mut self, updates: &Value) -> (Vec<String>, Shift) {
            let before = self.nb.clone();
            let rows = update(&mut self.nb, updates).into_rows();
            let of = |table: &str| rows.iter().filter(|row| *row.table == *table).map(|row| row.uuid).collect();
            let touched = Touched {
                load_balancers: of(LoadBalancer::TABLE),
                places: PlaceKind::ALL.map(|kind| (kind, of(kind.table()))),
            };
            let gone = std::mem::take(&mut self.gone);
            let mut sightings = Sightings { cluster: &self.cluster, site: &self.site, gone };
            let services = sightings.services(&before, &self.nb, &touched);
            let shift = sightings.shift(&before, &self.nb, &touched);
            self.gone = sightings.gone;
            (services.iter().map(ToString::to_string).collect(), shift)
        }
    }

    fn delete(rows: &[u128]) -> Value {
        let rows: serde_json::Map<_, _> =
            rows.iter().map(|n| (uuid(*n).to_string(), json!({ "delete": null }))).collect();
        json!({ "Load_Balancer": rows })
    }

    #[test]
    fn a_collection_takes_everything_but_the_networks_own() {
        let (services, shift) = Scene::new().sees(&delete(&[1, 2, 3]));
        assert_eq!(services, ["shop/api", "shop/web"]);
        assert_eq!(shift, Shift { ours_removed: 2, others_removed: 1, native_left: 1, ..Shift::default() });
    }

    #[test]
    fn what_carries_the_vendors_mark_is_counted_but_for_the_networks_own() {
        let mut scene = Scene::new();
        let mark = json!({ "modify": { "external_ids": ["map", [["vendor", "kube-ovn"]]] } });
        let marked: serde_json::Map<_, _> =
            [1, 2, 4].map(|n| (uuid(n).to_string(), mark.clone())).into_iter().collect();
        scene.sees(&json!({ "Load_Balancer": marked }));
        let (_, shift) = scene.sees(&delete(&[1]));
        assert_eq!((shift.vendor_removed, shift.vendor_left), (1, 1));
        let (_, shift) = scene.sees(&delete(&[2, 3]));
        assert_eq!((shift.vendor_removed, shift.vendor_left), (1, 0));
    }

    #[test]
    fn a_database_that_counts_from_an_earlier_number_on_was_put_back() {
        let mut scene = Scene::new();
        let count = |change: &str, n: i64| json!({ "NB_Global": { uuid(9).to_string(): { change: { "nb_cfg": n } } } });
        assert!(!scene.sees(&count("insert", 7)).1.rewound);
        assert!(!scene.sees(&count("modify", 8)).1.rewound);
        let mut restored = delete(&[2]);
        restored["NB_Global"] = count("modify", 3)["NB_Global"].clone();
        let (_, shift) = scene.sees(&restored);
        assert_eq!((shift.rewound, shift.ours_removed), (true, 1));
    }

    #[test]
    fn a_single_deletion_leaves_the_others() {
        let (services, shift) = Scene::new().sees(&delete(&[1]));
        assert_eq!(services, ["shop/web"]);
        let left = Shift { ours_removed: 1, ours_left: 1, others_left: 1, native_left: 1, ..Shift::default() };
        assert_eq!(shift, left);
    }

    #[test]
    fn who_is_taken_from_a_router_or_put_on_it_is_looked_at() {
        let mut scene = Scene::new();
        let toggle = |n| json!({ "Logical_Router": { uuid(5).to_string(): { "modify": { "load_balancer": ["uuid", uuid(n)] } } } });
        assert_eq!(scene.sees(&toggle(1)).0, ["shop/web"]);
        assert_eq!(scene.sees(&toggle(1)).0, ["shop/web"]);
        assert_eq!(scene.sees(&toggle(3)), (vec![], Shift::default()), "others come and go all the time");
    }

    #[test]
    fn a_router_that_comes_back_under_its_name_was_made_again() {
        let mut scene = Scene::new();
        let (services, shift) = scene.sees(&json!({ "Logical_Router": { uuid(5).to_string(): { "delete": null } } }));
        assert_eq!((services.len(), shift), (2, Shift::default()));
        let (services, shift) = scene.sees(&json!({ "Logical_Router": { uuid(7).to_string(): place("shop", &[]) } }));
        assert_eq!(services.len(), 2);
        assert_eq!(shift, Shift { replaced: 1, recreated: vec!["shop".into()], ..Shift::default() });
        let (_, shift) = scene.sees(&json!({ "Logical_Router": { uuid(8).to_string(): place("new", &[]) } }));
        assert_eq!(shift, Shift::default(), "a new one is just new");
    }
}
