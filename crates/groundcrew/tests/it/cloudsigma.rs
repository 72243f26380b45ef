//! A CloudSigma controller that dies right before any one of its writes, to Kubernetes or to the cloud: who comes after it
//! serves the Service on one address, and leaves nothing behind when that goes.

use std::net::IpAddr;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use groundcrew_api::floating_ip::FloatingIP;
use groundcrew_api::names::label;
use groundcrew_testkit::agents::Agents;
use groundcrew_testkit::cloudsigma::{Account, CloudSigma, Nic, PASSWORD, USER};
use groundcrew_testkit::controller::Controller;
use groundcrew_testkit::kube::{ControlPlane, shared};
use groundcrew_testkit::{Scratch, Signal, eventually};
use k8s_openapi::api::core::v1::{Node, Service};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;

use crate::lab::SOON;

/// As a Service needs at least, up and down: its claim, the mark, the `FloatingIP`, its holder, the status; and back.
const FEWEST_WRITES: u32 = 10;

struct Lab {
    control_plane: &'static ControlPlane,
    namespace: String,
    client: Client,
    cloud: CloudSigma,
    _agents: Agents,
    scratch: Scratch,
}

impl Lab {
    async fn new() -> Self {
        let control_plane = shared().await.unwrap();
        control_plane.define(&groundcrew_api::crds()).await.unwrap();
        let namespace = control_plane.namespace("cloudsigma").await.unwrap();
        let client = control_plane.client().await.unwrap();
        let cloud = CloudSigma::start().await.unwrap();
        let agents = Agents::start(&client, &namespace, &namespace, 3);
        let node = format!("{namespace}-node");
        // `FloatingIP`s have no namespace: each test has addresses of its own.
        let net = namespace.rsplit('-').next().unwrap().parse().unwrap();
        let server = cloud.account(|account| {
            // As a cloud that takes changed NICs of running servers, for `--mode attach`.
            account.live_nics = true;
            for last in [1, 2] {
                account.add_ip(IpAddr::from([198, 18, net, last]));
            }
            account.add_server(&node, Nic::Manual)
        });
        let nodes: Api<Node> = Api::all(client.clone());
        let object =
            json!({ "metadata": { "name": node }, "spec": { "providerID": format!("cloudsigma://{server}") } });
        nodes.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
        let ready = json!({ "status": { "conditions": [{ "type": "Ready", "status": "True" }] } });
        nodes.patch_status(&node, &PatchParams::default(), &Patch::Strategic(ready)).await.unwrap();
        agents.live(&node);
        let scratch = Scratch::new("cloudsigma").unwrap();
        Self { control_plane, namespace, client, cloud, _agents: agents, scratch }
    }

    fn command(&self, mode: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_groundcrew"));
        command
            .args(["cloudsigma-ccm", "--no-leader-election", "--api-url", &self.cloud.url(), "--username", USER])
            .args(["--kubeconfig", self.control_plane.kubeconfig_path().to_str().unwrap()])
            .args(["--lease-namespace", &self.namespace, "--cluster-id", &self.namespace])
            .args(["--class", &self.class(), "--leave-classless"])
            .args(["--mode", mode, "--discovery-interval", "200ms", "--claim-settle", "500ms"])
            .env("CLOUDSIGMA_PASSWORD", PASSWORD);
        command
    }

    fn class(&self) -> String {
        format!("test.example/{}", self.namespace)
    }

    fn services(&self) -> Api<Service> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    async fn create(&self) {
        let service = json!({
            "metadata": { "name": "web" },
            "spec": {
                "type": "LoadBalancer", "loadBalancerClass": self.class(), "allocateLoadBalancerNodePorts": false,
                "ports": [{ "port": 80 }],
            },
        });
        self.services().create(&PostParams::default(), &serde_json::from_value(service).unwrap()).await.unwrap();
    }

    async fn delete(&self) {
        self.services().delete("web", &DeleteParams::default()).await.unwrap();
    }

    /// The Service has an address, and people see in the account whose it is.
    async fn ensure_served(&self) -> Result<()> {
        let status = self.services().get("web").await?.status;
        let ingress = status.as_ref().and_then(|status| status.load_balancer.as_ref()?.ingress.as_ref()?.first());
        ensure!(ingress.is_some(), "{status:?}");
        let account = self.cloud.snapshot();
        ensure!(account.tags.len() == 3, "{:?}", account.tags);
        let marked = account.ips.values().filter(|ip| ip["meta"] != json!({})).count();
        assert_eq!(marked, 1, "one Service has one address");
        Ok(())
    }

    /// Nothing tells that there was a Service.
    async fn ensure_as(&self, before: &Account) -> Result<()> {
        let service = self.services().get_opt("web").await?;
        ensure!(service.is_none(), "{service:?}");
        let ours = ListParams::default().labels(&format!("{}={}", label::CLUSTER, self.namespace));
        let floating = Api::<FloatingIP>::all(self.client.clone()).list(&ours).await?;
        ensure!(floating.items.is_empty(), "{floating:?}");
        let now = self.cloud.snapshot();
        ensure!(now.ips == before.ips && now.tags == before.tags, "{:?} {:?}", now.ips, now.tags);
        ensure!(now.servers == before.servers, "{:?}", now.servers);
        Ok(())
    }
}

/// Whether the controller stopped before this came true.
async fn stops_before(controller: &Controller, what: &str, mut probe: impl AsyncFnMut() -> Result<()>) -> bool {
    let either = eventually(what, SOON, async || match probe().await {
        Ok(()) => Ok(false),
        Err(not_yet) => match controller.until_stopped(Duration::from_millis(5)).await {
            Ok(()) => Ok(true),
            Err(_) => Err(not_yet),
        },
    });
    either.await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_right_before_any_of_its_writes_it_is_followed_by_one_that_goes_on() {
    killed_before_any_write("manual").await;
}

/// A NIC of a server is written too, and none is left.
#[tokio::test(flavor = "multi_thread")]
async fn killed_right_before_any_write_of_a_server_it_is_followed_by_one_that_goes_on() {
    killed_before_any_write("attach").await;
}

async fn killed_before_any_write(mode: &str) {
    let lab = Lab::new().await;
    let before = lab.cloud.snapshot();
    for write in 1.. {
        let mut command = lab.command(mode);
        command.env("GROUNDCREW_FAULT", format!("between check and send@{write}"));
        // Not waited for: it may be stopped before anybody can ask whether it is ready.
        let doomed = Controller::spawn(&format!("doomed-{write}"), command, lab.scratch.path()).unwrap();
        lab.create().await;
        let mut stopped = stops_before(&doomed, "it is served", async || lab.ensure_served().await).await;
        let deleted = !stopped;
        if deleted {
            lab.delete().await;
            stopped = stops_before(&doomed, "all is as before", async || lab.ensure_as(&before).await).await;
        }
        doomed.process.end(Signal::SIGKILL).await.unwrap();
        if !stopped {
            assert!(write > FEWEST_WRITES, "only {write} writes were seen");
            return;
        }
        let heir =
            Controller::start(&format!("heir-{write}"), lab.command(mode), lab.scratch.path(), SOON).await.unwrap();
        if !deleted {
            let what = format!("served although the first died before write {write}");
            eventually(&what, SOON, async || lab.ensure_served().await).await.unwrap();
            lab.delete().await;
        }
        let what = format!("all is as before although the first died before write {write}");
        eventually(&what, SOON, async || lab.ensure_as(&before).await).await.unwrap();
        heir.process.end(Signal::SIGTERM).await.unwrap();
    }
}
