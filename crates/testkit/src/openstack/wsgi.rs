//! A service behind an HTTP port.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::Service;
use super::http::{Method, ask};
use crate::daemon::Daemon;
use crate::{ReservedPort, Signal};

const READY: Duration = Duration::from_mins(4);

/// A service in a uWSGI of one process, so that nothing of it outlives the process that is killed.
#[derive(Debug)]
pub(super) struct Wsgi {
    daemon: Daemon,
    port: ReservedPort,
    temp: PathBuf,
}

impl Wsgi {
    /// Does not start it yet.
    pub(super) fn new(service: Service, port: ReservedPort, environment: &Path, dir: &Path) -> Result<Self> {
        let (name, temp) = (service.name(), dir.join(format!("tmp-{}", service.name())));
        let mut server = program(environment, "uwsgi");
        server
            .arg(format!("--http-socket={}", port.address()))
            .arg(format!("--module={name}.wsgi.{}:application", module(service)))
            .args(["--threads=8", "--enable-threads", "--need-app", "--buffer-size=65535", "--die-on-term"])
            // It would close a connection that a client is about to use again.
            .args(["--add-header", "Connection: close"])
            .env(format!("OS_{}_CONFIG_DIR", name.to_uppercase()), dir)
            .env(format!("OS_{}_CONFIG_FILES", name.to_uppercase()), files(service, dir))
            .env("TMPDIR", &temp);
        if matches!(service, Service::BlockStorage | Service::LoadBalancer) {
            server.arg(format!("--pyargv=--config-file {}", dir.join(format!("{name}.conf")).display()));
        }
        Ok(Self { daemon: Daemon::new(name, &server, dir)?, port, temp })
    }

    /// Starts it and waits until it answers.
    pub(super) async fn start(&mut self) -> Result<()> {
        // Neutron keeps a file there by which a second start would take itself for a second worker.
        let _ = std::fs::remove_dir_all(&self.temp);
        std::fs::create_dir(&self.temp)?;
        let address = self.address();
        self.daemon
            .start(READY, async || {
                let answer = ask(address, Method::GET, "/", None, None).await?;
                ensure!(answer.status < 400, "{answer:?}");
                Ok(())
            })
            .await
    }

    pub(super) fn signal(&self, signal: Signal) -> Result<()> {
        self.daemon.process()?.signal(signal)
    }

    pub(super) async fn stop(&mut self) -> Result<()> {
        self.daemon.stop(Signal::SIGKILL).await
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.port.address()
    }
}

/// Nova looks for its application in the first.
fn files(service: Service, dir: &Path) -> String {
    let file = |name: &str| dir.join(name).display().to_string();
    let settings = file(&format!("{}.conf", service.name()));
    if service == Service::Compute { format!("{};{settings}", file("nova-paste.ini")) } else { settings }
}

fn module(service: Service) -> &'static str {
    if service == Service::Compute { "osapi_compute" } else { "api" }
}

/// A program of the services. Theirs is their own configuration, not that of whoever runs the tests.
pub(super) fn program(environment: &Path, name: &str) -> Command {
    let mut command = Command::new(environment.join("bin").join(name));
    // They ask each other, and a proxy would not find them.
    for key in ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "PYTHONPATH", "PYTHONHOME"] {
        command.env_remove(key);
    }
    command
}
