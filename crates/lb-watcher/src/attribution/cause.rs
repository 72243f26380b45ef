//! From evidence to a name. Pure. The words complete a sentence: "changed by ...".

use groundcrew_core::drift::{Cause, Round, Shift};
use groundcrew_core::leader::Moment;

use super::kube_ovn::KubeOvn;

pub(crate) const KUBE_OVN_COLLECTION: &str = "kube_ovn_collection";
const MANUAL_DELETE: &str = "manual_delete";
const DATABASE_RESTORED: &str = "database_restored";
const DATABASE_EMPTIED: &str = "database_emptied";
const ROUTER_RECREATED: &str = "router_recreated";
pub(crate) const UNKNOWN_WRITER: &str = "unknown_writer";

/// Every cause there can be, for metrics that must exist before the first drift.
pub const LABELS: [&str; 6] =
    [KUBE_OVN_COLLECTION, MANUAL_DELETE, DATABASE_RESTORED, DATABASE_EMPTIED, ROUTER_RECREATED, UNKNOWN_WRITER];

/// `seen` is when the shift was.
pub(super) fn cause(shift: Option<&Shift>, seen: Moment, round: &Round, kube_ovn: &KubeOvn) -> Cause {
    let Some(shift) = shift else { return unknown("an unknown writer, unseen by us".into()) };
    let places = shift.recreated.len();
    let removed = shift.ours_removed + shift.others_removed;
    let cause = if shift.emptied {
        plain(DATABASE_EMPTIED, "an emptied or rebuilt northbound database".into()).with_remedy(
            "rows come back once routers and switches are there again; look at why ovn-central lost its data",
        )
    } else if shift.rewound {
        restored("a restore of the northbound database, which counts from an earlier number on")
    } else if places > 0 && (shift.replaced > places || shift.ours_removed > 0) {
        restored("a restore of the northbound database, whose rows have new ids now")
    } else if places > 0 {
        let names = shift.recreated.join(", ");
        plain(ROUTER_RECREATED, format!("the deletion of {names}, which was made again without its load balancers"))
    } else if removed > 0 {
        deleted(shift, seen, round, kube_ovn)
    } else {
        unknown("an unknown writer".into())
    };
    if shift.unseen {
        Cause { words: format!("{} (while OVN was out of our sight)", cause.words), ..cause }
    } else {
        cause
    }
}

/// Whether a router or switch that was made again is just the one that these Services are off, or that was missing.
pub(super) fn detaches(shift: &Shift, round: &Round) -> bool {
    let on = |expected: &str| shift.recreated.iter().any(|name| expected.rsplit(' ').next() == Some(name));
    let mut differences = round.drifts.iter().flat_map(|drift| &drift.differences);
    let is_about_it = |kind: &str| kind.ends_with("_detached") || kind.ends_with("_missing");
    differences.any(|difference| is_about_it(difference.kind) && on(&difference.expected))
}

/// kube-ovn's collection deletes every row whose name it does not know, in one transaction, and keeps its own. It knows
/// those of its `OvnDnatRule`s, too, which nothing tells from others': they say nothing where it was seen to start. With
/// `ENABLE_LB=false` since v1.15 it takes just those that its own client made, kube-dc's among them.
fn deleted(shift: &Shift, seen: Moment, round: &Round, kube_ovn: &KubeOvn) -> Cause {
    let removed = shift.ours_removed + shift.others_removed;
    let left = shift.ours_left + shift.others_left;
    let change = kube_ovn.explains(seen);
    let by_mark = shift.vendor_removed == removed && shift.vendor_left == 0 && left > 0;
    let swept = removed > 1 && (by_mark || (shift.native_left > 0 && left == 0));
    if (shift.ours_left == 0 || by_mark) && (change.is_some() || swept) {
        let evidence = change.map_or_else(
            || "no restart of it was seen yet, but it alone deletes all that it does not know".to_owned(),
            |change| change.words(seen),
        );
        let words = format!(
            "kube-ovn-controller's start-up collection, which deleted {removed} load balancers that it does not know \
             ({evidence})"
        );
        return plain(KUBE_OVN_COLLECTION, words).with_remedy(kube_ovn.remedy());
    }
    if round.drifts.len() <= 1 && shift.ours_removed <= 2 {
        return plain(MANUAL_DELETE, "somebody who deleted this load balancer alone, most likely by hand".into());
    }
    let words = format!("an unknown writer who deleted {removed} load balancers in one transaction and left {left}");
    unknown(words)
}

fn restored(words: &str) -> Cause {
    let remedy = "what was made after the backup is made again; no more is to be done";
    plain(DATABASE_RESTORED, words.into()).with_remedy(remedy)
}

fn plain(label: &'static str, words: String) -> Cause {
    Cause { label, words, remedy: None }
}

fn unknown(words: String) -> Cause {
    let remedy = "see who else writes to the northbound database: the connections of ovsdb-server's log, and \
                  `ovsdb-tool show-log` for the transaction";
    plain(UNKNOWN_WRITER, words).with_remedy(remedy)
}

trait WithRemedy {
    fn with_remedy(self, remedy: impl Into<String>) -> Self;
}

impl WithRemedy for Cause {
    fn with_remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use groundcrew_core::drift::Drift;
    use groundcrew_core::key::ServiceKey;
    use groundcrew_core::provider::{Difference, Owner};

    use super::super::kube_ovn::Leader;
    use super::*;

    fn round(services: usize, seen: Moment) -> Round {
        let owner = Owner { key: ServiceKey::new("shop", "web"), uid: ovsdb_client::Uuid::nil() };
        Round { seen, drifts: vec![Drift { owner, differences: vec![] }; services] }
    }

    fn leader(kube_ovn: &mut KubeOvn, holder: &str, at: Moment) {
        kube_ovn.leader(Leader { holder: holder.into(), transitions: 0 }, at);
    }

    /// Another one became leader that long before what is looked at.
    fn after_a_new_leader(seconds: u64) -> (KubeOvn, Moment) {
        let (mut kube_ovn, then) = (KubeOvn::default(), Moment::now());
        leader(&mut kube_ovn, "a", then);
        leader(&mut kube_ovn, "b", then);
        (kube_ovn, then + Duration::from_secs(seconds))
    }

    fn label(shift: &Shift, services: usize, (kube_ovn, seen): &(KubeOvn, Moment)) -> &'static str {
        cause(Some(shift), *seen, &round(services, *seen), kube_ovn).label
    }

    #[test]
    fn a_sweep_after_a_new_leader_is_kube_ovns_even_of_a_single_row() {
        let sweep = Shift { ours_removed: 1, native_left: 6, ..Shift::default() };
        assert_eq!(label(&sweep, 1, &after_a_new_leader(3)), KUBE_OVN_COLLECTION);
        assert_eq!(label(&sweep, 1, &after_a_new_leader(44)), KUBE_OVN_COLLECTION);
        assert_eq!(label(&sweep, 1, &after_a_new_leader(3_600)), MANUAL_DELETE, "long ago");
        let (kube_ovn, seen) = after_a_new_leader(3);
        let cause = cause(Some(&sweep), seen, &round(1, seen), &kube_ovn);
        assert!(cause.words.contains("b became leader 3.0 s before"), "{}", cause.words);
        assert!(cause.remedy.unwrap().contains("GC_INTERVAL=0"));
    }

    #[test]
    fn a_sweep_that_spares_only_the_networks_own_is_kube_ovns_even_if_it_was_not_seen() {
        let sweep = Shift { ours_removed: 5, others_removed: 2, native_left: 6, ..Shift::default() };
        let unseen = (KubeOvn::default(), Moment::now());
        assert_eq!(label(&sweep, 5, &unseen), KUBE_OVN_COLLECTION);
        assert_eq!(label(&Shift { native_left: 0, ..sweep }, 5, &unseen), UNKNOWN_WRITER);
    }

    #[test]
    fn a_sweep_after_a_new_leader_may_leave_rows_of_dnat_rules() {
        let sweep = Shift { ours_removed: 3, others_left: 2, native_left: 6, ..Shift::default() };
        assert_eq!(label(&sweep, 3, &after_a_new_leader(3)), KUBE_OVN_COLLECTION);
        assert_eq!(label(&sweep, 3, &(KubeOvn::default(), Moment::now())), UNKNOWN_WRITER, "nobody saw it start");
    }

    #[test]
    fn a_sweep_of_just_what_carries_the_vendors_mark_is_kube_ovns_without_load_balancers_of_its_own() {
        let quiet = || (KubeOvn::default(), Moment::now());
        let sweep = Shift { ours_removed: 3, vendor_removed: 3, ours_left: 1, others_left: 2, ..Shift::default() };
        assert_eq!(label(&sweep, 3, &after_a_new_leader(3)), KUBE_OVN_COLLECTION);
        assert_eq!(label(&sweep, 3, &quiet()), KUBE_OVN_COLLECTION, "who else would choose by that mark");
        let some = Shift { vendor_left: 1, ..sweep.clone() };
        assert_eq!(label(&some, 3, &after_a_new_leader(3)), UNKNOWN_WRITER);
        let others_too = Shift { vendor_removed: 2, ..sweep };
        assert_eq!(label(&others_too, 3, &after_a_new_leader(3)), UNKNOWN_WRITER);
    }

    #[test]
    fn who_leaves_some_of_ours_is_not_kube_ovn() {
        let some = Shift { ours_removed: 3, ours_left: 7, native_left: 6, ..Shift::default() };
        assert_eq!(label(&some, 3, &after_a_new_leader(3)), UNKNOWN_WRITER);
        let one = Shift { ours_removed: 1, ours_left: 9, native_left: 6, ..Shift::default() };
        assert_eq!(label(&one, 1, &after_a_new_leader(3)), MANUAL_DELETE);
    }

    #[test]
    fn the_database_and_the_router_are_told_apart() {
        let quiet = (KubeOvn::default(), Moment::now());
        let emptied = Shift { ours_removed: 4, emptied: true, unseen: true, ..Shift::default() };
        assert_eq!(label(&emptied, 4, &quiet), DATABASE_EMPTIED);
        let restored = Shift { replaced: 9, recreated: vec!["shop".into()], ours_removed: 1, ..Shift::default() };
        assert_eq!(label(&restored, 1, &quiet), DATABASE_RESTORED);
        let file_put_back = Shift { ours_removed: 1, ours_left: 3, rewound: true, unseen: true, ..Shift::default() };
        assert_eq!(label(&file_put_back, 1, &quiet), DATABASE_RESTORED, "all rows have their ids still");
        let router = Shift { replaced: 1, recreated: vec!["shop".into()], ..Shift::default() };
        assert_eq!(label(&router, 4, &quiet), ROUTER_RECREATED);
        assert_eq!(label(&Shift::default(), 1, &quiet), UNKNOWN_WRITER);
        assert_eq!(cause(None, quiet.1, &round(1, quiet.1), &quiet.0).label, UNKNOWN_WRITER);
    }

    #[test]
    fn a_service_that_is_off_a_router_is_told_of_the_one_that_was_made_again() {
        let again = Shift { replaced: 1, recreated: vec!["shop".into()], ..Shift::default() };
        let mut round = round(1, Moment::now());
        let mut missing = |kind, expected: &str| {
            let difference = Difference { kind, expected: expected.into(), found: "not attached".into() };
            round.drifts[0].differences = vec![difference];
            detaches(&again, &round)
        };
        assert!(missing("router_detached", "shop-web-tcp-1 on router shop"));
        assert!(!missing("router_detached", "shop-web-tcp-1 on router a-shop"));
        assert!(missing("router_missing", "router shop"));
        assert!(!missing("row_missing", "load balancer shop-web-tcp-1"));
        assert!(!missing("options", "shop"));
    }

    #[test]
    fn every_label_is_one_of_the_list() {
        for label in [KUBE_OVN_COLLECTION, UNKNOWN_WRITER, Cause::unknown().label] {
            assert!(LABELS.contains(&label));
        }
    }
}
