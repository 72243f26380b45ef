//! Services of type `LoadBalancer` as OVN load balancers, on external addresses that stay.
//!
//! ```text
//!  AddressPool, EIp --watch--> addresses --hold---+
//!                                                 v
//!  Service, EndpointSlice --core--> Wanted --> desired --> plan --> commit --one transaction--> OVN
//!                                      ^                    ^                                    |
//!                                      +----- looks <-------+--------- replica <-----------------+
//! ```
//!
//! `desired`, `plan`, `looks` and the book of addresses are pure; `commit` is the only writer of OVN, `addresses` the only
//! writer of `EIp`s.

mod addresses;
mod args;
mod commit;
mod connection;
mod desired;
mod error;
mod fence;
mod health;
mod leftovers;
mod looks;
mod marks;
mod memo;
mod metrics;
mod northbound;
mod northd;
mod plan;
mod ports;
mod provider;
mod rows;
mod shift;
#[cfg(test)]
mod testing;
mod unseen;
mod view;
mod waiting;

use std::sync::Arc;

use groundcrew_core::drift::Attribute;
use groundcrew_core::runtime::{Runtime, StartError};
use groundcrew_core::service;
use groundcrew_core::watch::{Guarded, follow};
use kube::Api;
use ovsdb_client::Replica;
use tokio::sync::{broadcast, watch};

pub use args::{Args, Connection};
pub use desired::Template;
pub use leftovers::OvnLeftovers;
pub use rows::{RowsArgs, rows};

use addresses::{Addresses, EipSink, PoolSink, Rules};
use commit::Committer;
use connection::OVN;
use desired::Site;
use memo::Memos;
use metrics::Metrics;
use northd::Northd;
use ports::Ports;
use provider::Ovn;
use unseen::Unseen;
use view::View;
use waiting::Waiting;

const EIPS: &str = "the cache of EIps";
const POOLS: &str = "the cache of AddressPools";

/// Looks that nobody has taken yet; past it everything is looked at instead.
const MOST_LOOKS: usize = 16_384;

/// Starts the controller on this runtime. Returns at once; what is still missing is told by `/readyz`. `attribute` is
/// shown every change of OVN that takes something, and asked who made it when that was ours.
#[allow(clippy::unused_async, reason = "the signature that every controller of the binary has")]
pub async fn start(runtime: &Runtime, args: Args, attribute: Arc<dyn Attribute>) -> Result<(), StartError> {
    let metrics = Metrics::new(&runtime.registry)?;
    let view = View { replica: Replica::open(args.connection()) };
    let (waiting, ports) = (Waiting::default(), Arc::new(Ports::new(args.connection())));
    let looks = broadcast::Sender::new(MOST_LOOKS);
    let (cluster, deadline) = (runtime.cluster_id.clone(), runtime.write_deadline);
    let addresses = Arc::new(Addresses::new(
        runtime.client.clone(),
        cluster.clone(),
        Rules { network_type: args.network_type, rest: args.address_rest, serve_eips: args.serve_eips },
        deadline,
        looks.clone(),
    ));
    let northd = Northd::new(view.replica.clone(), looks.clone());
    let (committer, committing) =
        Committer::new(view.clone(), cluster.clone(), deadline, metrics.clone(), northd.clone());

    for what in [OVN, EIPS, POOLS] {
        runtime.ready.wait_for(what, "");
    }
    let (client, ready, stop) = (&runtime.client, &runtime.ready, runtime.tasks.stop());
    let sink = Guarded::new(EipSink::new(addresses.clone()), "eips", runtime)?;
    let eips = follow(Api::all(client.clone()), EIPS, sink, ready.clone(), stop.clone());
    runtime.tasks.spawn("EIp watch", eips);
    let sink = Guarded::new(PoolSink::new(addresses.clone()), "addresspools", runtime)?;
    let pools = follow(Api::all(client.clone()), POOLS, sink, ready.clone(), stop.clone());
    runtime.tasks.spawn("AddressPool watch", pools);
    let connection = connection::follow(view.replica.client().clone(), metrics, ready.clone(), stop.clone());
    runtime.tasks.spawn("OVN connection", connection);
    runtime.tasks.spawn("OVN commits", committing);
    runtime.tasks.spawn("OVN ports", ports.clone().follow(waiting.clone(), looks.clone(), stop.clone()));
    runtime.tasks.spawn("ovn-northd", northd.clone().follow(stop.clone()));
    let shifts = shift::follow(view.replica.clone(), cluster.clone(), attribute.clone(), stop.clone());
    runtime.tasks.spawn("OVN shifts", shifts);

    let avoiding = addresses::avoid(addresses.clone(), view.clone(), stop.clone());
    runtime.tasks.spawn("taken addresses", avoiding);

    let (begun, term) = watch::channel(None);
    runtime.tasks.spawn("EIp queue", addresses::serve(addresses.clone(), term.clone(), runtime.clone()));
    runtime.tasks.spawn("AddressPool status", addresses::report(addresses.clone(), term, runtime.clone()));

    let provider = Arc::new(Ovn {
        unseen: Unseen::default(),
        memos: Memos::default(),
        site: Site { cluster, router: args.ovn_router, switch: args.ovn_switch, take_over: args.take_over },
        view,
        committer,
        northd,
        addresses,
        begun,
        attribute,
        waiting,
        ports,
        health_check_sources: args.health_check_source,
        looks,
        ready: ready.clone(),
        needs: &[OVN, EIPS, POOLS],
    });
    service::start(runtime, &args.class, &args.service, &provider)
}
