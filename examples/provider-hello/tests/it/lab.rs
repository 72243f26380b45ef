//! A directory as the cloud, a namespace, and as many processes as a test wants.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, anyhow};
use groundcrew_testkit::controller::Controller;
use groundcrew_testkit::kube::{ControlPlane, Kubeconfig, shared};
use groundcrew_testkit::{Scratch, eventually};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::Service;
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::json;

/// Generous: a loaded two-core machine, not the example, decides how long things take here.
pub(crate) const SOON: Duration = Duration::from_mins(1);
const LEASE_NAME: &str = "groundcrew-provider-hello";
/// As by default: nobody loses it because the machine stood still for some seconds.
const LEASE: Duration = Duration::from_secs(15);
/// For tests that wait for its end, and in which it may be lost before; writes of a third of it are possible.
pub(crate) const SHORT_LEASE: Duration = Duration::from_secs(3);

pub(crate) struct Lab {
    pub(crate) control_plane: &'static ControlPlane,
    pub(crate) client: Client,
    pub(crate) namespace: String,
    pub(crate) scratch: Scratch,
    /// How long the leases of its leaders last.
    lease: Duration,
}

impl Lab {
    pub(crate) async fn new(name: &str) -> Self {
        let control_plane = shared().await.unwrap();
        let namespace = control_plane.namespace(name).await.unwrap();
        let client = control_plane.client().await.unwrap();
        Self { control_plane, client, namespace, scratch: Scratch::new(name).unwrap(), lease: LEASE }
    }

    pub(crate) async fn with_lease(name: &str, lease: Duration) -> Self {
        Self { lease, ..Self::new(name).await }
    }

    pub(crate) fn command(&self, kubeconfig: &Kubeconfig) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_provider-hello"));
        command
            .args(["--kubeconfig", kubeconfig.path().to_str().unwrap()])
            .args(["--lease-namespace", &self.namespace])
            .args(["--lease-duration", &format!("{}s", self.lease.as_secs())])
            .args(["--directory", self.directory().to_str().unwrap()])
            .args(["--range", "192.0.2.0/24"])
            .args(["--class", &self.class()]);
        command
    }

    pub(crate) async fn start(&self, name: &str) -> Controller {
        self.start_as(name, |command| command).await
    }

    pub(crate) async fn start_as(&self, name: &str, more: impl FnOnce(&mut Command) -> &mut Command) -> Controller {
        let mut command = self.command(self.control_plane.admin());
        more(&mut command);
        Controller::start(name, command, self.scratch.path(), SOON).await.unwrap()
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

    pub(crate) async fn until_leads(&self, controller: &Controller) {
        controller.until_leads(&self.client, &self.namespace, LEASE_NAME, SOON).await.unwrap();
    }

    /// The Lease of the leaders as it is now.
    pub(crate) async fn lease(&self) -> LeaseSpec {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), &self.namespace);
        leases.get(LEASE_NAME).await.unwrap().spec.unwrap()
    }
}
