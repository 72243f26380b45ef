//! What an operator should know, as long as it is so.

use std::collections::BTreeMap;

use super::apply::{Applied, ApplyError};
use super::findings::{Findings, Lock};
use super::plan::Plan;

/// Routes that are named in a message; the log has all of them.
const NAMED: usize = 3;

/// A thing that somebody has to look at. Its name is the reason of an Event and the label of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Condition {
    /// The last look failed.
    CloudUnavailable,
    /// Nodes could not be listed, or there are none.
    NodesUnknown,
    /// The router is not known.
    RouterUnknown,
    /// Part of the cloud is not shown.
    ViewIncomplete,
    /// The cloud shows none of our Nodes.
    WrongProject,
    /// Too much would go at once.
    BrakeEngaged,
    /// The cloud has only whole-list writes, and they are off.
    WholeListsOnly,
    /// A write failed.
    WriteFailed,
    /// Routes to pods that no Node wants are left alone.
    ForeignRoutes,
    /// A router is full, or nearly.
    RouteQuotaNearLimit,
}

impl Condition {
    /// Every condition, for metrics that must exist before the first is true.
    pub(crate) const ALL: [Self; 10] = [
        Self::CloudUnavailable,
        Self::NodesUnknown,
        Self::RouterUnknown,
        Self::ViewIncomplete,
        Self::WrongProject,
        Self::BrakeEngaged,
        Self::WholeListsOnly,
        Self::WriteFailed,
        Self::ForeignRoutes,
        Self::RouteQuotaNearLimit,
    ];

    /// Its name.
    #[must_use]
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::CloudUnavailable => "CloudUnavailable",
            Self::NodesUnknown => "NodesUnknown",
            Self::RouterUnknown => "RouterUnknown",
            Self::ViewIncomplete => "ViewIncomplete",
            Self::WrongProject => "WrongProject",
            Self::BrakeEngaged => "BrakeEngaged",
            Self::WholeListsOnly => "WholeListsOnly",
            Self::WriteFailed => "WriteFailed",
            Self::ForeignRoutes => "ForeignRoutes",
            Self::RouteQuotaNearLimit => "RouteQuotaNearLimit",
        }
    }
}

/// What is true, each with a sentence for its operator.
pub(crate) type Conditions = BTreeMap<Condition, String>;

/// What a pass has shown. `applied` is missing where nothing may be written.
pub(crate) fn conditions(findings: &Findings, plan: &Plan, applied: Option<&Applied>) -> Conditions {
    let mut conditions = Conditions::new();
    if let Some(lock) = &findings.lock {
        let condition = match lock {
            Lock::NoNodes => Condition::NodesUnknown,
            Lock::Incomplete(_) => Condition::ViewIncomplete,
            Lock::Elsewhere => Condition::WrongProject,
        };
        conditions.insert(condition, format!("nothing is removed: {lock}"));
    }
    if !plan.brakes.is_empty() {
        let brakes: Vec<_> = plan.brakes.iter().map(ToString::to_string).collect();
        let help = "if they are right, raise --max-removals and --max-percent";
        conditions.insert(Condition::BrakeEngaged, format!("{}; {help}", brakes.join("; ")));
    }
    let mut failed = Vec::new();
    for failure in applied.iter().flat_map(|applied| &applied.failures) {
        match failure.error {
            ApplyError::WholeListsOnly => {
                conditions
                    .insert(Condition::WholeListsOnly, format!("{} is not done: {}", failure.step, failure.error));
            }
            _ => failed.push(format!("{}: {}", failure.step, failure.error)),
        }
    }
    if !failed.is_empty() {
        conditions.insert(Condition::WriteFailed, failed.join("; "));
    }
    foreign(findings, &mut conditions);
    headroom(findings, &mut conditions);
    conditions
}

fn foreign(findings: &Findings, conditions: &mut Conditions) {
    // While not everything is shown, everything looks foreign.
    if findings.lock.is_some() {
        return;
    }
    let all: Vec<_> = findings.routers.iter().flat_map(|found| &found.foreign).collect();
    if !all.is_empty() {
        let named: Vec<_> = all.iter().take(NAMED).map(ToString::to_string).collect();
        let more = all.len().saturating_sub(NAMED);
        let more = if more == 0 { String::new() } else { format!("; and {more} more") };
        let message =
            format!("{} routes to pods that no Node wants are left alone: {}{more}", all.len(), named.join("; "));
        conditions.insert(Condition::ForeignRoutes, message);
    }
}

fn headroom(findings: &Findings, conditions: &mut Conditions) {
    let short = findings.routers.iter().filter(|found| found.headroom.is_short()).map(|found| {
        let room = found.headroom;
        format!(
            "router {} has {} routes and needs {} more, of {} that it takes; Nodes without a route get no traffic",
            found.router,
            room.used,
            room.missing,
            room.limit.unwrap_or_default()
        )
    });
    let short: Vec<_> = short.collect();
    if !short.is_empty() {
        conditions.insert(Condition::RouteQuotaNearLimit, short.join("; "));
    }
}
