//! What to change in a Vpc so that it has the entries that its project needs. Pure.
//!
//! An entry has no room for a mark, so an annotation lists ours. Everything else in the list is somebody else's and is
//! written back as it was read.

use std::collections::{BTreeMap, BTreeSet};

use groundcrew_api::names::annotation::POLICY_ROUTES;
use serde_json::{Value, json};

use super::needs::Wanted;
use super::{PRIORITY, Route};

/// Ours by cluster.
type Owned = BTreeMap<String, BTreeSet<String>>;

/// The merge patch for this Vpc; `None` if it says what it should.
pub(super) fn plan(vpc: &Value, cluster: &str, wanted: &Wanted) -> Option<Value> {
    let present: Vec<&Value> = vpc["spec"]["policyRoutes"].as_array().into_iter().flatten().collect();
    let owned = owned(vpc["metadata"]["annotations"][POLICY_ROUTES].as_str());
    // One of each: a second one just like it is somebody else's.
    let mut listed = owned.get(cluster).cloned().unwrap_or_default();
    let mut ours: BTreeSet<Route> = BTreeSet::new();
    let mut list: Vec<Value> = Vec::with_capacity(present.len());
    for entry in &present {
        match read(entry).filter(|route| listed.remove(&key(route))) {
            Some(route) if wanted.is_complete && !wanted.routes.contains(&route) => {}
            Some(route) => {
                ours.insert(route);
                list.push((*entry).clone());
            }
            None => list.push((*entry).clone()),
        }
    }
    for route in &wanted.routes {
        // An entry for the same packets is there: it does what is needed, or it sends them elsewhere and was first.
        let is_matched = list.iter().any(|entry| matches(entry) == Some(&*route.matches));
        if wanted.take_over && !ours.contains(route) && !is_listed(&owned, route) {
            // kube-dc's, which nobody else takes away any more.
            ours.extend(list.iter().filter_map(read).find(|entry| entry == route));
        }
        if !is_matched {
            list.push(json!({
                "priority": PRIORITY, "match": route.matches, "action": "reroute", "nextHopIP": route.next_hop,
            }));
            ours.insert(route.clone());
        }
    }
    let mut owning = owned.clone();
    owning.remove(cluster);
    if !ours.is_empty() {
        owning.insert(cluster.to_owned(), ours.iter().map(key).collect());
    }
    if owning == owned && list.iter().eq(present) {
        return None;
    }
    let owning = (!owning.is_empty()).then(|| json!(owning).to_string());
    Some(json!({
        "metadata": {
            "resourceVersion": vpc["metadata"]["resourceVersion"], "annotations": { POLICY_ROUTES: owning },
        },
        "spec": { "policyRoutes": list },
    }))
}

/// The clusters that the annotation names.
pub(in super::super) fn owners(annotation: Option<&str>) -> BTreeSet<String> {
    owned(annotation).into_keys().collect()
}

/// One that nobody can read makes nothing ours.
fn owned(annotation: Option<&str>) -> Owned {
    annotation.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

/// Whether some cluster has an entry like this one.
fn is_listed(owned: &Owned, route: &Route) -> bool {
    owned.values().any(|entries| entries.contains(&key(route)))
}

fn matches(entry: &Value) -> Option<&str> {
    entry["match"].as_str().map(str::trim)
}

/// An entry that says just what one of ours would say.
fn read(entry: &Value) -> Option<Route> {
    let fields = entry.as_object()?;
    let is_like_ours = fields.len() == 4 && entry["priority"] == PRIORITY && entry["action"] == "reroute";
    let route =
        Route { matches: entry["match"].as_str()?.into(), next_hop: entry["nextHopIP"].as_str()?.parse().ok()? };
    is_like_ours.then_some(route)
}

fn key(route: &Route) -> String {
    format!("{} via {}", route.matches, route.next_hop)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn route(backend: u8, hop: u8) -> Route {
        let matches = format!("ip4.src == 10.1.0.{backend}").into();
        Route { matches, next_hop: [100, 64, hop, 1].into() }
    }

    fn entry(route: &Route) -> Value {
        json!({ "priority": PRIORITY, "match": route.matches, "action": "reroute", "nextHopIP": route.next_hop })
    }

    fn wanted(routes: &[Route]) -> Wanted {
        Wanted { routes: routes.iter().cloned().collect(), is_complete: true, take_over: false }
    }

    fn vpc(entries: &[Value]) -> Value {
        json!({ "metadata": { "name": "v", "resourceVersion": "7" }, "spec": { "policyRoutes": entries } })
    }

    /// Carries a plan out as the API server does.
    fn apply(vpc: &mut Value, cluster: &str, wanted: &Wanted) -> bool {
        let Some(patch) = plan(vpc, cluster, wanted) else { return false };
        assert_eq!(patch["metadata"]["resourceVersion"], vpc["metadata"]["resourceVersion"]);
        vpc["spec"]["policyRoutes"] = patch["spec"]["policyRoutes"].clone();
        let annotation = &patch["metadata"]["annotations"][POLICY_ROUTES];
        vpc["metadata"]["annotations"] =
            if annotation.is_null() { json!({}) } else { json!({ POLICY_ROUTES: annotation }) };
        true
    }

    fn entries(vpc: &Value) -> Vec<Value> {
        vpc["spec"]["policyRoutes"].as_array().cloned().unwrap_or_default()
    }

    #[test]
    fn entries_come_and_go_with_who_needs_them_and_nothing_is_left() {
        let foreign = json!({ "priority": 31_000, "match": "ip4.dst == 10.1.0.0/16", "action": "allow", "more": 1 });
        let mut vpc = vpc(std::slice::from_ref(&foreign));
        assert!(apply(&mut vpc, "c1", &wanted(&[route(1, 0), route(2, 0)])));
        assert_eq!(entries(&vpc), [foreign.clone(), entry(&route(1, 0)), entry(&route(2, 0))]);
        assert!(!apply(&mut vpc, "c1", &wanted(&[route(1, 0), route(2, 0)])), "steady state writes nothing");
        assert!(apply(&mut vpc, "c1", &wanted(&[route(2, 0)])));
        assert_eq!(entries(&vpc), [foreign.clone(), entry(&route(2, 0))]);
        assert!(apply(&mut vpc, "c1", &wanted(&[])));
        assert_eq!((entries(&vpc), &vpc["metadata"]["annotations"]), (vec![foreign], &json!({})));
    }

    #[test]
    fn an_entry_of_ours_that_somebody_took_is_put_back() {
        let mut vpc = vpc(&[]);
        apply(&mut vpc, "c1", &wanted(&[route(1, 0)]));
        vpc["spec"]["policyRoutes"] = Value::Null;
        assert!(apply(&mut vpc, "c1", &wanted(&[route(1, 0)])));
        assert_eq!(entries(&vpc), [entry(&route(1, 0))]);
    }

    #[test]
    fn what_somebody_else_wrote_for_the_same_packets_is_enough_or_was_first() {
        for theirs in
            [entry(&route(1, 0)), json!({ "priority": 30_000, "match": "ip4.src == 10.1.0.1", "action": "allow" })]
        {
            let mut vpc = vpc(&[theirs]);
            assert!(!apply(&mut vpc, "c1", &wanted(&[route(1, 0)])));
            assert!(!apply(&mut vpc, "c1", &wanted(&[])), "and it is not ours to remove");
        }
    }

    #[test]
    fn what_kube_dc_wrote_for_a_backend_of_ours_is_ours_where_it_is_taken_over() {
        let (unserved, first) = (entry(&route(2, 0)), json!({ "priority": 30_000, "match": "ip4.src == 10.1.0.3" }));
        let mut vpc = vpc(&[entry(&route(1, 0)), unserved.clone(), first.clone()]);
        let taking = |routes: &[Route]| Wanted { take_over: true, ..wanted(routes) };
        assert!(apply(&mut vpc, "c1", &taking(&[route(1, 0), route(3, 0)])));
        assert_eq!(entries(&vpc), [entry(&route(1, 0)), unserved.clone(), first.clone()], "nothing moves");
        assert!(!apply(&mut vpc, "c1", &taking(&[route(1, 0), route(3, 0)])), "steady state writes nothing");
        assert!(!apply(&mut vpc, "c2", &taking(&[route(1, 0)])), "another cluster does not take it from us");
        assert!(apply(&mut vpc, "c1", &taking(&[])));
        assert_eq!(entries(&vpc), [unserved, first], "it goes with the last Service that needs it, and no other does");
    }

    #[test]
    fn of_two_ways_for_one_backend_the_living_one_stays() {
        let mut vpc = vpc(&[]);
        apply(&mut vpc, "c1", &wanted(&[route(1, 9)]));
        assert!(!apply(&mut vpc, "c1", &wanted(&[route(1, 0), route(1, 9)])));
        assert_eq!(entries(&vpc), [entry(&route(1, 9))]);
    }

    #[test]
    fn while_somebody_is_not_heard_nothing_goes() {
        let mut vpc = vpc(&[]);
        apply(&mut vpc, "c1", &wanted(&[route(1, 0)]));
        assert!(!apply(&mut vpc, "c1", &Wanted { is_complete: false, ..wanted(&[]) }));
        assert!(
            apply(&mut vpc, "c1", &Wanted { is_complete: false, ..wanted(&[route(2, 0)]) }),
            "but what is needed comes"
        );
        assert_eq!(entries(&vpc).len(), 2);
    }

    #[test]
    fn an_annotation_that_nobody_can_read_makes_nothing_ours() {
        let mut vpc = vpc(&[entry(&route(1, 0))]);
        vpc["metadata"]["annotations"] = json!({ POLICY_ROUTES: "c1: everything" });
        assert_eq!(plan(&vpc, "c1", &wanted(&[])), None);
    }

    #[derive(Debug, Clone)]
    enum Act {
        /// A cluster of ours wants these.
        Want(bool, Vec<(u8, u8)>),
        /// Somebody adds an entry, perhaps just like one of ours.
        Add(u8, u8, bool),
        /// Somebody takes one of his own.
        Take(usize),
    }

    fn acts() -> impl Strategy<Value = Vec<Act>> {
        let pair = || (0u8..4, 0u8..2);
        let act = prop_oneof![
            (any::<bool>(), prop::collection::vec(pair(), 0..5)).prop_map(|(one, routes)| Act::Want(one, routes)),
            (pair(), any::<bool>()).prop_map(|((backend, hop), same)| Act::Add(backend, hop, same)),
            (0usize..4).prop_map(Act::Take),
        ];
        prop::collection::vec(act, 1..40)
    }

    proptest! {
        /// Two clusters of ours on one Vpc, and others who write what they like.
        #[test]
        fn entries_of_others_survive_any_sequence(acts in acts()) {
            let mut vpc = vpc(&[]);
            let mut theirs: Vec<Value> = Vec::new();
            for act in acts {
                match act {
                    Act::Want(one, pairs) => {
                        let cluster = if one { "c1" } else { "c2" };
                        let wanted = wanted(&pairs.iter().map(|(b, h)| route(*b, *h)).collect::<Vec<_>>());
                        apply(&mut vpc, cluster, &wanted);
                        prop_assert!(!apply(&mut vpc, cluster, &wanted), "a plan carried out leaves nothing to do");
                        for route in &wanted.routes {
                            prop_assert!(entries(&vpc).iter().any(|entry| matches(entry) == Some(&*route.matches)));
                        }
                    }
                    Act::Add(backend, hop, same) => {
                        let mut new = entry(&route(backend, hop));
                        if !same {
                            new["comment"] = json!("mine");
                        }
                        theirs.push(new.clone());
                        let list = entries(&vpc).into_iter().chain([new]).collect();
                        vpc["spec"]["policyRoutes"] = Value::Array(list);
                    }
                    Act::Take(n) if n < theirs.len() => {
                        let gone = theirs.remove(n);
                        let mut list = entries(&vpc);
                        let at = list.iter().rposition(|entry| *entry == gone).unwrap();
                        list.remove(at);
                        vpc["spec"]["policyRoutes"] = Value::Array(list);
                    }
                    Act::Take(_) => {}
                }
                let list = entries(&vpc);
                for entry in &theirs {
                    let count = |all: &[Value]| all.iter().filter(|other| *other == entry).count();
                    prop_assert!(count(&list) >= count(&theirs), "{entry} is gone from {list:?}");
                }
            }
            for cluster in ["c1", "c2"] {
                apply(&mut vpc, cluster, &wanted(&[]));
            }
            prop_assert_eq!(entries(&vpc).len(), theirs.len(), "nothing of ours is left");
        }
    }
}
