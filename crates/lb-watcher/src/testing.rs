//! Small values for tests.

use std::sync::Arc;

use groundcrew_core::key::ServiceKey;
use groundcrew_core::provider::Protocol;
use groundcrew_core::watch::Sink;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::discovery::v1 as discovery;
use ovsdb_client::{Touched, Uuid, apply};
use serde_json::{Value, json};

use crate::cluster::{Cluster, Port, Service, ServiceSink, Slice, SliceSink};
use crate::northbound::Northbound;
use crate::wanted::Site;

pub(crate) fn site() -> Site {
    Site { router: "{namespace}".parse().unwrap(), switch: "{namespace}-default".parse().unwrap() }
}

/// On 192.0.2.7, with the port 80.
pub(crate) fn service(namespace: &str, name: &str) -> Service {
    Service {
        key: ServiceKey::new(namespace, name),
        uid: Uuid::new_v5(&Uuid::NAMESPACE_OID, name.as_bytes()).to_string().into(),
        resource_version: "1".into(),
        deleting: false,
        finalizer: false,
        class: false,
        claimed: false,
        paused: false,
        ports: [Port { name: "http".into(), protocol: Protocol::Tcp, port: 80 }].into(),
        ingress: ["192.0.2.7".parse().unwrap()].into(),
        resync: None,
    }
}

/// Ready endpoints for the port `http`.
pub(crate) fn slice(addresses: &[&str]) -> Slice {
    Slice {
        ports: [("http".into(), Protocol::Tcp, 8080)].into(),
        ready: addresses.iter().map(|a| a.parse().unwrap()).collect(),
    }
}

/// The same as the API server has it.
pub(crate) fn manifest(namespace: &str, name: &str) -> Value {
    json!({
        "metadata": { "namespace": namespace, "name": name, "uid": Uuid::nil(), "resourceVersion": "1" },
        "spec": { "type": "LoadBalancer", "ports": [{ "name": "http", "port": 80 }] },
        "status": { "loadBalancer": { "ingress": [{ "ip": "192.0.2.7" }] } },
    })
}

/// A cluster that has such Services.
pub(crate) fn cluster(services: &[(&str, &str)]) -> Arc<Cluster> {
    let cluster = Arc::new(Cluster::new(Box::new(|_| {})));
    for (namespace, name) in services {
        let service = manifest(namespace, name);
        ServiceSink::new(cluster.clone()).apply(serde_json::from_value::<core::Service>(service).unwrap());
        let slice = json!({
            "metadata": { "namespace": namespace, "name": name, "labels": { "kubernetes.io/service-name": name } },
            "addressType": "IPv4",
            "ports": [{ "name": "http", "port": 8080 }],
            "endpoints": [{ "addresses": ["10.1.0.41"] }, { "addresses": ["10.1.0.42"] }],
        });
        let slice = serde_json::from_value::<discovery::EndpointSlice>(slice).unwrap();
        SliceSink::new(cluster.clone()).apply(slice);
    }
    cluster
}

pub(crate) fn uuid(n: u128) -> Uuid {
    Uuid::from_u128(n)
}

/// Applies one message of the server.
pub(crate) fn update(nb: &mut Northbound, updates: &Value) -> Touched {
    let mut touched = Touched::default();
    apply(&updates.to_string(), nb, &mut touched).unwrap();
    touched
}

pub(crate) fn row(name: &str) -> Value {
    let vips = json!(["map", [["192.0.2.7:80", "10.1.0.41:8080,10.1.0.42:8080"]]]);
    json!({ "insert": { "name": name, "protocol": "tcp", "vips": vips } })
}

pub(crate) fn place(name: &str, members: &[u128]) -> Value {
    let members: Vec<_> = members.iter().map(|n| json!(["uuid", uuid(*n)])).collect();
    json!({ "insert": { "name": name, "load_balancer": ["set", members] } })
}

/// The Service `shop/web` as kube-dc leaves it: row 1 on router 5 and switch 6.
pub(crate) fn served() -> Northbound {
    let mut nb = Northbound::default();
    let updates = json!({
        "Load_Balancer": { uuid(1).to_string(): row("shop-web-tcp") },
        "Logical_Router": { uuid(5).to_string(): place("shop", &[1]) },
        "Logical_Switch": { uuid(6).to_string(): place("shop-default", &[1]) },
    });
    update(&mut nb, &updates);
    nb
}
