//! The three tags of the original controller, for people who look at the account. Nothing is decided by them.
//!
//! Only tags that carry our own note are changed: access rights hang on tags, and putting an address into a foreign one
//! might grant it to somebody.

use std::collections::{BTreeMap, BTreeSet};

use crate::client::{Meta, Tag};
use crate::inventory::Inventory;
use crate::marks::{self, Mark};

const NOTE: &str = "groundcrew-cluster";
const MANAGED: &str = "managed-by:cloudsigma-ccm";

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    Create(Tag),
    Put(Tag),
    Delete(Tag),
}

/// Whether this cluster's controller made it.
pub(crate) fn is_ours(tag: &Tag, cluster: &str) -> bool {
    tag.meta.get(NOTE).map(String::as_str) == Some(cluster)
}

/// What to change so that every address of this cluster has its three tags. Nothing is taken away on half a view.
pub(crate) fn plan(inventory: &Inventory, tags: &[Tag], complete: bool, cluster: &str, name: &str) -> Vec<Step> {
    let mut wanted: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for ip in inventory.ips.values() {
        let Mark::Ours(claim) = marks::read(&ip.meta, cluster) else { continue };
        let services = claim.owners.values().map(|key| format!("service:{}-{}", key.namespace, key.name));
        for tag in services.chain([format!("cluster:{name}"), MANAGED.to_owned()]) {
            wanted.entry(tag).or_default().insert(ip.address.to_string());
        }
    }
    if !(inventory.complete && complete) {
        return Vec::new();
    }
    let mut steps = Vec::new();
    let mut there = BTreeSet::new();
    for tag in tags.iter().filter(|tag| is_ours(tag, cluster)) {
        let now: BTreeSet<_> = tag.resources.iter().cloned().collect();
        match wanted.get(&tag.name) {
            // A second one of the same name was made by a write whose answer was lost.
            Some(want) if there.insert(tag.name.clone()) => {
                if *want != now {
                    steps.push(Step::Put(Tag { resources: want.iter().cloned().collect(), ..tag.clone() }));
                }
            }
            _ => steps.push(Step::Delete(tag.clone())),
        }
    }
    // One that says the same is as good, whoever made it: the original controller did, or a cloud that loses our note.
    let said = |name: &str, resources: &BTreeSet<String>| {
        tags.iter().any(|tag| tag.name == name && resources.iter().all(|uuid| tag.resources.contains(uuid)))
    };
    let missing = wanted.into_iter().filter(|(name, resources)| !there.contains(name) && !said(name, resources));
    for (name, resources) in missing {
        let meta = Meta::from([(NOTE.to_owned(), cluster.to_owned())]);
        steps.push(Step::Create(Tag { uuid: String::new(), name, meta, resources: resources.into_iter().collect() }));
    }
    steps
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use groundcrew_core::key::ServiceKey;
    use groundcrew_core::provider::Owner;
    use proptest::prelude::*;
    use serde_json::json;
    use uuid::Uuid;

    use super::*;

    fn inventory(marked: &[u8]) -> Inventory {
        let ips = marked.iter().map(|n| {
            let address = IpAddr::from([203, 0, 113, *n]);
            let owner = Owner { key: ServiceKey::new("shop", format!("web{n}")), uid: Uuid::from_u128(u128::from(*n)) };
            let meta = marks::with(&Meta::new(), "us", &owner, false);
            (address, serde_json::from_value(json!({ "uuid": address, "meta": meta })).unwrap())
        });
        Inventory { ips: ips.collect(), complete: true, ..Inventory::default() }
    }

    fn carry_out(tags: &mut Vec<Tag>, steps: Vec<Step>) {
        for step in steps {
            match step {
                Step::Create(tag) => tags.push(Tag { uuid: format!("of-{}", tag.name), ..tag }),
                Step::Put(tag) => {
                    let there = tags.iter_mut().find(|t| t.uuid == tag.uuid).unwrap();
                    *there = tag;
                }
                Step::Delete(tag) => tags.retain(|t| t.uuid != tag.uuid),
            }
        }
    }

    #[test]
    fn an_address_has_three_tags_and_a_foreign_tag_of_the_same_name_is_left_alone() {
        let foreign = Tag { uuid: "theirs".into(), name: "cluster:prod".into(), ..Tag::default() };
        let mut tags = vec![foreign.clone()];
        let steps = plan(&inventory(&[1]), &tags, true, "us", "prod");
        carry_out(&mut tags, steps);
        let names: Vec<_> = tags.iter().map(|tag| tag.name.as_str()).collect();
        assert_eq!(names, ["cluster:prod", "cluster:prod", "managed-by:cloudsigma-ccm", "service:shop-web1"]);
        assert_eq!(tags[0], foreign);
    }

    #[test]
    fn a_cloud_that_loses_the_note_on_a_tag_is_not_filled_with_tags() {
        let mut tags = Vec::new();
        for _ in 0..3 {
            let steps = plan(&inventory(&[1]), &tags, true, "us", "prod");
            carry_out(&mut tags, steps);
            for tag in &mut tags {
                tag.meta.clear();
            }
        }
        assert_eq!(tags.len(), 3);
    }

    proptest! {
        #[test]
        fn a_plan_carried_out_leaves_nothing_to_do_and_no_tag_without_an_address(
            rounds in prop::collection::vec(prop::collection::btree_set(1u8..6, 0..4), 1..5),
        ) {
            let mut tags = Vec::new();
            for marked in rounds {
                let inventory = inventory(&marked.iter().copied().collect::<Vec<_>>());
                prop_assert_eq!(plan(&inventory, &tags, false, "us", "prod"), vec![], "half a view");
                let steps = plan(&inventory, &tags, true, "us", "prod");
                carry_out(&mut tags, steps);
                prop_assert_eq!(plan(&inventory, &tags, true, "us", "prod"), vec![]);
                prop_assert!(tags.iter().all(|tag| !tag.resources.is_empty()));
                prop_assert_eq!(tags.is_empty(), marked.is_empty());
            }
        }
    }
}
