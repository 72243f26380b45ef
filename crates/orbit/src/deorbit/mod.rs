//! Leaves nothing behind when a cluster goes, and proves it.
//!
//! ```text
//!  the cluster --observe--> targets --+                       +--> freeze, stop, delete --> the cluster
//!                                     +--> plan --> apply ----+
//!  the clouds ---look-----> judge ----+      ^                +--> remove ----------------> the clouds
//!                                            |
//!  Deorbit.status <--> stage ----------------+--> report --> Deorbit.status, a ConfigMap
//! ```
//!
//! [`targets`], [`judge`], [`stage`], [`preflight`], [`plan`] and [`report`] are pure; `apply` and [`freeze`] are the only
//! writers. Every pass begins anew with what is there: whatever must survive a restart is in the status.

pub mod apply;
mod args;
pub mod cli;
pub mod cloud;
pub mod freeze;
pub mod judge;
mod metrics;
pub mod objects;
pub mod observe;
pub mod plan;
pub mod preflight;
pub mod report;
pub mod routes;
pub mod run;
pub mod stage;
pub mod targets;
#[cfg(test)]
mod tests;
pub mod unmarked;

use std::collections::BTreeMap;
use std::time::Duration;

use groundcrew_api::deorbit::{Deorbit, Phase};
use groundcrew_core::diff::Diff;
use groundcrew_core::events::Severity;
use groundcrew_core::leader::{Role, Term};
use groundcrew_core::metrics::Register;
use groundcrew_core::provider::{ErrorKind, ProviderError};
use groundcrew_core::runtime::{Runtime, StartError};
use groundcrew_core::watch::follow;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::{ListParams, PartialObjectMeta};
use kube::{Api, ResourceExt};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tracing::{info, warn};

pub use args::Args;

use apply::Applied;
use cloud::Clouds;
use metrics::Metrics;
use run::{Next, Runner};

use crate::wake::Wake;

const FIRST_LOOK: &str = "a first look at the Deorbits";

const DEORBITS: &str = "the list of Deorbits";

/// While somebody else has to do something first. What is asked for anew is looked at at once.
const IDLE: Duration = Duration::from_secs(5);

/// One look at a large cluster is work for the API server: it gets at least as many times its length to rest.
const REST: u32 = 2;

const LIST_DEADLINE: Duration = Duration::from_secs(30);

struct Controller {
    runtime: Runtime,
    runner: Runner,
    metrics: Metrics,
    interval: Duration,
    /// What was told last, by uid.
    told: BTreeMap<String, Phase>,
    /// What a dry run showed last, by name.
    shown: BTreeMap<String, Diff>,
}

/// Describes the metrics of the controller.
pub fn describe(register: &dyn Register) -> prometheus::Result<()> {
    Metrics::new(register).map(drop)
}

/// Starts the controller on this runtime. Returns at once; what is still missing is told by `/readyz`.
#[allow(clippy::unused_async, reason = "the signature that every controller of the binary has")]
pub async fn start(runtime: &Runtime, args: Args, clouds: Clouds) -> Result<(), StartError> {
    if clouds.is_empty() {
        return Err("no cloud to clean: give --ccm-cluster, --csi-cluster, --router, --ovn-nb or --cloudsigma".into());
    }
    let runner = Runner {
        client: runtime.client.clone(),
        clouds,
        deadline: runtime.write_deadline,
        leases: args.leases(),
        namespace: runtime.about.namespace.clone().unwrap_or_else(|| "default".into()),
        last: Applied::default(),
        blocked: None,
    };
    let metrics = Metrics::new(&runtime.registry)?;
    let mut controller = Controller {
        runtime: runtime.clone(),
        runner,
        metrics,
        interval: args.interval,
        told: BTreeMap::new(),
        shown: BTreeMap::new(),
    };
    let wake = Wake::new(asked);
    let woken = wake.notify.clone();
    let (ready, stop) = (runtime.ready.clone(), runtime.tasks.stop().clone());
    runtime.ready.wait_for(DEORBITS, "");
    runtime.tasks.spawn("deorbits", follow(Api::all(runtime.client.clone()), DEORBITS, wake, ready, stop));
    runtime.ready.wait_for(FIRST_LOOK, "");
    runtime.tasks.spawn("passes", async move {
        let (stop, role) = (controller.runtime.tasks.stop().clone(), controller.runtime.role.clone());
        Box::pin(stop.run_until_cancelled(controller.run(role, &woken))).await;
    });
    Ok(())
}

/// What a user asks for. What we write into its status is not that.
fn asked(deorbit: PartialObjectMeta<Deorbit>) -> (String, impl Clone + PartialEq + Send) {
    let meta = deorbit.metadata;
    (meta.name.unwrap_or_default(), (meta.uid, meta.generation, meta.deletion_timestamp.is_some()))
}

/// Not one that only plans, is going, or has come to its end.
fn wants_the_cluster(deorbit: &Deorbit) -> bool {
    let ended = deorbit.status.as_ref().is_some_and(|status| {
        status.let_go || (status.phase == Phase::Refused && status.observed_generation == deorbit.metadata.generation)
    });
    !deorbit.spec.dry_run && deorbit.metadata.deletion_timestamp.is_none() && !ended
}

/// What is left of clusters that are to go: nothing where no Deorbit is there, or not any more.
fn left(all: &[Deorbit]) -> i64 {
    let statuses = all.iter().filter(|one| !one.spec.dry_run).filter_map(|one| one.status.as_ref());
    statuses.map(|status| status.left.into()).max().unwrap_or(0)
}

impl Controller {
    async fn run(&mut self, mut role: watch::Receiver<Role>, woken: &Notify) {
        loop {
            let term = role.borrow_and_update().term().cloned();
            let began = Instant::now();
            let pause = match self.look(term.as_ref()).await {
                Ok(next) => {
                    self.metrics.passes.with_label_values(&["ok"]).inc();
                    self.runtime.ready.done(FIRST_LOOK);
                    let rest = (began.elapsed() * REST).min(IDLE);
                    match next {
                        Next::Now => rest.min(self.interval),
                        Next::Moving => rest,
                        Next::Soon => rest.max(self.interval),
                        Next::Later | Next::Never => IDLE,
                    }
                }
                Err(error) => {
                    self.metrics.passes.with_label_values(&["failed"]).inc();
                    warn!(%error, "not this time");
                    self.runtime.ready.explain(FIRST_LOOK, error.to_string());
                    self.interval.min(IDLE)
                }
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = woken.notified() => {}
                Ok(()) = role.changed() => {}
            }
        }
    }

    /// One pass over the Deorbit whose turn it is.
    async fn look(&mut self, term: Option<&Term>) -> Result<Next, ProviderError> {
        let api: Api<Deorbit> = Api::all(self.runtime.client.clone());
        let params = ListParams::default();
        let listed = tokio::time::timeout(LIST_DEADLINE, api.list(&params)).await;
        let listed =
            listed.map_err(|_| ProviderError::new(ErrorKind::Unavailable, "cannot list Deorbits: no answer"))?;
        let mut all = listed.map_err(|error| ProviderError::from_kube("cannot list Deorbits", &error))?.items;
        self.metrics.left.set(left(&all));
        self.told.retain(|uid, _| all.iter().any(|one| one.metadata.uid.as_ref() == Some(uid)));
        let mut soonest = Next::Never;
        // Whoever came first has its way with the cluster; plans may be made at any time.
        all.sort_by_key(|one| (one.spec.dry_run, one.creation_timestamp(), one.name_any()));
        let mut first: Option<String> = None;
        let mut failed = None;
        for deorbit in &all {
            if self.runtime.dry_run {
                failed = failed.or(self.preview(deorbit).await.err());
                soonest = soonest.min(Next::Soon);
                continue;
            }
            if wants_the_cluster(deorbit) {
                if let (Some(first), Some(term)) = (&first, term) {
                    failed = failed.or(self.runner.wait(deorbit, first, term).await.err());
                    continue;
                }
                first = Some(deorbit.name_any());
            }
            // One that fails does not hold up the others.
            let next = match self.runner.pass(deorbit, term).await {
                Ok(next) => next,
                Err(error) => {
                    failed.get_or_insert(error);
                    continue;
                }
            };
            self.metrics.removed.inc_by(self.runner.last.removed.try_into().unwrap_or(0));
            self.runner.last.removed = 0;
            if !deorbit.spec.dry_run && term.is_some() {
                self.tell(deorbit);
            }
            soonest = soonest.min(next);
        }
        if let Some(error) = failed {
            return Err(error);
        }
        Ok(soonest)
    }

    /// Shows what would become of the cluster, and again when that is something else.
    async fn preview(&mut self, deorbit: &Deorbit) -> Result<(), ProviderError> {
        let (name, spec) = (deorbit.name_any(), &deorbit.spec);
        if !spec.dry_run && !wants_the_cluster(deorbit) {
            return Ok(());
        }
        let preview = Box::pin(self.runner.preview(spec, spec.dry_run)).await;
        let preview = preview.map_err(|error| ProviderError::new(ErrorKind::Unavailable, error.to_string()))?;
        let diff = Diff::of(format!("Deorbit {name}"), cli::plan_diff(&preview.plan, &preview.refusals));
        if self.shown.get(&name) != Some(&diff) {
            self.runtime.show_plan(diff.clone());
            self.shown.insert(name, diff);
        }
        Ok(())
    }

    /// What the last pass found, once for each phase.
    fn tell(&mut self, deorbit: &Deorbit) {
        let Some(status) = &deorbit.status else { return };
        if self.told.insert(deorbit.uid().unwrap_or_default(), status.phase) == Some(status.phase) {
            return;
        }
        let (severity, reason) = match status.phase {
            Phase::Pending | Phase::Planned => return,
            Phase::Running => (Severity::Normal, "DeorbitStarted"),
            Phase::Clean => (Severity::Normal, "DeorbitClean"),
            Phase::Refused => (Severity::Warning, "DeorbitRefused"),
            Phase::Leftovers => (Severity::Warning, "DeorbitLeftovers"),
        };
        info!(deorbit = deorbit.name_any(), message = status.message, "{reason}");
        let about = ObjectReference {
            api_version: Some("groundcrew.dev/v1alpha1".into()),
            kind: Some("Deorbit".into()),
            name: Some(deorbit.name_any()),
            uid: deorbit.uid(),
            ..ObjectReference::default()
        };
        self.runtime.events.tell(about, severity, reason, status.message.clone());
    }
}
