//! The Service controller alone, over a cloud in memory, against a bare list of the same objects.
//!
//! A cold start is everything from the first request to the last Service looked at and served. The floor is what any
//! client needs to read the same objects once: both lists at the same time, in the same pages, decoded into the same
//! types, and dropped.

mod controller;
mod world;

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use groundcrew_testkit::kube::ControlPlane;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::ListParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::process::{cpu, memory};
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

    let (mut floors, mut fulls, mut starts, mut last) = (Vec::new(), Vec::new(), Vec::new(), None);
    for _ in 0..ROUNDS {
        floors.push(bare_start(&plane).await?);
        let round = cold_start(&plane, n).await?;
        fulls.push(round.full);
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
    report.told("caches full", n, "s", median(&mut fulls).as_secs_f64());
    report.below("writes to Kubernetes after a restart", n, "", last.writes, 1.0);
    report.told("resident memory", n, "MiB", last.resident);
    report.told("resident memory, peak", n, "MiB", last.peak);
    report.told("CPU in 10 idle seconds", n, "ms", last.idle_cpu);
    Ok(())
}

/// Reads everything once and keeps nothing.
async fn bare_list(client: &Client) -> Result<()> {
    tokio::try_join!(list_all::<Service>(client), list_all::<EndpointSlice>(client))?;
    Ok(())
}

pub(crate) async fn list_all<K>(client: &Client) -> Result<()>
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
    full: Duration,
    took: Duration,
    writes: f64,
    resident: f64,
    peak: f64,
    idle_cpu: f64,
}

/// This program as another process, so that memory and start-up are the measured one's alone.
fn child(plane: &ControlPlane, flag: &str, n: usize) -> Result<Child> {
    let child = Command::new(std::env::current_exe()?)
        .args([flag.as_ref(), plane.kubeconfig_path().as_os_str()])
        .args(["--n", &n.to_string()])
        // As the image sets them: without, glibc keeps what the lists took.
        .envs([("MALLOC_ARENA_MAX", "2"), ("MALLOC_TRIM_THRESHOLD_", "131072"), ("MALLOC_MMAP_THRESHOLD_", "131072")])
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    Ok(child)
}

async fn bare_start(plane: &ControlPlane) -> Result<Duration> {
    let output = child(plane, "--core-list-of", 0)?.wait_with_output().await?;
    Ok(Duration::from_secs_f64(std::str::from_utf8(&output.stdout)?.trim().parse()?))
}

/// What `--core-list-of` runs: prints the seconds that a bare list takes.
#[allow(clippy::print_stdout, reason = "the other process reads it")]
pub(crate) async fn run_list(kubeconfig: &Path) -> Result<()> {
    let started = Instant::now();
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    bare_list(&Client::try_from(config)?).await?;
    println!("{}", started.elapsed().as_secs_f64());
    Ok(())
}

async fn cold_start(plane: &ControlPlane, n: usize) -> Result<Round> {
    let mut child = child(plane, "--core-controller-of", n)?;
    let pid = child.id().context("the controller has ended")?;
    let mut said = BufReader::new(child.stdout.take().context("no output")?).lines();
    let mut next = async || -> Result<f64> {
        let line = said.next_line().await?.context("the controller ended before it had served everything")?;
        Ok(line.parse()?)
    };
    let mut next = async || tokio::time::timeout(PATIENCE, next()).await.context("no word from the controller")?;
    let full = Duration::from_secs_f64(next().await?);
    let took = Duration::from_secs_f64(next().await?);
    let before = cpu(pid)?;
    let writes = next().await?;
    let round = Round {
        full,
        took,
        writes,
        resident: memory(pid, "VmRSS:")?,
        peak: memory(pid, "VmHWM:")?,
        idle_cpu: cpu(pid)? - before,
    };
    child.kill().await?;
    Ok(round)
}
