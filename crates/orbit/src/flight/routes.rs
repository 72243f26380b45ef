//! What is wrong with the routes to a Node's pods.

use std::collections::BTreeMap;
use std::net::IpAddr;

use groundcrew_core::provider::{RouteLimit, Router};
use ipnet::IpNet;

use super::conditions::{Kind, Trouble};
use super::nodes::Node;
use super::observe::Observed;
use crate::routegc::headroom::Headroom;

/// A router of the pods' routes, and how many routes it takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// As it was read.
    pub router: Router,
    /// How many routes it takes.
    pub limit: RouteLimit,
}

/// What is wrong with the routes to each Node's pods. Nothing where no router is looked at.
pub(crate) fn troubles<'a>(nodes: &'a [Node], observed: &Observed, configured: u64) -> Vec<Trouble<'a>> {
    if observed.tables.is_empty() {
        return Vec::new();
    }
    let hops = hops(&observed.tables);
    let missing = |table: &Table| {
        let here = nodes.iter().filter(|node| observed.is_near(node, &table.router.id));
        here.map(|node| without_route(node, &hops).count()).sum()
    };
    let full = near_limit(&observed.tables, missing, configured);
    let troubles = nodes.iter().flat_map(|node| {
        let duplicate: Vec<_> = astray(node, &hops).collect();
        let missing: Vec<_> = without_route(node, &hops).map(ToString::to_string).collect();
        let duplicate = (!duplicate.is_empty()).then(|| format!("other routes to its pods: {}", duplicate.join(", ")));
        let missing = (!missing.is_empty()).then(|| format!("no route leads to its pods: {}", missing.join(", ")));
        let found = [
            (Kind::RouteMissing, missing),
            (Kind::RouteDuplicate, duplicate),
            (Kind::RouteQuotaNearLimit, full.clone()),
        ];
        found.into_iter().filter_map(move |(kind, words)| Some(Trouble { node, kind, words: words? }))
    });
    troubles.collect()
}

impl Observed {
    /// Whether the routes of a Node belong on this router. Of several, on one that is on its subnet.
    fn is_near(&self, node: &Node, router: &str) -> bool {
        let near = self.near.get(router).into_iter().flatten();
        self.tables.len() == 1 || near.into_iter().any(|range| node.addresses.iter().any(|own| range.contains(own)))
    }
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

fn near_limit(tables: &[Table], missing: impl Fn(&Table) -> usize, configured: u64) -> Option<String> {
    let short = tables.iter().filter_map(|table| {
        let Table { router, limit } = table;
        let room = Headroom::new(router.routes.len(), missing(table), *limit, configured);
        let of = room.limit.filter(|_| room.is_short())?;
        Some(format!("router {} has {} routes of {of}", router.id, room.used))
    });
    let short: Vec<_> = short.collect();
    (!short.is_empty()).then(|| short.join("; "))
}
