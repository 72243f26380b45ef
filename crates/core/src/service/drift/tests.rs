use std::net::IpAddr;

use uuid::Uuid;

use super::report::by_cause;
use super::*;
use crate::drift::{Nobody, Shift};
use crate::provider::{AddressAsk, Families, TrafficPolicy};

fn drifts(report_only: bool) -> (Drifts, mpsc::UnboundedReceiver<Found>) {
    let (reports, found) = mpsc::unbounded_channel();
    let flapping = IntGauge::new("flapping", "flapping").unwrap();
    (Drifts { state: Mutex::default(), reports, attribute: Arc::new(Nobody), report_only, flapping }, found)
}

fn owner(name: &str) -> Owner {
    Owner { key: ServiceKey::new("shop", name), uid: Uuid::nil() }
}

fn wanted() -> Wanted {
    let ask = AddressAsk {
        owner: owner("web"),
        families: Families::V4,
        requested: Vec::new(),
        share_with: None,
        current: Vec::new(),
        annotations: Arc::default(),
    };
    let (addresses, traffic_policy) = (vec![IpAddr::from([192, 0, 2, 7])], TrafficPolicy::Cluster);
    Wanted { ask, addresses, frontends: Vec::new(), traffic_policy, affinity: None, source_ranges: Vec::new() }
}

fn differs(kind: &'static str) -> Vec<Difference> {
    vec![Difference { kind, expected: "something".into(), found: "nothing".into() }]
}

#[test]
fn a_hold_is_news_until_it_was_told() {
    let (drifts, _found) = drifts(false);
    let (wanted, missing) = (wanted(), differs("missing"));
    drifts.settled(&wanted);
    for _ in 0..10 {
        assert_eq!(drifts.judge(&wanted, &missing, Instant::now()), Judgement::Drift);
        drifts.repaired(wanted.owner(), missing.clone());
    }
    let Judgement::Held { held, news: true } = drifts.judge(&wanted, &missing, Instant::now()) else { panic!("held") };
    let again = drifts.judge(&wanted, &missing, Instant::now());
    assert_eq!(again, Judgement::Held { held, news: true }, "nobody could be told");
    drifts.told_hold(&wanted.owner().key, &held);
    assert_eq!(drifts.judge(&wanted, &missing, Instant::now()), Judgement::Held { held, news: false });
}

#[test]
fn what_is_only_reported_is_news_until_it_was() {
    let (drifts, mut found) = drifts(true);
    let (wanted, missing) = (wanted(), differs("missing"));
    drifts.settled(&wanted);
    for _ in 0..2 {
        assert_eq!(drifts.judge(&wanted, &missing, Instant::now()), Judgement::Report { news: true });
    }
    drifts.report(wanted.owner(), missing.clone());
    assert!(found.try_recv().is_ok());
    assert_eq!(drifts.judge(&wanted, &missing, Instant::now()), Judgement::Report { news: false });
    assert_eq!(drifts.judge(&wanted, &differs("vips"), Instant::now()), Judgement::Report { news: true });
}

#[test]
fn a_scan_knows_what_others_have_found_before_it() {
    let (drifts, _found) = drifts(false);
    let wanted = wanted();
    let key = &wanted.owner().key;
    drifts.settled(&wanted);
    let before = drifts.unaware(key);
    assert!(before.is_some());
    drifts.judge(&wanted, &differs("missing"), Instant::now());
    assert_eq!(drifts.unaware(key), None, "it differs, and somebody knows");
    drifts.settled(&wanted);
    assert_ne!(drifts.unaware(key), before, "somebody knew meanwhile");
}

#[test]
fn where_something_else_differs_than_before_the_repair_is_timed_from_then() {
    let (drifts, mut found) = drifts(false);
    let wanted = wanted();
    drifts.settled(&wanted);
    let (first, second) = (Instant::now(), Instant::now() + Duration::from_secs(1));
    drifts.judge(&wanted, &differs("router_missing"), first);
    drifts.judge(&wanted, &differs("router_missing"), second);
    drifts.report(wanted.owner(), differs("router_missing"));
    let told = found.try_recv().unwrap();
    assert_eq!((told.since, told.latest), (first, first));
    drifts.judge(&wanted, &differs("router_detached"), second);
    drifts.repaired(wanted.owner(), differs("router_detached"));
    let told = found.try_recv().unwrap();
    assert_eq!((told.since, told.latest), (first, second));
}

/// Knows by the number of Services who it was.
struct ByNumber;

impl Attribute for ByNumber {
    fn observe(&self, _: &Shift, _: Moment) {}

    fn cause(&self, round: &Round) -> Cause {
        Cause { words: format!("{} at once", round.drifts.len()), ..Cause::unknown() }
    }
}

#[test]
fn what_one_change_hit_is_told_together_and_what_came_close_to_it_is_not() {
    let now = Instant::now();
    let found = |name: &str, after: u64| {
        let drift = Drift { owner: owner(name), differences: differs("missing") };
        let since = now + Duration::from_millis(after);
        Found { drift, since, latest: since, took: None }
    };
    let fight = (0..5).map(|n| found("contested", 10 * n));
    let mass = ["a", "b", "c"].map(|name| found(name, 15));
    let told = by_cause(fight.chain(mass).collect(), &ByNumber);
    let told: Vec<_> = told.iter().map(|(cause, found)| (cause.words.as_str(), found.len())).collect();
    assert_eq!(told, [("1 at once", 5), ("3 at once", 3)]);
}
