//! Whether what is there for a Service is what we last wrote, so that only its wish has moved on.
//!
//! Each row has a hash of its content among its marks. One whose content does not have it any more, that is not where its
//! marks say, or that is gone, was changed by somebody else, whatever the Service wants by now. A further row, a health
//! check or a rule for source ranges that is missing may just as well be a new wish, and is taken for one.

use groundcrew_core::provider::{Owner, Wanted};
use ovsdb_client::Uuid;

use super::{legacy, ours, step};
use crate::affinity;
use crate::desired::{Clients, Content, INSIDE, PROTOCOLS, Site, content_hash, name};
use crate::marks;
use crate::northbound::{Kind, LoadBalancer, Northbound};

pub(crate) fn is_as_left(want: &Wanted, site: &Site, nb: &Northbound) -> bool {
    let owner = want.owner();
    let rows = ours(owner, site, nb);
    if rows.is_empty() {
        // Ours to take away where ranges cannot be enforced, and not made yet where kube-dc's is to be taken over.
        return !want.source_ranges.is_empty() || (site.take_over && legacy::is_left(owner, nb));
    }
    rows.iter()
        .all(|(uuid, row)| clients(row, owner, site).is_some_and(|clients| is_there(*uuid, row, clients, site, nb)))
}

/// For whom the row is, if its marks, name and content are those that we gave it.
fn clients(row: &LoadBalancer, owner: &Owner, site: &Site) -> Option<Clients> {
    let mark = |key| row.external_ids.get(key);
    let protocol = PROTOCOLS.into_iter().find(|protocol| protocol.to_string() == step::protocol(row))?;
    let content = Content { vips: &row.vips, options: &row.options, selection_fields: &row.selection_fields };
    let (router, switch, hash) = (mark(marks::ROUTER)?, mark(marks::SWITCH)?, mark(marks::HASH)?);
    let has_hash = |group: Option<&str>| content_hash(&protocol.to_string(), content, router, switch, group) == hash;
    // A row that was to go into a group which cannot be used has no mark of it.
    let aside = || site.group.as_ref().is_some_and(|group| has_hash(Some(&group.of(&owner.key.namespace))));
    let is_ours = marks::owner(&row.external_ids, &site.cluster).as_ref() == Some(owner);
    if !is_ours || !(has_hash(mark(marks::GROUP)) || aside()) {
        return None;
    }
    let end = row.name.strip_prefix(&*name(owner, protocol, marks::row_uuid(&site.cluster, owner, protocol)))?;
    match (end, row.options.get(affinity::TIME_OUT)) {
        ("", None) => Some(Clients::All),
        ("", Some(_)) => Some(Clients::Outside),
        (INSIDE, _) => Some(Clients::Inside),
        _ => None,
    }
}

/// Whether the row is where it was put. A router that is not the wanted one any more is none of its business.
fn is_there(uuid: Uuid, row: &LoadBalancer, clients: Clients, site: &Site, nb: &Northbound) -> bool {
    let namespace = row.external_ids.get(marks::NAMESPACE).unwrap_or_default();
    let wanted = [
        (Kind::Router, marks::ROUTER, site.router_of(namespace)),
        (Kind::Switch, marks::SWITCH, site.switch_of(namespace)),
    ];
    wanted.into_iter().all(|(kind, mark, name)| {
        let has_moved = row.external_ids.get(mark) != Some(&name);
        has_moved
            || !clients.are_served_by(kind)
            || nb.places(kind, &name).iter().any(|(place, _)| nb.is_on(uuid, kind, place.uuid))
    })
}
