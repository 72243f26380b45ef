//! `groundcrew deorbit` and `groundcrew deorbit-controller`: which clouds a cluster has things in.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args as _, FromArgMatches, Subcommand};
use groundcrew_cloudsigma_ccm::CloudSigmaLeftovers;
use groundcrew_core::runtime::{self, Runtime, RuntimeArgs, StartError};
use groundcrew_openstack_cloud::{Absent, ServiceLeftovers, VolumeLeftovers};
use groundcrew_orbit::deorbit::cli::{self, Output, Shown, Wish};
use groundcrew_orbit::deorbit::cloud::Clouds;
use groundcrew_orbit::deorbit::routes::{Recalled, RouteLeftovers};
use groundcrew_orbit::deorbit::{self, Args};
use groundcrew_ovn::TlsFlags;
use groundcrew_ovn_lb::OvnLeftovers;
use ipnet::IpNet;
use ovsdb_client::Endpoint;

/// Flags that say where a cluster has things.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Clouds")]
pub(crate) struct CloudArgs {
    /// The --cluster-name of OpenStack's cloud controller manager, which it writes on load balancers, floating IPs and security groups
    #[arg(long, env = "GROUNDCREW_CCM_CLUSTER", value_name = "NAME")]
    ccm_cluster: Option<String>,

    /// The --cluster of the Cinder driver, which it writes on volumes, snapshots and backups
    #[arg(long, env = "GROUNDCREW_CSI_CLUSTER", value_name = "NAME")]
    csi_cluster: Option<String>,

    /// Ids of the routers that carry routes to the cluster's pods
    #[arg(long, env = "GROUNDCREW_ROUTER", value_name = "ID", value_delimiter = ',', requires = "pod_cidr")]
    router: Vec<String>,

    /// The ranges of the cluster's pods
    #[arg(long, env = "GROUNDCREW_POD_CIDR", value_name = "CIDR", value_delimiter = ',')]
    pod_cidr: Vec<IpNet>,

    /// What this OpenStack does not have, so that it is not asked for
    #[arg(long, env = "GROUNDCREW_CLOUD_LACKS", value_name = "SERVICE", value_delimiter = ',')]
    cloud_lacks: Vec<Absent>,

    #[command(flatten)]
    openstack: groundcrew_openstack_cloud::Args,

    /// OVN's northbound database, as groundcrew ovn-lb has it: load balancers, EIps and OvnEips that carry --cluster-id
    #[arg(long, env = "GROUNDCREW_OVN_NB", value_name = "ENDPOINTS", value_delimiter = ',')]
    ovn_nb: Vec<Endpoint>,

    #[command(flatten)]
    ovn_tls: TlsFlags,

    /// The CloudSigma account, by the variables that groundcrew cloudsigma-ccm reads: addresses and tags that carry --cluster-id
    #[arg(long, env = "GROUNDCREW_CLOUDSIGMA")]
    cloudsigma: bool,
}

impl CloudArgs {
    /// OpenStack's marks have names of their own, so that nobody needs the cluster's id for those.
    fn named(&self, runtime: RuntimeArgs) -> RuntimeArgs {
        if self.ovn_nb.is_empty() && !self.cloudsigma { unmarked(runtime) } else { runtime }
    }

    async fn clouds(self, runtime: &Runtime) -> Result<Clouds, StartError> {
        let (client, deadline) = (runtime.client.clone(), runtime.write_deadline);
        let mut clouds = Clouds::default();
        if !self.ovn_nb.is_empty() {
            let northbound = self.ovn_tls.config(&self.ovn_nb);
            clouds = clouds.with(OvnLeftovers::new(northbound, client.clone(), runtime.cluster_id.clone(), deadline));
        }
        if self.cloudsigma {
            let client = cloudsigma().await?;
            let (kube, cluster) = (runtime.client.clone(), runtime.cluster_id.clone());
            clouds = clouds.with(CloudSigmaLeftovers { client, kube, cluster, deadline });
        }
        if self.ccm_cluster.is_none() && self.csi_cluster.is_none() && self.router.is_empty() {
            let none = "no cloud to look at: give --ccm-cluster, --csi-cluster, --router, --ovn-nb or --cloudsigma";
            return if clouds.is_empty() { Err(none.into()) } else { Ok(clouds) };
        }
        let cloud = self.openstack.cloud(deadline)?;
        if let Some(cluster) = self.ccm_cluster {
            clouds = clouds.with(ServiceLeftovers { cloud: cloud.clone(), cluster, absent: self.cloud_lacks.clone() });
        }
        if let Some(cluster) = self.csi_cluster {
            clouds = clouds.with(VolumeLeftovers { cloud: cloud.clone(), cluster, absent: self.cloud_lacks });
        }
        if !self.router.is_empty() {
            let (routers, pod_ranges) = (self.router, self.pod_cidr);
            clouds = clouds.with(RouteLeftovers { cloud, client, routers, pod_ranges, recalled: Recalled::default() });
        }
        Ok(clouds)
    }
}

/// Its variables are many, and all are those of the controller.
async fn cloudsigma() -> Result<groundcrew_cloudsigma_ccm::client::Client, StartError> {
    let command = groundcrew_cloudsigma_ccm::Args::augment_args(clap::Command::new("cloudsigma"));
    let args = command
        .try_get_matches_from(["cloudsigma"])
        .and_then(|matches| groundcrew_cloudsigma_ccm::Args::from_arg_matches(&matches))
        // Of clap's words only the kind: the rest may repeat what a variable holds.
        .map_err(|error| format!("--cloudsigma: the variables CLOUDSIGMA_... are not complete: {}", error.kind()))?;
    Ok(groundcrew_cloudsigma_ccm::client::Client::new(args.config().await?)?)
}

#[derive(Debug, clap::Args)]
pub(crate) struct Controller {
    #[command(flatten)]
    deorbit: Args,
    #[command(flatten)]
    clouds: CloudArgs,
    #[command(flatten)]
    runtime: RuntimeArgs,
}

impl Controller {
    pub(crate) async fn run(self) -> ExitCode {
        let Self { deorbit, clouds, runtime } = self;
        runtime::run("deorbit", clouds.named(runtime), async move |runtime| {
            let clouds = clouds.clouds(&runtime).await?;
            deorbit::start(&runtime, deorbit, clouds).await
        })
        .await
    }
}

/// Exit codes: 0 nothing is left (or --proceed lets it go), 1 it could not be found out, 3 something is left or it still
/// runs, 4 refused, and nothing was done.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show what would go, and write nothing
    Plan(Box<Plan>),
    /// Do it, and follow it to its end
    ///
    /// Makes a Deorbit object. Where `groundcrew deorbit-controller` runs in the cluster, that one works; otherwise this
    /// process does. Killed and started again with the same flags, it goes on where it was.
    Run(Box<Run>),
    /// Show how far it is and what is left
    Status(Box<Status>),
    /// Put everything back, as long as nothing was deleted
    Abort(Box<Abort>),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Plan {
    #[command(flatten)]
    wish: Wish,
    /// How the result looks
    #[arg(long, short, env = "GROUNDCREW_OUTPUT", default_value = "table")]
    output: Output,
    #[command(flatten)]
    deorbit: Args,
    #[command(flatten)]
    clouds: CloudArgs,
    #[command(flatten)]
    runtime: RuntimeArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Run {
    #[command(flatten)]
    wish: Wish,
    #[command(flatten)]
    shown: Shown,
    /// Also write the result to this file, as JSON
    #[arg(long, env = "GROUNDCREW_REPORT", value_name = "FILE")]
    report: Option<PathBuf>,
    #[command(flatten)]
    deorbit: Args,
    #[command(flatten)]
    clouds: CloudArgs,
    #[command(flatten)]
    runtime: RuntimeArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Status {
    #[command(flatten)]
    shown: Shown,
    #[command(flatten)]
    runtime: RuntimeArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Abort {
    #[command(flatten)]
    shown: Shown,
    #[command(flatten)]
    deorbit: Args,
    #[command(flatten)]
    runtime: RuntimeArgs,
}

impl Command {
    pub(crate) async fn run(self) -> ExitCode {
        let code = match self {
            Self::Plan(line) => {
                let Plan { wish, output, deorbit, clouds, runtime } = *line;
                let runtime = clouds.named(runtime);
                cli::plan(runtime, deorbit, wish, output, async |runtime| clouds.clouds(runtime).await).await
            }
            Self::Run(line) => {
                let Run { wish, shown, report, deorbit, clouds, runtime } = *line;
                let runtime = clouds.named(runtime);
                cli::run(runtime, deorbit, wish, shown, report, async |runtime| clouds.clouds(runtime).await).await
            }
            Self::Status(line) => cli::status(unmarked(line.runtime), line.shown).await,
            Self::Abort(line) => {
                let Abort { shown, deorbit, runtime } = *line;
                cli::abort(unmarked(runtime), deorbit, shown).await
            }
        };
        ExitCode::from(code)
    }
}

/// For what touches nothing that carries the cluster's id.
fn unmarked(runtime: RuntimeArgs) -> RuntimeArgs {
    crate::unmarked("deorbit", runtime)
}
