//! What to change in the northbound database so that it says what one Service wants.
//!
//! Pure and synchronous. The same inputs give the same steps in the same order; a plan that was carried out and is made
//! again is empty; and what does not carry our mark is in no step.

mod checks;
mod groups;
mod guards;
mod left;
mod legacy;
mod step;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::sync::Arc;

use groundcrew_core::provider::{Difference, Owner, Protocol};
use ovsdb_client::{BlockSet, StrMap, Uuid};

use crate::desired::{Desired, Row, Site};
use crate::error::Error;
use crate::marks;
use crate::northbound::{Kind, LoadBalancer, Northbound, Place};

pub(crate) use checks::Checks;
use groups::{leave_group, unproven};
pub(crate) use guards::GROUP_TABLE;
pub(crate) use left::is_as_left;
pub(crate) use legacy::{Legacy, discard, legacy};
pub(crate) use step::{Step, TABLE, attach, protocol};

/// The steps for one Service, and what stands in the way of others.
#[derive(Debug, Clone, Default)]
pub(crate) struct Plan {
    /// In the order in which they are carried out, in one transaction.
    pub(crate) steps: Vec<Step>,
    /// Told to the user, never acted on.
    pub(crate) held: Vec<Held>,
}

/// A router, switch or group, and the rows that are on it.
type Spot<'a> = (Place, &'a BlockSet<Uuid>);

/// Something that was left alone on purpose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Held {
    /// There is no router, switch or group of this name.
    Missing { kind: Kind, name: String },
    /// There are several, and nothing says which one is meant.
    Ambiguous { kind: Kind, name: String },
    /// The group is not on this router or switch, and no row of ours says that it ever was.
    GroupDetached { group: String, kind: Kind, name: String },
    /// The group is on another project's router.
    GroupShared { group: String, router: String },
    /// A row that kube-dc made under this Service's name has some of its addresses, but not just these.
    Unclear { name: String, uuid: Uuid },
    /// A row under its own uuid has the mark of another cluster.
    Marked { name: String, uuid: Uuid },
    /// The Service has source ranges, and this port of the router is one where nothing can enforce them.
    Unguarded { router: String, port: String },
}

impl Plan {
    /// The same for a drift report: what is wrong rather than what to do.
    pub(crate) fn differences(&self) -> Vec<Difference> {
        let steps = self.steps.iter().flat_map(Step::differences);
        steps.chain(self.held.iter().map(Held::difference)).collect()
    }
}

/// Compares what one Service should have with what is there.
pub(crate) fn plan(desired: &Desired, site: &Site, nb: &Northbound) -> Plan {
    let mut plan = Plan::default();
    let mut ours = ours(&desired.owner, site, nb);
    if desired.is_nothing() {
        // The uid alone may be what a tenant has written on something: it is no reason to take away what is another's.
        ours.retain(|(_, row)| marks::owner(&row.external_ids, &site.cluster).is_none_or(|o| o == desired.owner));
    }
    let staying = staying(desired, &ours, site, nb);
    if let Some(staying) = &staying {
        let moves =
            [(Kind::Router, &desired.router, &staying.router), (Kind::Switch, &desired.switch, &staying.switch)];
        for (kind, now, _) in moves.into_iter().filter(|(_, now, before)| now != before) {
            plan.locate(kind, now, nb);
        }
    }
    let desired = staying.as_ref().unwrap_or(desired);
    // In the same transaction as the rows: there is no moment in which one is open to everybody.
    let rows: &[Row] = if plan.guard(desired, &ours, site, nb) { &desired.rows } else { &[] };
    let places = if rows.is_empty() { Vec::new() } else { plan.places(&ours, desired, nb) };
    let needed = if desired.group.is_some() { 3 } else { 2 };
    let is_grouped = desired.group.is_some() && places.len() == needed;
    // The group of places that cannot all be told serves whom it serves.
    let is_left = |place: &Place, row: Uuid| {
        let has_group = places.iter().any(|(place, _)| place.kind == Kind::Group);
        has_group && !is_grouped && (place.kind == Kind::Group || nb.is_on(row, place.kind, place.uuid))
    };
    let mut elsewhere = Vec::new();
    let mut all_there = true;
    for row in rows {
        let kept = keep(row, &mut ours).or_else(|| plan.adopt(row, desired, site, nb));
        let uuid = match &kept {
            Some((uuid, seen)) => {
                let checks = Checks::new(row, seen, nb);
                let row = if desired.group.is_some() && !is_grouped { unproven(row, seen) } else { Cow::Borrowed(row) };
                if !says(seen, &row) || !checks.are_there(seen) {
                    let (uuid, seen, row) = (*uuid, seen.clone(), row.into_owned());
                    plan.steps.push(Step::Update { uuid, seen, row, checks });
                }
                plan.leave(*uuid, seen, desired, site, nb);
                elsewhere.extend(leave_group(*uuid, seen, desired, site, nb));
                *uuid
            }
            // A row that is attached to one of the two only would answer some clients and leave others in the dark. One that
            // is there stays on both when its group goes.
            None if places.len() < needed || plan.is_barred(row, nb) || plan.is_unclear(row, desired, site, nb) => {
                all_there = false;
                continue;
            }
            None => {
                let checks = Checks::new(row, &LoadBalancer::default(), nb);
                plan.steps.push(Step::Insert { row: row.clone(), checks });
                row.uuid
            }
        };
        for (place, members) in places.iter().filter(|(place, _)| !is_left(place, uuid)) {
            let belongs = if is_grouped { place.kind == Kind::Group } else { row.clients.are_served_by(place.kind) };
            match (belongs, members.contains(&uuid)) {
                (true, false) => {
                    plan.steps.push(Step::Attach { place: place.clone(), row: uuid, name: row.name.clone() });
                }
                (false, true) => {
                    elsewhere.push(Step::Detach { place: place.clone(), row: uuid, name: row.name.as_str().into() });
                }
                _ => {}
            }
        }
    }
    // Not before the row is there that takes its place.
    if all_there {
        plan.steps.extend(elsewhere);
    }
    // A row goes with its attachments: the references to it are weak.
    let surplus = ours.into_iter().map(|(uuid, seen)| Step::Delete {
        uuid,
        name: seen.name.clone(),
        wanted: !rows.is_empty(),
        marked: marks::owner(&seen.external_ids, &site.cluster).is_some(),
    });
    plan.steps.extend(surplus);
    if !rows.is_empty() {
        plan.discard(desired, site, nb);
    }
    plan
}

/// The rows of this owner: those with its marks, and those under its derived uuids whose marks somebody took away.
pub(crate) fn ours(owner: &Owner, site: &Site, nb: &Northbound) -> Vec<(Uuid, Arc<LoadBalancer>)> {
    let rows = &nb.load_balancers;
    let marked = rows.find(|by| &by.uid, owner.uid);
    let mut found: Vec<_> = marked
        .filter(|(_, row)| row.external_ids.get(marks::CLUSTER) == Some(&*site.cluster))
        .map(|(uuid, row)| (uuid, row.clone()))
        .collect();
    for protocol in [Protocol::Tcp, Protocol::Udp, Protocol::Sctp] {
        let uuid = marks::row_uuid(&site.cluster, owner, protocol);
        for uuid in [uuid, marks::inside_row_uuid(uuid)] {
            if let Some(row) = rows.get(uuid)
                && row.external_ids.get(marks::CLUSTER).is_none_or(|cluster| *cluster == *site.cluster)
                && !found.iter().any(|(other, _)| *other == uuid)
            {
                found.push((uuid, row.clone()));
            }
        }
    }
    found
}

/// Somebody else's row under the name of this one. OVN keeps rows apart by their uuids, so it is in nobody's way; tools that
/// go by names may take it for ours.
pub(crate) fn namesake(row: &Row, site: &Site, nb: &Northbound) -> Option<Uuid> {
    let namesakes = nb.load_balancers.find(|by| &by.name, row.name.as_str()).filter(|(uuid, _)| *uuid != row.uuid);
    // One of ours under that name belongs to another Service of this cluster only by a clash of digests.
    let mut foreign = namesakes.filter(|(_, seen)| marks::owner(&seen.external_ids, &site.cluster).is_none());
    foreign.next().map(|(uuid, _)| uuid)
}

/// Takes the row to keep out of `ours`. What is left after all rows were kept is one too many.
fn keep(row: &Row, ours: &mut Vec<(Uuid, Arc<LoadBalancer>)>) -> Option<(Uuid, Arc<LoadBalancer>)> {
    kept(row, ours).map(|at| ours.remove(at))
}

/// The one under its own uuid, else the first of its name.
fn kept(row: &Row, ours: &[(Uuid, Arc<LoadBalancer>)]) -> Option<usize> {
    let own = ours.iter().position(|(uuid, _)| *uuid == row.uuid);
    own.or_else(|| ours.iter().position(|(_, seen)| *seen.name == row.name))
}

/// Whether the row says what it should.
fn says(seen: &LoadBalancer, row: &Row) -> bool {
    *seen.name == row.name
        && seen.vips == row.vips
        && step::protocol(seen) == row.protocol.to_string()
        && seen.options == row.options
        && seen.ip_port_mappings == row.mappings
        && seen.selection_fields == row.selection_fields
        && has_marks(&seen.external_ids, &row.marks)
}

fn has_marks(external_ids: &StrMap, marks: &StrMap) -> bool {
    marks.iter().all(|(key, value)| external_ids.get(key) == Some(value))
}

/// What is wanted where the rows are by now, while the router or the switch that they are to move to cannot be told: they
/// move in one transaction, and never halfway.
pub(crate) fn staying(
    desired: &Desired,
    ours: &[(Uuid, Arc<LoadBalancer>)],
    site: &Site,
    nb: &Northbound,
) -> Option<Desired> {
    let is_marked = |row: &LoadBalancer| marks::owner(&row.external_ids, &site.cluster).is_some();
    let mut kept = desired.rows.iter().filter_map(|row| ours.get(kept(row, ours)?));
    let (_, seen) = kept.find(|(_, row)| is_marked(row))?;
    let mark = |key| seen.external_ids.get(key);
    let (router, switch) = (mark(marks::ROUTER)?, mark(marks::SWITCH)?);
    let is_held_up = |kind, now: &str, before: &str| {
        now != before && nb.places(kind, now).len() != 1 && !nb.places(kind, before).is_empty()
    };
    // A router where ranges cannot be enforced is left at once.
    let is_open = desired.guard.is_some() && nb.unswitched_port(router).is_some();
    let is_staying = !is_open
        && (is_held_up(Kind::Router, &desired.router, router) || is_held_up(Kind::Switch, &desired.switch, switch));
    is_staying.then(|| desired.at(router, switch, mark(marks::GROUP)))
}

impl Plan {
    /// Where the rows belong, as far as it is there: router and switch, and the group if they have one.
    fn places<'a>(
        &mut self,
        ours: &[(Uuid, Arc<LoadBalancer>)],
        desired: &Desired,
        nb: &'a Northbound,
    ) -> Vec<Spot<'a>> {
        let names = [(Kind::Router, &desired.router), (Kind::Switch, &desired.switch)];
        let mut spots: Vec<_> = names.into_iter().filter_map(|(kind, name)| self.locate(kind, name, nb)).collect();
        if let Some(group) = &desired.group {
            self.group(group, &mut spots, ours, desired, nb);
        }
        spots
    }

    /// The one place of this name and its members.
    fn locate<'a>(&mut self, kind: Kind, name: &str, nb: &'a Northbound) -> Option<Spot<'a>> {
        let mut found = nb.places(kind, name);
        match found.len() {
            0 => self.held.push(Held::Missing { kind, name: name.to_owned() }),
            1 => return found.pop(),
            _ => self.held.push(Held::Ambiguous { kind, name: name.to_owned() }),
        }
        None
    }

    /// Whether a row under the derived uuid is there that does not say that it is ours.
    fn is_barred(&mut self, row: &Row, nb: &Northbound) -> bool {
        let found = nb.load_balancers.get(row.uuid);
        self.held.extend(found.map(|found| Held::Marked { name: found.name.to_string(), uuid: row.uuid }));
        found.is_some()
    }

    /// Takes the row from where an older configuration had put it. Whatever else it is attached to was not our doing.
    fn leave(&mut self, uuid: Uuid, seen: &LoadBalancer, desired: &Desired, site: &Site, nb: &Northbound) {
        if marks::owner(&seen.external_ids, &site.cluster).is_none() {
            return;
        }
        let was = [(Kind::Router, marks::ROUTER, &desired.router), (Kind::Switch, marks::SWITCH, &desired.switch)];
        for (kind, mark, now) in was {
            let Some(before) = seen.external_ids.get(mark).filter(|before| before != now) else { continue };
            let attached = nb.places(kind, before).into_iter().filter(|(_, members)| members.contains(&uuid));
            self.steps.extend(attached.map(|(place, _)| Step::Detach { place, row: uuid, name: seen.name.clone() }));
        }
    }
}

impl Held {
    fn difference(&self) -> Difference {
        let (kind, expected, found) = match self {
            Self::Missing { kind: Kind::Router, name } => ("router_missing", format!("router {name}"), "none".into()),
            Self::Missing { kind: Kind::Switch, name } => ("switch_missing", format!("switch {name}"), "none".into()),
            Self::Missing { kind: Kind::Group, name } => ("group_missing", format!("group {name}"), "none".into()),
            Self::GroupDetached { group, kind, name } => {
                ("group_detached", format!("group {group} on {} {name}", kind.word()), "not attached".into())
            }
            Self::GroupShared { group, router } => {
                ("group_shared", format!("group {group} on one router"), format!("also on router {router}"))
            }
            Self::Ambiguous { kind, name } => {
                let which = match kind {
                    Kind::Router => "router_ambiguous",
                    Kind::Switch => "switch_ambiguous",
                    Kind::Group => "group_ambiguous",
                };
                (which, format!("one {} {name}", kind.word()), "several".into())
            }
            Self::Unclear { name, uuid } => {
                ("take_over", "a row of this Service alone".into(), format!("{name} ({uuid})"))
            }
            Self::Marked { name, uuid } => {
                ("marks", "the marks of this cluster".into(), format!("another cluster's on {name} ({uuid})"))
            }
            Self::Unguarded { router, port } => {
                let found = format!("port {port} of router {router} leads straight to another router");
                ("source_ranges", "a switch before every port of the router".into(), found)
            }
        };
        Difference { kind, expected, found }
    }
}

impl From<&Held> for Error {
    fn from(held: &Held) -> Self {
        match held.clone() {
            Held::Missing { kind, name } => Self::PlaceMissing { kind, name },
            Held::Ambiguous { kind, name } => Self::PlaceAmbiguous { kind, name },
            Held::GroupDetached { group, kind, name } => Self::GroupDetached { group, kind, name },
            Held::GroupShared { group, router } => Self::GroupShared { group, router },
            Held::Unclear { name, uuid } => Self::TakeOverUnclear { name, uuid },
            Held::Marked { name, uuid } => Self::RowMarked { name, uuid },
            Held::Unguarded { router, port } => Self::Unguarded { router, port },
        }
    }
}
