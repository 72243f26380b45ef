//! What was seen of each Service before, and what follows from what is seen now. Pure: the time is an argument.
//!
//! A difference is drift when nothing in Kubernetes explains it: the Service is as it was when the rows were last as
//! they should be. What Kubernetes changed a moment ago is the manager's work in progress, and gets time to settle. What
//! never was as we compute it is kube-dc's own way of seeing things: told once, never repaired.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use groundcrew_core::drift::Cause;
use groundcrew_core::key::ServiceKey;
use groundcrew_core::leader::Moment;
use groundcrew_core::provider::Protocol;
use ovsdb_client::Uuid;

use crate::cluster::Service;
use crate::names::row_name;
use crate::verify::{Finding, Kind, Sight};
use crate::wanted::Wanted;

/// Between two requests for the same repair that nobody answers.
const LONGEST_PATIENCE: Duration = Duration::from_mins(10);

/// How long others are given.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// For the manager to follow a change in Kubernetes.
    pub(crate) settle: Duration,
    /// For the manager to repair what it was asked to.
    pub(crate) repair: Duration,
}

#[derive(Debug)]
pub(crate) struct Book {
    patience: Patience,
    entries: HashMap<ServiceKey, Entry>,
    open: usize,
    /// What was counted as found and is no drift any more, by kind and cause.
    closed: Vec<(Kind, &'static str)>,
}

#[derive(Debug)]
struct Entry {
    uid: Box<str>,
    shape: u64,
    shape_since: Moment,
    /// Doubtful findings that were there when this shape had settled; `None` until then.
    known: Option<Vec<u64>>,
    /// Which addresses have no backend: a manager may keep nothing for these.
    empty: u64,
    /// When that has changed, until what follows from it has settled.
    emptied: Option<Moment>,
    /// Whether a row was missing when it was last looked at.
    absent: bool,
    backends: Backends,
    extras: Vec<(Protocol, Uuid, u64)>,
    /// The last change of OVN that concerned it and was not looked at yet.
    touched: Option<Touch>,
    /// The last change that took a row of it away: the manager may have made it again and lost it between two looks.
    taken: Option<Touch>,
    /// A row of it was seen to go and is not back: the manager takes none while its Service wants it.
    lost: bool,
    /// The manager was last asked with this, as far as the Service says.
    resync: Option<Box<str>>,
    /// And by us with this, which the Service may say only later.
    ours: Option<Box<str>>,
    open: Option<Box<Open>>,
    closed: Vec<(Kind, &'static str)>,
}

#[derive(Debug, Default)]
struct Backends {
    wanted: u64,
    /// Whether the row once had exactly these.
    matched: bool,
    told: bool,
    differ_since: Option<Moment>,
}

/// One change of OVN: when it was seen, and its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Touch {
    pub(crate) seen: Moment,
    pub(crate) round: u64,
}

/// A drift that is not repaired yet.
#[derive(Debug)]
struct Open {
    seen: Moment,
    touch: Option<Touch>,
    /// When the manager was last asked, by whomever.
    asked: Option<Moment>,
    attempts: u32,
    /// Whether people were told, by us or by another copy of us.
    told: bool,
    /// Whether it is one of so many that only a summary was told.
    in_a_crowd: bool,
    /// Who did it. Decided once: evidence moves on.
    cause: Option<Cause>,
    /// What was counted as found, and under which cause.
    found: BTreeMap<Kind, &'static str>,
    row_missing: bool,
    /// Routers and switches that are missing, and whatever is there twice.
    hindrances: usize,
}

/// What follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Judgement {
    /// Not one of kube-dc's Services.
    NotOurs,
    /// As it should be.
    Fine { repaired: Option<Repaired> },
    /// Not as it should be, but what was changed in Kubernetes may explain it for this time.
    Settling(Duration),
    /// The manager was asked, and has this time left.
    Asked(Duration),
    /// Changed behind its owner's back. The same answer comes again until [`Book::asked`].
    Drift(Alarm),
    /// Differs from what we compute, and always did.
    Odd(Vec<Finding>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Alarm {
    pub(crate) findings: Vec<Finding>,
    pub(crate) seen: Moment,
    /// The change of OVN that told it; `None` where no change did.
    pub(crate) touch: Option<Touch>,
    /// How often the manager was asked already.
    pub(crate) attempts: u32,
    /// Whether the manager was asked by somebody else.
    pub(crate) under_way: bool,
    /// Whether people were told already, and whether as one of so many that only a summary was.
    pub(crate) told: bool,
    pub(crate) in_a_crowd: bool,
    /// Who did it, once that was decided.
    pub(crate) cause: Option<Cause>,
}

impl Alarm {
    /// Whether the manager can do something about it.
    pub(crate) fn is_repairable(&self) -> bool {
        self.findings.iter().any(|finding| !hinders(finding.kind))
    }

    /// Whether something is in its way.
    pub(crate) fn is_hindered(&self) -> bool {
        self.findings.iter().any(|finding| hinders(finding.kind))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Repaired {
    pub(crate) took: Duration,
    /// Whether it was we who found it.
    pub(crate) found: bool,
    /// Whether people were told of it, and whether as one of so many that only a summary was.
    pub(crate) told: bool,
    pub(crate) in_a_crowd: bool,
}

fn is_about_the_place(kind: Kind) -> bool {
    use Kind::{RouterAmbiguous, RouterMissing, SwitchAmbiguous, SwitchMissing};
    matches!(kind, RouterMissing | SwitchMissing | RouterAmbiguous | SwitchAmbiguous)
}

/// What the manager cannot repair: it makes no routers and no switches, and does not know which of two rows is its own.
fn hinders(kind: Kind) -> bool {
    is_about_the_place(kind) || kind == Kind::RowDuplicate
}

impl Book {
    pub(crate) fn new(patience: Patience) -> Self {
        Self { patience, entries: HashMap::new(), open: 0, closed: Vec::new() }
    }

    /// How many Services are not as they should be.
    pub(crate) fn open_count(&self) -> usize {
        self.open
    }

    /// How many Services are verified.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Services whose row the manager was asked for and is still to make.
    pub(crate) fn awaited(&self) -> Vec<ServiceKey> {
        let awaits = |entry: &Entry| entry.open.as_ref().is_some_and(|open| open.asked.is_some() && open.row_missing);
        self.entries.iter().filter(|(_, entry)| awaits(entry)).map(|(key, _)| key.clone()).collect()
    }

    /// Whether the next difference of this Service would be news: it is known, settled and fine.
    pub(crate) fn is_fine(&self, key: &ServiceKey, wanted: &Wanted) -> bool {
        let fine = |e: &Entry| e.open.is_none() && e.known.is_some() && e.shape == wanted.shape();
        self.entries.get(key).is_some_and(fine)
    }

    /// OVN has changed something of this Service; `taken` if one of its rows is gone by it.
    pub(crate) fn touch(&mut self, key: &ServiceKey, touch: Touch, taken: bool) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.taken = if taken { Some(touch) } else { entry.taken };
            // The first since the last look is the one that may have broken something.
            entry.touched.get_or_insert(touch);
        }
    }

    /// It is gone, or not to be verified any more.
    pub(crate) fn forget(&mut self, key: &ServiceKey) {
        let Some(mut entry) = self.entries.remove(key) else { return };
        if entry.open.is_some() {
            self.open -= 1;
        }
        entry.close();
        self.closed.append(&mut entry.closed);
    }

    /// What was counted as found and is over by now.
    pub(crate) fn take_closed(&mut self) -> Vec<(Kind, &'static str)> {
        std::mem::take(&mut self.closed)
    }

    /// Who made the drift.
    pub(crate) fn blame(&mut self, key: &ServiceKey, cause: &Cause) {
        if let Some(open) = self.open_of(key) {
            open.cause = Some(cause.clone());
        }
    }

    /// The manager was asked, or the drift was reported where nobody is asked. Returns the kinds that are news.
    pub(crate) fn asked(&mut self, key: &ServiceKey, with: Option<&str>, alarm: &Alarm, now: Moment) -> Vec<Kind> {
        let Some(entry) = self.entries.get_mut(key) else { return Vec::new() };
        if let Some(with) = with {
            entry.ours = Some(with.into());
        }
        let Some(open) = &mut entry.open else { return Vec::new() };
        if !alarm.under_way {
            open.asked = Some(now);
        }
        open.attempts += 1;
        open.told = true;
        let Some(cause) = &open.cause else { return Vec::new() };
        let kinds: BTreeSet<_> = alarm.findings.iter().map(|finding| finding.kind).collect();
        let news = kinds.into_iter().filter(|kind| !open.found.contains_key(kind)).collect::<Vec<_>>();
        open.found.extend(news.iter().map(|kind| (*kind, cause.label)));
        news
    }

    /// Only a summary tells of it.
    pub(crate) fn is_in_a_crowd(&mut self, key: &ServiceKey) {
        if let Some(open) = self.open_of(key) {
            open.in_a_crowd = true;
        }
    }

    /// Another copy of us has asked the manager, and tells.
    pub(crate) fn told_elsewhere(&mut self, key: &ServiceKey, in_a_crowd: bool) {
        if let Some(open) = self.open_of(key) {
            (open.told, open.in_a_crowd) = (true, in_a_crowd);
        }
    }

    fn open_of(&mut self, key: &ServiceKey) -> Option<&mut Open> {
        self.entries.get_mut(key)?.open.as_deref_mut()
    }

    pub(crate) fn judge(&mut self, service: &Service, wanted: &Wanted, sight: Sight, now: Moment) -> Judgement {
        let key = &service.key;
        if self.entries.get(key).is_some_and(|entry| entry.uid != service.uid) {
            self.forget(key);
        }
        if !self.entries.contains_key(key) {
            let ours = service.finalizer || (!service.class && (sight.has_row || sight.has_place));
            if !ours {
                return Judgement::NotOurs;
            }
            self.entries.insert(key.clone(), Entry::new(service, wanted, now));
        }
        let Some(entry) = self.entries.get_mut(key) else { return Judgement::NotOurs };
        let was_open = entry.open.is_some();
        let judgement = entry.judge(service, wanted, sight, now, self.patience);
        match (was_open, entry.open.is_some()) {
            (false, true) => self.open += 1,
            (true, false) => self.open -= 1,
            _ => {}
        }
        self.closed.append(&mut entry.closed);
        judgement
    }
}

/// What one look makes of the findings.
#[derive(Default)]
struct Sorted {
    drifted: Vec<Finding>,
    odd: Vec<Finding>,
    wait: Option<Duration>,
}

impl Sorted {
    fn wait_for(&mut self, time: Duration) {
        self.wait = Some(self.wait.map_or(time, |already| already.min(time)));
    }
}

impl Entry {
    fn new(service: &Service, wanted: &Wanted, now: Moment) -> Self {
        Self {
            uid: service.uid.clone(),
            shape: wanted.shape(),
            shape_since: now,
            known: None,
            empty: wanted.empty(),
            emptied: None,
            absent: false,
            backends: Backends { wanted: wanted.backends(), ..Backends::default() },
            extras: Vec::new(),
            touched: None,
            taken: None,
            lost: false,
            resync: service.resync.clone(),
            ours: None,
            open: None,
            closed: Vec::new(),
        }
    }

    fn judge(
        &mut self,
        service: &Service,
        wanted: &Wanted,
        sight: Sight,
        now: Moment,
        patience: Patience,
    ) -> Judgement {
        self.follow(service, wanted, now);
        let (touch, taken) = (self.touched.take(), self.taken.take());
        let mut sorted = Sorted::default();
        self.sort_extras(service, &sight, &mut sorted);
        let (backends, mut shape): (Vec<_>, Vec<_>) =
            sight.findings.into_iter().partition(|f| f.kind == Kind::Backends);
        let is_absent = shape.iter().any(|f| f.kind == Kind::RowMissing);
        let hindrances = shape.iter().filter(|f| hinders(f.kind)).count();
        let follows_backends = self.emptied.is_some_and(|since| !now.until(since + patience.settle).is_zero());
        self.lost = is_absent && (self.lost || (taken.is_some() && !follows_backends));
        if self.lost {
            let is_its = |f: &&mut Finding| f.kind == Kind::RowMissing || is_about_the_place(f.kind);
            shape.iter_mut().filter(is_its).for_each(|finding| finding.sure = true);
        }
        if follows_backends && self.open.is_none() && (is_absent || self.absent) {
            // It is made anew, step by step.
            (self.shape_since, self.known) = (self.emptied.unwrap_or(now), None);
        }
        self.absent = is_absent;
        let incomplete =
            shape.iter().any(|f| matches!(f.kind, Kind::RowMissing | Kind::RowDuplicate | Kind::VipMissing));
        self.sort_shape(shape, now, patience, &mut sorted);
        if !incomplete {
            self.sort_backends(backends, now, patience, &mut sorted);
        }
        if sorted.drifted.is_empty() {
            return self.not_drifted(sorted, touch, now);
        }
        self.drifted(sorted.drifted, hindrances, taken.or(touch), taken, now, patience)
    }

    /// Takes note of what Kubernetes says.
    fn follow(&mut self, service: &Service, wanted: &Wanted, now: Moment) {
        let (shape, backends) = (wanted.shape(), wanted.backends());
        if self.shape != shape {
            (self.shape, self.shape_since, self.known) = (shape, now, None);
            (self.empty, self.emptied) = (wanted.empty(), None);
        } else if self.empty != wanted.empty() {
            (self.empty, self.emptied, self.lost) = (wanted.empty(), Some(now), false);
        }
        if self.backends.wanted != backends {
            self.backends = Backends { wanted: backends, ..Backends::default() };
        }
        if self.resync != service.resync {
            self.resync.clone_from(&service.resync);
            // Another copy of us asked, or a person did.
            if let Some(open) = self.open.as_mut().filter(|_| self.resync != self.ours) {
                open.asked = Some(now);
            }
        }
    }

    fn sort_shape(&mut self, findings: Vec<Finding>, now: Moment, patience: Patience, sorted: &mut Sorted) {
        let left = |since: Moment| now.until(since + patience.settle);
        let is_hollow = |f: &Finding| matches!(f.kind, Kind::RowMissing | Kind::VipMissing);
        let hollow_left = self.emptied.map_or(Duration::ZERO, left);
        let Some(known) = &mut self.known else {
            let hollow_left = if findings.iter().any(is_hollow) { hollow_left } else { Duration::ZERO };
            let left = left(self.shape_since).max(hollow_left);
            if !findings.is_empty() && self.open.is_none() && !self.lost && !left.is_zero() {
                return sorted.wait_for(left);
            }
            self.emptied = None;
            let (sure, doubtful): (Vec<_>, Vec<_>) = findings.into_iter().partition(|f| f.sure);
            self.known = Some(doubtful.iter().map(|f| f.id).collect());
            sorted.odd.extend(doubtful);
            sorted.drifted.extend(sure);
            return;
        };
        known.retain(|id| findings.iter().any(|f| f.id == *id));
        // What was drift before remains it until then.
        let follows = self.emptied.is_some() && (self.open.is_none() || hollow_left.is_zero());
        let (hollow, rest): (Vec<_>, Vec<_>) = findings.into_iter().partition(|f| follows && is_hollow(f));
        sorted.drifted.extend(rest.into_iter().filter(|f| f.sure || !known.contains(&f.id)));
        if !follows {
            return;
        }
        if !hollow_left.is_zero() {
            // Looked at again even if all is well: what goes later is not explained by it.
            return sorted.wait_for(hollow_left);
        }
        self.emptied = None;
        let (sure, doubtful): (Vec<_>, Vec<_>) = hollow.into_iter().partition(|f| f.sure);
        known.extend(doubtful.iter().map(|f| f.id));
        sorted.drifted.extend(sure);
    }

    fn sort_backends(&mut self, findings: Vec<Finding>, now: Moment, patience: Patience, sorted: &mut Sorted) {
        let backends = &mut self.backends;
        if findings.is_empty() {
            *backends = Backends { wanted: backends.wanted, matched: true, ..Backends::default() };
            return;
        }
        let since = *backends.differ_since.get_or_insert(now);
        let left = now.until(since + patience.settle);
        if !left.is_zero() {
            sorted.wait_for(left);
        } else if backends.matched {
            sorted.drifted.extend(findings);
        } else if !backends.told {
            backends.told = true;
            sorted.odd.extend(findings);
        }
    }

    /// Options are not kube-dc's: a change of them is told, and then is how it is.
    fn sort_extras(&mut self, service: &Service, sight: &Sight, sorted: &mut Sorted) {
        for (protocol, uuid, now) in &sight.extras {
            let before = self.extras.iter().find(|(p, u, _)| p == protocol && u == uuid);
            if before.is_some_and(|(_, _, before)| before != now) {
                sorted.odd.push(Finding {
                    kind: Kind::Options,
                    sure: false,
                    id: *now,
                    row: row_name(&service.key, *protocol),
                    expected: "options and health checks as they were".into(),
                    found: "others".into(),
                });
            }
        }
        if !sight.extras.is_empty() {
            self.extras.clone_from(&sight.extras);
        }
    }

    /// What was found is over.
    fn close(&mut self) -> Option<Box<Open>> {
        let mut open = self.open.take()?;
        self.closed.extend(std::mem::take(&mut open.found));
        Some(open)
    }

    fn not_drifted(&mut self, sorted: Sorted, touch: Option<Touch>, now: Moment) -> Judgement {
        let repaired = self.close().map(|open| Repaired {
            took: open.seen.until(now),
            found: open.cause.is_some() && open.told,
            told: open.told,
            in_a_crowd: open.in_a_crowd,
        });
        match (repaired, sorted.wait) {
            (None, _) if !sorted.odd.is_empty() => Judgement::Odd(sorted.odd),
            (None, Some(left)) => {
                self.touched = touch;
                Judgement::Settling(left)
            }
            (repaired, _) => Judgement::Fine { repaired },
        }
    }

    fn drifted(
        &mut self,
        findings: Vec<Finding>,
        hindrances: usize,
        touch: Option<Touch>,
        taken: Option<Touch>,
        now: Moment,
        patience: Patience,
    ) -> Judgement {
        let seen = touch.map_or(now, |touch| touch.seen);
        let open = self.open.get_or_insert_with(|| {
            Box::new(Open {
                seen,
                touch,
                asked: None,
                attempts: 0,
                told: false,
                in_a_crowd: false,
                cause: None,
                found: BTreeMap::new(),
                row_missing: false,
                hindrances: 0,
            })
        });
        let row_missing = findings.iter().any(|f| f.kind == Kind::RowMissing);
        let taken = taken.is_some_and(|taken| open.asked.is_some_and(|asked| taken.seen >= asked));
        let gone_again = row_missing && (!open.row_missing || taken);
        let is_less_hindered = hindrances < open.hindrances;
        (open.row_missing, open.hindrances) = (row_missing, hindrances);
        if open.asked.is_some() && (gone_again || is_less_hindered) {
            // Nobody waits for an answer to the old question: what it led to is undone, or could not be done then.
            (open.seen, open.touch, open.asked, open.attempts) = (seen, touch, None, 0);
            (open.told, open.in_a_crowd, open.cause) = (false, false, None);
            let stays = |kind| findings.iter().any(|f| f.kind == kind) && !(gone_again && kind == Kind::RowMissing);
            self.closed.extend(open.found.extract_if(.., |kind, _| !stays(*kind)));
        }
        if let Some(asked) = open.asked.filter(|_| open.told) {
            let patience = patience.repair.saturating_mul(1 << open.attempts.saturating_sub(1).min(10));
            let left = now.until(asked + patience.min(LONGEST_PATIENCE));
            if !left.is_zero() {
                return Judgement::Asked(left);
            }
            if findings.iter().all(|f| !f.sure && !is_about_the_place(f.kind) && f.kind != Kind::RowMissing) {
                return self.accept(findings);
            }
        }
        let Some(open) = &self.open else { return Judgement::Fine { repaired: None } };
        Judgement::Drift(Alarm {
            findings,
            seen: open.seen,
            touch: open.touch,
            attempts: open.attempts,
            under_way: open.asked.is_some() && !open.told,
            told: open.told,
            in_a_crowd: open.in_a_crowd,
            cause: open.cause.clone(),
        })
    }

    /// The manager was asked and left it so: it sees these things differently from us.
    fn accept(&mut self, findings: Vec<Finding>) -> Judgement {
        self.close();
        (self.backends.matched, self.backends.told) = (false, true);
        if let Some(known) = &mut self.known {
            known.extend(findings.iter().filter(|f| f.kind != Kind::Backends).map(|f| f.id));
        }
        Judgement::Odd(findings)
    }
}

#[cfg(test)]
mod tests;
