//! The Lease that says that this node lives, and from which all authority comes.

use std::sync::Arc;
use std::time::Duration;

use groundcrew_api::names::{annotation, label, lease};
use groundcrew_core::leader::Moment;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference};
use kube::Api;
use kube::api::PostParams;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::authority::Authority;
use crate::metrics::Metrics;
use crate::network::{Network, Unable};
use crate::peers::Peers;
use crate::platform::Platform;
use crate::timing::Timings;

/// How often a Node that is not registered is looked for.
const LOOK_FOR_NODE: Duration = Duration::from_mins(1);
/// A link that comes and goes is told once in this time.
const GATHER: Duration = Duration::from_millis(100);
/// What a shutdown spends on saying that nothing is held any more.
const FAREWELL: Duration = Duration::from_secs(1);

pub(crate) struct Heartbeat<P> {
    pub(crate) platform: Arc<P>,
    pub(crate) leases: Api<Lease>,
    pub(crate) nodes: Api<Node>,
    pub(crate) node: String,
    /// Unique to this process.
    pub(crate) run: String,
    /// Where other agents ask us.
    pub(crate) url: String,
    pub(crate) timings: Timings,
    pub(crate) authority: watch::Sender<Authority>,
    pub(crate) network: watch::Receiver<Arc<Network>>,
    pub(crate) peers: Arc<Peers>,
    pub(crate) metrics: Metrics,
}

/// Why the Lease is not renewed.
#[derive(Debug, thiserror::Error)]
enum Failure {
    /// Two agents would answer for each other's addresses.
    #[error("another agent runs for this node, as {0}: see to it that there is one")]
    Another(String),
    #[error(transparent)]
    Api(#[from] kube::Error),
    #[error("no answer in time")]
    Timeout,
}

impl<P: Platform> Heartbeat<P> {
    /// Renews until `released`, when no address is held any more, and gives the Lease back then. Ends before only when
    /// another agent has taken this node's Lease.
    pub(crate) async fn beat(self, released: CancellationToken) {
        let mut network = self.network.clone();
        let mut held = None;
        let (mut owner, mut looked) = (None, None);
        while !released.is_cancelled() {
            let told = self.network.borrow().uplink(false, None).err();
            let pause = match self.renew(held.as_ref(), owner.as_ref()).await {
                Ok((sent, lease)) => {
                    held = Some(lease);
                    self.renewed(sent);
                    // Beside the renewals, which must not wait for it.
                    if owner.is_none() && looked.is_none_or(|then| then + LOOK_FOR_NODE <= sent) {
                        looked = Some(sent);
                        owner = timeout(self.timings.renew / 2, self.owner()).await.ok().flatten();
                    }
                    self.timings.renew
                }
                Err(failure) => {
                    self.metrics.renewals_failed.inc();
                    warn!(error = %failure, "Lease not renewed");
                    if matches!(failure, Failure::Another(_)) {
                        self.authority.send_modify(Authority::end);
                        return;
                    }
                    // The next try begins with a look; after a timeout that would only be one more thing to wait for.
                    if !matches!(failure, Failure::Timeout) {
                        held = None;
                    }
                    self.timings.renew / 4
                }
            };
            tokio::select! {
                () = sleep(pause) => {}
                // A link that went is told at once; what else changes in the network is not told at all.
                () = until_uplink_differs(&mut network, told) => sleep(GATHER).await,
                () = released.cancelled() => {}
            }
        }
        self.give_back(held).await;
    }

    fn renewed(&self, sent: Moment) {
        let now = self.platform.now();
        self.metrics.renewal.observe(sent.until(now).as_secs_f64());
        self.peers.renewed(sent);
        let before = self.authority.borrow().term;
        self.authority.send_modify(|authority| authority.renewed(self.timings.deadline(sent), now));
        let term = self.authority.borrow().term;
        if term != before {
            info!(term, "Lease renewed; addresses may be held");
            if before > 0 {
                self.metrics.lapses.inc();
            }
        }
    }

    /// The renewed Lease, and when that was asked for. Each request has a time of its own: a renewal after one that was not
    /// answered takes three, which would never be done where each of them takes most of it.
    async fn renew(&self, held: Option<&Lease>, owner: Option<&OwnerReference>) -> Result<(Moment, Lease), Failure> {
        let (name, params) = (lease::of_node(&self.node), PostParams::default());
        let seen = match held {
            Some(held) => Some(held.clone()),
            None => self.answered(self.leases.get_opt(&name)).await?,
        };
        let mut wanted = self.lease(seen.as_ref());
        if wanted.metadata.owner_references.is_none() {
            wanted.metadata.owner_references = owner.map(|node| vec![node.clone()]);
        }
        let sent = self.platform.now();
        if seen.is_none() {
            return Ok((sent, self.answered(self.leases.create(&params, &wanted)).await?));
        }
        match self.answered(self.leases.replace(&name, &params, &wanted)).await {
            Err(Failure::Api(kube::Error::Api(status))) if status.code == 409 && held.is_some() => {
                // Somebody annotated it, or our own unanswered renewal came through; or another agent.
                let now = self.answered(self.leases.get(&name)).await?;
                match holder(&now) {
                    Some(holder) if holder == self.identity() => {
                        let (again, sent) = (self.lease(Some(&now)), self.platform.now());
                        Ok((sent, self.answered(self.leases.replace(&name, &params, &again)).await?))
                    }
                    holder => Err(Failure::Another(holder.unwrap_or("nobody").to_owned())),
                }
            }
            done => Ok((sent, done?)),
        }
    }

    async fn answered<T>(&self, request: impl Future<Output = kube::Result<T>>) -> Result<T, Failure> {
        Ok(timeout(self.timings.attempt(), request).await.map_err(|_| Failure::Timeout)??)
    }

    /// The Lease goes with its Node: one that stayed would count as a silent agent for ever. A node that is not
    /// registered yet owns it later.
    async fn owner(&self) -> Option<OwnerReference> {
        let node = self.nodes.get_metadata_opt(&self.node).await.ok().flatten()?;
        let (name, uid) = (self.node.clone(), node.metadata.uid?);
        Some(OwnerReference { api_version: "v1".into(), kind: "Node".into(), name, uid, ..OwnerReference::default() })
    }

    fn identity(&self) -> String {
        format!("{}_{}", self.node, self.run)
    }

    /// The Lease as it should be, written over the one that was seen.
    fn lease(&self, seen: Option<&Lease>) -> Lease {
        let old = seen.and_then(|lease| lease.spec.clone()).unwrap_or_default();
        let mut metadata = seen.map_or_else(ObjectMeta::default, |lease| lease.metadata.clone());
        metadata.name = Some(lease::of_node(&self.node));
        metadata.labels.get_or_insert_default().insert(label::AGENT_NODE.to_owned(), self.node.clone());
        let annotations = metadata.annotations.get_or_insert_default();
        annotations.insert(annotation::AGENT_URL.to_owned(), self.url.clone());
        match self.network.borrow().uplink(false, None) {
            Ok(_) => annotations.remove(annotation::UNABLE),
            Err(unable) => annotations.insert(annotation::UNABLE.to_owned(), unable.to_string()),
        };
        let now = MicroTime(Timestamp::now());
        let taken_over = old.holder_identity.as_deref() != Some(&*self.identity());
        let transitions = old.lease_transitions.unwrap_or_default() + i32::from(taken_over && seen.is_some());
        Lease {
            metadata,
            spec: Some(LeaseSpec {
                holder_identity: Some(self.identity()),
                lease_duration_seconds: i32::try_from(self.timings.take_over().as_secs()).ok(),
                acquire_time: old.acquire_time.filter(|_| !taken_over).or_else(|| Some(now.clone())),
                renew_time: Some(now),
                lease_transitions: Some(transitions),
                ..LeaseSpec::default()
            }),
        }
    }

    /// Says that this node holds nothing any more, so that nobody waits for it.
    async fn give_back(&self, held: Option<Lease>) {
        let Some(mut lease) = held else { return };
        if let Some(spec) = &mut lease.spec {
            spec.holder_identity = Some(String::new());
        }
        let name = lease::of_node(&self.node);
        match timeout(FAREWELL, self.leases.replace(&name, &PostParams::default(), &lease)).await {
            Ok(Ok(_)) => info!("Lease given back"),
            Ok(Err(error)) => warn!(%error, "Lease not given back; it runs out by itself"),
            Err(_) => warn!("Lease not given back: no answer; it runs out by itself"),
        }
    }
}

async fn until_uplink_differs(network: &mut watch::Receiver<Arc<Network>>, told: Option<Unable>) {
    let differs = network.wait_for(|network| network.uplink(false, None).err() != told).await.is_ok();
    if !differs {
        // Nobody looks any more: the process is on its way out.
        std::future::pending::<()>().await;
    }
}

fn holder(lease: &Lease) -> Option<&str> {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref())
}
