//! Whose an address is, as its `meta` says.
//!
//! The cluster's id under one key, and a key for each Service that uses the address: its uid without dashes, which is just
//! as long as a key may be, with `namespace/name` as the value. What others note in `meta` stays.

use std::collections::BTreeMap;

use groundcrew_core::key::ServiceKey;
use groundcrew_core::provider::Owner;
use uuid::Uuid;

use crate::client::Meta;

const CLUSTER: &str = "groundcrew-cluster";
/// The address stays this cluster's when its last user goes, for a Service of this name.
const KEPT: &str = "groundcrew-kept";

/// What the marks on an address say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Mark {
    /// Nobody's.
    None,
    /// This cluster's.
    Ours(Claim),
    /// That of another cluster. Never touched.
    Foreign(String),
}

/// Who of this cluster has an address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) owners: BTreeMap<Uuid, ServiceKey>,
    pub(crate) kept: Option<String>,
}

impl Claim {
    /// Whether it says about keeping the address what this owner wants.
    pub(crate) fn keeps_as(&self, owner: &Owner, keep: bool) -> bool {
        if keep { self.kept.is_some() } else { self.kept.as_deref() != Some(&owner.key.to_string()) }
    }

    pub(crate) fn owners(&self) -> impl Iterator<Item = Owner> {
        self.owners.iter().map(|(uid, key)| Owner { key: key.clone(), uid: *uid })
    }
}

pub(crate) fn read(meta: &Meta, cluster: &str) -> Mark {
    match meta.get(CLUSTER) {
        None => Mark::None,
        Some(other) if other != cluster => Mark::Foreign(other.clone()),
        Some(_) => {
            let owners = meta.iter().filter_map(|(key, value)| {
                let (namespace, name) = value.split_once('/')?;
                Some((uid(key)?, ServiceKey::new(namespace, name)))
            });
            Mark::Ours(Claim { owners: owners.collect(), kept: meta.get(KEPT).cloned() })
        }
    }
}

/// `meta` with this owner in it, who wants the address kept or not. Only for one that is nobody's or this cluster's.
pub(crate) fn with(meta: &Meta, cluster: &str, owner: &Owner, keep: bool) -> Meta {
    let mut meta = meta.clone();
    // Another who shares the address may want it kept.
    if keep {
        meta.entry(KEPT.to_owned()).or_insert_with(|| owner.key.to_string());
    } else if meta.get(KEPT) == Some(&owner.key.to_string()) {
        meta.remove(KEPT);
    }
    meta.insert(CLUSTER.to_owned(), cluster.to_owned());
    meta.insert(owner.uid.simple().to_string(), owner.key.to_string());
    meta
}

/// `meta` without this owner. After the last one nothing of ours is left, unless the address is kept.
pub(crate) fn without(meta: &Meta, cluster: &str, owner: &Owner) -> Meta {
    let mut meta = meta.clone();
    if meta.remove(&owner.uid.simple().to_string()).is_none() {
        return meta;
    }
    match read(&meta, cluster) {
        Mark::Ours(Claim { owners, kept: None }) if owners.is_empty() => unmarked(&meta),
        _ => meta,
    }
}

/// `meta` without anything of ours.
pub(crate) fn unmarked(meta: &Meta) -> Meta {
    let mut meta = meta.clone();
    meta.retain(|key, _| key != CLUSTER && key != KEPT && uid(key).is_none());
    meta
}

/// Exactly as it was written: 32 digits, no dashes.
fn uid(key: &str) -> Option<Uuid> {
    let uid = Uuid::try_parse(key).ok()?;
    (uid.simple().to_string() == key).then_some(uid)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn owner(n: u128) -> Owner {
        Owner { key: ServiceKey::new("shop", format!("web-{n}")), uid: Uuid::from_u128(n) }
    }

    fn notes() -> Meta {
        Meta::from([("bought-by".to_owned(), "somebody".to_owned())])
    }

    #[test]
    fn keys_are_as_short_as_the_cloud_wants_them() {
        assert!(with(&notes(), "c", &owner(u128::MAX), true).keys().all(|key| key.len() <= 32));
    }

    #[test]
    fn another_clusters_address_is_told_from_a_free_one() {
        let theirs = with(&notes(), "them", &owner(1), false);
        assert_eq!(read(&theirs, "us"), Mark::Foreign("them".into()));
        assert_eq!(read(&notes(), "us"), Mark::None);
    }

    #[test]
    fn a_kept_address_waits_for_its_name_and_is_taken_up_again() {
        let marked = with(&notes(), "us", &owner(1), true);
        let kept = without(&marked, "us", &owner(1));
        let Mark::Ours(claim) = read(&kept, "us") else { panic!("{kept:?}") };
        assert_eq!((claim.owners.len(), claim.kept.as_deref()), (0, Some("shop/web-1")));
        let back = Owner { uid: Uuid::from_u128(9), ..owner(1) };
        let again = with(&kept, "us", &back, false);
        assert_eq!(without(&again, "us", &back), notes());
    }

    #[test]
    fn two_who_share_an_address_do_not_take_turns_in_having_it_kept() {
        let wants = [(owner(1), true), (owner(2), false), (owner(3), true)];
        let mut meta = notes();
        for (owner, keep) in &wants {
            meta = with(&meta, "us", owner, *keep);
        }
        let Mark::Ours(claim) = read(&meta, "us") else { panic!("{meta:?}") };
        for (owner, keep) in &wants {
            assert!(claim.keeps_as(owner, *keep), "{owner} {keep}");
            assert_eq!(with(&meta, "us", owner, *keep), meta, "there is nothing left to write");
        }
    }

    proptest! {
        #[test]
        fn who_comes_and_goes_leaves_the_notes_of_others_alone(
            steps in prop::collection::vec((1u128..4, any::<bool>()), 0..12),
        ) {
            let mut meta = notes();
            let mut there = std::collections::BTreeSet::new();
            for (n, comes) in steps {
                if comes {
                    meta = with(&meta, "us", &owner(n), false);
                    there.insert(n);
                } else {
                    meta = without(&meta, "us", &owner(n));
                    there.remove(&n);
                }
                prop_assert_eq!(meta["bought-by"].as_str(), "somebody");
                match read(&meta, "us") {
                    Mark::Ours(claim) => prop_assert_eq!(claim.owners.len(), there.len()),
                    mark => prop_assert!(there.is_empty() && mark == Mark::None && meta == notes()),
                }
            }
        }
    }
}
