//! The promises to users as properties; then the stories that explain them.

mod sharing;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::cache::{Cache, Hints, ServiceSink, SliceSink};
use super::class::{Class, Intent};
use super::desired::{desired, trouble};
use super::names;
use super::object::{self, Reads, Service, Strings};
use super::sharing::{Place, place};
use super::status::{Status, withdrawal};
use super::wire;
use crate::key::ServiceKey;
use crate::provider::{
    Backend, Beside, Caveat, ErrorKind, Ingress, IpMode, Owner, ProviderError, Reachable, Realised, Routable,
};
use crate::watch::Sink;

fn read(json: Value) -> Service {
    let service: wire::Service = serde_json::from_value(json).unwrap();
    let reads = Reads { annotations: &["kept.example/"], finalizers: &["old.example/finalizer"] };
    object::service(&service, reads, &mut Strings::default()).unwrap()
}

/// A Service as the API server sends it, with `more` merged over it.
fn raw(name: &str, more: &Value) -> Value {
    let mut service = json!({
        "metadata": {
            "namespace": "ns", "name": name, "resourceVersion": "7", "creationTimestamp": "2026-01-01T00:00:00Z",
            "uid": uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_OID, name.as_bytes()).to_string(),
        },
        "spec": { "type": "LoadBalancer", "loadBalancerClass": "c", "ports": [{ "port": 80 }], "ipFamilies": ["IPv4"] },
    });
    merge(&mut service, more);
    service
}

/// JSON merge, with our own conditions merged by their type as the API server does.
fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (field, value) in from {
                if value.is_null() {
                    into.remove(field);
                } else {
                    merge(into.entry(field).or_insert(Value::Null), value);
                }
            }
        }
        (Value::Array(into), Value::Array(from)) if from.iter().any(|v| v.get("type").is_some()) => {
            for change in from {
                let same = |v: &Value| v.get("type") == change.get("type");
                if change.get("$patch").is_some() {
                    into.retain(|v| !same(v));
                } else if let Some(present) = into.iter_mut().find(|v| same(v)) {
                    merge(present, change);
                } else {
                    into.push(change.clone());
                }
            }
        }
        (into, Value::Array(from)) if into.is_null() => {
            let kept: Vec<_> = from.iter().filter(|v| v.get("$patch").is_none()).cloned().collect();
            *into = kept.into();
        }
        (into, from) => *into = from.clone(),
    }
}

prop_compose! {
    fn member()(
        name in 0u8..8, created in 0u8..4, living: bool,
        ports in prop::collection::btree_set((80u16..84, prop::bool::ANY), 1..4),
    ) -> Service {
        let ports: Vec<_> = ports.iter().map(|(port, udp)| {
            json!({ "name": format!("p{port}{udp}"), "port": port, "protocol": if *udp { "UDP" } else { "TCP" } })
        }).collect();
        let ingress = if living { json!([{ "ip": "192.0.2.1" }]) } else { json!([]) };
        read(raw(&format!("s{name}"), &json!({
            "metadata": {
                "creationTimestamp": format!("2026-01-01T00:00:0{created}Z"),
                "annotations": { names::SHARING_KEY: "k" },
            },
            "spec": { "ports": ports },
            "status": { "loadBalancer": { "ingress": ingress } },
        })))
    }
}
prop_compose! {
    fn group()(members in prop::collection::vec(member(), 1..8)) -> Vec<Box<Service>> {
        let mut seen = BTreeSet::new();
        members.into_iter().filter(|m| seen.insert(m.key().clone())).map(Box::new).collect()
    }
}
prop_compose! {
    fn statuses()(
        addresses in prop::collection::vec(1u8..5, 0..3), backends: bool, failed in prop::option::of(0usize..7),
        unknown in prop::option::of("[a-z]{1,5}"), as_told: bool, stops in prop::option::of(any::<bool>()), outside in 0usize..4,
    ) -> Status {
        let ingress = addresses.into_iter().map(|n| Ingress { address: IpAddr::from([192, 0, 2, n]), mode: IpMode::Proxy });
        if let Some(n) = failed { Status::failed(&ProviderError::new(ErrorKind::ALL[n], "because")) } else {
            let realised = unknown.map_or(if as_told { Realised::AsTold } else { Realised::Yes }, Realised::Unknown);
            let routable = [Routable::Unasked, Routable::AsTold, Routable::Yes, Routable::No("lost".into())][outside].clone();
            let caveats = stops.map(|stops| Caveat { reason: "Odd", message: "look here".into(), stops });
            Status::served(&Reachable { ingress: ingress.collect(), realised, routable, caveats: caveats.into_iter().collect() }, backends, false)
        }
    }
}

proptest! {
    #[test]
    fn no_port_of_a_shared_address_has_two_users(group in group()) {
        let mut taken = BTreeSet::new();
        for member in &group {
            let contested = match place(member, &group) {
                Place::Refused { .. } if member.ingress.is_empty() => continue,
                Place::Refused { ports, .. } => ports,
                Place::First | Place::With(_) => Vec::new(),
            };
            for port in member.ports.iter().filter(|port| !contested.contains(port)) {
                prop_assert!(taken.insert((port.protocol, port.port)), "{}", member.key());
            }
        }
    }

    #[test]
    fn the_order_in_which_members_are_seen_decides_nothing(group in group(), seed: u64) {
        let mut other = group.clone();
        other.sort_by_key(|m| seed.wrapping_mul(u64::try_from(m.owner.uid.as_u128() >> 64).unwrap()));
        for member in &group {
            prop_assert_eq!(place(member, &group), place(member, &other));
        }
    }

    #[test]
    fn a_newcomer_never_takes_a_port_from_a_member_that_is_served(group in group(), newcomer in member()) {
        prop_assume!(newcomer.ingress.is_empty() && group.iter().all(|m| m.key() != newcomer.key()));
        let mut larger = group.clone();
        larger.push(Box::new(newcomer));
        for member in group.iter().filter(|m| !m.ingress.is_empty()) {
            let (before, after) = (place(member, &group), place(member, &larger));
            prop_assert_eq!(matches!(before, Place::Refused { .. }), matches!(after, Place::Refused { .. }));
        }
    }

    #[test]
    fn a_status_that_is_written_is_not_written_again(first in statuses(), second in statuses()) {
        let mut service = raw("s", &json!({}));
        for status in [&first, &second] {
            if let Some(patch) = status.patch(&read(service.clone()), Timestamp::now()) {
                merge(&mut service, &patch);
            }
            prop_assert_eq!(status.patch(&read(service.clone()), Timestamp::now()), None);
        }
        if let Some(patch) = withdrawal(&read(service.clone())) {
            merge(&mut service, &patch);
        }
        prop_assert_eq!(withdrawal(&read(service)), None);
    }

    #[test]
    fn an_error_never_takes_a_living_address_away(n in 0usize..7) {
        let service = read(raw("s", &json!({ "status": { "loadBalancer": { "ingress": [{ "ip": "192.0.2.1" }] } } })));
        let patch = Status::failed(&ProviderError::new(ErrorKind::ALL[n], "because")).patch(&service, Timestamp::now());
        prop_assert!(patch.unwrap()["status"].get("loadBalancer").is_none());
    }
}

#[test]
fn a_condition_of_another_controller_is_neither_read_nor_written() {
    let theirs = json!({ "type": "other.example/Ready", "status": "True", "reason": "R", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z" });
    let mut raw = raw("s", &json!({ "status": { "conditions": [theirs] } }));
    let status = Status::failed(&ProviderError::new(ErrorKind::Quota, "none left"));
    let patch = status.patch(&read(raw.clone()), Timestamp::now()).unwrap();
    merge(&mut raw, &patch);
    assert_eq!(raw["status"]["conditions"][0], theirs);
    assert_eq!(raw["status"]["conditions"].as_array().unwrap().len(), 2);
    let patch = withdrawal(&read(raw.clone())).unwrap();
    merge(&mut raw, &patch);
    assert_eq!(raw["status"]["conditions"], json!([theirs]));
}

#[test]
fn the_transition_time_moves_with_the_status_alone() {
    let mut raw = raw("s", &json!({}));
    let failed = |message: &str| Status::failed(&ProviderError::new(ErrorKind::Quota, message));
    for (message, time) in [("one", "2026-01-01T00:00:00Z"), ("two", "2026-01-02T00:00:00Z")] {
        let patch = failed(message).patch(&read(raw.clone()), time.parse().unwrap()).unwrap();
        merge(&mut raw, &patch);
    }
    let condition = &raw["status"]["conditions"][0];
    assert_eq!(
        (&condition["message"], &condition["lastTransitionTime"]),
        (&json!("two"), &json!("2026-01-01T00:00:00Z"))
    );
}

#[test]
fn classes_decide_who_serves() {
    let ours = Class { name: "c".into(), classless: false };
    let greedy = Class { name: "c".into(), classless: true };
    let claim = |by: &str| json!({ "finalizers": [names::FINALIZER], "annotations": { names::CLAIMED_BY: by } });
    let case = |more: Value| read(raw("s", &more));
    let unnamed = json!({ "finalizers": [names::FINALIZER], "deletionTimestamp": "2026-01-01T00:00:00Z" });
    let table = [
        ("our class", case(json!({})), Intent::Serve, Intent::Serve),
        ("another class", case(json!({ "spec": { "loadBalancerClass": "d" } })), Intent::Ignore, Intent::Ignore),
        ("no class", case(json!({ "spec": { "loadBalancerClass": null } })), Intent::Ignore, Intent::Serve),
        (
            "no class, taken by us while the switch was on",
            case(json!({ "metadata": claim("c"), "spec": { "loadBalancerClass": null } })),
            Intent::Serve,
            Intent::Serve,
        ),
        (
            "no class, taken by another controller of ours",
            case(json!({ "metadata": claim("d"), "spec": { "loadBalancerClass": null } })),
            Intent::Ignore,
            Intent::Ignore,
        ),
        (
            "type changed away",
            case(json!({ "metadata": claim("c"), "spec": { "type": "ClusterIP", "loadBalancerClass": null } })),
            Intent::Leave,
            Intent::Leave,
        ),
        (
            "type changed away, but the finalizer is somebody else's",
            case(json!({ "metadata": { "finalizers": [names::FINALIZER] }, "spec": { "type": "ClusterIP" } })),
            Intent::Ignore,
            Intent::Ignore,
        ),
        (
            "deleted before it was claimed",
            case(json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } })),
            Intent::Ignore,
            Intent::Ignore,
        ),
        (
            "deleted, and somebody took away whose the finalizer is",
            case(json!({ "metadata": unnamed })),
            Intent::Leave,
            Intent::Leave,
        ),
        (
            "the same, of another controller of ours",
            case(json!({ "metadata": unnamed, "spec": { "loadBalancerClass": "d" } })),
            Intent::Ignore,
            Intent::Ignore,
        ),
        (
            "the same, of nobody knows whom",
            case(json!({ "metadata": unnamed, "spec": { "loadBalancerClass": null } })),
            Intent::Ignore,
            Intent::Ignore,
        ),
    ];
    for (story, service, strict, with_switch) in table {
        assert_eq!((ours.intent(&service), greedy.intent(&service)), (strict, with_switch), "{story}");
    }
}

fn claimed(name: &str, version: u32, more: &Value) -> Value {
    let mut service = raw(
        name,
        &json!({
            "metadata": {
                "resourceVersion": version.to_string(), "finalizers": [names::FINALIZER],
                "annotations": { names::CLAIMED_BY: "c" },
            },
            "status": { "loadBalancer": { "ingress": [{ "ip": "192.0.2.1" }] } },
        }),
    );
    merge(&mut service, more);
    service
}

fn wire(json: Value) -> wire::Service {
    serde_json::from_value(json).unwrap()
}

fn cache() -> (Arc<Cache>, ServiceSink) {
    cache_waking(|_| {})
}

fn cache_waking(wake: impl Fn(ServiceKey) + Send + Sync + 'static) -> (Arc<Cache>, ServiceSink) {
    cache_of(wake, |_| Beside::default())
}

fn cache_of(
    wake: impl Fn(ServiceKey) + Send + Sync + 'static,
    beside: impl Fn(&Owner) -> Beside + Send + Sync + 'static,
) -> (Arc<Cache>, ServiceSink) {
    let class = Class { name: "c".into(), classless: false };
    let hints = Hints { named: Box::new(|_| None), beside: Box::new(beside) };
    let cache = Arc::new(Cache::new(class, Reads::default(), hints, Box::new(wake)));
    (cache.clone(), ServiceSink::new(cache))
}

#[test]
fn a_service_that_left_and_came_back_is_not_taken_for_departed() {
    let (cache, mut sink) = cache();
    let key = ServiceKey::new("ns", "s");
    sink.apply(wire(claimed("s", 1, &json!({}))));
    sink.apply(wire(raw("s", &json!({ "metadata": { "resourceVersion": "2" }, "spec": { "type": "ClusterIP" } }))));
    assert_eq!(cache.departed(&key).len(), 1, "somebody else unclaimed it, and may not have released it");
    sink.apply(wire(claimed("s", 3, &json!({}))));
    assert_eq!(cache.departed(&key), []);
}

#[test]
fn a_follower_forgets_the_departed_that_have_nothing_outside_any_more() {
    let (cache, mut sink) = cache();
    for name in ["gone", "left"] {
        sink.apply(wire(claimed(name, 1, &json!({}))));
        sink.delete(wire(claimed(name, 2, &json!({}))));
    }
    let left = cache.departed(&ServiceKey::new("ns", "left"));
    cache.keep_departed(&left.iter().cloned().collect());
    assert_eq!(cache.departed(&ServiceKey::new("ns", "left")), left);
    assert_eq!(cache.departed(&ServiceKey::new("ns", "gone")), []);
}

#[test]
fn the_answer_to_an_older_write_does_not_remove_what_the_watch_has_seen_since() {
    let (cache, mut sink) = cache();
    let unclaimed = |version: &str| {
        wire(raw("s", &json!({ "metadata": { "resourceVersion": version }, "spec": { "type": "ClusterIP" } })))
    };
    sink.apply(wire(claimed("s", 5, &json!({}))));
    assert!(cache.wrote(&unclaimed("4")).is_some(), "an answer that is older");
    let other = json!({ "metadata": { "uid": uuid::Uuid::from_u128(9).to_string() } });
    let mut namesake = unclaimed("9");
    namesake.metadata.uid = Some(uuid::Uuid::from_u128(9).to_string());
    sink.apply(wire(claimed("s", 3, &other)));
    assert!(cache.wrote(&unclaimed("4")).is_none(), "the answer is about another Service of this name");
    assert!(cache.service(&ServiceKey::new("ns", "s")).is_some());
    assert!(cache.wrote(&namesake).is_none());
    assert!(cache.service(&ServiceKey::new("ns", "s")).is_none(), "and this one is about it");
}

#[test]
fn the_answer_to_a_write_does_not_bring_back_a_service_that_has_gone_since() {
    let (cache, mut sink) = cache();
    let key = ServiceKey::new("ns", "s");
    sink.apply(wire(claimed("s", 1, &json!({}))));
    // Our write, version 2, is taken; then finalizers are torn off and the Service goes, and the watch is quicker.
    sink.delete(wire(claimed("s", 4, &json!({}))));
    assert!(cache.wrote(&wire(claimed("s", 2, &json!({})))).is_none());
    assert!(cache.service(&key).is_none());
    assert_eq!(cache.departed(&key).len(), 1, "what it has outside still has to go");
}

#[test]
fn an_address_that_another_controller_published_is_not_a_living_one_of_ours() {
    let (cache, mut sink) = cache();
    sink.apply(wire(claimed("ours", 1, &json!({}))));
    sink.apply(wire(claimed("theirs", 1, &json!({ "metadata": { "annotations": { names::CLAIMED_BY: null } } }))));
    let living: Vec<_> = cache.living().into_iter().map(|l| l.owner.key.name).collect();
    assert_eq!(living, ["ours".into()]);
}

#[test]
fn what_is_to_go_and_paused_lives_until_it_goes_on() {
    let (cache, mut sink) = cache();
    let paused = || json!({ "metadata": { "annotations": { names::PAUSED: "true" } } });
    let leaving = || json!({ "metadata": { "deletionTimestamp": "2026-01-02T00:00:00Z" } });
    let retyped = || json!({ "spec": { "type": "ClusterIP", "loadBalancerClass": null } });
    for (name, changes) in [
        ("leaving", vec![leaving()]),
        ("paused-leaving", vec![leaving(), paused()]),
        ("paused-retyped", vec![retyped(), paused()]),
        ("retyped", vec![retyped()]),
    ] {
        let mut more = json!({});
        for change in &changes {
            merge(&mut more, change);
        }
        sink.apply(wire(claimed(name, 1, &more)));
    }
    let mut living: Vec<_> = cache.living().into_iter().map(|l| l.owner.key.name).collect();
    living.sort();
    assert_eq!(living, ["paused-leaving".into(), "paused-retyped".into()]);
}

#[test]
fn a_source_range_that_cannot_be_read_refuses_a_new_service() {
    let service = read(raw("s", &json!({ "spec": { "loadBalancerSourceRanges": ["10.0.0.0/8", "everyone"] } })));
    let refused = desired(&service, &mut std::iter::empty(), &[Box::new(service.clone())], vec![]).unwrap_err();
    assert_eq!(refused.to_string(), "spec.loadBalancerSourceRanges: \"everyone\" is not a CIDR, and lets nobody in");
}

#[test]
fn a_living_service_goes_on_with_the_source_ranges_that_can_be_read_and_is_never_opened() {
    let living: IpAddr = [192, 0, 2, 1].into();
    let ranges = |texts: &[&str]| {
        let service = read(claimed("s", 1, &json!({ "spec": { "loadBalancerSourceRanges": texts } })));
        let group = [Box::new(service.clone())];
        assert_eq!(trouble(&service, &group).is_some(), texts.contains(&"everyone"), "its user is told");
        let wanted = desired(&service, &mut std::iter::empty(), &group, vec![living]).unwrap();
        wanted.source_ranges.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(ranges(&["everyone", "10.0.0.0/8"]), ["10.0.0.0/8"]);
    assert_eq!(ranges(&["everyone"]), ["0.0.0.0/32"], "nobody has this address");
    assert_eq!(ranges(&["0192.168.001.0/024"]), ["192.168.1.0/24"]);
    assert_eq!(ranges(&[]), [""; 0]);
}

/// A slice of the Service `s`, unless `more` says something else.
fn slice(name: &str, endpoints: &Value, more: &Value) -> wire::EndpointSlice {
    let mut slice = json!({
        "metadata": { "namespace": "ns", "name": name, "labels": { "kubernetes.io/service-name": "s" } },
        "addressType": "IPv4", "ports": [{ "name": "web", "port": 8080 }, { "name": "other", "port": 1 }],
        "endpoints": endpoints,
    });
    merge(&mut slice, more);
    serde_json::from_value(slice).unwrap()
}

/// The backends of the Service `s` as `address:port@node`.
fn backends(slices: &[wire::EndpointSlice]) -> Vec<String> {
    let service = read(raw("s", &json!({ "spec": { "ports": [{ "name": "web", "port": 80 }] } })));
    let slices: Vec<_> = slices.iter().filter_map(|s| object::slice(s, &mut Strings::default())).collect();
    let wanted = desired(&service, &mut slices.iter(), &[Box::new(service.clone())], vec![]).unwrap();
    let shown = |b: &Backend| format!("{}:{}@{}", b.address, b.port, b.node.as_deref().unwrap_or("-"));
    wanted.frontends[0].backends.iter().map(shown).collect()
}

#[test]
fn an_endpoint_of_two_slices_or_of_two_addresses_is_one_backend() {
    let endpoints = json!([{ "addresses": ["10.0.0.1", "10.0.0.9"] }]);
    let slices = |other: &Value| [slice("a", &endpoints, &json!({})), slice("b", other, &json!({}))];
    assert_eq!(backends(&slices(&endpoints)), ["10.0.0.1:8080@-"]);
    let placed = json!([{ "addresses": ["10.0.0.1"], "nodeName": "n1" }]);
    assert_eq!(backends(&slices(&placed)), ["10.0.0.1:8080@n1"], "one of them says where it is");
    let legacy = json!([{ "addresses": ["010.000.0.01"] }]);
    assert_eq!(backends(&slices(&legacy)), ["10.0.0.1:8080@-"], "Kubernetes takes this for the same");
}

#[test]
fn a_named_port_has_the_number_that_each_pod_gives_it() {
    let slices = [
        slice("old", &json!([{ "addresses": ["10.0.0.1"] }]), &json!({})),
        slice("new", &json!([{ "addresses": ["10.0.0.2"] }]), &json!({ "ports": [{ "name": "web", "port": 9090 }] })),
    ];
    assert_eq!(backends(&slices), ["10.0.0.1:8080@-", "10.0.0.2:9090@-"]);
}

#[test]
fn slices_that_say_nothing_of_use_are_no_backends() {
    let one = json!([{ "addresses": ["10.0.0.1"] }]);
    let named = json!([{ "addresses": ["db.example.com"] }]);
    let slices = [
        slice("fqdn", &named, &json!({ "addressType": "FQDN" })),
        slice("portless", &one, &json!({ "ports": null })),
        slice("all-ports", &one, &json!({ "ports": [{ "name": "web" }] })),
        slice("other-port", &one, &json!({ "ports": [{ "name": "old", "port": 8080 }] })),
        slice("other-protocol", &one, &json!({ "ports": [{ "name": "web", "port": 8080, "protocol": "UDP" }] })),
        slice("empty", &Value::Null, &json!({})),
        slice("nobodys", &one, &json!({ "metadata": { "labels": { "kubernetes.io/service-name": null } } })),
    ];
    assert_eq!(backends(&slices), [""; 0]);
}

#[test]
fn while_a_family_has_nothing_ready_its_draining_endpoints_answer_whatever_the_other_has() {
    let draining = json!({ "ready": false, "serving": true, "terminating": true });
    let v4 =
        |conditions: &Value| slice("v4", &json!([{ "addresses": ["10.0.0.1"], "conditions": conditions }]), &json!({}));
    let v6 = |conditions: &Value| {
        slice("v6", &json!([{ "addresses": ["fd00::1"], "conditions": conditions }]), &json!({ "addressType": "IPv6" }))
    };
    let ready = json!({ "ready": true });
    let both = ["10.0.0.1:8080@-", "fd00::1:8080@-"];
    assert_eq!(backends(&[v4(&ready), v6(&ready)]), both);
    assert_eq!(backends(&[v4(&draining), v6(&ready)]), both, "the slice of the other family is told later");
    assert_eq!(backends(&[v4(&draining), v6(&draining)]), both);
    assert_eq!(backends(&[v4(&ready), v4(&draining)]), both[..1]);
}

#[test]
fn a_slice_that_is_given_to_another_service_leaves_the_one_that_it_was_of() {
    let (cache, _) = cache();
    let mut sink = SliceSink::new(cache.clone());
    let one = json!([{ "addresses": ["10.0.0.1"] }]);
    let of = |service: &Value| {
        slice("custom", &one, &json!({ "metadata": { "labels": { "kubernetes.io/service-name": service } } }))
    };
    let has = |name: &str| cache.with_slices(&ServiceKey::new("ns", name), |slices| slices.next().is_some());
    sink.apply(of(&json!("blue")));
    assert_eq!((has("blue"), has("green")), (true, false));
    sink.apply(of(&json!("green")));
    assert_eq!((has("blue"), has("green")), (false, true));
    sink.list_begins();
    sink.listed(of(&json!("blue")));
    sink.list_complete();
    assert_eq!((has("blue"), has("green")), (true, false));
    sink.apply(of(&Value::Null));
    assert_eq!((has("blue"), has("green")), (false, false), "nobody's");
    sink.apply(of(&json!("green")));
    sink.delete(of(&json!("green")));
    assert_eq!((has("blue"), has("green")), (false, false));
}

#[test]
fn a_port_of_a_shared_address_is_not_free_while_whoever_had_it_is_paused_on_its_way_out() {
    let member = |name: &str, more: &Value| {
        let mut member = raw(name, &json!({ "metadata": { "annotations": { names::SHARING_KEY: "k" } } }));
        merge(&mut member, more);
        Box::new(read(member))
    };
    let leaving = json!({
        "metadata": {
            "finalizers": [names::FINALIZER], "deletionTimestamp": "2026-01-02T00:00:00Z",
            "annotations": { names::CLAIMED_BY: "c", names::PAUSED: "true" },
        },
        "status": { "loadBalancer": { "ingress": [{ "ip": "192.0.2.1" }] } },
    });
    let (old, new) = (member("old", &leaving), member("new", &json!({})));
    let group = [old.clone(), new.clone()];
    assert!(matches!(place(&new, &group), Place::Refused { holder, .. } if holder == old.owner));
    let resumed = member("old", &json!({ "metadata": { "deletionTimestamp": "2026-01-02T00:00:00Z" } }));
    assert_eq!(place(&new, &[resumed, new.clone()]), Place::First, "it goes at once");
}

#[test]
fn strings_are_kept_once_and_forgotten_when_nobody_has_them() {
    let mut strings = Strings::default();
    let one = strings.share("namespace");
    assert!(std::sync::Arc::ptr_eq(&one, &strings.share("namespace")));
    for n in 0..100_000 {
        strings.share(&format!("passing-{n}"));
    }
    assert!(strings.len() < 10_000, "{} strings kept", strings.len());
    assert!(std::sync::Arc::ptr_eq(&one, &strings.share("namespace")));
}

#[test]
fn a_caveat_is_the_reason_and_a_stopping_one_comes_first() {
    let caveat = |reason, stops| Caveat { reason, message: format!("{reason} it is"), stops };
    let ready = |caveats: Vec<Caveat>, backends| {
        let (realised, routable) = (Realised::Yes, Routable::Unasked);
        let status = Status::served(&Reachable { ingress: vec![], realised, routable, caveats }, backends, false);
        (status.told[0].status, status.told[0].reason, status.told[0].message.clone())
    };
    assert_eq!(ready(vec![], true), ("True", "Served", String::new()));
    assert_eq!(ready(vec![caveat("Small", false)], true), ("True", "Small", "Small it is".into()));
    let both = vec![caveat("Small", false), caveat("Great", true)];
    assert_eq!(ready(both.clone(), true), ("False", "Great", "Small it is; Great it is".into()));
    assert_eq!(ready(both, false).1, "NoEndpoints");
}

#[test]
fn what_nobody_can_tell_leaves_the_condition_as_it_is() {
    let told = |realised, routable| {
        let status = Status::served(&Reachable { ingress: vec![], realised, routable, caveats: vec![] }, true, true);
        status.told.into_iter().map(|told| told.kind).collect::<Vec<_>>()
    };
    assert_eq!(told(Realised::Yes, Routable::AsTold), [names::READY, names::REALISED]);
    assert_eq!(told(Realised::AsTold, Routable::Yes), [names::READY, names::ROUTABLE_EXTERNALLY]);
    assert_eq!(told(Realised::AsTold, Routable::AsTold), [names::READY]);
}

#[test]
fn what_an_older_controller_was_to_take_away_is_ours_to_take_away() {
    let class = Class { name: "c".into(), classless: false };
    let with = |finalizer: &str, more: Value| {
        let mut service = raw("s", &json!({ "metadata": { "finalizers": [finalizer] } }));
        merge(&mut service, &more);
        class.intent(&read(service))
    };
    let deleted = json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } });
    assert_eq!(with("old.example/finalizer", deleted.clone()), Intent::Leave);
    assert_eq!(with("other.example/finalizer", deleted), Intent::Ignore);
    let elsewhere =
        json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" }, "spec": { "loadBalancerClass": "d" } });
    assert_eq!(with("old.example/finalizer", elsewhere), Intent::Ignore, "another class's");
    assert_eq!(with("old.example/finalizer", json!({ "spec": { "type": "ClusterIP" } })), Intent::Leave);
}

#[test]
fn what_an_older_controller_published_is_living_once_its_services_are_taken_over() {
    let class = Class { name: "a.example/lb".into(), classless: true };
    let status = json!({ "loadBalancer": { "ingress": [{ "ip": "192.0.2.7" }] } });
    let with = |finalizer: &str, class: Option<&str>| {
        let spec = json!({ "loadBalancerClass": class });
        read(raw("s", &json!({ "metadata": { "finalizers": [finalizer] }, "spec": spec, "status": status })))
    };
    let living: Vec<IpAddr> = vec![[192, 0, 2, 7].into()];
    assert_eq!(class.addresses(&with("old.example/finalizer", None)), living);
    assert_eq!(class.addresses(&with("other.example/finalizer", None)), Vec::<IpAddr>::new());
    let theirs = with("old.example/finalizer", Some("b.example/lb"));
    assert_eq!(class.addresses(&theirs), Vec::<IpAddr>::new(), "another class's");
}
