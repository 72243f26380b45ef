//! Holds floating addresses on a node, and lets go of them before anybody else may take them.
//!
//! ```text
//!  FloatingIP --watch--> book --one task an address--> keeper --claim--> status
//!                                                        |
//!  Lease --renewal--> authority --until when?----------> next --> kernel: address with a lifetime
//!                        ^                                    --> packet filter, announcements
//!  other agents ---------+ only when nobody can move addresses
//! ```
//!
//! `timing`, `authority`, `hold`, `network`, `wish` and `frames` are pure; `platform` is the machine. What makes it safe
//! that an address moves is written down at [`groundcrew_api::floating_ip`].

mod args;
mod authority;
mod book;
mod frames;
mod guard;
mod hands;
mod heartbeat;
mod hold;
mod keeper;
mod metrics;
mod nat;
mod network;
mod pace;
mod peers;
mod platform;
mod timing;
mod wish;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use groundcrew_api::floating_ip::FloatingIP;
use groundcrew_core::metrics::Register;
use groundcrew_core::runtime::{Runtime, RuntimeArgs, StartError, StatusAddress};
use groundcrew_core::watch::{Checked, Guarded, follow};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};
use uuid::Uuid;

pub use args::Args;

use authority::Authority;
use book::Book;
use guard::Guard;
use heartbeat::Heartbeat;
use keeper::Shared;
use metrics::Metrics;
use nat::Nat;
use network::Network;
use pace::Pace;
use peers::Peers;
use platform::{Linux, Platform, PlatformError};

const FLOATING_IPS: &str = "the cache of FloatingIPs";

/// Links and routes are looked at again after this long, whatever the kernel told.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// A node that boots is busy: programs that do not end in time are tried again for so long. No address is held until then.
const BOOTING: Duration = Duration::from_mins(1);

/// Every node has an agent of its own: there is nobody to elect, and nothing outside to mark.
#[must_use]
pub fn one_per_node(runtime: RuntimeArgs) -> RuntimeArgs {
    let cluster_id = runtime.cluster_id.or_else(|| Some("node-agent".to_owned()));
    // The port would be the node's own, and somebody else's there may want it.
    let status_address = runtime.status_address.or(Some(StatusAddress::Off));
    RuntimeArgs { cluster_id, status_address, no_leader_election: true, ..runtime }
}

/// Describes the metrics of the agent.
pub fn describe(register: &dyn Register) -> prometheus::Result<()> {
    groundcrew_core::watch::describe(register)?;
    Metrics::new(register).map(drop)
}

/// Starts the agent on this runtime.
pub async fn start(runtime: &Runtime, args: Args) -> Result<(), StartError> {
    if runtime.dry_run {
        return Err("node-agent has no --dry-run: it would have to take addresses away to see what is missing".into());
    }
    let metrics = Metrics::new(&runtime.registry)?;
    let (timings, stop) = (args.timings(), runtime.tasks.stop().clone());
    let platform = Arc::new(Linux::open()?);
    let (authority, allowed) = watch::channel(Authority::default());
    let guard = Guard::new(platform.clone(), allowed.clone());
    let (network, seen) = watch::channel(Arc::new(platform.network()?));
    let nat = Nat::new(platform.clone(), args.node_name.clone());
    let began = Instant::now();
    while let Err(error) = clean_up(&*platform, &guard, &nat, &metrics).await {
        if !matches!(error, PlatformError::Hung { .. }) || began.elapsed() >= BOOTING {
            return Err(error.into());
        }
        warn!(%error, "what an earlier run left is not taken away yet; trying again");
    }

    let run = Uuid::new_v4().simple().to_string()[..8].to_owned();
    let shared = Arc::new(Shared {
        platform: platform.clone(),
        api: Api::all(runtime.client.clone()),
        node: args.node_name.clone(),
        run: run.clone(),
        claims: AtomicU64::new(0),
        timings,
        authority: allowed,
        network: seen.clone(),
        guard,
        nat,
        pace: Pace::new(platform.now()),
        metrics: metrics.clone(),
        events: runtime.events.clone(),
        stop: stop.clone(),
    });

    let namespace = runtime.about.namespace.as_deref().unwrap_or("default");
    let leases: Api<Lease> = Api::namespaced(runtime.client.clone(), namespace);
    let peers = Arc::new(Peers::new(args.node_name.clone(), timings)?);
    let listener = peers::listen(args.peer_address)
        .await
        .map_err(|error| format!("cannot listen on {} (--peer-address): {error}", args.peer_address))?;
    let heartbeat = Heartbeat {
        platform: platform.clone(),
        leases: leases.clone(),
        nodes: Api::all(runtime.client.clone()),
        url: args.url(),
        node: args.node_name,
        run,
        timings,
        authority: authority.clone(),
        network: seen,
        peers: peers.clone(),
        metrics: metrics.clone(),
    };

    let keepers = TaskTracker::new();
    let (floating, all) = watch::channel(BTreeSet::new());
    let book = Guarded::new(Book::new(shared.clone(), keepers.clone(), floating), "floatingips", runtime)?;
    runtime.ready.wait_for(FLOATING_IPS, "");
    let objects: Api<Checked<FloatingIP>> = Api::all(runtime.client.clone());
    let released = CancellationToken::new();
    let tasks = &runtime.tasks;
    tasks.spawn("heartbeat", heartbeat.beat(released.clone()));
    tasks.spawn("links", watch_links(platform, network, stop.clone()));
    tasks.spawn("filter", keep_filter(shared.clone(), all, stop.clone()));
    let (them, ended) = (peers.clone(), stop.clone());
    tasks.spawn("answers to agents", async move { them.answer(listener, ended).await });
    let (them, ended) = (peers.clone(), stop.clone());
    tasks.spawn("list of agents", async move { them.learn(leases, ended).await });
    let ended = stop.clone();
    tasks.spawn("vigil", async move { peers.vigil(authority, metrics, ended).await });
    let ready = runtime.ready.clone();
    tasks.spawn("addresses", async move {
        follow(objects, FLOATING_IPS, book, ready, stop).await;
        keepers.close();
        keepers.wait().await;
        for removed in [shared.guard.remove().await, shared.nat.remove().await] {
            if let Err(error) = removed {
                warn!(%error, "a table of the packet filter stays");
            }
        }
        released.cancel();
    });
    Ok(())
}

/// Takes away what an earlier run left: it did not end in order, and who holds these addresses now is unknown.
async fn clean_up<P: Platform>(
    platform: &P,
    guard: &Guard<P>,
    nat: &Nat<P>,
    metrics: &Metrics,
) -> Result<(), PlatformError> {
    for (address, link) in platform.ours()? {
        platform.hide(address, link)?;
        metrics.leftovers.inc();
        info!(%address, "address of an earlier run taken away");
    }
    guard.remove().await?;
    nat.remove().await
}

async fn watch_links(platform: Arc<Linux>, network: watch::Sender<Arc<Network>>, stop: CancellationToken) {
    let mut changes = match Linux::changes() {
        Ok(changes) => changes,
        Err(error) => return warn!(%error, "links cannot be watched"),
    };
    loop {
        let change = tokio::time::timeout(LOOK_AGAIN, changes.next());
        match stop.run_until_cancelled(change).await {
            None => return,
            Some(Ok(Err(error))) => return warn!(%error, "links cannot be watched"),
            Some(Ok(Ok(())) | Err(_)) => {}
        }
        match platform.network() {
            Ok(now) => {
                network.send_if_modified(|network| {
                    let differs = **network != now;
                    *network = Arc::new(now);
                    differs
                });
            }
            Err(error) => warn!(%error, "trying again"),
        }
    }
}

/// Sees to it that packets for addresses of other nodes are dropped, from the first look on.
async fn keep_filter(shared: Arc<Shared<Linux>>, mut all: watch::Receiver<BTreeSet<IpAddr>>, stop: CancellationToken) {
    let mut network = shared.network.clone();
    let addresses = async {
        while !stop.is_cancelled() {
            let floating = all.borrow_and_update().clone();
            let uplinks = network.borrow_and_update().outward();
            let written = shared.guard.watch_over(floating, uplinks).await;
            if let Err(error) = &written {
                warn!(%error, "packets for addresses of other nodes are not dropped");
            }
            tokio::select! {
                _ = all.changed() => {}
                _ = network.changed() => {}
                () = tokio::time::sleep(LOOK_AGAIN), if written.is_err() => {}
                () = stop.cancelled() => {}
            }
        }
    };
    tokio::join!(addresses, shared.guard.follow(stop.clone()));
}
