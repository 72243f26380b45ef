//! Which objects go, and which stay and why. Pure.

use std::collections::{BTreeMap, BTreeSet};

use groundcrew_api::deorbit::{DeorbitSpec, KeptVolume, Policy};

use super::objects::{
    Attachment, Claim, Content, Ingress, Object, Pod, Service, Snapshot, Volume, Workload, WorkloadKind,
};
use super::observe::Cluster;

/// What the clouds of this run see to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Served {
    /// Volume drivers.
    pub drivers: BTreeSet<String>,
    /// Load balancer classes. Services without a class are always served by somebody.
    pub classes: BTreeSet<String>,
}

/// An object that stays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spared {
    /// Its kind.
    pub kind: &'static str,
    /// Its namespace and name.
    pub key: String,
    /// Why it stays.
    pub why: String,
    /// Whether somebody asked for that. Otherwise it is left, and told as such.
    pub wanted: bool,
}

/// The objects that go, borrowed from what was seen.
#[derive(Debug, Default)]
pub struct Targets<'a> {
    /// What is scaled to zero or suspended.
    pub workloads: Vec<&'a Workload>,
    /// `VolumeSnapshot`s.
    pub snapshots: Vec<&'a Object>,
    /// `VolumeSnapshotContent`s on their way out, or without a `VolumeSnapshot`: the volume cannot go before them.
    pub contents: Vec<&'a Content>,
    /// Gateways.
    pub gateways: Vec<&'a Object>,
    /// Ingresses.
    pub ingresses: Vec<&'a Ingress>,
    /// Services.
    pub services: Vec<&'a Service>,
    /// Pods that hold the claims.
    pub pods: Vec<&'a Pod>,
    /// Claims.
    pub claims: Vec<&'a Claim>,
    /// `PersistentVolume`s that are to go with their claims.
    pub volumes: Vec<&'a Volume>,
    /// Those of volumes that are retained and go all the same: nobody removes them but us.
    pub retained: Vec<&'a Volume>,
    /// Their attachments.
    pub attachments: Vec<&'a Attachment>,
    /// What stays.
    pub spared: Vec<Spared>,
    /// Volumes outside that are not to be removed.
    pub kept_volumes: Vec<KeptVolume>,
    /// Services and Ingresses whose floating address stays.
    pub kept_addresses: Vec<String>,
}

/// Why an object stays, and whether somebody asked for it.
fn spared(object: &Object, policy: Policy, policy_name: &str, spec: &DeorbitSpec) -> Option<(String, bool)> {
    let kept = if object.keep {
        Some("its label groundcrew.dev/deorbit says keep".to_owned())
    } else {
        (policy == Policy::Keep).then(|| format!("policies.{policy_name} is keep"))
    };
    match kept {
        // Who asks for it now asks too late: Kubernetes takes no deletion back.
        Some(why) if object.terminating.is_some() => Some((format!("{why}, but it is being deleted already"), false)),
        Some(why) => Some((why, true)),
        // It is there for the controllers that are needed to the end, not for what they have outside.
        None if spec.protect.namespaces.contains(&object.namespace) => {
            Some((format!("namespace {} is protected", object.namespace), false))
        }
        None => None,
    }
}

/// Whether a Service stays for its address. OpenStack's controller can be told to leave the address behind; ours give it to
/// the next one as soon as the Service goes.
pub(super) fn stays(service: &Service, spec: &DeorbitSpec) -> bool {
    spec.policies.floating_ips == Policy::Keep && service.claimed.is_some()
}

/// Gateways with the label to keep them, by their keys.
pub(super) fn kept_gateways(cluster: &Cluster) -> BTreeSet<String> {
    cluster.gateways.iter().filter(|gateway| gateway.keep).map(Object::key).collect()
}

/// Chooses. Everything that follows from it is chosen by the same rule in every pass.
#[must_use]
pub fn targets<'a>(cluster: &'a Cluster, spec: &DeorbitSpec, served: &Served) -> Targets<'a> {
    let mut targets = Targets::default();
    targets.choose_balancers(cluster, spec, served);
    targets.choose_claims(cluster, spec, served);
    targets.choose_volumes(cluster, spec, served);
    targets.choose_pods(cluster, spec, served);
    targets
}

/// The drivers of claims, bound or not, by their keys.
fn claim_drivers(cluster: &Cluster) -> BTreeMap<String, &str> {
    let volumes: BTreeMap<_, _> =
        cluster.volumes.iter().map(|volume| (volume.object.name.as_str(), volume.driver.as_str())).collect();
    let drivers = cluster.claims.iter().filter_map(|claim| {
        let bound = claim.volume.as_deref().and_then(|name| volumes.get(name).copied());
        let class = claim.class.as_ref().and_then(|class| cluster.classes.get(class));
        let driver = bound.or(claim.provisioner.as_deref()).or(class.map(String::as_str))?;
        Some((claim.object.key(), driver))
    });
    drivers.collect()
}

impl<'a> Targets<'a> {
    fn spare(&mut self, kind: &'static str, object: &Object, (why, wanted): (String, bool)) {
        self.spared.push(Spared { kind, key: object.key(), why, wanted });
    }

    fn choose_balancers(&mut self, cluster: &'a Cluster, spec: &DeorbitSpec, served: &Served) {
        let policies = &spec.policies;
        // What a Gateway is reached by is as much as the Gateway, and its controller would only make it again.
        let mut staying = BTreeMap::new();
        for object in &cluster.gateways {
            match spared(object, policies.load_balancers, "loadBalancers", spec) {
                Some((why, wanted)) => {
                    staying.insert(object.key(), (format!("Gateway {} stays: {why}", object.key()), wanted));
                    self.spare("Gateway", object, (why, wanted));
                }
                None => self.gateways.push(object),
            }
        }
        for ingress in &cluster.ingresses {
            if ingress.keeps_address || policies.floating_ips == Policy::Keep {
                self.kept_addresses.push(format!("Ingress {}", ingress.object.key()));
            }
            match spared(&ingress.object, policies.load_balancers, "loadBalancers", spec) {
                Some(why) => self.spare("Ingress", &ingress.object, why),
                None => self.ingresses.push(ingress),
            }
        }
        for service in &cluster.services {
            if service.keeps_address || policies.floating_ips == Policy::Keep {
                self.kept_addresses.push(service.object.key());
            }
            if let Some(why) = spared(&service.object, policies.load_balancers, "loadBalancers", spec) {
                self.spare("Service", &service.object, why);
            } else if let Some(why) = service.gateway.as_ref().and_then(|gateway| staying.get(gateway)) {
                self.spare("Service", &service.object, why.clone());
            } else if let Some(class) =
                service.claimed.as_ref().or(service.class.as_ref()).filter(|class| !served.classes.contains(*class))
            {
                let why = format!("its class {class} is none of the clouds of this run");
                self.spare("Service", &service.object, (why, false));
            } else if stays(service, spec) {
                let why = "policies.floatingIps is keep, and its address would go with it".to_owned();
                self.spare("Service", &service.object, (why, true));
            } else {
                self.services.push(service);
            }
        }
    }

    fn choose_claims(&mut self, cluster: &'a Cluster, spec: &DeorbitSpec, served: &Served) {
        self.choose_snapshots(cluster, spec, served);
        let volumes: BTreeMap<_, _> =
            cluster.volumes.iter().map(|volume| (volume.object.name.as_str(), volume)).collect();
        let drivers = claim_drivers(cluster);
        for claim in &cluster.claims {
            let bound = claim.volume.as_deref().and_then(|name| volumes.get(name));
            if drivers.get(&claim.object.key()).is_none_or(|driver| !served.drivers.contains(*driver)) {
                // Another's data; nobody asked us about it.
                continue;
            }
            // With the claim its volume would go, whatever the label on that says.
            let kept = bound
                .filter(|volume| volume.object.keep)
                .map(|volume| (format!("PersistentVolume {} has the label to keep it", volume.object.name), true));
            match kept.or_else(|| spared(&claim.object, spec.policies.volumes, "volumes", spec)) {
                Some(why) => {
                    // What a policy keeps is judged by the policy, which somebody may change meanwhile.
                    let asked = claim.object.keep || spec.policies.volumes != Policy::Keep;
                    if let Some(volume) = bound.filter(|_| asked) {
                        let why = format!("claim {} stays: {}", claim.object.key(), why.0);
                        self.kept_volumes.push(KeptVolume { handle: volume.handle.clone(), why, retained: false });
                    }
                    self.spare("PersistentVolumeClaim", &claim.object, why);
                }
                None => self.claims.push(claim),
            }
        }
    }

    /// Only those whose content says that a cloud of this run has them: a snapshot of another's is another's data.
    fn choose_snapshots(&mut self, cluster: &'a Cluster, spec: &DeorbitSpec, served: &Served) {
        let policy = spec.policies.snapshots;
        // A content that is stuck or retained still has the name of a snapshot that is long gone, and of its namesake.
        let mut contents: BTreeMap<&str, Vec<&Content>> = BTreeMap::new();
        for content in &cluster.contents {
            contents.entry(&content.snapshot).or_default().push(content);
        }
        for content in cluster.contents.iter().filter(|one| !one.handle.is_empty() && (one.retained || one.object.keep))
        {
            let (handle, retained) = (content.handle.clone(), !content.object.keep);
            let why = format!("VolumeSnapshotContent {} is to be retained", content.object.name);
            self.kept_volumes.push(KeptVolume { handle, why, retained });
        }
        let there: BTreeSet<_> = cluster.snapshots.iter().map(|snapshot| snapshot.object.key()).collect();
        for content in cluster.contents.iter().filter(|one| served.drivers.contains(&one.driver)) {
            let orphan = !content.retained && !content.object.keep && !there.contains(&content.snapshot);
            let namespace = content.snapshot.split('/').next().unwrap_or_default();
            if content.object.terminating.is_some() {
                self.contents.push(content);
            } else if orphan && policy == Policy::Keep {
                let why = "policies.snapshots is keep".to_owned();
                self.spare("VolumeSnapshotContent", &content.object, (why, true));
            } else if orphan && spec.protect.namespaces.iter().any(|protected| protected == namespace) {
                let why = format!("namespace {namespace} is protected");
                self.kept_volumes.push(KeptVolume {
                    handle: content.handle.clone(),
                    why: why.clone(),
                    retained: false,
                });
                self.spare("VolumeSnapshotContent", &content.object, (why, false));
            } else if orphan {
                self.contents.push(content);
            }
        }
        let drivers = claim_drivers(cluster);
        for Snapshot { object, claim } in &cluster.snapshots {
            let contents = contents.get(object.key().as_str()).map(Vec::as_slice).unwrap_or_default();
            let foreign = contents.iter().find(|one| !served.drivers.contains(&one.driver));
            // One that has not come to anything yet may do so when its volume is gone.
            let driver = match foreign.or(contents.first()) {
                Some(content) => Some(content.driver.as_str()),
                None => claim.as_ref().and_then(|claim| drivers.get(claim)).copied(),
            };
            let Some(driver) = driver else {
                let why = "neither a VolumeSnapshotContent nor its claim says whose it is".to_owned();
                self.spare("VolumeSnapshot", object, (why, false));
                continue;
            };
            if !served.drivers.contains(driver) {
                continue;
            }
            // As with a claim and its volume.
            let kept = contents.iter().find(|content| content.object.keep).map(|content| {
                (format!("VolumeSnapshotContent {} has the label to keep it", content.object.name), true)
            });
            match kept.or_else(|| spared(object, policy, "snapshots", spec)) {
                Some(why) => {
                    // As with a claim that the policy alone keeps.
                    let asked = object.keep || contents.iter().any(|content| content.object.keep);
                    if asked || policy != Policy::Keep {
                        let kept = format!("VolumeSnapshot {} stays: {}", object.key(), why.0);
                        self.kept_volumes.extend(contents.iter().map(|content| KeptVolume {
                            handle: content.handle.clone(),
                            why: kept.clone(),
                            retained: false,
                        }));
                    }
                    self.spare("VolumeSnapshot", object, why);
                }
                None => self.snapshots.push(object),
            }
        }
    }

    fn choose_volumes(&mut self, cluster: &'a Cluster, spec: &DeorbitSpec, served: &Served) {
        let going: BTreeSet<_> = self.claims.iter().map(|claim| claim.object.key()).collect();
        let there: BTreeSet<_> = cluster.claims.iter().map(|claim| claim.object.key()).collect();
        for volume in cluster.volumes.iter().filter(|volume| served.drivers.contains(&volume.driver)) {
            let claim = volume.claim.as_deref();
            if volume.object.keep {
                let why = format!("PersistentVolume {} has the label to keep it", volume.object.name);
                self.kept_volumes.push(KeptVolume { handle: volume.handle.clone(), why, retained: false });
                continue;
            }
            let going = claim.is_some_and(|claim| going.contains(claim) || !there.contains(claim))
                && spec.policies.volumes != Policy::Keep;
            if volume.retained {
                let why = format!("PersistentVolume {} has the reclaim policy Retain", volume.object.name);
                self.kept_volumes.push(KeptVolume { handle: volume.handle.clone(), why, retained: true });
                if going && spec.policies.retained_volumes == Policy::Delete {
                    self.retained.push(volume);
                }
            } else if going {
                self.volumes.push(volume);
            }
        }
        let names: BTreeSet<_> =
            self.volumes.iter().chain(&self.retained).map(|volume| volume.object.name.as_str()).collect();
        self.attachments.extend(cluster.attachments.iter().filter(|one| names.contains(one.volume.as_str())));
    }

    fn choose_pods(&mut self, cluster: &'a Cluster, spec: &DeorbitSpec, served: &Served) {
        let going: BTreeSet<_> =
            self.claims.iter().map(|claim| (claim.object.namespace.as_str(), claim.object.name.as_str())).collect();
        let uses = |namespace: &str, claims: &[String]| claims.iter().any(|claim| going.contains(&(namespace, claim)));
        self.pods.extend(cluster.pods.iter().filter(|pod| uses(&pod.object.namespace, &pod.claims)));
        for workload in &cluster.workloads {
            let object = &workload.object;
            if object.keep
                || spec.protect.namespaces.contains(&object.namespace)
                || spec.policies.volumes == Policy::Keep
            {
                continue;
            }
            let is_served = |class: &Option<String>| {
                let driver = class.as_ref().and_then(|class| cluster.classes.get(class));
                driver.is_some_and(|driver| served.drivers.contains(driver))
            };
            // Of a class that is not named, nobody can tell here whose it will be.
            let makes_claims = workload.templates.iter().any(|template| {
                let prefix = format!("{}-{}-", template.name, object.name);
                is_served(&template.class)
                    || going.iter().any(|(namespace, claim)| {
                        *namespace == object.namespace
                            && claim.strip_prefix(&prefix).is_some_and(|n| n.parse::<u32>().is_ok())
                    })
            });
            if makes_claims || uses(&object.namespace, &workload.claims) || workload.kind == WorkloadKind::CronJob {
                self.workloads.push(workload);
            }
        }
    }
}
