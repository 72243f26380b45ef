//! Real packets through what the controller wrote.

use groundcrew_testkit::eventually;
use groundcrew_testkit::ovn::lab::{Lab, ROUTER, ROUTER_MAC, SWITCH};
use groundcrew_testkit::ovn::{Host, NoAnswer};
use serde_json::json;

use crate::harness::{Project, SOON};

#[tokio::test]
async fn clients_outside_and_inside_are_served_and_without_endpoints_refused_at_once() {
    let project = Project::new("packets").await;
    let lab = Lab::start().await.unwrap();
    project.pool_of("198.51.100.55-198.51.100.55").await;
    let remotes = lab.northbound().remotes();
    let controller = project.start(&remotes, &["--ovn-router", ROUTER, "--ovn-switch", SWITCH]).await;
    controller.until_ready().await;
    let backends: Vec<_> = (0..2).map(|pod| lab.pod(pod).address().to_string()).collect();
    let backends: Vec<_> = backends.iter().map(String::as_str).collect();
    project.endpoints("web", Host::HTTP, &backends).await;
    project.create("web", json!({})).await;
    let address = project.until_served("web").await;
    lab.wait_hypervisor().await.unwrap();

    let url = format!("http://{address}/");
    for client in [lab.client(), lab.pod(2)] {
        let answer = client.get(&url).await.unwrap();
        assert!(answer == lab.pod(0).name() || answer == lab.pod(1).name(), "{} got {answer:?}", client.name());
    }
    assert_eq!(lab.client().arp(address.parse().unwrap()).await.unwrap(), ROUTER_MAC);

    project.endpoints("web", Host::HTTP, &[]).await;
    project.until_reason("web", "NoEndpoints").await;
    eventually("connections are refused", SOON, async || match lab.client().tcp(address.parse().unwrap(), 80).await {
        Err(NoAnswer::Refused) => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await
    .unwrap();

    project.delete("web").await;
    lab.wait_hypervisor().await.unwrap();
    lab.client().forget_neighbours().await.unwrap();
    assert_eq!(lab.client().tcp(address.parse().unwrap(), 80).await, Err(NoAnswer::NoRoute));
}
