//! Measures what the project promises, each figure against a floor that is measured in the same run.
//!
//! A scenario is a module with `async fn run(n: Option<usize>, report: &mut Report) -> Result<()>`.

#![allow(clippy::large_futures, reason = "few of them, each awaited once")]

mod cloudsigma;
mod core;
mod deorbit;
mod drift;
mod openstack;
mod ovn_lb;
mod ovsdb;
mod process;
mod report;
mod rig;
mod world;

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::{Parser, ValueEnum};

use report::Report;

/// Prints a table and writes one JSON line per figure to target/bench/SCENARIO.jsonl. Fails if a bar is missed.
#[derive(Parser)]
struct Args {
    /// Which scenario to run; all of them unless told.
    scenario: Option<Scenario>,
    /// The scenario's size; each has a default at which its bars hold.
    #[arg(long)]
    n: Option<usize>,
    /// Measures the memory of one replica, in this process, and prints it. The scenario starts itself so.
    #[arg(long, hide = true)]
    ovsdb_memory_of: Option<String>,
    /// Runs the Service controller against this kubeconfig. The scenario starts itself so.
    #[arg(long, hide = true)]
    core_controller_of: Option<PathBuf>,
    /// Lists what that controller reads, and prints how long it took.
    #[arg(long, hide = true)]
    core_list_of: Option<PathBuf>,
    /// Lists what the OVN controller reads, and prints how long it took.
    #[arg(long, hide = true)]
    ovn_lb_list_of: Option<PathBuf>,
    /// Sends requests there until its input ends, and prints what became of them.
    #[arg(long, hide = true)]
    drift_requests_to: Option<SocketAddr>,
    /// Plans for this many servers, in this process, and prints what it took. The scenario starts itself so.
    #[arg(long, hide = true)]
    openstack_plan_of: Option<usize>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Scenario {
    Core,
    Ovsdb,
    OvnLb,
    Drift,
    Cloudsigma,
    Openstack,
    Deorbit,
}

impl Scenario {
    async fn run(self, n: Option<usize>) -> Result<Report> {
        let mut report =
            Report::new(self.to_possible_value().map(|name| name.get_name().to_owned()).unwrap_or_default());
        match self {
            Self::Core => core::run(n, &mut report).await?,
            Self::Ovsdb => ovsdb::run(n, &mut report).await?,
            Self::Drift => drift::run(n, &mut report).await?,
            Self::Cloudsigma => cloudsigma::run(n, &mut report).await?,
            Self::Openstack => openstack::run(n, &mut report).await?,
            Self::Deorbit => deorbit::run(n, &mut report).await?,
            Self::OvnLb => ovn_lb::run(n, &mut report).await?,
        }
        Ok(report)
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    if let Some(endpoint) = args.ovsdb_memory_of {
        return ovsdb::memory::print(&endpoint).await;
    }
    if let Some(kubeconfig) = args.core_controller_of {
        return core::run_controller(&kubeconfig, args.n.unwrap_or_default()).await;
    }
    if let Some(kubeconfig) = args.core_list_of {
        return core::run_list(&kubeconfig).await;
    }
    if let Some(kubeconfig) = args.ovn_lb_list_of {
        return rig::bare::run_list(&kubeconfig).await;
    }
    if let Some(server) = args.drift_requests_to {
        return drift::requests::send(server).await;
    }
    if let Some(servers) = args.openstack_plan_of {
        return openstack::plan::print(servers).await;
    }
    let scenarios = args.scenario.map_or_else(|| Scenario::value_variants().to_vec(), |one| vec![one]);
    let mut missed = 0;
    for scenario in scenarios {
        let report = scenario.run(args.n).await?;
        report.write()?;
        missed += report.missed();
    }
    ensure!(missed == 0, "{missed} bars missed");
    Ok(())
}
