//! Carries steps out. One failure does not stop the rest, and nothing is retried here: the next pass looks again.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::stream::{self, StreamExt};
use groundcrew_api::deorbit::StageName;
use groundcrew_api::names::annotation;
use groundcrew_core::leader::Term;
use groundcrew_core::provider::{ErrorKind, Named, Presence, ProviderError};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, Preconditions};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::time::Instant;
use tracing::{info, warn};

use super::cloud::Clouds;
use super::objects::{KEEP_ADDRESS, KEEP_INGRESS_ADDRESS, Object, Workload, WorkloadKind};
use super::plan::{Kind, Step};

/// Writes at once. An API server takes hundreds; its webhooks may not.
const AT_ONCE: usize = 16;

/// For all objects in one pass, and for all things outside; the rest has its turn in the next, after a look at the clocks.
const LONGEST: Duration = Duration::from_secs(30);

/// The longest reason that is told, in characters.
const WORDS: usize = 1_000;

/// Why steps failed, by what they are about.
#[derive(Debug, Clone, Default)]
pub struct Failures(BTreeMap<(String, String), String>);

impl Failures {
    /// Why the step about this was not done.
    #[must_use]
    pub fn of(&self, kind: &str, key: &str) -> Option<&str> {
        self.0.get(&(kind.to_owned(), key.to_owned())).map(String::as_str)
    }
}

impl Failures {
    /// Those of a pass that tried only some of the steps.
    pub fn add(&mut self, later: Self) {
        self.0.extend(later.0);
    }
}

/// How the steps of a pass went.
#[derive(Debug, Default)]
pub struct Applied {
    /// Why some failed.
    pub failures: Failures,
    /// The same for people, by stage.
    pub notes: BTreeMap<StageName, String>,
    /// Things outside that were removed or ordered to go.
    pub removed: usize,
}

/// The only writer of objects and of clouds.
pub struct Hands<'a> {
    /// Kubernetes.
    pub client: &'a Client,
    /// Everything else.
    pub clouds: &'a Clouds,
    /// For one write.
    pub deadline: Duration,
    /// The right to write.
    pub term: &'a Term,
}

impl Hands<'_> {
    /// Objects side by side, things outside one after the other in the order of the plan; but what failed in the `last`
    /// pass comes after what was not tried then, so that what always fails holds up nothing else.
    pub async fn apply(&self, steps: Vec<Step>, last: &Failures) -> Applied {
        let (mut outside, mut inside): (Vec<_>, Vec<_>) =
            steps.into_iter().partition(|step| matches!(step, Step::Remove(_) | Step::Release { .. }));
        for steps in [&mut outside, &mut inside] {
            steps.sort_by_key(|step| last.0.contains_key(&step.subject()));
        }
        let mut applied = Applied::default();
        let until = Instant::now() + LONGEST;
        let done = stream::iter(inside).map(|step| async move {
            if Instant::now() >= until {
                return None;
            }
            let done = self.step(&step, last).await;
            Some((step, done))
        });
        for (step, done) in done.buffer_unordered(AT_ONCE).collect::<Vec<_>>().await.into_iter().flatten() {
            applied.note(&step, done);
        }
        let until = Instant::now() + LONGEST;
        for step in outside {
            let done = self.step(&step, last).await;
            applied.removed += usize::from(done.is_ok() && matches!(step, Step::Remove(_)));
            // Each further call would wait just as long, and the clocks are looked at between passes only.
            let silent = done.as_ref().is_err_and(|error| error.kind() == ErrorKind::Unavailable);
            applied.note(&step, done);
            if silent || Instant::now() >= until {
                break;
            }
        }
        applied
    }

    async fn step(&self, step: &Step, last: &Failures) -> Result<(), ProviderError> {
        match step {
            Step::Stop(workload) => self.stop(workload).await,
            Step::KeepAddress { kind, object } => {
                let note = if *kind == Kind::Ingress { KEEP_INGRESS_ADDRESS } else { KEEP_ADDRESS };
                let patch = json!({ "metadata": { "uid": object.uid, "annotations": { note: "true" } } });
                self.patch(&kind.resource(), object, &patch).await
            }
            Step::Delete { kind, object, force } => {
                // What did not go the last time may change all the time, as a Pod does of which its node tells.
                let as_seen = *kind != Kind::Pod && !last.0.contains_key(&step.subject());
                self.delete(*kind, object, &order(object, *force, as_seen)).await
            }
            Step::Release { kind, object, finalizers, named } => self.release(*kind, object, finalizers, named).await,
            Step::Remove(leftover) => self.clouds.remove(leftover, self.term).await,
        }
    }

    async fn stop(&self, workload: &Workload) -> Result<(), ProviderError> {
        self.patch(&workload_resource(workload.kind), &workload.object, &stopped(workload)).await
    }

    /// As it was before `stop`.
    pub async fn restore(&self, workload: &Workload) -> Result<(), ProviderError> {
        if let Some(patch) = restored(workload) {
            return self.patch(&workload_resource(workload.kind), &workload.object, &patch).await;
        }
        // Tried for ever, it would hold up the end of the abort, and come to nothing.
        warn!(workload = workload.object.key(), "not put back: {} is no number", annotation::BEFORE_DEORBIT);
        Ok(())
    }

    async fn patch(&self, resource: &ApiResource, object: &Object, patch: &Value) -> Result<(), ProviderError> {
        let api = self.api(resource, object);
        let write = async {
            match api.patch(&object.name, &PatchParams::default(), &Patch::Merge(patch)).await {
                Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
                written => written.map(drop).map_err(|error| ProviderError::from_kube("cannot change it", &error)),
            }
        };
        Ok(self.term.write(self.deadline, write).await?)
    }

    async fn delete(&self, kind: Kind, object: &Object, params: &DeleteParams) -> Result<(), ProviderError> {
        let api = self.api(&kind.resource(), object);
        let write = async {
            match api.delete(&object.name, params).await {
                Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
                written => written.map(drop).map_err(|error| ProviderError::from_kube("cannot delete it", &error)),
            }
        };
        Ok(self.term.write(self.deadline, write).await?)
    }

    async fn release(
        &self,
        kind: Kind,
        object: &Object,
        finalizers: &[String],
        named: &Named,
    ) -> Result<(), ProviderError> {
        match self.clouds.presence(named).await? {
            Presence::Gone => {}
            Presence::There => return Err(kept("what it stands for is still there outside")),
            Presence::Unknown => return Err(kept("nobody can tell whether what it stands for is gone")),
        }
        if object.terminating.is_none() {
            return self.delete(kind, object, &order(object, false, false)).await;
        }
        let rest: Vec<_> = object.finalizers.iter().filter(|name| !finalizers.contains(name)).collect();
        let patch = json!({
            "metadata": { "uid": object.uid, "resourceVersion": object.version, "finalizers": rest }
        });
        self.patch(&kind.resource(), object, &patch).await
    }

    fn api(&self, resource: &ApiResource, object: &Object) -> Api<DynamicObject> {
        if object.namespace.is_empty() {
            Api::all_with(self.client.clone(), resource)
        } else {
            Api::namespaced_with(self.client.clone(), &object.namespace, resource)
        }
    }
}

fn kept(why: &str) -> ProviderError {
    ProviderError::new(ErrorKind::Conflict, why)
}

/// This very object: a namesake that was made since is looked at first. As it was seen if that can be: somebody may have asked
/// to keep it during a long look.
fn order(object: &Object, force: bool, as_seen: bool) -> DeleteParams {
    let mut params = DeleteParams::background();
    let resource_version = as_seen.then(|| object.version.clone());
    params.preconditions = Some(Preconditions { uid: Some(object.uid.clone()), resource_version });
    params.grace_period_seconds = force.then_some(0);
    params
}

fn workload_resource(kind: WorkloadKind) -> ApiResource {
    match kind {
        WorkloadKind::Deployment => ApiResource::erase::<Deployment>(&()),
        WorkloadKind::StatefulSet => ApiResource::erase::<StatefulSet>(&()),
        WorkloadKind::ReplicaSet => ApiResource::erase::<ReplicaSet>(&()),
        WorkloadKind::CronJob => ApiResource::erase::<CronJob>(&()),
        WorkloadKind::Job => ApiResource::erase::<Job>(&()),
    }
}

/// The note and the change are one write: there is no moment in which one is there without the other. A note of an earlier
/// run says nothing about what wants pods now.
fn stopped(workload: &Workload) -> Value {
    json!({
        "metadata": {
            "uid": workload.object.uid,
            "resourceVersion": workload.object.version,
            "annotations": { annotation::BEFORE_DEORBIT: workload.wants.to_string() },
        },
        "spec": wanting(workload.kind, 0),
    })
}

/// `None` if nobody can tell how it was. What somebody has started again meanwhile is as they want it, and only loses the
/// note.
fn restored(workload: &Workload) -> Option<Value> {
    let mut patch = json!({
        "metadata": {
            "uid": workload.object.uid,
            "resourceVersion": workload.object.version,
            "annotations": { annotation::BEFORE_DEORBIT: null },
        },
    });
    if workload.wants == 0 {
        let before = workload.before.as_deref()?.parse::<i32>().ok().filter(|wants| *wants >= 0)?;
        patch["spec"] = wanting(workload.kind, before);
    }
    Some(patch)
}

fn wanting(kind: WorkloadKind, wants: i32) -> Value {
    match kind {
        WorkloadKind::CronJob | WorkloadKind::Job => json!({ "suspend": wants == 0 }),
        _ => json!({ "replicas": wants }),
    }
}

impl Applied {
    fn note(&mut self, step: &Step, done: Result<(), ProviderError>) {
        match done {
            Ok(()) => info!(%step, "done"),
            Err(error) => {
                warn!(%step, %error, "not done; looking again");
                let why = clipped(error.to_string());
                self.notes.entry(step.stage()).or_insert_with(|| format!("{step}: {why}"));
                self.failures.0.insert(step.subject(), why);
            }
        }
    }
}

/// A status has room for the words of a hundred webhooks, and not for the essays of some.
fn clipped(mut why: String) -> String {
    if let Some((end, _)) = why.char_indices().nth(WORDS) {
        why.truncate(end);
        why.push_str(" ...");
    }
    why
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_essay_of_a_webhook_is_cut() {
        assert_eq!(clipped("no".into()), "no");
        let cut = clipped("\u{fc}".repeat(100_000));
        assert!(cut.chars().count() == WORDS + 4 && cut.ends_with("\u{fc} ..."), "{}", cut.len());
    }

    fn workload(wants: i32, before: &str) -> Workload {
        Workload {
            kind: WorkloadKind::StatefulSet,
            object: Object::default(),
            wants,
            before: Some(before.into()),
            claims: Vec::new(),
            templates: Vec::new(),
        }
    }

    #[test]
    fn only_the_object_that_was_seen_is_deleted_and_as_it_was_seen_if_that_can_be() {
        let object = Object { uid: "uid".into(), version: "7".into(), ..Object::default() };
        for (as_seen, version) in [(true, Some("7")), (false, None)] {
            let known = order(&object, false, as_seen).preconditions.unwrap();
            assert_eq!((known.uid.as_deref(), known.resource_version.as_deref()), (Some("uid"), version));
        }
        assert_eq!(order(&object, true, false).grace_period_seconds, Some(0));
        assert_eq!(order(&object, false, false).grace_period_seconds, None);
    }

    #[test]
    fn what_is_stopped_again_is_noted_as_it_was_the_last_time() {
        let patch = stopped(&workload(5, "3"));
        assert_eq!(patch["metadata"]["annotations"][annotation::BEFORE_DEORBIT], "5");
        assert_eq!(patch["spec"]["replicas"], 0);
    }

    #[test]
    fn an_abort_brings_back_what_is_stopped_and_changes_nothing_that_somebody_started_again() {
        assert_eq!(restored(&workload(0, "3")).unwrap()["spec"], json!({ "replicas": 3 }));
        for before in ["3", "many"] {
            let patch = restored(&workload(5, before)).unwrap();
            assert_eq!(patch.get("spec"), None);
            assert!(patch["metadata"]["annotations"][annotation::BEFORE_DEORBIT].is_null());
        }
    }

    #[test]
    fn a_note_that_nobody_can_read_holds_up_no_abort() {
        for before in ["", "many", "-1", "99999999999"] {
            assert_eq!(restored(&workload(0, before)), None, "{before}");
        }
    }
}
