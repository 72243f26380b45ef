//! The controller as a process: what `--core-controller-of` runs.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use clap::Parser;
use groundcrew_core::runtime::{Runtime, RuntimeArgs, run_until};
use groundcrew_core::service::{self, ServiceArgs};
use groundcrew_core::testing::MemoryCloud;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::world::CLASS;

#[derive(Parser)]
struct Args {
    #[command(flatten)]
    runtime: RuntimeArgs,
    #[command(flatten)]
    service: ServiceArgs,
}

/// Prints the seconds until its caches were full, those until all `n` Services were served, and ten idle seconds later how often it wrote.
#[allow(clippy::print_stdout, reason = "the other process reads it")]
pub(crate) async fn run(kubeconfig: &Path, n: usize) -> Result<()> {
    let cloud = MemoryCloud::default();
    let started = Instant::now();
    let (runtime, _stop) = start(kubeconfig, cloud.clone()).await?;
    while runtime.ready.check().is_err() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    println!("{}", started.elapsed().as_secs_f64());
    // The other process gives up on one that takes too long.
    while cloud.count() < n {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    println!("{}", started.elapsed().as_secs_f64());
    tokio::time::sleep(Duration::from_secs(10)).await;
    let families = runtime.registry.gather();
    let writes = families.iter().filter(|family| family.name() == "groundcrew_service_writes_total");
    let writes = writes.flat_map(prometheus::proto::MetricFamily::get_metric);
    let writes = writes.map(|metric| metric.get_counter().get_value()).fold(0.0, |sum, value| sum + value);
    println!("{writes}");
    std::future::pending().await
}

/// Starts it, alone; it runs until the token goes.
pub(super) async fn start(kubeconfig: &Path, cloud: MemoryCloud) -> Result<(Runtime, tokio_util::sync::DropGuard)> {
    let kubeconfig = kubeconfig.to_str().ok_or_else(|| anyhow!("odd path"))?;
    let args = Args::parse_from([
        "bench",
        "--kubeconfig",
        kubeconfig,
        "--admin-address=127.0.0.1:0",
        "--no-leader-election",
        "--cluster-id=bench",
        "--log=warn",
    ]);
    let stop = CancellationToken::new();
    let guard = stop.clone().drop_guard();
    let (started, runtime) = oneshot::channel();
    tokio::spawn(run_until(stop, CancellationToken::new(), "bench", args.runtime, async move |runtime| {
        service::start(&runtime, CLASS, &args.service, &Arc::new(cloud))?;
        let _ = started.send(runtime);
        Ok(())
    }));
    Ok((runtime.await?, guard))
}
