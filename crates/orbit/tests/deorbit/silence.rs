//! Kubernetes does not answer any more, in every way in which it may not, and the time runs out.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context, ensure};
use clap::Parser;
use groundcrew_api::deorbit::{DeorbitStatus, Phase};
use groundcrew_core::runtime::{Runtime, RuntimeArgs};
use groundcrew_orbit::deorbit::Args;
use groundcrew_orbit::deorbit::cli::{self, Shown, Wish};
use groundcrew_testkit::kube::ControlPlane;
use groundcrew_testkit::proxy::Proxy;
use groundcrew_testkit::{Scratch, eventually};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::{from_value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::task::AbortOnDropHandle;

use crate::lab::{CLUSTER, CSI, Lab, SOON};

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    wish: Wish,
    #[command(flatten)]
    shown: Shown,
    #[command(flatten)]
    deorbit: Args,
    #[command(flatten)]
    runtime: RuntimeArgs,
}

/// `groundcrew deorbit run` through a proxy, with rights that can be taken away.
struct Run {
    proxy: Proxy,
    ended: JoinHandle<u8>,
    report: PathBuf,
    _scratch: Scratch,
}

const ACCOUNT: &str = "deorbit";

impl Run {
    /// As far as it comes while the Service cannot go.
    async fn start(lab: &Lab, proceed: bool) -> Self {
        lab.served("web").await;
        lab.standins.stop(&lab.standins.balancers).await;
        let bindings: Api<ClusterRoleBinding> = Api::all(lab.client.clone());
        let account = lab.plane.service_account("default", ACCOUNT).await.unwrap();
        let subject = json!({"kind": "ServiceAccount", "namespace": "default", "name": ACCOUNT});
        let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"});
        let binding = json!({"metadata": {"name": ACCOUNT}, "roleRef": role, "subjects": [subject]});
        // There from a test before.
        let _ = bindings.create(&PostParams::default(), &from_value(binding).unwrap()).await;

        let scratch = Scratch::new("silence").unwrap();
        let proxy = Proxy::before(lab.plane.address()).await.unwrap();
        let direct = std::fs::read_to_string(account.path()).unwrap();
        let kubeconfig = scratch.path().join("kubeconfig");
        let (server, ours) = (lab.plane.address().to_string(), proxy.address().to_string());
        assert!(direct.contains(&server));
        std::fs::write(&kubeconfig, direct.replace(&server, &ours)).unwrap();
        let report = scratch.path().join("report.json");
        let uid = lab.uid().await;
        let mut line = vec!["deorbit", "--kubeconfig", kubeconfig.to_str().unwrap(), "--confirm", &uid];
        line.extend(["--cluster-id", "test", "--lease-namespace", "default", "--name", "end", "--budget", "1m"]);
        line.extend(if proceed { vec!["--proceed"] } else { vec![] });
        let Line { wish, shown, deorbit, runtime } = Line::parse_from(line);
        let (clouds, to) = (lab.clouds((CLUSTER, CSI)), Some(report.clone()));
        let ended = tokio::task::spawn_local(async move {
            cli::run(runtime, deorbit, wish, shown, to, async |runtime: &Runtime| Ok(clouds(runtime.client.clone())))
                .await
        });
        let run = Self { proxy, ended, report, _scratch: scratch };
        lab.until("it waits for the Service", |status| status.stage.contains("LoadBalancers")).await;
        run
    }

    /// What it said in the end, and the code that it exited with.
    async fn end(self) -> (u8, DeorbitStatus) {
        let code = tokio::time::timeout(SOON, self.ended).await.expect("it ends in time").unwrap();
        let report = std::fs::read_to_string(&self.report).unwrap();
        (code, serde_json::from_str(&report).unwrap())
    }
}

/// Ends as it should: not clean, with what the cloud shows, and nothing of it touched.
async fn assert_honest(lab: &Lab, (code, status): (u8, DeorbitStatus), because: &str) {
    assert_eq!((code, status.phase), (cli::LEFTOVERS, Phase::Leftovers));
    assert!(status.message.contains("the time is up") && status.message.contains(because), "{}", status.message);
    let kinds: Vec<_> = status.report.iter().map(|line| line.kind.as_str()).collect();
    for kind in ["unknown", "octavia-load-balancer", "neutron-floating-ip", "neutron-security-group"] {
        assert!(kinds.contains(&kind), "{kind} in {kinds:?}");
    }
    assert_eq!(lab.place.ids("loadbalancers").await.len(), 1);
}

fn locally(test: impl Future<Output = ()>) -> impl Future<Output = ()> {
    let set = tokio::task::LocalSet::new();
    async move { set.run_until(test).await }
}

pub(crate) async fn an_api_server_that_refuses_connections_until_the_time_is_up(lab: &Lab) {
    locally(async {
        let mut run = Run::start(lab, false).await;
        run.proxy = Proxy::before(lab.plane.address()).await.unwrap();
        assert_honest(lab, run.end().await, "Kubernetes does not answer").await;
    })
    .await;
}

pub(crate) async fn an_api_server_that_says_nothing_until_the_time_is_up(lab: &Lab) {
    locally(async {
        let run = Run::start(lab, false).await;
        run.proxy.partition();
        assert_honest(lab, run.end().await, "does not answer within").await;
    })
    .await;
}

pub(crate) async fn an_api_server_whose_certificate_cannot_be_trusted_until_the_time_is_up(lab: &Lab) {
    let test = locally(async {
        // A whole one, with another authority's certificate.
        let other = ControlPlane::start().await.unwrap();
        let mut run = Run::start(lab, false).await;
        let address = run.proxy.address();
        run.proxy = Proxy::before(lab.plane.address()).await.unwrap();
        let _impostor = impostor(address, other.address()).await;
        assert_honest(lab, run.end().await, "Kubernetes does not answer").await;
    });
    Box::pin(test).await;
}

pub(crate) async fn an_api_server_that_knows_us_no_longer_until_the_time_is_up(lab: &Lab) {
    locally(async {
        let run = Run::start(lab, false).await;
        let accounts: Api<ServiceAccount> = Api::namespaced(lab.client.clone(), "default");
        accounts.delete(ACCOUNT, &DeleteParams::default()).await.unwrap();
        assert_honest(lab, run.end().await, "Unauthorized").await;
    })
    .await;
}

/// Where the operator said so beforehand, the cluster may go, and the report is written all the same.
pub(crate) async fn a_silent_api_server_does_not_hold_a_cluster_that_may_go(lab: &Lab) {
    locally(async {
        let run = Run::start(lab, true).await;
        run.proxy.partition();
        let (code, status) = run.end().await;
        assert_eq!((code, status.let_go), (cli::CLEAN, true), "{status:?}");
        assert!(status.report.iter().any(|line| line.kind == "octavia-load-balancer"), "{:?}", status.report);
    })
    .await;
}

/// Another at this address.
async fn impostor(address: SocketAddr, other: SocketAddr) -> AbortOnDropHandle<()> {
    let listener = eventually("the port is free", SOON, async || {
        let listener = TcpListener::bind(address).await.context("bind")?;
        ensure!(listener.local_addr()? == address, "another port");
        Ok(listener)
    });
    let listener = listener.await.unwrap();
    AbortOnDropHandle::new(tokio::spawn(async move {
        let mut relays = JoinSet::new();
        while let Ok((mut client, _)) = listener.accept().await {
            relays.spawn(async move {
                if let Ok(mut server) = TcpStream::connect(other).await {
                    let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                }
            });
        }
    }))
}
