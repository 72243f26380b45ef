//! What a controller starts on: logs, the admin port, a Kubernetes client, leadership, Events, tasks and their end.

mod admin;
mod args;
mod cluster;
mod http;
mod listen;
mod logs;
mod memory;
mod page;
mod ready;
mod tasks;

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{Api, Client};
use prometheus::Registry;
use prometheus::process_collector::ProcessCollector;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::{error, info};
use uuid::Uuid;

pub use args::{RuntimeArgs, StatusAddress, duration, interval};
pub use cluster::client;
pub use logs::LogFormat;
pub use ready::{NotReady, Readiness};
pub use tasks::Tasks;

use crate::diff::Diff;
use crate::events::{Events, reference};
use crate::leader::{Election, Role, Term, campaign};
use crate::metrics::{LeaderMetrics, build_info};
use crate::page::Board;
use admin::Admin;
use page::Page;

const START: &str = "the start";

/// Where the status page is unless something else is said.
const STATUS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8081);

/// What a shutdown spends after the work is drained: giving the lease back and the last Events.
const FAREWELL: Duration = Duration::from_secs(2);

/// An error that ends the start of a controller; its text is all that the user sees.
pub type StartError = Box<dyn Error + Send + Sync>;

/// Everything that a controller is given. Cheap to clone.
#[derive(Clone)]
pub struct Runtime {
    /// The controller's name, as in its Lease and its Events.
    pub name: &'static str,
    /// Kubernetes. It does not retry by itself: every caller has a deadline and a queue.
    pub client: Client,
    /// This cluster's part of every mark.
    pub cluster_id: Arc<str>,
    /// Where the admin port listens.
    pub admin: SocketAddr,
    /// Where metrics are registered.
    pub registry: Registry,
    /// What the process still waits for.
    pub ready: Readiness,
    /// Starts tasks, and tells when to stop.
    pub tasks: Tasks,
    /// Whether this process may write.
    pub role: watch::Receiver<Role>,
    /// Tells users.
    pub events: Events,
    /// Where parts say what the status page shows.
    pub board: Board,
    /// What an Event is about that concerns the controller itself: its Lease.
    pub about: ObjectReference,
    /// Show, do not write.
    pub dry_run: bool,
    /// How long one write may take: short against the lease, so that a leader can write for most of it.
    pub write_deadline: Duration,
}

impl Runtime {
    /// A plan that was just made: on the status page, and in a dry run on standard output.
    pub fn show_plan(&self, plan: Diff) {
        if self.dry_run {
            plan.print();
        }
        self.board.planned(plan.about, plan.lines);
    }
}

/// Runs a controller until SIGTERM, a panic or the end of one of its tasks. `main` returns what this returns.
pub async fn run<F>(name: &'static str, args: RuntimeArgs, start: F) -> ExitCode
where
    F: AsyncFnOnce(Runtime) -> Result<(), StartError>,
{
    logs::init(args.log_format, args.log.parse().unwrap_or_default());
    log_panics();
    let (stop, hurry) = (CancellationToken::new(), CancellationToken::new());
    let ended = match stop_on_signal(stop.clone(), hurry.clone()) {
        Ok(()) => run_until(stop, hurry, name, args, start).await,
        Err(error) => Err(error.into()),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            error!(%reason, "{name} ends");
            ExitCode::FAILURE
        }
    }
}

/// Runs a controller inside another program: until `stop`, then until its work is drained or `hurry`.
pub async fn run_until<F>(
    stop: CancellationToken,
    hurry: CancellationToken,
    name: &'static str,
    args: RuntimeArgs,
    start: F,
) -> Result<(), StartError>
where
    F: AsyncFnOnce(Runtime) -> Result<(), StartError>,
{
    let registry = Registry::new();
    registry.register(Box::new(ProcessCollector::for_self()))?;
    build_info(&registry, name)?;
    let ready = Readiness::default();
    // Until the controller has said what it waits for, an empty list does not mean ready.
    ready.wait_for(START, "");
    let admin = Admin::bind(args.admin_address, registry.clone(), ready.clone())
        .map_err(|error| format!("cannot listen on {} (--admin-address): {error}", args.admin_address))?;
    let admin_address = admin.address()?;
    info!(version = env!("CARGO_PKG_VERSION"), admin = %admin_address, dry_run = args.dry_run, "{name} starts");

    let (tasks, mut fatal) = Tasks::new(stop.clone());
    // Not one of `tasks`: it answers until the very end, so that the probes see an orderly shutdown.
    let _admin = AbortOnDropHandle::new(tokio::spawn(admin.serve()));

    let client = cluster::client(args.kubeconfig.as_deref(), args.context.as_deref()).await?;
    let identity = format!(
        "{}_{}",
        std::env::var("HOSTNAME").unwrap_or_else(|_| name.to_owned()),
        &Uuid::new_v4().simple().to_string()[..8]
    );
    let (events, post_events) = Events::new(client.clone(), name, &identity, &registry)?;
    let Some(cluster_id) = stop.run_until_cancelled(cluster::id(&client, &args, &ready)).await else {
        return Ok(());
    };
    let (role_sender, role) = watch::channel(Role::Following);
    let lease = format!("groundcrew-{name}");
    let lease_namespace = args.lease_namespace.as_deref().unwrap_or(client.default_namespace());
    let runtime = Runtime {
        name,
        client: client.clone(),
        cluster_id: cluster_id.into(),
        admin: admin_address,
        registry: registry.clone(),
        ready: ready.clone(),
        tasks: tasks.clone(),
        role: role.clone(),
        events,
        board: Board::default(),
        about: reference::<Lease>(Some(lease_namespace.into()), &lease, None),
        dry_run: args.dry_run,
        write_deadline: Duration::from_secs(5).min(args.lease_duration / 3),
    };

    let board = runtime.board.clone();
    let source = page::Source {
        controller: name,
        dry_run: args.dry_run,
        ready: ready.clone(),
        role: role.clone(),
        board: board.clone(),
    };
    let _page = show_page(args.status_address, source).await?;

    let (resign, farewell) = (CancellationToken::new(), CancellationToken::new());
    let posting = tokio::spawn(post_events.run(farewell.clone()));
    // A dry run never leads: where nobody is to, nobody is missing.
    if !args.dry_run {
        tasks.spawn("leader metrics", LeaderMetrics::new(&registry)?.follow(role, stop.clone()));
    }
    start(runtime).await?;
    ready.done(START);
    tasks.spawn("memory", memory::give_back(stop.clone()));
    tasks.spawn("readiness log", log_readiness(ready, stop.clone()));

    let election = if args.dry_run {
        None
    } else if args.no_leader_election {
        role_sender.send_replace(Role::Leading(Term::alone(&identity)));
        None
    } else {
        let api: Api<Lease> = Api::namespaced(client.clone(), lease_namespace);
        let election = Election { name: lease, identity, duration: args.lease_duration };
        Some(AbortOnDropHandle::new(tokio::spawn(campaign(api, election, role_sender, resign.clone()))))
    };

    let reason = tokio::select! {
        reason = fatal.recv() => reason,
        () = stop.cancelled() => None,
    };
    stop.cancel();
    board.close();
    let mut drained = false;
    if reason.is_none() {
        info!(budget_s = args.shutdown_budget.as_secs(), "stopping: finishing what is under way");
        tokio::select! {
            () = tasks.finished() => drained = true,
            () = tokio::time::sleep(args.shutdown_budget) => info!("shutdown budget spent; leaving the rest"),
            () = hurry.cancelled() => info!("second signal; leaving the rest"),
        }
    }
    // The lease goes back last, and only if nothing is under way any more: a successor must not start while our own
    // writes are still on their way. Otherwise it runs out by itself.
    if drained {
        resign.cancel();
    }
    farewell.cancel();
    let _ = tokio::time::timeout(FAREWELL, async {
        if let Some(election) = election.filter(|_| drained) {
            let _ = election.await;
        }
        let _ = posting.await;
    })
    .await;
    reason.map_or(Ok(()), |reason| Err(reason.into()))
}

/// Serves the status page. One that was asked for and cannot be served ends the start; by default it is a convenience,
/// and another controller on the same machine may have the port.
async fn show_page(
    address: Option<StatusAddress>,
    source: page::Source,
) -> Result<Option<AbortOnDropHandle<()>>, StartError> {
    let bound = match address {
        Some(StatusAddress::Off) => return Ok(None),
        Some(StatusAddress::At(address)) => Page::bind(address, source)
            .await
            .map_err(|error| format!("cannot listen on {address} (--status-address): {error}"))?,
        None => match Page::bind(STATUS, source).await {
            Ok(page) => page,
            Err(error) => {
                info!(%error, "no status page: {STATUS} is taken; give --status-address");
                return Ok(None);
            }
        },
    };
    info!("status page at http://{}/", bound.address()?);
    Ok(Some(AbortOnDropHandle::new(tokio::spawn(bound.serve()))))
}

/// The first SIGTERM or SIGINT stops, the second hurries.
fn stop_on_signal(stop: CancellationToken, hurry: CancellationToken) -> std::io::Result<()> {
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::spawn(async move {
        for token in [stop, hurry] {
            tokio::select! {
                _ = term.recv() => {}
                _ = int.recv() => {}
            }
            token.cancel();
        }
    });
    Ok(())
}

/// Says when it is ready, and until then every now and then what is missing, for whoever reads logs rather than probes.
async fn log_readiness(ready: Readiness, stop: CancellationToken) {
    let becoming = async {
        loop {
            tokio::select! {
                () = ready.until_ready() => break info!("ready"),
                () = tokio::time::sleep(Duration::from_secs(10)) => {
                    if let Err(missing) = ready.check() {
                        info!("not ready: {missing}");
                    }
                }
            }
        }
    };
    stop.run_until_cancelled(becoming).await;
    stop.cancelled().await;
}

/// A panic is one log line like any other, with its place, before it ends the process.
fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let message = panic.payload_as_str().unwrap_or("no message");
        error!(place, message, "panic");
    }));
}
