//! The full comparison beside the push: counts what push missed, and finds rows that belong to nobody.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use groundcrew_core::leader::Moment;
use jiff::Timestamp;
use ovsdb_client::{Snapshot, Uuid};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::attribution::UNKNOWN_WRITER;
use crate::claim::rivals;
use crate::metrics::ORPHAN;
use crate::names::possible_owners;
use crate::northbound::{LoadBalancer, Northbound};
use crate::verify::verify;
use crate::wanted::Wanted;
use crate::watcher::{State, Watcher, count};

/// After kube-ovn-controller has started, everything is compared this often ...
const VIGIL_PACE: Duration = Duration::from_secs(1);
/// ... until its collection was seen, or for this long.
const VIGIL: Duration = Duration::from_mins(1);

/// Rows without a Service: since when, and whether it was told.
type Orphans = HashMap<Uuid, (Moment, bool)>;

pub(crate) async fn run(watcher: &Watcher, interval: Duration, stop: &CancellationToken) {
    let mut kube_ovn = watcher.attribution.kube_ovn_changes();
    let mut orphans = Orphans::new();
    let mut vigil: Option<Moment> = None;
    let scanning = async {
        loop {
            let pause = if vigil.is_some() { VIGIL_PACE.min(interval) } else { interval };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                Ok(()) = kube_ovn.changed() => {
                    watcher.metrics.kube_ovn_changes.inc();
                    vigil = Some(Moment::now());
                }
            }
            compare(watcher, &mut orphans);
            let collected = watcher.lock().collected;
            if let Some(why) = vigil.and_then(|since| end(since, collected, Moment::now())) {
                info!("{why}");
                vigil = None;
            }
            watcher.metrics.vigil.set(vigil.is_some().into());
        }
    };
    let _: Option<()> = stop.run_until_cancelled(scanning).await;
}

/// Why a vigil that began at `since` is over by now, if it is. Pure.
fn end(since: Moment, collected: Option<Moment>, now: Moment) -> Option<String> {
    if collected.is_some_and(|collected| collected >= since) {
        return Some("kube-ovn-controller has collected; back to the usual pace".into());
    }
    let over = now >= since + VIGIL;
    over.then(|| format!("kube-ovn-controller started and has not collected within {} s", VIGIL.as_secs()))
}

/// Compares every Service with what OVN has. No query: the replica has it all, and the client gives a server up that has
/// been silent for a second. Whoever is found to differ here although no change told it is asked for before an alarm.
fn compare(watcher: &Watcher, orphans: &mut Orphans) {
    if watcher.view.now().is_none() {
        debug!("no full comparison: OVN is out of sight");
        return;
    }
    // What was read, not what there is by now: the keys of changes that were read are queued already.
    let Some(nb) = watcher.lock().read.clone() else { return };
    let mut rows = 0;
    for key in watcher.cluster.keys() {
        let Some((_, wanted)) = watcher.wanted(&key, &nb) else { continue };
        rows += wanted.rows.len();
        let sight = verify(&wanted, &nb);
        let state = watcher.lock();
        let fine = state.book.is_fine(&key, &wanted);
        if sight.findings.is_empty() && fine {
            continue;
        }
        let pending = watcher.queue.is_pending(&key);
        if fine && !pending && is_untold(watcher, &state, &wanted) {
            warn!(service = %key, "the full comparison found a difference that no change of OVN had told");
            watcher.metrics.missed.inc();
        }
        drop(state);
        if !pending {
            watcher.queue.add(key);
        }
    }
    names(watcher, &nb);
    find_orphans(watcher, &nb, orphans);
    let flapping = watcher.lock().brake.flapping_count(Moment::now());
    watcher.metrics.drift.flapping.set(count(flapping));
    watcher.metrics.verified.inc_by(u64::try_from(rows).unwrap_or(u64::MAX));
    watcher.metrics.compared_at.set(Timestamp::now().as_second());
    watcher.metrics.comparisons.inc();
}

/// Whether something is wrong although every change that came was read. What was wrong a moment ago may be over, and
/// what is still to be read will be told.
fn is_untold(watcher: &Watcher, state: &State, wanted: &Wanted) -> bool {
    let Some(read) = &state.read else { return false };
    let all_read = watcher.view.now().is_some_and(|now| now.generation() == read.generation());
    all_read && verify(wanted, read).findings.iter().any(|finding| finding.sure)
}

/// Forgets names that are not shared any more, so that they are told again when they are.
fn names(watcher: &Watcher, nb: &Northbound) {
    let mut state = watcher.lock();
    state.ambiguous.retain(|row| rivals(row, &watcher.cluster, &watcher.site, nb).len() > 1);
    watcher.metrics.ambiguous.set(count(state.ambiguous.len()));
}

fn find_orphans(watcher: &Watcher, nb: &Snapshot<Northbound>, orphans: &mut Orphans) {
    let now = Moment::now();
    let mut found = BTreeSet::new();
    for (uuid, row) in nb.load_balancers.iter() {
        let Some(namespace) = project(watcher, nb, row) else { continue };
        found.insert(uuid);
        let (since, told) = orphans.entry(uuid).or_insert((now, false));
        // A Service that was deleted a moment ago takes its row with it.
        if !*told && now >= *since + watcher.settle && watcher.speaks() {
            *told = true;
            watcher.metrics.drift.found.with_label_values(&[ORPHAN, UNKNOWN_WRITER]).inc();
            watcher.reporter.orphan(&row.name, &namespace);
        }
    }
    for (_, (_, told)) in orphans.extract_if(|uuid, _| !found.contains(uuid)) {
        watcher.metrics.drift.repaired.with_label_values(&[ORPHAN, UNKNOWN_WRITER]).inc_by(told.into());
    }
    watcher.metrics.orphans.set(count(found.len()));
}

/// The project that a row without a Service was made for; `None` where it has one, or is none of kube-dc's.
fn project(watcher: &Watcher, nb: &Northbound, row: &LoadBalancer) -> Option<String> {
    if row.is_groundcrews() || !watcher.cluster.namesakes(&row.name).is_empty() {
        return None;
    }
    let is_project = |namespace: &str| watcher.site.is_project(nb, namespace);
    // The longest namespace that fits is the likeliest: `a` is a prefix of `a-b`'s rows too.
    let fitting = possible_owners(&row.name).map(|(key, _)| key.namespace).filter(|namespace| is_project(namespace));
    fitting.max_by_key(|namespace| namespace.len()).map(|namespace| namespace.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vigil_ends_with_the_collection_or_after_a_minute() {
        let (since, second) = (Moment::now(), |n| Duration::from_secs(n));
        let ended = |collected, now| end(since, collected, now).is_some();
        assert!(!ended(None, since + second(59)));
        assert!(ended(None, since + second(60)));
        assert!(ended(Some(since + second(4)), since + second(5)));
        let (earlier, since) = (since, since + second(10));
        assert!(end(since, Some(earlier), since + second(5)).is_none(), "the collection of an earlier start");
        assert!(end(since, Some(earlier), since + second(60)).is_some());
    }
}
