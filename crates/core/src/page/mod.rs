//! What the status page shows: views into what a controller holds anyway, and the last few things that it did.
//!
//! Nothing is watched for it, and nothing grows: views are asked when somebody looks, and of what happened the last
//! `KEPT` are kept.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

/// How many plans and how many drifts are kept.
pub(crate) const KEPT: usize = 50;
/// How many lines of one plan are.
const MOST_LINES: usize = 20;
/// How many Services are shown: those in trouble first.
pub const MOST_SERVICES: usize = 200;

/// Where parts of a controller say what can be shown. Cheap to clone.
#[derive(Clone, Default)]
pub struct Board(Arc<Mutex<Inner>>);

type View<T> = Arc<dyn Fn() -> T + Send + Sync>;

#[derive(Default)]
struct Inner {
    services: Option<View<Services>>,
    pools: Option<View<Vec<Pool>>>,
    connections: Vec<(&'static str, View<Connection>)>,
    drifts: VecDeque<Drift>,
    plans: VecDeque<Plan>,
}

/// The Services of a controller.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Services {
    /// How many there are.
    pub total: usize,
    /// How many of them are served.
    pub served: usize,
    /// The first [`MOST_SERVICES`], those in trouble first.
    pub shown: Vec<Service>,
}

/// One Service.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Service {
    /// `namespace/name`.
    pub name: String,
    /// What it has published.
    pub addresses: Vec<String>,
    /// Whether it is served.
    pub served: bool,
    /// The reason of its condition.
    pub reason: String,
    /// Its message.
    pub message: String,
}

/// Addresses of one family in one pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Pool {
    /// The pool's name.
    pub name: String,
    /// `IPv4` or `IPv6`.
    pub family: &'static str,
    /// How many are in use.
    pub used: i64,
    /// How many are left.
    pub free: i64,
}

/// How a connection to the world outside stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Connection {
    /// Whether it can be relied on.
    pub up: bool,
    /// In words.
    pub state: String,
}

/// How it stands with something outside that is not connected to but read again and again. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Reading(Arc<Mutex<LastReading>>);

#[derive(Debug, Default)]
struct LastReading {
    at: Option<Timestamp>,
    trouble: Option<String>,
}

impl Reading {
    /// It was read.
    pub fn succeeded(&self) {
        *self.lock() = LastReading { at: Some(Timestamp::now()), trouble: None };
    }

    /// It could not be read, and why.
    pub fn failed(&self, why: String) {
        self.lock().trouble = Some(why);
    }

    /// As a connection, which is up if the last attempt went well.
    #[must_use]
    pub fn shown(&self) -> Connection {
        let last = self.lock();
        let when = last.at.map_or_else(|| "not read yet".to_owned(), |at| format!("read at {at:.0}"));
        match &last.trouble {
            Some(trouble) => Connection { up: false, state: format!("{trouble}; {when}") },
            None => Connection { up: last.at.is_some(), state: when },
        }
    }

    fn lock(&self) -> MutexGuard<'_, LastReading> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Something that somebody else changed.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Drift {
    /// When it was reported.
    pub at: Timestamp,
    /// `namespace/name` of the Service.
    pub service: String,
    /// What was changed.
    pub what: String,
    /// Who did it, probably.
    pub cause: String,
    /// How long it took to put it right, in milliseconds; nothing if it was only told.
    pub repaired_ms: Option<u64>,
}

/// What was to be changed.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// When.
    pub at: Timestamp,
    /// What it is about.
    pub about: String,
    /// One change each, with `+`, `~` or `-` before it.
    pub lines: Vec<String>,
}

/// What the page is made of at one moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Shown {
    services: Option<Services>,
    pools: Vec<Pool>,
    connections: Vec<Named>,
    drifts: Vec<Drift>,
    plans: Vec<Plan>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Named {
    name: &'static str,
    #[serde(flatten)]
    connection: Connection,
}

impl Board {
    /// Services are shown as `view` sees them.
    pub fn show_services(&self, view: impl Fn() -> Services + Send + Sync + 'static) {
        self.lock().services = Some(Arc::new(view));
    }

    /// The same for pools.
    pub fn show_pools(&self, view: impl Fn() -> Vec<Pool> + Send + Sync + 'static) {
        self.lock().pools = Some(Arc::new(view));
    }

    /// The same for a connection.
    pub fn show_connection(&self, name: &'static str, view: impl Fn() -> Connection + Send + Sync + 'static) {
        self.lock().connections.push((name, Arc::new(view)));
    }

    /// Somebody else has changed something.
    pub fn drifted(&self, service: String, what: String, cause: String, repaired: Option<Duration>) {
        let repaired_ms = repaired.map(|took| u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
        keep(&mut self.lock().drifts, Drift { at: Timestamp::now(), service, what, cause, repaired_ms });
    }

    /// Something is to be changed. The same plan again is one, however often it is made.
    pub fn planned(&self, about: String, mut lines: Vec<String>) {
        if lines.is_empty() {
            return;
        }
        let more = lines.len().saturating_sub(MOST_LINES);
        if more > 0 {
            lines.truncate(MOST_LINES);
            lines.push(format!("and {more} more"));
        }
        let plans = &mut self.lock().plans;
        plans.retain(|plan| plan.about != about || plan.lines != lines);
        keep(plans, Plan { at: Timestamp::now(), about, lines });
    }

    /// Lets go of all views. Some work ends when nobody can ask for it any more, and a view could.
    pub(crate) fn close(&self) {
        let mut inner = self.lock();
        let views = (inner.services.take(), inner.pools.take(), std::mem::take(&mut inner.connections));
        // Whatever they drop may use the board.
        drop(inner);
        drop(views);
    }

    /// Everything as it is now; the last comes first.
    pub(crate) fn shown(&self) -> Shown {
        let (services, pools, connections, drifts, plans) = {
            let inner = self.lock();
            let last = |items: &VecDeque<Drift>| items.iter().rev().cloned().collect::<Vec<_>>();
            let plans: Vec<_> = inner.plans.iter().rev().cloned().collect();
            (inner.services.clone(), inner.pools.clone(), inner.connections.clone(), last(&inner.drifts), plans)
        };
        // Views take locks of their own, so ours is gone by now.
        Shown {
            services: services.map(|view| view()),
            pools: pools.map(|view| view()).unwrap_or_default(),
            connections: connections.iter().map(|(name, view)| Named { name, connection: view() }).collect(),
            drifts,
            plans,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn keep<T>(all: &mut VecDeque<T>, new: T) {
    if all.len() == KEPT {
        all.pop_front();
    }
    all.push_back(new);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_what_happened_the_last_few_are_kept_and_shown_first() {
        let board = Board::default();
        for n in 0..3 * KEPT {
            board.drifted(
                format!("shop/s{n}"),
                "row_missing".into(),
                "somebody".into(),
                Some(Duration::from_millis(7)),
            );
            board.planned(format!("shop/s{n}"), vec!["+ row".into()]);
        }
        let shown = board.shown();
        assert_eq!((shown.drifts.len(), shown.plans.len()), (KEPT, KEPT));
        assert_eq!(shown.drifts[0].service, format!("shop/s{}", 3 * KEPT - 1));
        assert_eq!(shown.drifts[0].repaired_ms, Some(7));
    }

    #[test]
    fn what_is_read_is_up_until_a_reading_fails() {
        let reading = Reading::default();
        assert_eq!(reading.shown(), Connection { up: false, state: "not read yet".into() });
        reading.succeeded();
        let read = reading.shown();
        assert!(read.up && read.state.starts_with("read at 20") && read.state.ends_with('Z'), "{read:?}");
        reading.failed("401".into());
        assert_eq!(reading.shown(), Connection { up: false, state: format!("401; {}", read.state) });
        reading.succeeded();
        assert!(reading.shown().up);
    }

    #[test]
    fn a_plan_that_is_made_again_and_again_is_shown_once_and_a_long_one_is_cut() {
        let board = Board::default();
        for _ in 0..5 {
            board.planned("shop/web".into(), vec!["+ row".into(); MOST_LINES + 3]);
        }
        let plans = board.shown().plans;
        assert_eq!(plans.len(), 1);
        assert_eq!(plans[0].lines.last().unwrap(), "and 3 more");
    }
}
