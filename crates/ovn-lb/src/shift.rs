//! What a change took from OVN, counted: the evidence for who made it. It is gathered beside the repair, not on its way.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use groundcrew_api::names::kube_ovn::is_own_load_balancer;
use groundcrew_core::drift::{Attribute, Shift};
use groundcrew_core::leader::Moment;
use ovsdb_client::{Changed, Row, Rows, Table, Uuid};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::marks;
use crate::northbound::{LoadBalancer, Northbound};

/// Whoever puts right what is gone goes first.
const AFTER_THE_REPAIR: Duration = Duration::from_millis(5);

/// A change, and when it was seen. It comes from the listener that has it put right: one of our own might be told of it
/// together with the repair, and would see nothing gone.
pub(crate) type Seen = (Moment, Changed<Northbound>);

/// Shows every change that took something to `attribute`, until `stop`.
pub(crate) async fn follow(
    mut changes: mpsc::UnboundedReceiver<Seen>,
    cluster: Arc<str>,
    attribute: Arc<dyn Attribute>,
    stop: CancellationToken,
) {
    let mut census = Census::default();
    while let Some(Some((seen, changed))) = stop.run_until_cancelled(changes.recv()).await {
        tokio::time::sleep(AFTER_THE_REPAIR).await;
        let Changed { before, after, rows } = &changed;
        census.change(before, after, rows, &cluster);
        if let Some(shift) = shift(before, after, rows, &census, &cluster) {
            attribute.observe(&shift, seen);
        }
    }
    // What comes after the stop is nobody's business.
    stop.cancelled().await;
}

/// How many load balancers there are, by whose they are. It follows the changes: to count ten thousand rows for each of
/// them takes longer than to put one right.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Census {
    ours: usize,
    /// kube-ovn's own.
    native: usize,
    others: usize,
}

impl Census {
    fn change(&mut self, before: &Northbound, after: &Northbound, rows: &Rows, cluster: &str) {
        let Rows::Some(rows) = rows else {
            *self = Self::default();
            after.load_balancers.iter().for_each(|(_, row)| *self.of(row, cluster) += 1);
            return;
        };
        for id in rows.iter().filter(|id| *id.table == *LoadBalancer::TABLE) {
            if let Some(row) = before.load_balancers.get(id.uuid) {
                let count = self.of(row, cluster);
                *count = count.saturating_sub(1);
            }
            if let Some(row) = after.load_balancers.get(id.uuid) {
                *self.of(row, cluster) += 1;
            }
        }
    }

    fn of(&mut self, row: &LoadBalancer, cluster: &str) -> &mut usize {
        if marks::are_of(&row.external_ids, cluster) {
            &mut self.ours
        } else if is_own_load_balancer(&row.name) {
            &mut self.native
        } else {
            &mut self.others
        }
    }
}

/// `None` where nothing is gone. The census is that of `after`.
fn shift(before: &Northbound, after: &Northbound, rows: &Rows, census: &Census, cluster: &str) -> Option<Shift> {
    let is_ours = |row: &LoadBalancer| marks::are_of(&row.external_ids, cluster);
    let mut shift = Shift { unseen: matches!(rows, Rows::Everything), ..Shift::default() };
    for (name, row) in gone(&before.load_balancers, &after.load_balancers, rows, |row| &row.name) {
        if after.load_balancers.find(|by| &by.name, name).next().is_some() {
            shift.replaced += 1;
        } else if is_ours(row) {
            shift.ours_removed += 1;
        } else {
            shift.others_removed += 1;
        }
    }
    let routers = gone(&before.routers, &after.routers, rows, |row| &row.name)
        .filter(|(name, _)| after.routers.find(|by| &by.name, *name).next().is_some())
        .map(|(name, _)| name);
    let switches = gone(&before.switches, &after.switches, rows, |row| &row.name)
        .filter(|(name, _)| after.switches.find(|by| &by.name, *name).next().is_some())
        .map(|(name, _)| name);
    shift.recreated = routers.chain(switches).map(ToString::to_string).collect::<BTreeSet<_>>().into_iter().collect();
    shift.replaced += shift.recreated.len();
    let something_left = after.load_balancers.iter().next().is_some()
        || after.routers.iter().next().is_some()
        || after.switches.iter().next().is_some();
    let something_was = before.load_balancers.iter().next().is_some() || before.routers.iter().next().is_some();
    shift.emptied = something_was && !something_left;
    if shift.ours_removed + shift.others_removed + shift.replaced == 0 && !shift.emptied {
        return None;
    }
    Some(Shift { ours_left: census.ours, native_left: census.native, others_left: census.others, ..shift })
}

/// The rows of one table that were there and are not any more, by name.
fn gone<'a, R: Row>(
    before: &'a Table<R>,
    after: &'a Table<R>,
    rows: &'a Rows,
    name: impl Fn(&'a R) -> &'a Arc<str> + 'a,
) -> Box<dyn Iterator<Item = (&'a str, &'a R)> + 'a> {
    let vanished = move |(uuid, row): (Uuid, &'a Arc<R>)| after.get(uuid).is_none().then(|| (&**name(row), &**row));
    match rows {
        Rows::Everything => Box::new(before.iter().filter_map(vanished)),
        Rows::Some(rows) => {
            let changed = rows.iter().filter(|id| *id.table == *R::TABLE);
            Box::new(changed.filter_map(|id| Some((id.uuid, before.get(id.uuid)?))).filter_map(vanished))
        }
    }
}

#[cfg(test)]
mod tests {
    use ovsdb_client::{Touched, apply};
    use serde_json::{Value, json};

    use super::*;

    fn count(nb: &Northbound) -> Census {
        let mut census = Census::default();
        census.change(&Northbound::default(), nb, &Rows::Everything, "c1");
        census
    }

    /// Applies one message of the server and tells what it took.
    fn taken(nb: &mut Northbound, updates: &Value) -> Option<Shift> {
        let (before, mut census) = (nb.clone(), count(nb));
        let mut touched = Touched::default();
        apply(&updates.to_string(), nb, &mut touched).unwrap();
        let rows = Rows::Some(touched.into_rows());
        census.change(&before, nb, &rows, "c1");
        assert_eq!(census, count(nb), "it followed the change");
        shift(&before, nb, &rows, &census, "c1")
    }

    fn id(n: u128) -> String {
        Uuid::from_u128(n).to_string()
    }

    fn ours(name: &str) -> Value {
        let marks = [
            [marks::CLUSTER, "c1"],
            [marks::NAMESPACE, "shop"],
            [marks::SERVICE, name],
            [marks::UID, "00000000-0000-0000-0000-000000000001"],
        ];
        json!({ "insert": { "name": name, "external_ids": ["map", marks] } })
    }

    fn named(name: &str) -> Value {
        json!({ "insert": { "name": name } })
    }

    fn full() -> Northbound {
        let mut nb = Northbound::default();
        let rows = json!({
            "Load_Balancer": {
                id(1): ours("a"), id(2): ours("b"), id(3): named("other"), id(4): named("vpc-shop-tcp-load"),
            },
            "Logical_Router": { id(5): named("shop") },
            "Logical_Switch": { id(6): named("shop-default") },
        });
        assert_eq!(taken(&mut nb, &rows), None, "nothing is gone when rows come");
        nb
    }

    fn gone() -> Value {
        json!({ "delete": null })
    }

    #[test]
    fn what_is_gone_and_what_stays_are_counted_by_whose_they_are() {
        let rows = json!({ "Load_Balancer": { id(1): gone(), id(3): gone() } });
        let expected = Shift { ours_removed: 1, ours_left: 1, others_removed: 1, native_left: 1, ..Shift::default() };
        assert_eq!(taken(&mut full(), &rows), Some(expected));
    }

    #[test]
    fn a_row_that_changes_hands_is_counted_where_it_is_now() {
        let marks = json!(["map", [[marks::CLUSTER, "c1"], [marks::UID, "00000000-0000-0000-0000-000000000003"]]]);
        let rows = json!({
            "Load_Balancer": { id(3): { "modify": { "external_ids": marks } }, id(2): gone(), id(8): named("more") },
        });
        let expected = Shift { ours_removed: 1, ours_left: 2, native_left: 1, others_left: 1, ..Shift::default() };
        assert_eq!(taken(&mut full(), &rows), Some(expected));
    }

    #[test]
    fn a_router_under_its_old_name_with_a_new_id_was_made_again() {
        let rows = json!({ "Logical_Router": { id(5): gone(), id(7): named("shop") } });
        let shift = taken(&mut full(), &rows).unwrap();
        assert_eq!((shift.recreated, shift.replaced, shift.ours_removed), (vec!["shop".to_owned()], 1, 0));
    }

    #[test]
    fn a_restored_database_replaces_everything_and_takes_nothing() {
        let rows = json!({
            "Load_Balancer": {
                id(1): gone(), id(2): gone(), id(3): gone(), id(4): gone(),
                id(11): ours("a"), id(12): ours("b"), id(13): named("other"), id(14): named("vpc-shop-tcp-load"),
            },
            "Logical_Router": { id(5): gone(), id(15): named("shop") },
            "Logical_Switch": { id(6): gone(), id(16): named("shop-default") },
        });
        let shift = taken(&mut full(), &rows).unwrap();
        assert_eq!((shift.replaced, shift.ours_removed, shift.others_removed, shift.emptied), (6, 0, 0, false));
    }

    #[test]
    fn an_emptied_database_is_told_as_such() {
        let mut nb = full();
        let all = Rows::Everything;
        let shift = shift(&std::mem::take(&mut nb), &Northbound::default(), &all, &Census::default(), "c1").unwrap();
        assert!(shift.emptied && shift.unseen);
        assert_eq!((shift.ours_removed, shift.others_removed), (2, 2));
    }
}
