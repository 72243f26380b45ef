//! What becomes of a thing that a cloud shows. Pure, and the last word before something is removed that nobody can bring
//! back: whatever is not surely to go stays.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use groundcrew_api::deorbit::{DeorbitSpec, KeptVolume, Policies, Policy};
use groundcrew_core::key::ServiceKey;
use groundcrew_core::provider::{Leftover, LeftoverClass, User};
use jiff::Timestamp;

use super::objects::Object;
use super::observe::Cluster;
use super::targets::{kept_gateways, stays};
use super::unmarked::is_unmarked;

/// How old a volume without a `PersistentVolume` must be.
const YOUNG: Duration = Duration::from_mins(10);

/// What becomes of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It may be removed by the cloud's API.
    Remove,
    /// The cluster's controllers may still remove it; we do not.
    Await(String),
    /// It is left, and told.
    Report(String),
    /// Somebody wants it to stay.
    Keep(String),
}

/// What is known beside the thing itself.
pub struct Evidence<'a> {
    policies: Policies,
    kept_volumes: BTreeMap<&'a str, &'a KeptVolume>,
    kept_addresses: BTreeSet<&'a str>,
    /// Services, Ingresses and claims that nobody is deleting.
    living: BTreeSet<User>,
    /// Those of them that somebody asked to keep.
    kept: BTreeSet<User>,
    /// Volumes that have a `PersistentVolume`.
    known: BTreeSet<&'a str>,
    now: Timestamp,
    /// Volumes that a living claim, or nobody's deletion, holds, with the name of their `PersistentVolume`.
    used: BTreeMap<&'a str, &'a str>,
    /// Snapshots and backups whose `VolumeSnapshot` nobody is deleting, with its name.
    pictures: BTreeMap<&'a str, &'a str>,
}

impl<'a> Evidence<'a> {
    /// From the cluster as it is now, and from what was noted when it was whole.
    #[must_use]
    pub fn new(
        cluster: &'a Cluster,
        spec: &DeorbitSpec,
        kept_volumes: &'a [KeptVolume],
        kept_addresses: &'a [String],
        now: Timestamp,
    ) -> Self {
        let key = |object: &Object| ServiceKey::new(object.namespace.as_str(), object.name.as_str());
        let alive = |object: &&Object| object.terminating.is_none();
        let services = cluster.services.iter().map(|service| &service.object).filter(alive);
        let ingresses = cluster.ingresses.iter().map(|ingress| &ingress.object).filter(alive);
        let living_claims = cluster.claims.iter().map(|claim| &claim.object).filter(alive);
        let living = services.map(|object| User::Service(key(object)));
        let living = living.chain(ingresses.map(|object| User::Ingress(key(object))));
        let living = living.chain(living_claims.map(|object| User::Claim(key(object))));
        let gateways = kept_gateways(cluster);
        let kept_services = cluster.services.iter().filter(|service| {
            let of_kept = service.gateway.as_ref().is_some_and(|gateway| gateways.contains(gateway));
            service.object.keep || of_kept || stays(service, spec)
        });
        let kept_services = kept_services.map(|service| &service.object);
        let kept_ingresses = cluster.ingresses.iter().map(|ingress| &ingress.object).filter(|object| object.keep);
        let kept_users = kept_services.filter(alive).map(|object| User::Service(key(object)));
        let kept_users = kept_users.chain(kept_ingresses.filter(alive).map(|object| User::Ingress(key(object))));
        let claims: BTreeSet<_> = cluster
            .claims
            .iter()
            .filter(|claim| claim.object.terminating.is_none())
            .map(|claim| claim.object.key())
            .collect();
        // A volume whose claim is gone or going is on its way; any other is somebody's, although its object may be going.
        let used = cluster.volumes.iter().filter(|volume| match &volume.claim {
            Some(claim) => claims.contains(claim),
            None => volume.object.terminating.is_none(),
        });
        let snapshots: BTreeSet<_> = cluster
            .snapshots
            .iter()
            .filter(|snapshot| snapshot.object.terminating.is_none())
            .map(|snapshot| snapshot.object.key())
            .collect();
        let pictures = cluster.contents.iter().filter(|content| snapshots.contains(&content.snapshot));
        let mut kept: BTreeMap<&str, &KeptVolume> = BTreeMap::new();
        for volume in kept_volumes {
            // The stronger wish wins.
            let known = kept.entry(&volume.handle).or_insert(volume);
            if known.retained && !volume.retained {
                *known = volume;
            }
        }
        Self {
            policies: spec.policies,
            kept_volumes: kept,
            kept_addresses: kept_addresses.iter().map(String::as_str).collect(),
            living: living.collect(),
            kept: kept_users.collect(),
            known: cluster.volumes.iter().map(|volume| volume.handle.as_str()).collect(),
            now,
            used: used.map(|volume| (volume.handle.as_str(), volume.object.name.as_str())).collect(),
            pictures: pictures.map(|content| (content.handle.as_str(), content.snapshot.as_str())).collect(),
        }
    }

    fn policy(&self, class: LeftoverClass) -> (Policy, &'static str) {
        let Policies { volumes, snapshots, backups, load_balancers, floating_ips, security_groups, routes, .. } =
            self.policies;
        match class {
            LeftoverClass::LoadBalancer => (load_balancers, "loadBalancers"),
            LeftoverClass::FloatingIp => (floating_ips, "floatingIps"),
            LeftoverClass::SecurityGroup => (security_groups, "securityGroups"),
            LeftoverClass::Snapshot => (snapshots, "snapshots"),
            LeftoverClass::Backup => (backups, "backups"),
            LeftoverClass::Volume => (volumes, "volumes"),
            LeftoverClass::Route => (routes, "routes"),
        }
    }

    /// Decides.
    #[must_use]
    pub fn judge(&self, leftover: &Leftover) -> Verdict {
        let (mut policy, mut name) = self.policy(leftover.kind.class);
        if leftover.kept {
            return Verdict::Keep("a mark on it asks to keep it".into());
        }
        if policy == Policy::Keep {
            return Verdict::Keep(format!("policies.{name} is keep"));
        }
        // Volumes and snapshots have ids of one kind, so that one list of handles serves both.
        if matches!(leftover.kind.class, LeftoverClass::Volume | LeftoverClass::Snapshot | LeftoverClass::Backup)
            && let Some(kept) = self.kept_volumes.get(leftover.id.as_str())
        {
            match (kept.retained, self.policies.retained_volumes) {
                (true, Policy::Delete) if leftover.kind.class == LeftoverClass::Volume => {
                    (policy, name) = (Policy::Delete, "retainedVolumes");
                }
                // Of a snapshot that is retained, its own policy must say so as well.
                (true, Policy::Delete) => {}
                (true, Policy::Report) => return Verdict::Report(kept.why.clone()),
                _ => return Verdict::Keep(kept.why.clone()),
            }
        }
        let keeps = |user: &&User| match user {
            User::Service(key) => self.kept_addresses.contains(key.to_string().as_str()),
            User::Ingress(_) => self.kept_addresses.contains(user.to_string().as_str()),
            User::Claim(_) => false,
        };
        if leftover.kind.class == LeftoverClass::FloatingIp
            && let Some(user) = leftover.users.iter().find(keeps)
        {
            return Verdict::Keep(format!("{user} asked to keep its address"));
        }
        if let Some(doubt) = &leftover.doubt {
            return Verdict::Report(doubt.clone());
        }
        if let Some(user) = leftover.users.iter().find(|user| self.kept.contains(user)) {
            return Verdict::Keep(format!("{user} stays, because somebody asked for it"));
        }
        if let Some(user) = leftover.users.iter().find(|user| self.living.contains(user)) {
            return Verdict::Report(format!("{user} is there and nobody deletes it"));
        }
        if leftover.kind.class == LeftoverClass::Volume
            && let Some(volume) = self.used.get(leftover.id.as_str())
        {
            return Verdict::Report(format!("PersistentVolume {volume} is in use"));
        }
        if matches!(leftover.kind.class, LeftoverClass::Snapshot | LeftoverClass::Backup)
            && let Some(snapshot) = self.pictures.get(leftover.id.as_str())
        {
            return Verdict::Report(format!("VolumeSnapshot {snapshot} is there and nobody deletes it"));
        }
        if is_unmarked(leftover) {
            return Verdict::Await(
                "it does not carry this cluster's mark, so that only its own controller removes it".into(),
            );
        }
        // A driver makes the volume first and its object then.
        let age =
            leftover.created.map(|created| Duration::try_from(self.now.duration_since(created)).unwrap_or_default());
        if leftover.kind.class == LeftoverClass::Volume
            && !self.known.contains(leftover.id.as_str())
            && age.is_none_or(|age| age < YOUNG)
        {
            return Verdict::Await("it is new, and its PersistentVolume may be on its way".into());
        }
        match policy {
            Policy::Delete => Verdict::Remove,
            _ => Verdict::Await(format!("policies.{name} is report, and no controller of the cluster removed it")),
        }
    }
}
