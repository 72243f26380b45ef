//! `net-probe`: two of them ask each other over a wire.

use anyhow::{Context, ensure};
use groundcrew_api::net_probe::{REACHED, UNREACHED, lease_of};
use groundcrew_testkit::wire::Wire;
use groundcrew_testkit::{Signal, eventually};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::PostParams;
use kube::{Api, ResourceExt};
use serde_json::json;

use super::{Installed, SOON};

#[tokio::test(flavor = "multi_thread")]
async fn probes_find_each_other_and_tell_who_is_silent_with_the_rights_of_the_chart() {
    let quick = "controllers.net-probe.extraArgs={--interval=200ms,--failures=2}";
    let installed = Installed::new("net-probe", &["--set".to_owned(), quick.to_owned()]).await;
    let namespace = installed.namespace("net-probe").to_owned();
    assert_eq!(namespace, "groundcrew-probes");
    let identity = installed.identity("net-probe").await;
    let mut wire = Wire::start(2).await.unwrap();
    let mut probes = Vec::new();
    let mut endpoints = Vec::new();
    for machine in &mut wire.nodes {
        machine.forward(installed.plane.address()).await.unwrap();
        let mut command = installed.command("net-probe", &identity);
        command.env("GROUNDCREW_NODE_NAME", machine.name());
        probes.push(machine.spawn(machine.name(), &command).unwrap());
        let (node, address) = (machine.name(), machine.address());
        endpoints.push(json!({ "addresses": [address], "nodeName": node, "conditions": { "ready": true } }));
    }
    // As kube-controller-manager writes it for the chart's Service.
    let slice = json!({
        "metadata": { "name": "probes", "labels": { "kubernetes.io/service-name": "groundcrew-net-probe" } },
        "addressType": "IPv4", "ports": [{ "name": "probe", "port": 8080 }], "endpoints": endpoints,
    });
    let slices: Api<EndpointSlice> = Api::namespaced(installed.client.clone(), &namespace);
    slices.create(&PostParams::default(), &serde_json::from_value(slice).unwrap()).await.unwrap();

    let leases: Api<Lease> = Api::namespaced(installed.client.clone(), &namespace);
    let tells = async |node: &str, what: &str, whom: &str| {
        eventually(&format!("{node} tells of {whom}"), SOON, async || {
            let lease = leases.get(&lease_of(node)).await?;
            let told = lease.annotations().get(what).context("nothing is told")?;
            let words =
                probes.iter().map(groundcrew_testkit::process::Process::last_words).collect::<Vec<_>>().join("\n");
            ensure!(told == whom, "{:?}\n{words}", lease.annotations());
            Ok(())
        })
        .await
        .unwrap();
    };
    tells("node-0", REACHED, "node-1").await;
    tells("node-1", REACHED, "node-0").await;
    // It goes on reaching the API server, as after the loss of a route to its pods.
    wire.unplug(1).await.unwrap();
    tells("node-0", UNREACHED, "node-1").await;
    tells("node-1", UNREACHED, "node-0").await;
    for probe in &probes {
        probe.end(Signal::SIGTERM).await.unwrap();
    }
    installed.assert_used_but("net-probe", &[]);
}
