//! The controller as a process, and what can be read from outside of it.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use groundcrew_testkit::Signal;
use groundcrew_testkit::controller::{Controller, get};

use super::{CLUSTER, PATIENCE, beside_us};
use crate::process::{cpu, memory};
use crate::world::CLASS;

pub(crate) struct Running {
    controller: Controller,
    pub(crate) started: Instant,
}

impl Running {
    pub(super) fn start(kubeconfig: &Path, endpoint: &str, flags: &[&str], dir: &Path) -> Result<Self> {
        let mut command = Command::new(beside_us("groundcrew")?);
        command
            .args(["ovn-lb", "--cluster-id", CLUSTER, "--class", CLASS, "--lease-namespace", "default"])
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .args(["--ovn-nb", endpoint])
            .args(flags)
            // As the image sets them: without, glibc keeps what the lists took.
            .envs([
                ("MALLOC_ARENA_MAX", "2"),
                ("MALLOC_TRIM_THRESHOLD_", "131072"),
                ("MALLOC_MMAP_THRESHOLD_", "131072"),
            ]);
        let started = Instant::now();
        Ok(Self { controller: Controller::spawn("groundcrew", command, dir)?, started })
    }

    /// When it said that it is ready, looked at every other millisecond.
    pub(crate) async fn ready(&self) -> Result<Instant> {
        while self.started.elapsed() < PATIENCE {
            if let Ok((200, _)) = get(self.controller.admin(), "/readyz").await {
                return Ok(Instant::now());
            }
            self.check()?;
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        anyhow::bail!("not ready within {PATIENCE:?}:\n{}", self.controller.process.last_words())
    }

    fn check(&self) -> Result<()> {
        let ended = self.controller.process.exit_status()?;
        ensure!(ended.is_none(), "the controller ended ({ended:?}):\n{}", self.controller.process.last_words());
        Ok(())
    }

    /// Ends it as Kubernetes does, so that it gives its Lease back.
    pub(crate) async fn stop(self) -> Result<()> {
        let status = self.controller.process.end(Signal::SIGTERM).await?;
        ensure!(status.success(), "the controller ended with {status}:\n{}", self.controller.process.last_words());
        Ok(())
    }

    pub(crate) fn resident(&self) -> Result<f64> {
        memory(self.pid(), "VmRSS:")
    }

    pub(crate) fn peak(&self) -> Result<f64> {
        memory(self.pid(), "VmHWM:")
    }

    /// CPU milliseconds so far.
    pub(crate) fn cpu(&self) -> Result<f64> {
        cpu(self.pid())
    }

    fn pid(&self) -> u32 {
        self.controller.process.pid().as_raw().cast_unsigned()
    }

    pub(crate) async fn metric(&self, series: &str) -> Result<f64> {
        self.check()?;
        self.controller.metric(series).await
    }

    /// Transactions that OVN has taken from it, its epochs not counted.
    pub(crate) async fn commits(&self) -> Result<f64> {
        self.metric(r#"groundcrew_ovn_commits_total{outcome="ok"}"#).await
    }

    /// Waits until a counter has come so far. Looks at it rarely: each look costs the process some of the CPU that is
    /// measured.
    pub(crate) async fn until_metric(&self, series: &str, least: f64, within: Duration) -> Result<()> {
        let deadline = Instant::now() + within;
        loop {
            let value = self.metric(series).await.unwrap_or_default();
            if value >= least {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "{series} is at {value} instead of {least} after {within:?}");
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    /// Waits until it has looked at so many Services, which it does when it begins to lead.
    pub(crate) async fn until_looked_at(&self, services: usize, within: Duration) -> Result<()> {
        #[allow(clippy::cast_precision_loss, reason = "a count")]
        let services = services as f64;
        self.until_metric(r#"groundcrew_service_reconciles_total{outcome="ok"}"#, services, within).await
    }
}
