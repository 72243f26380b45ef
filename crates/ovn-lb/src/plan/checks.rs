//! The health checks of one row: rows of their own, which live as long as it refers to them.

use ovsdb_client::{Condition, Op, Uuid, Value};

use crate::desired::{Check, Row};
use crate::northbound::{LoadBalancer, Northbound};

const TABLE: &str = "Load_Balancer_Health_Check";

/// How to bring a row's health checks to what they should be.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Checks {
    /// Everything that the row should refer to, in order.
    pub(super) refer: Vec<Uuid>,
    /// To be made.
    pub(super) make: Vec<Check>,
    /// There under this uuid and with this address, but not as they should be.
    pub(super) change: Vec<(Uuid, Box<str>, Check)>,
}

impl Checks {
    pub(super) fn new(row: &Row, seen: &LoadBalancer, nb: &Northbound) -> Self {
        let mut checks = Self::default();
        for check in &row.checks {
            let of_vip = |uuid: &&Uuid| nb.health_checks.get(**uuid).is_some_and(|found| *found.vip == *check.vip);
            // In a restored database it is under another uuid, and known by its address.
            let uuid = match nb.health_checks.get(check.uuid) {
                Some(_) => check.uuid,
                None => seen.health_check.iter().find(of_vip).copied().unwrap_or(check.uuid),
            };
            match nb.health_checks.get(uuid) {
                Some(found) if *found.vip == *check.vip && found.options == check.options => {}
                Some(found) => checks.change.push((uuid, found.vip.clone(), check.clone())),
                None => checks.make.push(check.clone()),
            }
            checks.refer.push(uuid);
        }
        checks.refer.sort_unstable();
        checks
    }

    /// Whether nothing is to be done.
    pub(super) fn are_there(&self, seen: &LoadBalancer) -> bool {
        self.make.is_empty() && self.change.is_empty() && *self.refer == *seen.health_check
    }

    /// The operations that come before the row refers to them.
    pub(super) fn operations(&self) -> Vec<Op> {
        let content = |check: &Check| [("vip", Value::from(&check.vip)), ("options", Value::from(&check.options))];
        let made = self.make.iter().map(|check| {
            let insert = Op::insert(TABLE).uuid(check.uuid);
            content(check).into_iter().fold(insert, |insert, (column, value)| insert.set(column, value)).into()
        });
        let changed = self.change.iter().flat_map(|(uuid, vip, check)| {
            // Gone meanwhile, it would leave the row with a reference to nothing.
            let guard = Op::wait(TABLE, [Condition::uuid(*uuid)]).has("vip", &**vip);
            let update = Op::update(TABLE, [Condition::uuid(*uuid)]);
            let update = content(check).into_iter().fold(update, |update, (column, value)| update.set(column, value));
            [guard.into(), update.into()]
        });
        made.chain(changed).collect()
    }
}
