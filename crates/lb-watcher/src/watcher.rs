//! The loop: a change of OVN or of Kubernetes, one look at each Service that it concerns, and what follows from it.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use groundcrew_core::diff::{self, Diff};
use groundcrew_core::drift::{Attribute, Brake, Cause, Drift, Round};
use groundcrew_core::key::ServiceKey;
use groundcrew_core::leader::{Moment, Role, Term};
use groundcrew_core::provider::Owner;
use groundcrew_core::queue::{Outcome, Queue};
use groundcrew_core::runtime::Runtime;
use ovsdb_client::{Snapshot, Uuid};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::attribution::{Attribution, KUBE_OVN_COLLECTION};
use crate::book::{Alarm, Book, Judgement, Repaired};
use crate::claim::{Claim, claim};
use crate::cluster::{Cluster, Service};
use crate::metrics::Metrics;
use crate::northbound::Northbound;
use crate::report::{Deed, Reporter};
use crate::request::{Answer, Requests};
use crate::rounds::{Reach, Rounds};
use crate::sighting::Sightings;
use crate::verify::{Finding, verify};
use crate::view::View;
use crate::wanted::{Site, Wanted, wanted};

/// How long a look waits for a server that does not answer.
const NOT_CURRENT: Duration = Duration::from_secs(1);

pub(crate) struct Watcher {
    pub(crate) site: Site,
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) view: View,
    pub(crate) queue: Arc<Queue<ServiceKey>>,
    pub(crate) attribution: Attribution,
    pub(crate) reporter: Reporter,
    pub(crate) metrics: Metrics,
    pub(crate) requests: Requests,
    pub(crate) role: watch::Receiver<Role>,
    pub(crate) settle: Duration,
    pub(crate) report_only: bool,
    pub(crate) runtime: Runtime,
    pub(crate) state: Mutex<State>,
}

pub(crate) struct State {
    pub(crate) book: Book,
    pub(crate) brake: Brake,
    pub(crate) rounds: Rounds,
    /// Until when each flapping Service was told to wait.
    pub(crate) held: HashMap<ServiceKey, Moment>,
    /// Row names that several Services share, and that were told.
    pub(crate) ambiguous: BTreeSet<String>,
    /// What the changes that were read so far have led to.
    pub(crate) read: Option<Snapshot<Northbound>>,
    /// When kube-ovn's collection was last seen.
    pub(crate) collected: Option<Moment>,
}

impl State {
    pub(crate) fn new(book: Book) -> Self {
        Self {
            book,
            brake: Brake::default(),
            rounds: Rounds::default(),
            held: HashMap::new(),
            ambiguous: BTreeSet::new(),
            read: None,
            collected: None,
        }
    }
}

/// Who may say and do something about a drift.
enum Voice {
    Leader(Term),
    /// Shows what it would do.
    DryRun,
}

impl Watcher {
    /// Turns what OVN says into keys.
    pub(crate) async fn listen(&self, stop: &CancellationToken) {
        let mut changes = self.view.replica.changes();
        let mut sightings = Sightings { cluster: &self.cluster, site: &self.site, gone: BTreeSet::new() };
        while let Some(changed) = stop.run_until_cancelled(changes.next()).await {
            let seen = Moment::now();
            let mut sighting = sightings.read(&changed);
            self.attribution.observe(&sighting.shift, seen);
            let reach = if sighting.services.is_some() { Reach::These } else { Reach::All };
            let mut services = sighting.services.unwrap_or_else(|| self.cluster.keys().into_iter().collect());
            let mut state = self.lock();
            if sighting.strays {
                // The manager made one of these, and somebody was quicker than our eyes.
                sighting.taken.extend(state.book.awaited());
                services.extend(sighting.taken.iter().cloned());
            }
            if changed.before.generation() == 0 {
                state.rounds.first(seen, services.clone());
            } else {
                let touch = state.rounds.begin(seen, services.clone(), reach);
                for key in &services {
                    state.book.touch(key, touch, sighting.taken.contains(key));
                }
            }
            state.read = Some(changed.after);
            // Under the lock: who compares everything with what was read finds these keys queued.
            self.queue.add_all(services);
        }
    }

    /// Looks at one Service.
    pub(crate) async fn look(&self, key: ServiceKey) -> Outcome {
        let (outcome, settled) = self.consider(&key).await;
        let masses = {
            let mut state = self.lock();
            self.count(&mut state);
            state.rounds.looked(&key, settled, Moment::now())
        };
        for mass in masses {
            self.metrics.drift.mass.with_label_values(&[mass.cause.label]).inc();
            self.reporter.mass(&mass);
        }
        outcome
    }

    /// How the look ended, and whether all is said and done that this Service needs now.
    async fn consider(&self, key: &ServiceKey) -> (Outcome, bool) {
        let mut current = false;
        loop {
            // Everything is looked at again once it is back.
            let Some(nb) = self.view.now() else { return (Outcome::Done, false) };
            let Some((service, wanted)) = self.wanted(key, &nb) else {
                self.forget(key);
                return (Outcome::Done, true);
            };
            let judgement = self.lock().book.judge(&service, &wanted, verify(&wanted, &nb), Moment::now());
            match judgement {
                Judgement::NotOurs => return (Outcome::Done, true),
                Judgement::Fine { repaired } => {
                    if let Some(repaired) = repaired {
                        self.repaired(&service, &repaired);
                    }
                    return (Outcome::Done, true);
                }
                Judgement::Settling(left) => return (Outcome::Again(left), false),
                Judgement::Asked(left) => return (Outcome::Again(left), true),
                Judgement::Odd(findings) => {
                    self.odd(&service, &findings);
                    return (Outcome::Again(self.settle), true);
                }
                // No change of OVN told it, so perhaps OVN has stopped to tell.
                Judgement::Drift(alarm) if alarm.touch.is_none() && !current => {
                    current = self.view.is_current().await;
                    if !current {
                        return (Outcome::Again(NOT_CURRENT), false);
                    }
                }
                Judgement::Drift(alarm) => return self.act(&service, &alarm).await,
            }
        }
    }

    /// What OVN should have for a Service; `None` if it is not to be verified.
    pub(crate) fn wanted(&self, key: &ServiceKey, nb: &Northbound) -> Option<(Arc<Service>, Wanted)> {
        let service = self.cluster.service(key).filter(|service| service.is_served())?;
        let wanted = self.cluster.with_slices(key, |slices| wanted(&service, slices, &self.site));
        for row in &wanted.rows {
            match claim(key, &row.name, &self.cluster, &self.site, nb) {
                Claim::Its => {}
                Claim::Anothers => return None,
                Claim::Shared(services) => {
                    self.ambiguous(&row.name, &services);
                    return None;
                }
            }
        }
        Some((service, wanted))
    }

    fn ambiguous(&self, row: &str, services: &[ServiceKey]) {
        if self.voice().is_none() || !self.lock().ambiguous.insert(row.to_owned()) {
            return;
        }
        for service in services.iter().filter_map(|key| self.cluster.service(key)) {
            self.reporter.ambiguous(&service, row, services);
        }
    }

    async fn act(&self, service: &Service, alarm: &Alarm) -> (Outcome, bool) {
        let key = &service.key;
        let Some(voice) = self.voice() else {
            // A follower has no say. Who leads next looks at everything first.
            if !alarm.under_way {
                return (Outcome::Done, false);
            }
            let mut state = self.lock();
            let in_a_crowd = state.rounds.is_crowd(alarm.touch, key);
            state.book.told_elsewhere(key, in_a_crowd);
            return (Outcome::Again(Duration::ZERO), true);
        };
        if let Err(wait) = self.admit(service, alarm) {
            return (Outcome::Again(wait), true);
        }
        let cause = alarm.cause.clone().unwrap_or_else(|| self.cause(service, alarm));
        self.lock().book.blame(key, &cause);
        let (deed, answer) = match voice {
            _ if alarm.under_way => (Deed::UnderWay, Answer::Done(None)),
            _ if !alarm.is_repairable() => (Deed::Impossible, Answer::Done(None)),
            Voice::Leader(_) if self.report_only => (Deed::Shown, self.requests.check(service).await),
            Voice::DryRun => (Deed::Shown, Answer::Done(None)),
            Voice::Leader(term) => (Deed::Asked, self.requests.ask(service, &term, &self.metrics).await),
        };
        let with = match answer {
            Answer::Done(with) => with,
            // It is about to go, or we do not lead any more: it is looked at again in both cases.
            Answer::Gone => return (Outcome::Done, false),
            Answer::Failed(retry) => return (Outcome::Failed(retry), false),
        };
        let mut in_a_crowd = alarm.in_a_crowd;
        let news = {
            let mut state = self.lock();
            let now = Moment::now();
            if !alarm.told {
                in_a_crowd = state.rounds.drifted(alarm.touch, key, &cause, now);
                if in_a_crowd {
                    state.book.is_in_a_crowd(key);
                }
                if !alarm.under_way {
                    state.brake.repaired(key, now);
                }
                if cause.label == KUBE_OVN_COLLECTION {
                    state.collected = state.collected.max(Some(alarm.seen));
                }
            }
            state.book.asked(key, with.as_deref(), alarm, now)
        };
        for kind in news {
            self.metrics.drift.found.with_label_values(&[kind.label(), cause.label]).inc();
        }
        if alarm.told {
            self.reporter.overdue(service, alarm, self.report_only);
        } else {
            let differences: Vec<_> = alarm.findings.iter().map(Finding::difference).collect();
            self.runtime.show_plan(Diff::of(format!("Service {key}"), diff::lines(&differences)));
            self.reporter.drift(service, alarm, &cause, deed, in_a_crowd);
        }
        // Looks when its time is up, whatever else happens.
        (Outcome::Again(Duration::ZERO), true)
    }

    /// Holds a Service that somebody changes faster than anybody should repair it.
    fn admit(&self, service: &Service, alarm: &Alarm) -> Result<(), Duration> {
        if alarm.told || alarm.under_way {
            return Ok(());
        }
        let now = Moment::now();
        let mut state = self.lock();
        let admitted = state.brake.admit(&service.key, now);
        let news = admitted.is_err_and(|held| state.held.insert(service.key.clone(), held.until) != Some(held.until));
        self.metrics.drift.flapping.set(count(state.brake.flapping_count(now)));
        drop(state);
        admitted.map_err(|held| {
            if news {
                let kube_ovn = self.attribution.kube_ovn_near(now);
                self.reporter.flapping(service, alarm, held, kube_ovn, now);
            }
            now.until(held.until)
        })
    }

    fn cause(&self, service: &Service, alarm: &Alarm) -> Cause {
        let uid = Uuid::parse_str(&service.uid).unwrap_or_default();
        let owner = Owner { key: service.key.clone(), uid };
        let differences = alarm.findings.iter().map(Finding::difference).collect();
        self.attribution.cause(&Round { seen: alarm.seen, drifts: vec![Drift { owner, differences }] })
    }

    fn repaired(&self, service: &Service, repaired: &Repaired) {
        if repaired.found {
            self.metrics.drift.repair.observe(repaired.took.as_secs_f64());
        }
        if self.speaks() {
            self.reporter.repaired(service, repaired);
        }
    }

    fn odd(&self, service: &Service, findings: &[Finding]) {
        if self.speaks() {
            for kind in kinds(findings) {
                self.metrics.differences.with_label_values(&[kind]).inc();
            }
            self.reporter.odd(service, findings);
        }
    }

    fn forget(&self, key: &ServiceKey) {
        let mut state = self.lock();
        state.book.forget(key);
        state.brake.forget(key);
        state.held.remove(key);
    }

    fn count(&self, state: &mut State) {
        // Whoever counted it as found counts its end, so that the two are even: the one who leads now may not know it.
        for (kind, cause) in state.book.take_closed() {
            self.metrics.drift.repaired.with_label_values(&[kind.label(), cause]).inc();
        }
        self.metrics.open.set(count(state.book.open_count()));
        self.metrics.services.set(count(state.book.len()));
    }

    fn voice(&self) -> Option<Voice> {
        if self.runtime.dry_run {
            return Some(Voice::DryRun);
        }
        self.role.borrow().term().cloned().map(Voice::Leader)
    }

    /// Whether this process tells people anything.
    pub(crate) fn speaks(&self) -> bool {
        self.voice().is_some()
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn kinds(findings: &[Finding]) -> BTreeSet<&'static str> {
    findings.iter().map(|finding| finding.kind.label()).collect()
}

pub(crate) fn count(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}
