//! What OpenStack's cloud controller manager, the Cinder driver and the snapshot controller do, as far as the end of a cluster
//! shows it: finalizers, things in the cloud that carry their marks, and silence when they are dead.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::join_all;
use groundcrew_orbit::deorbit::observe;
use groundcrew_testkit::openstack::{Method, Service as Cloud};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Service};
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, from_value, json};
use tokio::sync::RwLock;
use tokio::task::JoinSet;

use super::place::Place;

pub(crate) const CLEANUP: &str = "service.kubernetes.io/load-balancer-cleanup";
pub(crate) const DRIVER: &str = "cinder.csi.openstack.org";
const PROVISIONER: &str = "external-provisioner.volume.kubernetes.io/finalizer";
const SNAPSHOT: &str = "snapshot.storage.kubernetes.io/volumesnapshot-bound-protection";
const CONTENT: &str = "snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection";

/// They work until they are dropped, each as long as its switch is on.
pub(crate) struct StandIns {
    pub(crate) balancers: Arc<AtomicBool>,
    pub(crate) volumes: Arc<AtomicBool>,
    pub(crate) snapshots: Arc<AtomicBool>,
    passes: Arc<RwLock<()>>,
    _tasks: JoinSet<()>,
}

impl StandIns {
    pub(crate) fn start(client: &Client, place: &Arc<Place>, (cluster, csi): (&str, &str), speed: Pace) -> Self {
        let on = || Arc::new(AtomicBool::new(true));
        let (balancers, volumes, snapshots) = (on(), on(), on());
        let passes = Arc::new(RwLock::new(()));
        let mut tasks = Tasks { set: JoinSet::new(), passes: passes.clone() };
        let with = (client.clone(), place.clone(), cluster.to_owned(), speed);
        tasks.repeat(&balancers, move || serve(with.clone()));
        let with = (client.clone(), place.clone(), csi.to_owned(), speed);
        tasks.repeat(&volumes, move || provision(with.clone()));
        let with = (client.clone(), place.clone(), csi.to_owned(), speed);
        tasks.repeat(&snapshots, move || photograph(with.clone()));
        let place = place.clone();
        tasks.repeat(&on(), move || {
            let place = place.clone();
            async move { place.remove_ports().await }
        });
        Self { balancers, volumes, snapshots, passes, _tasks: tasks.set }
    }

    /// Has one of them do nothing any more, and waits until it has done what it was at.
    pub(crate) async fn stop(&self, which: &AtomicBool) {
        which.store(false, Ordering::SeqCst);
        drop(self.passes.write().await);
    }
}

struct Tasks {
    set: JoinSet<()>,
    /// Held for as long as one of them is at something.
    passes: Arc<RwLock<()>>,
}

impl Tasks {
    /// Whatever fails is tried again, as theirs is.
    fn repeat<F>(&mut self, works: &Arc<AtomicBool>, mut pass: impl FnMut() -> F + Send + 'static)
    where
        F: Future<Output = anyhow::Result<()>> + Send,
    {
        let (works, passes) = (works.clone(), self.passes.clone());
        self.set.spawn(async move {
            loop {
                let at_it = passes.read().await;
                if works.load(Ordering::SeqCst) {
                    let _ = pass().await;
                }
                drop(at_it);
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        });
    }
}

/// How long they take for one thing. Load balancers are removed one after the other, volumes side by side.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Pace {
    pub(crate) balancer: Duration,
    pub(crate) volume: Duration,
}

type With = (Client, Arc<Place>, String, Pace);

/// A Lease that nobody has renewed for long, or one that somebody just did.
pub(crate) async fn lease(client: &Client, name: &str, alive: bool) {
    let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-system");
    let renewed = if alive { jiff::Timestamp::now() } else { "2026-01-01T00:00:00Z".parse().unwrap() };
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name},
        "spec": {"holderIdentity": "it", "leaseDurationSeconds": 15, "renewTime": format!("{renewed:.6}")},
    });
    leases.patch(name, &PatchParams::apply("it").force(), &Patch::Apply(lease)).await.unwrap();
}

async fn serve((client, place, cluster, speed): With) -> anyhow::Result<()> {
    let all: Api<Service> = Api::all(client.clone());
    for service in all.list(&ListParams::default()).await? {
        // One that is stuck holds nobody up.
        let _ = serve_one(&client, &place, &cluster, speed, &service).await;
    }
    Ok(())
}

async fn serve_one(
    client: &Client,
    place: &Place,
    cluster: &str,
    speed: Pace,
    service: &Service,
) -> anyhow::Result<()> {
    let (namespace, name, uid) = (service.namespace().unwrap(), service.name_any(), service.uid().unwrap());
    let spec = service.spec.clone().unwrap_or_default();
    let api: Api<Service> = Api::namespaced(client.clone(), &namespace);
    let held = service.finalizers().iter().any(|f| f == CLEANUP);
    if service.metadata.deletion_timestamp.is_some() {
        let keep = service.annotations().contains_key("loadbalancer.openstack.org/keep-floatingip");
        if held && unmake(place, cluster, (&namespace, &name, &uid), keep).await? {
            tokio::time::sleep(speed.balancer).await;
            finalizers(&api, &name, &[]).await?;
        }
    } else if spec.type_.as_deref() == Some("LoadBalancer") && spec.load_balancer_class.is_none() && !held {
        finalizers(&api, &name, &[CLEANUP]).await?;
        let id = place.balancer(cluster, &namespace, &name, &uid).await;
        let note = json!({"metadata": {"annotations": {"loadbalancer.openstack.org/load-balancer-id": id}}});
        api.patch(&name, &PatchParams::default(), &Patch::Merge(note)).await?;
    }
    Ok(())
}

/// Whether all is gone that a Service had: first its address, then the load balancer, then what that was reached by.
pub(crate) async fn unmake(
    place: &Place,
    cluster: &str,
    (namespace, name, uid): (&str, &str, &str),
    keep_address: bool,
) -> anyhow::Result<bool> {
    let made_for = format!("Kubernetes external service {namespace}/{name} from cluster {cluster}");
    if !keep_address {
        let of = format!("Floating IP for {made_for}");
        for id in listed(place, (Cloud::Network, "v2.0/floatingips", "floatingips"), "description", &of).await? {
            place.delete(Cloud::Network, &format!("v2.0/floatingips/{id}")).await?;
        }
    }
    let path = "v2/lbaas/loadbalancers";
    let balancers = listed(place, (Cloud::LoadBalancer, path, "loadbalancers"), "description", &made_for).await?;
    for id in &balancers {
        // Refused while it is pending; then once more.
        place.delete(Cloud::LoadBalancer, &format!("{path}/{id}?cascade=true")).await?;
    }
    if !balancers.is_empty() {
        return Ok(false);
    }
    let group = format!("lb-sg-{uid}-{namespace}-{name}");
    for id in listed(place, (Cloud::Network, "v2.0/security-groups", "security_groups"), "name", &group).await? {
        place.delete(Cloud::Network, &format!("v2.0/security-groups/{id}")).await?;
    }
    Ok(true)
}

/// The ids of those with this field.
async fn listed(
    place: &Place,
    (service, path, collection): (Cloud, &str, &str),
    key: &str,
    value: &str,
) -> anyhow::Result<Vec<String>> {
    let listed = place.ask(service, Method::GET, path, &Value::Null).await?;
    let things = listed[collection].as_array().cloned().unwrap_or_default();
    let ours = things.into_iter().filter(|thing| thing[key] == value);
    Ok(ours.filter_map(|thing| Some(thing["id"].as_str()?.to_owned())).collect())
}

pub(crate) async fn finalizers<K>(api: &Api<K>, name: &str, names: &[&str]) -> anyhow::Result<()>
where
    K: Resource + Clone + std::fmt::Debug + DeserializeOwned,
{
    let patch = json!({"metadata": {"finalizers": names}});
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(())
}

async fn provision((client, place, csi, speed): With) -> anyhow::Result<()> {
    let claims: Api<PersistentVolumeClaim> = Api::all(client.clone());
    let volumes: Api<PersistentVolume> = Api::all(client);
    for claim in claims.list(&ListParams::default()).await? {
        let spec = claim.spec.clone().unwrap_or_default();
        let class = spec.storage_class_name.unwrap_or_default();
        let name = format!("pvc-{}", claim.uid().unwrap());
        let fresh = claim.metadata.deletion_timestamp.is_none() && spec.volume_name.is_none();
        if !fresh || !["cinder", "cinder-retain"].contains(&class.as_str()) || volumes.get_opt(&name).await?.is_some() {
            continue;
        }
        let handle = place.volume(&csi, &name).await;
        let policy = if class == "cinder" { "Delete" } else { "Retain" };
        let pv: PersistentVolume = from_value(json!({
            "metadata": {"name": name, "annotations": {"pv.kubernetes.io/provisioned-by": DRIVER},
                "finalizers": [PROVISIONER]},
            "spec": {
                "capacity": {"storage": "10Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": class,
                "persistentVolumeReclaimPolicy": policy, "csi": {"driver": DRIVER, "volumeHandle": handle},
                "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": claim.namespace(),
                    "name": claim.name_any(), "uid": claim.uid()},
            },
        }))?;
        volumes.create(&PostParams::default(), &pv).await?;
    }
    let all = volumes.list(&ListParams::default()).await?;
    join_all(all.iter().map(|volume| reclaim(&place, &volumes, volume, speed))).await;
    Ok(())
}

/// The driver does not wait for Cinder: what was ordered is done, to Kubernetes.
async fn reclaim(
    place: &Place,
    volumes: &Api<PersistentVolume>,
    volume: &PersistentVolume,
    speed: Pace,
) -> anyhow::Result<()> {
    let phase = volume.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
    let spec = volume.spec.clone().unwrap_or_default();
    let Some(source) = spec.csi.filter(|source| source.driver == DRIVER) else { return Ok(()) };
    if phase != "Released" || spec.persistent_volume_reclaim_policy.as_deref() != Some("Delete") {
        return Ok(());
    }
    place.delete(Cloud::BlockStorage, &format!("volumes/{}", source.volume_handle)).await?;
    tokio::time::sleep(speed.volume).await;
    volumes.delete(&volume.name_any(), &DeleteParams::default()).await?;
    let kept: Vec<_> = volume.finalizers().iter().filter(|f| *f != PROVISIONER).map(String::as_str).collect();
    finalizers(volumes, &volume.name_any(), &kept).await
}

/// A `VolumeSnapshot` goes at once; its content when Cinder says that it is gone.
async fn photograph((client, place, csi, _): With) -> anyhow::Result<()> {
    let snapshots: Api<DynamicObject> = Api::all_with(client.clone(), &observe::snapshot());
    let contents: Api<DynamicObject> = Api::all_with(client.clone(), &observe::content());
    for snapshot in snapshots.list(&ListParams::default()).await? {
        let (namespace, name) = (snapshot.namespace().unwrap(), snapshot.name_any());
        let content = format!("{namespace}-{name}");
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &namespace, &observe::snapshot());
        if snapshot.metadata.deletion_timestamp.is_some() {
            let found = contents.get_opt(&content).await?;
            if found.is_some_and(|content| content.data["spec"]["deletionPolicy"] == "Delete") {
                contents.delete(&content, &DeleteParams::default()).await?;
            }
            finalizers(&api, &name, &[]).await?;
        } else if let Some(claim) = snapshot.data["spec"]["source"]["persistentVolumeClaimName"].as_str() {
            if contents.get_opt(&content).await?.is_some() {
                continue;
            }
            let Some(volume) = handle_of(&client, &namespace, claim).await? else { continue };
            finalizers(&api, &name, &[SNAPSHOT]).await?;
            let handle = place.snapshot(&csi, &volume, &content).await;
            let made = json!({
                "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent",
                "metadata": {"name": content, "finalizers": [CONTENT]},
                "spec": {"driver": DRIVER, "deletionPolicy": "Delete", "source": {"volumeHandle": volume},
                    "volumeSnapshotRef": {"namespace": namespace, "name": name}},
                "status": {"snapshotHandle": handle},
            });
            contents.create(&PostParams::default(), &from_value(made)?).await?;
        }
    }
    for content in contents.list(&ListParams::default()).await? {
        let handle = content.data["status"]["snapshotHandle"].as_str().unwrap_or_default();
        if content.metadata.deletion_timestamp.is_none() {
            continue;
        }
        let path = format!("snapshots/{handle}");
        if handle.is_empty() || place.is_gone(Cloud::BlockStorage, &path).await? {
            finalizers(&contents, &content.name_any(), &[]).await?;
        } else {
            // Refused while it is being deleted.
            let _ = place.delete(Cloud::BlockStorage, &path).await;
        }
    }
    Ok(())
}

async fn handle_of(client: &Client, namespace: &str, claim: &str) -> anyhow::Result<Option<String>> {
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let Some(volume) = claims.get(claim).await?.spec.and_then(|spec| spec.volume_name) else { return Ok(None) };
    Ok(volumes.get(&volume).await?.spec.and_then(|spec| spec.csi).map(|source| source.volume_handle))
}
