//! What a run notes in its status, as it must be known when the objects that say it are gone.

use std::collections::BTreeSet;

use groundcrew_api::deorbit::{DeorbitStatus, PlanLine, StageName};
use groundcrew_core::provider::LeftoverClass;

use crate::deorbit::cloud::Sight;
use crate::deorbit::targets::Targets;

/// For what is noted in a status: etcd takes 1.5 MiB, and the report and the plan have their part of it.
const NOTED: usize = 1_200_000;

/// What a plan noted, perhaps long ago and with other policies, is nothing that a run goes by: the Node of a route may be
/// another cluster's by now.
pub(super) fn forget(status: &mut DeorbitStatus) {
    status.kept_volumes.clear();
    status.kept_addresses.clear();
    status.unmarked.clear();
    status.routes.clear();
}

/// What somebody wants to keep is noted while the object that says so is there.
pub(super) fn remember(status: &mut DeorbitStatus, targets: &Targets<'_>, sight: &Sight) {
    note(&mut status.kept_volumes, targets.kept_volumes.clone());
    note(&mut status.kept_addresses, targets.kept_addresses.clone());
    let routes = sight.items.iter().filter(|leftover| leftover.kind.class == LeftoverClass::Route);
    note(&mut status.routes, routes.map(|leftover| leftover.id.clone()).collect());
}

pub(super) fn note<T: Ord + Clone>(known: &mut Vec<T>, more: Vec<T>) {
    let mut seen: BTreeSet<_> = known.iter().cloned().collect();
    known.extend(more.into_iter().filter(|one| seen.insert(one.clone())));
}

/// What the clouds showed when it began and nobody looks for now. Started again with fewer flags, a run sees less, which is
/// not to be called clean.
pub(super) fn out_of_sight(plan: &[PlanLine], known: &BTreeSet<&str>) -> Vec<String> {
    let outside = plan.iter().filter(|line| matches!(line.stage, StageName::Cloud | StageName::Routes));
    // Kinds of Kubernetes begin with a capital, and what carries no mark is asked for one by one.
    let of_clouds = |kind: &&str| kind.starts_with(char::is_lowercase) && !kind.starts_with("unmarked-");
    let kinds: BTreeSet<_> = outside.map(|line| line.kind.as_str()).filter(of_clouds).collect();
    let lost = kinds.into_iter().filter(|kind| !known.contains(kind));
    lost.map(|kind| format!("nobody looks for {kind} any more: start it with the flags that it began with")).collect()
}

/// Why what must be remembered cannot be written down. Begun without it, a run could write no status any more, and not even
/// end.
pub(super) fn too_much(status: &DeorbitStatus) -> Option<String> {
    let size = serde_json::to_vec(status).map_or(0, |text| text.len());
    let DeorbitStatus { kept_volumes, unmarked, .. } = status;
    let (kept, unmarked) = (kept_volumes.len(), unmarked.len());
    (size > NOTED).then(|| {
        format!("{kept} volumes to be kept and {unmarked} without a mark are more than a Deorbit has room to note")
    })
}

#[cfg(test)]
mod tests {
    use groundcrew_api::deorbit::{KeptVolume, UnmarkedThing};

    use super::*;

    #[test]
    fn what_was_there_at_the_beginning_and_nobody_looks_for_any_more_is_a_gap() {
        let line = |stage, kind: &str| PlanLine {
            stage,
            action: "delete".into(),
            kind: kind.into(),
            count: 1,
            names: Vec::new(),
        };
        let plan = [
            line(StageName::Claims, "PersistentVolumeClaim"),
            line(StageName::Cloud, "PersistentVolume"),
            line(StageName::Cloud, "unmarked-volume"),
            line(StageName::Cloud, "cinder-volume"),
            line(StageName::Routes, "router-route"),
        ];
        assert_eq!(out_of_sight(&plan, &BTreeSet::from(["cinder-volume", "router-route"])), [""; 0]);
        let lost = out_of_sight(&plan, &BTreeSet::from(["octavia-load-balancer", "router-route"]));
        assert!(lost.len() == 1 && lost[0].contains("cinder-volume"), "{lost:?}");
    }

    #[test]
    fn what_has_no_room_in_a_status_is_told_before_it_begins() {
        let noted = |count: usize| {
            let why = "PersistentVolume pvc-0b7a8c1e-0000-4000-8000-000000000000 has the reclaim policy Retain";
            let one = |n: usize| KeptVolume { handle: format!("{n:036}"), why: why.into(), retained: true };
            too_much(&DeorbitStatus { kept_volumes: (0..count).map(one).collect(), ..DeorbitStatus::default() })
        };
        assert_eq!((noted(0), noted(1_000)), (None, None));
        assert!(noted(10_000).unwrap().starts_with("10000 volumes"));
    }

    #[test]
    fn a_run_remembers_nothing_of_the_plan_that_it_was_before() {
        let (handle, why) = ("1".to_owned(), "policies.volumes is keep".to_owned());
        let thing =
            UnmarkedThing { handle: "2".into(), kind: String::new(), name: String::new(), driver: String::new() };
        let mut planned = DeorbitStatus {
            kept_volumes: vec![KeptVolume { handle, why, retained: false }],
            kept_addresses: vec!["shop/web".into()],
            unmarked: vec![thing],
            routes: vec!["router 100.100.1.0/24 10.180.1.1".into()],
            ..DeorbitStatus::default()
        };
        forget(&mut planned);
        assert_eq!(planned, DeorbitStatus::default());
    }
}
