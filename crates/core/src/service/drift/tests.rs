use std::net::IpAddr;

use uuid::Uuid;

use super::report::by_cause;
use super::*;
use crate::drift::{Nobody, Shift};
use crate::provider::{AddressAsk, ErrorKind, Families, TrafficPolicy};

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
        one_is_enough: false,
        share_with: None,
        share_families: None,
        current: Vec::new(),
        annotations: Arc::default(),
    };
    let (addresses, traffic_policy) = (vec![IpAddr::from([192, 0, 2, 7])], TrafficPolicy::Cluster);
    Wanted { ask, addresses, frontends: Vec::new(), traffic_policy, affinity: None, source_ranges: Vec::new() }
}

fn differs(kind: &'static str) -> Vec<Difference> {
    vec![Difference { kind, expected: "something".into(), found: "nothing".into() }]
}

/// By whoever knows that what is there is what was last written.
fn judged(drifts: &Drifts, wanted: &Wanted, differences: &[Difference], since: Instant) -> Judgement {
    drifts.judge(wanted, differences, since, |is_known| !is_known)
}

fn ended(found: &mut mpsc::UnboundedReceiver<Found>) -> Vec<(Vec<&'static str>, Fate)> {
    let all = std::iter::from_fn(|| found.try_recv().ok());
    all.map(|found| {
        let fate = if found.fate.took().is_some() { Fate::Repaired(Duration::ZERO) } else { found.fate };
        (found.counted.into_iter().collect(), fate)
    })
    .collect()
}

#[test]
fn a_hold_is_news_until_it_was_told() {
    let (drifts, _found) = drifts(false);
    let (wanted, missing) = (wanted(), differs("missing"));
    drifts.settled(&wanted);
    for _ in 0..10 {
        assert_eq!(judged(&drifts, &wanted, &missing, Instant::now()), Judgement::Drift);
        drifts.repaired(wanted.owner(), missing.clone());
    }
    let Judgement::Held { held, news: true } = judged(&drifts, &wanted, &missing, Instant::now()) else {
        panic!("held")
    };
    let again = judged(&drifts, &wanted, &missing, Instant::now());
    assert_eq!(again, Judgement::Held { held, news: true }, "nobody could be told");
    drifts.told_hold(&wanted.owner().key, &held);
    assert_eq!(judged(&drifts, &wanted, &missing, Instant::now()), Judgement::Held { held, news: false });
}

#[test]
fn what_is_only_reported_is_news_until_it_was() {
    let (drifts, mut found) = drifts(true);
    let (wanted, missing) = (wanted(), differs("missing"));
    drifts.settled(&wanted);
    for _ in 0..2 {
        assert_eq!(judged(&drifts, &wanted, &missing, Instant::now()), Judgement::Report { news: true });
    }
    drifts.report(wanted.owner(), missing.clone());
    assert!(found.try_recv().is_ok());
    assert_eq!(judged(&drifts, &wanted, &missing, Instant::now()), Judgement::Report { news: false });
    assert_eq!(judged(&drifts, &wanted, &differs("vips"), Instant::now()), Judgement::Report { news: true });
}

#[test]
fn a_scan_knows_what_others_have_found_before_it() {
    let (drifts, _found) = drifts(false);
    let wanted = wanted();
    let key = &wanted.owner().key;
    drifts.settled(&wanted);
    let before = drifts.unaware(key);
    assert!(before.is_some());
    judged(&drifts, &wanted, &differs("missing"), Instant::now());
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
    judged(&drifts, &wanted, &differs("router_missing"), first);
    judged(&drifts, &wanted, &differs("router_missing"), second);
    drifts.report(wanted.owner(), differs("router_missing"));
    let told = found.try_recv().unwrap();
    assert_eq!((told.since, told.latest, told.unseen), (first, first, false));
    judged(&drifts, &wanted, &differs("router_detached"), second);
    drifts.repaired(wanted.owner(), differs("router_detached"));
    let told = found.try_recv().unwrap();
    assert_eq!((told.since, told.latest), (first, second));
}

#[test]
fn what_a_new_wish_does_not_explain_is_drift_whatever_is_known() {
    for report_only in [false, true] {
        let (drifts, _found) = drifts(report_only);
        let mut wanted = wanted();
        let missing = differs("missing");
        let is_drift = |judged| matches!(judged, Judgement::Drift | Judgement::Report { news: true });
        // Nothing is known of it, as after a restart.
        assert_eq!(drifts.judge(&wanted, &missing, Instant::now(), |is_known| !is_known), Judgement::Wish);
        assert!(is_drift(drifts.judge(&wanted, &missing, Instant::now(), |_| false)));
        wanted.addresses.push(IpAddr::from([192, 0, 2, 8]));
        assert!(is_drift(drifts.judge(&wanted, &missing, Instant::now(), |is_known| !is_known)), "until it is right");
        drifts.settled(&wanted);
        wanted.addresses.pop();
        assert_eq!(drifts.judge(&wanted, &missing, Instant::now(), |is_known| !is_known), Judgement::Wish);
        assert!(is_drift(drifts.judge(&wanted, &missing, Instant::now(), |_| false)), "both at once");
    }
}

#[test]
fn a_wish_that_follows_the_outside_is_one_even_where_the_service_wants_what_it_had() {
    for report_only in [false, true] {
        let (drifts, _found) = drifts(report_only);
        let (wanted, vips) = (wanted(), differs("vips"));
        drifts.settled(&wanted);
        assert_eq!(drifts.judge(&wanted, &vips, Instant::now(), |_| true), Judgement::Wish);
        drifts.settled(&wanted);
        assert_ne!(drifts.judge(&wanted, &vips, Instant::now(), |_| false), Judgement::Wish);
        assert_ne!(drifts.judge(&wanted, &vips, Instant::now(), |_| true), Judgement::Wish, "until it is right");
    }
}

#[test]
fn what_nobody_saw_come_is_told_together() {
    let (drifts, mut found) = drifts(false);
    let named = |name| {
        let mut wanted = wanted();
        wanted.ask.owner = owner(name);
        wanted
    };
    let seen = named("seen");
    drifts.settled(&seen);
    for wanted in [named("a"), seen, named("b")] {
        assert_eq!(drifts.judge(&wanted, &differs("missing"), Instant::now(), |_| false), Judgement::Drift);
        drifts.repaired(wanted.owner(), differs("missing"));
    }
    let told = by_cause(std::iter::from_fn(|| found.try_recv().ok()).collect(), &ByNumber);
    let told: Vec<_> = told.iter().map(|(cause, found)| (cause.words.as_str(), found.len())).collect();
    assert_eq!(told, [("2 at once", 2), ("1 at once", 1)]);
}

#[test]
fn a_repair_whose_answer_was_lost_is_told_and_counts_for_the_brake() {
    let (drifts, mut found) = drifts(false);
    let (wanted, missing) = (wanted(), differs("missing"));
    drifts.settled(&wanted);
    for _ in 0..10 {
        assert_eq!(judged(&drifts, &wanted, &missing, Instant::now()), Judgement::Drift);
        drifts.tries(wanted.owner(), missing.clone());
        drifts.settled(&wanted);
        assert_eq!(ended(&mut found), [(vec![], Fate::Repaired(Duration::ZERO))]);
    }
    assert!(matches!(judged(&drifts, &wanted, &missing, Instant::now()), Judgement::Held { .. }));
}

#[test]
fn what_cannot_be_put_right_is_told_once_and_is_over_when_it_is_right() {
    let (drifts, mut found) = drifts(false);
    let (wanted, missing) = (wanted(), differs("missing"));
    let key = &wanted.owner().key;
    let error = ProviderError::new(ErrorKind::NotFound, "no router");
    drifts.settled(&wanted);
    drifts.failed(key, &error);
    assert_eq!(ended(&mut found), [], "it did not drift");
    assert_eq!(judged(&drifts, &wanted, &missing, Instant::now()), Judgement::Drift);
    drifts.tries(wanted.owner(), missing.clone());
    assert_eq!(ended(&mut found), [], "nothing before the first attempt");
    for _ in 0..3 {
        drifts.failed(key, &error);
    }
    assert_eq!(ended(&mut found), [(vec![], Fate::Failed("no router".into()))]);
    drifts.tries(wanted.owner(), differs("detached"));
    drifts.failed(key, &error);
    assert_eq!(ended(&mut found), [(vec!["missing"], Fate::Failed("no router".into()))], "something else by now");
    drifts.settled(&wanted);
    assert_eq!(ended(&mut found), [(vec!["detached", "missing"], Fate::Repaired(Duration::ZERO))]);

    judged(&drifts, &wanted, &missing, Instant::now());
    drifts.held(wanted.owner(), missing.clone());
    drifts.held(wanted.owner(), missing.clone());
    drifts.settled(&wanted);
    assert_eq!(ended(&mut found), [(vec![], Fate::Held), (vec!["missing"], Fate::Over)], "not by our doing");
    assert_eq!(judged(&drifts, &wanted, &missing, Instant::now()), Judgement::Drift);
    drifts.settled(&wanted);
    assert_eq!(ended(&mut found), [], "nobody was told");

    judged(&drifts, &wanted, &missing, Instant::now());
    drifts.held(wanted.owner(), missing.clone());
    drifts.forget(key);
    assert_eq!(ended(&mut found), [(vec![], Fate::Held), (vec!["missing"], Fate::Over)], "gone with its Service");
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
        Found { drift, since, latest: since, unseen: false, counted: BTreeSet::new(), fate: Fate::Left }
    };
    let fight = (0..5).map(|n| found("contested", 10 * n));
    let mass = ["a", "b", "c"].map(|name| found(name, 15));
    let told = by_cause(fight.chain(mass).collect(), &ByNumber);
    let told: Vec<_> = told.iter().map(|(cause, found)| (cause.words.as_str(), found.len())).collect();
    assert_eq!(told, [("1 at once", 5), ("3 at once", 3)]);
}
