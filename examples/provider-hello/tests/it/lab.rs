//! A directory as the cloud, a namespace, and as many processes as a test wants.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use groundcrew_testkit::kube::{ControlPlane, Kubeconfig, shared};
use groundcrew_testkit::process::Process;
use groundcrew_testkit::{ReservedPort, Scratch, eventually};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::Service;
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

pub(crate) const SOON: Duration = Duration::from_secs(20);
/// Short, so that the tests are; long enough that writes of a third of it are possible.
pub(crate) const LEASE: Duration = Duration::from_secs(3);

pub(crate) struct Lab {
    pub(crate) control_plane: &'static ControlPlane,
    pub(crate) client: Client,
    pub(crate) namespace: String,
    pub(crate) scratch: Scratch,
}

pub(crate) struct Hello {
    pub(crate) process: Process,
    pub(crate) name: &'static str,
    admin: SocketAddr,
}

impl Lab {
    pub(crate) async fn new(name: &str) -> Self {
        let control_plane = shared().await.unwrap();
        let namespace = control_plane.namespace(name).await.unwrap();
        let client = control_plane.client().await.unwrap();
        Self { control_plane, client, namespace, scratch: Scratch::new(name).unwrap() }
    }

    pub(crate) fn command(&self, name: &str, port: u16) -> Command {
        self.command_for(self.control_plane.admin(), name, port)
    }

    pub(crate) fn command_for(&self, kubeconfig: &Kubeconfig, name: &str, port: u16) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_provider-hello"));
        command
            .env("HOSTNAME", name)
            .args(["--admin-address", &format!("127.0.0.1:{port}")])
            .args(["--kubeconfig", kubeconfig.path().to_str().unwrap()])
            .args(["--lease-namespace", &self.namespace])
            .args(["--lease-duration", &format!("{}s", LEASE.as_secs())])
            .args(["--directory", self.directory().to_str().unwrap()])
            .args(["--range", "192.0.2.0/24"])
            .args(["--class", &self.class()]);
        command
    }

    pub(crate) async fn start(&self, name: &'static str) -> Hello {
        self.start_as(name, |command| command).await
    }

    pub(crate) async fn start_as(&self, name: &'static str, more: impl FnOnce(&mut Command) -> &mut Command) -> Hello {
        self.start_for(self.control_plane.admin(), name, more).await
    }

    pub(crate) async fn start_for(
        &self,
        kubeconfig: &Kubeconfig,
        name: &'static str,
        more: impl FnOnce(&mut Command) -> &mut Command,
    ) -> Hello {
        let port = ReservedPort::new().unwrap();
        let mut command = self.command_for(kubeconfig, name, port.number());
        more(&mut command);
        let process = Process::spawn(name, &command, self.scratch.path()).unwrap();
        let hello = Hello { process, name, admin: port.address() };
        let ready = async || match hello.get("/readyz").await? {
            (200, _) => Ok(()),
            (_, why) => Err(anyhow!(why)),
        };
        hello.process.wait_ready(SOON, ready).await.unwrap();
        hello
    }

    /// One a test, so that tests do not serve each other's Services.
    fn class(&self) -> String {
        format!("hello.example/{}", self.namespace)
    }

    pub(crate) fn directory(&self) -> PathBuf {
        self.scratch.join("cloud")
    }

    /// What the cloud has for a Service.
    pub(crate) fn file(&self, service: &str) -> Result<String> {
        let prefix = format!("{}_{service}_", self.namespace);
        for entry in std::fs::read_dir(self.directory())? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(&prefix) {
                return Ok(std::fs::read_to_string(entry.path())?);
            }
        }
        Err(anyhow!("no file for {service}"))
    }

    pub(crate) fn services(&self) -> Api<Service> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(crate) async fn create(&self, name: &str) {
        let service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": { "name": name },
            "spec": {
                "type": "LoadBalancer", "loadBalancerClass": self.class(),
                "allocateLoadBalancerNodePorts": false, "ports": [{ "port": 80 }],
            },
        });
        let service = serde_json::from_value(service).unwrap();
        self.services().create(&PostParams::default(), &service).await.unwrap();
    }

    pub(crate) async fn until_served(&self, name: &str, within: Duration) -> Service {
        eventually(&format!("{name} has an address"), within, async || {
            let service = self.services().get(name).await?;
            let ingress = service.status.as_ref().and_then(|s| s.load_balancer.as_ref()?.ingress.as_ref()?.first());
            if ingress.is_some() { Ok(service) } else { Err(anyhow!("{:?}", service.status)) }
        })
        .await
        .unwrap()
    }

    pub(crate) async fn lease(&self) -> Result<LeaseSpec> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), &self.namespace);
        leases.get("groundcrew-provider-hello").await?.spec.context("no spec")
    }

    pub(crate) async fn until_leads(&self, hello: &Hello, within: Duration) {
        eventually(&format!("{} leads", hello.name), within, async || {
            let holder = self.lease().await?.holder_identity.unwrap_or_default();
            if holder.starts_with(&format!("{}_", hello.name)) { Ok(()) } else { Err(anyhow!("{holder:?} leads")) }
        })
        .await
        .unwrap();
    }
}

impl Hello {
    pub(crate) fn address(&self) -> SocketAddr {
        self.admin
    }

    pub(crate) async fn get(&self, path: &str) -> Result<(u16, String)> {
        get(self.admin, path).await
    }

    /// The value of a metric, written as on the page: with its labels.
    pub(crate) async fn metric(&self, series: &str) -> Result<f64> {
        let (_, page) = self.get("/metrics").await?;
        let value = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        Ok(value.with_context(|| format!("no {series} in:\n{page}"))?.parse()?)
    }

    pub(crate) async fn until_stopped(&self) {
        eventually(&format!("{} is stopped", self.name), SOON, async || {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.process.pid()))?;
            let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
            if state == Some('T') { Ok(()) } else { Err(anyhow!("state {state:?}")) }
        })
        .await
        .unwrap();
    }
}

pub(crate) async fn get(address: SocketAddr, path: &str) -> Result<(u16, String)> {
    let mut stream = tokio::net::TcpStream::connect(address).await?;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let status = answer.split(' ').nth(1).unwrap_or_default().parse()?;
    let body = answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default();
    Ok((status, body))
}
