//! A third party's cloud serves a Service.

use groundcrew_testkit::eventually;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

use crate::lab::{Lab, SOON};

#[tokio::test]
async fn the_example_serves_a_service_from_creation_to_deletion() {
    let lab = Lab::new("hello").await;
    let _hello = lab.start_as("solo", |command| command.arg("--no-leader-election")).await;
    lab.create("web").await;
    let service = lab.until_served("web", SOON).await;
    let ingress = &service.status.unwrap().load_balancer.unwrap().ingress.unwrap()[0];
    assert_eq!((ingress.ip.as_deref(), ingress.ip_mode.as_deref()), (Some("192.0.2.1"), Some("VIP")));

    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": { "name": "web", "labels": { "kubernetes.io/service-name": "web" } },
        "ports": [{ "name": "", "port": 8080 }],
        "endpoints": [{ "addresses": ["10.1.0.2"] }, { "addresses": ["10.1.0.1"] }],
    });
    let slices: kube::Api<k8s_openapi::api::discovery::v1::EndpointSlice> =
        kube::Api::namespaced(lab.client.clone(), &lab.namespace);
    slices.patch("web", &PatchParams::apply("test"), &Patch::Apply(slice)).await.unwrap();
    let whole = "192.0.2.1\n80/tcp -> 10.1.0.1:8080 10.1.0.2:8080\n";
    eventually("the cloud has the backends", SOON, async || {
        let file = lab.file("web")?;
        if file == whole { Ok(()) } else { Err(anyhow::anyhow!(file)) }
    })
    .await
    .unwrap();

    lab.services().delete("web", &DeleteParams::default()).await.unwrap();
    eventually("the Service is gone", SOON, async || match lab.services().get_opt("web").await? {
        None => Ok(()),
        Some(service) => Err(anyhow::anyhow!("{:?}", service.metadata.finalizers)),
    })
    .await
    .unwrap();
    assert!(lab.file("web").is_err(), "the cloud is empty again");
}
