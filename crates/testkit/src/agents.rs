//! Node agents without nodes: they keep to what `FloatingIP` asks of an agent, and touch no interface.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use futures::stream;
use groundcrew_api::floating_ip::FloatingIP;
use groundcrew_api::names::{label, lease};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tokio::task::AbortHandle;
use tokio::time::{Instant, MissedTickBehavior};

/// How often they look at what they should hold.
const LOOK: Duration = Duration::from_millis(150);
/// So many are written at once, as by so many agents.
const TOGETHER: usize = 16;
/// The reason of a node that serves an address.
const HELD: &str = "Held";

/// Agents of any number of nodes. They stop when dropped.
#[derive(Debug)]
pub struct Agents {
    state: Arc<Mutex<State>>,
    /// Held during each round of writes.
    round: Arc<tokio::sync::Mutex<()>>,
    beating: AbortHandle,
}

#[derive(Debug, Clone, Default)]
struct State {
    nodes: BTreeSet<String>,
    /// They live, and say nothing about addresses.
    mute: bool,
    /// Nodes that have no interface for addresses.
    unable: BTreeSet<String>,
    /// Addresses that nodes have from their own configuration.
    foreign: BTreeSet<String>,
}

struct Beat {
    leases: Api<Lease>,
    addresses: Api<FloatingIP>,
    cluster: String,
    /// What the Leases promise, in seconds.
    lasts: u64,
}

impl Agents {
    /// Agents whose Leases are in `namespace` and last so many seconds, for the addresses of one cluster.
    #[must_use]
    pub fn start(client: &Client, namespace: &str, cluster: &str, lasts: u64) -> Self {
        let state = Arc::new(Mutex::new(State::default()));
        let beat = Beat {
            leases: Api::namespaced(client.clone(), namespace),
            addresses: Api::all(client.clone()),
            cluster: cluster.to_owned(),
            lasts,
        };
        let round = Arc::<tokio::sync::Mutex<()>>::default();
        let (shared, writing) = (state.clone(), round.clone());
        let beating = tokio::spawn(async move {
            let mut looks = tokio::time::interval(LOOK);
            looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            // A quarter of what is promised, as real ones do.
            let renew = Duration::from_secs(beat.lasts) / 4;
            let (mut renewed, mut known) = (None::<Instant>, BTreeSet::new());
            for count in 0_u64.. {
                looks.tick().await;
                let _round = writing.lock().await;
                let nodes = lock(&shared).nodes.clone();
                if known != nodes || renewed.is_none_or(|at| at.elapsed() >= renew) {
                    renewed = Some(Instant::now());
                    stream::iter(&nodes).for_each_concurrent(TOGETHER, |node| beat.renew(node, count)).await;
                    known = nodes;
                }
                beat.hold(&shared).await;
            }
        });
        Self { state, round, beating: beating.abort_handle() }
    }

    /// An agent runs on this node.
    pub fn live(&self, node: &str) {
        lock(&self.state).nodes.insert(node.to_owned());
    }

    /// As a node that lost its power.
    pub fn die(&self, node: &str) {
        lock(&self.state).nodes.remove(node);
    }

    /// Waits until nothing is under way any more that was begun before: who died has written for the last time.
    pub async fn quiet(&self) {
        drop(self.round.lock().await);
    }

    /// The node's interface for addresses is gone.
    pub fn lose_interface(&self, node: &str) {
        lock(&self.state).unable.insert(node.to_owned());
    }

    /// Every node has this address already, from its own configuration.
    pub fn configure(&self, address: IpAddr) {
        lock(&self.state).foreign.insert(address.to_string());
    }

    /// Whether they renew their Leases, and say nothing about addresses.
    pub fn mute(&self, mute: bool) {
        lock(&self.state).mute = mute;
    }
}

impl Drop for Agents {
    fn drop(&mut self) {
        self.beating.abort();
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Beat {
    async fn renew(&self, node: &str, count: u64) {
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": lease::of_node(node) },
            "spec": {
                "holderIdentity": "run-1", "leaseDurationSeconds": self.lasts, "leaseTransitions": count % 1_000_000,
            },
        });
        let params = PatchParams::apply("agent").force();
        // The API server may be gone for a moment, as a test wants it.
        let _ = self.leases.patch(&lease::of_node(node), &params, &Patch::Apply(lease)).await;
    }

    async fn hold(&self, state: &Mutex<State>) {
        if lock(state).mute {
            return;
        }
        let ours = ListParams::default().labels(&format!("{}={}", label::CLUSTER, self.cluster));
        let Ok(addresses) = self.addresses.list(&ours).await else { return };
        stream::iter(addresses).for_each_concurrent(TOGETHER, |object| self.look(object, state)).await;
    }

    async fn look(&self, object: FloatingIP, state: &Mutex<State>) {
        // By what is so now, not by what was so before the list was asked for: a test counts on what it has set.
        let answer = answer(&object, &lock(state));
        if let Some((holder, reason)) = answer {
            self.say(&object, holder.as_ref(), reason).await;
        }
    }

    async fn say(&self, object: &FloatingIP, holder: Option<&String>, reason: &str) {
        let ready = if reason == HELD { "True" } else { "False" };
        let status = json!({
            "holder": holder, "serial": object.spec.serial, "since": "2026-01-01T00:00:00Z",
            "conditions": [{
                "type": "Ready", "status": ready, "reason": reason, "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
        });
        let patch = json!({ "metadata": { "resourceVersion": object.resource_version() }, "status": status });
        let _ = self.addresses.patch_status(&object.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await;
    }
}

/// What the agents have to say about an address, if anything: who has it, and in which word.
fn answer(object: &FloatingIP, state: &State) -> Option<(Option<String>, &'static str)> {
    let claimed = object.status.as_ref().and_then(|status| status.holder.clone());
    let wanted = object.spec.holder.clone();
    let there = object.status.as_ref().is_some_and(|s| s.serial == object.spec.serial && s.holder == wanted);
    let answered = object.status.as_ref().is_some_and(|status| status.serial == object.spec.serial);
    let free = claimed.is_none() || claimed == wanted || claimed == object.spec.evicted;
    match (&claimed, &wanted) {
        _ if state.mute => None,
        (Some(node), _) if state.nodes.contains(node) && claimed != wanted => Some((None, "Released")),
        (Some(node), Some(_)) if state.nodes.contains(node) && state.unable.contains(node) => {
            Some((None, "NoInterface"))
        }
        (_, Some(node)) if state.nodes.contains(node) && state.unable.contains(node) && free && !answered => {
            Some((claimed.clone(), "NoInterface"))
        }
        (_, Some(node)) if state.nodes.contains(node) && !state.unable.contains(node) && !there && free => {
            let foreign = state.foreign.contains(&object.spec.address);
            Some((Some(node.clone()), if foreign { "AddressForeign" } else { HELD }))
        }
        _ => None,
    }
}
