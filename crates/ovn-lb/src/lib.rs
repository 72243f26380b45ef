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
mod affinity;
mod args;
mod commit;
mod contest;
mod desired;
mod error;
mod fence;
mod few;
mod health;
mod kube_ovn;
mod leftovers;
mod looks;
mod marks;
mod memo;
mod metrics;
mod northbound;
mod northd;
mod plan;
mod ports;
mod projects;
mod provider;
mod ranges;
mod rivals;
mod rows;
mod shift;
#[cfg(test)]
mod testing;
mod unseen;
mod view;
mod waiting;
mod ways;

use std::sync::Arc;
use std::time::Duration;

use groundcrew_core::drift::Attribute;
use groundcrew_core::leader::Term;
use groundcrew_core::metrics::Register;
use groundcrew_core::runtime::{Runtime, StartError};
use groundcrew_core::service;
use groundcrew_core::watch::{Guarded, follow};
use groundcrew_ovn::OVN;
use kube::Api;
use ovsdb_client::Replica;
use tokio::sync::{broadcast, watch};

pub use args::{Args, ReturnRoutes};
pub use kube_ovn::AddressSource;
pub use leftovers::OvnLeftovers;
pub use rows::{RowsArgs, rows};

use addresses::{Addresses, EipSink, NodeSink, PoolSink, Rules};
use commit::Committer;
use contest::Refused;
use desired::Site;
use kube_ovn::{KubeOvn, NamespaceSink, OvnEipSink, Rooms, SubnetSink, VpcSink, discover, write_routes};
use memo::{Memos, Plans};
use metrics::Metrics;
use northd::Northd;
use ports::Ports;
use projects::{ProjectSink, Projects};
use provider::{Closed, Ovn};
use shift::Evidence;
use unseen::Unseen;
use view::View;
use waiting::Waiting;

const EIPS: &str = "the cache of EIps";
const POOLS: &str = "the cache of AddressPools";
const NODES: &str = "the cache of Nodes";
const OVN_EIPS: &str = "the cache of OvnEips";
const SUBNETS: &str = "the cache of Subnets";
const NAMESPACES: &str = "the cache of Namespaces";
const VPCS: &str = "the cache of Vpcs";
const PROJECTS: &str = "the cache of Projects";

/// How long the first list of `EIp`s waits for an election that is won at once, because nobody else leads.
const ELECTION: Duration = Duration::from_millis(300);

/// Looks that nobody has taken yet; past it everything is looked at instead.
const MOST_LOOKS: usize = 16_384;

/// Describes the metrics of the controller.
pub fn describe(register: &dyn Register) -> prometheus::Result<()> {
    service::describe(register)?;
    groundcrew_core::watch::describe(register)?;
    Metrics::new(register).map(drop)
}

/// Starts the controller on this runtime. Returns once the API server has said what it serves; what is still missing then
/// is told by `/readyz`. `attribute` is shown every change of OVN that takes something, and asked who made it when that
/// was ours.
pub async fn start(runtime: &Runtime, args: Args, attribute: Arc<dyn Attribute>) -> Result<(), StartError> {
    args.check()?;
    let metrics = Metrics::new(&runtime.registry)?;
    let view = View { replica: Replica::open(args.connection.config()) };
    let (waiting, ports) = (Waiting::default(), Arc::new(Ports::new(args.connection.config())));
    let looks = broadcast::Sender::new(MOST_LOOKS);
    let (cluster, deadline) = (runtime.cluster_id.clone(), runtime.write_deadline);
    let Some(found) = discover(runtime, args.address_source).await? else { return Ok(()) };
    let projects = Projects::default();
    let rules = kube_ovn::Rules { take_over: args.take_over, write_routes: args.return_routes == ReturnRoutes::Write };
    let kube_ovn = found.kube_ovn.then(|| {
        let (client, events) = (runtime.client.clone(), runtime.events.clone());
        Arc::new(KubeOvn::new(client, cluster.clone(), deadline, events, view.clone(), rules))
    });
    let addresses = Arc::new(Addresses::new(
        runtime.client.clone(),
        cluster.clone(),
        Rules {
            network_type: args.network_type,
            projects: projects.clone(),
            kube_ovn: kube_ovn.clone(),
            from_pools: !found.addresses,
            rest: args.address_rest,
            serve_eips: args.serve_eips,
            take_over: args.take_over,
        },
        deadline,
        looks.clone(),
        metrics.pools.clone(),
    ));
    let northd = Northd::new(view.replica.clone(), looks.clone());
    let class = args.class.as_str().into();
    let (committer, committing) =
        Committer::new(view.clone(), cluster.clone(), class, deadline, metrics.clone(), northd.clone());

    let mut needs = vec![OVN, EIPS, POOLS, NODES];
    needs.extend(found.projects.then_some(PROJECTS));
    needs.extend(found.kube_ovn.then_some([OVN_EIPS, SUBNETS, VPCS, NAMESPACES]).into_iter().flatten());
    for what in &needs {
        runtime.ready.wait_for(what, "");
    }
    if found.projects {
        let sink = Guarded::new(ProjectSink::new(projects, addresses.clone()), "projects", runtime)?;
        let stop = runtime.tasks.stop().clone();
        let watch = follow(Api::all(runtime.client.clone()), PROJECTS, sink, runtime.ready.clone(), stop);
        runtime.tasks.spawn("Project watch", watch);
    }
    let (begun, term) = watch::channel(None);
    if let Some(kube_ovn) = &kube_ovn {
        follow_kube_ovn(runtime, kube_ovn, &addresses, &term)?;
        runtime.registry.register(Box::new(Rooms::new(kube_ovn.clone())?))?;
    }
    follow_addresses(runtime, &addresses)?;
    let (ready, stop) = (&runtime.ready, runtime.tasks.stop());
    let client_ = view.replica.client().clone();
    let connection = groundcrew_ovn::follow(client_, metrics.connected, ready.clone(), stop.clone(), || {});
    runtime.tasks.spawn("OVN connection", connection);
    let (pools, client_) = (addresses.clone(), view.replica.client().clone());
    runtime.board.show_pools(move || pools.shown());
    runtime.board.show_connection(OVN, move || groundcrew_ovn::shown(&client_));
    runtime.tasks.spawn("OVN commits", committing);
    runtime.tasks.spawn("OVN ports", ports.clone().follow(waiting.clone(), looks.clone(), stop.clone()));
    runtime.tasks.spawn("ovn-northd", northd.clone().follow(stop.clone()));
    let evidence = Arc::new(Evidence::new(attribute, cluster.clone()));
    runtime.tasks.spawn("OVN shifts", evidence.clone().tidy(stop.clone()));

    rivals::watch(runtime, &view, &committer, metrics.rival, &term);
    let avoiding = addresses::avoid(addresses.clone(), view.clone(), cluster.clone(), stop.clone());
    runtime.tasks.spawn("taken addresses", avoiding);

    runtime.tasks.spawn("EIp queue", addresses::serve(addresses.clone(), term.clone(), runtime.clone()));
    runtime.tasks.spawn("AddressPool status", addresses::report(addresses.clone(), term, runtime.clone()));

    let provider = Arc::new(Ovn {
        unseen: Unseen::default(),
        memos: Memos::default(),
        plans: Plans::default(),
        closed: Closed::default(),
        refused: Refused::default(),
        site: Site {
            cluster,
            router: args.ovn_router,
            switch: args.ovn_switch,
            group: args.ovn_load_balancer_group,
            take_over: args.take_over,
            places: kube_ovn.map(|kube_ovn| kube_ovn.places()).unwrap_or_default(),
        },
        view,
        committer,
        northd,
        addresses,
        begun,
        evidence,
        waiting,
        ports,
        health_check_sources: args.health_check_source,
        looks,
        ready: ready.clone(),
        needs,
    });
    service::start(runtime, &args.class, &args.service, &provider)
}

/// Starts the watches of what addresses are given out by.
fn follow_addresses(runtime: &Runtime, addresses: &Arc<Addresses>) -> Result<(), StartError> {
    let (client, ready, stop) = (&runtime.client, &runtime.ready, runtime.tasks.stop());
    let sink = Guarded::new(EipSink::new(addresses.clone()), "eips", runtime)?;
    let eips = follow(Api::all(client.clone()), EIPS, sink, ready.clone(), stop.clone());
    let mut role = runtime.role.clone();
    runtime.tasks.spawn("EIp watch", async move {
        // A list that begins after the election is won need not be read again when the term begins.
        let _ = tokio::time::timeout(ELECTION, role.wait_for(|role| role.term().is_some())).await;
        eips.await;
    });
    let sink = Guarded::new(PoolSink::new(addresses.clone()), "addresspools", runtime)?;
    let pools = follow(Api::all(client.clone()), POOLS, sink, ready.clone(), stop.clone());
    runtime.tasks.spawn("AddressPool watch", pools);
    let sink = Guarded::new(NodeSink::new(addresses.clone()), "nodes", runtime)?;
    let nodes = follow(Api::all(client.clone()), NODES, sink, ready.clone(), stop.clone());
    runtime.tasks.spawn("Node watch", nodes);
    Ok(())
}

/// Starts the watches of kube-ovn's objects, and whoever looks after them.
fn follow_kube_ovn(
    runtime: &Runtime,
    kube_ovn: &Arc<KubeOvn>,
    addresses: &Arc<Addresses>,
    term: &watch::Receiver<Option<Term>>,
) -> Result<(), StartError> {
    let (client, ready, stop) = (&runtime.client, &runtime.ready, runtime.tasks.stop());
    let sink = Guarded::new(OvnEipSink::new(kube_ovn.clone(), addresses.clone()), "ovn_eips", runtime)?;
    let eips = follow(Api::all(client.clone()), OVN_EIPS, sink, ready.clone(), stop.clone());
    runtime.tasks.spawn("OvnEip watch", eips);
    let sink = Guarded::new(SubnetSink::new(kube_ovn.clone(), addresses.clone()), "subnets", runtime)?;
    let subnets = follow(Api::all(client.clone()), SUBNETS, sink, ready.clone(), stop.clone());
    runtime.tasks.spawn("Subnet watch", subnets);
    let sink = Guarded::new(VpcSink::new(kube_ovn.clone(), addresses.clone()), "vpcs", runtime)?;
    let vpcs = follow(Api::all(client.clone()), VPCS, sink, ready.clone(), stop.clone());
    runtime.tasks.spawn("Vpc watch", vpcs);
    let sink = Guarded::new(NamespaceSink::new(kube_ovn.clone(), addresses.clone()), "namespaces", runtime)?;
    let namespaces = follow(Api::all(client.clone()), NAMESPACES, sink, ready.clone(), stop.clone());
    runtime.tasks.spawn("Namespace watch", namespaces);
    let waking = addresses.clone();
    let writing = write_routes(kube_ovn.clone(), term.clone(), move |services| waking.wake(services), runtime.clone());
    runtime.tasks.spawn("return routes", writing);
    let (kube_ovn, addresses, role, stop) = (kube_ovn.clone(), addresses.clone(), runtime.role.clone(), stop.clone());
    runtime.tasks.spawn("OvnEip janitor", async move {
        kube_ovn.tidy(role, |owner| addresses.wake_owner(owner), stop).await;
    });
    Ok(())
}
