//! Who waits for whose address.

use std::sync::Mutex;

use super::*;

/// Of one key, in the order of their names.
fn member(name: &str, more: &Value) -> Box<Service> {
    let mut member = raw(name, &json!({ "metadata": { "annotations": { names::SHARING_KEY: "k" } } }));
    merge(&mut member, more);
    Box::new(read(member))
}

fn of(families: &[&str], port: u16) -> Value {
    json!({ "spec": { "ipFamilies": families, "ports": [{ "port": port }] } })
}

#[test]
fn of_another_family_there_is_nothing_to_share_and_no_port_to_lose() {
    let (v4, v6) = (member("a", &of(&["IPv4"], 80)), member("b", &of(&["IPv6"], 80)));
    let both = member("c", &of(&["IPv4", "IPv6"], 443));
    let group = [v4.clone(), v6.clone(), both.clone()];
    assert_eq!(place(&v6, &group), Place::First);
    assert_eq!(place(&both, &group), Place::With(v4.owner.clone()));
    let wanted = desired(&both, &mut std::iter::empty(), &group, vec![]).unwrap();
    assert_eq!(wanted.ask.share_families, Some(crate::provider::Families::V4), "the other one it gets for itself");
    let third = member("d", &of(&["IPv6", "IPv4"], 80));
    let group = [v4, v6.clone(), third.clone()];
    assert!(matches!(place(&third, &group), Place::Refused { .. }));
}

#[test]
fn who_can_get_no_address_as_it_is_is_passed_over_and_joins_later() {
    let odd = json!({ "metadata": { "annotations": { names::LOAD_BALANCER_IPS: "nonsense" } } });
    let other_family = json!({ "spec": { "loadBalancerIP": "2001:db8::1" } });
    let paused = json!({ "metadata": { "annotations": { names::PAUSED: "true" } } });
    let later = member("b", &json!({ "spec": { "ports": [{ "port": 443 }] } }));
    for stuck in [odd, other_family, paused] {
        let first = member("a", &stuck);
        let group = [first.clone(), later.clone()];
        assert_eq!(place(&later, &group), Place::First, "{stuck}");
        let served = json!({
            "spec": { "ports": [{ "port": 443 }] }, "status": { "loadBalancer": { "ingress": [{ "ip": "192.0.2.1" }] } },
        });
        let (mended, served) = (member("a", &json!({})), member("b", &served));
        assert_eq!(place(&mended, &[mended.clone(), served.clone()]), Place::With(served.owner.clone()));
    }
}

#[test]
fn who_waits_for_the_address_of_one_that_gets_none_is_told() {
    let asks = |first: &Service, later: &Service| {
        let group = [Box::new(first.clone()), Box::new(later.clone())];
        desired(later, &mut std::iter::empty(), &group, vec![])
    };
    let later = member("b", &json!({ "spec": { "ports": [{ "port": 443 }] } }));
    // It may get one in a moment.
    assert!(asks(&member("a", &json!({})), &later).is_ok());
    let condition = json!({
        "type": names::READY, "status": "False", "reason": "AddressOutsidePools", "message": "1.2.3.4 is in no pool",
    });
    let refused = member("a", &json!({ "status": { "conditions": [condition] } }));
    let error = asks(&refused, &later).unwrap_err();
    assert_eq!((error.kind(), error.response().reason), (ErrorKind::Quota, "WaitsForShared"));
    assert!(error.to_string().contains("ns/a") && error.to_string().contains("is in no pool"), "{error}");
    assert!(asks(&later, &refused).is_ok(), "the first waits for nobody");
}

#[test]
fn who_waits_for_another_ones_address_is_woken_by_the_answer_to_our_write_whose_event_is_no_news_then() {
    let woken = Arc::new(Mutex::new(BTreeSet::new()));
    let wakes = woken.clone();
    let (cache, mut sink) = cache_waking(move |key| wakes.lock().unwrap().extend([key.name.to_string()]));
    let sharing = |name: &str, version: &str, more: Value| {
        let mut object = raw(
            name,
            &json!({ "metadata": {
            "resourceVersion": version, "annotations": { names::SHARING_KEY: "one" },
        } }),
        );
        merge(&mut object, &more);
        wire(object)
    };
    sink.apply(sharing("a", "1", json!({})));
    sink.apply(sharing("b", "2", json!({})));
    woken.lock().unwrap().clear();
    let published =
        || sharing("a", "3", json!({ "status": { "loadBalancer": { "ingress": [{ "ip": "192.0.2.1" }] } } }));
    cache.wrote(&published());
    assert_eq!(std::mem::take(&mut *woken.lock().unwrap()), ["b".to_owned()].into());
    sink.apply(published());
    assert!(woken.lock().unwrap().is_empty());
}

#[test]
fn who_shares_no_more_keeps_its_ports_and_is_joined_by_nobody() {
    let on = json!({ "status": { "loadBalancer": { "ingress": [{ "ip": "192.0.2.1" }] } } });
    let first = member("b", &on);
    let mut left = raw("a", &json!({ "spec": { "ports": [{ "port": 443 }] } }));
    merge(&mut left, &on);
    let left = Box::new(read(left));
    let newcomer = member("c", &json!({ "spec": { "ports": [{ "port": 8080 }] } }));
    let group = [first.clone(), left.clone(), newcomer.clone()];
    assert_eq!(place(&newcomer, &group), Place::With(first.owner.clone()));
    let refused = member("c", &json!({ "spec": { "ports": [{ "port": 443 }] } }));
    let group = [first.clone(), left.clone(), refused.clone()];
    assert!(matches!(place(&refused, &group), Place::Refused { holder, .. } if holder == left.owner));
    assert_eq!(place(&left, &[first.clone(), left.clone()]), Place::First, "it comes to nobody either");
    let mut moved = raw("a", &on);
    merge(&mut moved, &json!({ "metadata": { "creationTimestamp": "2026-01-02T00:00:00Z" } }));
    let moved = read(moved);
    let group = [first.clone(), Box::new(moved.clone())];
    assert!(matches!(place(&moved, &group), Place::Refused { holder, .. } if holder == first.owner));
}

#[test]
fn who_waits_for_a_port_of_one_that_shares_no_more_is_woken_when_it_changes_or_goes() {
    let woken = Arc::new(Mutex::new(BTreeSet::new()));
    let wakes = woken.clone();
    let known = |name: &str| read(raw(name, &json!({}))).owner;
    // `left` and `first` are on one address, and `other` names it as `office`.
    let beside = move |owner: &Owner| match &*owner.key.name {
        "left" | "first" => Beside { services: vec![known("left"), known("first")], names: vec!["office".into()] },
        _ => Beside::default(),
    };
    let (cache, mut sink) = cache_of(move |key| wakes.lock().unwrap().extend([key.name.to_string()]), beside);
    let shares = json!({ "metadata": { "annotations": { names::SHARING_KEY: "one" } } });
    sink.apply(wire(raw("left", &json!({}))));
    for (name, more) in [("first", &shares), ("waits", &shares), ("other", &json!({}))] {
        sink.apply(wire(raw(name, more)));
    }
    let taken = || std::mem::take(&mut *woken.lock().unwrap()).into_iter().collect::<Vec<_>>().join(" ");
    taken();
    let edited =
        wire(raw("left", &json!({ "metadata": { "resourceVersion": "8" }, "spec": { "ports": [{ "port": 1 }] } })));
    sink.apply(edited.clone());
    assert_eq!(taken(), "first left waits");
    sink.delete(edited);
    assert_eq!(taken(), "first left waits");
    assert_eq!(cache.departed(&ServiceKey::new("ns", "left")).len(), 1);
    sink.apply(wire(raw(
        "other",
        &json!({ "metadata": { "resourceVersion": "9" }, "spec": { "ports": [{ "port": 2 }] } }),
    )));
    assert_eq!(taken(), "other", "it concerns nobody");
}
