//! Harmless changes that make a cloud send everything once more: to the filters of the ports, or to the device behind a router.
//!
//! Pure. Both put something in and take it out again; what a crash leaves behind is known by its mark, and taken out later.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use groundcrew_core::leader::Moment;
use groundcrew_core::provider::{Direction, NewRule, Route, Rule, SecurityGroup};
use ipnet::IpNet;

use super::conditions::{Kind, Trouble};
use super::nodes::Node;
use super::routes::Table;
use crate::routegc::headroom::Headroom;

/// What we know our own rule by.
pub(crate) const NUDGE: &str = "nudge; made by groundcrew flight, which deletes it at once";
/// An address of documentation: nobody sends there, and nobody else routes there.
const NOWHERE: &str = "192.0.2.1/32";

/// Nodes that others do not reach, and whether it is time to do something about it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Signal<'a> {
    /// Those that have not been reached for a while.
    pub lasting: &'a [&'a Node],
    /// Those that have not been reached for so long that a re-sync of the router has had its time.
    pub helpless: &'a [&'a Node],
    /// Whether the last nudge of the group is long enough ago.
    pub nudge: bool,
    /// Whether the last re-sync is.
    pub resync: bool,
    /// Whether the last call of the operator's hook is.
    pub hook: bool,
}

/// The rule that is added and deleted. It lets nothing through that anybody would send.
pub(crate) fn nudge_rule() -> Option<NewRule> {
    let range: IpNet = NOWHERE.parse().ok()?;
    Some(NewRule {
        direction: Direction::Ingress,
        protocol: Some("tcp".into()),
        ports: Some((9, 9)),
        range,
        description: NUDGE.into(),
    })
}

/// Rules that a nudge left behind.
pub(crate) fn left_rules(group: &SecurityGroup) -> impl Iterator<Item = &Rule> {
    group.rules.iter().filter(|rule| rule.description == NUDGE)
}

/// Routes that a re-sync left behind: ours lead to nowhere, and through a Node.
pub(crate) fn left_routes<'a>(table: &'a Table, nodes: &'a [Node]) -> impl Iterator<Item = &'a Route> {
    let through_a_node = move |hop: IpAddr| nodes.iter().any(|node| node.addresses.contains(&hop));
    let routes = table.router.routes.iter();
    routes.filter(move |route| route.destination == NOWHERE && route.hop().is_some_and(through_a_node))
}

/// The route whose coming and going makes the router send all its routes once more; `None` if nobody's routes on this router
/// are as they should be and still of no use. `Err` if it has no room.
pub(crate) fn resync_route(
    table: &Table,
    lasting: &[&Node],
    troubles: &[Trouble<'_>],
    configured: u64,
) -> Result<Option<Route>, String> {
    let wrong = |node: &Node| {
        let kinds = [Kind::RouteMissing, Kind::RouteDuplicate];
        troubles.iter().any(|trouble| trouble.node.name == node.name && kinds.contains(&trouble.kind))
    };
    let hop = lasting.iter().filter(|node| !wrong(node)).find_map(|node| {
        let routes = table.router.routes.iter();
        let own = routes.filter(|route| route.range().is_some_and(|range| node.pod_ranges.contains(&range)));
        own.filter_map(Route::hop).find(|hop| hop.is_ipv4() && node.addresses.contains(hop))
    });
    let Some(hop) = hop else { return Ok(None) };
    let room = Headroom::new(table.router.routes.len(), 1, table.limit, configured);
    match room.limit {
        Some(limit) if room.used >= limit => {
            Err(format!("router {} is full, so it is not made to send its routes again", table.router.id))
        }
        _ => Ok(Some(Route { destination: NOWHERE.into(), next_hop: hop.to_string() })),
    }
}

/// When each of them was done last. In this process alone: after a restart, Nodes have to be out of reach for a while anyway.
#[derive(Debug, Default)]
pub(crate) struct Pace(BTreeMap<&'static str, Moment>);

impl Pace {
    pub(crate) fn is_due(&self, action: &str, every: Duration, now: Moment) -> bool {
        self.0.get(action).is_none_or(|last| last.until(now) >= every)
    }

    pub(crate) fn took(&mut self, action: &'static str, now: Moment) {
        self.0.insert(action, now);
    }
}
