//! The chart where it belongs: kubelets run the image's own pods on two nodes, with the tokens and the files that they mount.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test's helpers are tests too")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use groundcrew_api::address_pool::{AddressPool, AddressPoolSpec};
use groundcrew_api::names::class;
use groundcrew_api::net_probe::{REACHED, lease_of};
use groundcrew_e2e::kubelet::Nodes;
use groundcrew_testkit::cloudsigma::{CloudSigma, Nic, PASSWORD, USER};
use groundcrew_testkit::eventually;
use groundcrew_testkit::kube::ControlPlane;
use groundcrew_testkit::openstack::Method;
use groundcrew_testkit::openstack::fake::{self, Model};
use groundcrew_testkit::ovn::Central;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Pod, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{ListParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

/// Forty containers start on two cores.
const SOON: Duration = Duration::from_mins(8);
const NAMESPACE: &str = "groundcrew";
const PROBES: &str = "groundcrew-probes";
const PROJECT: &str = "shop";
const CONTROLLERS: [&str; 6] = ["ovn-lb", "lb-watcher", "cloudsigma-ccm", "routegc", "flight", "deorbit"];
const AGENTS: [&str; 2] = ["node-agent", "net-probe"];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn helm(plane: &ControlPlane, args: &[&str], values: &Value) {
    let found = Command::new(repository().join("hack/setup")).args(["which", "helm"]).output().unwrap();
    assert!(found.status.success(), "{}", String::from_utf8_lossy(&found.stderr));
    let mut helm = Command::new(String::from_utf8(found.stdout).unwrap().trim());
    helm.env("KUBECONFIG", plane.kubeconfig_path()).env("HELM_NAMESPACE", NAMESPACE).args(args);
    if !values.is_null() {
        let file = plane.kubeconfig_path().with_file_name("values.json");
        std::fs::write(&file, values.to_string()).unwrap();
        helm.arg(repository().join("charts/groundcrew")).arg("--values").arg(file);
    }
    let ended = helm.output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
}

/// A router on the network of the nodes.
fn furnish(model: &Model) -> String {
    let make = |kind: &str, fields: Value| -> String {
        let made = model.ask(&Method::POST, &format!("v2.0/{kind}s"), &json!({ kind: fields })).unwrap();
        made[kind]["id"].as_str().unwrap().to_owned()
    };
    let network = make("network", json!({ "name": "nodes" }));
    let subnet =
        json!({ "network_id": network, "cidr": "198.51.100.0/24", "ip_version": 4, "gateway_ip": "198.51.100.1" });
    let subnet = make("subnet", subnet);
    let router = make("router", json!({ "name": "router" }));
    let interface = format!("v2.0/routers/{router}/add_router_interface");
    model.ask(&Method::PUT, &interface, &json!({ "subnet_id": subnet })).unwrap();
    router
}

async fn create_secret(client: &Client, name: &str, key: &str, value: &str) {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
    let secret = json!({ "metadata": { "name": name }, "stringData": { key: value } });
    secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
}

async fn create_namespace(client: &Client, name: &str) {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = json!({ "metadata": { "name": name } });
    namespaces.create(&PostParams::default(), &serde_json::from_value(namespace).unwrap()).await.unwrap();
}

/// The release's pods: where each is, whether it is ready, and how often it was restarted.
async fn pods(client: &Client) -> Result<Vec<(String, Pod)>> {
    let all: Api<Pod> = Api::all(client.clone());
    let ours = ListParams::default().labels("app.kubernetes.io/part-of=groundcrew");
    let pods = all.list(&ours).await?.items.into_iter();
    Ok(pods.map(|pod| (pod.labels()["app.kubernetes.io/component"].clone(), pod)).collect())
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|one| one.type_ == "Ready" && one.status == "True")
}

/// Two ready pods of each on different nodes, none of which `before` has, and all of one generation. Gives their names.
async fn until_all_ready(client: &Client, nodes: &Nodes, before: &BTreeSet<String>) -> BTreeSet<String> {
    let ready = eventually("two pods of each are ready", SOON, async || {
        let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut names = BTreeSet::new();
        for (component, pod) in pods(client).await? {
            let name = pod.name_any();
            ensure!(!before.contains(&name), "{name} is still there");
            ensure!(is_ready(&pod), "{name}: {:?}", pod.status);
            let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).context("nowhere")?;
            places.entry(component).or_default().push(node);
            names.insert(name);
        }
        for component in CONTROLLERS.iter().chain(&AGENTS) {
            let found: BTreeSet<_> = places.get(*component).into_iter().flatten().collect();
            ensure!(found.len() == 2 && places[*component].len() == 2, "{component}: {places:?}");
        }
        Ok(names)
    });
    ready.await.unwrap_or_else(|error| panic!("{error:#}\n{}", nodes.last_words()))
}

async fn create_service(client: &Client) {
    let service = json!({
        "metadata": { "name": "web" },
        "spec": {
            "type": "LoadBalancer", "loadBalancerClass": class::OVN, "allocateLoadBalancerNodePorts": false,
            "ports": [{ "name": "http", "port": 80, "targetPort": 8080 }],
        },
    });
    let services: Api<Service> = Api::namespaced(client.clone(), PROJECT);
    services.create(&PostParams::default(), &serde_json::from_value(service).unwrap()).await.unwrap();
    let slice = json!({
        "metadata": { "name": "web", "labels": { "kubernetes.io/service-name": "web" } },
        "addressType": "IPv4", "ports": [{ "name": "http", "protocol": "TCP", "port": 8080 }],
        "endpoints": [{ "addresses": ["10.1.0.41"], "conditions": { "ready": true } }],
    });
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), PROJECT);
    slices.create(&PostParams::default(), &serde_json::from_value(slice).unwrap()).await.unwrap();
}

async fn until_served(client: &Client) -> String {
    let services: Api<Service> = Api::namespaced(client.clone(), PROJECT);
    eventually("the Service has an address", SOON, async || {
        let status = services.get("web").await?.status;
        let ingress = status.as_ref().and_then(|status| status.load_balancer.as_ref()?.ingress.as_ref()?.first());
        ingress.and_then(|ingress| ingress.ip.clone()).ok_or_else(|| anyhow!("{status:?}"))
    })
    .await
    .unwrap()
}

async fn rows(central: &Central) -> String {
    let columns = ["--columns=_uuid,name,vips", "list", "Load_Balancer"];
    central.northbound().nbctl(columns).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_pod_of_the_chart_becomes_ready_works_is_replaced_and_goes() {
    let image = std::env::var_os("GROUNDCREW_IMAGE").expect("GROUNDCREW_IMAGE is not set: run `make e2e-kubelet`");
    let mut plane = ControlPlane::start().await.unwrap();
    let client = plane.client().await.unwrap();
    let (central, model, cloud) = (Central::start().await.unwrap(), Model::start().await.unwrap(), CloudSigma::start());
    let cloud = cloud.await.unwrap();
    central.northbound().nbctl(["lr-add", PROJECT, "--", "ls-add", &format!("{PROJECT}-default")]).await.unwrap();
    let router = furnish(&model);
    let ids: Vec<_> = ["node-0", "node-1"]
        .map(|name| format!("cloudsigma://{}", cloud.account(|account| account.add_server(name, Nic::Manual))))
        .into();
    let mut nodes = Nodes::start(&mut plane, &ids, Path::new(&image)).await.unwrap();
    let northbound = nodes.offer(central.northbound().tcp_address(0)).await.unwrap();
    let sigma = nodes.offer(cloud.address()).await.unwrap();
    let keystone = nodes.offer(model.fake.url().trim_start_matches("http://").parse().unwrap()).await.unwrap();
    model.fake.catalog(fake::catalog(&format!("http://{keystone}")));

    create_namespace(&client, NAMESPACE).await;
    create_namespace(&client, PROJECT).await;
    create_secret(&client, "cloudsigma", "password", PASSWORD).await;
    let conf = format!(
        "[Global]\nauth-url = http://{keystone}/v3\nusername = demo\npassword = {}\ntenant-name = kluster\ndomain-id = default\n",
        fake::PASSWORD
    );
    create_secret(&client, "cloud-conf", "cloud.conf", &conf).await;
    let url = cloud.url().replace(&cloud.address().to_string(), &sigma.to_string());
    let mut values = json!({
        "image": { "repository": "groundcrew", "pullPolicy": "Never" },
        "kubeOvn": { "enabled": false },
        "ovn": { "northbound": [format!("tcp:{northbound}")] },
        "openstack": { "existingSecret": "cloud-conf" },
        "controllers": {
            "ovn-lb": { "enabled": true },
            "lb-watcher": { "enabled": true },
            "cloudsigma-ccm": { "enabled": true, "apiUrl": url, "username": USER, "existingSecret": "cloudsigma" },
            "node-agent": { "enabled": true },
            "net-probe": { "enabled": true },
            "routegc": { "enabled": true, "podCidrs": ["10.244.0.0/16"], "routers": [router] },
            "flight": { "enabled": true, "podCidrs": ["10.244.0.0/16"] },
            "deorbit": { "enabled": true, "ccmCluster": "prod", "csiCluster": "prod" },
        },
    });
    helm(&plane, &["install", "groundcrew"], &values);
    let first = until_all_ready(&client, &nodes, &BTreeSet::new()).await;

    // They work: a Service is served, and the probes reach each other over the pod network.
    let pools: Api<AddressPool> = Api::all(client.clone());
    let spec = AddressPoolSpec { addresses: vec!["192.0.2.0/28".into()], ..AddressPoolSpec::default() };
    pools.create(&PostParams::default(), &AddressPool::new("public", spec)).await.unwrap();
    create_service(&client).await;
    let address = until_served(&client).await;
    let made = rows(&central).await;
    assert!(made.contains(&format!("{address}:80")), "{made}");
    let leases: Api<Lease> = Api::namespaced(client.clone(), PROBES);
    for (one, other) in [("node-0", "node-1"), ("node-1", "node-0")] {
        eventually(&format!("{one} reaches {other}"), SOON, async || {
            let lease = leases.get(&lease_of(one)).await?;
            ensure!(lease.annotations().get(REACHED).is_some_and(|who| who == other), "{:?}", lease.annotations());
            Ok(())
        })
        .await
        .unwrap();
    }
    for (_, pod) in pods(&client).await.unwrap() {
        let containers = pod.status.as_ref().and_then(|status| status.container_statuses.as_deref());
        for container in containers.unwrap_or_default() {
            assert_eq!(container.restart_count, 0, "{}\n{}", pod.name_any(), nodes.last_words());
        }
    }

    // An upgrade replaces every pod, and writes nothing outside.
    values["log"] = "info,groundcrew_core=debug".into();
    helm(&plane, &["upgrade", "groundcrew"], &values);
    until_all_ready(&client, &nodes, &first).await;
    assert_eq!(until_served(&client).await, address);
    assert_eq!(rows(&central).await, made);

    // And so does the end of the release.
    helm(&plane, &["uninstall", "groundcrew"], &Value::Null);
    eventually("no pod is left", SOON, async || {
        let left = pods(&client).await?;
        ensure!(left.is_empty(), "{:?}", left.iter().map(|(_, pod)| pod.name_any()).collect::<Vec<_>>());
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(rows(&central).await, made);
}
