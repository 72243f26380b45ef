//! Whether `ovn-northd` has taken what was written: until then a row is a wish that no packet follows.
//!
//! Each transaction moves `nb_cfg` on and learns its number; northd copies the number to `sb_cfg` when it has translated
//! everything up to it. Nobody waits for that in a reconcile: a Service whose write is not taken yet is looked at again when
//! it is, or when its time is over. `hv_cfg` is not asked for, as one dead hypervisor would hold up everybody.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use groundcrew_core::key::ServiceKey;
use groundcrew_core::provider::{Look, Owner, Realised};
use ovsdb_client::{Replica, Row};
use tokio::sync::{Notify, broadcast};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use uuid::Uuid;

use crate::northbound::{Global, Northbound};

/// How long a Service waits for northd before it is published without.
const BUDGET: Duration = Duration::from_secs(2);

/// Before a term has begun.
const UNKNOWN: i64 = i64::MAX;

/// What is known of northd's progress. Clones share it.
#[derive(Clone)]
pub(crate) struct Northd {
    progress: Arc<Mutex<Progress>>,
    /// A write began to wait: the task may have to wake earlier than it thought.
    waits: Arc<Notify>,
    replica: Replica<Northbound>,
    looks: broadcast::Sender<Look>,
}

impl Northd {
    pub(crate) fn new(replica: Replica<Northbound>, looks: broadcast::Sender<Look>) -> Self {
        Self { progress: Arc::default(), waits: Arc::default(), replica, looks }
    }

    /// Nothing is known of writes up to now: a new term begins, or one of ours had no answer.
    pub(crate) fn begin(&self) {
        self.observe();
        let mut progress = self.lock();
        progress.floor = progress.seen.asked;
    }

    /// The last write for this Service has this number.
    pub(crate) fn wrote(&self, owner: &Owner, number: i64) {
        self.lock().wrote(owner, number, Instant::now());
        self.waits.notify_one();
    }

    /// This Service has everything and has not published it: whoever wrote it may have gone before northd took it.
    pub(crate) fn found(&self, owner: &Owner) {
        self.lock().found(owner, Instant::now());
        self.waits.notify_one();
    }

    /// The Service has nothing any more that could be taken. Another one of its name may.
    pub(crate) fn forget(&self, owner: &Owner) {
        let mut progress = self.lock();
        if progress.writes.get(&owner.key).is_some_and(|write| write.uid == owner.uid) {
            progress.writes.remove(&owner.key);
        }
    }

    /// Whether what is written for this Service was taken.
    pub(crate) fn realised(&self, service: &ServiceKey) -> Realised {
        self.lock().realised(service)
    }

    /// Follows northd until `stop`.
    pub(crate) async fn follow(self, stop: CancellationToken) {
        let mut changes = self.replica.changes_in(&[Global::TABLE]);
        loop {
            let deadline = self.lock().deadline();
            let over = async {
                match deadline {
                    Some(deadline) => sleep_until(deadline).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.waits.notified() => {}
                _ = changes.next() => self.observe(),
                () = over => {
                    let looks = self.lock().expire(Instant::now());
                    self.tell(looks);
                }
            }
        }
    }

    /// What the replica has now, and not what it had when somebody was woken: a number that was written since would look
    /// like one of a database that was replaced.
    fn observe(&self) {
        let mut progress = self.lock();
        let looks = progress.observe(cfg(&self.replica.snapshot()));
        drop(progress);
        self.tell(looks);
    }

    fn tell(&self, looks: Vec<Look>) {
        for look in looks {
            // Without a listener nobody is served by this process.
            let _ = self.looks.send(look);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `nb_cfg` and `sb_cfg`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Cfg {
    asked: i64,
    taken: i64,
}

fn cfg(nb: &Northbound) -> Cfg {
    nb.global.iter().next().map(|(_, global)| Cfg { asked: global.nb_cfg, taken: global.sb_cfg }).unwrap_or_default()
}

/// The state machine, without clock and channels.
#[derive(Debug)]
struct Progress {
    seen: Cfg,
    /// What this process did not write, or does not know whether it did, was taken when northd has come this far.
    floor: i64,
    /// Northd let a whole budget pass without a move. Until it moves nobody waits for it again.
    silent: bool,
    /// The last write of each Service for which it was not taken yet.
    writes: HashMap<ServiceKey, Write>,
    /// By number: until when its Services wait, and how far northd had come when they began to.
    waits: BTreeMap<i64, (Instant, i64)>,
}

#[derive(Debug, Clone, Copy)]
struct Write {
    /// The Service's.
    uid: Uuid,
    number: i64,
    /// Its time is over.
    late: bool,
}

impl Default for Progress {
    fn default() -> Self {
        let (writes, waits) = (HashMap::new(), BTreeMap::new());
        Self { seen: Cfg::default(), floor: UNKNOWN, silent: false, writes, waits }
    }
}

impl Progress {
    fn wrote(&mut self, Owner { key, uid }: &Owner, number: i64, now: Instant) {
        self.seen.asked = self.seen.asked.max(number);
        if number <= self.seen.taken {
            self.writes.remove(key);
            return;
        }
        self.writes.insert(key.clone(), Write { uid: *uid, number, late: self.silent });
        if !self.silent {
            self.waits.entry(number).or_insert((now + BUDGET, self.seen.taken));
        }
    }

    fn found(&mut self, owner: &Owner, now: Instant) {
        if self.floor != UNKNOWN && self.seen.taken < self.floor && !self.writes.contains_key(&owner.key) {
            self.wrote(owner, self.floor, now);
        }
    }

    fn realised(&self, service: &ServiceKey) -> Realised {
        match self.writes.get(service) {
            Some(Write { late: false, .. }) => Realised::Awaited,
            Some(Write { late: true, .. }) => Realised::Unknown(format!(
                "written to OVN, but ovn-northd has not taken it within {} s; see whether it runs",
                BUDGET.as_secs()
            )),
            None if self.seen.taken >= self.floor => Realised::Yes,
            None => Realised::AsTold,
        }
    }

    /// How far northd is now, and whom that concerns.
    fn observe(&mut self, now: Cfg) -> Vec<Look> {
        let before = std::mem::replace(&mut self.seen, now);
        if now.asked < before.asked {
            // Another database, or an older state of it: its numbers say nothing about what we wrote.
            self.waits.clear();
            self.silent = false;
            if self.floor != UNKNOWN {
                self.floor = now.asked;
            }
            return self.writes.drain().map(|(service, _)| Look::At(service)).collect();
        }
        if now.taken == before.taken {
            return Vec::new();
        }
        if self.silent {
            info!(sb_cfg = now.taken, "ovn-northd works again");
        }
        self.silent = false;
        self.waits = self.waits.split_off(&now.taken.saturating_add(1));
        let taken = self.writes.extract_if(|_, write| write.number <= now.taken);
        let looks = taken.map(|(service, _)| Look::At(service)).collect();
        if (before.taken..now.taken).contains(&self.floor.saturating_sub(1)) { vec![Look::Everywhere] } else { looks }
    }

    fn deadline(&self) -> Option<Instant> {
        self.waits.values().map(|(until, _)| *until).min()
    }

    /// Whose time is over.
    fn expire(&mut self, now: Instant) -> Vec<Look> {
        let over: Vec<_> = self.waits.iter().filter(|(_, (until, _))| *until <= now).map(|(n, w)| (*n, w.1)).collect();
        let Some((last, _)) = over.last().copied() else { return Vec::new() };
        self.waits.retain(|_, (until, _)| *until > now);
        if !self.silent && over.iter().any(|(_, taken)| *taken == self.seen.taken) {
            warn!(sb_cfg = self.seen.taken, "ovn-northd takes nothing that is written; see whether it runs");
            self.silent = true;
            self.waits.clear();
        }
        let everybody = self.silent;
        let late = self.writes.iter_mut().filter(|(_, write)| !write.late && (everybody || write.number <= last));
        late.map(|(service, write)| {
            write.late = true;
            Look::At(service.clone())
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::owner;

    fn key(name: &str) -> ServiceKey {
        ServiceKey::new("shop", name)
    }

    fn at(asked: i64, taken: i64) -> Cfg {
        Cfg { asked, taken }
    }

    fn names(looks: Vec<Look>) -> Vec<String> {
        let name = |look| match look {
            Look::At(key) => key.name.to_string(),
            Look::Everywhere => "everywhere".to_owned(),
            other => format!("{other:?}"),
        };
        let mut names: Vec<_> = looks.into_iter().map(name).collect();
        names.sort_unstable();
        names
    }

    /// In sync at 5.
    fn begun() -> Progress {
        let mut progress = Progress::default();
        assert_eq!(progress.observe(at(5, 5)), []);
        progress.floor = 5;
        progress
    }

    #[test]
    fn a_write_is_awaited_until_northd_has_come_to_its_number() {
        let (mut progress, now) = (begun(), Instant::now());
        progress.wrote(&owner("shop", "a"), 6, now);
        progress.wrote(&owner("shop", "b"), 7, now);
        assert_eq!((progress.realised(&key("a")), progress.realised(&key("c"))), (Realised::Awaited, Realised::Yes));
        assert_eq!(names(progress.observe(at(7, 6))), ["a"]);
        assert_eq!((progress.realised(&key("a")), progress.realised(&key("b"))), (Realised::Yes, Realised::Awaited));
        assert_eq!(progress.deadline(), Some(now + BUDGET));
        assert_eq!(names(progress.observe(at(7, 7))), ["b"]);
        assert_eq!(progress.deadline(), None);
        progress.wrote(&owner("shop", "d"), 7, now);
        assert_eq!(progress.realised(&key("d")), Realised::Yes, "northd was quicker than we");
    }

    #[test]
    fn after_one_silent_budget_nobody_waits_until_northd_moves() {
        let (mut progress, now) = (begun(), Instant::now());
        progress.wrote(&owner("shop", "a"), 6, now);
        progress.wrote(&owner("shop", "b"), 7, now + BUDGET / 2);
        assert_eq!(progress.expire(now + BUDGET / 2), []);
        assert_eq!(names(progress.expire(now + BUDGET)), ["a", "b"], "both at once: northd is silent");
        progress.wrote(&owner("shop", "c"), 8, now + BUDGET);
        assert!(matches!(progress.realised(&key("c")), Realised::Unknown(_)));
        assert_eq!(progress.deadline(), None);

        assert_eq!(names(progress.observe(at(8, 7))), ["a", "b"]);
        assert_eq!(progress.realised(&key("a")), Realised::Yes);
        assert!(matches!(progress.realised(&key("c")), Realised::Unknown(_)));
        progress.wrote(&owner("shop", "d"), 9, now);
        assert_eq!(progress.realised(&key("d")), Realised::Awaited, "it is worth waiting again");
    }

    #[test]
    fn a_northd_that_is_slow_but_moves_costs_each_write_its_own_budget() {
        let (mut progress, now) = (begun(), Instant::now());
        progress.wrote(&owner("shop", "a"), 6, now);
        progress.wrote(&owner("shop", "b"), 7, now + BUDGET / 2);
        assert_eq!(names(progress.observe(at(7, 6))), ["a"]);
        assert_eq!(progress.expire(now + BUDGET), []);
        progress.observe(at(9, 6));
        assert_eq!(names(progress.expire(now + BUDGET * 2)), ["b"]);
    }

    #[test]
    fn what_was_written_before_is_known_once_northd_has_come_to_where_the_term_began() {
        let mut progress = Progress::default();
        assert_eq!(progress.realised(&key("a")), Realised::AsTold);
        progress.observe(at(5, 3));
        progress.floor = 5;
        assert_eq!(progress.realised(&key("a")), Realised::AsTold);
        assert_eq!(progress.observe(at(5, 4)), []);
        assert_eq!(names(progress.observe(at(6, 6))), ["everywhere"]);
        assert_eq!(progress.realised(&key("a")), Realised::Yes);
    }

    #[test]
    fn what_an_earlier_term_wrote_and_did_not_publish_is_awaited_like_a_write_of_this_one() {
        let (mut progress, now) = (Progress::default(), Instant::now());
        progress.observe(at(5, 3));
        progress.found(&owner("shop", "a"), now);
        assert_eq!(progress.realised(&key("a")), Realised::AsTold, "no term has begun");
        progress.floor = 5;
        progress.found(&owner("shop", "a"), now);
        assert_eq!((progress.realised(&key("a")), progress.deadline()), (Realised::Awaited, Some(now + BUDGET)));
        assert_eq!(names(progress.expire(now + BUDGET)), ["a"]);
        assert!(matches!(progress.realised(&key("a")), Realised::Unknown(_)));
        assert_eq!(names(progress.observe(at(5, 5))), ["everywhere"]);
        progress.found(&owner("shop", "a"), now);
        assert_eq!((progress.realised(&key("a")), progress.deadline()), (Realised::Yes, None));
    }

    #[test]
    fn the_numbers_of_a_restored_database_are_not_waited_for() {
        let (mut progress, now) = (begun(), Instant::now());
        progress.wrote(&owner("shop", "a"), 6, now);
        assert_eq!(names(progress.observe(at(2, 1))), ["a"]);
        assert_eq!((progress.realised(&key("a")), progress.deadline()), (Realised::AsTold, None));
        assert_eq!(names(progress.observe(at(2, 2))), ["everywhere"]);
        assert_eq!(progress.realised(&key("a")), Realised::Yes);
    }
}
