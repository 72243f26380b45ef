//! Which Services a change in OVN concerns. It never says what to do about it. Pure.

use std::collections::BTreeSet;

use groundcrew_core::key::ServiceKey;
use groundcrew_core::provider::Look;
use ovsdb_client::{Row, RowId, Rows, Uuid};

use crate::marks;
use crate::northbound::{Kind, LoadBalancer, Northbound};
use crate::waiting::{Obstacle, Waiting};

/// `before` is where rows are that are gone now: the owner of a deleted row is still in it.
pub(crate) fn looks(
    before: &Northbound,
    after: &Northbound,
    rows: &Rows,
    cluster: &str,
    waiting: &Waiting,
) -> Vec<Look> {
    let Rows::Some(rows) = rows else { return vec![Look::Everywhere] };
    let change = Change { before, after, cluster, waiting };
    let mut services = BTreeSet::new();
    for RowId { table, uuid } in rows {
        if **table == *LoadBalancer::TABLE {
            change.row(*uuid, &mut services);
        } else if let Some(kind) = Kind::ALL.into_iter().find(|kind| *kind.table() == **table) {
            change.place(kind, *uuid, &mut services);
        }
    }
    services.into_iter().map(Look::At).collect()
}

struct Change<'a> {
    before: &'a Northbound,
    after: &'a Northbound,
    cluster: &'a str,
    waiting: &'a Waiting,
}

impl Change<'_> {
    fn row(&self, uuid: Uuid, services: &mut BTreeSet<ServiceKey>) {
        for nb in [self.before, self.after] {
            let Some(row) = nb.load_balancers.get(uuid) else { continue };
            match marks::owner(&row.external_ids, self.cluster) {
                Some(owner) => services.extend([owner.key]),
                None => services.extend(self.waiting.take(&Obstacle::Row(row.name.to_string()))),
            }
        }
    }

    fn place(&self, kind: Kind, uuid: Uuid, services: &mut BTreeSet<ServiceKey>) {
        let (before, after) = (self.before.place(kind, uuid), self.after.place(kind, uuid));
        if let (Some((name, were)), Some((same, are))) = (before, after)
            && name == same
        {
            // Others' members come and go all the time; ours that went were taken.
            let gone = were.iter().filter(|member| !are.contains(member));
            services.extend(gone.filter_map(|member| self.service_of(*member)));
            return;
        }
        for name in [before, after].into_iter().flatten().map(|(name, _)| name) {
            services.extend(self.waiting.take(&Obstacle::Place(kind, name.to_string())));
            services.extend(self.attached_to(kind, name));
        }
    }

    fn service_of(&self, row: Uuid) -> Option<ServiceKey> {
        let row = self.after.load_balancers.get(row).or_else(|| self.before.load_balancers.get(row))?;
        marks::owner(&row.external_ids, self.cluster).map(|owner| owner.key)
    }

    /// Every row is looked at. That a router comes, goes or is renamed is rare enough to do without an index.
    fn attached_to(&self, kind: Kind, name: &str) -> impl Iterator<Item = ServiceKey> {
        let mark = match kind {
            Kind::Router => marks::ROUTER,
            Kind::Switch => marks::SWITCH,
        };
        let attached =
            self.after.load_balancers.iter().filter(move |(_, row)| row.external_ids.get(mark) == Some(name));
        attached.filter_map(|(_, row)| marks::owner(&row.external_ids, self.cluster).map(|owner| owner.key))
    }
}

#[cfg(test)]
mod tests {
    use ovsdb_client::{Touched, apply};
    use serde_json::{Value, json};

    use super::*;

    /// Applies one message of the server and tells whom it wakes.
    fn woken(nb: &mut Northbound, waiting: &Waiting, updates: &Value) -> Vec<String> {
        let before = nb.clone();
        let mut touched = Touched::default();
        apply(&updates.to_string(), nb, &mut touched).unwrap();
        let looks = looks(&before, nb, &Rows::Some(touched.into_rows()), "c1", waiting);
        let names = looks.into_iter().map(|look| match look {
            Look::At(key) => key.to_string(),
            Look::Everywhere => "everywhere".to_owned(),
        });
        names.collect()
    }

    fn uuid(n: u128) -> Uuid {
        Uuid::from_u128(n)
    }

    fn row(service: &str) -> Value {
        let marks = [
            [marks::CLUSTER, "c1"],
            [marks::NAMESPACE, "shop"],
            [marks::SERVICE, service],
            [marks::UID, "00000000-0000-0000-0000-000000000001"],
            [marks::ROUTER, "shop"],
        ];
        json!({ "insert": { "name": service, "external_ids": ["map", marks] } })
    }

    fn served() -> Northbound {
        let mut nb = Northbound::default();
        let members = json!(["set", [["uuid", uuid(1)], ["uuid", uuid(9)]]]);
        let updates = json!({
            "Load_Balancer": { uuid(1).to_string(): row("web") },
            "Logical_Router": { uuid(5).to_string(): { "insert": { "name": "shop", "load_balancer": members } } },
        });
        assert_eq!(woken(&mut nb, &Waiting::default(), &updates), ["shop/web"]);
        nb
    }

    #[test]
    fn the_owner_of_a_deleted_row_is_woken() {
        let gone = json!({ "Load_Balancer": { uuid(1).to_string(): { "delete": null } } });
        assert_eq!(woken(&mut served(), &Waiting::default(), &gone), ["shop/web"]);
    }

    #[test]
    fn a_member_taken_from_a_router_wakes_its_owner_and_one_of_others_nobody() {
        let toggle = |n| json!({ "Logical_Router": { uuid(5).to_string(): { "modify": { "load_balancer": ["uuid", uuid(n)] } } } });
        assert_eq!(woken(&mut served(), &Waiting::default(), &toggle(1)), ["shop/web"]);
        assert_eq!(woken(&mut served(), &Waiting::default(), &toggle(9)), [""; 0]);
    }

    #[test]
    fn a_router_that_goes_or_comes_back_wakes_whoever_is_or_should_be_on_it() {
        let (mut nb, waiting) = (served(), Waiting::default());
        let gone = json!({ "Logical_Router": { uuid(5).to_string(): { "delete": null } } });
        assert_eq!(woken(&mut nb, &waiting, &gone), ["shop/web"]);
        waiting.add(Obstacle::Place(Kind::Router, "shop".into()), &ServiceKey::new("shop", "new"));
        let back = json!({ "Logical_Router": { uuid(6).to_string(): { "insert": { "name": "shop" } } } });
        assert_eq!(woken(&mut nb, &waiting, &back), ["shop/new", "shop/web"]);
    }

    #[test]
    fn a_foreign_row_that_goes_wakes_whoever_waits_for_its_name() {
        let (mut nb, waiting) = (served(), Waiting::default());
        let foreign = json!({ "Load_Balancer": { uuid(2).to_string(): { "insert": { "name": "x" } } } });
        assert_eq!(woken(&mut nb, &waiting, &foreign), [""; 0]);
        waiting.add(Obstacle::Row("x".into()), &ServiceKey::new("shop", "new"));
        let gone = json!({ "Load_Balancer": { uuid(2).to_string(): { "delete": null } } });
        assert_eq!(woken(&mut nb, &waiting, &gone), ["shop/new"]);
    }
}
