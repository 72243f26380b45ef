//! The `groundcrew` binary: one sub-command a controller, and a few for people.

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod allocator;
mod crds;
mod deorbit;
mod detach;
mod manual;

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Parser, Subcommand};
use groundcrew_commands::{Answer, DoctorArgs, ExplainArgs, PoolsArgs, StatusArgs};
use groundcrew_core::runtime::{RuntimeArgs, StartError};
use groundcrew_core::{cli, runtime};
use groundcrew_lb_watcher::{Attribution, AttributionArgs};
use groundcrew_orbit::{flight, routegc};

/// Keeps what a Kubernetes cluster owns outside its API server true.
///
/// Each controller is a sub-command and runs as a Deployment of its own. Two copies may run: one leads and writes, the
/// other follows with full caches and takes over within seconds.
///
/// Every flag can be given as an environment variable too; --help of a sub-command names both.
#[derive(Debug, Parser)]
#[command(name = "groundcrew", version, arg_required_else_help = true, after_help = AFTER)]
struct Line {
    #[command(subcommand)]
    command: Command,
}

const AFTER: &str = "\
Examples:
  groundcrew ovn-lb --ovn-nb tcp:192.0.2.10:6641            serve Services from OVN
  groundcrew ovn-lb --ovn-nb tcp:192.0.2.10:6641 --dry-run  show what it would do
  groundcrew lb-watcher --ovn-nb tcp:192.0.2.10:6641        watch the load balancers of kube-dc's manager
  groundcrew node-agent --node-name a --node-ip 192.0.2.20  hold floating addresses on this node
  groundcrew net-probe --node-name a                        see from this node whether others' pods are reached
  groundcrew ovn-rows --ovn-nb tcp:192.0.2.10:6641          list all load balancers and whose they are
  groundcrew flight --pod-cidr 10.244.0.0/16 --dry-run      show which Nodes and security groups it would repair
  groundcrew routegc --pod-cidr 10.244.0.0/16 --dry-run     show which OpenStack routes nobody needs any more
  groundcrew cloudsigma-ccm --region zrh --username EMAIL   serve Services and nodes on CloudSigma
  groundcrew deorbit plan --ccm-cluster a --csi-cluster a   show what this cluster has in OpenStack and would leave
  groundcrew detach                                         show what keeps a finalizer of ours
  groundcrew explain service shop/web                       tell hop by hop why a Service does not answer
  groundcrew doctor --ovn-nb tcp:192.0.2.10:6641            check the installation
  groundcrew pools                                          show how many addresses are left
  groundcrew crds | kubectl apply -f -                      install or upgrade the custom resources";

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve Services of type LoadBalancer from OVN load balancers
    ///
    /// A Service of the class groundcrew.dev/ovn gets an address from an AddressPool, and a load balancer on it on the
    /// router and on the switch of its namespace. What somebody else changes there is put right at once.
    OvnLb(Box<OvnLb>),
    /// Watch the OVN load balancers of kube-dc's own manager, and have it rebuild what somebody changed
    ///
    /// For clusters that keep that manager. Every Service with an address is compared with OVN the moment OVN changes;
    /// where a load balancer was deleted or changed behind the manager's back, the manager is woken by an annotation,
    /// and people are told who did it. OVN is only read.
    LbWatcher(Box<LbWatcher>),
    /// Hold floating addresses on a node
    ///
    /// Runs on every node, with the rights to change its addresses and its packet filter. It answers for the floating
    /// addresses that are given to its node, and lets go of them by itself when it does not reach the API server.
    NodeAgent(Box<NodeAgent>),
    /// Ask the pods of other nodes over the pod network whether they are there
    ///
    /// Runs on every node, on the pod network and without any right there. Each probe asks a few others over HTTP and
    /// writes down whom it does not reach; groundcrew flight reads that with --probe-namespace.
    NetProbe(Box<NetProbe>),
    /// List the load balancers of an OVN and whose they are
    ///
    /// One line each: the Service it belongs to, (kube-ovn) or (unknown), its name, how many addresses it has, where it is
    /// attached. Nothing is written, and no Kubernetes is needed.
    OvnRows(groundcrew_ovn_lb::RowsArgs),
    /// Remove routes to pods that are left on OpenStack's routers when their Node is gone
    ///
    /// A route goes when it leads to pods, no Node wants it and nobody has its next hop, seen several times and only where
    /// the cloud has shown everything. Whatever may be somebody else's is told and left alone. Also warns before a router
    /// is full.
    Routegc(Box<Routegc>),
    /// Serve Services on floating addresses of CloudSigma, and keep nodes true to their servers
    ///
    /// A Service of the class groundcrew.dev/cloudsigma, or without a class, gets an address of the account, which a node
    /// holds and another one takes over when that fails. Needs the node agent on the nodes. Nodes are initialised, tainted
    /// and deleted as their servers are.
    CloudsigmaCcm(Box<CloudSigmaCcm>),
    /// Bring back Nodes on OpenStack that lost their traffic or themselves
    ///
    /// Puts back what the Nodes' security group lets through and the ports that should have it, and labels their servers.
    /// Servers that failed, stay unready or never became Nodes are only told, unless --nodes says repair: then they are
    /// rebooted softly, then hard, one step in a cool-down and few at once.
    Flight(Box<Flight>),
    /// Leave nothing behind when a cluster goes: load balancers, floating addresses, volumes, snapshots, routes
    ///
    /// Exit codes: 0 nothing is left (or --proceed lets it go), 1 it could not be found out, 3 something is left or it
    /// still runs, 4 refused, and nothing was done.
    #[command(subcommand)]
    Deorbit(deorbit::Command),
    /// Carry out Deorbit objects in the cluster
    ///
    /// Freezes and stops what makes new things outside, deletes what the cluster's own controllers clean up after, waits
    /// for them, and looks in the cloud for what carries the cluster's marks. What is left goes by the cloud's API only
    /// where the object's policies say so; all else is reported.
    DeorbitController(Box<deorbit::Controller>),
    /// Take our finalizers off Services, EIps and Deorbits, for whoever leaves
    ///
    /// With them nobody could delete these any more once the controllers are gone. The policy with which a Deorbit refuses
    /// new things goes, too. Addresses stay, and whatever serves them outside goes on. Without --confirm it only shows what
    /// it would do.
    Detach(Box<detach::Detach>),
    /// Tell hop by hop why something answers, or does not
    #[command(subcommand, arg_required_else_help = true)]
    Explain(Explain),
    /// Check an installation: definitions, rights, OVN, kube-ovn, clocks, clouds
    ///
    /// Each thing has a tick, or a cross with its remedy. Exits with 0 if all is well, 1 if something is broken, 3 if
    /// something could not be seen. Nothing is written.
    Doctor(Box<DoctorArgs>),
    /// List the pools of addresses and how many are left
    Pools(PoolsArgs),
    /// Show who leads, and which Services wait for what
    Status(Box<StatusArgs>),
    /// Print a script that completes this program's lines in a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the manual pages
    Man {
        /// The directory to write them to, such as ~/.local/share/man/man1
        #[arg(value_name = "DIRECTORY")]
        directory: PathBuf,
    },
    /// Print the custom resource definitions as YAML
    Crds(crds::Crds),
    /// Print the version
    Version,
}

#[derive(Debug, Subcommand)]
enum Explain {
    /// A Service of type LoadBalancer: from its class and its address to its pods
    ///
    /// Prints a tick or a cross for each hop, with the reason and the next thing to do. Exits with 0 if it is whole, 1 if it
    /// is broken, 3 if not everything could be seen. Nothing is written.
    #[command(visible_alias = "svc")]
    Service(Box<ExplainArgs>),
}

#[derive(Debug, clap::Args)]
struct OvnLb {
    #[command(flatten)]
    ovn: groundcrew_ovn_lb::Args,
    #[command(flatten)]
    attribution: AttributionArgs,
    #[command(flatten)]
    runtime: RuntimeArgs,
}

#[derive(Debug, clap::Args)]
struct CloudSigmaCcm {
    #[command(flatten)]
    cloudsigma: groundcrew_cloudsigma_ccm::Args,
    #[command(flatten)]
    runtime: RuntimeArgs,
}

#[derive(Debug, clap::Args)]
struct LbWatcher {
    #[command(flatten)]
    watcher: groundcrew_lb_watcher::Args,
    #[command(flatten)]
    runtime: RuntimeArgs,
}

#[derive(Debug, clap::Args)]
struct Routegc {
    #[command(flatten)]
    routegc: routegc::Args,
    #[command(flatten)]
    openstack: groundcrew_openstack_cloud::Args,
    #[command(flatten)]
    runtime: RuntimeArgs,
}

#[derive(Debug, clap::Args)]
struct NodeAgent {
    #[command(flatten)]
    agent: groundcrew_node_agent::Args,
    #[command(flatten)]
    runtime: RuntimeArgs,
}

#[derive(Debug, clap::Args)]
struct NetProbe {
    #[command(flatten)]
    probe: groundcrew_net_probe::Args,
    #[command(flatten)]
    runtime: RuntimeArgs,
}

#[derive(Debug, clap::Args)]
struct Flight {
    #[command(flatten)]
    flight: flight::Args,
    #[command(flatten)]
    openstack: groundcrew_openstack_cloud::Args,
    #[command(flatten)]
    runtime: RuntimeArgs,
}

#[tokio::main]
async fn main() -> ExitCode {
    let line: Line = match cli::parse(typed()) {
        Ok(line) => line,
        Err(code) => return code,
    };
    match line.command {
        Command::OvnLb(line) => {
            let OvnLb { ovn, attribution, runtime } = *line;
            runtime::run("ovn-lb", runtime, async move |runtime| {
                let attribution = Attribution::start(&runtime, &attribution);
                groundcrew_ovn_lb::start(&runtime, ovn, Arc::new(attribution)).await
            })
            .await
        }
        Command::LbWatcher(line) => {
            let LbWatcher { watcher, runtime } = *line;
            let runtime = groundcrew_lb_watcher::without_marks(runtime);
            let start = async move |runtime| groundcrew_lb_watcher::start(&runtime, watcher).await;
            runtime::run("lb-watcher", runtime, start).await
        }
        Command::Routegc(line) => {
            let Routegc { routegc, openstack, runtime } = *line;
            runtime::run("routegc", unmarked("routegc", runtime), async move |runtime| {
                let cloud = openstack.cloud(runtime.write_deadline)?;
                routegc::start(&runtime, routegc, Arc::new(cloud)).await
            })
            .await
        }
        Command::NodeAgent(line) => {
            let NodeAgent { agent, runtime } = *line;
            let runtime = groundcrew_node_agent::one_per_node(runtime);
            let start = async move |runtime| groundcrew_node_agent::start(&runtime, agent).await;
            runtime::run("node-agent", runtime, start).await
        }
        Command::NetProbe(line) => {
            let NetProbe { probe, runtime } = *line;
            let runtime = groundcrew_net_probe::one_per_node(runtime);
            let start = async move |runtime| groundcrew_net_probe::start(&runtime, probe).await;
            runtime::run("net-probe", runtime, start).await
        }
        Command::Flight(line) => {
            let Flight { flight, openstack, runtime } = *line;
            runtime::run("flight", unmarked("flight", runtime), async move |runtime| {
                let cloud = openstack.cloud(runtime.write_deadline)?;
                flight::start(&runtime, flight, Arc::new(cloud)).await
            })
            .await
        }
        Command::OvnRows(args) => print(groundcrew_ovn_lb::rows(&args).await.map_err(|error| anyhow::anyhow!(error))),
        Command::CloudsigmaCcm(line) => {
            let CloudSigmaCcm { cloudsigma, runtime } = *line;
            let start = async move |runtime| groundcrew_cloudsigma_ccm::start(&runtime, cloudsigma).await;
            runtime::run("cloudsigma-ccm", runtime, start).await
        }
        Command::Deorbit(command) => Box::pin(command.run()).await,
        Command::DeorbitController(line) => line.run().await,
        Command::Detach(args) => print(detach::detach(*args).await),
        Command::Explain(Explain::Service(args)) => answer(Box::pin(groundcrew_commands::explain(&args)).await),
        Command::Doctor(args) => answer(Box::pin(groundcrew_commands::doctor(&args)).await),
        Command::Pools(args) => answer(Box::pin(groundcrew_commands::pools(&args)).await),
        Command::Status(args) => answer(Box::pin(groundcrew_commands::status(&args)).await),
        Command::Completions { shell } => print(Ok(manual::completions::<Line>(shell))),
        Command::Man { directory } => print(manual::write::<Line>(&directory)),
        Command::Crds(args) => print(crds::yaml(&args)),
        Command::Version => print(Ok(concat!("groundcrew ", env!("CARGO_PKG_VERSION"), "\n").to_owned())),
    }
}

/// The command line. As a plugin of kubectl the program is called as its user types it, so that help can be copied.
fn typed() -> Vec<OsString> {
    let mut line: Vec<_> = std::env::args_os().collect();
    let program = line.first().map(Path::new).and_then(Path::file_stem);
    if program.is_some_and(|program| program == "kubectl-groundcrew") {
        line[0] = "kubectl groundcrew".into();
    }
    line
}

/// For one that marks nothing outside: it need not know its cluster, nor have the right to find out.
fn unmarked(name: &str, runtime: RuntimeArgs) -> RuntimeArgs {
    RuntimeArgs { cluster_id: runtime.cluster_id.or_else(|| Some(name.to_owned())), ..runtime }
}

/// Whatever could not be looked at at all exits as what could not be seen.
fn answer(answer: Result<Answer, StartError>) -> ExitCode {
    match answer {
        Ok(Answer { text, code }) => {
            let _ = std::io::stdout().write_all(text.as_bytes());
            ExitCode::from(code)
        }
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "error: {error}");
            ExitCode::from(3)
        }
    }
}

/// To standard output; a reader that has gone, as with `| head`, is no error.
fn print(text: anyhow::Result<String>) -> ExitCode {
    match text {
        Ok(text) => {
            let _ = std::io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
