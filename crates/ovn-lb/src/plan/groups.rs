//! Load balancer groups: one set of rows that a router and its switches have in common.
//!
//! A group has no column for a mark, so it is never ours: it is neither made nor removed. It is used if it is on the
//! project's own router and switch and on no other router. A namespace whose name happens to give somebody else's group
//! is kept out by that, and so is a group that would serve one project's addresses to another.

use std::borrow::Cow;
use std::sync::Arc;

use ovsdb_client::Uuid;

use super::{Held, Plan, Spot, Step};
use crate::desired::{Desired, Row, Site};
use crate::marks;
use crate::northbound::{Kind, LoadBalancer, Northbound};

impl Plan {
    /// Adds the group to the spots, if it can be used. It is put back on a router or switch that had it when a row of ours
    /// went into it.
    pub(super) fn group<'a>(
        &mut self,
        name: &str,
        spots: &mut Vec<Spot<'a>>,
        ours: &[(Uuid, Arc<LoadBalancer>)],
        desired: &Desired,
        nb: &'a Northbound,
    ) {
        let Some((group, members)) = self.locate(Kind::Group, name, nb) else { return };
        if let Some(router) = shared_with(group.uuid, desired, nb) {
            self.held.push(Held::GroupShared { group: name.to_owned(), router });
            // Rows that went into it before the other router did would be served there.
            let inside = ours.iter().filter(|(uuid, _)| members.contains(uuid));
            let out = |(row, seen): &(Uuid, Arc<LoadBalancer>)| Step::Detach {
                place: group.clone(),
                row: *row,
                name: seen.name.clone(),
            };
            self.steps.extend(inside.map(out));
            return;
        }
        let was_on = |kind: Kind| {
            let (mark, place) =
                if kind == Kind::Router { (marks::ROUTER, &desired.router) } else { (marks::SWITCH, &desired.switch) };
            let says = |row: &LoadBalancer, key, value| row.external_ids.get(key) == Some(value);
            let mut in_it = ours.iter().filter(|(uuid, _)| members.contains(uuid));
            in_it.any(|(_, row)| says(row, marks::GROUP, name) && says(row, mark, place))
        };
        let mut is_everywhere = true;
        for (place, _) in spots.iter() {
            if nb.groups_on(place.kind, place.uuid).is_some_and(|groups| groups.contains(&group.uuid)) {
                continue;
            }
            if was_on(place.kind) {
                self.steps.push(Step::Join { place: place.clone(), group: group.clone() });
            } else {
                is_everywhere = false;
                let (group, name) = (name.to_owned(), place.name.to_string());
                self.held.push(Held::GroupDetached { group, kind: place.kind, name });
            }
        }
        if is_everywhere {
            spots.push((group, members));
        }
    }
}

/// A router of another project that has the group.
fn shared_with(group: Uuid, desired: &Desired, nb: &Northbound) -> Option<String> {
    let mut routers = nb.routers.find(|by| &by.group, group).map(|(_, router)| &router.name);
    routers.find(|name| ***name != *desired.router).map(ToString::to_string)
}

/// The row while its group cannot be used. Its mark says where the group belongs, so that it is kept and never made.
pub(super) fn unproven<'a>(row: &'a Row, seen: &LoadBalancer) -> Cow<'a, Row> {
    if seen.external_ids.get(marks::GROUP) == row.marks.get(marks::GROUP) {
        return Cow::Borrowed(row);
    }
    let marks = row.marks.iter().filter(|(key, _)| *key != marks::GROUP).collect();
    Cow::Owned(Row { marks, ..row.clone() })
}

/// The steps out of a group that an older configuration put the row into.
pub(super) fn leave_group(
    uuid: Uuid,
    seen: &LoadBalancer,
    desired: &Desired,
    site: &Site,
    nb: &Northbound,
) -> Vec<Step> {
    let before = seen.external_ids.get(marks::GROUP).filter(|before| desired.group.as_deref() != Some(before));
    let ours = before.filter(|_| marks::owner(&seen.external_ids, &site.cluster).is_some());
    let groups = ours.into_iter().flat_map(|name| nb.places(Kind::Group, name));
    let left = groups.filter(|(_, members)| members.contains(&uuid));
    left.map(|(place, _)| Step::Detach { place, row: uuid, name: seen.name.clone() }).collect()
}
