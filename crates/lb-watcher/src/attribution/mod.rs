//! Who changed the load balancers: from what a change took and what it left, and from what kube-ovn-controller did near
//! that time. Used by the watcher alone and by the controller that owns its rows.

mod cause;
mod kube_ovn;
mod watch;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use groundcrew_core::drift::{Attribute, Cause, Round, Shift};
use groundcrew_core::leader::Moment;
use groundcrew_core::runtime::Runtime;
use tokio::sync::watch as channel;

pub use cause::LABELS;
pub(crate) use cause::{KUBE_OVN_COLLECTION, UNKNOWN_WRITER};
pub(crate) use kube_ovn::KubeOvn;
pub(crate) use watch::follow;

/// Changes that are remembered. Each drift asks for its cause at once, so few are enough.
const REMEMBERED: usize = 1_024;
/// A drift and the change that made it are seen this close to each other, whichever is noticed first.
const NEAR: Duration = Duration::from_secs(2);

/// Flags of every controller that wants to know who changed its load balancers.
#[derive(Debug, Clone, clap::Args)]
#[group(id = "attribution")]
pub struct AttributionArgs {
    /// The namespace of kube-ovn-controller, whose restarts explain lost load balancers
    #[arg(long, env = "GROUNDCREW_KUBE_OVN_NAMESPACE", value_name = "NAMESPACE", default_value = "kube-system")]
    pub kube_ovn_namespace: String,
}

/// Knows what happened lately. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Attribution {
    state: Arc<Mutex<State>>,
    changed: Arc<channel::Sender<u64>>,
}

#[derive(Debug, Default)]
struct State {
    shifts: VecDeque<(Moment, Shift)>,
    kube_ovn: KubeOvn,
}

impl Attribution {
    /// Starts to follow kube-ovn-controller's pods and Lease. Where they cannot be read, what OVN shows
    /// is the only evidence; nothing waits for them.
    #[must_use]
    pub fn start(runtime: &Runtime, args: &AttributionArgs) -> Self {
        let attribution = Self::default();
        follow(runtime, &args.kube_ovn_namespace, &attribution);
        attribution
    }

    /// Counts up with each restart, new pod and new leader of kube-ovn-controller.
    pub(crate) fn kube_ovn_changes(&self) -> channel::Receiver<u64> {
        self.changed.subscribe()
    }

    /// What kube-ovn-controller did last, in words, if it was near this time.
    pub(crate) fn kube_ovn_near(&self, moment: Moment) -> Option<String> {
        self.lock().kube_ovn.near(moment).map(|change| change.words(moment))
    }

    pub(crate) fn kube_ovn(&self, change: impl FnOnce(&mut KubeOvn) -> bool) {
        let changed = change(&mut self.lock().kube_ovn);
        if changed {
            self.changed.send_modify(|count| *count += 1);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Attribute for Attribution {
    fn observe(&self, shift: &Shift, seen: Moment) {
        let mut state = self.lock();
        if state.shifts.len() == REMEMBERED {
            state.shifts.pop_front();
        }
        state.shifts.push_back((seen, shift.clone()));
    }

    fn cause(&self, round: &Round) -> Cause {
        let mut state = self.lock();
        let apart = |seen: Moment| seen.until(round.seen).max(round.seen.until(seen));
        let nearest = state.shifts.iter().min_by_key(|(seen, _)| apart(*seen));
        let nearest = nearest.filter(|(seen, _)| apart(*seen) <= NEAR);
        // A router that goes takes nothing of ours. It is told as made again when it is back, and until then it was missed.
        let mut since = state.shifts.iter().filter(|(seen, _)| *seen >= round.seen);
        let made_again = since.find(|(_, shift)| cause::detaches(shift, round));
        let shift = nearest.filter(|(_, shift)| *shift != Shift::default()).or(made_again).or(nearest);
        let seen = shift.map_or(round.seen, |(seen, _)| *seen);
        let cause = cause::cause(shift.map(|(_, shift)| shift), seen, round, &state.kube_ovn);
        if cause.label == KUBE_OVN_COLLECTION {
            state.kube_ovn.collected(seen);
        }
        cause
    }

    fn nearby(&self, moment: Moment) -> Option<String> {
        self.kube_ovn_near(moment)
    }

    fn causes(&self) -> &'static [&'static str] {
        &LABELS
    }
}

#[cfg(test)]
mod tests {
    use groundcrew_core::drift::Drift;
    use groundcrew_core::key::ServiceKey;
    use groundcrew_core::provider::{Difference, Owner};

    use super::*;

    fn asked(attribution: &Attribution, seen: Moment, kind: &'static str) -> &'static str {
        let owner = Owner { key: ServiceKey::new("shop", "web"), uid: ovsdb_client::Uuid::nil() };
        let expected = "shop-web-tcp-1 on router shop".to_owned();
        let differences = vec![Difference { kind, expected, found: "not attached".into() }];
        attribution.cause(&Round { seen, drifts: vec![Drift { owner, differences }] }).label
    }

    #[test]
    fn who_deletes_the_last_row_by_hand_after_a_collection_is_no_second_collection() {
        let (attribution, start) = (Attribution::default(), Moment::now());
        for holder in ["a", "b"] {
            let leader = kube_ovn::Leader { holder: holder.into(), transitions: 0 };
            attribution.kube_ovn(|kube_ovn| kube_ovn.leader(leader, start));
        }
        let emptied = Shift { ours_removed: 1, others_left: 2, native_left: 6, ..Shift::default() };
        let collected = start + Duration::from_secs(4);
        attribution.observe(&emptied, collected);
        assert_eq!(asked(&attribution, collected, "row_missing"), "kube_ovn_collection");
        assert_eq!(asked(&attribution, collected, "row_missing"), "kube_ovn_collection", "of the same change");
        let later = start + Duration::from_mins(1);
        attribution.observe(&emptied, later);
        assert_eq!(asked(&attribution, later, "row_missing"), "manual_delete");
    }

    #[test]
    fn a_router_that_went_and_came_back_in_two_steps_is_blamed_for_what_was_on_it_alone() {
        let (attribution, then) = (Attribution::default(), Moment::now());
        attribution.observe(&Shift::default(), then);
        let again = Shift { replaced: 1, recreated: vec!["shop".into()], ..Shift::default() };
        attribution.observe(&again, then + Duration::from_secs(40));
        assert_eq!(asked(&attribution, then, "router_detached"), "router_recreated");
        assert_eq!(asked(&attribution, then, "router_missing"), "router_recreated");
        assert_eq!(asked(&attribution, then, "options"), "unknown_writer");
        let later = then + Duration::from_mins(1);
        assert_eq!(asked(&attribution, later, "router_detached"), "unknown_writer", "it was back long before");
    }
}
