//! The work queue: keys that somebody should look at.
//!
//! A key waits in it at most once, is worked on at most once at a time, and is looked at again if it was added while
//! being worked on. A failed key comes back after a delay of its own that grows and is never the same twice.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use rand::RngExt;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::provider::Retry;

const FIRST_DELAY: Duration = Duration::from_millis(100);
const LONGEST_DELAY: Duration = Duration::from_secs(30);
const SLOW_FIRST_DELAY: Duration = Duration::from_secs(30);
const SLOW_LONGEST_DELAY: Duration = Duration::from_mins(5);

/// How one look at a key ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing is left to do.
    Done,
    /// Fine so far; look again after this time.
    Again(Duration),
    /// It failed; look again as the error's kind says.
    Failed(Retry),
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Queue<K> {
    state: Mutex<State<K>>,
    wake: Notify,
}

#[derive(Debug)]
struct State<K> {
    ready: VecDeque<K>,
    /// Before all of `ready`, where such a key may be listed, too: then its second turn is none.
    urgent: VecDeque<K>,
    /// How many keys wait in the two, each counted once.
    waiting: usize,
    delayed: BinaryHeap<Reverse<Delayed<K>>>,
    /// Only keys that are queued, delayed, running or failing: an idle key costs nothing.
    keys: HashMap<K, Entry>,
    next_delay: u64,
}

#[derive(Debug, Default, Clone, Copy)]
struct Entry {
    ready: bool,
    /// Listed among the urgent ones.
    urgent: bool,
    running: bool,
    /// Added while running.
    again: bool,
    /// The one entry of `delayed` that counts; older ones of the same key are stale.
    delay: Option<u64>,
    failures: u32,
    /// Since when somebody should look, while nobody does.
    since: Option<Instant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Marked {
    /// It waits from now on.
    New,
    /// It has been waiting.
    Waiting,
    /// It is being worked on, and will be looked at again.
    Running,
}

#[derive(Debug)]
struct Delayed<K> {
    due: Instant,
    id: u64,
    key: K,
}

impl<K> PartialEq for Delayed<K> {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}
impl<K> Eq for Delayed<K> {}
impl<K> PartialOrd for Delayed<K> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<K> Ord for Delayed<K> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.due, self.id).cmp(&(other.due, other.id))
    }
}

impl<K> Default for Queue<K> {
    fn default() -> Self {
        let state = State {
            ready: VecDeque::new(),
            urgent: VecDeque::new(),
            waiting: 0,
            delayed: BinaryHeap::new(),
            keys: HashMap::new(),
            next_delay: 0,
        };
        Self { state: Mutex::new(state), wake: Notify::new() }
    }
}

impl<K: Clone + Eq + Hash> Queue<K> {
    /// Look at this key now. Overtakes a delay: a change may have removed the cause of the failure.
    pub fn add(&self, key: K) {
        self.lock().add(key, Instant::now());
        self.wake.notify_one();
    }

    /// Look at this key before all others: something is broken, and ten thousand that are only to be compared may wait.
    pub fn add_urgent(&self, key: K) {
        self.lock().add_urgent(key, Instant::now());
        self.wake.notify_one();
    }

    /// Look at all of these now: they wait since the very same time.
    pub fn add_all(&self, keys: impl IntoIterator<Item = K>) {
        let (mut state, now) = (self.lock(), Instant::now());
        keys.into_iter().for_each(|key| state.add(key, now));
        drop(state);
        self.wake.notify_one();
    }

    /// Look at all of these before all others: they wait since the very same time.
    pub fn add_all_urgent(&self, keys: impl IntoIterator<Item = K>) {
        let (mut state, now) = (self.lock(), Instant::now());
        keys.into_iter().for_each(|key| state.add_urgent(key, now));
        drop(state);
        self.wake.notify_one();
    }

    /// How many keys wait to be looked at now.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.lock().waiting
    }

    /// Whether somebody already looks at this key, or will without being told.
    #[must_use]
    pub fn is_pending(&self, key: &K) -> bool {
        self.lock().keys.contains_key(key)
    }

    /// Every key that waits now, up to `most`, each with the time since which it does. Waits for the first.
    ///
    /// Whoever takes a key tells how its look ended by [`Queue::finish`].
    pub async fn take(&self, most: usize) -> Vec<(K, Instant)> {
        let first = self.next().await;
        let mut state = self.lock();
        std::iter::once(first).chain(std::iter::from_fn(|| state.take()).take(most.saturating_sub(1))).collect()
    }

    /// Hands keys to `look` until `stop`, `concurrency` at once, then waits for those under way.
    pub async fn run<F, Fut>(&self, concurrency: usize, stop: &CancellationToken, look: F)
    where
        F: Fn(K) -> Fut,
        Fut: Future<Output = Outcome>,
    {
        let mut running = FuturesUnordered::new();
        loop {
            tokio::select! {
                Some((key, outcome)) = running.next() => self.finish(key, outcome),
                (key, _) = self.next(), if running.len() < concurrency => {
                    let look = look(key.clone());
                    running.push(async move { (key, look.await) });
                }
                () = stop.cancelled() => break,
            }
        }
        while let Some((key, outcome)) = running.next().await {
            self.finish(key, outcome);
        }
    }

    async fn next(&self) -> (K, Instant) {
        loop {
            let due = {
                let mut state = self.lock();
                state.promote(Instant::now());
                if let Some(taken) = state.take() {
                    return taken;
                }
                state.delayed.peek().map(|Reverse(delayed)| delayed.due)
            };
            match due {
                // `notify_one` stores a permit, so an `add` between the look above and this wait is not lost.
                None => self.wake.notified().await,
                Some(due) => tokio::select! {
                    () = self.wake.notified() => {}
                    () = tokio::time::sleep_until(due) => {}
                },
            }
        }
    }

    /// Tells how a look ended at a key that was taken.
    pub fn finish(&self, key: K, outcome: Outcome) {
        self.lock().finish(key, outcome);
    }

    fn lock(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Clone + Eq + Hash> State<K> {
    fn add(&mut self, key: K, now: Instant) {
        if self.mark(&key, now) == Marked::New {
            self.ready.push_back(key);
        }
    }

    fn add_urgent(&mut self, key: K, now: Instant) {
        if self.mark(&key, now) == Marked::Running {
            return;
        }
        let entry = self.keys.entry(key.clone()).or_default();
        if !std::mem::replace(&mut entry.urgent, true) {
            self.urgent.push_back(key);
        }
    }

    /// Notes that somebody should look at the key.
    fn mark(&mut self, key: &K, now: Instant) -> Marked {
        let entry = self.keys.entry(key.clone()).or_default();
        entry.delay = None;
        entry.since.get_or_insert(now);
        if entry.running {
            entry.again = true;
            Marked::Running
        } else if std::mem::replace(&mut entry.ready, true) {
            Marked::Waiting
        } else {
            self.waiting += 1;
            Marked::New
        }
    }

    fn take(&mut self) -> Option<(K, Instant)> {
        loop {
            let key = self.urgent.pop_front().or_else(|| self.ready.pop_front())?;
            // Listed twice, and taken by the first.
            let Some(entry) = self.keys.get_mut(&key).filter(|entry| entry.ready) else { continue };
            (entry.ready, entry.urgent, entry.running) = (false, false, true);
            self.waiting -= 1;
            let since = entry.since.take().unwrap_or_else(Instant::now);
            return Some((key, since));
        }
    }

    fn promote(&mut self, now: Instant) {
        while let Some(Reverse(first)) = self.delayed.peek()
            && first.due <= now
        {
            let Some(Reverse(Delayed { id, key, .. })) = self.delayed.pop() else { return };
            if self.keys.get(&key).is_some_and(|entry| entry.delay == Some(id)) {
                self.add(key, now);
            }
        }
    }

    fn finish(&mut self, key: K, outcome: Outcome) {
        let entry = self.keys.entry(key.clone()).or_default();
        entry.running = false;
        let delay = match outcome {
            Outcome::Done => {
                entry.failures = 0;
                None
            }
            Outcome::Again(after) => {
                entry.failures = 0;
                Some(after)
            }
            Outcome::Failed(retry) => {
                entry.failures = entry.failures.saturating_add(1);
                delay(retry, entry.failures)
            }
        };
        if std::mem::take(&mut entry.again) {
            self.add(key, Instant::now());
        } else if let Some(delay) = delay {
            let id = self.next_delay;
            self.next_delay += 1;
            entry.delay = Some(id);
            self.delayed.push(Reverse(Delayed { due: Instant::now() + delay, id, key }));
        } else if entry.failures == 0 || outcome == Outcome::Failed(Retry::OnChange) {
            self.keys.remove(&key);
        }
    }
}

/// The delay before the `failures`-th retry, at least half of it random so that many keys that failed together do not
/// come back together.
fn delay(retry: Retry, failures: u32) -> Option<Duration> {
    let (first, longest) = match retry {
        Retry::OnChange => return None,
        // Never before the time that was asked for, and not all at once after it.
        Retry::After(after) => return Some(after.mul_f64(rand::rng().random_range(1.0..1.2))),
        Retry::Soon if failures <= 1 => return Some(Duration::ZERO),
        Retry::Soon | Retry::Backoff => (FIRST_DELAY, LONGEST_DELAY),
        Retry::Slow => (SLOW_FIRST_DELAY, SLOW_LONGEST_DELAY),
    };
    let full = first.saturating_mul(1 << failures.saturating_sub(1).min(20)).min(longest);
    Some(full.mul_f64(rand::rng().random_range(0.5..1.0)))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use proptest::prelude::*;

    use super::*;

    /// Runs until no key is ready or delayed.
    async fn drain(queue: &Queue<u8>, concurrency: usize, look: impl AsyncFn(u8) -> Outcome) {
        let stop = CancellationToken::new();
        let look = &look;
        let running = queue.run(concurrency, &stop, |key| async move { look(key).await });
        tokio::pin!(running);
        loop {
            if queue.lock().keys.is_empty() {
                stop.cancel();
                return running.await;
            }
            tokio::select! {
                () = &mut running => return,
                () = tokio::time::sleep(Duration::from_millis(1)) => {}
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn many_adds_are_one_look() {
        let queue = Queue::default();
        queue.add_all([1, 1, 1]);
        let looks = RefCell::new(0);
        drain(&queue, 4, async |_| {
            *looks.borrow_mut() += 1;
            Outcome::Done
        })
        .await;
        assert_eq!(*looks.borrow(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_added_while_running_is_looked_at_again_and_never_twice_at_once() {
        let queue = Queue::default();
        queue.add(1);
        let (looks, at_once) = (RefCell::new(0), RefCell::new(0));
        drain(&queue, 4, async |key| {
            *at_once.borrow_mut() += 1;
            assert_eq!(*at_once.borrow(), 1);
            if *looks.borrow() == 0 {
                queue.add(key);
            }
            *looks.borrow_mut() += 1;
            tokio::time::sleep(Duration::from_millis(10)).await;
            *at_once.borrow_mut() -= 1;
            Outcome::Done
        })
        .await;
        assert_eq!(*looks.borrow(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_overtakes_the_delay_of_a_failure() {
        let queue = Queue::default();
        queue.add(1);
        let started = Instant::now();
        let looks = RefCell::new(0);
        drain(&queue, 1, async |_| {
            *looks.borrow_mut() += 1;
            match *looks.borrow() {
                1 => {
                    queue.add(2);
                    Outcome::Failed(Retry::Slow)
                }
                2 => {
                    queue.add(1);
                    Outcome::Done
                }
                _ => Outcome::Done,
            }
        })
        .await;
        assert_eq!(*looks.borrow(), 3);
        assert!(started.elapsed() < Duration::from_secs(1));
    }

    #[tokio::test(start_paused = true)]
    async fn an_urgent_key_comes_first_and_once() {
        let queue = Queue::default();
        queue.add_all(0..5);
        queue.add_urgent(3);
        queue.add_urgent(3);
        let looks = RefCell::new(Vec::new());
        drain(&queue, 1, async |key| {
            looks.borrow_mut().push(key);
            Outcome::Done
        })
        .await;
        assert_eq!(*looks.borrow(), [3, 0, 1, 2, 4]);
        queue.add_urgent(7);
        assert_eq!(queue.depth(), 1);
        let taken: Vec<_> = queue.take(10).await.into_iter().map(|(key, _)| key).collect();
        assert_eq!((taken, queue.depth()), (vec![7], 0), "each is counted once");
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_than_the_allowed_number_run_at_once() {
        let queue = Queue::default();
        queue.add_all(0..50);
        let (now, most) = (RefCell::new(0), RefCell::new(0));
        drain(&queue, 7, async |_| {
            *now.borrow_mut() += 1;
            let running = *now.borrow();
            most.replace_with(|m| running.max(*m));
            tokio::time::sleep(Duration::from_millis(5)).await;
            *now.borrow_mut() -= 1;
            Outcome::Done
        })
        .await;
        assert_eq!(*most.borrow(), 7);
    }

    #[tokio::test(start_paused = true)]
    async fn work_under_way_is_finished_after_the_stop() {
        let queue = Queue::default();
        queue.add(1);
        let stop = CancellationToken::new();
        let finished = RefCell::new(false);
        queue
            .run(1, &stop, |_| async {
                stop.cancel();
                tokio::time::sleep(Duration::from_secs(1)).await;
                *finished.borrow_mut() = true;
                Outcome::Done
            })
            .await;
        assert!(*finished.borrow());
    }

    proptest! {
        #[test]
        fn delays_grow_to_a_bound_and_differ(failures in 1u32..200) {
            let delay = delay(Retry::Backoff, failures).unwrap();
            prop_assert!(delay <= LONGEST_DELAY);
            prop_assert!(delay >= FIRST_DELAY / 2);
            prop_assert!(failures < 10 || delay >= LONGEST_DELAY / 2);
        }

        /// Whatever mixture of outcomes, each key ends looked at after its last add.
        #[test]
        fn nothing_that_was_added_is_forgotten(adds in prop::collection::vec((0u8..5, 0u8..5), 1..60)) {
            let rt = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
            rt.block_on(async {
                let queue = Queue::default();
                let script = RefCell::new(adds.clone());
                let seen = RefCell::new(std::collections::BTreeSet::new());
                queue.add_all(adds.iter().map(|(key, _)| *key));
                drain(&queue, 3, async |key| {
                    seen.borrow_mut().insert(key);
                    let next = script.borrow_mut().pop();
                    match next {
                        Some((other, 0)) => { queue.add(other); Outcome::Done }
                        Some((_, 1)) => Outcome::Failed(Retry::Backoff),
                        Some((_, 2)) => Outcome::Again(Duration::from_millis(3)),
                        Some((other, 3)) => { queue.add_urgent(other); Outcome::Done }
                        _ => Outcome::Done,
                    }
                }).await;
                let expected: std::collections::BTreeSet<_> = adds.iter().map(|(key, _)| *key).collect();
                assert_eq!(*seen.borrow(), expected);
            });
        }
    }
}
