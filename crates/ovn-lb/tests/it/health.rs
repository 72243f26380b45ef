//! Backends that are probed.

use std::collections::BTreeSet;

use groundcrew_api::names::annotation::HEALTH_CHECK;
use groundcrew_testkit::eventually;
use groundcrew_testkit::ovn::Host;
use groundcrew_testkit::ovn::lab::{Lab, ROUTER, SWITCH};
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::drift::{found, until_found};
use crate::harness::{Project, SOON};

async fn annotate(project: &Project, service: &str, value: Option<&str>) {
    let patch = json!({ "metadata": { "annotations": { HEALTH_CHECK: value } } });
    project.services().patch(service, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

/// Who answers ten requests; nobody may be silent or refuse.
async fn answering(lab: &Lab, address: &str) -> anyhow::Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for _ in 0..10 {
        names.insert(lab.client().get(&format!("http://{address}/")).await?);
    }
    Ok(names)
}

#[tokio::test]
async fn a_dead_backend_gets_no_connection_until_it_lives_again() {
    let project = Project::new("health").await;
    let mut lab = Lab::start().await.unwrap();
    project.pool_of("198.51.100.140-198.51.100.140").await;
    let remotes = lab.northbound().remotes();
    let flags = ["--ovn-router", ROUTER, "--ovn-switch", SWITCH, "--health-check-source", "10.1.0.250,fd00:10:1::250"];
    let controller = project.start(&remotes, &flags).await;
    controller.until_ready().await;
    let (one, other) = (lab.pod(0).address().to_string(), lab.pod(1).address().to_string());
    project.endpoints("web", Host::HTTP, &[&one, &other]).await;
    project.create("web", json!({})).await;
    let address = project.until_served("web").await;
    annotate(&project, "web", Some("interval=1,timeout=1,success=1,failure=1")).await;
    let (names, list) =
        ([lab.pod(0).name().to_owned(), lab.pod(1).name().to_owned()], ["list", "Load_Balancer_Health_Check"]);
    let vip = format!("{address}:80");
    let made = |said: &str| said.contains(&vip);
    project.until_nbctl(lab.northbound(), &list, "the check is made", made).await;
    let all: BTreeSet<_> = names.iter().cloned().collect();

    lab.set_serving(1, false).await.unwrap();
    eventually("the dead one is out", SOON, async || {
        let answering = answering(&lab, &address).await?;
        anyhow::ensure!(answering.iter().eq([&names[0]]), "{answering:?}");
        Ok(())
    })
    .await
    .unwrap();
    lab.set_serving(1, true).await.unwrap();
    eventually("it is back", SOON, async || {
        let answering = answering(&lab, &address).await?;
        anyhow::ensure!(answering == all, "{answering:?}");
        Ok(())
    })
    .await
    .unwrap();

    // Somebody takes the check away: drift like any other.
    let name = lab.northbound().nbctl(["--bare", "--columns=name", "list", "Load_Balancer"]).await.unwrap();
    lab.northbound().nbctl(["clear", "Load_Balancer", name.trim(), "health_check"]).await.unwrap();
    project.until_nbctl(lab.northbound(), &list, "the check is back", made).await;
    until_found(&controller, "health_check", 1).await;

    annotate(&project, "web", None).await;
    project.until_nbctl(lab.northbound(), &list, "the check is gone", str::is_empty).await;
    let mappings = ["--bare", "--columns=ip_port_mappings", "list", "Load_Balancer"];
    let mappings = lab.northbound().nbctl(mappings).await.unwrap();
    assert_eq!(mappings.trim(), "");
}

#[tokio::test]
async fn a_check_that_cannot_be_made_is_told_and_the_service_is_served() {
    let project = Project::new("unprobed").await;
    let northbound = project.northbound().await;
    let switch = format!("{}-default", project.namespace);
    northbound.nbctl(["lrp-add", &project.namespace, "inside", "0a:00:00:00:00:01", "10.1.0.1/16"]).await.unwrap();
    project.pool(8).await;
    let controller = project.controller(&northbound).await;
    project.served("web").await;

    annotate(&project, "web", Some("often")).await;
    let message = project.until_reason("web", "HealthCheckInvalid").await;
    assert!(message.contains("interval="), "{message}");
    annotate(&project, "web", Some("true")).await;
    let message = project.until_reason("web", "HealthCheckPortMissing").await;
    assert!(message.contains("10.1.0.41") && message.contains(&switch), "{message}");
    let plug = ["lsp-add", &switch, "web", "--", "lsp-set-addresses", "web", "0a:00:00:00:00:41 10.1.0.41"];
    northbound.nbctl(plug).await.unwrap();
    let message = project.until_reason("web", "HealthCheckSourceMissing").await;
    assert!(message.contains("10.1.0.0/16") && message.contains("--health-check-source"), "{message}");
    assert_eq!(northbound.nbctl(["list", "Load_Balancer_Health_Check"]).await.unwrap(), "");

    controller.stop().await;
    let controller = project.start(&northbound.remotes(), &["--health-check-source", "10.1.0.250"]).await;
    controller.until_ready().await;
    project.until_reason("web", "Served").await;
    let mappings = ["--bare", "--columns=ip_port_mappings", "list", "Load_Balancer"];
    let mappings = northbound.nbctl(mappings).await.unwrap();
    assert_eq!(mappings.trim().replace('"', ""), "10.1.0.41=web:10.1.0.250");

    // A rolling update: each step is carried out, and none is taken for somebody else's doing.
    for n in 50..65 {
        let backend = format!("10.1.0.{n}");
        project.endpoints("web", 8080, &["10.1.0.41", &backend]).await;
        let is_there = |said: &str| said.contains(&format!("{backend}:8080"));
        project.until_nbctl(&northbound, &["lb-list"], "the new backend is there", is_there).await;
    }
    northbound.nbctl(["lr-lb-del", &project.namespace]).await.unwrap();
    until_found(&controller, "router_detached", 1).await;
    assert_eq!((found(&controller, "vips").await, found(&controller, "health_check").await), (0, 0));
    controller.stop().await;
}
