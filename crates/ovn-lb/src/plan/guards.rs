//! The port group that holds the rules of one Service: made, replaced and taken away as a whole.

use std::collections::BTreeSet;
use std::sync::Arc;

use groundcrew_core::provider::Owner;
use ovsdb_client::{Atom, Op, Uuid, Value};

use super::{Held, Plan, Step};
use crate::desired::{Desired, Site};
use crate::marks;
use crate::northbound::{Acl, LoadBalancer, Northbound, PortGroup};
use crate::ranges::{ACTION, DIRECTION, Guard, PRIORITY};

pub(crate) const GROUP_TABLE: &str = "Port_Group";
const ACL_TABLE: &str = "ACL";

impl Plan {
    /// Plans the rules of a Service. `false` if they cannot be enforced: then it must not have a row either.
    pub(super) fn guard(
        &mut self,
        desired: &Desired,
        ours: &[(Uuid, Arc<LoadBalancer>)],
        site: &Site,
        nb: &Northbound,
    ) -> bool {
        let mut groups = groups(&desired.owner, site, nb);
        if desired.is_nothing() {
            groups.retain(|(_, g)| marks::owner(&g.external_ids, &site.cluster).is_none_or(|o| o == desired.owner));
        }
        let Some(guard) = &desired.guard else {
            self.steps.extend(groups.into_iter().map(|(uuid, group)| unguard(uuid, group)));
            return true;
        };
        if let Some(port) = nb.unswitched_port(&desired.router) {
            self.held.push(Held::Unguarded { router: desired.router.clone(), port: port.to_string() });
            self.steps.extend(groups.into_iter().map(|(uuid, group)| unguard(uuid, group)));
            return false;
        }
        let (kept, surplus): (Vec<_>, Vec<_>) = groups.into_iter().partition(|(_, group)| *group.name == guard.name);
        self.steps.extend(surplus.into_iter().map(|(uuid, group)| unguard(uuid, group)));
        let rows: Vec<_> = desired.rows.iter().filter_map(|row| Some(ours[super::kept(row, ours)?].0)).collect();
        let routers = nb.serving(&desired.router, &rows);
        // Where no router serves the rows nobody can say which ports lead there: none would open what is closed.
        let ports: BTreeSet<_> = match &routers[..] {
            [] => kept.iter().flat_map(|(_, group)| group.ports.iter().copied()).collect(),
            routers => routers.iter().flat_map(|router| nb.ports_to(router)).collect(),
        };
        let found = kept.first().map(|(_, group)| wrongs(group, guard, &ports, nb));
        if found.as_ref().is_none_or(|wrongs| !wrongs.is_empty()) {
            let found = found.map_or_else(|| "none".to_owned(), |wrongs| wrongs.join(", "));
            self.steps.push(Step::Guard { guard: guard.clone(), ports, found });
        }
        true
    }
}

fn unguard(uuid: Uuid, group: &PortGroup) -> Step {
    Step::Unguard { uuid, name: group.name.clone() }
}

fn groups<'a>(owner: &Owner, site: &Site, nb: &'a Northbound) -> Vec<(Uuid, &'a PortGroup)> {
    let marked = nb.port_groups.find(|by| &by.uid, owner.uid);
    let ours = marked.filter(|(_, group)| group.external_ids.get(marks::CLUSTER) == Some(&*site.cluster));
    ours.map(|(uuid, group)| (uuid, &**group)).collect()
}

/// What is not as it should be with a group.
fn wrongs(group: &PortGroup, guard: &Guard, ports: &BTreeSet<Uuid>, nb: &Northbound) -> Vec<&'static str> {
    let rules: Vec<_> = group.acls.iter().filter_map(|acl| nb.acls.get(*acl)).collect();
    let found: BTreeSet<_> = rules.iter().map(|acl| &*acl.r#match).collect();
    let right = |acl: &Acl| {
        acl.priority == PRIORITY
            && *acl.direction == *DIRECTION
            && *acl.action == *ACTION
            && acl.tier == 0
            && acl.options.is_empty()
    };
    let all = group.acls.len() == guard.matches.len()
        && rules.iter().all(|acl| right(acl))
        && found == guard.matches.iter().map(String::as_str).collect();
    let checks = [
        ("other rules", all),
        ("other ports", group.ports.iter().copied().collect::<BTreeSet<_>>() == *ports),
        ("other marks", super::has_marks(&group.external_ids, &guard.marks)),
    ];
    checks.into_iter().filter(|(_, right)| !right).map(|(what, _)| what).collect()
}

/// Makes the group anew in the place of the one that is there. Its name, like a derived uuid, is nobody's by accident; and
/// the old rules go with the old group, in the same transaction.
pub(super) fn operations(guard: &Guard, ports: &BTreeSet<Uuid>) -> Vec<Op> {
    let named = |n: usize| format!("{}_{n}", guard.name);
    let rules = guard.matches.iter().enumerate().map(|(n, text)| {
        Op::insert(ACL_TABLE)
            .set("priority", PRIORITY)
            .set("direction", DIRECTION)
            .set("match", text)
            .set("action", ACTION)
            .set("external_ids", &guard.marks)
            .named(named(n))
            .into()
    });
    let group = Op::insert(GROUP_TABLE)
        .set("name", &guard.name)
        .set("ports", Value::set(ports.iter().copied()))
        .set("acls", Value::set((0..guard.matches.len()).map(|n| Atom::named_uuid(named(n)))))
        .set("external_ids", &guard.marks)
        .into();
    let old = Op::delete(GROUP_TABLE, [ovsdb_client::Condition::eq("name", &guard.name)]);
    std::iter::once(old).chain(rules).chain([group]).collect()
}
