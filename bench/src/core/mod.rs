//! The Service controller alone, over a cloud in memory, against a bare list of the same objects.
//!
//! A cold start is everything from the first request to the last Service looked at and served. The floor is what any
//! client needs to read the same objects once: both lists at the same time, in the same pages, decoded into the same
//! types, and dropped.

mod controller;
mod world;

use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use groundcrew_testkit::kube::ControlPlane;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::ListParams;
use kube::{Api, Client};
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::report::{Report, median};

pub(crate) use controller::run as run_controller;

const ROUNDS: usize = 5;
/// For one line of the controller's.
const PATIENCE: Duration = Duration::from_mins(5);
/// As the controller's own watches list.
const PAGE: u32 = 250;

pub(crate) async fn run(n: Option<usize>, report: &mut Report) -> Result<()> {
    let n = n.unwrap_or(10_000);
    let plane = ControlPlane::start_from(&world::saved(n).await?).await?;
    let client = plane.client().await?;
    // The API server's own caches fill with the first lists; neither side should pay for that.
    bare_list(&client).await?;

    let (mut floors, mut starts, mut last) = (Vec::new(), Vec::new(), None);
    for _ in 0..ROUNDS {
        floors.push(bare_list(&plane.client().await?).await?);
        let round = cold_start(&plane, n).await?;
        starts.push(round.took);
        last = Some(round);
    }
    let last = last.context("no round")?;
    report.against_floor(
        "cold start",
        n,
        "s",
        median(&mut starts).as_secs_f64(),
        median(&mut floors).as_secs_f64(),
        1.3,
    );
    report.below("writes to Kubernetes after a restart", n, "", last.writes, 1.0);
    report.told("resident memory", n, "MiB", last.resident);
    report.told("resident memory, peak", n, "MiB", last.peak);
    report.told("CPU in 10 idle seconds", n, "ms", last.idle_cpu);
    Ok(())
}

/// Reads everything once and keeps nothing.
async fn bare_list(client: &Client) -> Result<Duration> {
    let started = Instant::now();
    tokio::try_join!(list_all::<Service>(client), list_all::<EndpointSlice>(client))?;
    Ok(started.elapsed())
}

async fn list_all<K>(client: &Client) -> Result<()>
where
    K: kube::Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let api: Api<K> = Api::all(client.clone());
    let mut params = ListParams::default().limit(PAGE);
    loop {
        let page = api.list(&params).await?;
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = ListParams::default().limit(PAGE).continue_token(&token),
            None => return Ok(()),
        }
    }
}

struct Round {
    took: Duration,
    writes: f64,
    resident: f64,
    peak: f64,
    idle_cpu: f64,
}

/// A process of its own, so that its memory is the controller's alone.
async fn cold_start(plane: &ControlPlane, n: usize) -> Result<Round> {
    let mut child = tokio::process::Command::new(std::env::current_exe()?)
        .args(["--core-controller-of".as_ref(), plane.kubeconfig_path().as_os_str()])
        .args(["--n", &n.to_string()])
        // As the image sets them: without, glibc keeps what the lists took.
        .envs([("MALLOC_ARENA_MAX", "2"), ("MALLOC_TRIM_THRESHOLD_", "131072"), ("MALLOC_MMAP_THRESHOLD_", "131072")])
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let pid = child.id().context("the controller has ended")?;
    let mut said = BufReader::new(child.stdout.take().context("no output")?).lines();
    let mut next = async || -> Result<f64> {
        let line = said.next_line().await?.context("the controller ended before it had served everything")?;
        Ok(line.parse()?)
    };
    let mut next = async || tokio::time::timeout(PATIENCE, next()).await.context("no word from the controller")?;
    let took = Duration::from_secs_f64(next().await?);
    let before = cpu(pid)?;
    let writes = next().await?;
    let round = Round {
        took,
        writes,
        resident: memory(pid, "VmRSS:")?,
        peak: memory(pid, "VmHWM:")?,
        idle_cpu: cpu(pid)? - before,
    };
    child.kill().await?;
    Ok(round)
}

/// MiB of the process.
fn memory(pid: u32, field: &str) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)).context("no such field")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<f64>()? / 1024.0)
}

/// CPU milliseconds of the process so far.
fn cpu(pid: u32) -> Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields: Vec<_> = stat.rsplit(") ").next().context("no fields")?.split(' ').collect();
    let ticks: f64 = fields[11].parse::<f64>()? + fields[12].parse::<f64>()?;
    Ok(ticks * 10.0)
}
