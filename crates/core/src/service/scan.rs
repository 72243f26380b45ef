//! The slow full scan beside the events: counts what they missed, and removes what belongs to nobody.

use std::time::Duration;

use rand::RngExt;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::orphans::{Caution, Orphans};
use super::reconcile::{Inspection, Reconciler};
use crate::key::ServiceKey;
use crate::leader::{Moment, Term};
use crate::provider::{Listing, LoadBalancers, Owned};
use crate::queue::Queue;

/// Listing everything outside may take a while, but not for ever.
const LISTING_DEADLINE: Duration = Duration::from_mins(1);

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
            if term.is_some() {
                self.compare();
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

    /// Compares every Service, counts those that differ though nobody had said so, and has those looked at that are not
    /// as they should be.
    fn compare(&self) {
        let reconciler = self.reconciler;
        let mut restless = Vec::new();
        for key in reconciler.cache.keys() {
            match reconciler.inspect(&key) {
                Inspection::Quiet => continue,
                Inspection::Differs if !self.queue.is_pending(&key) => {
                    warn!(service = %key, "the full scan found a difference that no event had told");
                    reconciler.metrics.missed.inc();
                }
                Inspection::Differs | Inspection::Other => {}
            }
            restless.push(key);
        }
        reconciler.drifts.count();
        self.queue.add_all(restless);
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
            let released = match reconciler.is_gone(&owner).await {
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
                }
                Err(error) => warn!(%owner, %error, "orphan not removed"),
            }
        }
    }
}

fn count(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}
