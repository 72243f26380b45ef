//! One pass over one `Deorbit`: look, decide, write down, act. The status is written before anything is deleted, so that
//! whoever comes after a crash knows when it began, what must stay, and that it cannot be aborted any more.

use std::collections::BTreeSet;
use std::time::Duration;

use groundcrew_api::deorbit::{
    Deorbit, DeorbitSpec, DeorbitStatus, OnBudgetEnd, Phase, PlanLine, Policy, ReportLine, StageName, StageState,
    UnmarkedThing,
};
use groundcrew_api::names::finalizer;
use groundcrew_core::leader::Term;
use groundcrew_core::provider::{ErrorKind, LeftoverClass, ProviderError};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tracing::{info, warn};

use super::apply::{Applied, Failures, Hands};
use super::cloud::{Clouds, Sight};
use super::freeze;
use super::judge::Evidence;
use super::observe::{Cluster, Leases, Life, ObserveError, observe, workloads};
use super::plan::{Step, View};
use super::preflight::refusals;
use super::report::Report;
use super::stage::{self, Limits, advance, have_ended, is_open};
use super::targets::{Served, Targets, targets};
use super::unmarked;

/// Lines that a status has room for.
const SHOWN: usize = 100;
/// A `ConfigMap` takes a little more.
const LARGEST: usize = 900_000;
/// For what is noted in a status: etcd takes 1.5 MiB, and the report and the plan have their part of it.
const NOTED: usize = 1_200_000;

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
    /// Whether the block was put there and holds.
    pub blocked: bool,
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

/// How it comes to its end.
struct Ending {
    /// Something was left before, and is looked at again.
    held: bool,
    /// The time is up.
    over: bool,
    /// What may not last.
    caution: &'static str,
}

/// When to look again, the earliest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Next {
    /// A stage has begun, and may be done with already.
    Now,
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
            self.end(deorbit, term).await?;
            return Ok(Next::Never);
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
        let began = status.started_at.get_or_insert(Time(now)).clone();
        status.phase = Phase::Running;
        let stages_before = status.stages.len();
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
        Ok(if status.stages.len() > stages_before { Next::Now } else { Next::Soon })
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

    /// Not even the cluster could be looked at. Nothing is decided, but time passes.
    async fn blind(
        &self,
        deorbit: &Deorbit,
        mut status: DeorbitStatus,
        limits: &Limits,
        (error, sight): (&ObserveError, &Sight),
        term: &Term,
    ) -> Result<Next, ProviderError> {
        if status.stages.is_empty() && error.is_denied() {
            return self.refuse(deorbit, error.to_string(), term).await;
        }
        let (why, now) = (error.to_string(), Timestamp::now());
        // Also before its first look a run has only as long as it has.
        let began = (!deorbit.spec.dry_run).then(|| status.started_at.get_or_insert(Time(now)).clone());
        if !began.is_some_and(|began| stage::is_over(&began, limits.total(), now)) {
            status.message = why;
            self.write(deorbit, &status, term).await?;
            return Ok(Next::Soon);
        }
        let held = status.phase == Phase::Leftovers;
        let ending = Ending { held, over: true, caution: "" };
        self.finish(deorbit, status, Report::blind(&why, sight), ending, term).await
    }

    /// Puts the block there, and sees whether it holds.
    async fn freeze(&mut self, deorbit: &Deorbit, term: &Term) -> bool {
        let protected = &deorbit.spec.protect.namespaces;
        let frozen = async {
            // Once in a life, and again whenever it does not hold; nobody is believed who says that it is there already.
            if !self.blocked {
                freeze::block(&self.client, protected, self.deadline, term).await?;
            }
            freeze::is_blocked(&self.client, self.deadline).await
        };
        let frozen: Result<bool, ProviderError> = frozen.await;
        self.blocked = frozen.as_ref().is_ok_and(|frozen| *frozen);
        frozen.unwrap_or_else(|error| {
            warn!(%error, "not frozen");
            self.last.notes.insert(StageName::Freeze, error.to_string());
            false
        })
    }

    async fn finish(
        &self,
        deorbit: &Deorbit,
        mut status: DeorbitStatus,
        report: Report,
        Ending { held, over, caution }: Ending,
        term: &Term,
    ) -> Result<Next, ProviderError> {
        let left = report.left();
        let clean = left == 0;
        let place = match self.keep(deorbit, &report, term).await {
            Ok(place) => {
                status.report_config_map.clone_from(&place);
                format!("the report is in ConfigMap {place}")
            }
            Err(error) if error.kind() == ErrorKind::Unavailable && !over => return Err(error),
            // An end that is told here is better than none.
            Err(error) => {
                status.report_config_map.clear();
                format!("the report is in this status only ({error})")
            }
        };
        status.left = u32::try_from(left).unwrap_or(u32::MAX);
        status.phase = if clean { Phase::Clean } else { Phase::Leftovers };
        status.let_go = clean || deorbit.spec.on_budget_end == OnBudgetEnd::Proceed;
        status.stage = String::new();
        status.message = match (clean, status.let_go) {
            (true, _) => format!("nothing is left, neither in Kubernetes nor in the cloud; {place}{caution}"),
            (false, true) => format!("{left} things are left, and the cluster may go all the same; {place}"),
            (false, false) => {
                format!("{left} things are left; {place}. It ends as clean as soon as somebody has removed them")
            }
        };
        status.report = report.lines.into_iter().take(SHOWN).collect();
        if !held || clean {
            status.ended_at = Some(Time(Timestamp::now()));
        }
        self.write(deorbit, &status, term).await?;
        Ok(if status.let_go { Next::Never } else { Next::Later })
    }

    /// The whole report, where it outlives the object.
    async fn keep(&self, deorbit: &Deorbit, report: &Report, term: &Term) -> Result<String, ProviderError> {
        let name = format!("deorbit-{}-report", deorbit.name_any());
        let mut lines = Vec::new();
        let mut size = 0;
        for line in &report.lines {
            let line = serde_json::to_value(line).unwrap_or_default();
            size += line.to_string().len() + 1;
            if size > LARGEST {
                break;
            }
            lines.push(line);
        }
        let document = json!({ "left": report.left(), "cut": report.lines.len() - lines.len(), "things": lines });
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name },
            "data": { "report.json": document.to_string() },
        });
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
        let params = PatchParams::apply("groundcrew-deorbit").force();
        let write = async {
            let written = maps.patch(&name, &params, &Patch::Apply(&map)).await;
            written.map_err(|error| ProviderError::from_kube("cannot write the report", &error))
        };
        term.write(self.deadline, write).await?;
        Ok(format!("{}/{name}", self.namespace))
    }

    /// From now on the object does not go before the block is lifted.
    async fn hold_on(&self, deorbit: &Deorbit, term: &Term) -> Result<(), ProviderError> {
        let mut finalizers = deorbit.metadata.finalizers.clone().unwrap_or_default();
        if finalizers.iter().any(|name| name == finalizer::DEORBIT) {
            return Ok(());
        }
        finalizers.push(finalizer::DEORBIT.into());
        self.set_finalizers(deorbit, &finalizers, term).await
    }

    async fn set_finalizers(&self, deorbit: &Deorbit, names: &[String], term: &Term) -> Result<(), ProviderError> {
        let api: Api<Deorbit> = Api::all(self.client.clone());
        let patch = json!({ "metadata": {
            "uid": deorbit.metadata.uid, "resourceVersion": deorbit.metadata.resource_version, "finalizers": names,
        }});
        let name = deorbit.name_any();
        let write = async {
            match api.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await {
                Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
                written => written.map(drop).map_err(|error| ProviderError::from_kube("cannot change Deorbit", &error)),
            }
        };
        Ok(term.write(self.deadline, write).await?)
    }

    /// The object is being deleted: an abort, if nothing was deleted yet; otherwise it stops where it is. Then what was
    /// stopped stays stopped, as it would make new claims.
    async fn end(&mut self, deorbit: &Deorbit, term: &Term) -> Result<(), ProviderError> {
        let finalizers = deorbit.metadata.finalizers.clone().unwrap_or_default();
        if !finalizers.iter().any(|name| name == finalizer::DEORBIT) {
            return Ok(());
        }
        let status = deorbit.status.clone().unwrap_or_default();
        // What is blocked and stopped may be so for another by now, who puts it back or leaves it so.
        if !self.is_taken_over(deorbit).await? {
            if status.irreversible_at.is_none() {
                self.put_back(term).await?;
            } else {
                self.blocked = false;
                freeze::unblock(&self.client, self.deadline, term).await?;
            }
        }
        let rest: Vec<_> = finalizers.into_iter().filter(|name| name != finalizer::DEORBIT).collect();
        self.set_finalizers(deorbit, &rest, term).await?;
        info!(deorbit = deorbit.name_any(), aborted = status.irreversible_at.is_none(), "ended by its deletion");
        Ok(())
    }

    /// Whether another Deorbit has begun with the cluster meanwhile.
    async fn is_taken_over(&self, deorbit: &Deorbit) -> Result<bool, ProviderError> {
        let api: Api<Deorbit> = Api::all(self.client.clone());
        let params = ListParams::default();
        let listed = tokio::time::timeout(self.deadline, api.list(&params)).await;
        let listed =
            listed.map_err(|_| ProviderError::new(ErrorKind::Unavailable, "cannot list Deorbits: no answer"))?;
        let all = listed.map_err(|error| ProviderError::from_kube("cannot list Deorbits", &error))?.items;
        Ok(all.iter().any(|other| takes_over(other, deorbit)))
    }

    /// Lifts the block, and brings back what was stopped.
    async fn put_back(&mut self, term: &Term) -> Result<(), ProviderError> {
        self.blocked = false;
        freeze::unblock(&self.client, self.deadline, term).await?;
        let workloads = workloads(&self.client)
            .await
            .map_err(|error| ProviderError::new(ErrorKind::Unavailable, error.to_string()))?;
        let hands = Hands { client: &self.client, clouds: &self.clouds, deadline: self.deadline, term };
        let mut failed = None;
        for workload in workloads.iter().filter(|workload| workload.before.is_some()) {
            if let Err(error) = hands.restore(workload).await {
                warn!(workload = workload.object.key(), %error, "not put back");
                failed.get_or_insert(error);
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Only what changed, and only over what was read: a pass that is older than another's loses. So does one whose Deorbit
    /// was changed or deleted during a long look, and does nothing: it may be about to delete what is to stay now.
    async fn write(&self, deorbit: &Deorbit, status: &DeorbitStatus, term: &Term) -> Result<(), ProviderError> {
        let api: Api<Deorbit> = Api::all(self.client.clone());
        let name = deorbit.name_any();
        // The finalizer may have moved the version since.
        let told = |error: kube::Error| ProviderError::from_kube("cannot write the status of Deorbit", &error);
        let write = async {
            let mut now = api.get(&name).await.map_err(told)?;
            if !is_as_read(&now, deorbit) {
                let message = format!("Deorbit {name} was changed by another");
                return Err(ProviderError::new(ErrorKind::Conflict, message));
            }
            if now.status.as_ref() == Some(status) {
                return Ok(());
            }
            now.status = Some(status.clone());
            api.replace_status(&name, &PostParams::default(), &now).await.map(drop).map_err(told)
        };
        Ok(term.write(self.deadline, write).await?)
    }
}

/// Whether a Deorbit is still the one that a pass has gone by.
fn is_as_read(now: &Deorbit, read: &Deorbit) -> bool {
    let ends = |one: &Deorbit| one.metadata.deletion_timestamp.is_some();
    let asks = |one: &Deorbit| (one.metadata.uid.clone(), one.metadata.generation, ends(one));
    asks(now) == asks(read) && now.status == read.status
}

/// Whether a Deorbit has begun, and has not ended, with the cluster that this one leaves.
fn takes_over(other: &Deorbit, from: &Deorbit) -> bool {
    let has_begun = other.finalizers().iter().any(|name| name == finalizer::DEORBIT);
    other.metadata.uid != from.metadata.uid && has_begun && super::wants_the_cluster(other)
}

/// What the clouds showed when it began and nobody looks for now. Started again with fewer flags, a run sees less, which is
/// not to be called clean.
fn out_of_sight(plan: &[PlanLine], known: &BTreeSet<&str>) -> Vec<String> {
    let outside = plan.iter().filter(|line| matches!(line.stage, StageName::Cloud | StageName::Routes));
    // Kinds of Kubernetes begin with a capital, and what carries no mark is asked for one by one.
    let of_clouds = |kind: &&str| kind.starts_with(char::is_lowercase) && !kind.starts_with("unmarked-");
    let kinds: BTreeSet<_> = outside.map(|line| line.kind.as_str()).filter(of_clouds).collect();
    let lost = kinds.into_iter().filter(|kind| !known.contains(kind));
    lost.map(|kind| format!("nobody looks for {kind} any more: start it with the flags that it began with")).collect()
}

/// Why what must be remembered cannot be written down. Begun without it, a run could write no status any more, and not even
/// end.
fn too_much(status: &DeorbitStatus) -> Option<String> {
    let size = serde_json::to_vec(status).map_or(0, |text| text.len());
    let DeorbitStatus { kept_volumes, unmarked, .. } = status;
    let (kept, unmarked) = (kept_volumes.len(), unmarked.len());
    (size > NOTED).then(|| {
        format!("{kept} volumes to be kept and {unmarked} without a mark are more than a Deorbit has room to note")
    })
}

/// A route carries no mark, and goes without an object: who manages routes does not know that it was to go.
fn caution(spec: &DeorbitSpec, status: &DeorbitStatus, cluster: &Cluster) -> &'static str {
    let removed = spec.policies.routes == Policy::Delete && !status.routes.is_empty();
    if removed && cluster.balancer_controller == Some(Life::Alive) {
        ". Routes were removed: a cloud controller manager that manages them, and it is alive, makes them again for Nodes that are there"
    } else {
        ""
    }
}

/// What a plan noted, perhaps long ago and with other policies, is nothing that a run goes by: the Node of a route may be
/// another cluster's by now.
fn forget(status: &mut DeorbitStatus) {
    status.kept_volumes.clear();
    status.kept_addresses.clear();
    status.unmarked.clear();
    status.routes.clear();
}

/// What somebody wants to keep is noted while the object that says so is there.
fn remember(status: &mut DeorbitStatus, targets: &Targets<'_>, sight: &Sight) {
    note(&mut status.kept_volumes, targets.kept_volumes.clone());
    note(&mut status.kept_addresses, targets.kept_addresses.clone());
    let routes = sight.items.iter().filter(|leftover| leftover.kind.class == LeftoverClass::Route);
    note(&mut status.routes, routes.map(|leftover| leftover.id.clone()).collect());
}

fn note<T: Ord + Clone>(known: &mut Vec<T>, more: Vec<T>) {
    let mut seen: BTreeSet<_> = known.iter().cloned().collect();
    known.extend(more.into_iter().filter(|one| seen.insert(one.clone())));
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

#[cfg(test)]
mod tests {
    use groundcrew_api::deorbit::KeptVolume;

    use super::*;

    fn deorbit(uid: &str, phase: Phase) -> Deorbit {
        let mut deorbit = Deorbit::new(uid, DeorbitSpec::default());
        deorbit.metadata.uid = Some(uid.into());
        deorbit.metadata.finalizers = Some(vec![finalizer::DEORBIT.into()]);
        deorbit.status = Some(DeorbitStatus { phase, let_go: phase == Phase::Clean, ..DeorbitStatus::default() });
        deorbit
    }

    #[test]
    fn only_one_that_has_begun_and_not_ended_takes_the_cluster_over() {
        let refused = deorbit("refused", Phase::Refused);
        for (phase, expected) in
            [(Phase::Running, true), (Phase::Leftovers, true), (Phase::Clean, false), (Phase::Refused, false)]
        {
            assert_eq!(takes_over(&deorbit("other", phase), &refused), expected, "{phase:?}");
        }
        assert!(!takes_over(&deorbit("refused", Phase::Running), &refused), "itself");
        let mut other = deorbit("other", Phase::Running);
        other.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
        assert!(!takes_over(&other, &refused), "it goes as well");
        let mut other = deorbit("other", Phase::Pending);
        other.metadata.finalizers = None;
        assert!(!takes_over(&other, &refused), "it has changed nothing yet");
    }

    #[test]
    fn a_pass_goes_for_nothing_when_somebody_has_asked_for_something_else_meanwhile() {
        let read = deorbit("one", Phase::Running);
        assert!(is_as_read(&read.clone(), &read));
        let changes: [fn(&mut Deorbit); 4] = [
            |now| now.metadata.uid = Some("another".into()),
            |now| now.metadata.generation = Some(2),
            |now| now.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH)),
            |now| now.status = None,
        ];
        for change in changes {
            let mut now = read.clone();
            change(&mut now);
            assert!(!is_as_read(&now, &read), "{now:?}");
        }
        let mut moved = read.clone();
        moved.metadata.resource_version = Some("2".into());
        assert!(is_as_read(&moved, &read), "the finalizer moves it");
    }

    #[test]
    fn what_was_there_at_the_beginning_and_nobody_looks_for_any_more_is_a_gap() {
        let line = |stage, kind: &str| PlanLine {
            stage,
            action: "delete".into(),
            kind: kind.into(),
            count: 1,
            names: Vec::new(),
        };
        let plan = [
            line(StageName::Claims, "PersistentVolumeClaim"),
            line(StageName::Cloud, "PersistentVolume"),
            line(StageName::Cloud, "unmarked-volume"),
            line(StageName::Cloud, "cinder-volume"),
            line(StageName::Routes, "router-route"),
        ];
        assert_eq!(out_of_sight(&plan, &BTreeSet::from(["cinder-volume", "router-route"])), [""; 0]);
        let lost = out_of_sight(&plan, &BTreeSet::from(["octavia-load-balancer", "router-route"]));
        assert!(lost.len() == 1 && lost[0].contains("cinder-volume"), "{lost:?}");
    }

    #[test]
    fn whoever_may_make_routes_again_is_named_only_if_some_were_removed_and_it_lives() {
        let mut spec = DeorbitSpec::default();
        spec.policies.routes = Policy::Delete;
        let removed = DeorbitStatus { routes: vec!["r 100.100.1.0/24 10.180.1.1".into()], ..DeorbitStatus::default() };
        let with = |life: Life| Cluster { balancer_controller: Some(life), ..Cluster::default() };
        assert!(caution(&spec, &removed, &with(Life::Alive)).contains("makes them again"));
        assert_eq!(caution(&spec, &DeorbitStatus::default(), &with(Life::Alive)), "");
        assert_eq!(caution(&spec, &removed, &with(Life::Unknown)), "");
        assert_eq!(caution(&DeorbitSpec::default(), &removed, &with(Life::Alive)), "");
    }

    #[test]
    fn what_has_no_room_in_a_status_is_told_before_it_begins() {
        let noted = |count: usize| {
            let why = "PersistentVolume pvc-0b7a8c1e-0000-4000-8000-000000000000 has the reclaim policy Retain";
            let one = |n: usize| KeptVolume { handle: format!("{n:036}"), why: why.into(), retained: true };
            too_much(&DeorbitStatus { kept_volumes: (0..count).map(one).collect(), ..DeorbitStatus::default() })
        };
        assert_eq!((noted(0), noted(1_000)), (None, None));
        assert!(noted(10_000).unwrap().starts_with("10000 volumes"));
    }

    #[test]
    fn a_run_remembers_nothing_of_the_plan_that_it_was_before() {
        let (handle, why) = ("1".to_owned(), "policies.volumes is keep".to_owned());
        let thing =
            UnmarkedThing { handle: "2".into(), kind: String::new(), name: String::new(), driver: String::new() };
        let mut planned = DeorbitStatus {
            kept_volumes: vec![KeptVolume { handle, why, retained: false }],
            kept_addresses: vec!["shop/web".into()],
            unmarked: vec![thing],
            routes: vec!["router 100.100.1.0/24 10.180.1.1".into()],
            ..DeorbitStatus::default()
        };
        forget(&mut planned);
        assert_eq!(planned, DeorbitStatus::default());
    }
}
