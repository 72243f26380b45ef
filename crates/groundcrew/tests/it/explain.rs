//! `groundcrew explain service` on a real kube-apiserver and a real OVN, for Services that are broken in ten ways.

use std::process::Command;

use anyhow::ensure;
use groundcrew_testkit::{Signal, eventually};
use k8s_openapi::api::core::v1::Service;
use kube::api::PostParams;
use serde_json::{Value, json};

use crate::lab::{Lab, SOON};

const BACKEND: &str = "10.1.0.41:8080";

struct Explained {
    code: Option<i32>,
    json: Value,
}

impl Explained {
    fn first_cross(&self) -> &str {
        self.json["firstBroken"].as_str().unwrap_or("nothing")
    }
}

async fn explain(lab: &Lab, service: &str) -> Explained {
    let mut command = lab.person();
    command.args(["explain", "service", &format!("{}/{service}", lab.namespace), "--output", "json"]);
    command.args(["--ovn-nb", &lab.northbound().remotes(), "--lease-namespace", &lab.namespace]);
    let output = run(command).await;
    let json = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    Explained { code: output.status.code(), json }
}

async fn run(mut command: Command) -> std::process::Output {
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

/// The router's port outside with its gateway chassis, and the one inside.
async fn connect(lab: &Lab) {
    let (router, number) = (&lab.namespace, lab.namespace.rsplit('-').next().unwrap());
    let line = format!(
        "lrp-add {router} {router}-public 0a:00:00:00:00:01 100.64.{number}.1/24 \
         -- lrp-set-gateway-chassis {router}-public chassis-1 20 \
         -- lrp-add {router} {router}-inside 0a:00:00:00:00:02 10.1.0.1/16"
    );
    lab.northbound().nbctl(line.split_whitespace()).await.unwrap();
}

/// The row's name and its VIP.
async fn row(lab: &Lab, service: &str) -> (String, String) {
    let prefix = format!("{}-{service}-tcp-", lab.namespace);
    let name = lab.rows().await.into_iter().find(|name| name.starts_with(&prefix)).unwrap();
    (name, format!("{}:80", lab.address(service).await))
}

async fn until_broken_at(lab: &Lab, service: &str, hop: &str, word: &str) {
    eventually(&format!("{service} is broken at {hop}"), SOON, async || {
        let explained = explain(lab, service).await;
        ensure!(explained.first_cross() == hop, "{:#}", explained.json);
        let findings = explained.json["findings"].as_array().cloned().unwrap_or_default();
        let cross = findings.iter().find(|finding| finding["state"] == "bad").cloned().unwrap_or_default();
        ensure!(cross["found"].as_str().is_some_and(|found| found.contains(word)), "{cross:#}");
        ensure!(cross["next"].as_str().is_some_and(|next| !next.is_empty()), "{cross:#}");
        ensure!(explained.code == Some(1), "exit code {:?}", explained.code);
        Ok(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn ten_different_breakages_each_give_the_right_first_cross() {
    let lab = Lab::new("explained").await;
    connect(&lab).await;
    // It serves, and leaves what the test breaks as it is.
    let controller = lab.spawn("owner", |command| command.arg("--report-only"));
    lab.until_leads(&controller).await;
    for name in ["whole", "row", "rival", "vips", "router", "switch", "backends", "endpoints"] {
        lab.endpoint(name, true).await;
        lab.create(name).await;
    }
    for name in ["whole", "row", "rival", "vips", "router", "switch", "backends", "endpoints"] {
        lab.until_served(name).await;
    }
    let nb = lab.northbound();
    eventually("a sound Service has no cross", SOON, async || {
        let explained = explain(&lab, "whole").await;
        ensure!(explained.code == Some(0), "{:#}", explained.json);
        Ok(())
    })
    .await
    .unwrap();

    // 1: the class is nobody's.
    let strange = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": "class" },
        "spec": {
            "type": "LoadBalancer", "loadBalancerClass": "example.com/nobody",
            "allocateLoadBalancerNodePorts": false, "ports": [{ "port": 80 }],
        },
    });
    let strange: Service = serde_json::from_value(strange).unwrap();
    lab.services().create(&PostParams::default(), &strange).await.unwrap();
    until_broken_at(&lab, "class", "class", "example.com/nobody").await;

    // 2: no pool has the address that it asks for.
    let elsewhere = json!({ "groundcrew.dev/load-balancer-ips": "203.0.113.9" });
    lab.create_with("address", &elsewhere).await;
    until_broken_at(&lab, "address", "address", "AddressOutsidePools").await;

    // 3: the row is gone, as after a collection by kube-ovn.
    let (name, _) = row(&lab, "row").await;
    nb.nbctl(["lb-del", &name]).await.unwrap();
    until_broken_at(&lab, "row", "row", "no Load_Balancer").await;

    // 4: somebody else has a row with the same VIP on the router.
    let (_, vip) = row(&lab, "rival").await;
    nb.nbctl(["lb-add", "stranger", &vip, "10.1.0.99:80", "--", "lr-lb-add", &lab.namespace, "stranger"])
        .await
        .unwrap();
    until_broken_at(&lab, "rival", "row", "stranger").await;

    // 5: the VIP was taken out of the row.
    let (name, vip) = row(&lab, "vips").await;
    nb.nbctl(["--", "remove", "Load_Balancer", &name, "vips", &format!("\"{vip}\"")]).await.unwrap();
    until_broken_at(&lab, "vips", "vips", &vip).await;

    // 6 and 7: it was taken from the router, and from the switch.
    let (name, _) = row(&lab, "router").await;
    nb.nbctl(["lr-lb-del", &lab.namespace, &name]).await.unwrap();
    until_broken_at(&lab, "router", "router", "clients outside").await;
    let (name, _) = row(&lab, "switch").await;
    nb.nbctl(["ls-lb-del", &format!("{}-default", lab.namespace), &name]).await.unwrap();
    until_broken_at(&lab, "switch", "switch", "clients inside").await;

    // 8: the row leads to somebody who is not an endpoint.
    let (name, vip) = row(&lab, "backends").await;
    nb.nbctl(["set", "Load_Balancer", &name, &format!("vips:\"{vip}\"=\"10.1.0.99:8080\"")]).await.unwrap();
    until_broken_at(&lab, "backends", "backends", &format!("10.1.0.99:8080 instead of {BACKEND}")).await;

    // 9: no pod is ready.
    lab.endpoint("endpoints", false).await;
    until_broken_at(&lab, "endpoints", "endpoints", "10.1.0.41").await;

    // 10: no chassis answers for the address.
    let port = format!("{}-public", lab.namespace);
    nb.nbctl(["lrp-del-gateway-chassis", &port, "chassis-1"]).await.unwrap();
    until_broken_at(&lab, "whole", "gateway", "no gateway chassis").await;

    // 11: and nobody leads any more.
    controller.process.end(Signal::SIGTERM).await.unwrap();
    until_broken_at(&lab, "whole", "controller", "nobody leads").await;
}

#[tokio::test]
async fn a_person_gets_a_table_without_colours_in_a_pipe_and_an_answer_without_ovn() {
    let lab = Lab::new("blind").await;
    let controller = lab.start("owner").await;
    lab.until_leads(&controller).await;
    lab.endpoint("web", true).await;
    lab.create("web").await;
    lab.until_served("web").await;
    eventually("all but OVN is explained", SOON, async || {
        let mut command = lab.person();
        command.args(["explain", "svc", "web", "-n", &lab.namespace, "--lease-namespace", &lab.namespace]);
        let output = run(command).await;
        let text = String::from_utf8(output.stdout)?;
        ensure!(output.status.code() == Some(3), "{text}");
        ensure!(text.contains("✓ controller") && text.contains("? row") && text.contains("--ovn-nb"), "{text}");
        ensure!(!text.contains('\x1b'), "{text}");
        Ok(())
    })
    .await
    .unwrap();

    let mut missing = lab.person();
    missing.args(["explain", "service", &format!("{}/nobody", lab.namespace)]);
    let output = run(missing).await;
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stdout).unwrap().contains("there is no Service"));
}

#[tokio::test]
async fn called_as_a_plugin_of_kubectl_it_is_the_same_program() {
    let dir = groundcrew_testkit::Scratch::new("plugin").unwrap();
    let link = dir.path().join("kubectl-groundcrew");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_groundcrew"), &link).unwrap();
    let mut command = Command::new(link);
    command.args(["explain", "service", "--help"]);
    let output = run(command).await;
    assert!(output.status.success());
    assert!(String::from_utf8(output.stdout).unwrap().contains("kubectl groundcrew explain service"));
}
