//! How much each stage has to do, and the steps of those that have begun. Pure: planned again after it was applied, there is
//! nothing left.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use groundcrew_api::deorbit::{DeorbitSpec, PlanLine, Policy, StageName, StageState, StageStatus};
use groundcrew_api::names::finalizer;
use groundcrew_core::key::ServiceKey;
use groundcrew_core::provider::{Leftover, LeftoverClass, Named};
use jiff::Timestamp;
use kube::api::ApiResource;

use super::cloud::Sight;
use super::judge::{Evidence, Verdict};
use super::objects::{Content, Object, Service, Workload, WorkloadKind};
use super::observe::{self, Cluster, Life};
use super::stage::{Work, is_open};
use super::targets::Targets;

/// How long after its due time a pod is deleted without waiting for its node, which may be gone.
const FORCE_AFTER: Duration = Duration::from_mins(1);

/// How many names of each kind a plan shows.
const SHOWN: usize = 5;

/// Kinds of objects that are deleted or let go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// `VolumeSnapshot`
    Snapshot,
    /// `Gateway`
    Gateway,
    /// `Ingress`
    Ingress,
    /// `Service`
    Service,
    /// `Pod`
    Pod,
    /// `PersistentVolumeClaim`
    Claim,
    /// `PersistentVolume`
    Volume,
    /// `VolumeAttachment`
    Attachment,
    /// `VolumeSnapshotContent`
    Content,
}

impl Kind {
    /// Its name in Kubernetes.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Snapshot => "VolumeSnapshot",
            Self::Gateway => "Gateway",
            Self::Ingress => "Ingress",
            Self::Service => "Service",
            Self::Pod => "Pod",
            Self::Claim => "PersistentVolumeClaim",
            Self::Volume => "PersistentVolume",
            Self::Attachment => "VolumeAttachment",
            Self::Content => "VolumeSnapshotContent",
        }
    }

    /// Where the API server has it.
    #[must_use]
    pub fn resource(self) -> ApiResource {
        match self {
            Self::Snapshot => observe::snapshot(),
            Self::Content => observe::content(),
            Self::Gateway => observe::gateway(),
            Self::Ingress => ApiResource::erase::<k8s_openapi::api::networking::v1::Ingress>(&()),
            Self::Service => ApiResource::erase::<k8s_openapi::api::core::v1::Service>(&()),
            Self::Pod => ApiResource::erase::<k8s_openapi::api::core::v1::Pod>(&()),
            Self::Claim => ApiResource::erase::<k8s_openapi::api::core::v1::PersistentVolumeClaim>(&()),
            Self::Volume => ApiResource::erase::<k8s_openapi::api::core::v1::PersistentVolume>(&()),
            Self::Attachment => ApiResource::erase::<k8s_openapi::api::storage::v1::VolumeAttachment>(&()),
        }
    }
}

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Scale it to zero, or suspend it, and note on it how it was.
    Stop(Workload),
    /// Note on a Service or an Ingress that its floating address stays.
    KeepAddress {
        /// Which of them.
        kind: Kind,
        /// Which.
        object: Object,
    },
    /// Delete this very object.
    Delete {
        /// Its kind.
        kind: Kind,
        /// Which.
        object: Object,
        /// Without waiting for its node.
        force: bool,
    },
    /// Take finalizers off if the thing outside is gone, because nobody is there to do it.
    Release {
        /// Its kind.
        kind: Kind,
        /// Which.
        object: Object,
        /// Those.
        finalizers: Vec<String>,
        /// What must be gone.
        named: Named,
    },
    /// Remove a thing outside.
    Remove(Leftover),
}

impl Step {
    /// Of which stage.
    #[must_use]
    pub fn stage(&self) -> StageName {
        match self {
            Self::Stop(_) => StageName::Quiesce,
            Self::KeepAddress { kind, .. } | Self::Delete { kind, .. } => match kind {
                Kind::Snapshot | Kind::Content => StageName::Snapshots,
                Kind::Gateway | Kind::Ingress => StageName::Gateways,
                Kind::Service => StageName::LoadBalancers,
                Kind::Pod => StageName::Pods,
                Kind::Claim => StageName::Claims,
                Kind::Volume | Kind::Attachment => StageName::Volumes,
            },
            Self::Remove(leftover) if is_route(leftover) => StageName::Routes,
            Self::Release { .. } | Self::Remove(_) => StageName::Cloud,
        }
    }

    /// What it is about, as a report names it.
    #[must_use]
    pub fn subject(&self) -> (String, String) {
        match self {
            Self::Stop(workload) => (format!("{:?}", workload.kind), workload.object.key()),
            Self::KeepAddress { kind, object }
            | Self::Delete { kind, object, .. }
            | Self::Release { kind, object, .. } => (kind.name().into(), object.key()),
            Self::Remove(leftover) => (leftover.kind.name.into(), leftover.id.clone()),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = match self {
            Self::Stop(_) => "stop",
            Self::KeepAddress { .. } => "keep the address of",
            Self::Delete { force: true, .. } => "force the deletion of",
            Self::Delete { .. } => "delete",
            Self::Release { .. } => "take finalizers off",
            Self::Remove(_) => "remove",
        };
        let (kind, key) = self.subject();
        write!(f, "{verb} {kind} {key}")
    }
}

/// Everything that one pass decides by.
pub struct View<'a> {
    /// What is in the cluster.
    pub cluster: &'a Cluster,
    /// What of it goes.
    pub targets: Targets<'a>,
    /// What the clouds show.
    pub sight: &'a Sight,
    /// What becomes of each of it, in the same order.
    pub verdicts: Vec<Verdict>,
    /// Whether nobody can make new things.
    pub frozen: bool,
}

impl<'a> View<'a> {
    /// Judges what was seen.
    #[must_use]
    pub fn new(
        cluster: &'a Cluster,
        targets: Targets<'a>,
        sight: &'a Sight,
        evidence: &Evidence<'_>,
        frozen: bool,
    ) -> Self {
        let verdicts = sight.items.iter().map(|leftover| evidence.judge(leftover)).collect();
        Self { cluster, targets, sight, verdicts, frozen }
    }

    /// What the clouds show, with what becomes of it.
    pub fn judged(&self) -> impl Iterator<Item = (&'a Leftover, &Verdict)> {
        self.sight.items.iter().zip(&self.verdicts)
    }

    fn removable(&self, routes: bool) -> impl Iterator<Item = &'a Leftover> {
        self.judged()
            .filter(move |(leftover, verdict)| is_route(leftover) == routes && **verdict == Verdict::Remove)
            .map(|(leftover, _)| leftover)
    }

    /// How much each stage has to do.
    #[must_use]
    pub fn work(&self, spec: &DeorbitSpec, notes: &BTreeMap<StageName, String>) -> BTreeMap<StageName, Work> {
        let Targets { workloads, snapshots, contents, gateways, ingresses, services, pods, .. } = &self.targets;
        let Targets { claims, volumes, attachments, .. } = &self.targets;
        let dead = |life: &Option<Life>, who: &str| match life {
            Some(Life::Dead(silent)) => Some(format!("{who} has not renewed its Lease for {} s", silent.as_secs())),
            _ => None,
        };
        // There is no waiting for the dead; but what nobody has ordered to go yet, nobody has been waited for.
        let ordered = |object: &Object| object.terminating.is_some();
        let no_balancers = dead(&self.cluster.balancer_controller, "the cloud controller manager")
            .filter(|_| services.iter().all(|service| service.claimed.is_none() && ordered(&service.object)));
        let no_volumes = dead(&self.cluster.volume_controller, "the volume driver");
        let no_snapshots = dead(&self.cluster.snapshot_controller, "the snapshot controller")
            .filter(|_| snapshots.iter().all(|one| ordered(one)) && contents.iter().all(|one| ordered(&one.object)));
        let awaited = self.judged().filter(|(leftover, verdict)| {
            !is_route(leftover) && matches!(verdict, Verdict::Remove | Verdict::Await(_))
        });
        let removable = self.removable(false).count();
        let gaps = self.sight.gaps.len();
        let stages = [
            (StageName::Freeze, usize::from(!self.frozen), None),
            (StageName::Quiesce, workloads.iter().filter(|workload| workload.wants > 0).count(), None),
            (StageName::Snapshots, snapshots.len() + contents.len(), no_snapshots),
            (StageName::Gateways, gateways.len() + ingresses.len(), None),
            (StageName::LoadBalancers, services.len(), no_balancers),
            (StageName::Pods, pods.len(), None),
            (StageName::Claims, claims.len(), None),
            (StageName::Volumes, volumes.len() + attachments.len(), no_volumes),
            (StageName::Verify, awaited.count() + gaps, None),
            (
                StageName::Cloud,
                removable + gaps + self.waiting().len() + self.retained().len(),
                self.brake(spec, false),
            ),
            (StageName::Routes, self.removable(true).count(), self.brake(spec, true)),
        ];
        let mut work: BTreeMap<_, _> = stages
            .into_iter()
            .map(|(stage, left, hopeless)| {
                (stage, Work { left, hopeless, message: notes.get(&stage).cloned().unwrap_or_default() })
            })
            .collect();
        for stage in [StageName::Verify, StageName::Cloud, StageName::Routes] {
            if let (Some(work), Some(gap)) = (work.get_mut(&stage), self.sight.gaps.first()) {
                work.message.clone_from(gap);
            }
        }
        work
    }

    /// What to do now.
    #[must_use]
    pub fn steps(&self, spec: &DeorbitSpec, stages: &[StageStatus], now: Timestamp) -> Vec<Step> {
        let mut steps = Vec::new();
        let open = |stage| is_open(stages, stage);
        let targets = &self.targets;
        if open(StageName::Quiesce) {
            let running = targets.workloads.iter().filter(|workload| workload.wants > 0);
            steps.extend(running.map(|workload| Step::Stop((*workload).clone())));
        }
        let delete = |kind: Kind, object: &Object| {
            let step = Step::Delete { kind, object: object.clone(), force: false };
            object.terminating.is_none().then_some(step)
        };
        // It must be noted on the object before that goes.
        let delete_or_keep = |kind: Kind, object: &Object, keeps_address: bool| match delete(kind, object) {
            Some(_) if spec.policies.floating_ips == Policy::Keep && !keeps_address => {
                Some(Step::KeepAddress { kind, object: object.clone() })
            }
            step => step,
        };
        if open(StageName::Snapshots) {
            steps.extend(targets.snapshots.iter().filter_map(|object| delete(Kind::Snapshot, object)));
            steps.extend(targets.contents.iter().filter_map(|content| delete(Kind::Content, &content.object)));
        }
        if open(StageName::Gateways) {
            steps.extend(targets.gateways.iter().filter_map(|object| delete(Kind::Gateway, object)));
            let ingresses = targets.ingresses.iter();
            steps.extend(ingresses.filter_map(|one| delete_or_keep(Kind::Ingress, &one.object, one.keeps_address)));
        }
        if open(StageName::LoadBalancers) {
            let services = targets.services.iter();
            steps.extend(services.filter_map(|one| delete_or_keep(Kind::Service, &one.object, one.keeps_address)));
        }
        if open(StageName::Pods) {
            for pod in &targets.pods {
                let force = pod.object.terminating.is_some_and(|due| {
                    Duration::try_from(now.duration_since(due)).is_ok_and(|late| late >= FORCE_AFTER)
                });
                if force || pod.object.terminating.is_none() {
                    steps.push(Step::Delete { kind: Kind::Pod, object: pod.object.clone(), force });
                }
            }
        }
        if open(StageName::Claims) {
            steps.extend(targets.claims.iter().filter_map(|claim| delete(Kind::Claim, &claim.object)));
        }
        if open(StageName::Cloud) {
            // Theirs is the time of their stage; what is left then, nobody does but us.
            let had_its_time = |step: &Step| {
                let stage = match step {
                    Step::Release { kind: Kind::Service, .. } => StageName::LoadBalancers,
                    Step::Release { kind: Kind::Snapshot | Kind::Content, .. } => StageName::Snapshots,
                    _ => StageName::Volumes,
                };
                stages.iter().any(|known| known.name == stage && known.state == StageState::GivenUp)
            };
            steps.extend(self.waiting().into_iter().filter(had_its_time));
            steps.extend(self.retained());
            self.remove(spec, false, &mut steps);
        }
        if open(StageName::Routes) {
            self.remove(spec, true, &mut steps);
        }
        steps
    }

    /// Nothing on half a list, and nothing past the brake.
    fn remove(&self, spec: &DeorbitSpec, routes: bool, steps: &mut Vec<Step>) {
        if self.sight.gaps.is_empty() && self.brake(spec, routes).is_none() {
            steps.extend(self.removable(routes).cloned().map(Step::Remove));
        }
    }

    /// Why nothing is removed by the cloud's API: too much would be.
    #[must_use]
    pub fn brake(&self, spec: &DeorbitSpec, routes: bool) -> Option<String> {
        let (removable, most) = (self.removable(routes).count(), spec.max_cloud_deletes);
        let too_many = usize::try_from(most).is_ok_and(|most| removable > most);
        too_many.then(|| format!("not removed: {removable} of them are left, more than maxCloudDeletes ({most})"))
    }

    /// Why something that may be removed is still there, if it was not even ordered to go.
    #[must_use]
    pub fn why_not(&self, spec: &DeorbitSpec, stages: &[StageStatus], leftover: &Leftover) -> Option<String> {
        let routes = is_route(leftover);
        let stage = if routes { StageName::Routes } else { StageName::Cloud };
        if stages.is_empty() {
            Some("to be removed by the cloud's API, if nobody else does it first".into())
        } else if !is_open(stages, stage) {
            Some(format!("not removed yet: {stage:?} has not begun"))
        } else if !self.sight.gaps.is_empty() {
            Some("not removed: not everything could be seen".into())
        } else {
            self.brake(spec, routes)
        }
    }

    /// Of volumes that are retained, the objects go when we have removed the volumes.
    fn retained(&self) -> Vec<Step> {
        let volumes = self.targets.retained.iter();
        let released = volumes.filter_map(|volume| {
            let named = Named::Volume { driver: volume.driver.clone(), handle: volume.handle.clone() };
            release(Kind::Volume, &volume.object, named)
        });
        released.collect()
    }

    /// Objects that wait for a controller, and may go if that had its time and what they stand for is gone.
    fn waiting(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        // Others serve Services, too, and use the same finalizer. Ours note that they do, and OpenStack's notes the id.
        for service in &self.targets.services {
            let Service { object, class, claimed, balancer, .. } = service;
            if claimed.is_none() && (class.is_some() || balancer.is_none()) {
                continue;
            }
            let key = ServiceKey::new(object.namespace.as_str(), object.name.as_str());
            let named = Named::LoadBalancer { class: claimed.clone(), service: key, id: balancer.clone() };
            steps.extend(release(Kind::Service, object, named));
        }
        let snapshots: BTreeMap<_, _> = self.targets.snapshots.iter().map(|one| (one.key(), *one)).collect();
        for Content { object, driver, handle, snapshot, retained } in &self.cluster.contents {
            let going = snapshots.get(snapshot);
            if *retained || object.keep || (going.is_none() && object.terminating.is_none()) {
                continue;
            }
            let named = Named::Snapshot { driver: driver.clone(), handle: handle.clone() };
            steps.extend(going.and_then(|snapshot| release(Kind::Snapshot, snapshot, named.clone())));
            steps.extend(release(Kind::Content, object, named));
        }
        let named: BTreeMap<_, _> = self
            .targets
            .volumes
            .iter()
            .chain(&self.targets.retained)
            .map(|volume| {
                let named = Named::Volume { driver: volume.driver.clone(), handle: volume.handle.clone() };
                (volume.object.name.as_str(), named)
            })
            .collect();
        for attachment in &self.targets.attachments {
            let named = named.get(attachment.volume.as_str()).cloned();
            steps.extend(named.and_then(|named| release(Kind::Attachment, &attachment.object, named)));
        }
        for volume in &self.targets.volumes {
            let named = named.get(volume.object.name.as_str()).cloned();
            steps.extend(named.and_then(|named| release(Kind::Volume, &volume.object, named)));
        }
        steps
    }

    /// The plan as people read it.
    #[must_use]
    pub fn lines(&self) -> Vec<PlanLine> {
        let mut lines = Vec::new();
        let targets = &self.targets;
        let mut line = |stage, action: &str, kind: &str, names: Vec<String>| {
            if !names.is_empty() {
                let count = u32::try_from(names.len()).unwrap_or(u32::MAX);
                let names = names.into_iter().take(SHOWN).collect();
                lines.push(PlanLine { stage, action: action.into(), kind: kind.into(), count, names });
            }
        };
        let keys = |objects: &[&Object]| objects.iter().map(|object| object.key()).collect();
        for kind in [
            WorkloadKind::Deployment,
            WorkloadKind::StatefulSet,
            WorkloadKind::ReplicaSet,
            WorkloadKind::CronJob,
            WorkloadKind::Job,
        ] {
            let running = targets.workloads.iter().filter(|one| one.kind == kind && one.wants > 0);
            let verb = if matches!(kind, WorkloadKind::CronJob | WorkloadKind::Job) { "suspend" } else { "scale to 0" };
            line(StageName::Quiesce, verb, &format!("{kind:?}"), running.map(|one| one.object.key()).collect());
        }
        line(StageName::Snapshots, "delete", Kind::Snapshot.name(), keys(&targets.snapshots));
        line(StageName::Gateways, "delete", Kind::Gateway.name(), keys(&targets.gateways));
        let ingresses = targets.ingresses.iter().map(|one| one.object.key());
        line(StageName::Gateways, "delete", Kind::Ingress.name(), ingresses.collect());
        let services = targets.services.iter().map(|one| one.object.key());
        line(StageName::LoadBalancers, "delete", Kind::Service.name(), services.collect());
        let pods = targets.pods.iter().map(|one| one.object.key());
        line(StageName::Pods, "delete", Kind::Pod.name(), pods.collect());
        let claims = targets.claims.iter().map(|one| one.object.key());
        line(StageName::Claims, "delete", Kind::Claim.name(), claims.collect());
        let volumes = targets.volumes.iter().map(|one| one.object.name.clone());
        line(StageName::Volumes, "wait for", Kind::Volume.name(), volumes.collect());
        let contents = targets.contents.iter().map(|one| one.object.name.clone());
        line(StageName::Snapshots, "delete", Kind::Content.name(), contents.collect());
        let retained = targets.retained.iter().map(|one| one.object.name.clone());
        line(StageName::Cloud, "delete", Kind::Volume.name(), retained.collect());
        for spared in [true, false] {
            let mut kinds: BTreeMap<&str, Vec<String>> = BTreeMap::new();
            for one in targets.spared.iter().filter(|one| one.wanted == spared) {
                kinds.entry(one.kind).or_default().push(one.key.clone());
            }
            for (kind, names) in kinds {
                line(StageName::Verify, if spared { "keep" } else { "leave" }, kind, names);
            }
        }
        let mut outside: BTreeMap<(StageName, &str, &str), Vec<String>> = BTreeMap::new();
        for (leftover, verdict) in self.judged() {
            let stage = if is_route(leftover) { StageName::Routes } else { StageName::Cloud };
            let action = match verdict {
                Verdict::Remove => "delete",
                Verdict::Await(_) | Verdict::Report(_) => "report",
                Verdict::Keep(_) => "keep",
            };
            outside.entry((stage, action, leftover.kind.name)).or_default().push(leftover.name.clone());
        }
        for ((stage, action, kind), names) in outside {
            line(stage, action, kind, names);
        }
        lines
    }
}

fn is_route(leftover: &Leftover) -> bool {
    leftover.kind.class == LeftoverClass::Route
}

/// Deletes what nobody deletes yet, and takes off the finalizers of those who had their time. What Kubernetes itself holds,
/// as a claim that a pod uses, stays.
fn release(kind: Kind, object: &Object, named: Named) -> Option<Step> {
    let theirs = |name: &&String| {
        name.as_str() == finalizer::LOAD_BALANCER_CLEANUP
            || name.starts_with("snapshot.storage.kubernetes.io/")
            || name.starts_with("external-attacher/")
            || name.starts_with("external-provisioner.volume.kubernetes.io/")
    };
    let finalizers: Vec<_> = object.finalizers.iter().filter(theirs).cloned().collect();
    let stale = object.terminating.is_none() && kind != Kind::Service;
    let held = object.terminating.is_some() && !finalizers.is_empty();
    (stale || held).then(|| Step::Release { kind, object: object.clone(), finalizers, named })
}
