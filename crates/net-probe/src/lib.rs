//! Asks the pods of other nodes over the pod network whether they are there, and writes down who is not.
//!
//! ```text
//!  EndpointSlices --watch--> peers --a few each--> ask over HTTP --> tally --> Lease of this node
//! ```
//!
//! `peers` and `tally` are pure. A probe accuses nobody: what several probes say about one node is for `groundcrew flight`
//! to judge. It answers others with the admin port that every controller has, and needs no right on its node.

mod args;
mod ask;
mod metrics;
mod peers;
mod report;
mod tally;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use groundcrew_core::metrics::Register;
use groundcrew_core::runtime::{Runtime, RuntimeArgs, StartError};
use groundcrew_core::watch::follow;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use tokio::sync::watch;

pub use args::Args;

use ask::Asker;
use metrics::Metrics;
use peers::{Peers, Slices};
use report::Reporter;
use tally::Tally;

const PEERS: &str = "the list of other probes";

/// Every node has a probe of its own: there is nobody to elect, and nothing outside to mark.
#[must_use]
pub fn one_per_node(runtime: RuntimeArgs) -> RuntimeArgs {
    let cluster_id = runtime.cluster_id.or_else(|| Some("net-probe".to_owned()));
    RuntimeArgs { cluster_id, no_leader_election: true, ..runtime }
}

/// Describes the metrics of the probe.
pub fn describe(register: &dyn Register) -> prometheus::Result<()> {
    Metrics::new(register).map(drop)
}

/// Starts the probe on this runtime. Returns at once; what is still missing is told by `/readyz`.
#[allow(clippy::unused_async, reason = "the signature that every controller of the binary has")]
pub async fn start(runtime: &Runtime, args: Args) -> Result<(), StartError> {
    let (found, peers) = watch::channel(Arc::new(Peers::new()));
    let slices: Api<EndpointSlice> = Api::namespaced(runtime.client.clone(), &namespace(runtime));
    let sink = Slices::new(args.service.clone(), found);
    runtime.ready.wait_for(PEERS, "");
    let (ready, stop) = (runtime.ready.clone(), runtime.tasks.stop().clone());
    runtime.tasks.spawn("peers", follow(slices, PEERS, sink, ready, stop));
    rounds(runtime, args, peers)
}

/// That of the Service and of the Leases.
fn namespace(runtime: &Runtime) -> String {
    runtime.about.namespace.clone().unwrap_or_else(|| "default".into())
}

fn rounds(runtime: &Runtime, args: Args, peers: watch::Receiver<Arc<Peers>>) -> Result<(), StartError> {
    let rounds = Rounds {
        asker: Asker::new(args.timeout)?,
        tally: Tally::new(args.failures),
        reporter: Reporter::new(runtime, &namespace(runtime), &args),
        metrics: Metrics::new(&runtime.registry)?,
        peers,
        args,
    };
    let runtime_ = runtime.clone();
    runtime.tasks.spawn("rounds", async move {
        let stop = runtime_.tasks.stop().clone();
        stop.run_until_cancelled(rounds.run(&runtime_)).await;
    });
    Ok(())
}

struct Rounds {
    args: Args,
    asker: Asker,
    tally: Tally,
    reporter: Reporter,
    metrics: Metrics,
    peers: watch::Receiver<Arc<Peers>>,
}

impl Rounds {
    async fn run(mut self, runtime: &Runtime) {
        // Whoever knows no others would report that it reaches everybody.
        runtime.ready.until_done(&[PEERS]).await;
        loop {
            let peers = self.peers.borrow().clone();
            let neighbours = peers::neighbours(&peers, &self.args.node_name, self.args.peers);
            let answers = self.asker.ask(&neighbours).await;
            self.tally.count(answers);
            self.metrics.show(&self.tally);
            let term = runtime.role.borrow().term().cloned();
            if let Some(term) = term {
                self.reporter.report(&self.tally, &term).await;
            }
            // Spread out, so that the probes of many nodes do not ask one at once.
            tokio::time::sleep(self.args.interval.mul_f64(rand::random_range(0.9..1.1))).await;
        }
    }
}
