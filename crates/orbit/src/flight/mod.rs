//! Finds Nodes that lost their traffic or themselves, and brings them back.
//!
//! ```text
//!  Nodes --list----> fleet --> ladder --+
//!                      ^                +--> plan --> apply --> the cloud
//!  the cloud --observe-+--> security ---+      |
//!  NodeRepairs --------+                       +--> NodeRepairs, Events, metrics
//! ```
//!
//! [`fleet`], [`ladder`], [`security`], [`routes`], [`push`], [`conditions`] and [`plan`] are pure; `apply` is the only writer.

mod apply;
mod args;
pub mod conditions;
pub mod fleet;
pub mod hook;
pub mod ladder;
mod memory;
mod metrics;
pub mod nodes;
pub mod observe;
mod pass;
pub mod plan;
pub mod probes;
pub mod push;
pub mod routes;
pub mod security;
pub mod settings;
mod sightings;
mod status;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use groundcrew_core::leader::Role;
use groundcrew_core::metrics::Register;
use groundcrew_core::page::Reading;
use groundcrew_core::provider::{Access, Instances, Ports, Routes, SecurityGroups};
use groundcrew_core::runtime::{Runtime, StartError};
use groundcrew_core::watch::follow;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout};

pub use args::Args;

use memory::Memory;
use pass::Flight;
use push::Pace;
use sightings::Sightings;
use status::Status;

use crate::wake::Wake;

const NODES: &str = "the list of Nodes";
/// For the first of them.
const PATIENCE: Duration = Duration::from_secs(10);
/// After a pass that could not look at everything.
const SOON: Duration = Duration::from_secs(15);
/// What happens within it is looked at together.
const SETTLE: Duration = Duration::from_secs(1);
/// The longest rest before a pass for Nodes that changed.
const REST: Duration = Duration::from_secs(10);

const FIRST_LOOK: &str = "a first look at the cloud";

/// Describes the metrics of the controller.
pub fn describe(register: &dyn Register) -> prometheus::Result<()> {
    metrics::Metrics::new(register).map(drop)
}

/// Starts the controller on this runtime. Returns at once; what is still missing is told by `/readyz`.
#[allow(clippy::unused_async, reason = "the signature that every controller of the binary has")]
pub async fn start<C>(runtime: &Runtime, args: Args, cloud: Arc<C>) -> Result<(), StartError>
where
    C: Access + Instances + Ports + Routes + SecurityGroups,
{
    let interval = args.interval;
    let flight = Flight {
        cloud,
        client: runtime.client.clone(),
        runtime: runtime.clone(),
        settings: args.settings()?,
        memory: Memory::new(runtime.client.clone(), runtime.write_deadline),
        status: Status::new(runtime.events.clone(), runtime.about.clone(), &runtime.registry)?,
        steady_since: None,
        sightings: Sightings::default(),
        unready: Sightings::default(),
        unreached: Sightings::default(),
        pace: Pace::default(),
        doubts: Vec::new(),
    };
    let wake = Wake::new(mark);
    let woken = wake.notify.clone();
    let nodes: Api<Node> = Api::all(runtime.client.clone());
    let (ready, stop) = (runtime.ready.clone(), runtime.tasks.stop().clone());
    runtime.ready.wait_for(NODES, "");
    runtime.tasks.spawn("nodes", follow(nodes, NODES, wake, ready, stop));
    runtime.ready.wait_for(FIRST_LOOK, "");
    let runtime_ = runtime.clone();
    runtime.tasks.spawn("passes", async move {
        let (stop, role) = (runtime_.tasks.stop().clone(), runtime_.role.clone());
        stop.run_until_cancelled(run(flight, &runtime_, role, &woken, interval)).await;
    });
    Ok(())
}

/// The heartbeat of a Node is no reason to look.
fn mark(node: Node) -> (String, impl Clone + PartialEq + Send) {
    let nodes::Node { name, uid, server, unready_since, .. } = node.into();
    (name, (uid, server, unready_since.is_none()))
}

/// Passes until the end. A follower looks too: when it has to lead, it must know how long the API server has answered.
async fn run<C>(
    mut flight: Flight<C>,
    runtime: &Runtime,
    mut role: watch::Receiver<Role>,
    woken: &Notify,
    interval: Duration,
) where
    C: Access + Instances + Ports + Routes + SecurityGroups,
{
    // What the first list of the watch shows is no news to a pass that comes after it.
    if timeout(PATIENCE, runtime.ready.until_done(&[NODES])).await.is_ok() {
        let _ = timeout(Duration::ZERO, woken.notified()).await;
    }
    let reading = Reading::default();
    let shown = reading.clone();
    runtime.board.show_connection("OpenStack", move || shown.shown());
    loop {
        let term = role.borrow_and_update().term().cloned();
        let began = Instant::now();
        let passed = flight.pass(term.as_ref()).await;
        if passed.is_ok() {
            runtime.ready.done(FIRST_LOOK);
            reading.succeeded();
        } else {
            runtime.ready.explain(FIRST_LOOK, flight.status.reason());
            reading.failed(flight.status.reason());
        }
        let pause = if passed.is_ok() { interval } else { interval.min(SOON) };
        // Spread out, so that the controllers of many clusters do not ask one cloud at once.
        let pause = pause.mul_f64(rand::random_range(0.9..1.1));
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = wake_up(woken, began.elapsed()) => {}
            Ok(()) = role.changed() => {}
        }
    }
}

/// A Node changed. Nodes that change all the time are no reason to ask the cloud all the time: after a pass it rests for as
/// long as that took.
async fn wake_up(woken: &Notify, took: Duration) {
    woken.notified().await;
    tokio::time::sleep(took.clamp(SETTLE, REST)).await;
}
