//! Node agents without nodes: they keep to what `FloatingIP` asks of an agent, and touch no interface.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use groundcrew_api::floating_ip::FloatingIP;
use groundcrew_api::names::{label, lease};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tokio_util::task::AbortOnDropHandle;

const BEAT: Duration = Duration::from_millis(150);

/// Stops with the test.
pub(crate) struct Agents {
    state: Arc<Mutex<State>>,
    _beating: AbortOnDropHandle<()>,
}

#[derive(Default)]
struct State {
    nodes: BTreeSet<String>,
    /// They live, and say nothing about addresses.
    mute: bool,
}

struct Beat {
    leases: Api<Lease>,
    addresses: Api<FloatingIP>,
    cluster: String,
}

impl Agents {
    pub(crate) fn start(client: &Client, namespace: &str, cluster: &str) -> Self {
        let state = Arc::new(Mutex::new(State::default()));
        let beat = Beat {
            leases: Api::namespaced(client.clone(), namespace),
            addresses: Api::all(client.clone()),
            cluster: cluster.to_owned(),
        };
        let shared = state.clone();
        let beating = tokio::spawn(async move {
            let mut beats = tokio::time::interval(BEAT);
            for count in 0_u64.. {
                beats.tick().await;
                let (nodes, mute) = {
                    let state = shared.lock().unwrap();
                    (state.nodes.clone(), state.mute)
                };
                for node in &nodes {
                    beat.renew(node, count).await;
                }
                if !mute {
                    beat.hold(&nodes).await;
                }
            }
        });
        Self { state, _beating: AbortOnDropHandle::new(beating) }
    }

    pub(crate) fn live(&self, node: &str) {
        self.state.lock().unwrap().nodes.insert(node.to_owned());
    }

    /// As a node that lost its power.
    pub(crate) fn die(&self, node: &str) {
        self.state.lock().unwrap().nodes.remove(node);
    }

    pub(crate) fn mute(&self, mute: bool) {
        self.state.lock().unwrap().mute = mute;
    }
}

impl Beat {
    async fn renew(&self, node: &str, count: u64) {
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": lease::of_node(node) },
            "spec": { "holderIdentity": "run-1", "leaseDurationSeconds": 3, "leaseTransitions": count % 1_000_000 },
        });
        let params = PatchParams::apply("agent").force();
        // The API server may be gone for a moment, as a test wants it.
        let _ = self.leases.patch(&lease::of_node(node), &params, &Patch::Apply(lease)).await;
    }

    async fn hold(&self, nodes: &BTreeSet<String>) {
        let ours = ListParams::default().labels(&format!("{}={}", label::CLUSTER, self.cluster));
        let Ok(addresses) = self.addresses.list(&ours).await else { return };
        for object in addresses {
            let claimed = object.status.as_ref().and_then(|status| status.holder.clone());
            let wanted = object.spec.holder.clone();
            let there = object.status.as_ref().is_some_and(|s| s.serial == object.spec.serial && s.holder == wanted);
            match (&claimed, &wanted) {
                (Some(node), _) if nodes.contains(node) && claimed != wanted => self.say(&object, None).await,
                (_, Some(node)) if nodes.contains(node) && !there => {
                    let free = claimed.is_none() || claimed == wanted || claimed == object.spec.evicted;
                    if free {
                        self.say(&object, Some(node)).await;
                    }
                }
                _ => {}
            }
        }
    }

    async fn say(&self, object: &FloatingIP, holder: Option<&String>) {
        let ready = |status: &str| -> Value {
            json!([{ "type": "Ready", "status": status, "reason": "Announced", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z" }])
        };
        let status = json!({
            "holder": holder, "serial": object.spec.serial,
            "conditions": ready(if holder.is_some() { "True" } else { "False" }),
        });
        let patch = json!({ "metadata": { "resourceVersion": object.resource_version() }, "status": status });
        let _ = self.addresses.patch_status(&object.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await;
    }
}
