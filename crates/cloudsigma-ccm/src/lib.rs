//! CloudSigma: floating addresses for Services, node initialisation, fail-over.
//!
//! ```text
//!  Service --core--> provider --marks--> CloudSigma account <--read-- discovery
//!                       |                                                |
//!                       v                                                v
//!                  FloatingIP <--holder-- moves <--Leases, Nodes-- what lives
//!                       |
//!                       +--status-- node agents
//! ```
//!
//! `marks`, `pool`, `placement`, `moves::decide`, `tags::plan` and what a node should say are pure. Addresses are marked by
//! `addresses`, placed by `moves` alone, and let use by a server through `reach`.

mod addresses;
mod args;
pub mod client;
mod csi_token;
mod discovery;
mod error;
mod floating;
mod inventory;
mod leftovers;
mod marks;
mod mirror;
mod moves;
mod nat;
mod nodes;
mod placement;
mod pool;
mod provider;
mod reach;
mod reachability;
mod tags;
mod troubles;
mod wishes;
mod write;

use std::sync::{Arc, Mutex};

use groundcrew_api::floating_ip::FloatingIP;
use groundcrew_core::metrics::Register;
use groundcrew_core::page::Reading;
use groundcrew_core::provider::Look;
use groundcrew_core::runtime::{Runtime, StartError};
use groundcrew_core::service;
use groundcrew_core::watch::{Guarded, follow};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use tokio::sync::broadcast;

pub use args::{Args, Mode};
pub use leftovers::CloudSigmaLeftovers;
pub use pool::Allowed;

use addresses::Addresses;
use client::Client;
use csi_token::CsiToken;
use discovery::{Discovery, Pools, Tagging};
use floating::Floating;
use inventory::Account;
use mirror::Mirror;
use moves::{Mover, Timing};
use nodes::{Controller, Nodes, Site};
use provider::CloudSigma;
use reach::{Attach, Edits, Manual, Reach};
use reachability::{Probe, Reachability};
use troubles::Troubles;
use wishes::Wishes;

const ACCOUNT: &str = "the CloudSigma account";
const NODES: &str = "the cache of Nodes";
const FLOATING: &str = "the cache of FloatingIPs";
const LEASES: &str = "the cache of the agents' Leases";

/// Looks that nobody has taken yet; past it everything is looked at instead.
const MOST_LOOKS: usize = 4_096;

/// Describes the metrics of the controller.
pub fn describe(register: &dyn Register) -> prometheus::Result<()> {
    service::describe(register)?;
    groundcrew_core::watch::describe(register)?;
    discovery::Metrics::new(register)?;
    moves::Metrics::new(register).map(drop)
}

/// Starts the controller on this runtime. What is still missing then is told by `/readyz`.
pub async fn start(runtime: &Runtime, args: Args) -> Result<(), StartError> {
    let config = args.config().await?;
    let host = config.api.host_str().map(|host| format!("{host}{}", port(&config.api))).unwrap_or_default();
    let client = Client::new(config)?;
    let (account, nodes) = (Account::default(), Nodes::default());
    let (cluster, deadline) = (runtime.cluster_id.clone(), runtime.write_deadline);
    let floating = Floating::new(runtime.client.clone(), cluster.clone(), deadline);
    let looks = broadcast::Sender::new(MOST_LOOKS);
    let wishes = Arc::new(Wishes::new(args.nat));
    let (ready, stop) = (&runtime.ready, runtime.tasks.stop());

    for what in [ACCOUNT, NODES, FLOATING] {
        ready.wait_for(what, "");
    }
    let reading = Reading::default();
    let shown = reading.clone();
    runtime.board.show_connection("CloudSigma", move || shown.shown());
    let pools = Pools {
        account: account.clone(),
        cluster: cluster.clone(),
        allowed: args.allow_ip.clone().into(),
        nodes: nodes.clone(),
    };
    let pools = (!args.disable_lb_ip_pool).then_some(pools);
    if let Some(pools) = pools.clone() {
        runtime.board.show_pools(move || pools.shown());
    }
    let discovery = Discovery {
        client: client.clone(),
        account: account.clone(),
        interval: args.discovery_interval,
        ready: ready.clone(),
        what: ACCOUNT,
        cluster: cluster.clone(),
        expiry_warning: args.expiry_warning,
        metrics: discovery::Metrics::new(&runtime.registry)?,
        reading,
        pools,
    };
    runtime.tasks.spawn("account", discovery.run(stop.clone()));
    let sink = nodes.mirror.sink(|_| {});
    let following = follow(Api::all(runtime.client.clone()), NODES, sink, ready.clone(), stop.clone());
    runtime.tasks.spawn("Node watch", following);
    let sink = floating.mirror.sink(wake(wishes.clone(), looks.clone()));
    let sink = Guarded::new(sink, "floatingips", runtime)?;
    let following = follow(Api::all(runtime.client.clone()), FLOATING, sink, ready.clone(), stop.clone());
    runtime.tasks.spawn("FloatingIP watch", following);

    let controller = Controller {
        nodes: nodes.clone(),
        api: Api::all(runtime.client.clone()),
        client: client.clone(),
        account: account.clone(),
        floating: floating.clone(),
        site: Site { region: args.region.clone().map(|region| region.to_ascii_lowercase()), host },
        cluster: cluster.clone(),
        limit: args.node_delete_limit,
        deadline,
        interval: args.discovery_interval,
        runtime: runtime.clone(),
    };
    let (role, ready_, stop_) = (runtime.role.clone(), ready.clone(), stop.clone());
    runtime.tasks.spawn("nodes", async move {
        if stop_.run_until_cancelled(ready_.until_done(&[ACCOUNT, NODES, FLOATING])).await.is_some() {
            controller.run(role, stop_).await;
        }
    });
    if args.enable_csi_token {
        let csi_token = CsiToken {
            client: client.clone(),
            secrets: Api::namespaced(runtime.client.clone(), csi_token::NAMESPACE),
            user_email: args
                .user_email
                .clone()
                .ok_or("--enable-csi-token needs --user-email: a password has no token")?,
            region: args.region.clone().ok_or("--enable-csi-token needs --region")?,
            deadline,
        };
        runtime.tasks.spawn("CSI token", csi_token.run(runtime.role.clone(), stop.clone()));
    }
    if args.disable_lb_ip_pool {
        return Ok(());
    }

    let tagging = Tagging {
        client: client.clone(),
        account: account.clone(),
        cluster: cluster.clone(),
        name: args.cluster_name.clone().unwrap_or_else(|| cluster.to_string()),
        deadline,
        interval: args.discovery_interval,
    };
    runtime.tasks.spawn("tags", tagging.run(runtime.role.clone(), stop.clone()));
    let edits = Edits::new(client.clone(), deadline);
    let reach: Arc<dyn Reach> = match args.mode {
        Mode::Manual => Arc::new(Manual { edits, account: account.clone(), switch: args.switch_nics }),
        Mode::Attach => Arc::new(Attach { edits, nodes: nodes.clone() }),
    };
    let troubles = Troubles::default();
    let parts = Parts { client, account, nodes, floating, looks, wishes, reach, troubles };
    start_moves(runtime, &args, &parts)?;
    start_services(runtime, args, parts)
}

/// What the two halves of serving share.
struct Parts {
    client: Client,
    account: Account,
    nodes: Nodes,
    floating: Floating,
    looks: broadcast::Sender<Look>,
    wishes: Arc<Wishes>,
    reach: Arc<dyn Reach>,
    troubles: Troubles,
}

fn start_moves(runtime: &Runtime, args: &Args, parts: &Parts) -> Result<(), StartError> {
    let namespace = args.agent_namespace.clone().or_else(|| runtime.about.namespace.clone());
    let namespace = namespace.ok_or("give --agent-namespace: where the node agents have their Leases")?;
    let lease_api: Api<Lease> = Api::namespaced(runtime.client.clone(), &namespace);
    let leases = Mirror::default();
    let (ready, stop) = (runtime.ready.clone(), runtime.tasks.stop().clone());
    ready.wait_for(LEASES, "");
    let following = follow(lease_api.clone(), LEASES, leases.sink(|_| {}), ready.clone(), stop.clone());
    runtime.tasks.spawn("Lease watch", following);
    let mover = Mover {
        client: parts.client.clone(),
        account: parts.account.clone(),
        nodes: parts.nodes.clone(),
        leases,
        lease_api,
        floating: parts.floating.clone(),
        wishes: parts.wishes.clone(),
        reach: parts.reach.clone(),
        troubles: parts.troubles.clone(),
        timing: Timing { delay: args.delay(), hold: args.minimum_hold, recovery: args.recovery },
        ignore_exclusion: args.ignore_exclude_label,
        fence: args.fence_stop,
        deadline: runtime.write_deadline,
        looks: parts.looks.clone(),
        metrics: moves::Metrics::new(&runtime.registry)?,
        runtime: runtime.clone(),
    };
    let role = runtime.role.clone();
    runtime.tasks.spawn("moves", async move {
        if stop.run_until_cancelled(ready.until_done(&[NODES, FLOATING, LEASES])).await.is_some() {
            mover.run(role, stop).await;
        }
    });
    Ok(())
}

fn start_services(runtime: &Runtime, args: Args, parts: Parts) -> Result<(), StartError> {
    let Parts { client, account, nodes, floating, looks, wishes, reach, troubles } = parts;
    let reachability = args.probe_url.is_some().then(Reachability::default);
    if let (Some(url), Some(reachability)) = (args.probe_url, &reachability) {
        let probe = Probe {
            url,
            http: client::outside(args.probe_interval)?,
            floating: floating.clone(),
            wishes: wishes.clone(),
            reachability: reachability.clone(),
            grace: args.probe_grace,
            interval: args.probe_interval,
            looks: looks.clone(),
        };
        runtime.tasks.spawn("probe from outside", probe.run(runtime.tasks.stop().clone()));
    }
    let addresses = Addresses {
        client,
        account,
        cluster: runtime.cluster_id.clone(),
        allowed: args.allow_ip,
        nodes,
        deadline: runtime.write_deadline,
        settle: args.claim_settle,
        interval: args.discovery_interval,
        book: Mutex::default(),
    };
    let provider = CloudSigma {
        addresses: Arc::new(addresses),
        floating,
        wishes,
        reach,
        troubles,
        reachability,
        nat: args.nat,
        patience: args.confirm_patience,
        expiry_warning: args.expiry_warning,
        awaited: Mutex::default(),
        looks,
        ready: runtime.ready.clone(),
        needs: &[ACCOUNT, NODES, FLOATING],
    };
    let mut service = args.service;
    service.take_classless |= !args.leave_classless;
    service::start(runtime, &args.class, &service, &Arc::new(provider))
}

fn port(url: &reqwest::Url) -> String {
    url.port().map(|port| format!(":{port}")).unwrap_or_default()
}

/// Has the Services of an address looked at when its object changes.
fn wake(wishes: Arc<Wishes>, looks: broadcast::Sender<Look>) -> impl Fn(&FloatingIP) + Send {
    move |object| {
        let address = object.spec.address.parse();
        let mut services = address.map(|address| wishes.services(address)).unwrap_or_default();
        // One that is being released wants nothing any more, and waits for just this.
        services.extend(floating::owner(object).map(|owner| owner.key));
        for service in services {
            // Nobody listens before the Service controller does.
            let _ = looks.send(Look::At(service));
        }
    }
}
