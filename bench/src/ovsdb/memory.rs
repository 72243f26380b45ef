//! What a replica costs in memory, measured in a process that does nothing else.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use groundcrew_testkit::ovn::Northbound as Server;
use ovsdb_client::{Condition, Op, Replica, Row};
use serde::{Deserialize, Serialize};

use super::rows::{LoadBalancer, Northbound};
use super::{config, deadline};
use crate::report::Report;

#[derive(Serialize, Deserialize)]
struct Grown {
    now: u64,
    peak: u64,
}

pub(crate) fn compare(n: usize, server: &Server, reply: usize, report: &mut Report) -> Result<()> {
    let child = Command::new(std::env::current_exe()?).arg("--ovsdb-memory-of").arg(server.unix(0)).output()?;
    ensure!(child.status.success(), "measuring memory: {}", String::from_utf8_lossy(&child.stderr));
    let grown: Grown = serde_json::from_slice(&child.stdout)?;
    let floor = mib(reply as u64);
    report.against_floor("memory, two snapshots alive", n, "MiB", mib(grown.now), floor, 3.0);
    report.against_floor("memory, peak while reading", n, "MiB", mib(grown.peak), floor, 4.0);
    Ok(())
}

#[allow(clippy::cast_precision_loss, reason = "a figure for people")]
fn mib(bytes: u64) -> f64 {
    bytes as f64 / 1024.0 / 1024.0
}

/// Runs in the child.
#[allow(clippy::print_stdout, reason = "the answer to the parent")]
pub(crate) async fn print(endpoint: &str) -> Result<()> {
    let before = status("VmRSS:")?;
    let replica = Replica::<Northbound>::open(config(endpoint)?);
    let first = replica.synced().await;
    let peak = status("VmHWM:")?.saturating_sub(before);
    // A hundred rows of difference, so that the second snapshot is not the first.
    let touched: Vec<Op> = first
        .load_balancers
        .iter()
        .step_by(first.load_balancers.len().div_ceil(100).max(1))
        .map(|(uuid, _)| Op::update(LoadBalancer::TABLE, [Condition::uuid(uuid)]).set("name", "changed").into())
        .collect();
    replica.client().transact(&touched, deadline()).await?;
    let second = replica.snapshot();
    let now = status("VmRSS:")?.saturating_sub(before);
    ensure!(first.generation() < second.generation(), "both snapshots are the same");
    println!("{}", serde_json::to_string(&Grown { now, peak })?);
    Ok(())
}

/// A line of `/proc/self/status`, in bytes.
fn status(key: &str) -> Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(key)).context("no such line in /proc/self/status")?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib * 1024)
}
