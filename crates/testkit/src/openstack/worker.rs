//! Processes of the services that nobody asks by HTTP.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use super::wsgi::program;
use crate::daemon::Daemon;
use crate::pidns::bind_with_children;

const READY: Duration = Duration::from_mins(4);

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Worker {
    /// Writes what others of Nova ask for into its database.
    Conductor,
    /// Finds a place for a server.
    Scheduler,
    /// Has the servers, which do not exist.
    Compute,
    /// Finds a place for a volume.
    VolumeScheduler,
    /// Has the volumes, which do not exist.
    Volumes,
    /// Has the load balancers, which do not exist.
    LoadBalancers,
}

impl Worker {
    pub(super) const ALL: [Self; 6] =
        [Self::Conductor, Self::Scheduler, Self::Compute, Self::VolumeScheduler, Self::Volumes, Self::LoadBalancers];

    /// The program, and the file that it reads.
    fn program(self) -> (&'static str, &'static str) {
        match self {
            Self::Conductor => ("nova-conductor", "nova.conf"),
            Self::Scheduler => ("nova-scheduler", "nova.conf"),
            Self::Compute => ("nova-compute", "nova-compute.conf"),
            Self::VolumeScheduler => ("cinder-scheduler", "cinder.conf"),
            Self::Volumes => ("cinder-volume", "cinder.conf"),
            Self::LoadBalancers => ("octavia-worker", "octavia.conf"),
        }
    }

    /// Its name in the list of processes that its service keeps, if it keeps one.
    pub(super) fn listed(self) -> Option<&'static str> {
        (self != Self::LoadBalancers).then(|| self.program().0)
    }
}

/// A process that may run.
#[derive(Debug)]
pub(super) struct Working(Daemon);

impl Working {
    /// Does not start it yet.
    pub(super) async fn new(worker: Worker, environment: &Path, dir: &Path) -> Result<Self> {
        let (name, file) = worker.program();
        let mut command = program(environment, name);
        command.arg("--config-file").arg(dir.join(file)).env("TMPDIR", dir).current_dir(dir);
        // They fork.
        Ok(Self(Daemon::bound(name, bind_with_children(&command).await?, dir)))
    }

    /// Starts it and waits until `ready`.
    pub(super) async fn start(&mut self, ready: impl AsyncFnMut() -> Result<()>) -> Result<()> {
        self.0.start(READY, ready).await
    }
}
