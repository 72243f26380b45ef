//! Whether northd has taken what was written.

use std::time::{Duration, Instant};

use groundcrew_core::service::names;
use groundcrew_testkit::ovn::Host;
use groundcrew_testkit::ovn::lab::{Lab, Part, ROUTER, SWITCH};
use groundcrew_testkit::{Signal, eventually};
use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;
use serde_json::json;

use crate::harness::{Project, SOON, addresses};

/// Status and message of the condition, once the Service has its address.
fn realised(service: &Service) -> Option<(String, String)> {
    let conditions = service.status.as_ref()?.conditions.as_ref()?;
    let condition = conditions.iter().find(|c| c.type_ == names::REALISED)?;
    (!addresses(service).is_empty()).then(|| (condition.status.clone(), condition.message.clone()))
}

#[tokio::test]
async fn a_database_without_northd_costs_one_wait_and_every_service_says_so() {
    let project = Project::new("silent").await;
    let northbound = project.northbound().await;
    project.pool(16).await;
    let controller = project.controller(&northbound).await;
    let mut took = Vec::new();
    for n in 0..12 {
        let (name, started) = (format!("web{n}"), Instant::now());
        project.served(&name).await;
        let (status, message) = project.until(&name, "the condition", realised).await;
        took.push(started.elapsed());
        assert_eq!(status, "Unknown");
        assert!(message.contains("northd"), "{message}");
    }
    // The first has waited for two seconds, whatever else takes long here.
    let quickest = *took[1..].iter().min().unwrap();
    assert!(quickest + Duration::from_secs(1) < took[0], "the others waited, too: {took:?}");
    let bumps = northbound.nbctl(["get", "NB_Global", ".", "nb_cfg"]).await.unwrap();
    let commits = controller.metric("groundcrew_ovn_commits_total{outcome=\"ok\"}").await;
    assert_eq!(bumps.trim(), format!("{commits}"), "one bump a transaction");
}

#[tokio::test]
async fn a_stopped_northd_is_told_survives_a_restart_and_is_confirmed_when_it_goes_on() {
    let project = Project::new("stopped").await;
    let lab = Lab::start().await.unwrap();
    project.pool_of("198.51.100.144-198.51.100.147").await;
    let remotes = lab.northbound().remotes();
    let flags = ["--ovn-router", ROUTER, "--ovn-switch", SWITCH];
    let controller = project.start(&remotes, &flags).await;
    controller.until_ready().await;
    let backend = lab.pod(0).address().to_string();

    // A hypervisor that hangs holds up nobody.
    lab.signal(Part::Controller, Signal::SIGSTOP).unwrap();
    project.endpoints("quick", Host::HTTP, &[&backend]).await;
    project.create("quick", json!({})).await;
    project.until_served("quick").await;
    // At once, or as soon as a busy northd has come to it: who waited for the hypervisor would wait for ever.
    let confirmed = |service: &Service| realised(service).is_none_or(|(status, _)| status == "True").then_some(());
    project.until("quick", "it is confirmed", confirmed).await;
    lab.signal(Part::Controller, Signal::SIGCONT).unwrap();

    lab.signal(Part::Northd, Signal::SIGSTOP).unwrap();
    project.endpoints("slow", Host::HTTP, &[&backend]).await;
    project.create("slow", json!({})).await;
    let (status, message) = project.until("slow", "the condition", realised).await;
    assert_eq!(status, "Unknown");
    assert!(message.contains("ovn-northd"), "{message}");

    controller.stop().await;
    let before = project.services().get("slow").await.unwrap().resource_version();
    let controller = project.start(&remotes, &flags).await;
    controller.until_ready().await;
    eventually("both were looked at", SOON, async || {
        let looks = controller.metric("groundcrew_service_reconciles_total{outcome=\"ok\"}").await;
        if looks >= 2.0 { Ok(()) } else { Err(format!("{looks} looks")) }
    })
    .await
    .unwrap();
    let after = project.services().get("slow").await.unwrap();
    assert_eq!(after.resource_version(), before, "nothing is known after a restart, so nothing is said");

    lab.signal(Part::Northd, Signal::SIGCONT).unwrap();
    let confirmed = |service: &Service| realised(service).filter(|(status, _)| status == "True");
    project.until("slow", "it is confirmed", confirmed).await;
    lab.wait_hypervisor().await.unwrap();
    let address = project.until_served("slow").await;
    assert_eq!(lab.client().get(&format!("http://{address}/")).await.unwrap(), lab.pod(0).name());
}
