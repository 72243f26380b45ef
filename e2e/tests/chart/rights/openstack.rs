//! `routegc` and `flight` on an OpenStack that remembers.

use anyhow::{anyhow, ensure};
use groundcrew_api::node_repair::NodeRepair;
use groundcrew_testkit::openstack::Method;
use groundcrew_testkit::openstack::fake::{Model, PASSWORD, Reply};
use groundcrew_testkit::{Signal, eventually};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::{Installed, SOON};

const LONG_AGO: &str = "2026-01-01T00:00:00Z";

pub(super) struct World {
    pub(super) model: Model,
    router: String,
}

impl World {
    /// A router on the network of the Nodes.
    pub(super) async fn new() -> Self {
        let model = Model::start().await.unwrap();
        let make = |kind: &str, fields: Value| -> String {
            let made = model.ask(&Method::POST, &format!("v2.0/{kind}s"), &json!({ kind: fields })).unwrap();
            made[kind]["id"].as_str().unwrap().to_owned()
        };
        let network = make("network", json!({ "name": "nodes" }));
        let subnet =
            json!({ "network_id": network, "cidr": "10.180.0.0/16", "ip_version": 4, "gateway_ip": "10.180.0.1" });
        let subnet = make("subnet", subnet);
        let router = make("router", json!({ "name": "router" }));
        let interface = format!("v2.0/routers/{router}/add_router_interface");
        model.ask(&Method::PUT, &interface, &json!({ "subnet_id": subnet })).unwrap();
        for (name, address) in [("n1", "10.180.1.1"), ("n2", "10.180.1.2")] {
            let port = json!({
                "network_id": network, "device_id": name, "device_owner": "compute:nova",
                "fixed_ips": [{ "subnet_id": subnet, "ip_address": address }],
            });
            make("port", port);
            model.boot(name, address);
        }
        Self { model, router }
    }

    pub(super) fn add_route(&self, destination: &str, nexthop: &str) {
        let routes = json!({ "router": { "routes": [{ "destination": destination, "nexthop": nexthop }] } });
        self.model.ask(&Method::PUT, &format!("v2.0/routers/{}/add_extraroutes", self.router), &routes).unwrap();
    }

    pub(super) fn routes(&self) -> String {
        let router = self.model.ask(&Method::GET, &format!("v2.0/routers/{}", self.router), &Value::Null).unwrap();
        router["router"]["routes"].to_string()
    }

    /// The chart with this controller, and the cloud.conf in its Secret.
    pub(super) async fn installed(&self, controller: &str, flags: &str) -> Installed {
        let sets = [
            // The model has none.
            "controllers.flight.securityGroup=".to_owned(),
            // flight reads what the probes write.
            format!("controllers.net-probe.enabled={}", controller == "flight"),
            format!("controllers.{controller}.extraArgs={{{flags}}}"),
            format!("controllers.{controller}.routers={{{}}}", self.router),
        ];
        let sets: Vec<_> = sets.into_iter().flat_map(|set| ["--set".to_owned(), set]).collect();
        let installed = Installed::new(controller, &sets).await;
        let conf = format!(
            "[Global]\nauth-url = {}/v3\nusername = demo\npassword = {PASSWORD}\ntenant-name = kluster\ndomain-id = default\n",
            self.model.fake.url()
        );
        installed.mount("openstack", "cloud.conf", &conf);
        for (name, cidr, address) in [("n1", "10.244.1.0/24", "10.180.1.1"), ("n2", "10.244.2.0/24", "10.180.1.2")] {
            let nodes: Api<Node> = Api::all(installed.client.clone());
            let spec = json!({ "providerID": format!("openstack:///{name}"), "podCIDR": cidr, "podCIDRs": [cidr] });
            let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name }, "spec": spec });
            nodes.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
            let status = json!({ "status": { "addresses": [{ "type": "InternalIP", "address": address }] } });
            nodes.patch_status(name, &PatchParams::default(), &Patch::Strategic(status)).await.unwrap();
            set_ready(&nodes, name, "True").await;
        }
        installed
    }
}

async fn set_ready(nodes: &Api<Node>, name: &str, status: &str) {
    let condition = json!({
        "type": "Ready", "status": status, "reason": "Test", "message": "",
        "lastTransitionTime": LONG_AGO, "lastHeartbeatTime": LONG_AGO,
    });
    let patch = json!({ "status": { "conditions": [condition] } });
    nodes.patch_status(name, &PatchParams::default(), &Patch::Strategic(patch)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn routegc_removes_an_orphan_with_the_rights_of_the_chart() {
    let world = World::new().await;
    world.add_route("10.244.1.0/24", "10.180.1.1");
    world.add_route("10.244.2.0/24", "10.180.1.2");
    world.add_route("10.244.9.0/24", "10.180.9.9");
    let flags = "--interval=1s,--min-age=1s,--sightings=2,--max-percent=100";
    let installed = world.installed("routegc", flags).await;
    let controller = installed.start("routegc").await;
    eventually("the orphan is gone", SOON, async || {
        let routes = world.routes();
        ensure!(!routes.contains("10.244.9.0/24"), "{routes}\n{}", controller.process.last_words());
        Ok(())
    })
    .await
    .unwrap();
    assert!(world.routes().contains("10.244.1.0/24") && world.routes().contains("10.244.2.0/24"), "{}", world.routes());
    controller.process.end(Signal::SIGTERM).await.unwrap();
    installed.assert_used_but("routegc", &[]);
}

#[tokio::test(flavor = "multi_thread")]
async fn flight_repairs_and_remembers_with_the_rights_of_the_chart() {
    let world = World::new().await;
    // Nova takes every order.
    world.model.fault(move |seen| {
        let (method, path) = seen.line.split_once(' ')?;
        let id = path.strip_prefix("/compute/v2.1/servers/")?;
        match method {
            "POST" => Some(Reply::text(202, "")),
            "GET" if !id.starts_with("detail") => {
                let server = json!({
                    "id": id, "name": id, "tenant_id": "p1", "status": "ACTIVE", "created": LONG_AGO, "addresses": {},
                });
                Some(Reply::ok(&json!({ "server": server })))
            }
            _ => None,
        }
    });
    let flags = "--interval=1s,--unready-after=1s,--steady-for=0s,--cooldown=1s,--max-repair-percent=100";
    let installed = world.installed("flight", flags).await;
    let nodes: Api<Node> = Api::all(installed.client.clone());
    let controller = installed.start("flight").await;
    eventually("the Node shows that its route is missing", SOON, async || {
        let conditions = nodes.get("n1").await?.status.and_then(|status| status.conditions).unwrap_or_default();
        ensure!(conditions.iter().any(|c| c.type_ == "RouteMissing" && c.status == "True"), "{conditions:?}");
        Ok(())
    })
    .await
    .unwrap();
    set_ready(&nodes, "n1", "Unknown").await;
    let repairs: Api<NodeRepair> = Api::all(installed.client.clone());
    eventually("a repair is noted", SOON, async || {
        let repair = repairs.get("n1").await?;
        repair.status.map(drop).ok_or_else(|| anyhow!("no status; {}", controller.process.last_words()))
    })
    .await
    .unwrap();
    set_ready(&nodes, "n1", "True").await;
    eventually("what is well is forgotten", SOON, async || {
        let left = repairs.list(&ListParams::default()).await?.items;
        ensure!(left.is_empty(), "{left:?}");
        Ok(())
    })
    .await
    .unwrap();
    controller.process.end(Signal::SIGTERM).await.unwrap();
    installed.assert_used_but("flight", &[]);
}
