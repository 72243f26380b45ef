//! What the demo plays in: a cluster without nodes, OVN with a data path, and one groundcrew.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use groundcrew_api::address_pool::{AddressPool, AddressPoolSpec};
use groundcrew_api::names::class;
use groundcrew_testkit::HeldLogs;
use groundcrew_testkit::controller::Controller;
use groundcrew_testkit::kube::ControlPlane;
use groundcrew_testkit::ovn::Host;
use groundcrew_testkit::ovn::lab::{Lab, ROUTER};

use k8s_openapi::api::core::v1::{Namespace, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, PostParams};
use kube::core::ObjectMeta;
use kube::runtime::wait::{Condition, await_condition};
use kube::{Api, Client};
use serde_json::json;
use tokio::time::timeout;

/// A tenant's project: groundcrew finds its router and its switch by the namespace's name.
pub(crate) const PROJECT: &str = ROUTER;
pub(crate) const SERVICE: &str = "web";
/// What the lab's network outside has free.
pub(crate) const ADDRESSES: &str = "198.51.100.55-198.51.100.62";

/// Generous: what else runs on the machine decides, not groundcrew.
pub(crate) const SOON: Duration = Duration::from_mins(1);

pub(crate) struct World {
    // In the order in which they are to end.
    pub(crate) groundcrew: Controller,
    pub(crate) lab: Lab,
    pub(crate) control_plane: ControlPlane,
    client: Client,
    /// How long the three of them took to start.
    pub(crate) started: Started,
}

pub(crate) struct Started {
    pub(crate) control_plane: Duration,
    pub(crate) lab: Duration,
    pub(crate) groundcrew: Duration,
}

impl World {
    pub(crate) async fn start(logs: &HeldLogs) -> Result<Self> {
        let groundcrew = beside_us("groundcrew")?;
        let ((control_plane, control_plane_took), (lab, lab_took)) =
            tokio::try_join!(timed(ControlPlane::start()), timed(Lab::start()))?;
        control_plane.define(&groundcrew_api::crds()).await?;
        let client = control_plane.client().await?;
        make_project(&client).await?;
        let mut command = Command::new(groundcrew);
        command
            .arg("ovn-lb")
            .arg("--kubeconfig")
            .arg(control_plane.kubeconfig_path())
            .args(["--lease-namespace", PROJECT])
            .args(["--ovn-nb", &lab.northbound().remotes()]);
        let (groundcrew, groundcrew_took) = timed(async {
            let groundcrew = Controller::start("groundcrew", command, logs.path(), SOON).await?;
            groundcrew.until_leads(&client, PROJECT, "groundcrew-ovn-lb", SOON).await?;
            Ok(groundcrew)
        })
        .await?;
        let started = Started { control_plane: control_plane_took, lab: lab_took, groundcrew: groundcrew_took };
        Ok(Self { groundcrew, lab, control_plane, client, started })
    }

    fn services(&self) -> Api<Service> {
        Api::namespaced(self.client.clone(), PROJECT)
    }

    /// The first two pods of the lab as the Service's endpoints. Nobody else would do that: the pods are namespaces of
    /// this machine, not of a kubelet.
    pub(crate) async fn create_endpoints(&self) -> Result<()> {
        let endpoints: Vec<_> = (0..2)
            .map(|pod| json!({ "addresses": [self.lab.pod(pod).address()], "conditions": { "ready": true } }))
            .collect();
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": { "name": SERVICE, "labels": { "kubernetes.io/service-name": SERVICE } },
            "addressType": "IPv4", "endpoints": endpoints,
            "ports": [{ "name": "http", "protocol": "TCP", "port": Host::HTTP }],
        });
        let slices: Api<EndpointSlice> = Api::namespaced(self.client.clone(), PROJECT);
        slices
            .create(&PostParams::default(), &serde_json::from_value(slice)?)
            .await
            .context("create the EndpointSlice")?;
        Ok(())
    }

    pub(crate) async fn create_service(&self) -> Result<()> {
        let service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": { "name": SERVICE },
            "spec": {
                "type": "LoadBalancer", "loadBalancerClass": class::OVN, "allocateLoadBalancerNodePorts": false,
                "ports": [{ "name": "http", "port": 80, "targetPort": Host::HTTP }],
            },
        });
        let service = serde_json::from_value(service)?;
        self.services().create(&PostParams::default(), &service).await.context("create the Service")?;
        Ok(())
    }

    /// The address in the Service's status.
    pub(crate) async fn address(&self) -> Result<String> {
        let served = |service: Option<&Service>| service.and_then(address).is_some();
        let service = self.watch(served).await.context("the Service gets no address")?;
        service.as_ref().and_then(address).context("the Service is gone")
    }

    pub(crate) async fn delete_service(&self) -> Result<()> {
        self.services().delete(SERVICE, &DeleteParams::default()).await.context("delete the Service")?;
        self.watch(|service: Option<&Service>| service.is_none()).await.map(drop).context("the Service stays")
    }

    /// Waits until the Service is as `condition` wants it. A watch, because the time that it takes is told.
    async fn watch(&self, condition: impl Condition<Service>) -> Result<Option<Service>> {
        let watched = timeout(SOON, await_condition(self.services(), SERVICE, condition)).await;
        watched.with_context(|| format!("waited {SOON:?}"))?.context("watch the Service")
    }

    /// Runs `ovn-nbctl`.
    pub(crate) async fn nbctl(&self, args: &str) -> Result<String> {
        self.lab.northbound().nbctl(args.split(' ')).await
    }
}

fn address(service: &Service) -> Option<String> {
    service.status.as_ref()?.load_balancer.as_ref()?.ingress.as_ref()?.first()?.ip.clone()
}

async fn make_project(client: &Client) -> Result<()> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let metadata = ObjectMeta { name: Some(PROJECT.to_owned()), ..ObjectMeta::default() };
    let namespace = Namespace { metadata, ..Namespace::default() };
    namespaces.create(&PostParams::default(), &namespace).await.context("create the namespace")?;
    let pools: Api<AddressPool> = Api::all(client.clone());
    let spec = AddressPoolSpec { addresses: vec![ADDRESSES.to_owned()], ..AddressPoolSpec::default() };
    pools.create(&PostParams::default(), &AddressPool::new("public", spec)).await.context("create the AddressPool")?;
    Ok(())
}

/// A program of this workspace: cargo puts them all into one directory.
pub(crate) fn beside_us(program: &str) -> Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name(program);
    ensure!(path.is_file(), "{} is missing: run `make demo`, or `cargo build -p {program}`", path.display());
    Ok(path)
}

pub(crate) async fn timed<T>(work: impl Future<Output = Result<T>>) -> Result<(T, Duration)> {
    let started = Instant::now();
    let done = work.await?;
    Ok((done, started.elapsed()))
}
