//! A process that dies between the note of a repair and its order.

use std::process::Command;

use anyhow::{Context, ensure};
use groundcrew_api::node_repair::{NodeRepair, NodeRepairSpec, NodeRepairStatus, RepairOutcome, RepairStep};
use groundcrew_testkit::controller::Controller;
use groundcrew_testkit::kube::ControlPlane;
use groundcrew_testkit::openstack::fake::{Model, PASSWORD};
use groundcrew_testkit::{Scratch, Signal, eventually};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{from_value, json};

use crate::lab::SOON;

fn flight(plane: &ControlPlane, cloud: &Model, namespace: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_groundcrew"));
    let url = format!("{}/v3", cloud.fake.url());
    command
        .args(["flight", "--kubeconfig", plane.kubeconfig_path().to_str().unwrap()])
        .args(["--no-leader-election", "--lease-namespace", namespace, "--cluster-id", "test"])
        .args(["--pod-cidr", "198.19.0.0/16", "--interval", "1s", "--nodes", "repair", "--delete-servers"])
        .args(["--steady-for", "0s", "--unready-after", "1s", "--cooldown", "1s"])
        .envs([("OS_AUTH_URL", url.as_str()), ("OS_USERNAME", "demo"), ("OS_PASSWORD", PASSWORD)])
        .envs([("OS_USER_DOMAIN_ID", "default"), ("OS_PROJECT_ID", "p1"), ("OS_REGION_NAME", "lab")]);
    command
}

/// What was ordered so far, as `HARD` or `DELETE`.
fn orders(cloud: &Model) -> Vec<String> {
    let orders = cloud.fake.seen().into_iter().filter_map(|seen| match seen.line.split_once(' ') {
        Some(("POST", path)) if path.ends_with("/action") => seen.body["reboot"]["type"].as_str().map(str::to_owned),
        Some(("DELETE", _)) => Some("DELETE".to_owned()),
        _ => None,
    });
    orders.collect()
}

#[tokio::test]
async fn a_reboot_that_was_noted_and_never_sent_is_sent_by_the_next_process_before_any_delete() {
    // All Nodes of a cluster count.
    let plane = &ControlPlane::start().await.unwrap();
    plane.define(&groundcrew_api::crds()).await.unwrap();
    let (client, namespace) = (plane.client().await.unwrap(), plane.namespace("flight").await.unwrap());
    let (cloud, scratch) = (Model::start().await.unwrap(), Scratch::new("flight").unwrap());
    let nodes: Api<Node> = Api::all(client.clone());
    for (server, ready) in [("a", "Unknown"), ("b", "True"), ("c", "True")] {
        cloud.boot(server, "10.180.0.7");
        let (name, made) = (format!("flight-{server}"), "2026-01-01T00:00:00Z");
        let node = json!({"metadata": {"name": name}, "spec": {"providerID": format!("openstack:///{server}")}});
        nodes.create(&PostParams::default(), &from_value(node).unwrap()).await.unwrap();
        let condition = json!({"type": "Ready", "status": ready, "reason": "Test", "message": "",
            "lastTransitionTime": made, "lastHeartbeatTime": made});
        let patch = Patch::Strategic(json!({"status": {"conditions": [condition]}}));
        nodes.patch_status(&name, &PatchParams::default(), &patch).await.unwrap();
    }
    // A soft reboot did not help, long ago.
    let repairs: Api<NodeRepair> = Api::all(client);
    let mut repair = NodeRepair::new("a", NodeRepairSpec { server: "a".into(), node: Some("flight-a".into()) });
    repair = repairs.create(&PostParams::default(), &repair).await.unwrap();
    let soft = json!({"step": "SoftReboot", "outcome": "Ordered", "at": "2026-01-01T00:00:00Z", "why": ""});
    repair.status = from_value(soft).unwrap();
    repairs.replace_status("a", &PostParams::default(), &repair).await.unwrap();

    // Its first write is the note, its second the order.
    let mut command = flight(plane, &cloud, &namespace);
    command.env("GROUNDCREW_FAULT", "between check and send@2");
    let first = Controller::spawn("first", command, scratch.path()).unwrap();
    first.until_stopped(SOON).await.unwrap();
    first.process.signal(Signal::SIGKILL).unwrap();
    first.process.wait_exit(SOON).await.unwrap();
    let NodeRepairStatus { step, outcome, .. } = repairs.get("a").await.unwrap().status.unwrap();
    assert_eq!((step, outcome), (RepairStep::HardReboot, RepairOutcome::Begun));
    assert_eq!(orders(&cloud), [""; 0]);

    let _second = Controller::start("second", flight(plane, &cloud, &namespace), scratch.path(), SOON).await.unwrap();
    eventually("the server is deleted", SOON, async || {
        let orders = orders(&cloud);
        ensure!(orders.last().context("no order")? == "DELETE", "{orders:?}");
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(orders(&cloud)[..2], ["HARD", "DELETE"]);
}
