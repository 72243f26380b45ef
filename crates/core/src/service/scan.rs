//! The slow full scan beside the events: counts what they missed, and removes what belongs to nobody, or only tells it
//! (`--report-only`).

use std::time::Duration;

use jiff::Timestamp;
use rand::RngExt;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::drift::Unaware;
use super::orphans::{Caution, Orphans};
use super::reconcile::{Inspection, Reconciler};
use crate::key::ServiceKey;
use crate::leader::{Moment, Term};
use crate::provider::{Listing, LoadBalancers, Owned, Owner};
use crate::queue::Queue;

/// Listing everything outside may take a while, but not for ever.
const LISTING_DEADLINE: Duration = Duration::from_mins(1);

/// What differs may be seen here before the event that tells it has come through; after this time it surely has.
const EVENTS_ARE_LATE: Duration = Duration::from_secs(1);

pub(super) struct Scan<'a, P> {
    pub(super) reconciler: &'a Reconciler<P>,
    pub(super) queue: &'a Queue<ServiceKey>,
    pub(super) interval: Duration,
    pub(super) caution: Caution,
}

impl<P: LoadBalancers> Scan<'_, P> {
    pub(super) async fn run(&self, stop: &CancellationToken) {
        let mut orphans = Orphans::default();
        loop {
            // Never the same interval twice, so that several controllers do not scan together.
            let pause = self.interval.mul_f64(rand::rng().random_range(0.8..1.2));
            if stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
                return;
            }
            let term = self.reconciler.term.borrow().clone();
            if term.is_some() && stop.run_until_cancelled(self.compare()).await.is_none() {
                return;
            }
            let Some(owned) = self.owned().await else { continue };
            match term {
                Some(term) => self.collect(&owned, &mut orphans, &term).await,
                None if owned.complete => {
                    let owners = owned.items.into_iter().map(|owned| owned.owner).collect();
                    self.reconciler.cache.keep_departed(&owners);
                }
                None => {}
            }
            self.reconciler.metrics.scans.inc();
        }
    }

    /// Compares every Service, has those looked at that are not as they should be, and counts those among them that
    /// nobody had told.
    async fn compare(&self) {
        let reconciler = self.reconciler;
        let (mut restless, mut suspects) = (Vec::new(), Vec::new());
        let (mut verified, mut unknown) = (0, 0);
        for key in reconciler.cache.keys() {
            let inspection = reconciler.inspect(&key);
            match inspection {
                Inspection::Quiet | Inspection::Differs | Inspection::Unsaid => verified += 1,
                Inspection::Unknown => unknown += 1,
                Inspection::Other => {}
            }
            match inspection {
                Inspection::Quiet => {}
                Inspection::Differs if let Some(unaware) = self.unaware(&key) => suspects.push((key, unaware)),
                _ => restless.push(key),
            }
        }
        reconciler.metrics.verified.inc_by(verified);
        if unknown == 0 || verified > 0 {
            reconciler.metrics.compared_at.set(Timestamp::now().as_second());
        }
        reconciler.drifts.count();
        self.queue.add_all(restless);
        if suspects.is_empty() {
            return;
        }
        tokio::time::sleep(EVENTS_ARE_LATE).await;
        suspects.retain(|(key, unaware)| {
            self.unaware(key) == Some(*unaware) && matches!(reconciler.inspect(key), Inspection::Differs)
        });
        for (key, _) in &suspects {
            warn!(service = %key, "the full scan found a difference that no event had told");
            reconciler.metrics.missed.inc();
        }
        self.queue.add_all(suspects.into_iter().map(|(key, _)| key));
    }

    /// Where nobody looks at this Service, or knows that it differs.
    fn unaware(&self, key: &ServiceKey) -> Option<Unaware> {
        self.reconciler.drifts.unaware(key).filter(|_| !self.queue.is_pending(key))
    }

    async fn owned(&self) -> Option<Listing<Owned>> {
        match tokio::time::timeout(LISTING_DEADLINE, self.reconciler.provider.owned()).await {
            Ok(Ok(owned)) => return Some(owned),
            Ok(Err(error)) => warn!(%error, "cannot list what is outside; removing no orphans"),
            Err(_) => warn!("no answer to the listing of what is outside; removing no orphans"),
        }
        None
    }

    async fn collect(&self, owned: &Listing<Owned>, orphans: &mut Orphans, term: &Term) {
        let reconciler = self.reconciler;
        let plan = orphans.plan(owned, &reconciler.cache.owners(), Moment::now(), self.caution);
        reconciler.metrics.orphans.set(count(plan.found));
        reconciler.metrics.orphans_braked.set(count(plan.braked));
        if plan.braked > 0 {
            let limit = self.caution.limit;
            warn!(orphans = plan.braked, limit, "too many orphans at once: removing none (--orphan-limit)");
        }
        for owner in plan.release {
            let released = match reconciler.is_forsaken(&owner).await {
                Ok(true) if reconciler.drifts.is_report_only() => {
                    if orphans.is_news(&owner) {
                        info!(%owner, uid = %owner.uid, "found an orphan; not removed (--report-only)");
                        reconciler.drifts.orphan(&owner, &left_of(&owner, owned), false);
                    }
                    continue;
                }
                Ok(true) => reconciler.provider.release(&owner, term).await,
                Ok(false) => {
                    warn!(%owner, "looked like an orphan, but its Service is there: our view of Services is stale");
                    continue;
                }
                Err(error) => Err(error),
            };
            match released {
                Ok(()) => {
                    info!(%owner, uid = %owner.uid, "removed an orphan");
                    reconciler.metrics.orphans_released.inc();
                    reconciler.drifts.orphan(&owner, &left_of(&owner, owned), true);
                }
                Err(error) => warn!(%owner, %error, "orphan not removed"),
            }
        }
    }
}

/// What is there of an owner, for people.
fn left_of(owner: &Owner, listing: &Listing<Owned>) -> String {
    let what = listing.items.iter().filter(|thing| thing.owner == *owner).map(|thing| thing.what.as_str());
    what.collect::<Vec<_>>().join(", ")
}

fn count(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}
