//! Removes routes to pods that are left on a router when their Node is gone.
//!
//! ```text
//!  Nodes --list--> desired --+
//!                            +--> findings --sightings--> plan --> apply --> the cloud
//!  the cloud --observe-------+                              |
//!      ^                                                    +--> conditions, Events, metrics
//!      +--------- the next pass looks again
//! ```
//!
//! [`desired`], [`findings`], [`sightings`], [`headroom`] and [`plan`] are pure; [`apply`] is the only writer.
//! [`collector`] is all of it without Kubernetes.

pub mod apply;
mod args;
pub mod collector;
mod conditions;
mod controller;
pub mod desired;
pub mod findings;
pub mod headroom;
mod metrics;
pub mod nodes;
pub mod observe;
pub mod plan;
pub mod rules;
pub mod sightings;
mod status;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use groundcrew_core::leader::Role;
use groundcrew_core::metrics::Register;
use groundcrew_core::page::Reading;
use groundcrew_core::provider::{Instances, Ports, Routes};
use groundcrew_core::runtime::{Runtime, StartError};
use tokio::sync::watch;

pub use args::Args;

use collector::Collector;
use conditions::Conditions;
use controller::{Controller, Next};
use metrics::Metrics;
use status::Status;

const FIRST_LOOK: &str = "a first look at the cloud";

/// After a write, and while the cloud cannot be looked at for the first time.
const SOON: Duration = Duration::from_secs(15);

/// Describes the metrics of the controller.
pub fn describe(register: &dyn Register) -> prometheus::Result<()> {
    Metrics::new(register).map(drop)
}

/// Starts the collector on this runtime. Returns at once; what is still missing is told by `/readyz`.
#[allow(clippy::unused_async, reason = "the signature that every controller of the binary has")]
pub async fn start<C>(runtime: &Runtime, args: Args, cloud: Arc<C>) -> Result<(), StartError>
where
    C: Routes + Ports + Instances,
{
    let metrics = Metrics::new(&runtime.registry)?;
    let rules = args.rules();
    let controller = Controller {
        runtime: runtime.clone(),
        collector: Collector::new(cloud, args.router, rules),
        status: Status {
            events: runtime.events.clone(),
            about: runtime.about.clone(),
            metrics,
            last: Conditions::new(),
            told: Conditions::new(),
        },
    };
    runtime.ready.wait_for(FIRST_LOOK, "");
    let (runtime_, interval) = (runtime.clone(), args.interval);
    runtime.tasks.spawn("passes", async move {
        let (stop, role) = (runtime_.tasks.stop().clone(), runtime_.role.clone());
        stop.run_until_cancelled(run(controller, &runtime_, role, interval)).await;
    });
    Ok(())
}

/// Passes until the end. A follower looks once, so that what is wrong with its configuration shows before it has to lead;
/// a dry run looks as a leader does.
async fn run<C>(mut controller: Controller<C>, runtime: &Runtime, mut role: watch::Receiver<Role>, interval: Duration)
where
    C: Routes + Ports + Instances,
{
    let mut looked = false;
    let reading = Reading::default();
    let shown = reading.clone();
    runtime.board.show_connection("OpenStack", move || shown.shown());
    loop {
        let term = role.borrow_and_update().term().cloned();
        let mut pause = interval;
        if term.is_some() || runtime.dry_run || !looked {
            let next = controller.pass(term.as_ref()).await;
            if next.is_ok() {
                looked = true;
                runtime.ready.done(FIRST_LOOK);
                reading.succeeded();
            } else {
                runtime.ready.explain(FIRST_LOOK, controller.status.reason());
                reading.failed(controller.status.reason());
            }
            // What a list of ours may have cost somebody is not to wait, also where this look has failed.
            if next == Ok(Next::Soon) || !looked || controller.collector.owes() {
                pause = SOON.min(interval);
            }
        }
        if term.is_none() && !runtime.dry_run {
            controller.status.metrics.forget();
        }
        // Spread out, so that the collectors of many clusters do not ask one cloud at once.
        let pause = pause.mul_f64(rand::random_range(0.9..1.1));
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            // Whoever begins to lead has seen nothing in a row.
            Ok(()) = role.changed() => controller.collector.forget(),
        }
    }
}
