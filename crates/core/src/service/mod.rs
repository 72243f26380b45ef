//! The one Service controller. A provider plugs in as [`LoadBalancers`].
//!
//! ```text
//! Service, EndpointSlice --watch--> cache --key--> queue --> desired --> verify --> hold, ensure --> status
//!                                                    ^                                  |
//!                                                    +---- keys <---- changes() <-------+
//! ```

mod cache;
mod class;
mod company;
mod desired;
mod drift;
mod gaps;
mod legacy;
mod metrics;
pub mod names;
mod object;
mod orphans;
mod pending;
mod preview;
mod reconcile;
mod scan;
mod sharing;
mod status;
#[cfg(test)]
mod tests;
mod view;
mod wire;
mod worker;

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use kube::Api;
use tokio::sync::watch;
use tracing::warn;

use crate::drift::DriftMetrics;
use crate::key::ServiceKey;
use crate::leader::Term;
use crate::metrics::Register;
use crate::provider::LoadBalancers;
use crate::queue::Queue;
use crate::runtime::{Runtime, StartError, duration, interval};
use crate::watch::follow;
use cache::{Cache, Hints, ServiceSink, SliceSink};
use class::Class;
use drift::Drifts;
use gaps::Gaps;
use metrics::ServiceMetrics;
use object::Reads;
use orphans::Caution;
use pending::Pending;
use reconcile::Reconciler;
use scan::Scan;
use worker::Worker;

const SERVICES: &str = "the cache of Services";
const SLICES: &str = "the cache of EndpointSlices";
const PROVIDER: &str = "the provider";

/// Flags of every controller that serves Services.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Service options")]
pub struct ServiceArgs {
    /// Serve Services without a loadBalancerClass too. Only one controller of a cluster may
    #[arg(long, env = "GROUNDCREW_TAKE_CLASSLESS")]
    pub take_classless: bool,

    /// How often everything is compared, whatever the events say
    #[arg(long, env = "GROUNDCREW_SCAN_INTERVAL", value_name = "TIME", default_value = "10m", value_parser = interval)]
    pub scan_interval: Duration,

    /// Report what somebody else changes outside, and do not put it right. New Services are served all the same
    #[arg(long, env = "GROUNDCREW_REPORT_ONLY")]
    pub report_only: bool,

    /// How long a thing outside must have had no Service before it is removed
    #[arg(long, env = "GROUNDCREW_ORPHAN_AGE", value_name = "TIME", default_value = "10m", value_parser = duration)]
    pub orphan_age: Duration,

    /// How many such things may be removed in one scan; beyond it none is, and a metric tells
    #[arg(long, env = "GROUNDCREW_ORPHAN_LIMIT", value_name = "COUNT", default_value = "10")]
    pub orphan_limit: usize,
}

/// Describes the metrics of the controller.
pub fn describe(register: &dyn Register) -> prometheus::Result<()> {
    let nobody = watch::channel(None).1;
    ServiceMetrics::new(register, &nobody)?;
    DriftMetrics::new(register, &[])?;
    register.register(Box::new(Pending::new(nobody)?))
}

/// Starts the controller for one class on this runtime.
pub fn start<P>(runtime: &Runtime, class: &str, args: &ServiceArgs, provider: &Arc<P>) -> Result<(), StartError>
where
    P: LoadBalancers,
{
    let (begun, term) = watch::channel(None);
    let metrics = ServiceMetrics::new(&runtime.registry, &term)?;
    let queue = Arc::new(Queue::<ServiceKey>::default());
    let class = Class { name: class.into(), classless: args.take_classless };
    let wake = {
        let queue = queue.clone();
        Box::new(move |key| queue.add(key))
    };
    let kept = Reads { annotations: provider.annotation_prefixes(), finalizers: provider.takes_over() };
    let named = {
        let provider = provider.clone();
        Box::new(move |annotations: &_| provider.named_address(annotations))
    };
    let beside = {
        let provider = provider.clone();
        Box::new(move |owner: &_| provider.beside(owner, None))
    };
    let cache = Arc::new(Cache::new(class.clone(), kept, Hints { named, beside }, wake));
    let (cache_, class_) = (cache.clone(), class.clone());
    runtime.board.show_services(move || view::services(&cache_, &class_));
    let pending = Pending::new(term.clone())?;
    runtime.registry.register(Box::new(pending.clone()))?;
    let (drifts, reporter) = Drifts::new(provider.attribution(), args.report_only, runtime, &term)?;
    let reconciler = Arc::new(Reconciler {
        provider: provider.clone(),
        cache: cache.clone(),
        class,
        client: runtime.client.clone(),
        events: runtime.events.clone(),
        board: runtime.board.clone(),
        metrics: metrics.clone(),
        term,
        write_deadline: runtime.write_deadline,
        dry_run: runtime.dry_run,
        drifts,
        gaps: Gaps::default(),
        pending,
    });
    let caution = Caution { age: args.orphan_age, limit: args.orphan_limit };

    for what in [SERVICES, SLICES, PROVIDER] {
        runtime.ready.wait_for(what, "");
    }
    let (client, ready, stop) = (&runtime.client, &runtime.ready, runtime.tasks.stop());
    let services =
        follow(Api::all(client.clone()), SERVICES, ServiceSink::new(cache.clone()), ready.clone(), stop.clone());
    runtime.tasks.spawn("Service watch", services);
    let slices = follow(Api::all(client.clone()), SLICES, SliceSink::new(cache.clone()), ready.clone(), stop.clone());
    runtime.tasks.spawn("EndpointSlice watch", slices);
    runtime.tasks.spawn("terms", lead(runtime.clone(), provider.clone(), cache, queue.clone(), begun));

    let concurrency = provider.concurrency().max(1);
    let (runtime_, provider, queue_, reconciler_) =
        (runtime.clone(), provider.clone(), queue.clone(), reconciler.clone());
    runtime.tasks.spawn("Service queue", async move {
        let stop = runtime_.tasks.stop();
        let changes = provider.changes();
        let synced = async {
            provider.synced().await;
            runtime_.ready.done(PROVIDER);
            runtime_.ready.until_done(&[SERVICES, SLICES]).await;
        };
        if stop.run_until_cancelled(synced).await.is_none() {
            return;
        }
        Worker { reconciler: &reconciler_, queue: &queue_, concurrency }.run(changes, stop).await;
    });
    runtime.tasks.spawn("drift reports", reporter.run(stop.clone()));

    let (interval, stop) = (args.scan_interval, stop.clone());
    runtime.tasks.spawn("full scan", async move {
        Scan { reconciler: &reconciler, queue: &queue, interval, caution }.run(&stop).await;
    });
    Ok(())
}

/// Begins each term that this process wins: living addresses first, then everything is looked at once.
async fn lead<P: LoadBalancers>(
    runtime: Runtime,
    provider: Arc<P>,
    cache: Arc<Cache>,
    queue: Arc<Queue<ServiceKey>>,
    begun: watch::Sender<Option<Term>>,
) {
    let stop = runtime.tasks.stop();
    let mut role = runtime.role.clone();
    let leading = async {
        runtime.ready.until_done(&[SERVICES, SLICES, PROVIDER]).await;
        loop {
            let term = role.borrow_and_update().term().cloned();
            if let Some(term) = term
                && begin(&*provider, &cache, &term).await
            {
                begun.send_replace(Some(term.clone()));
                queue.add_all(cache.keys());
                term.over().await;
                begun.send_replace(None);
            }
            if role.changed().await.is_err() {
                // The campaign has ended, so nothing will change any more.
                std::future::pending::<()>().await;
            }
        }
    };
    let _: Option<()> = stop.run_until_cancelled(leading).await;
}

/// Whether the term began before it was over.
async fn begin<P: LoadBalancers>(provider: &P, cache: &Cache, term: &Term) -> bool {
    let trying = async {
        let disputed = term.disputed();
        // Where something is served, somebody has led before.
        if !disputed.is_zero() && !cache.living().is_empty() {
            warn!(wait = ?disputed, "Services are served and there was no lease: somebody may lead without it, so not yet");
            tokio::time::sleep(disputed).await;
        }
        let mut pause = Duration::from_millis(50);
        while let Err(error) = provider.begin(term, &cache.living()).await {
            warn!(%error, "cannot begin to lead; trying again");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(2));
        }
    };
    tokio::select! {
        () = trying => true,
        () = term.over() => false,
    }
}
