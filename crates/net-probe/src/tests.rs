//! Probes that write to a real kube-apiserver and ask each other on loopback. Of that no EndpointSlice may speak, so tests say
//! who the others are.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Parser;
use groundcrew_api::net_probe::{Report, lease_of};
use groundcrew_core::runtime::{RuntimeArgs, StartError, run_until};
use groundcrew_testkit::kube::{ControlPlane, shared};
use groundcrew_testkit::{ReservedPort, eventually};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::*;

const SOON: Duration = Duration::from_secs(90);

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    probe: Args,
    #[command(flatten)]
    runtime: RuntimeArgs,
}

struct Lab {
    plane: &'static ControlPlane,
    client: Client,
    namespace: String,
    peers: watch::Sender<Arc<Peers>>,
}

struct Probe {
    stop: CancellationToken,
    ended: JoinHandle<Result<(), StartError>>,
    admin: SocketAddr,
}

impl Probe {
    async fn stop(self) {
        self.stop.cancel();
        self.ended.await.unwrap().unwrap();
    }
}

impl Lab {
    async fn new(name: &str) -> Self {
        let plane = shared().await.unwrap();
        let (client, namespace) = (plane.client().await.unwrap(), plane.namespace(name).await.unwrap());
        Self { plane, client, namespace, peers: watch::Sender::default() }
    }

    async fn start(&self, node: &str) -> Probe {
        let kubeconfig = self.plane.kubeconfig_path().to_str().unwrap();
        let line = Line::parse_from([
            "net-probe",
            "--kubeconfig",
            kubeconfig,
            "--lease-namespace",
            &self.namespace,
            "--admin-address",
            "127.0.0.1:0",
            "--node-name",
            node,
            "--interval",
            "100ms",
        ]);
        let (stop, (tell, admin)) = (CancellationToken::new(), oneshot::channel());
        let (stopped, peers) = (stop.clone(), self.peers.subscribe());
        let ended = tokio::spawn(async move {
            let runtime = one_per_node(line.runtime);
            run_until(stopped, CancellationToken::new(), "net-probe", runtime, async move |runtime| {
                tell.send(runtime.admin).unwrap();
                rounds(&runtime, line.probe, peers)
            })
            .await
        });
        Probe { stop, ended, admin: admin.await.unwrap() }
    }

    fn know(&self, peers: &[(&str, SocketAddr)]) {
        let peers = peers.iter().map(|(node, address)| ((*node).to_owned(), vec![*address])).collect();
        self.peers.send_replace(Arc::new(peers));
    }

    /// Waits until the probe of a node says this.
    async fn says(&self, node: &str, reached: &[&str], unreached: &[&str]) {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), &self.namespace);
        eventually(&format!("the probe of {node} reaches {reached:?} and not {unreached:?}"), SOON, async || {
            let lease = leases.get(&lease_of(node)).await?;
            let report = Report::from_lease(lease, Timestamp::now()).context("no report")?;
            let named = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
            let wanted = Report { node: node.into(), reached: named(reached), unreached: named(unreached) };
            ensure!(report == wanted, "{report:?}");
            Ok(())
        })
        .await
        .unwrap();
    }
}

#[tokio::test]
async fn probes_say_whom_they_reach_and_whom_not_until_they_do() {
    let lab = Lab::new("probes").await;
    let (a, b) = (lab.start("a").await, lab.start("b").await);
    // Nobody listens there.
    let silent = ReservedPort::new().unwrap();
    lab.know(&[("a", a.admin), ("b", b.admin), ("c", silent.address())]);
    lab.says("a", &["b"], &["c"]).await;
    lab.says("b", &["a"], &["c"]).await;

    // The node goes, and nobody is asked about it any more.
    lab.know(&[("a", a.admin), ("b", b.admin)]);
    lab.says("a", &["b"], &[]).await;
    b.stop().await;
    lab.says("a", &[], &["b"]).await;
    a.stop().await;
}
