//! What kube-ovn-controller did lately, and how to keep it from collecting. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use groundcrew_core::leader::Moment;
use groundcrew_ovn::collection::{self, Version};

/// From the take-over to the collection: 3.4 s as a rule; big clusters take longer, and a pod's status may tell of the
/// restart only after it.
const BEFORE: Duration = Duration::from_mins(2);
const AFTER: Duration = Duration::from_secs(5);

/// What is known of kube-ovn-controller.
#[derive(Debug, Default)]
pub(crate) struct KubeOvn {
    /// Restarts of each pod by its uid; `None` until the first list is complete.
    pods: Option<BTreeMap<Box<str>, i32>>,
    lease: Option<Leader>,
    /// Whether the first list of Leases is complete: one that comes later is new.
    lease_listed: bool,
    version: Option<Version>,
    /// The last of its pods' and of its Lease's.
    pods_changed: Option<Change>,
    lease_changed: Option<Change>,
    /// When its collection was last seen: there is one for each start.
    collected: Option<Moment>,
}

/// Who leads, by the Lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Leader {
    pub(crate) holder: String,
    pub(crate) transitions: i32,
}

/// Something that may be followed by a collection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) what: What,
    at: Moment,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum What {
    NewPod(Box<str>),
    Restart(Box<str>),
    NewLeader(String),
}

/// What is read of one of its pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pod {
    pub(crate) uid: Box<str>,
    pub(crate) name: Box<str>,
    pub(crate) restarts: i32,
    pub(crate) image: Option<String>,
}

impl KubeOvn {
    /// Whether it tells of a restart or a new pod.
    pub(crate) fn pod(&mut self, pod: &Pod, now: Moment) -> bool {
        self.version = pod.image.as_deref().and_then(Version::of_image).or(self.version);
        let Some(pods) = &mut self.pods else { return false };
        let what = match pods.insert(pod.uid.clone(), pod.restarts) {
            None => What::NewPod(pod.name.clone()),
            Some(before) if before < pod.restarts => What::Restart(pod.name.clone()),
            Some(_) => return false,
        };
        self.pods_changed = Some(Change { what, at: now });
        true
    }

    pub(crate) fn pod_gone(&mut self, uid: &str) {
        if let Some(pods) = &mut self.pods {
            pods.remove(uid);
        }
    }

    /// A complete list: the first one is how it was before we came, later ones may tell what a broken watch did not.
    pub(crate) fn pods(&mut self, listed: &[Pod], now: Moment) -> bool {
        let Some(known) = &mut self.pods else {
            self.version = listed.iter().find_map(|pod| Version::of_image(pod.image.as_deref()?));
            self.pods = Some(listed.iter().map(|pod| (pod.uid.clone(), pod.restarts)).collect());
            return false;
        };
        known.retain(|uid, _| listed.iter().any(|pod| pod.uid == *uid));
        listed.iter().filter(|pod| self.pod(pod, now)).count() > 0
    }

    /// Whether another one leads than before. How it was when we came says nothing.
    pub(crate) fn leader(&mut self, leader: Leader, now: Moment) -> bool {
        let before = self.lease.replace(leader.clone());
        let differs = before.map_or(self.lease_listed, |before| before != leader);
        let changed = differs && !leader.holder.is_empty();
        if changed {
            self.lease_changed = Some(Change { what: What::NewLeader(leader.holder), at: now });
        }
        changed
    }

    pub(crate) fn leases_listed(&mut self) {
        self.lease_listed = true;
    }

    /// The last change near this time.
    pub(crate) fn near(&self, moment: Moment) -> Option<&Change> {
        self.all_near(moment).max_by_key(|change| change.at)
    }

    /// The last change that a collection at this time can belong to: one that has led to another collection already does
    /// not lead to a second.
    pub(crate) fn explains(&self, moment: Moment) -> Option<&Change> {
        let spent = self.collected.filter(|collected| *collected < moment);
        let is_open = |change: &&Change| spent.is_none_or(|spent| !change.precedes(spent));
        self.all_near(moment).filter(is_open).max_by_key(|change| change.at)
    }

    fn all_near(&self, moment: Moment) -> impl Iterator<Item = &Change> {
        let is_near = move |change: &&Change| change.at + BEFORE >= moment && moment + AFTER >= change.at;
        [&self.pods_changed, &self.lease_changed].into_iter().flatten().filter(is_near)
    }

    /// Its collection was seen at this time.
    pub(crate) fn collected(&mut self, at: Moment) {
        self.collected = self.collected.max(Some(at));
    }

    /// How to stop the collection, by version.
    pub(crate) fn remedy(&self) -> String {
        collection::remedy(self.version)
    }
}

impl Change {
    /// Whether a collection at this time came after it. A pod's status may tell late of the start that led to it; the
    /// Lease is always taken before.
    fn precedes(&self, collection: Moment) -> bool {
        let late = if matches!(self.what, What::NewLeader(_)) { Duration::ZERO } else { AFTER };
        self.at <= collection + late
    }

    /// For people, seen from this time.
    pub(crate) fn words(&self, moment: Moment) -> String {
        let what = match &self.what {
            What::NewPod(name) => format!("pod {name} was new"),
            What::Restart(name) => format!("pod {name} restarted"),
            What::NewLeader(holder) => format!("{holder} became leader"),
        };
        let before = self.at.until(moment);
        if before.is_zero() {
            return format!("{what} {:.1} s after", moment.until(self.at).as_secs_f64());
        }
        format!("{what} {:.1} s before", before.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, restarts: i32, image: &str) -> Pod {
        Pod { uid: name.into(), name: name.into(), restarts, image: Some(image.into()) }
    }

    #[test]
    fn a_start_explains_one_collection() {
        let (mut kube_ovn, start) = (KubeOvn::default(), Moment::now());
        let after = |seconds| start + Duration::from_secs(seconds);
        let leader = |kube_ovn: &mut KubeOvn, holder: &str, at| {
            kube_ovn.leader(Leader { holder: holder.into(), transitions: 0 }, at);
        };
        kube_ovn.pods(&[pod("a", 0, "x")], start);
        leader(&mut kube_ovn, "a", start);
        leader(&mut kube_ovn, "b", start);
        assert!(kube_ovn.explains(after(4)).is_some());
        kube_ovn.collected(after(4));
        assert!(kube_ovn.explains(after(4)).is_some(), "each Service of it asks");
        assert!(kube_ovn.explains(after(30)).is_none());
        assert!(kube_ovn.near(after(30)).is_some(), "it was near all the same");
        kube_ovn.pod(&pod("a", 1, "x"), after(6));
        assert!(kube_ovn.explains(after(30)).is_none(), "its status tells late of the same start");
        leader(&mut kube_ovn, "c", after(7));
        assert!(kube_ovn.explains(after(30)).is_some(), "the next one collects, too");
    }

    #[test]
    fn new_pods_restarts_and_leaders_are_changes_and_what_was_there_is_not() {
        let (mut kube_ovn, now) = (KubeOvn::default(), Moment::now());
        assert!(!kube_ovn.pods(&[pod("a", 3, "x:v1.14.4")], now), "the first list");
        assert!(!kube_ovn.pod(&pod("a", 3, "x:v1.14.4"), now));
        assert!(kube_ovn.pod(&pod("a", 4, "x:v1.14.4"), now));
        assert!(kube_ovn.pod(&pod("b", 0, "x:v1.14.4"), now));
        kube_ovn.pod_gone("a");
        assert!(kube_ovn.pods(&[pod("b", 0, "x"), pod("c", 0, "x")], now), "told by a list after a broken watch");

        let leader = |holder: &str| Leader { holder: holder.into(), transitions: 0 };
        assert!(!kube_ovn.leader(leader("a"), now), "the first sight");
        assert!(!kube_ovn.leader(leader(""), now), "given back, and taken by nobody");
        assert!(kube_ovn.leader(leader("a"), now), "the same one again");
        assert!(kube_ovn.leader(leader("b"), now));
        let mut without = KubeOvn::default();
        without.leases_listed();
        assert!(without.leader(leader("a"), now), "there was none before");
    }
}
