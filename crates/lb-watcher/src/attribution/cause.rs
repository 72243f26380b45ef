//! From evidence to a name. Pure.

use groundcrew_core::drift::{Cause, Round, Shift};

use super::kube_ovn::KubeOvn;

pub(crate) const KUBE_OVN_COLLECTION: &str = "kube_ovn_collection";
const MANUAL_DELETE: &str = "manual_delete";
const DATABASE_RESTORED: &str = "database_restored";
const DATABASE_EMPTIED: &str = "database_emptied";
const ROUTER_RECREATED: &str = "router_recreated";
const UNKNOWN_WRITER: &str = "unknown_writer";

/// Every cause there can be, for metrics that must exist before the first drift.
pub const LABELS: [&str; 6] =
    [KUBE_OVN_COLLECTION, MANUAL_DELETE, DATABASE_RESTORED, DATABASE_EMPTIED, ROUTER_RECREATED, UNKNOWN_WRITER];

pub(super) fn cause(shift: Option<&Shift>, round: &Round, kube_ovn: &KubeOvn) -> Cause {
    let Some(shift) = shift else { return unknown("somebody changed it, unseen by us".into()) };
    let places = shift.recreated.len();
    let removed = shift.ours_removed + shift.others_removed;
    let cause = if shift.emptied {
        plain(DATABASE_EMPTIED, "the northbound database was emptied or built anew".into()).with_remedy(
            "rows come back once routers and switches are there again; look at why ovn-central lost its data",
        )
    } else if places > 0 && (shift.replaced > places || shift.ours_removed > 0) {
        plain(DATABASE_RESTORED, "the northbound database was restored from a backup: its rows have new ids".into())
            .with_remedy("what was made after the backup is made again; no more is to be done")
    } else if places > 0 {
        let names = shift.recreated.join(", ");
        plain(ROUTER_RECREATED, format!("{names} was deleted and made again, and has lost its load balancers"))
    } else if removed > 0 {
        deleted(shift, round, kube_ovn)
    } else {
        unknown("somebody changed it".into())
    };
    if shift.unseen {
        Cause { words: format!("{} (while OVN was out of our sight)", cause.words), ..cause }
    } else {
        cause
    }
}

/// kube-ovn's collection deletes every row whose name it does not know, in one transaction, and keeps its own.
fn deleted(shift: &Shift, round: &Round, kube_ovn: &KubeOvn) -> Cause {
    let removed = shift.ours_removed + shift.others_removed;
    let swept = shift.ours_left == 0 && shift.others_left == 0;
    let change = kube_ovn.near(round.seen);
    if swept && (change.is_some() || (removed > 1 && shift.native_left > 0)) {
        let evidence = change.map_or_else(
            || "no restart of it was seen yet, but it alone deletes all that it does not know".to_owned(),
            |change| change.words(round.seen),
        );
        let words = format!(
            "kube-ovn-controller's start-up collection deleted {removed} load balancers that it does not know \
             ({evidence})"
        );
        return plain(KUBE_OVN_COLLECTION, words).with_remedy(kube_ovn.remedy());
    }
    if round.drifts.len() <= 1 && shift.ours_removed <= 2 {
        return plain(MANUAL_DELETE, "somebody deleted this load balancer alone, most likely by hand".into());
    }
    let words = format!(
        "somebody deleted {removed} load balancers in one transaction and left {}",
        shift.ours_left + shift.others_left
    );
    unknown(words)
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
