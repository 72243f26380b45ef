//! The cloud itself does what it is for.

use groundcrew_testkit::openstack::{Method, Service, shared_full};
use serde_json::json;

#[tokio::test]
async fn a_server_boots_at_its_port() {
    let project = shared_full().await.unwrap().project("boots").await.unwrap();
    let lan = project.lan("10.180.0.0/16").await.unwrap();
    let port = project.create("port", json!({"network_id": lan.network})).await.unwrap();
    let server = project.boot("n1", json!({"port": port})).await.unwrap();
    let bound = project.get(Service::Network, &format!("v2.0/ports/{port}")).await.unwrap();
    assert_eq!(bound["port"]["device_id"], server.as_str());
    let deleted = project.ask(Service::Compute, Method::DELETE, &format!("v2.1/servers/{server}"), None).await;
    assert_eq!(deleted.unwrap().status, 204);
}
