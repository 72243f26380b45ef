//! What is in the cluster now: one list of each kind, whatever there is of it. No watches: a list that is old shows what
//! is gone, and hides what came.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use groundcrew_core::provider::ProviderError;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{self as core, Namespace};
use k8s_openapi::api::storage::v1 as storage;
use k8s_openapi::api::{apps, batch, networking};
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;

use super::objects::{Attachment, Claim, Content, Ingress, Object, Pod, Service, Snapshot, Volume, Workload};

const PAGE: u32 = 500;
/// For one page.
const DEADLINE: Duration = Duration::from_secs(30);

/// Why the cluster could not be looked at.
#[derive(Debug, thiserror::Error)]
pub enum ObserveError {
    /// It refused, or could not be reached.
    #[error("{}", ProviderError::from_kube(&format!("cannot list {what}"), error))]
    Refused {
        /// What was asked for.
        what: String,
        /// Its answer.
        error: kube::Error,
    },
    /// It said nothing.
    #[error("cannot list {0}: no answer within {secs} s", secs = DEADLINE.as_secs())]
    Silent(String),
    /// An answer without the uid that everything is confirmed with.
    #[error("namespace kube-system has no uid")]
    NoUid,
}

impl ObserveError {
    /// Whether somebody has to give us rights first.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        matches!(self, Self::Refused { error: kube::Error::Api(status), .. } if matches!(status.code, 401 | 403))
    }
}

/// A controller that cleans up, as its Lease shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Life {
    /// It has renewed its Lease.
    Alive,
    /// It has not, for so long.
    Dead(Duration),
    /// It has no Lease.
    Unknown,
}

/// Which Leases the controllers have that clean up, as `namespace/name`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leases {
    /// Of the cloud controller manager.
    pub balancers: String,
    /// Of the volume driver's provisioner.
    pub volumes: String,
    /// Of the snapshot controller.
    pub snapshots: String,
}

/// The cluster.
#[derive(Debug, Clone, Default)]
pub struct Cluster {
    /// The uid of the namespace kube-system.
    pub uid: String,
    /// Whether somebody put the label on that namespace which says that the cluster stays.
    pub protected: bool,
    /// Services with load balancers.
    pub services: Vec<Service>,
    /// Ingresses.
    pub ingresses: Vec<Ingress>,
    /// Gateways.
    pub gateways: Vec<Object>,
    /// `VolumeSnapshot`s.
    pub snapshots: Vec<Snapshot>,
    /// `VolumeSnapshotContent`s.
    pub contents: Vec<Content>,
    /// Claims.
    pub claims: Vec<Claim>,
    /// `PersistentVolume`s.
    pub volumes: Vec<Volume>,
    /// `VolumeAttachment`s.
    pub attachments: Vec<Attachment>,
    /// The drivers of the classes.
    pub classes: BTreeMap<String, String>,
    /// Pods that use claims.
    pub pods: Vec<Pod>,
    /// What makes pods.
    pub workloads: Vec<Workload>,
    /// Who removes load balancers.
    pub balancer_controller: Option<Life>,
    /// Who removes volumes.
    pub volume_controller: Option<Life>,
    /// Who removes snapshots.
    pub snapshot_controller: Option<Life>,
}

/// The Gateway API's, if it is installed.
#[must_use]
pub fn gateway() -> ApiResource {
    resource("gateway.networking.k8s.io", "v1", "Gateway", "gateways")
}

/// The snapshot controller's, if it is installed.
#[must_use]
pub fn snapshot() -> ApiResource {
    resource("snapshot.storage.k8s.io", "v1", "VolumeSnapshot", "volumesnapshots")
}

/// What is outside for each of them.
#[must_use]
pub fn content() -> ApiResource {
    resource("snapshot.storage.k8s.io", "v1", "VolumeSnapshotContent", "volumesnapshotcontents")
}

fn resource(group: &str, version: &str, kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
}

/// All of it, or nothing: half a cluster looks like a clean one.
pub async fn observe(client: &Client, leases: &Leases) -> Result<Cluster, ObserveError> {
    let system = async {
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let read = Object::from(in_time("Namespaces", namespaces.get_metadata("kube-system")).await?.metadata);
        if read.uid.is_empty() { Err(ObserveError::NoUid) } else { Ok(read) }
    };
    let classes = async {
        let classes = list::<storage::StorageClass, _>(client, |class| {
            Some((class.metadata.name.unwrap_or_default(), class.provisioner))
        });
        Ok(classes.await?.into_iter().collect())
    };
    // One after the other per group, so that an API server that is nearly dead gets a few requests at once and not twenty.
    // A claim that came after its volume was listed is a user too many; the other way round, one too few.
    let volumes = async {
        let volumes = list::<core::PersistentVolume, _>(client, |volume| Some(Volume::from(volume))).await?;
        let claims = list::<core::PersistentVolumeClaim, _>(client, |claim| Some(Claim::from(claim))).await?;
        Ok::<_, ObserveError>((volumes, claims))
    };
    let (system, classes, services, ingresses, (volumes, claims), attachments) = tokio::try_join!(
        system,
        classes,
        list::<core::Service, _>(client, Service::read),
        list::<networking::v1::Ingress, _>(client, |ingress| Some(Ingress::from(ingress))),
        volumes,
        list::<storage::VolumeAttachment, _>(client, |attachment| Some(Attachment::from(attachment))),
    )?;
    let (gateways, snapshots, contents, pods, workloads) = tokio::try_join!(
        objects::<Object>(client, gateway()),
        objects::<Snapshot>(client, snapshot()),
        objects::<Content>(client, content()),
        list::<core::Pod, _>(client, Pod::read),
        workloads(client),
    )?;
    let (balancer_controller, volume_controller, snapshot_controller) = tokio::try_join!(
        life(client, &leases.balancers),
        life(client, &leases.volumes),
        life(client, &leases.snapshots),
    )?;
    Ok(Cluster {
        uid: system.uid,
        protected: system.keep,
        services,
        ingresses,
        gateways,
        snapshots,
        contents,
        claims,
        volumes,
        attachments,
        classes,
        pods,
        workloads,
        balancer_controller: Some(balancer_controller),
        volume_controller: Some(volume_controller),
        snapshot_controller: Some(snapshot_controller),
    })
}

/// What makes pods. All that an abort needs, which must not wait until everything else can be seen again.
pub async fn workloads(client: &Client) -> Result<Vec<Workload>, ObserveError> {
    let (deployments, sets, replicas, jobs, crons) = tokio::try_join!(
        list::<apps::v1::Deployment, _>(client, |one| Some(Workload::from(one))),
        list::<apps::v1::StatefulSet, _>(client, |one| Some(Workload::from(one))),
        list::<apps::v1::ReplicaSet, _>(client, Workload::replica_set),
        list::<batch::v1::Job, _>(client, Workload::job),
        list::<batch::v1::CronJob, _>(client, |one| Some(Workload::from(one))),
    )?;
    Ok([deployments, sets, replicas, jobs, crons].into_iter().flatten().collect())
}

async fn in_time<T>(what: &str, call: impl Future<Output = kube::Result<T>>) -> Result<T, ObserveError> {
    match tokio::time::timeout(DEADLINE, call).await {
        Ok(answer) => answer.map_err(|error| ObserveError::Refused { what: what.to_owned(), error }),
        Err(_) => Err(ObserveError::Silent(what.to_owned())),
    }
}

async fn list<K, T>(client: &Client, read: impl FnMut(K) -> Option<T>) -> Result<Vec<T>, ObserveError>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    Box::pin(pages(&Api::<K>::all(client.clone()), &K::plural(&()), read)).await
}

/// A kind that is not installed has none. Not so one of Kubernetes' own: where those are missing, something else answers.
async fn objects<T: From<DynamicObject>>(client: &Client, resource: ApiResource) -> Result<Vec<T>, ObserveError> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    match Box::pin(pages(&api, &resource.plural, |object| Some(T::from(object)))).await {
        // Not by its reason: the answer about a kind that is unknown is no Status, and has none.
        Err(ObserveError::Refused { error: kube::Error::Api(status), .. }) if status.code == 404 => Ok(Vec::new()),
        listed => listed,
    }
}

/// Page by page, so that never more than one page is in memory as it came.
async fn pages<K, T>(api: &Api<K>, what: &str, mut read: impl FnMut(K) -> Option<T>) -> Result<Vec<T>, ObserveError>
where
    K: Clone + Debug + DeserializeOwned,
{
    let mut params = ListParams::default().limit(PAGE);
    let mut found = Vec::new();
    loop {
        let page = in_time(what, api.list(&params)).await?;
        found.extend(page.items.into_iter().filter_map(&mut read));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(found),
        }
    }
}

/// A Lease that is as long overdue as three of its durations, and a minute, is nobody's.
async fn life(client: &Client, lease: &str) -> Result<Life, ObserveError> {
    let Some((namespace, name)) = lease.split_once('/') else { return Ok(Life::Unknown) };
    let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
    let Some(spec) = in_time("Leases", leases.get_opt(name)).await?.and_then(|lease| lease.spec) else {
        return Ok(Life::Unknown);
    };
    let Some(renewed) = spec.renew_time else { return Ok(Life::Unknown) };
    let lasts = Duration::from_secs(u64::try_from(spec.lease_duration_seconds.unwrap_or(15)).unwrap_or(15));
    let silent = Duration::try_from(Timestamp::now().duration_since(renewed.0)).unwrap_or_default();
    Ok(if silent > lasts * 3 + Duration::from_mins(1) { Life::Dead(silent) } else { Life::Alive })
}
