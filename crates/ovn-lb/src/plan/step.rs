//! One change, in words for people and in operations for the server.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use groundcrew_core::provider::Difference;
use ovsdb_client::ops::{Columns, Mutator};
use ovsdb_client::{Condition, Op, StrMap, Uuid, Value};

use super::{Checks, GROUP_TABLE, guards, has_marks};
use crate::desired::Row;
use crate::marks;
use crate::northbound::{Kind, LoadBalancer, Place};
use crate::ranges::Guard;

pub(crate) const TABLE: &str = "Load_Balancer";

/// One change. `Display` is what `--dry-run` prints.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Step {
    /// Make the row.
    Insert { row: Row, checks: Checks },
    /// Bring a row that is ours to what it should say; `seen` is what it said.
    Update { uuid: Uuid, seen: Arc<LoadBalancer>, row: Row, checks: Checks },
    /// Take a row away that is ours: its Service is gone, or, if it is still `wanted`, has another row for the same.
    Delete { uuid: Uuid, name: Arc<str>, wanted: bool, marked: bool },
    /// Take a row away that kube-dc made for this Service, and that it does not want any more.
    Discard { uuid: Uuid, seen: Arc<LoadBalancer> },
    /// Make the row known to a router or switch.
    Attach { place: Place, row: Uuid, name: String },
    /// Put the group that the rows are in back on a router or switch that had it.
    Join { place: Place, group: Place },
    /// Make or replace the rules that say who may not connect; `found` is what is wrong with those that are there.
    Guard { guard: Guard, ports: BTreeSet<Uuid>, found: String },
    /// Take them away.
    Unguard { uuid: Uuid, name: Arc<str> },
    /// Take it from one that an older configuration named.
    Detach { place: Place, row: Uuid, name: Arc<str> },
}

/// What the row's protocol column means.
pub(crate) fn protocol(row: &LoadBalancer) -> &str {
    row.protocol.as_deref().unwrap_or("tcp")
}

impl Step {
    /// The operations for this step alone. Attachments are left to [`attach`], which joins those of many steps.
    ///
    /// A guard names what the step relies on and fails the transaction when it is not so any more.
    pub(crate) fn operations(&self, cluster: &str) -> Vec<Op> {
        match self {
            Self::Insert { row, checks } => {
                let mut insert = Op::insert(TABLE)
                    .uuid(row.uuid)
                    .set("name", &row.name)
                    .set("vips", &row.vips)
                    .set("protocol", row.protocol.to_string())
                    .set("options", &row.options)
                    .set("selection_fields", &row.selection_fields)
                    .set("external_ids", &row.marks);
                if !checks.refer.is_empty() {
                    insert = insert
                        .set("health_check", Value::set(checks.refer.iter().copied()))
                        .set("ip_port_mappings", &row.mappings);
                }
                checks.operations().into_iter().chain([insert.into()]).collect()
            }
            Self::Update { uuid, seen, row, checks } => {
                // Gone or renamed meanwhile: an update that matches nothing would pass for a success.
                let guard = if seen.external_ids.get(marks::CLUSTER).is_some() {
                    exists(TABLE, *uuid, &seen.name)
                } else {
                    is_unchanged(*uuid, seen)
                };
                let update = [
                    guard,
                    Op::update(TABLE, [Condition::uuid(*uuid)])
                        .set("name", &row.name)
                        .set("vips", &row.vips)
                        .set("protocol", row.protocol.to_string())
                        .set("options", &row.options)
                        .set("selection_fields", &row.selection_fields)
                        .set("health_check", Value::set(checks.refer.iter().copied()))
                        .set("ip_port_mappings", &row.mappings)
                        .into(),
                    // Key by key: other keys in that column are somebody else's.
                    Op::mutate(TABLE, [Condition::uuid(*uuid)])
                        .mutation("external_ids", Mutator::Delete, Value::set(marks::keys(&row.marks)))
                        .mutation("external_ids", Mutator::Insert, &row.marks)
                        .into(),
                ];
                checks.operations().into_iter().chain(update).collect()
            }
            Self::Delete { uuid, marked, .. } => {
                let still_ours = Condition::includes("external_ids", Value::map([(marks::CLUSTER, cluster)]));
                vec![Op::delete(TABLE, std::iter::once(Condition::uuid(*uuid)).chain(marked.then_some(still_ours)))]
            }
            Self::Discard { uuid, seen } => {
                vec![is_unchanged(*uuid, seen), Op::delete(TABLE, [Condition::uuid(*uuid)])]
            }
            Self::Attach { .. } => Vec::new(),
            Self::Join { place, group } => vec![
                exists(place.kind.table(), place.uuid, &place.name),
                exists(group.kind.table(), group.uuid, &group.name),
                Op::mutate(place.kind.table(), [Condition::uuid(place.uuid)])
                    .mutation("load_balancer_group", Mutator::Insert, Value::set([group.uuid]))
                    .into(),
            ],
            Self::Guard { guard, ports, .. } => guards::operations(guard, ports),
            Self::Unguard { uuid, .. } => {
                let still_ours = Condition::includes("external_ids", Value::map([(marks::CLUSTER, cluster)]));
                vec![Op::delete(GROUP_TABLE, [Condition::uuid(*uuid), still_ours])]
            }
            Self::Detach { place, row, .. } => vec![
                Op::mutate(place.kind.table(), [Condition::uuid(place.uuid)])
                    .mutation("load_balancer", Mutator::Delete, Value::set([*row]))
                    .into(),
            ],
        }
    }

    /// About how many bytes it takes on the wire.
    pub(crate) fn weight(&self) -> usize {
        const ENVELOPE: usize = 200;
        let text = |map: &StrMap| map.iter().map(|(key, value)| key.len() + value.len() + 7).sum::<usize>();
        let row = |row: &Row| {
            let checks: usize = row.checks.iter().map(|check| ENVELOPE + text(&check.options)).sum();
            text(&row.vips)
                + text(&row.options)
                + text(&row.mappings)
                + 2 * text(&row.marks)
                + 2 * row.name.len()
                + checks
        };
        match self {
            Self::Insert { row: new, .. } => ENVELOPE + row(new),
            Self::Update { row: new, .. } => 3 * ENVELOPE + row(new),
            Self::Guard { guard, ports, .. } => {
                let rules: usize = guard.matches.iter().map(|rule| ENVELOPE + rule.len() + text(&guard.marks)).sum();
                2 * ENVELOPE + rules + text(&guard.marks) + 50 * ports.len()
            }
            Self::Join { .. } | Self::Discard { .. } => 3 * ENVELOPE,
            Self::Delete { .. } | Self::Detach { .. } | Self::Attach { .. } | Self::Unguard { .. } => ENVELOPE,
        }
    }

    pub(super) fn differences(&self) -> Vec<Difference> {
        let one = |kind, expected: String, found: String| vec![Difference { kind, expected, found }];
        match self {
            Self::Insert { row, .. } => one("row_missing", format!("load balancer {}", row.name), "none".into()),
            Self::Update { seen, row, checks, .. } => changed_columns(seen, row, checks),
            Self::Delete { name, wanted: true, uuid, .. } => {
                one("duplicate", "no other row for the same".into(), format!("{name} ({uuid})"))
            }
            Self::Delete { name, wanted: false, .. } => one("row_left", "none".into(), format!("load balancer {name}")),
            Self::Discard { seen, .. } => one("row_left", "none".into(), format!("load balancer {}", seen.name)),
            Self::Attach { place, name, .. } => one(
                detached(place.kind),
                format!("{name} on {} {}", place.kind.word(), place.name),
                "not attached".into(),
            ),
            Self::Join { place, group } => {
                let expected = format!("{} {} on {} {}", group.kind.word(), group.name, place.kind.word(), place.name);
                one(detached(place.kind), expected, "not attached".into())
            }
            Self::Guard { guard, found, .. } => one(
                "source_ranges",
                format!("{} rules in port group {}", guard.matches.len(), guard.name),
                found.clone(),
            ),
            Self::Unguard { name, .. } => one("source_ranges", "none".into(), format!("port group {name}")),
            Self::Detach { place, name, .. } => {
                let left = match place.kind {
                    Kind::Router => "router_left",
                    Kind::Switch => "switch_left",
                    Kind::Group => "group_left",
                };
                one(left, "not attached".into(), format!("{name} on {} {}", place.kind.word(), place.name))
            }
        }
    }
}

fn detached(kind: Kind) -> &'static str {
    match kind {
        Kind::Router => "router_detached",
        Kind::Switch => "switch_detached",
        Kind::Group => "group_detached",
    }
}

/// One guard and one mutation for all the rows that a transaction attaches to a place.
pub(crate) fn attach(place: &Place, rows: impl IntoIterator<Item = Uuid>) -> [Op; 2] {
    [
        exists(place.kind.table(), place.uuid, &place.name),
        Op::mutate(place.kind.table(), [Condition::uuid(place.uuid)])
            .mutation("load_balancer", Mutator::Insert, Value::set(rows))
            .into(),
    ]
}

/// A row without a mark must be the very one that was looked at.
fn is_unchanged(uuid: Uuid, seen: &LoadBalancer) -> Op {
    let row = Op::wait(TABLE, [Condition::uuid(uuid)]);
    row.has("name", &*seen.name).has("vips", &seen.vips).has("external_ids", &seen.external_ids).into()
}

fn exists(table: &str, uuid: Uuid, name: &str) -> Op {
    Op::wait(table, [Condition::uuid(uuid)]).are([Columns::from([("name".to_owned(), name.into())])]).into()
}

fn changed_columns(seen: &LoadBalancer, row: &Row, checks: &Checks) -> Vec<Difference> {
    let text = |map: &StrMap| map.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>().join(" ");
    let probed = |checks: usize, mappings: &StrMap| format!("{checks} checks {}", text(mappings));
    let expected = probed(checks.refer.len(), &row.mappings);
    let found = match (checks.make.len(), checks.change.len()) {
        (0, 0) => probed(seen.health_check.len(), &seen.ip_port_mappings),
        (missing, changed) => format!("{missing} missing, {changed} changed {}", text(&seen.ip_port_mappings)),
    };
    let are_probed = checks.are_there(seen) && seen.ip_port_mappings == row.mappings;
    let columns = [
        ("name", row.name.clone(), seen.name.to_string(), *seen.name == row.name),
        ("vips", text(&row.vips), text(&seen.vips), seen.vips == row.vips),
        ("protocol", row.protocol.to_string(), protocol(seen).to_owned(), protocol(seen) == row.protocol.to_string()),
        ("options", text(&row.options), text(&seen.options), seen.options == row.options),
        (
            "selection_fields",
            row.selection_fields.join(" "),
            seen.selection_fields.join(" "),
            seen.selection_fields == row.selection_fields,
        ),
        ("health_check", expected, found, are_probed),
        ("marks", text(&row.marks), text(&seen.external_ids), has_marks(&seen.external_ids, &row.marks)),
    ];
    let differing = columns.into_iter().filter(|(.., same)| !same);
    let all: Vec<_> = differing.map(|(kind, expected, found, _)| Difference { kind, expected, found }).collect();
    // The hash among the marks follows the content; on its own it is news only if nothing else is.
    let content = all.iter().any(|d| d.kind != "marks");
    all.into_iter().filter(|d| !content || d.kind != "marks").collect()
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Insert { row, .. } => write!(f, "+ load balancer {}", row.name),
            Self::Update { row, .. } => write!(f, "~ load balancer {}", row.name),
            Self::Delete { name, uuid, .. } => write!(f, "- load balancer {name} ({uuid})"),
            Self::Discard { seen, uuid } => write!(f, "- load balancer {} ({uuid})", seen.name),
            Self::Attach { place, name, .. } => write!(f, "+ {name} on {} {}", place.kind.word(), place.name),
            Self::Join { place, group } => {
                write!(f, "+ {} {} on {} {}", group.kind.word(), group.name, place.kind.word(), place.name)
            }
            Self::Guard { guard, .. } => write!(f, "~ port group {}: {}", guard.name, guard.matches.join("; ")),
            Self::Unguard { name, uuid } => write!(f, "- port group {name} ({uuid})"),
            Self::Detach { place, name, .. } => write!(f, "- {name} on {} {}", place.kind.word(), place.name),
        }
    }
}
