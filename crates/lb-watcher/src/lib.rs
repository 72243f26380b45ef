//! Sees every OVN load balancer that was changed behind its owner's back, says who did it, and has it repaired.
//!
//! [`start`] is the watcher on its own, for clusters that keep kube-dc's manager: it knows that manager's names, and
//! wakes it by an annotation. It only reads OVN. [`Attribution`] is the part that a controller which owns its rows uses
//! too: who made a change.
//!
//! ```text
//!  OVN --push--> replica --sighting--> Services to look at --verify, book--> drift? --request--> annotation
//!                                                ^                              |
//!  Service, EndpointSlice --watch--> cluster ----+                              +--report--> Events, log, metrics
//!  kube-ovn's pods and Lease --watch--> attribution ---------------------------^
//! ```
//!
//! `wanted`, `claim`, `verify`, `book`, `sighting`, `rounds` and the cause are pure.

mod args;
mod attribution;
mod book;
mod claim;
mod cluster;
mod metrics;
mod names;
mod northbound;
mod report;
mod request;
mod rounds;
mod scan;
mod sighting;
#[cfg(test)]
mod testing;
mod verify;
mod view;
mod wanted;
mod watcher;

use std::sync::{Arc, Mutex};

use groundcrew_core::metrics::Register;
use groundcrew_core::queue::Queue;
use groundcrew_core::runtime::{Runtime, RuntimeArgs, StartError};
use groundcrew_core::watch::follow;
use groundcrew_ovn::OVN;
use kube::Api;
use ovsdb_client::Replica;

pub use args::{Args, Trigger};
pub use attribution::{Attribution, AttributionArgs, LABELS};

use book::{Book, Patience};
use cluster::{Cluster, ServiceSink, SliceSink};
use metrics::Metrics;
use report::Reporter;
use request::Requests;
use view::View;
use wanted::Site;
use watcher::{State, Watcher};

const SERVICES: &str = "the cache of Services";
const SLICES: &str = "the cache of EndpointSlices";

/// Services that are looked at at once: each may wait for one write to the API server.
const CONCURRENCY: usize = 32;

/// The watcher marks nothing outside, so it need not know its cluster, nor have the right to find out.
#[must_use]
pub fn without_marks(runtime: RuntimeArgs) -> RuntimeArgs {
    RuntimeArgs { cluster_id: runtime.cluster_id.or_else(|| Some("lb-watcher".to_owned())), ..runtime }
}

/// Describes the metrics of the watcher.
pub fn describe(register: &dyn Register) -> prometheus::Result<()> {
    Metrics::new(register).map(drop)
}

/// Starts the watcher on this runtime. Returns at once; what is still missing is told by `/readyz`.
#[allow(clippy::unused_async, reason = "the signature that every controller of the binary has")]
pub async fn start(runtime: &Runtime, args: Args) -> Result<(), StartError> {
    let Trigger::Annotation = args.trigger;
    let metrics = Metrics::new(&runtime.registry)?;
    let queue = Arc::new(Queue::default());
    let wake = {
        let queue = queue.clone();
        Box::new(move |key| queue.add(key))
    };
    let cluster = Arc::new(Cluster::new(wake));
    let view = View { replica: Replica::open(args.connection.config()) };
    let patience = Patience { settle: args.settle_time, repair: args.repair_time };
    let watcher = Arc::new(Watcher {
        site: Site { router: args.ovn_router, switch: args.ovn_switch },
        cluster: cluster.clone(),
        view: view.clone(),
        queue: queue.clone(),
        attribution: Attribution::start(runtime, &args.attribution),
        reporter: Reporter { events: runtime.events.clone(), about: runtime.about.clone() },
        metrics: metrics.clone(),
        requests: Requests { client: runtime.client.clone(), deadline: runtime.write_deadline },
        role: runtime.role.clone(),
        settle: args.settle_time,
        report_only: args.report_only,
        runtime: runtime.clone(),
        state: Mutex::new(State::new(Book::new(patience))),
    });

    let needs = [SERVICES, SLICES, OVN];
    for what in needs {
        runtime.ready.wait_for(what, "");
    }
    let (client, ready, stop) = (&runtime.client, &runtime.ready, runtime.tasks.stop());
    let sink = ServiceSink::new(cluster.clone());
    runtime.tasks.spawn("Service watch", follow(Api::all(client.clone()), SERVICES, sink, ready.clone(), stop.clone()));
    let sink = SliceSink::new(cluster.clone());
    runtime
        .tasks
        .spawn("EndpointSlice watch", follow(Api::all(client.clone()), SLICES, sink, ready.clone(), stop.clone()));
    let all = {
        let (queue, cluster) = (queue.clone(), cluster.clone());
        move || queue.add_all(cluster.keys())
    };
    let ovn = view.replica.client().clone();
    let connection = groundcrew_ovn::follow(ovn, metrics.connected, ready.clone(), stop.clone(), all.clone());
    runtime.tasks.spawn("OVN connection", connection);
    let ovn = view.replica.client().clone();
    runtime.board.show_connection(OVN, move || groundcrew_ovn::shown(&ovn));

    // The rest begins when everything was read once: half a view is a false alarm.
    let (runtime_, watcher_) = (runtime.clone(), watcher.clone());
    runtime.tasks.spawn("watch", async move {
        let stop = runtime_.tasks.stop();
        if stop.run_until_cancelled(runtime_.ready.until_done(&needs)).await.is_none() {
            return;
        }
        tokio::join!(
            watcher_.listen(stop),
            queue.run(CONCURRENCY, stop, |key| watcher_.look(key)),
            scan::run(&watcher_, args.verify_interval, stop),
        );
    });

    let (mut role, stop) = (runtime.role.clone(), stop.clone());
    runtime.tasks.spawn("terms", async move {
        while let Some(Ok(())) = stop.run_until_cancelled(role.changed()).await {
            if role.borrow_and_update().term().is_some() {
                all();
            }
        }
        // The campaign may end before the process does.
        stop.cancelled().await;
    });
    Ok(())
}
