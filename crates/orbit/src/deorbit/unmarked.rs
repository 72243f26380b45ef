//! What objects of the cluster name outside, and what no list of marked things shows: a volume that somebody made by hand, or
//! one whose mark is gone. Nobody removes it by the cloud's API, but nobody calls it gone either. Pure.

use std::collections::BTreeSet;

use groundcrew_api::deorbit::UnmarkedThing;
use groundcrew_core::provider::{Leftover, LeftoverClass, LeftoverKind, Named};

use super::cloud::Sight;
use super::objects::{Content, Volume, is_cinder};
use super::observe::Cluster;
use super::targets::Served;

const VOLUME: LeftoverKind = LeftoverKind { name: "unmarked-volume", class: LeftoverClass::Volume };
const SNAPSHOT: LeftoverKind = LeftoverKind { name: "unmarked-snapshot", class: LeftoverClass::Snapshot };
const OF_VOLUME: &str = "PersistentVolume";
const OF_SNAPSHOT: &str = "VolumeSnapshotContent";

/// Whether it is one of these.
#[must_use]
pub fn is_unmarked(leftover: &Leftover) -> bool {
    [VOLUME, SNAPSHOT].contains(&leftover.kind)
}

/// What objects name and the clouds do not show. Nothing can be said on half a list; and once a claim goes, a volume that
/// carried the mark may be gone before its object is.
#[must_use]
pub fn find(cluster: &Cluster, served: &Served, sight: &Sight, is_new: bool) -> Vec<UnmarkedThing> {
    if !sight.gaps.is_empty() {
        return Vec::new();
    }
    let living: BTreeSet<_> =
        cluster.claims.iter().filter(|one| one.object.terminating.is_none()).map(|one| one.object.key()).collect();
    let whole = |volume: &&Volume| is_new || volume.claim.as_ref().is_some_and(|claim| living.contains(claim));
    let staying = |content: &&Content| is_new || content.object.terminating.is_none();
    let seen: BTreeSet<_> =
        sight.items.iter().filter(|one| !is_unmarked(one)).map(|leftover| leftover.id.as_str()).collect();
    let thing = |kind: &str, name: &str, driver: &str, handle: &str| UnmarkedThing {
        kind: kind.into(),
        name: name.into(),
        driver: driver.into(),
        handle: handle.into(),
    };
    let volumes = cluster.volumes.iter().filter(whole);
    let volumes = volumes.map(|one| thing(OF_VOLUME, &one.object.name, &one.driver, &one.handle));
    let contents = cluster.contents.iter().filter(staying);
    let contents = contents.map(|one| thing(OF_SNAPSHOT, &one.object.name, &one.driver, &one.handle));
    volumes
        .chain(contents)
        .filter(|one| !one.handle.is_empty() && served.drivers.contains(&one.driver))
        .filter(|one| !seen.contains(one.handle.as_str()))
        .collect()
}

/// Those that have to be asked for: as long as an object is there that its controller removes together with the thing, that
/// one is waited for.
#[must_use]
pub fn due<'a>(noted: &'a [UnmarkedThing], cluster: &Cluster) -> Vec<&'a UnmarkedThing> {
    // A volume that no claim has goes with none.
    let volumes = cluster.volumes.iter().filter(|one| !one.retained && one.claim.is_some());
    let volumes = volumes.map(|one| (OF_VOLUME, one.object.name.as_str()));
    let contents =
        cluster.contents.iter().filter(|one| !one.retained).map(|one| (OF_SNAPSHOT, one.object.name.as_str()));
    let waited_for: BTreeSet<_> = volumes.chain(contents).collect();
    noted.iter().filter(|one| !waited_for.contains(&(one.kind.as_str(), one.name.as_str()))).collect()
}

/// How a cloud is asked for it.
#[must_use]
pub fn named(thing: &UnmarkedThing) -> Named {
    let (driver, handle) = (thing.driver.clone(), thing.handle.clone());
    if thing.kind == OF_VOLUME { Named::Volume { driver, handle } } else { Named::Snapshot { driver, handle } }
}

/// As something that is left.
#[must_use]
pub fn leftover(thing: &UnmarkedThing, there: bool) -> Leftover {
    let UnmarkedThing { kind, name, driver, handle } = thing;
    let (kind_outside, noun) = if kind == OF_VOLUME { (VOLUME, "volume") } else { (SNAPSHOT, "volume snapshot") };
    let about = if there { "it is there" } else { "nobody can tell whether it is there" };
    Leftover {
        kind: kind_outside,
        id: handle.clone(),
        name: name.clone(),
        about: format!("{kind} {name} of {driver} named it, and {about}"),
        gib: None,
        users: Vec::new(),
        created: None,
        doubt: None,
        kept: false,
        command: if is_cinder(driver) { format!("openstack {noun} show {handle}") } else { String::new() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deorbit::objects::Object;

    #[test]
    fn a_volume_is_asked_for_unless_its_claim_takes_it_along() {
        let with = |claim: Option<&str>, retained: bool| Cluster {
            volumes: vec![Volume {
                object: Object { name: "pv".into(), ..Object::default() },
                driver: "cinder.csi.openstack.org".into(),
                handle: "1".into(),
                retained,
                claim: claim.map(Into::into),
            }],
            ..Cluster::default()
        };
        let served = Served { drivers: BTreeSet::from(["cinder.csi.openstack.org".into()]), ..Served::default() };
        for (claim, retained, asked) in [(Some("shop/data"), false, 0), (Some("shop/data"), true, 1), (None, false, 1)]
        {
            let cluster = with(claim, retained);
            let noted = find(&cluster, &served, &Sight::default(), true);
            assert_eq!((noted.len(), due(&noted, &cluster).len()), (1, asked), "{claim:?} {retained}");
            assert_eq!(due(&noted, &Cluster::default()).len(), 1, "its object is gone");
        }
    }
}
