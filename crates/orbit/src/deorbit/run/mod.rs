//! One pass over one `Deorbit`: look, decide, write down, act. The status is written before anything is deleted, so that
//! whoever comes after a crash knows when it began, what must stay, and that it cannot be aborted any more.

mod abort;
mod ending;
mod notes;
mod record;

use std::time::Duration;

use groundcrew_api::deorbit::{
    Deorbit, DeorbitSpec, DeorbitStatus, Phase, PlanLine, ReportLine, StageName, StageState, UnmarkedThing,
};
use groundcrew_core::leader::Term;
use groundcrew_core::provider::ProviderError;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Client;
use tracing::warn;

use super::apply::{Applied, Failures, Hands};
use super::cloud::{Clouds, Sight};
use super::freeze;
use super::judge::Evidence;
use super::observe::{Cluster, Leases, ObserveError, observe};
use super::plan::{Step, View};
use super::preflight::refusals;
use super::report::Report;
use super::stage::{self, Limits, advance, have_ended, is_open};
use super::targets::{Served, targets};
use super::unmarked;
pub use abort::LATE;
use ending::{Ending, caution};
use notes::{forget, note, out_of_sight, remember, too_much};

/// Lines that a status has room for.
const SHOWN: usize = 100;

/// Everything that passes need. What must survive a restart is in the status instead.
pub struct Runner {
    /// Kubernetes.
    pub client: Client,
    /// Everything else.
    pub clouds: Clouds,
    /// For one write.
    pub deadline: Duration,
    /// Who else cleans up.
    pub leases: Leases,
    /// Where reports are kept.
    pub namespace: String,
    /// How the last steps went.
    pub last: Applied,
    /// The namespaces that the block leaves out, while it is there and holds.
    pub blocked: Option<Vec<String>>,
}

/// What a run would do that began now.
pub struct Preview {
    /// A line for each kind of thing.
    pub plan: Vec<PlanLine>,
    /// Each thing.
    pub things: Vec<ReportLine>,
    /// Why it would be refused, if it would.
    pub refusals: Vec<String>,
    /// What the cluster is confirmed by.
    pub uid: String,
}

/// When to look again, the earliest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Next {
    /// A stage has begun, and may be done with already.
    Now,
    /// Less is left than at the last look, and the rest may be about to go.
    Moving,
    /// Something is under way.
    Soon,
    /// Somebody has to do something first.
    Later,
    /// It has ended.
    Never,
}

impl Runner {
    /// Looks at everything at once.
    pub async fn look(&self) -> (Result<Cluster, ObserveError>, Sight) {
        tokio::join!(observe(&self.client, &self.leases), self.clouds.look())
    }

    /// Adds what objects name outside without a mark on it, as far as it is not surely gone, and notes it.
    pub async fn look_for(&self, cluster: &Cluster, sight: &mut Sight, noted: &mut Vec<UnmarkedThing>, is_new: bool) {
        note(noted, unmarked::find(cluster, &self.served(), sight, is_new));
        let due = unmarked::due(noted, cluster).into_iter().cloned().collect();
        let gone = self.clouds.look_for(due, sight).await;
        noted.retain(|thing| !gone.contains(thing));
    }

    fn served(&self) -> Served {
        self.clouds.served()
    }

    /// Looks, and tells what would become of everything. Nothing is written. With `confirmed` it is not asked for whose end
    /// that is.
    pub async fn preview(&self, spec: &DeorbitSpec, confirmed: bool) -> Result<Preview, ObserveError> {
        let (cluster, mut sight) = self.look().await;
        let cluster = cluster?;
        let chosen = targets(&cluster, spec, &self.served());
        let (volumes, addresses) = (chosen.kept_volumes.clone(), chosen.kept_addresses.clone());
        let confirm = if confirmed { cluster.uid.clone() } else { spec.confirm.clone() };
        let asked = DeorbitSpec { confirm, ..spec.clone() };
        let refusals = refusals(&asked, &cluster, &chosen, &sight, &self.clouds.kinds());
        self.look_for(&cluster, &mut sight, &mut Vec::new(), true).await;
        let evidence = Evidence::new(&cluster, spec, &volumes, &addresses, Timestamp::now());
        let view = View::new(&cluster, chosen, &sight, &evidence, false);
        let things = Report::new(&view, spec, &DeorbitStatus::default(), &Failures::default()).lines;
        Ok(Preview { plan: view.lines(), things, refusals, uid: cluster.uid.clone() })
    }

    /// One pass. Without a term nothing is written.
    pub async fn pass(&mut self, deorbit: &Deorbit, term: Option<&Term>) -> Result<Next, ProviderError> {
        let Some(term) = term else { return Ok(Next::Later) };
        if deorbit.metadata.deletion_timestamp.is_some() {
            return self.end_or_say(deorbit, term).await;
        }
        let status = deorbit.status.clone().unwrap_or_default();
        match status.phase {
            Phase::Clean => Ok(Next::Never),
            Phase::Leftovers if status.let_go => Ok(Next::Never),
            // What was refused once stays so until somebody asks for something else: nobody waits for it any more.
            Phase::Refused if status.observed_generation == deorbit.metadata.generation => Ok(Next::Never),
            _ => Box::pin(self.go_on(deorbit, status, term)).await,
        }
    }

    async fn go_on(
        &mut self,
        deorbit: &Deorbit,
        mut status: DeorbitStatus,
        term: &Term,
    ) -> Result<Next, ProviderError> {
        let now = Timestamp::now();
        let spec = &deorbit.spec;
        let is_new = status.stages.is_empty();
        if is_new {
            forget(&mut status);
        }
        let (limits, unreadable) = match Limits::read(&spec.budgets) {
            Ok(limits) => (limits, None),
            Err(why) if is_new => return self.refuse(deorbit, why, term).await,
            // It is under way, and ends by a clock in any case.
            Err(why) => (Limits::default(), Some(why)),
        };
        self.clouds.recall((!is_new).then_some(status.routes.as_slice()));
        let (cluster, mut sight) = self.look().await;
        if !is_new {
            sight.gaps.extend(out_of_sight(&status.plan, &self.clouds.names()));
        }
        let cluster = match cluster {
            Ok(cluster) => cluster,
            Err(error) => return self.blind(deorbit, status, &limits, (&error, &sight), term).await,
        };
        let targets = targets(&cluster, spec, &self.served());
        if is_new && !spec.dry_run {
            let refusals = refusals(spec, &cluster, &targets, &sight, &self.clouds.kinds());
            if !refusals.is_empty() {
                return self.refuse(deorbit, refusals.join("; "), term).await;
            }
        }
        if !is_new && !spec.dry_run && spec.confirm != cluster.uid {
            let why = if spec.confirm.is_empty() {
                "spec.confirm was taken away, so that it stops where it is: set it again to go on, or delete this object"
            } else {
                // A status that came here from another cluster, as by a backup.
                "spec.confirm is the uid of another cluster's kube-system namespace"
            };
            return self.stop(deorbit, status, why.to_owned(), term).await;
        }
        remember(&mut status, &targets, &sight);
        self.look_for(&cluster, &mut sight, &mut status.unmarked, is_new).await;
        if let Some(why) = too_much(&status).filter(|_| is_new && !spec.dry_run) {
            return self.refuse(deorbit, why, term).await;
        }
        let frozen = if is_open(&status.stages, StageName::Freeze) { self.freeze(deorbit, term).await } else { false };
        let (kept_volumes, kept_addresses) = (status.kept_volumes.clone(), status.kept_addresses.clone());
        let evidence = Evidence::new(&cluster, spec, &kept_volumes, &kept_addresses, now);
        let view = View::new(&cluster, targets, &sight, &evidence, frozen);
        if is_new {
            status.plan = view.lines();
        }
        if spec.dry_run {
            return self.planned(deorbit, &view, status, term).await;
        }
        let held = status.phase == Phase::Leftovers;
        let began = stage::begun(status.started_at.get_or_insert(Time(now)), now);
        status.phase = Phase::Running;
        let (stages_before, left_before) = (status.stages.len(), status.left);
        advance(&mut status.stages, &view.work(spec, &self.last.notes), &limits, &began, now);
        if status.irreversible_at.is_none() && status.stages.iter().any(|known| stage::deletes(known.name)) {
            status.irreversible_at = Some(Time(now));
        }
        describe(&mut status, &view, spec, &self.last.failures);
        if let Some(why) = unreadable {
            status.message = format!("{why}, so that the defaults hold; {}", status.message);
        }
        let failed = status
            .stages
            .iter()
            .find(|known| known.state == StageState::GivenUp && stage::must_succeed(known.name))
            .filter(|_| status.irreversible_at.is_none());
        if let Some(failed) = failed {
            let why = format!("{:?} did not succeed, and nothing was deleted: {}", failed.name, failed.message);
            return self.give_up(deorbit, status, why, term).await;
        }
        let hands = Hands { client: &self.client, clouds: &self.clouds, deadline: self.deadline, term };
        if have_ended(&status.stages) {
            let report = Report::new(&view, spec, &status, &self.last.failures);
            let mut steps = view.steps(spec, &status.stages, now);
            let over = stage::is_over(&began, limits.total(), now);
            let ending = Ending { held, over, caution: caution(spec, &status, &cluster) };
            let next = self.finish(deorbit, status, report, ending, term).await?;
            if next != Next::Never {
                // What somebody removes by hand lets its object go; nothing else is done any more.
                steps.retain(|step| matches!(step, Step::Release { .. }));
                self.last.failures.add(hands.apply(steps, &self.last.failures).await.failures);
            }
            return Ok(next);
        }
        self.hold_on(deorbit, term).await?;
        self.write(deorbit, &status, term).await?;
        self.last = hands.apply(view.steps(spec, &status.stages, now), &self.last.failures).await;
        Ok(if status.stages.len() > stages_before {
            Next::Now
        } else if status.left < left_before {
            Next::Moving
        } else {
            Next::Soon
        })
    }

    /// Refuses it with nothing done, until somebody asks for something else.
    async fn refuse(&self, deorbit: &Deorbit, why: String, term: &Term) -> Result<Next, ProviderError> {
        self.stop(deorbit, DeorbitStatus::default(), why, term).await
    }

    /// Nothing has been deleted: everything becomes as it was, and it is refused.
    async fn give_up(
        &mut self,
        deorbit: &Deorbit,
        status: DeorbitStatus,
        why: String,
        term: &Term,
    ) -> Result<Next, ProviderError> {
        match self.put_back(term).await {
            Ok(()) => {
                let why = format!("{why}. What was stopped runs again, and new objects may be made");
                self.refuse(deorbit, why, term).await
            }
            Err(error) => {
                let why = format!("{why}. Not everything could be put back: {error}. Delete this object to try again");
                self.stop(deorbit, status, why, term).await
            }
        }
    }

    /// Another has its way with the cluster first.
    pub async fn wait(&self, deorbit: &Deorbit, first: &str, term: &Term) -> Result<(), ProviderError> {
        let mut status = deorbit.status.clone().unwrap_or_default();
        status.message = format!("waits for Deorbit {first}");
        self.write(deorbit, &status, term).await
    }

    /// Ends it as refused, until somebody asks for something else.
    async fn stop(
        &self,
        deorbit: &Deorbit,
        mut status: DeorbitStatus,
        why: String,
        term: &Term,
    ) -> Result<Next, ProviderError> {
        (status.phase, status.message) = (Phase::Refused, why);
        status.observed_generation = deorbit.metadata.generation;
        self.write(deorbit, &status, term).await?;
        Ok(Next::Never)
    }

    /// A dry run, which is looked at again now and then, as a plan from yesterday is none.
    async fn planned(
        &self,
        deorbit: &Deorbit,
        view: &View<'_>,
        mut status: DeorbitStatus,
        term: &Term,
    ) -> Result<Next, ProviderError> {
        let report = Report::new(view, &deorbit.spec, &status, &Failures::default());
        let things: u32 = status.plan.iter().filter(|line| line.action != "keep").map(|line| line.count).sum();
        status.phase = Phase::Planned;
        status.left = things;
        status.message = match view.sight.gaps.first() {
            Some(gap) => format!("{things} things would be dealt with, and not everything could be seen: {gap}"),
            None => format!("{things} things would be dealt with"),
        };
        status.report = report.lines.into_iter().take(SHOWN).collect();
        self.write(deorbit, &status, term).await?;
        Ok(Next::Later)
    }

    /// Puts the block there, and sees whether it holds.
    async fn freeze(&mut self, deorbit: &Deorbit, term: &Term) -> bool {
        let protected = &deorbit.spec.protect.namespaces;
        let frozen = async {
            // Once in a life, and again whenever it does not hold or is to leave out others; nobody is believed who says
            // that it is there already.
            if self.blocked.as_ref() != Some(protected) {
                freeze::block(&self.client, protected, self.deadline, term).await?;
                return freeze::until_blocked(&self.client, self.deadline).await;
            }
            freeze::is_blocked(&self.client, self.deadline).await
        };
        let frozen: Result<bool, ProviderError> = frozen.await;
        self.blocked = frozen.as_ref().is_ok_and(|frozen| *frozen).then(|| protected.clone());
        frozen.unwrap_or_else(|error| {
            warn!(%error, "not frozen");
            self.last.notes.insert(StageName::Freeze, error.to_string());
            false
        })
    }
}

/// Where it is, in a line.
fn describe(status: &mut DeorbitStatus, view: &View<'_>, spec: &DeorbitSpec, failures: &Failures) {
    let running: Vec<_> = status.stages.iter().filter(|known| known.state == StageState::Running).collect();
    let names: Vec<_> = running.iter().map(|known| format!("{:?}", known.name)).collect();
    let parts: Vec<_> = running
        .iter()
        .map(|known| match known.message.as_str() {
            "" => format!("{:?}: {} of {} left", known.name, known.left, known.total),
            message => format!("{:?}: {} of {} left ({message})", known.name, known.left, known.total),
        })
        .collect();
    status.message = parts.join("; ");
    status.stage = names.join(", ");
    let report = Report::new(view, spec, status, failures);
    status.left = u32::try_from(report.left()).unwrap_or(u32::MAX);
}
