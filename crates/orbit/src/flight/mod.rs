//! Finds Nodes that lost their traffic or themselves, and brings them back.
//!
//! ```text
//!  Nodes --list----> fleet --> ladder --+
//!                      ^                +--> plan --> apply --> the cloud
//!  the cloud --observe-+--> security ---+      |
//!  NodeRepairs --------+                       +--> NodeRepairs, Events, metrics
//! ```
//!
//! [`fleet`], [`ladder`], [`security`], [`routes`] and [`plan`] are pure; `apply` is the only writer.

mod apply;
mod args;
pub mod fleet;
pub mod ladder;
mod memory;
pub mod nodes;
pub mod observe;
mod pass;
pub mod plan;
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
use groundcrew_core::provider::{Instances, Ports, Routes, SecurityGroups};
use groundcrew_core::runtime::{Runtime, StartError};
use tokio::sync::watch;

pub use args::Args;

use memory::Memory;
use pass::Flight;
use sightings::Sightings;
use status::Status;

const FIRST_LOOK: &str = "a first look at the cloud";

/// Starts the controller on this runtime. Returns at once; what is still missing is told by `/readyz`.
#[allow(clippy::unused_async, reason = "the signature that every controller of the binary has")]
pub async fn start<C>(runtime: &Runtime, args: Args, cloud: Arc<C>) -> Result<(), StartError>
where
    C: Instances + Ports + Routes + SecurityGroups,
{
    let interval = args.interval;
    let flight = Flight {
        cloud,
        client: runtime.client.clone(),
        settings: args.settings(),
        memory: Memory::new(runtime.client.clone(), runtime.write_deadline),
        status: Status::new(runtime.events.clone(), runtime.about.clone(), &runtime.registry)?,
        steady_since: None,
        sightings: Sightings::default(),
    };
    runtime.ready.wait_for(FIRST_LOOK, "");
    let runtime_ = runtime.clone();
    runtime.tasks.spawn("passes", async move {
        let (stop, role) = (runtime_.tasks.stop().clone(), runtime_.role.clone());
        stop.run_until_cancelled(run(flight, &runtime_, role, interval)).await;
    });
    Ok(())
}

/// Passes until the end. A follower looks too: when it has to lead, it must know how long the API server has answered.
async fn run<C>(mut flight: Flight<C>, runtime: &Runtime, mut role: watch::Receiver<Role>, interval: Duration)
where
    C: Instances + Ports + Routes + SecurityGroups,
{
    loop {
        let term = role.borrow_and_update().term().cloned();
        match flight.pass(term.as_ref()).await {
            Ok(()) => runtime.ready.done(FIRST_LOOK),
            Err(()) => runtime.ready.explain(FIRST_LOOK, flight.status.reason()),
        }
        // Spread out, so that the controllers of many clusters do not ask one cloud at once.
        let pause = interval.mul_f64(rand::random_range(0.9..1.1));
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            Ok(()) = role.changed() => {}
        }
    }
}
