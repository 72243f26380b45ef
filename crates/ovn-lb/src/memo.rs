//! What was last seen to be as it is wanted, so that looking at it again costs next to nothing.
//!
//! Rows of the replica are shared objects that are replaced when they change. While the wish is the same and the rows are
//! the very same objects, still attached, there is nothing to compare. Ten thousand Services are looked at in the time of
//! a few hundred comparisons. And when a row is gone that was right, it is put back as it was.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use groundcrew_core::provider::{Caveat, Owner};
use ovsdb_client::{Table, Uuid};

use crate::desired::{self, Clients, PROTOCOLS};
use crate::marks;
use crate::northbound::{Kind, LoadBalancer, LogicalRouter, LogicalRouterPort, LogicalSwitch, Northbound};
use crate::plan::{Step, protocol};

#[derive(Default)]
pub(crate) struct Memos(Mutex<State>);

#[derive(Default)]
struct State {
    /// What lies inside a project is told by these, so that all is forgotten when one changes.
    ports: Table<LogicalRouterPort>,
    /// Of northd, likewise: it tells what OVN can do.
    release: Option<(u32, u32)>,
    by_uid: HashMap<Uuid, Memo>,
    /// What was there when something was last asked, and how often that changed.
    tables: (Table<LoadBalancer>, Table<LogicalRouter>, Table<LogicalSwitch>),
    version: u64,
}

struct Memo {
    fingerprint: u64,
    /// The tables, and the addresses, that it was last seen to hold on.
    seen: Option<(u64, u64)>,
    router: Uuid,
    /// Whether it was on one chassis as a whole, which tells what is outside.
    is_bound: bool,
    switch: Uuid,
    rows: Box<[Row]>,
}

struct Row {
    uuid: Uuid,
    row: Arc<LoadBalancer>,
    on_router: bool,
    on_switch: bool,
}

/// What a memo says about a Service.
#[derive(Debug, PartialEq)]
pub(crate) enum Known {
    /// It has what it wants: nothing of that has changed.
    Same,
    /// It wants what it wanted before, which is other than what is there: these were its rows. So nobody has to find out
    /// what a lost row said.
    Other(Vec<desired::Row>),
    Nothing,
}

/// Everything that a comparison depends on.
pub(crate) struct Question<'a> {
    /// The Service's uid.
    pub(crate) uid: Uuid,
    /// Of its wish.
    pub(crate) fingerprint: u64,
    pub(crate) router: &'a str,
    pub(crate) switch: &'a str,
    /// The version of the addresses, where they have one.
    pub(crate) addresses: Option<u64>,
    pub(crate) nb: &'a Northbound,
}

impl Memos {
    /// Whether it was seen to have what it wants, and nothing at all has changed since, its own or anybody's. `addresses`
    /// is their version.
    pub(crate) fn stands(&self, uid: Uuid, fingerprint: u64, addresses: u64, nb: &Northbound) -> bool {
        let mut state = self.lock();
        state.follow(nb);
        let seen = Some((state.version, addresses));
        state.by_uid.get(&uid).is_some_and(|memo| memo.fingerprint == fingerprint && memo.seen == seen)
    }

    /// What is known from before.
    pub(crate) fn ask(&self, question: &Question<'_>, owner: &Owner, cluster: &str) -> Known {
        let mut state = self.lock();
        state.follow(question.nb);
        let version = state.version;
        let Some(memo) = state.by_uid.get_mut(&question.uid) else { return Known::Nothing };
        memo.seen = None;
        // Somebody else's row of the same name is told.
        if !memo.is_about(question) || memo.has_namesakes(question.nb) {
            return Known::Nothing;
        }
        if memo.still_holds(question) {
            memo.seen = question.addresses.map(|addresses| (version, addresses));
            return Known::Same;
        }
        let rows: Option<_> = memo.rows.iter().map(|known| known.as_made(owner, cluster)).collect();
        rows.map_or(Known::Nothing, Known::Other)
    }

    /// It has what it wants.
    pub(crate) fn note(&self, question: &Question<'_>) {
        let Some(memo) = Memo::of(question) else { return };
        let mut state = self.lock();
        if state.is_about(question.nb) {
            state.by_uid.insert(question.uid, memo);
        }
    }

    pub(crate) fn forget(&self, uid: Uuid) {
        self.lock().by_uid.remove(&uid);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn is_about(&self, nb: &Northbound) -> bool {
        self.ports.is_same(&nb.router_ports) && self.release == nb.northd_release()
    }

    fn follow(&mut self, nb: &Northbound) {
        if !self.is_about(nb) {
            (self.ports, self.release) = (nb.router_ports.clone(), nb.northd_release());
            self.by_uid.clear();
        }
        let (rows, routers, switches) = &self.tables;
        if !(rows.is_same(&nb.load_balancers) && routers.is_same(&nb.routers) && switches.is_same(&nb.switches)) {
            self.tables = (nb.load_balancers.clone(), nb.routers.clone(), nb.switches.clone());
            self.version += 1;
        }
    }
}

impl Memo {
    fn of(question: &Question<'_>) -> Option<Self> {
        let (nb, uid) = (question.nb, question.uid);
        let (router, switch) = (only(nb, Kind::Router, question.router)?, only(nb, Kind::Switch, question.switch)?);
        let (on_router, on_switch) = (nb.place(Kind::Router, router)?.1, nb.place(Kind::Switch, switch)?.1);
        let rows = nb.load_balancers.find(|by| &by.uid, uid).map(|(uuid, row)| Row {
            uuid,
            row: row.clone(),
            on_router: on_router.contains(&uuid),
            on_switch: on_switch.contains(&uuid),
        });
        let is_bound = nb.routers.get(router)?.is_bound();
        Some(Self { fingerprint: question.fingerprint, seen: None, router, is_bound, switch, rows: rows.collect() })
    }

    /// Whether the wish and its places are the same.
    fn is_about(&self, question: &Question<'_>) -> bool {
        let nb = question.nb;
        self.fingerprint == question.fingerprint
            && only(nb, Kind::Router, question.router) == Some(self.router)
            && only(nb, Kind::Switch, question.switch) == Some(self.switch)
            && nb.routers.get(self.router).is_some_and(|router| router.is_bound() == self.is_bound)
    }

    /// Whether there are other rows under the names of its own.
    fn has_namesakes(&self, nb: &Northbound) -> bool {
        let named = |known: &Row| {
            nb.load_balancers.find(|by| &by.name, known.row.name.clone()).any(|(uuid, _)| uuid != known.uuid)
        };
        self.rows.iter().any(named)
    }

    /// Whether the rows are the same, and where they were.
    fn still_holds(&mut self, question: &Question<'_>) -> bool {
        let nb = question.nb;
        let (Some((_, on_router)), Some((_, on_switch))) =
            (nb.place(Kind::Router, self.router), nb.place(Kind::Switch, self.switch))
        else {
            return false;
        };
        let mut found = nb.load_balancers.find(|by| &by.uid, question.uid);
        let same = self.rows.iter_mut().all(|known| {
            found.next().is_some_and(|(uuid, row)| {
                // Another object after it was put back just as it was.
                if !Arc::ptr_eq(row, &known.row) && *row == known.row {
                    known.row = row.clone();
                }
                uuid == known.uuid
                    && Arc::ptr_eq(row, &known.row)
                    && on_router.contains(&uuid) == known.on_router
                    && on_switch.contains(&uuid) == known.on_switch
            })
        });
        same && found.next().is_none()
    }
}

impl Row {
    /// As a plan makes it; `None` where it was not made by one, as in a database that was restored.
    fn as_made(&self, owner: &Owner, cluster: &str) -> Option<desired::Row> {
        let clients = match (self.on_router, self.on_switch) {
            (true, true) => Clients::All,
            (true, false) => Clients::Outside,
            (false, true) => Clients::Inside,
            (false, false) => return None,
        };
        let protocol = PROTOCOLS.into_iter().find(|one| one.to_string() == protocol(&self.row))?;
        let uuid = marks::row_uuid(cluster, owner, protocol);
        let uuid = if clients == Clients::Inside { marks::inside_row_uuid(uuid) } else { uuid };
        let LoadBalancer { name, vips, options, selection_fields, ip_port_mappings, external_ids, .. } = &*self.row;
        (uuid == self.uuid).then(|| desired::Row {
            uuid,
            name: name.to_string(),
            clients,
            protocol,
            vips: vips.clone(),
            options: options.clone(),
            selection_fields: selection_fields.clone(),
            checks: Vec::new(),
            mappings: ip_port_mappings.clone(),
            marks: marks::ours(external_ids),
        })
    }
}

/// The one router or switch of this name.
fn only(nb: &Northbound, kind: Kind, name: &str) -> Option<Uuid> {
    let (first, second) = match kind {
        Kind::Router => {
            let mut found = nb.routers.find(|by| &by.name, name).map(|(uuid, _)| uuid);
            (found.next(), found.next())
        }
        Kind::Switch => {
            let mut found = nb.switches.find(|by| &by.name, name).map(|(uuid, _)| uuid);
            (found.next(), found.next())
        }
        Kind::Group => return None,
    };
    first.filter(|_| second.is_none())
}

/// Plans of comparisons that found a difference, for the repair that follows. One that is out of date by then fails its
/// guards, like any other that somebody else was quicker than.
#[derive(Default)]
pub(crate) struct Plans(Mutex<HashMap<Uuid, Kept>>);

struct Kept {
    fingerprint: u64,
    steps: Vec<Step>,
    caveats: Vec<Caveat>,
}

impl Plans {
    pub(crate) fn keep(&self, uid: Uuid, fingerprint: u64, steps: Vec<Step>, caveats: Vec<Caveat>) {
        self.lock().insert(uid, Kept { fingerprint, steps, caveats });
    }

    /// The plan for this wish, once.
    pub(crate) fn take(&self, uid: Uuid, fingerprint: u64) -> Option<(Vec<Step>, Vec<Caveat>)> {
        let kept = self.lock().remove(&uid)?;
        (kept.fingerprint == fingerprint).then_some((kept.steps, kept.caveats))
    }

    pub(crate) fn forget(&self, uid: Uuid) {
        self.lock().remove(&uid);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Uuid, Kept>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use ovsdb_client::{Touched, apply};
    use serde_json::{Value, json};

    use super::*;
    use crate::marks;
    use crate::testing::owner;

    impl Memos {
        fn holds(&self, question: &Question<'_>) -> bool {
            self.ask(question, &owner("shop", "web"), "c1") == Known::Same
        }
    }

    fn id(n: u128) -> String {
        Uuid::from_u128(n).to_string()
    }

    fn change(nb: &mut Northbound, updates: &Value) {
        apply(&updates.to_string(), nb, &mut Touched::default()).unwrap();
    }

    fn served() -> Northbound {
        let mut nb = Northbound::default();
        let marks = [[marks::CLUSTER, "c1"], [marks::UID, &id(100)]];
        let member = json!(["uuid", id(1)]);
        change(
            &mut nb,
            &json!({
                "Load_Balancer": { id(1): { "insert": { "name": "web", "external_ids": ["map", marks] } } },
                "Logical_Router": { id(2): { "insert": { "name": "shop", "load_balancer": member } } },
                "Logical_Switch": { id(3): { "insert": { "name": "shop-default", "load_balancer": member } } },
                "Logical_Router_Port": { id(4): { "insert": { "name": "p" } } },
            }),
        );
        nb
    }

    fn question(nb: &Northbound, fingerprint: u64) -> Question<'_> {
        Question {
            uid: Uuid::from_u128(100),
            fingerprint,
            router: "shop",
            switch: "shop-default",
            addresses: Some(1),
            nb,
        }
    }

    #[test]
    fn anything_that_a_comparison_depends_on_ends_a_memo() {
        let toggle = |n: u128| json!(["uuid", id(n)]);
        let changes = [
            (
                "what OVN can do",
                json!({ "NB_Global": { id(9): { "insert": {
                    "options": ["map", [["northd_internal_version", "22.03.2-x"]]] } } } }),
            ),
            ("the row", json!({ "Load_Balancer": { id(1): { "modify": { "name": "other" } } } })),
            ("its end", json!({ "Load_Balancer": { id(1): { "delete": null } } })),
            (
                "a second row",
                json!({ "Load_Balancer": { id(9): { "insert": {
                "external_ids": ["map", [[marks::UID, id(100)]]] } } } }),
            ),
            (
                "the router's members",
                json!({ "Logical_Router": { id(2): { "modify": { "load_balancer": toggle(1) } } } }),
            ),
            (
                "the switch's members",
                json!({ "Logical_Switch": { id(3): { "modify": { "load_balancer": toggle(1) } } } }),
            ),
            (
                "the router's chassis",
                json!({ "Logical_Router": { id(2): { "modify": { "options": ["map", [["chassis", "gw"]]] } } } }),
            ),
            ("the router's name", json!({ "Logical_Router": { id(2): { "modify": { "name": "other" } } } })),
            ("a second router", json!({ "Logical_Router": { id(9): { "insert": { "name": "shop" } } } })),
            ("a router port", json!({ "Logical_Router_Port": { id(4): { "modify": { "name": "q" } } } })),
        ];
        for (what, updates) in changes {
            let (memos, mut nb) = (Memos::default(), served());
            assert!(!memos.holds(&question(&nb, 7)));
            memos.note(&question(&nb, 7));
            assert!(memos.holds(&question(&nb, 7)));
            change(&mut nb, &updates);
            assert!(!memos.holds(&question(&nb, 7)), "{what}");
        }
    }

    #[test]
    fn a_row_that_is_put_back_as_it_was_is_no_reason_to_compare() {
        let (memos, mut nb) = (Memos::default(), served());
        assert!(!memos.holds(&question(&nb, 7)));
        memos.note(&question(&nb, 7));
        let row = nb.load_balancers.get(Uuid::from_u128(1)).unwrap().clone();
        let toggle = json!({ "modify": { "load_balancer": ["uuid", id(1)] } });
        let places =
            json!({ "Logical_Router": { id(2): toggle.clone() }, "Logical_Switch": { id(3): toggle.clone() } });
        change(&mut nb, &json!({ "Load_Balancer": { id(1): { "delete": null } } }));
        change(&mut nb, &places);
        assert!(!memos.holds(&question(&nb, 7)));
        let marks: Vec<_> = row.external_ids.iter().map(|(key, value)| [key, value]).collect();
        let back = json!({ "insert": { "name": &*row.name, "external_ids": ["map", marks] } });
        change(&mut nb, &json!({ "Load_Balancer": { id(1): back } }));
        assert!(!memos.holds(&question(&nb, 7)), "it is attached to nothing");
        change(&mut nb, &places);
        assert!(memos.holds(&question(&nb, 7)));
    }

    #[test]
    fn another_wish_or_another_place_ends_it_and_others_rows_do_not() {
        let (memos, mut nb) = (Memos::default(), served());
        memos.holds(&question(&nb, 7));
        memos.note(&question(&nb, 7));
        let others = json!({ "Load_Balancer": { id(50): { "insert": { "name": "foreign" } } },
            "Logical_Router": { id(2): { "modify": { "load_balancer": ["uuid", id(50)] } } } });
        change(&mut nb, &others);
        assert!(memos.holds(&question(&nb, 7)));
        assert!(!memos.holds(&Question { router: "elsewhere", ..question(&nb, 7) }));
        memos.note(&question(&nb, 7));
        assert!(!memos.holds(&question(&nb, 8)));
    }

    #[test]
    fn while_nothing_at_all_changes_one_word_is_enough() {
        let (memos, mut nb) = (Memos::default(), served());
        let uid = Uuid::from_u128(100);
        let stands = |fingerprint, addresses, nb: &Northbound| memos.stands(uid, fingerprint, addresses, nb);
        memos.holds(&question(&nb, 7));
        memos.note(&question(&nb, 7));
        assert!(!stands(7, 1, &nb), "nobody has asked since");
        assert!(memos.holds(&question(&nb, 7)));
        assert!(stands(7, 1, &nb));
        assert!(!stands(8, 1, &nb), "another wish");
        assert!(!stands(7, 2, &nb), "other addresses");
        let others = json!({ "Load_Balancer": { id(50): { "insert": { "name": "foreign" } } } });
        change(&mut nb, &others);
        assert!(!stands(7, 1, &nb), "somebody's row");
        assert!(memos.holds(&question(&nb, 7)) && stands(7, 1, &nb));
        change(&mut nb, &json!({ "Logical_Router_Port": { id(4): { "modify": { "name": "q" } } } }));
        assert!(!stands(7, 1, &nb), "a router port");
        let elsewhere = Question { addresses: None, ..question(&nb, 7) };
        memos.note(&elsewhere);
        assert!(memos.holds(&elsewhere) && !stands(7, 1, &nb), "addresses without a version");
    }
}
