//! What is wrong with the routes to a Node's pods, as conditions of the Node.

use std::collections::BTreeMap;
use std::net::IpAddr;

use groundcrew_core::provider::{RouteLimit, Router};
use ipnet::IpNet;

use super::nodes::Node;
use crate::routegc::headroom::Headroom;

/// A router of the pods' routes, and how many routes it takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// As it was read.
    pub router: Router,
    /// How many routes it takes.
    pub limit: RouteLimit,
}

/// The conditions, each of which is trouble when it is `True`.
pub(crate) const CONDITIONS: [&str; 3] = [MISSING, DUPLICATE, NEAR_LIMIT];
const MISSING: &str = "RouteMissing";
const DUPLICATE: &str = "RouteDuplicate";
const NEAR_LIMIT: &str = "RouteQuotaNearLimit";

/// What changes in the conditions of a Node: the condition, and what is wrong or nothing.
pub(crate) type Change = (&'static str, Option<String>);

/// What changes in the conditions of all Nodes. What is as it was is not written again, and what was never wrong never.
pub(crate) fn changes<'a>(nodes: &'a [Node], tables: &[Table], configured: u64) -> Vec<(&'a Node, Change)> {
    if tables.is_empty() {
        return Vec::new();
    }
    let hops = hops(tables);
    let missing: usize = nodes.iter().map(|node| without_route(node, &hops).count()).sum();
    let full = near_limit(tables, missing, configured);
    let changes = nodes.iter().flat_map(|node| {
        let duplicate: Vec<_> = astray(node, &hops).collect();
        let missing: Vec<_> = without_route(node, &hops).map(ToString::to_string).collect();
        let duplicate = (!duplicate.is_empty()).then(|| format!("other routes to its pods: {}", duplicate.join(", ")));
        let missing = (!missing.is_empty()).then(|| format!("no route leads to its pods: {}", missing.join(", ")));
        let found = [(MISSING, missing), (DUPLICATE, duplicate), (NEAR_LIMIT, full.clone())];
        found.into_iter().filter(|(kind, trouble)| shown(node, kind) != trouble.as_deref()).map(move |one| (node, one))
    });
    changes.collect()
}

fn shown<'a>(node: &'a Node, kind: &str) -> Option<&'a str> {
    node.troubles.get(kind).map(String::as_str)
}

/// The next hops of every range that has a route.
fn hops(tables: &[Table]) -> BTreeMap<IpNet, Vec<IpAddr>> {
    let mut hops: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for route in tables.iter().flat_map(|table| &table.router.routes) {
        if let (Some(range), Some(hop)) = (route.range(), route.hop()) {
            hops.entry(range).or_default().push(hop);
        }
    }
    hops
}

fn without_route<'a>(node: &'a Node, hops: &'a BTreeMap<IpNet, Vec<IpAddr>>) -> impl Iterator<Item = &'a IpNet> {
    let ours = |hop: &IpAddr| node.addresses.contains(hop);
    node.pod_ranges.iter().filter(move |range| !hops.get(&range.trunc()).is_some_and(|hops| hops.iter().any(ours)))
}

/// Routes to the Node's pods through somebody else.
fn astray<'a>(node: &'a Node, hops: &'a BTreeMap<IpNet, Vec<IpAddr>>) -> impl Iterator<Item = String> {
    node.pod_ranges.iter().flat_map(move |range| {
        let through = hops.get(&range.trunc()).into_iter().flatten();
        through.filter(|hop| !node.addresses.contains(hop)).map(move |hop| format!("{range} via {hop}"))
    })
}

fn near_limit(tables: &[Table], missing: usize, configured: u64) -> Option<String> {
    let short = tables.iter().filter_map(|Table { router, limit }| {
        let room = Headroom::new(router.routes.len(), missing, *limit, configured);
        let of = room.limit.filter(|_| room.is_short())?;
        Some(format!("router {} has {} routes of {of}", router.id, room.used))
    });
    let short: Vec<_> = short.collect();
    (!short.is_empty()).then(|| short.join("; "))
}
