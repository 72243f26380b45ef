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
    last: Option<Change>,
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
        self.last = Some(Change { what, at: now });
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
            self.last = Some(Change { what: What::NewLeader(leader.holder), at: now });
        }
        changed
    }

    pub(crate) fn leases_listed(&mut self) {
        self.lease_listed = true;
    }

    /// The last change, if it can have to do with something at this time.
    pub(crate) fn near(&self, moment: Moment) -> Option<&Change> {
        self.last.as_ref().filter(|change| change.at + BEFORE >= moment && moment + AFTER >= change.at)
    }

    /// How to stop the collection, by version.
    pub(crate) fn remedy(&self) -> String {
        collection::remedy(self.version)
    }
}

impl Change {
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
