//! The only writer of the northbound database.
//!
//! Reconciles hand in their steps and wait. One task sends what has gathered as one transaction; while it is under way
//! the next gathers. So a single change goes out at once, and a thousand share a few transactions: northd computes anew
//! for each. A large one is put together while the one before is under way, so that the database need not wait for it.
//!
//! Every transaction begins with a guard on the leader's [`epoch`], and every step brings guards of its own. When one
//! of those fails, whoever brought it has lost and plans again; the others are sent again without it, which is safe
//! because a rejected transaction changed nothing.
//!
//! After an unknown outcome nothing is sent again blindly. The epoch is moved on before anything else is written: when
//! that is acknowledged, the silent transaction has either been carried out, and the replica shows it, or its guard
//! fails for ever. Otherwise a Service could be released while the row that was made for it is still on its way.

mod batch;
mod epoch;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::future::ready;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use groundcrew_core::fault;
use groundcrew_core::leader::{Term, WriteError};
use ovsdb_client::ops::Mutator;
use ovsdb_client::{Atom, Op, OpResult, Prepared, TransactError, Value};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tracing::{debug, info};

use crate::error::Error;
use crate::marks;
use crate::metrics::Metrics;
use crate::northbound::Northbound;
use crate::northd::Northd;
use crate::plan::Step;
use crate::view::View;
use batch::{Batch, Members};
use epoch::Epoch;

/// One transaction's worth, five thousand rows on router and switch. The server is blocked for its length, some tenths of
/// a second; but each one makes northd compute everything anew, so that ten thousand lost rows should come back in a few.
const MOST_STEPS: usize = 15_000;
const MOST_BYTES: usize = 8 << 20;
/// From this many changes on it takes a transaction so long to be put together that this is done ahead of its turn. Fewer go
/// on gathering until then.
const MANY: usize = 100;

const GLOBAL: &str = "NB_Global";

/// Within the time of one write: what is not answered by then is told as unknown by the client, which knows more.
const ANSWER_MARGIN: Duration = Duration::from_millis(50);

/// Hands changes to the task that commits them. Clones share the task; it ends with the last of them.
#[derive(Clone)]
pub(crate) struct Committer {
    queue: mpsc::UnboundedSender<Vec<Waiting>>,
    writer: Arc<Writer>,
}

/// One reconcile's steps, all or nothing, and who waits for them.
struct Waiting {
    steps: Vec<Step>,
    term: Term,
    done: oneshot::Sender<Result<Option<i64>, Error>>,
}

/// What is sent as one transaction.
struct Part {
    changes: Vec<Waiting>,
    /// As it was put together ahead of its turn.
    ahead: Option<Assembled>,
}

/// A transaction that only has to be sent, if the epoch is still the same.
struct Assembled {
    epoch: Epoch,
    members: Members,
    message: Prepared,
}

struct Writer {
    view: View,
    cluster: Arc<str>,
    /// The one that is served.
    class: Arc<str>,
    deadline: Duration,
    metrics: Metrics,
    northd: Northd,
    /// The epoch under which we write, once a term has begun.
    epoch: Mutex<Option<Epoch>>,
    /// Whether a transaction may still be on its way that nobody waits for.
    unsettled: AtomicBool,
}

/// How a transaction ended, if not well.
pub(crate) enum Refusal {
    /// This operation failed; `lost` if because the world is not as it was seen.
    Operation { index: usize, lost: bool, reason: String },
    /// The server refused the whole, and does not say because of which part.
    Commit(String),
    /// It never came to the contents.
    Whole(Error),
}

impl Committer {
    /// The handle, and the task to spawn.
    pub(crate) fn new(
        view: View,
        cluster: Arc<str>,
        class: Arc<str>,
        deadline: Duration,
        metrics: Metrics,
        northd: Northd,
    ) -> (Self, impl Future<Output = ()> + Send) {
        let (queue, waiting) = mpsc::unbounded_channel();
        let writer = Arc::new(Writer {
            view,
            cluster,
            class,
            deadline,
            metrics,
            northd,
            epoch: Mutex::default(),
            unsettled: AtomicBool::new(false),
        });
        (Self { queue, writer: writer.clone() }, run(writer, waiting))
    }

    /// Moves the epoch on: no write of an older term commits after this.
    pub(crate) async fn begin(&self, term: &Term) -> Result<(), Error> {
        if let Some(other) = self.other_class(&*self.writer.view.now()?) {
            return Err(other);
        }
        let epoch = self.writer.claim(term, 0).await?;
        info!(epoch = epoch.text(), "a new term begins in OVN");
        Ok(())
    }

    /// A leader of this cluster that serves another class. Where nothing of this cluster is left, whoever it was has gone.
    pub(crate) fn other_class(&self, nb: &Northbound) -> Option<Error> {
        let Writer { cluster, class, .. } = &*self.writer;
        let seen = epoch::seen(nb, cluster).ok()??;
        let serves = || nb.load_balancers.iter().any(|(_, row)| marks::owner(&row.external_ids, cluster).is_some());
        let is_other = epoch::class(seen).is_some_and(|other| *other != **class) && serves();
        is_other.then(|| Error::OtherClass { epoch: seen.to_owned(), class: class.clone(), cluster: cluster.clone() })
    }

    /// Whether this process has led.
    pub(crate) fn has_begun(&self) -> bool {
        self.writer.epoch().is_some()
    }

    /// A leader that began after us.
    pub(crate) fn rival(&self, nb: &Northbound) -> Option<Error> {
        let cluster = &self.writer.cluster;
        let seen = epoch::seen(nb, cluster).ok()??;
        let is_later = self.writer.epoch()?.is_superseded_by(seen);
        is_later.then(|| Error::Rival { epoch: seen.to_owned(), cluster: cluster.clone() })
    }

    /// Carries the steps out, all or none. When this returns `Ok`, the replica shows them, and everything else that was
    /// sent before; so it is worth a call without steps, too. With steps, the `nb_cfg` of the transaction is returned.
    pub(crate) async fn commit(&self, steps: Vec<Step>, term: &Term) -> Result<Option<i64>, Error> {
        self.commit_all([steps], term).await.pop().unwrap_or_else(|| Err(gone()))
    }

    /// Carries out the steps of many, each of them all or none, in as few transactions as they fit into.
    pub(crate) async fn commit_all(
        &self,
        changes: impl IntoIterator<Item = Vec<Step>>,
        term: &Term,
    ) -> Vec<Result<Option<i64>, Error>> {
        let (waiting, outcomes): (Vec<_>, Vec<_>) = changes
            .into_iter()
            .map(|steps| {
                let (done, outcome) = oneshot::channel();
                (Waiting { steps, term: term.clone(), done }, outcome)
            })
            .unzip();
        // If the task has ended, so have the channels in what it did not take.
        let _ = self.queue.send(waiting);
        let mut answers = Vec::with_capacity(outcomes.len());
        for outcome in outcomes {
            answers.push(outcome.await.unwrap_or_else(|_| Err(gone())));
        }
        answers
    }
}

fn gone() -> Error {
    Error::NotSent { reason: "the process is ending".into() }
}

/// A guard on the epoch that is there, for who writes beside the leader. None where nobody has led yet.
pub(crate) fn present_epoch(nb: &Northbound, cluster: &str) -> Result<Option<Op>, Error> {
    Ok(epoch::seen(nb, cluster)?.map(|seen| epoch::is(cluster, seen)))
}

async fn run(writer: Arc<Writer>, mut queue: mpsc::UnboundedReceiver<Vec<Waiting>>) {
    let mut waiting = VecDeque::new();
    let mut ahead = None;
    while let Some(first) = queue.recv().await {
        waiting.extend(first);
        while ahead.is_some() || !waiting.is_empty() {
            while let Ok(next) = queue.try_recv() {
                waiting.extend(next);
            }
            let part = ahead.take().unwrap_or_else(|| Part { changes: gather(&mut waiting), ahead: None });
            let mut sending = pin!(writer.send(part));
            loop {
                tokio::select! {
                    biased;
                    () = &mut sending => break,
                    () = ready(()), if ahead.is_none() && waiting.len() >= MANY => {
                        ahead = Some(writer.assemble_ahead(gather(&mut waiting)));
                    }
                    Some(next) = queue.recv() => waiting.extend(next),
                }
            }
        }
    }
}

/// From the front as much as one transaction takes.
fn gather(waiting: &mut VecDeque<Waiting>) -> Vec<Waiting> {
    let (mut steps, mut bytes, mut gathered) = (0, 0, Vec::new());
    while steps < MOST_STEPS
        && bytes < MOST_BYTES
        && let Some(next) = waiting.pop_front()
    {
        steps += next.steps.len();
        bytes += next.bytes();
        gathered.push(next);
    }
    gathered
}

impl Waiting {
    fn bytes(&self) -> usize {
        self.steps.iter().map(Step::weight).sum()
    }

    fn tell(self, outcome: Result<Option<i64>, Error>) {
        // Whoever waited may have given up: its deadline passed, or the process ends.
        let _ = self.done.send(outcome);
    }
}

impl Writer {
    fn assemble_ahead(&self, changes: Vec<Waiting>) -> Part {
        // Where it cannot be, whoever sends it tells why.
        let ahead = self.epoch().and_then(|epoch| self.assemble(&changes, epoch).ok());
        Part { changes, ahead }
    }

    fn assemble(&self, changes: &[Waiting], epoch: Epoch) -> Result<Assembled, TransactError> {
        let [bump, number] = count();
        let (guard, ending) = (epoch.guard(&self.cluster), [bump, epoch.signature(&self.cluster), number]);
        let batch = Batch::new(guard, changes.iter().map(|change| &change.steps[..]), ending, &self.cluster);
        let message = self.view.replica.client().prepare(batch.operations())?;
        Ok(Assembled { epoch, members: batch.into_members(), message })
    }

    /// Sends until everybody has an answer.
    async fn send(&self, Part { changes, mut ahead }: Part) {
        let all = changes.len();
        let mut parts = vec![changes];
        let mut reclaimed = false;
        while let Some(mut part) = parts.pop() {
            // Whoever has given up may have been asked for the contrary meanwhile.
            part.retain(|waiting| !waiting.done.is_closed());
            for late in part.extract_if(.., |waiting| !waiting.term.allows(self.deadline)) {
                late.tell(Err(Error::NotLeader));
            }
            let Some(term) = part.first().map(|waiting| waiting.term.clone()) else { continue };
            let Some(epoch) = self.epoch() else {
                tell_all(part, &Err(Error::NoTerm));
                continue;
            };
            if self.unsettled.load(Ordering::Relaxed) {
                match self.move_on(&term, &epoch).await {
                    Ok(()) => parts.push(part),
                    Err(error) => tell_all(part, &Err(error)),
                }
                continue;
            }
            if part.iter().all(|waiting| waiting.steps.is_empty()) {
                tell_all(part, &Ok(None));
                continue;
            }
            let assembled = match ahead.take().filter(|ahead| ahead.epoch == epoch && part.len() == all) {
                Some(assembled) => Ok(assembled),
                None => self.assemble(&part, epoch.clone()),
            };
            let Assembled { members, message, .. } = match assembled {
                Ok(assembled) => assembled,
                Err(error) => {
                    tell_all(part, &Err(Error::NotSent { reason: error.to_string() }));
                    continue;
                }
            };
            let outcome = self.transact(message, &term).await;
            self.metrics.committed(part.len(), &outcome);
            match outcome {
                Ok(results) => tell_all(part, &Ok(counted(&results))),
                Err(Refusal::Whole(error)) => tell_all(part, &Err(error)),
                Err(Refusal::Operation { index: 0, .. }) if !reclaimed => {
                    reclaimed = true;
                    match self.move_on(&term, &epoch).await {
                        Ok(()) => parts.push(part),
                        Err(error) => tell_all(part, &Err(error)),
                    }
                }
                Err(Refusal::Operation { index, lost, reason }) => {
                    let error = if lost { Error::Lost } else { Error::Rejected { reason } };
                    let mut losers = members.of(index).iter().copied().peekable();
                    let mut rest = Vec::with_capacity(part.len());
                    for (n, waiting) in part.into_iter().enumerate() {
                        if losers.next_if_eq(&n).is_some() {
                            waiting.tell(Err(error.clone()));
                        } else {
                            rest.push(waiting);
                        }
                    }
                    parts.push(rest);
                }
                Err(Refusal::Commit(reason)) if part.len() == 1 => tell_all(part, &Err(Error::Rejected { reason })),
                Err(Refusal::Commit(reason)) => {
                    debug!(changes = part.len(), reason, "refused as a whole; sending the halves");
                    let second = part.split_off(part.len() / 2);
                    parts.extend([second, part]);
                }
            }
        }
    }

    /// Moves the epoch on within the term: after an unknown outcome, or because it is older than ours or not there,
    /// as in a database that was restored or rebuilt. If another leader moved it, we were led away.
    async fn move_on(&self, term: &Term, ours: &Epoch) -> Result<(), Error> {
        let snapshot = self.view.now()?;
        if let Some(seen) = epoch::seen(&snapshot, &self.cluster)?
            && ours.is_superseded_by(seen)
        {
            return Err(Error::Fenced { epoch: seen.to_owned() });
        }
        let epoch = self.claim(term, ours.number()).await?;
        info!(from = ours.text(), to = epoch.text(), "moved the epoch on in OVN");
        Ok(())
    }

    /// Writes an epoch later than the one seen and than `least`, provided that the one seen is still there.
    async fn claim(&self, term: &Term, least: u64) -> Result<Epoch, Error> {
        let snapshot = self.view.now()?;
        let seen = epoch::seen(&snapshot, &self.cluster)?;
        let next = Epoch::after(seen, least, term.identity(), &self.class);
        let claim = self.view.replica.client().prepare(&next.claim(seen, &self.cluster));
        let claim = claim.map_err(|error| Error::NotSent { reason: error.to_string() })?;
        match self.transact(claim, term).await {
            Ok(_) => {
                // Whatever was on its way is in this view or never will be.
                self.northd.begin();
                *self.epoch.lock().unwrap_or_else(PoisonError::into_inner) = Some(next.clone());
                self.unsettled.store(false, Ordering::Relaxed);
                Ok(next)
            }
            Err(Refusal::Operation { lost: true, .. }) => Err(Error::Lost),
            Err(Refusal::Operation { reason, .. } | Refusal::Commit(reason)) => Err(Error::Rejected { reason }),
            Err(Refusal::Whole(error)) => Err(error),
        }
    }

    fn epoch(&self) -> Option<Epoch> {
        self.epoch.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn unknown(&self, reason: String) -> Refusal {
        self.unsettled.store(true, Ordering::Relaxed);
        Refusal::Whole(Error::Unknown { reason })
    }

    async fn transact(&self, message: Prepared, term: &Term) -> Result<Vec<OpResult>, Refusal> {
        let started = Instant::now();
        let client = self.view.replica.client();
        let write = async {
            fault::point("between check and transaction");
            client.send(message, started + self.deadline.saturating_sub(ANSWER_MARGIN)).await
        };
        let written = term.write(self.deadline, write).await;
        self.metrics.transact.observe(started.elapsed().as_secs_f64());
        let error = match written {
            Ok(results) => return Ok(results),
            Err(WriteError::NotLeader) => return Err(Refusal::Whole(Error::NotLeader)),
            Err(WriteError::Unknown(after)) => {
                return Err(self.unknown(format!("nothing within {} ms", after.as_millis())));
            }
            Err(WriteError::Failed(error)) => error,
        };
        let lost = error.is_guard() || is_duplicate(&error);
        Err(match error {
            TransactError::NotSent { reason } => Refusal::Whole(Error::NotSent { reason }),
            TransactError::Unknown { endpoint, reason } => self.unknown(format!("{endpoint}: {reason}")),
            // A read-only server, or one without rights for us: no part of it is better than another.
            TransactError::Rejected { error, details, .. } if matches!(&*error, "not allowed" | "permission error") => {
                Refusal::Whole(Error::Rejected { reason: words(&error, &details) })
            }
            TransactError::Rejected { op: Some(index), error, details } => {
                Refusal::Operation { index, lost, reason: words(&error, &details) }
            }
            TransactError::Rejected { op: None, error, details } => Refusal::Commit(words(&error, &details)),
        })
    }
}

/// Moves `nb_cfg` on and reads it: northd says that it has taken the transaction by copying that number.
fn count() -> [Op; 2] {
    let bump = Op::mutate(GLOBAL, []).mutation("nb_cfg", Mutator::Add, 1);
    [bump.into(), Op::select(GLOBAL, []).columns(["nb_cfg"]).into()]
}

/// What the last operation read.
fn counted(results: &[OpResult]) -> Option<i64> {
    match results.last()?.rows.first()?.get("nb_cfg")? {
        Value::Atom(Atom::Integer(number)) => Some(*number),
        _ => None,
    }
}

/// The row was made meanwhile, by a write of ours whose answer never came.
fn is_duplicate(error: &TransactError) -> bool {
    matches!(error, TransactError::Rejected { error, .. } if error == "duplicate uuid")
}

fn words(error: &str, details: &str) -> String {
    if details.is_empty() { error.to_owned() } else { format!("{error} ({details})") }
}

fn tell_all(part: Vec<Waiting>, outcome: &Result<Option<i64>, Error>) {
    for waiting in part {
        waiting.tell(outcome.clone());
    }
}
