//! Somebody who keeps to the controller's part of the agreement: see `groundcrew_api::floating_ip`.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use groundcrew_api::floating_ip::FloatingIP;
use groundcrew_api::names::{annotation, lease};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::time::MissedTickBehavior;
use tokio_util::task::AbortOnDropHandle;

use crate::lab::Lab;

/// What agents say with default timings.
const TAKE_OVER: Duration = Duration::from_secs(8);

struct Mover {
    floating_ips: Api<FloatingIP>,
    leases: Api<Lease>,
    name: String,
    nodes: Vec<String>,
    seen: BTreeMap<String, (Option<LeaseSpec>, Instant)>,
    /// When most Leases were late last.
    braked: Option<Instant>,
}

/// Moves the address of this lab whenever its holder is silent for too long, has stopped in order or cannot hold it.
pub(crate) fn start(lab: &Lab) -> AbortOnDropHandle<()> {
    let client: Client = lab.client.clone();
    let mut mover = Mover {
        floating_ips: Api::all(client.clone()),
        leases: Api::namespaced(client, &lab.namespace),
        name: FloatingIP::name_of(lab.address),
        nodes: (0..lab.wire.nodes.len()).map(|node| lab.name(node)).collect(),
        seen: BTreeMap::new(),
        braked: None,
    };
    AbortOnDropHandle::new(tokio::spawn(async move {
        // That a Lease is late is told by the time alone.
        let mut looks = tokio::time::interval(Duration::from_millis(100));
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            looks.tick().await;
            // An API server that does not answer is looked at again later.
            let _ = mover.look().await;
        }
    }))
}

#[derive(PartialEq, Clone, Copy)]
enum State {
    Alive,
    Late,
    Silent,
    Free,
    Unable,
}

impl Mover {
    async fn look(&mut self) -> kube::Result<()> {
        let object = self.floating_ips.get(&self.name).await?;
        // Later than the object: see the agreement.
        let mut states = BTreeMap::new();
        for node in self.nodes.clone() {
            if let Some(state) = self.state(&node).await? {
                states.insert(node, state);
            }
        }
        let late = states.values().filter(|state| matches!(state, State::Late | State::Silent)).count();
        if 2 * late > states.len() {
            self.braked = Some(Instant::now());
        }
        // Patience begins anew when the brake is lifted: those that are back first must not inherit from the others.
        if self.braked.is_some_and(|braked| braked.elapsed() < TAKE_OVER) {
            return Ok(());
        }
        let claimed = object.status.as_ref().and_then(|status| status.holder.clone());
        let wanted = object.spec.holder.clone().unwrap_or_default();
        let Some(state) = states.get(claimed.as_ref().unwrap_or(&wanted)).copied() else { return Ok(()) };
        let evicted = matches!(state, State::Silent | State::Free).then(|| claimed.clone()).flatten();
        let moving = claimed.as_ref().is_some_and(|claimed| *claimed != wanted);
        let due = match state {
            State::Alive | State::Late => false,
            State::Unable => !moving,
            State::Silent | State::Free => evicted != object.spec.evicted || evicted.is_none(),
        };
        let Some((next, _)) = states.iter().find(|(_, state)| **state == State::Alive).filter(|_| due) else {
            return Ok(());
        };
        let patch = json!({
            "metadata": { "resourceVersion": object.metadata.resource_version },
            "spec": { "holder": next, "serial": object.spec.serial + 1, "evicted": evicted },
        });
        self.floating_ips.patch(&self.name, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
    }

    async fn state(&mut self, node: &str) -> kube::Result<Option<State>> {
        let Some(lease) = self.leases.get_opt(&lease::of_node(node)).await? else { return Ok(None) };
        let now = Instant::now();
        let sighting = self.seen.entry(node.to_owned()).or_insert_with(|| (lease.spec.clone(), now));
        if sighting.0 != lease.spec {
            *sighting = (lease.spec.clone(), now);
        }
        let spec = lease.spec.unwrap_or_default();
        let duration = Duration::from_secs(spec.lease_duration_seconds.unwrap_or_default().cast_unsigned().into());
        let age = now.duration_since(sighting.1);
        let unable = lease.metadata.annotations.is_some_and(|all| all.contains_key(annotation::UNABLE));
        Ok(Some(match () {
            () if spec.holder_identity.unwrap_or_default().is_empty() => State::Free,
            () if age >= duration => State::Silent,
            () if age >= duration / 2 => State::Late,
            () if unable => State::Unable,
            () => State::Alive,
        }))
    }
}
