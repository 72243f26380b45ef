//! Takes Services from the queue, all that wait at once: what only has to be put right outside goes there together,
//! whatever else there is to do. The others are looked at one by one, several at a time.
//!
//! It also listens to the provider: a repair begins in the task that hears of the change.

use std::collections::VecDeque;
use std::task::Poll;

use futures::StreamExt;
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{self, BoxStream, FuturesUnordered};
use tokio_util::sync::CancellationToken;

use super::reconcile::{Glance, Reconciler, Rest};
use crate::key::ServiceKey;
use crate::provider::{LoadBalancers, Look};
use crate::queue::{Outcome, Queue};

/// As many as are decided on before the queue is asked again for what is urgent: some milliseconds.
const SLICE: usize = 125;
/// As many as are put right together at least, while more wait, and at most.
const LEAST: usize = 125;
const MOST: usize = 5_000;

pub(super) struct Worker<'a, P> {
    pub(super) reconciler: &'a Reconciler<P>,
    pub(super) queue: &'a Queue<ServiceKey>,
    /// How many looks of their own are under way at once.
    pub(super) concurrency: usize,
}

impl<P: LoadBalancers> Worker<'_, P> {
    /// Works until `stop`, and then ends what is under way. A provider that is never told anything, whose `changes` end,
    /// relies on the full scan.
    pub(super) async fn run(&self, changes: BoxStream<'static, Look>, stop: &CancellationToken) {
        let mut changes = changes.chain(stream::pending());
        let mut looks: FuturesUnordered<BoxFuture<'_, (ServiceKey, Outcome)>> = FuturesUnordered::new();
        let mut repairs = FuturesUnordered::new();
        let mut waiting: VecDeque<Glance> = VecDeque::new();
        let mut together = Vec::new();
        let mut part = 0;
        loop {
            if repairs.is_empty() && together.is_empty() && self.queue.depth() == 0 {
                part = 0;
            }
            while looks.len() < self.concurrency
                && let Some(glance) = waiting.pop_front()
            {
                looks.push(self.reconciler.look(glance).boxed());
            }
            tokio::select! {
                Some((done, failed)) = repairs.next() => {
                    self.finish(done);
                    waiting.extend(failed);
                }
                Some(ended) = looks.next() => self.finish([ended]),
                Some(look) = changes.next() => self.hear(look),
                taken = self.queue.take(SLICE) => {
                    let (slice, before) = (taken.len(), together.len());
                    for (key, since) in taken {
                        match self.reconciler.glance(Glance::new(key.clone(), since)) {
                            Rest::Nothing(outcome) => self.finish([(key, outcome)]),
                            Rest::Repair(repair) => together.push(*repair),
                            Rest::Look(glance) => waiting.push_back(glance),
                        }
                    }
                    // Nothing waits for company that may not come: only where most of what was looked at is broken, the
                    // rest of what waits will be, too.
                    let more_to_come = 2 * (together.len() - before) >= slice && self.queue.depth() > 0;
                    let is_full = together.len() >= share(part, together.len() + self.queue.depth());
                    if is_full || (!together.is_empty() && !more_to_come) {
                        part += 1;
                        let mut repair = Box::pin(self.reconciler.repair(std::mem::take(&mut together)));
                        match futures::poll!(&mut repair) {
                            Poll::Ready((done, failed)) => {
                                self.finish(done);
                                waiting.extend(failed);
                            }
                            Poll::Pending => repairs.push(repair),
                        }
                        // Whoever sends it has been woken, perhaps on this thread, which has more to plan.
                        tokio::task::yield_now().await;
                    }
                    self.measure(waiting.len());
                }
                () = stop.cancelled() => break,
            }
        }
        while let Some((done, _)) = repairs.next().await {
            self.finish(done);
        }
        while let Some(ended) = looks.next().await {
            self.finish([ended]);
        }
    }

    /// Turns what the provider sees into keys.
    fn hear(&self, look: Look) {
        match look {
            Look::At(key) => self.queue.add_urgent(key),
            Look::These(keys) => self.queue.add_all_urgent(keys),
            Look::InPassing(keys) => self.queue.add_all(keys),
            Look::Everywhere => self.queue.add_all(self.reconciler.cache.keys()),
        }
    }

    fn finish(&self, ended: impl IntoIterator<Item = (ServiceKey, Outcome)>) {
        for (key, outcome) in ended {
            self.queue.finish(key, outcome);
        }
    }

    fn measure(&self, waiting: usize) {
        let metrics = &self.reconciler.metrics;
        metrics.queued.set((self.queue.depth() + waiting).try_into().unwrap_or(i64::MAX));
        metrics.services.set(self.reconciler.cache.len().try_into().unwrap_or(i64::MAX));
    }
}

/// How many of those that are left go out as this part of a large repair: all of it takes four writes. While one is under
/// way the next is planned, which takes a little less than two thirds of the time; so each has room for 1.6 times as many as
/// the one before, and neither side waits for the other.
fn share(part: usize, left: usize) -> usize {
    let share = match part {
        0 => left * 11 / 100,
        1 => left * 19 / 100,
        2 => left * 38 / 100,
        _ => left,
    };
    share.clamp(LEAST, MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(mut left: usize) -> Vec<usize> {
        let mut parts = Vec::new();
        while left > 0 {
            parts.push(share(parts.len(), left).min(left));
            left -= parts[parts.len() - 1];
        }
        parts
    }

    #[test]
    fn a_large_repair_takes_few_writes_and_its_first_part_is_small() {
        assert_eq!(parts(3), [3]);
        assert_eq!(parts(250), [125, 125]);
        assert_eq!(parts(1_000), [125, 166, 269, 440]);
        assert_eq!(parts(10_000), [1_100, 1_691, 2_739, 4_470]);
        assert_eq!(parts(16_000), [1_760, 2_705, 4_383, 5_000, 2_152]);
    }
}
