//! Whether it may begin. What is missing is said at once instead of being waited for. Pure.

use std::collections::{BTreeMap, BTreeSet};

use groundcrew_api::deorbit::{DeorbitSpec, Policy};
use groundcrew_api::names::label;
use groundcrew_core::key::ServiceKey;
use groundcrew_core::provider::{LeftoverClass, User};

use super::cloud::Sight;
use super::objects::is_cinder;
use super::observe::{Cluster, Life};
use super::targets::Targets;

/// Why not. Nothing has been touched then.
#[must_use]
pub fn refusals(
    spec: &DeorbitSpec,
    cluster: &Cluster,
    targets: &Targets<'_>,
    sight: &Sight,
    known: &BTreeSet<LeftoverClass>,
) -> Vec<String> {
    let mut refusals = Vec::new();
    if spec.confirm.is_empty() {
        refusals.push(
            "spec.confirm is missing: set it to what `kubectl get namespace kube-system -o jsonpath={.metadata.uid}` says"
                .into(),
        );
    } else if spec.confirm != cluster.uid {
        refusals.push("spec.confirm is the uid of another cluster's kube-system namespace".into());
    }
    if cluster.protected {
        refusals.push(format!(
            "the label {}=keep on namespace kube-system says that this cluster stays: take it off first",
            label::DEORBIT
        ));
    }
    refusals.extend(sight.gaps.iter().cloned());
    refusals.extend(wrong_cloud(cluster, targets, sight, known));
    let policies = &spec.policies;
    let waits_in_vain = |life: &Option<Life>, things: usize, policy: Policy| {
        matches!(life, Some(Life::Dead(_))) && things > 0 && policy != Policy::Delete
    };
    let of_the_cloud = targets.services.iter().filter(|service| service.claimed.is_none()).count();
    if waits_in_vain(&cluster.balancer_controller, of_the_cloud, policies.load_balancers) {
        refusals.push(
            "the cloud controller manager does not renew its Lease: start it, or set policies.loadBalancers to delete"
                .into(),
        );
    }
    if waits_in_vain(&cluster.volume_controller, targets.claims.len() + targets.volumes.len(), policies.volumes) {
        refusals.push("the volume driver does not renew its Lease: start it, or set policies.volumes to delete".into());
    }
    if waits_in_vain(&cluster.snapshot_controller, targets.snapshots.len(), policies.snapshots) {
        refusals.push(
            "the snapshot controller does not renew its Lease: start it, or set policies.snapshots to delete or keep"
                .into(),
        );
    }
    refusals
}

/// An empty list is that of a clean cloud, or of a wrong name, project or region. So the cloud must show at least one of the
/// things that the cluster says it has there; not of those that are on their way out, which may be gone already.
fn wrong_cloud(
    cluster: &Cluster,
    targets: &Targets<'_>,
    sight: &Sight,
    known: &BTreeSet<LeftoverClass>,
) -> Vec<String> {
    let mut wrong = Vec::new();
    let seen: BTreeSet<_> = sight.items.iter().map(|leftover| leftover.id.as_str()).collect();
    wrong.extend(unseen_classes(targets, sight));
    let classless = targets.services.iter().filter(|service| service.class.is_none() && service.claimed.is_none());
    if classless.clone().count() > 0 && !known.contains(&LeftoverClass::LoadBalancer) {
        wrong.push("there are Services with load balancers, and nobody to look for those: give --ccm-cluster".into());
    }
    let staying = classless.filter(|service| service.object.terminating.is_none());
    let balancers: Vec<_> = staying.filter_map(|service| service.balancer.as_deref()).collect();
    if known.contains(&LeftoverClass::LoadBalancer)
        && !balancers.is_empty()
        && !balancers.iter().any(|id| seen.contains(id))
    {
        wrong.push(format!(
            "the cloud shows none of the {} load balancers that Services name: is it the right project, region and --ccm-cluster?",
            balancers.len()
        ));
    }
    if !known.contains(&LeftoverClass::Volume) {
        // Also of those that are on their way out: nobody would see where they stop.
        let volumes = cluster.volumes.iter().map(|volume| &volume.driver);
        if volumes.chain(cluster.contents.iter().map(|content| &content.driver)).any(|driver| is_cinder(driver)) {
            wrong.push(
                "there are volumes or snapshots of Cinder's, and nobody to look for those: give --csi-cluster".into(),
            );
        }
        return wrong;
    }
    let claims: BTreeSet<_> =
        cluster.claims.iter().filter(|one| one.object.terminating.is_none()).map(|one| one.object.key()).collect();
    let volumes = cluster.volumes.iter().filter(|volume| {
        let stays = volume.retained || volume.claim.as_ref().is_some_and(|claim| claims.contains(claim));
        is_cinder(&volume.driver) && volume.object.terminating.is_none() && stays
    });
    let handles: Vec<_> = volumes.map(|volume| volume.handle.as_str()).collect();
    if !handles.is_empty() && !handles.iter().any(|id| seen.contains(id)) {
        wrong.push(format!(
            "the cloud shows none of the {} volumes that PersistentVolumes name: is it the right project, region and --csi-cluster?",
            handles.len()
        ));
    }
    wrong
}

/// The same of what controllers of ours serve: nothing of it is outside under this cluster's id.
fn unseen_classes(targets: &Targets<'_>, sight: &Sight) -> Vec<String> {
    let seen: BTreeSet<_> = sight.items.iter().flat_map(|leftover| &leftover.users).collect();
    let mut classes: BTreeMap<&str, (usize, bool)> = BTreeMap::new();
    // One without an address may have nothing yet.
    for service in targets.services.iter().filter(|one| one.has_address && one.object.terminating.is_none()) {
        let Some(class) = &service.claimed else { continue };
        let key = ServiceKey::new(service.object.namespace.as_str(), service.object.name.as_str());
        let (count, any) = classes.entry(class).or_default();
        *count += 1;
        *any |= seen.contains(&User::Service(key));
    }
    let unseen = classes.into_iter().filter(|(_, (_, any))| !any);
    let told = |(class, (count, _)): (&str, (usize, bool))| {
        format!(
            "nothing outside carries the mark of any of the {count} Services of class {class}: is it the right --cluster-id, and the right cloud?"
        )
    };
    unseen.map(told).collect()
}
