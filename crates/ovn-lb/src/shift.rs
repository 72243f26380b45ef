//! What a change took from OVN, counted: the evidence for who made it. It is read when somebody asks for it, which is after
//! the repair, and never on its way.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use groundcrew_api::names::kube_ovn::is_own_load_balancer;
use groundcrew_core::drift::{Attribute, Cause, Round, Shift};
use groundcrew_core::leader::Moment;
use groundcrew_core::provider::Living;
use ovsdb_client::{Changed, Row, Rows, Table, Uuid};
use tokio_util::sync::CancellationToken;

use crate::marks;
use crate::northbound::{Global, Kind, LoadBalancer, Northbound};

/// What nobody has asked for by then is read all the same: it keeps old rows in memory.
const KEPT_FOR: Duration = Duration::from_secs(1);

/// A drift and the change that made it are seen this close to each other.
const NEAR: Duration = Duration::from_secs(2);

/// Names that are remembered; past it they are forgotten, and a router that comes back is just a new one.
const MOST_GONE: usize = 4_096;

/// A change. It comes from the listener that has it put right: one of our own might be told of it together with the
/// repair, and would see nothing gone.
struct Seen {
    at: Moment,
    changed: Changed<Northbound>,
    /// Whether anybody looks at a Service because of it.
    concerns: bool,
}

/// Collects changes, and shows them to `attribute` before that is asked who made one.
pub(crate) struct Evidence {
    attribute: Arc<dyn Attribute>,
    cluster: Arc<str>,
    unread: Mutex<VecDeque<Seen>>,
    /// Changes are read in their order, so that whoever reads them holds it.
    ledger: Mutex<Ledger>,
    /// When an older state of the database was last put back.
    restored: Mutex<Option<Moment>>,
    /// When another database, or another state of it, was last put in its place.
    replaced: Mutex<Option<Moment>>,
    /// What was gone when this process first led, until it is shown.
    start: Mutex<Start>,
}

#[derive(Debug, Default)]
enum Start {
    #[default]
    NotYet,
    Gone(Shift),
    Shown,
}

impl Evidence {
    pub(crate) fn new(attribute: Arc<dyn Attribute>, cluster: Arc<str>) -> Self {
        let (unread, ledger, restored, replaced, start) = Default::default();
        Self { attribute, cluster, unread, ledger, restored, replaced, start }
    }

    /// What is gone of the living as this process leads for the first time: nobody saw it go. Looked at before anything is
    /// written; `was_led` if somebody has ever led on this database.
    pub(crate) fn starts(&self, living: &[Living], nb: &Northbound, was_led: bool) {
        let mut start = lock(&self.start);
        if !matches!(*start, Start::NotYet) {
            return;
        }
        let is_gone = |living: &&Living| nb.load_balancers.find(|by| &by.uid, living.owner.uid).next().is_none();
        let ours_removed = living.iter().filter(is_gone).count();
        let Census { ours, native, others } = Census::of_all(nb, &self.cluster);
        let left = Shift { ours_left: ours, native_left: native, others_left: others, ..Shift::default() };
        *start = Start::Gone(Shift { ours_removed, emptied: ours_removed > 0 && !was_led, unseen: true, ..left });
    }

    /// It leads, and what follows was found then.
    pub(crate) fn started(&self) {
        let start = std::mem::replace(&mut *lock(&self.start), Start::Shown);
        if let Start::Gone(shift) = start
            && shift.ours_removed > 0
        {
            self.attribute.observe(&shift, Moment::now());
        }
    }

    pub(crate) fn add(&self, changed: Changed<Northbound>, concerns: bool) {
        lock(&self.unread).push_back(Seen { at: Moment::now(), changed, concerns });
    }

    /// Whether what is there may be of another time: the database was replaced a moment ago.
    pub(crate) fn is_replaced(&self) -> bool {
        self.read(Moment::now());
        lock(&self.replaced).is_some_and(|at| at.until(Moment::now()) <= NEAR)
    }

    /// Shows what was seen until this time.
    fn read(&self, until: Moment) {
        let mut ledger = lock(&self.ledger);
        loop {
            let next = lock(&self.unread).pop_front_if(|seen| seen.at <= until);
            let Some(Seen { at, changed, concerns }) = next else { return };
            if is_older(&changed.before, &changed.after) {
                *lock(&self.restored) = Some(at);
                *lock(&self.replaced) = Some(at);
            }
            if is_another(&changed.before, &changed.after) {
                *lock(&self.replaced) = Some(at);
            }
            match ledger.enter(&changed.before, &changed.after, &changed.rows, &self.cluster) {
                Some(shift) => self.attribute.observe(&shift, at),
                // What was drifting because of it was not made by the change before.
                None if concerns => self.attribute.observe(&Shift::default(), at),
                None => {}
            }
        }
    }

    /// Reads what nobody asks for, until `stop`.
    pub(crate) async fn tidy(self: Arc<Self>, stop: CancellationToken) {
        while stop.run_until_cancelled(tokio::time::sleep(KEPT_FOR)).await.is_some() {
            self.read(Moment::ago(KEPT_FOR));
        }
    }
}

impl Attribute for Evidence {
    fn observe(&self, shift: &Shift, seen: Moment) {
        self.attribute.observe(shift, seen);
    }

    fn cause(&self, round: &Round) -> Cause {
        self.read(Moment::now());
        // What is missing then was made after the copy: nobody has deleted it.
        let near = |at: &Moment| at.until(round.seen).max(round.seen.until(*at)) <= NEAR;
        let restored = lock(&self.restored).filter(near);
        restored.map_or_else(|| self.attribute.cause(round), |_| restore())
    }

    fn nearby(&self, moment: Moment) -> Option<String> {
        self.attribute.nearby(moment)
    }

    fn causes(&self) -> &'static [&'static str] {
        self.attribute.causes()
    }
}

fn restore() -> Cause {
    Cause {
        label: "database_restored",
        words: "a restore of the northbound database to an older state of it".into(),
        remedy: Some("what was made after the backup is made again; no more is to be done".into()),
    }
}

fn lock<T>(state: &Mutex<T>) -> MutexGuard<'_, T> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is remembered from change to change.
#[derive(Debug, Default)]
struct Ledger {
    census: Census,
    /// Routers and switches that were deleted: when they come back under their name, they were made again.
    gone: BTreeSet<(Kind, Arc<str>)>,
    /// Those that went with everything else: when they come back, it is what empties databases that took their load balancers.
    emptied: BTreeSet<(Kind, Arc<str>)>,
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
            *self = Self::of_all(after, cluster);
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

    fn of_all(nb: &Northbound, cluster: &str) -> Self {
        let mut census = Self::default();
        nb.load_balancers.iter().for_each(|(_, row)| *census.of(row, cluster) += 1);
        census
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

impl Ledger {
    /// What the change took or made again; `None` where that is nothing.
    fn enter(&mut self, before: &Northbound, after: &Northbound, rows: &Rows, cluster: &str) -> Option<Shift> {
        self.census.change(before, after, rows, cluster);
        let mut shift = Shift { unseen: matches!(rows, Rows::Everything), ..Shift::default() };
        let mut ours_replaced = 0;
        for (_, row) in only_in(&before.load_balancers, &after.load_balancers, rows) {
            let is_ours = marks::are_of(&row.external_ids, cluster);
            let mut namesakes = after.load_balancers.find(|by| &by.name, row.name.clone());
            if namesakes.any(|(uuid, _)| before.load_balancers.get(uuid).is_none()) {
                shift.replaced += 1;
                ours_replaced += usize::from(is_ours);
            } else if is_ours {
                shift.ours_removed += 1;
            } else {
                shift.others_removed += 1;
            }
        }
        self.places(Kind::Router, (&before.routers, &after.routers), rows, |row| &row.name, &mut shift);
        self.places(Kind::Switch, (&before.switches, &after.switches), rows, |row| &row.name, &mut shift);
        shift.recreated.sort_unstable();
        shift.recreated.dedup();
        // We may have put our rows back before anybody saw them gone, under their old ids; all else was made anew.
        let refilled = shift.ours_removed > 0 && nothing_stayed(before, after);
        let rebuilt = ours_replaced == 0 && (refilled || is_another(before, after));
        shift.emptied |= !is_empty(before) && (is_empty(after) || rebuilt);
        if is_empty(after) {
            self.emptied.append(&mut self.gone);
        }
        if shift.ours_removed + shift.others_removed + shift.replaced == 0 && !shift.emptied {
            return None;
        }
        let Census { ours, native, others } = self.census;
        Some(Shift { ours_left: ours, native_left: native, others_left: others, ..shift })
    }

    /// Notes routers or switches that went, and tells those that came back.
    fn places<R: Row>(
        &mut self,
        kind: Kind,
        (before, after): (&Table<R>, &Table<R>),
        rows: &Rows,
        name: impl Fn(&R) -> &Arc<str>,
        shift: &mut Shift,
    ) {
        for (_, row) in only_in(before, after, rows) {
            if self.gone.len() >= MOST_GONE {
                self.gone.clear();
            }
            self.gone.insert((kind, name(row).clone()));
        }
        for (_, row) in only_in(after, before, rows) {
            let place = (kind, name(row).clone());
            if self.emptied.remove(&place) {
                shift.emptied = true;
            } else if self.gone.remove(&place) {
                shift.replaced += 1;
                shift.recreated.push(name(row).to_string());
            }
        }
    }
}

fn is_empty(nb: &Northbound) -> bool {
    nb.load_balancers.is_empty() && nb.routers.is_empty() && nb.switches.is_empty()
}

/// Whether its one row that everybody needs was made anew. Only who loses or restores the whole database does that.
fn is_another(before: &Northbound, after: &Northbound) -> bool {
    !before.global.is_empty() && before.global.iter().all(|(uuid, _)| after.global.get(uuid).is_none())
}

/// Whether it is the same database as it was earlier: the number that writers move on has gone back.
fn is_older(before: &Northbound, after: &Northbound) -> bool {
    let went_back = |(uuid, was): (Uuid, &Arc<Global>)| after.global.get(uuid).is_some_and(|is| is.nb_cfg < was.nb_cfg);
    before.global.iter().any(went_back)
}

/// Whether no row of before is there any more, as in a database that was rebuilt before we saw it empty.
fn nothing_stayed(before: &Northbound, after: &Northbound) -> bool {
    fn stays<R: Row>(before: &Table<R>, after: &Table<R>) -> bool {
        before.iter().any(|(uuid, _)| after.get(uuid).is_some())
    }
    !stays(&before.load_balancers, &after.load_balancers)
        && !stays(&before.routers, &after.routers)
        && !stays(&before.switches, &after.switches)
}

/// The rows of one table that one side has and the other has not.
fn only_in<'a, R: Row>(
    side: &'a Table<R>,
    other: &'a Table<R>,
    rows: &'a Rows,
) -> Box<dyn Iterator<Item = (Uuid, &'a Arc<R>)> + 'a> {
    let is_only_here = |(uuid, _): &(Uuid, &Arc<R>)| other.get(*uuid).is_none();
    match rows {
        Rows::Everything => Box::new(side.iter().filter(is_only_here)),
        Rows::Some(rows) => {
            let changed = rows.iter().filter(|id| *id.table == *R::TABLE);
            Box::new(changed.filter_map(|id| Some((id.uuid, side.get(id.uuid)?))).filter(is_only_here))
        }
    }
}

#[cfg(test)]
mod tests {
    use groundcrew_core::key::ServiceKey;
    use groundcrew_core::provider::Owner;
    use ovsdb_client::{Touched, apply};
    use serde_json::{Value, json};

    use super::*;

    fn count(nb: &Northbound) -> Census {
        let mut census = Census::default();
        census.change(&Northbound::default(), nb, &Rows::Everything, "c1");
        census
    }

    fn ledger(nb: &Northbound) -> Ledger {
        Ledger { census: count(nb), ..Ledger::default() }
    }

    /// Applies one message of the server and tells what it took.
    fn enter(ledger: &mut Ledger, nb: &mut Northbound, updates: &Value) -> Option<Shift> {
        let before = nb.clone();
        let mut touched = Touched::default();
        apply(&updates.to_string(), nb, &mut touched).unwrap();
        let shift = ledger.enter(&before, nb, &Rows::Some(touched.into_rows()), "c1");
        assert_eq!(ledger.census, count(nb), "it followed the change");
        shift
    }

    fn taken(nb: &mut Northbound, updates: &Value) -> Option<Shift> {
        enter(&mut ledger(nb), nb, updates)
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
    fn a_router_that_comes_back_later_was_made_again_too() {
        let mut nb = full();
        let mut ledger = ledger(&nb);
        assert_eq!(enter(&mut ledger, &mut nb, &json!({ "Logical_Router": { id(5): gone() } })), None);
        let other = json!({ "Logical_Router": { id(8): named("new") } });
        assert_eq!(enter(&mut ledger, &mut nb, &other), None, "a new one is just new");
        let back = json!({ "Logical_Router": { id(7): named("shop") } });
        let shift = enter(&mut ledger, &mut nb, &back).unwrap();
        assert_eq!((shift.recreated, shift.replaced), (vec!["shop".to_owned()], 1));
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
    fn a_database_that_was_rebuilt_and_filled_by_us_before_anybody_looked_is_no_new_router() {
        let mut nb = full();
        let global = |n| json!({ id(n): { "insert": { "nb_cfg": 1 } } });
        assert_eq!(taken(&mut nb, &json!({ "NB_Global": global(8) })), None);
        let rows = json!({
            "Load_Balancer": { id(3): gone(), id(4): gone() },
            "Logical_Router": { id(5): gone(), id(15): named("shop") },
            "Logical_Switch": { id(6): gone(), id(16): named("shop-default") },
        });
        assert!(!taken(&mut nb.clone(), &rows).unwrap().emptied, "the same database");
        let mut rebuilt = rows;
        rebuilt["NB_Global"] = global(18);
        rebuilt["NB_Global"][id(8)] = gone();
        assert!(taken(&mut nb.clone(), &rebuilt).unwrap().emptied);
        let mut restored = rebuilt;
        restored["Load_Balancer"][id(1)] = gone();
        restored["Load_Balancer"][id(11)] = ours("a");
        let shift = taken(&mut nb, &restored).unwrap();
        assert_eq!(
            (shift.emptied, shift.replaced, shift.recreated.len()),
            (false, 3, 2),
            "one of ours is from a backup"
        );
    }

    #[test]
    fn an_emptied_database_is_told_as_such() {
        let mut nb = full();
        let before = std::mem::take(&mut nb);
        let mut ledger = ledger(&before);
        let shift = ledger.enter(&before, &Northbound::default(), &Rows::Everything, "c1").unwrap();
        assert!(shift.emptied && shift.unseen);
        assert_eq!((shift.ours_removed, shift.others_removed), (2, 2));
        // Nobody deleted the routers that come back.
        let back = json!({ "Logical_Router": { id(7): named("shop") } });
        let shift = enter(&mut ledger, &mut nb, &back).unwrap();
        assert!(shift.emptied && shift.recreated.is_empty());
    }

    /// Remembers what it was shown.
    #[derive(Default)]
    struct Witness(Mutex<Vec<Shift>>);

    impl Attribute for Witness {
        fn observe(&self, shift: &Shift, _: Moment) {
            lock(&self.0).push(shift.clone());
        }

        fn cause(&self, _: &Round) -> Cause {
            Cause::unknown()
        }
    }

    fn evidence() -> (Arc<Witness>, Evidence) {
        let witness = Arc::new(Witness::default());
        (witness.clone(), Evidence::new(witness, "c1".into()))
    }

    #[test]
    fn an_older_state_of_the_database_that_is_put_back_is_a_restore_though_all_keep_their_ids() {
        let with_cfg = |n: i64| {
            let mut nb = full();
            taken(&mut nb, &json!({ "NB_Global": { id(8): { "insert": { "nb_cfg": n } } } }));
            nb
        };
        let after = |n: i64| {
            let mut nb = with_cfg(n);
            taken(&mut nb, &json!({ "Load_Balancer": { id(2): gone() } }));
            nb
        };
        let round = |seen| Round { seen, drifts: Vec::new() };
        for (before, after, label) in [(7, 7, "unknown_writer"), (7, 8, "unknown_writer"), (7, 5, "database_restored")]
            .map(|(was, is, label)| (with_cfg(was), after(is), label))
        {
            assert_eq!(is_older(&before, &after), label == "database_restored");
            let (_, evidence) = evidence();
            let now = Moment::now();
            *lock(&evidence.restored) = is_older(&before, &after).then_some(now);
            assert_eq!(evidence.cause(&round(now)).label, label);
            let later = now + Duration::from_mins(1);
            assert_eq!(evidence.cause(&round(later)).label, "unknown_writer", "it is long over");
        }
        let mut rebuilt = Northbound::default();
        taken(&mut rebuilt, &json!({ "NB_Global": { id(18): { "insert": { "nb_cfg": 0 } } } }));
        assert!(!is_older(&with_cfg(7), &rebuilt), "another database");
    }

    #[test]
    fn what_is_gone_at_the_start_is_shown_once_and_what_is_new_is_not() {
        let living = |n: u128| Living {
            owner: Owner { key: ServiceKey::new("shop", n.to_string()), uid: Uuid::from_u128(n) },
            addresses: Vec::new(),
        };
        let swept = Shift { ours_removed: 1, ours_left: 2, native_left: 1, others_left: 1, ..Shift::default() };
        for (was_led, emptied) in [(true, false), (false, true)] {
            let (witness, evidence) = evidence();
            evidence.starts(&[living(1), living(7)], &full(), was_led);
            evidence.starts(&[], &full(), true);
            evidence.started();
            evidence.started();
            assert_eq!(*lock(&witness.0), [Shift { emptied, unseen: true, ..swept.clone() }]);
        }
        let (witness, evidence) = evidence();
        evidence.starts(&[living(1)], &full(), true);
        evidence.started();
        assert_eq!(*lock(&witness.0), []);
    }
}
