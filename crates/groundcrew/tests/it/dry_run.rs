//! `--dry-run` prints what it would do, as a diff that a person can read, and does nothing.

use std::process::Command;

use anyhow::ensure;
use groundcrew_api::floating_ip::FloatingIP;
use groundcrew_api::names::{label, lease};
use groundcrew_api::node_repair::NodeRepair;
use groundcrew_testkit::cloudsigma::{CloudSigma, Nic, PASSWORD, USER};
use groundcrew_testkit::controller::Controller;
use groundcrew_testkit::kube::{ControlPlane, is_told_by_us};
use groundcrew_testkit::openstack::Method;
use groundcrew_testkit::openstack::fake::{self, Model};
use groundcrew_testkit::{Scratch, Signal, eventually};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use serde_json::{from_value, json};

use crate::lab::{Lab, SOON};

#[tokio::test]
async fn a_dry_run_prints_its_plan_as_a_diff_and_writes_nothing() {
    let lab = Lab::new("dry").await;
    let controller = lab.start("owner").await;
    lab.until_leads(&controller).await;
    for name in ["web", "api"] {
        lab.endpoint(name, true).await;
        lab.create(name).await;
        lab.until_served(name).await;
    }
    controller.process.end(Signal::SIGTERM).await.unwrap();
    let rows = lab.rows().await;
    let (web, api) = (&rows[1], &rows[0]);
    lab.northbound().nbctl(["lb-del", web]).await.unwrap();
    let vip = format!("{}:80", lab.address("api").await);
    lab.northbound().nbctl(["set", "Load_Balancer", api, &format!("vips:\"{vip}\"=\"10.1.0.99:8080\"")]).await.unwrap();
    lab.create("new").await;
    let before = lab.written().await;

    let dry = lab.spawn("dry", |command| command.args(["--dry-run", "--status-address", "off"]));
    let namespace = &lab.namespace;
    let expected = [
        format!("Service {namespace}/web\n  + row_missing: load balancer {web}\n"),
        format!("Service {namespace}/api\n  ~ vips\n    - {vip}=10.1.0.99:8080\n    + {vip}=10.1.0.41:8080\n"),
        format!(
            "Service {namespace}/new\n  + finalizer service.kubernetes.io/load-balancer-cleanup\n  + address and load balancer\n"
        ),
    ];
    eventually("all three are shown", SOON, async || {
        let log = dry.process.log();
        for diff in &expected {
            ensure!(log.contains(diff), "no\n{diff}in\n{log}");
        }
        Ok(())
    })
    .await
    .unwrap();
    assert!(!dry.process.log().contains('\x1b'), "no colours in a file");
    assert_eq!(lab.written().await, before);
    let (_, metrics) = dry.get("/metrics").await.unwrap();
    assert!(metrics.contains("groundcrew_build_info") && !metrics.contains("groundcrew_leader_"), "{metrics}");
}

#[tokio::test]
async fn a_dry_run_of_the_watcher_prints_what_the_manager_would_be_asked_for_and_wakes_nobody() {
    let lab = Lab::new("dry-watched").await;
    lab.endpoint("web", true).await;
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": "web" },
        "spec": { "type": "LoadBalancer", "allocateLoadBalancerNodePorts": false, "ports": [{ "port": 80 }] },
    });
    lab.services().create(&PostParams::default(), &from_value(service).unwrap()).await.unwrap();
    let status = json!({ "status": { "loadBalancer": { "ingress": [{ "ip": "192.0.2.7" }] } } });
    let served = lab.services().patch_status("web", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    let (namespace, nb) = (&lab.namespace, lab.northbound());
    let (row, switch) = (format!("{namespace}-web-tcp"), format!("{namespace}-default"));
    nb.nbctl(["lb-add", &row, "192.0.2.7:80", "10.1.0.41:8080"]).await.unwrap();
    nb.nbctl(["lr-lb-add", namespace, &row, "--", "ls-lb-add", &switch, &row]).await.unwrap();
    let dry = lab.run("watcher", |command| {
        command.args(["lb-watcher", "--dry-run", "--ovn-nb", &nb.remotes(), "--status-address", "off"]);
        command.args(["--settle-time", "500ms", "--kube-ovn-namespace", namespace])
    });
    dry.until_metric("groundcrew_watcher_services", SOON, |n| n > 0.5).await.unwrap();
    nb.nbctl(["lb-del", &row]).await.unwrap();
    let expected = format!("Service {namespace}/web\n  + row_missing: {row}\n");
    eventually("the diff is shown", SOON, async || {
        let log = dry.process.log();
        ensure!(log.contains(&expected), "no\n{expected}in\n{log}");
        Ok(())
    })
    .await
    .unwrap();
    let now = lab.services().get("web").await.unwrap();
    assert_eq!(now.metadata.resource_version, served.metadata.resource_version);
}

/// A cloud with servers n1 to n3, their ports, and a router with the routes of their pods and of a server that is gone. Gives
/// the router.
async fn cloud() -> (Model, String) {
    let model = Model::start().await.unwrap();
    let make = |kind: &str, fields| {
        let made = model.ask(&Method::POST, &format!("v2.0/{kind}s"), &json!({kind: fields})).unwrap();
        made[kind]["id"].as_str().unwrap().to_owned()
    };
    let network = make("network", json!({"name": "nodes"}));
    let subnet = make("subnet", json!({"network_id": network, "cidr": "10.180.0.0/16", "gateway_ip": "10.180.0.1"}));
    let router = make("router", json!({"name": "router"}));
    let path = format!("v2.0/routers/{router}");
    let interface = json!({"subnet_id": subnet});
    model.ask(&Method::PUT, &format!("{path}/add_router_interface"), &interface).unwrap();
    for i in 1..=3 {
        let (name, address) = (format!("n{i}"), format!("10.180.1.{i}"));
        model.boot(&name, &address);
        let own = json!([{"subnet_id": subnet, "ip_address": address}]);
        make(
            "port",
            json!({"network_id": network, "device_id": name, "device_owner": "compute:nova", "fixed_ips": own}),
        );
    }
    let route = |i: u8| json!({"destination": format!("100.100.{i}.0/24"), "nexthop": format!("10.180.1.{i}")});
    let extra = json!({"router": {"routes": [route(1), route(2), route(3), route(9)]}});
    model.ask(&Method::PUT, &format!("{path}/add_extraroutes"), &extra).unwrap();
    (model, router)
}

/// Nodes n1 to n3, of which n1 is not ready.
async fn register(plane: &ControlPlane) {
    let nodes: Api<Node> = Api::all(plane.client().await.unwrap());
    for i in 1..=3 {
        let (name, range) = (format!("n{i}"), format!("100.100.{i}.0/24"));
        let spec = json!({"providerID": format!("openstack:///{name}"), "podCIDR": range, "podCIDRs": [range]});
        let node = from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap();
        nodes.create(&PostParams::default(), &node).await.unwrap();
        let ready = json!({"type": "Ready", "status": if i == 1 { "False" } else { "True" }, "reason": "Test",
            "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z", "lastHeartbeatTime": "2026-01-01T00:00:00Z"});
        let addresses = json!([{"type": "InternalIP", "address": format!("10.180.1.{i}")}]);
        let status = Patch::Strategic(json!({"status": {"conditions": [ready], "addresses": addresses}}));
        nodes.patch_status(&name, &PatchParams::default(), &status).await.unwrap();
    }
}

#[tokio::test]
async fn a_dry_run_of_routegc_and_of_flight_prints_a_diff_and_writes_nothing_anywhere() {
    let plane = ControlPlane::start().await.unwrap();
    plane.define(&groundcrew_api::crds()).await.unwrap();
    register(&plane).await;
    let (model, router) = cloud().await;
    let before = model.everything();
    let scratch = Scratch::new("dry-openstack").unwrap();
    let routegc = ["routegc", "--sightings", "2", "--min-age", "1s", "--max-percent", "50"];
    let flight = ["flight", "--nodes", "repair", "--steady-for", "0s", "--unready-after", "1s"];
    for (flags, expected) in [
        (routegc, format!("router {router}\n  - 100.100.9.0/24 via 10.180.1.9 (orphan)\n")),
        (flight, "Node n1\n  ~ reboot server n1 (n1): its Node is not ready since 2026-01-01T00:00:00Z\n".into()),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_groundcrew"));
        command.args(flags).args(["--pod-cidr", "100.100.0.0/16", "--interval", "1s", "--dry-run"]);
        command.args(["--lease-namespace", "default", "--status-address", "off"]);
        command.env("GROUNDCREW_KUBECONFIG", plane.kubeconfig_path());
        command.envs([("OS_AUTH_URL", model.fake.url()), ("OS_PASSWORD", fake::PASSWORD.into())]);
        command.envs([("OS_USERNAME", "kluster"), ("OS_USER_DOMAIN_NAME", "Default")]);
        command.envs([("OS_PROJECT_NAME", "demo"), ("OS_PROJECT_DOMAIN_NAME", "Default")]);
        let dry = Controller::spawn(flags[0], command, scratch.path()).unwrap();
        eventually("the diff is shown", SOON, async || {
            let log = dry.process.log();
            ensure!(log.contains(&expected), "no\n{expected}in\n{log}");
            Ok(())
        })
        .await
        .unwrap();
    }
    let asked = model.fake.lines();
    assert!(asked.iter().all(|line| line.starts_with("GET ")), "{asked:?}");
    assert_eq!(model.everything(), before);
    let (client, all) = (plane.client().await.unwrap(), ListParams::default());
    let leases: Api<Lease> = Api::namespaced(client.clone(), "default");
    assert_eq!(leases.list(&all).await.unwrap().items, []);
    let events: Api<Event> = Api::all(client.clone());
    let told = events.list(&all).await.unwrap().items;
    assert_eq!(told.into_iter().filter(is_told_by_us).count(), 0);
    assert_eq!(Api::<NodeRepair>::all(client).list(&all).await.unwrap().items, []);
}

fn on_cloudsigma(plane: &ControlPlane, cloud: &CloudSigma) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_groundcrew"));
    command.args(["cloudsigma-ccm", "--dry-run", "--api-url", &cloud.url(), "--username", USER, "--region", "zrh"]);
    command.args(["--discovery-interval", "200ms", "--lease-namespace", "default", "--status-address", "off"]);
    command.env("GROUNDCREW_KUBECONFIG", plane.kubeconfig_path()).env("CLOUDSIGMA_PASSWORD", PASSWORD);
    command
}

#[tokio::test]
async fn a_dry_run_on_cloudsigma_prints_what_would_become_of_nodes_and_changes_none() {
    const NEW: &str = "node.cloudprovider.kubernetes.io/uninitialized";
    let plane = ControlPlane::start().await.unwrap();
    plane.define(&groundcrew_api::crds()).await.unwrap();
    let (client, all) = (plane.client().await.unwrap(), ListParams::default());
    let nodes: Api<Node> = Api::all(client.clone());
    let cloud = CloudSigma::start().await.unwrap();
    let server = cloud.account(|account| account.add_server("n1", Nic::Manual));
    let taint = json!({"key": NEW, "effect": "NoSchedule"});
    let spec = json!({"providerID": format!("cloudsigma://{server}"), "taints": [taint]});
    let node = from_value(json!({"metadata": {"name": "n1"}, "spec": spec})).unwrap();
    let before = nodes.create(&PostParams::default(), &node).await.unwrap();
    // Nobody knows which server this one is, which would be told by an Event.
    let lost = from_value(json!({"metadata": {"name": "n2"}, "spec": {"taints": [taint]}})).unwrap();
    nodes.create(&PostParams::default(), &lost).await.unwrap();

    let scratch = Scratch::new("dry-cloudsigma").unwrap();
    let dry = Controller::spawn("cloudsigma-ccm", on_cloudsigma(&plane, &cloud), scratch.path()).unwrap();
    eventually("the diff is shown", SOON, async || {
        let log = dry.process.log();
        for line in ["Node n1\n", "  + label topology.kubernetes.io/region=zrh\n", &format!("  - taint {NEW}\n")] {
            ensure!(log.contains(line), "no\n{line}in\n{log}");
        }
        Ok(())
    })
    .await
    .unwrap();
    let readings = || cloud.calls().iter().filter(|call| call.path.starts_with("servers/detail/")).count();
    let seen = readings();
    eventually("the account is read again and again", SOON, async || {
        ensure!(readings() > seen + 3, "{} times", readings());
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(dry.process.log().matches("Node n1\n").count(), 1, "what did not change is not shown again");
    assert_eq!(nodes.get("n1").await.unwrap().metadata.resource_version, before.metadata.resource_version);
    assert_eq!(cloud.writes(), []);
    let leases: Api<Lease> = Api::namespaced(client.clone(), "default");
    assert_eq!(leases.list(&all).await.unwrap().items, []);
    let events: Api<Event> = Api::all(client);
    let told = events.list(&all).await.unwrap().items;
    assert_eq!(told.into_iter().filter(is_told_by_us).count(), 0);
}

#[tokio::test]
async fn a_dry_run_on_cloudsigma_prints_to_which_node_an_address_would_go_and_moves_none() {
    const ADDRESS: &str = "203.0.113.7";
    let plane = ControlPlane::start().await.unwrap();
    plane.define(&groundcrew_api::crds()).await.unwrap();
    let client = plane.client().await.unwrap();
    let nodes: Api<Node> = Api::all(client.clone());
    let leases: Api<Lease> = Api::namespaced(client.clone(), "default");
    let objects: Api<FloatingIP> = Api::all(client);
    let cloud = CloudSigma::start().await.unwrap();
    cloud.account(|account| account.add_ip(ADDRESS.parse().unwrap()));
    let create = PostParams::default();
    for (name, cordoned) in [("n1", true), ("n2", false)] {
        let server = cloud.account(|account| account.add_server(name, Nic::Manual));
        let spec = json!({"providerID": format!("cloudsigma://{server}"), "unschedulable": cordoned});
        let node = from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap();
        nodes.create(&create, &node).await.unwrap();
        let ready = Patch::Strategic(json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}));
        nodes.patch_status(name, &PatchParams::default(), &ready).await.unwrap();
        // Nobody doubts for half of this that the agent lives.
        let spec = json!({"holderIdentity": "run-1", "leaseDurationSeconds": 3600});
        let lease = from_value(json!({"metadata": {"name": lease::of_node(name)}, "spec": spec})).unwrap();
        leases.create(&create, &lease).await.unwrap();
    }
    let spec = json!({"address": ADDRESS, "serial": 1, "holder": "n1"});
    let mut object = FloatingIP::new(ADDRESS, from_value(spec).unwrap());
    object.metadata.labels = Some([(label::CLUSTER.to_owned(), "us".to_owned())].into());
    let before = objects.create(&create, &object).await.unwrap();

    let scratch = Scratch::new("dry-moves").unwrap();
    let mut command = on_cloudsigma(&plane, &cloud);
    command.args(["--cluster-id", "us"]);
    let dry = Controller::spawn("cloudsigma-ccm", command, scratch.path()).unwrap();
    let expected = format!("FloatingIP {ADDRESS}\n  ~ holder n1 becomes n2 (unfit)\n");
    let shown = || dry.process.log().matches(&expected).count();
    eventually("the diff is shown", SOON, async || {
        ensure!(shown() > 0, "no\n{expected}in\n{}", dry.process.log());
        Ok(())
    })
    .await
    .unwrap();
    // Whatever happens to a Node has it looked at again.
    let label = Patch::Merge(json!({"metadata": {"labels": {"looked": "at"}}}));
    nodes.patch("n2", &PatchParams::default(), &label).await.unwrap();
    let cordon = Patch::Merge(json!({"spec": {"unschedulable": false}}));
    nodes.patch("n1", &PatchParams::default(), &cordon).await.unwrap();
    let readings = || cloud.calls().iter().filter(|call| call.path.starts_with("servers/detail/")).count();
    let seen = readings();
    eventually("the account is read again and again", SOON, async || {
        ensure!(readings() > seen + 3, "{} times", readings());
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(shown(), 1, "what did not change is not shown again");
    let after = objects.get(ADDRESS).await.unwrap();
    assert_eq!(after.metadata.resource_version, before.metadata.resource_version);
    assert_eq!(cloud.writes(), []);
}
