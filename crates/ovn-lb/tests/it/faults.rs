//! OVN fails while the controller runs: who is served stays so, who is new is told why, and it is over when the cause is.

use std::time::Duration;

use groundcrew_testkit::ovn::Northbound;
use groundcrew_testkit::{Signal, eventually};
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use serde_json::json;

use crate::harness::{Project, SOON, addresses, get};

/// Long enough for everybody's next try: where OVN has the same rows as before there is nothing to wake them, and by then they
/// pause for half a minute.
const RETRIED: Duration = Duration::from_secs(90);

async fn fails_and_recovers(
    name: &str,
    mut northbound: Northbound,
    fail: impl AsyncFnOnce(&mut Northbound),
    heal: impl AsyncFnOnce(&mut Northbound),
) {
    let project = Project::new(name).await;
    project.connect(&northbound).await;
    project.pool(8).await;
    let controller = project.controller(&northbound).await;
    let address = project.served("web").await;
    project.until_reason("web", "Served").await;
    project.served("leaving").await;
    let before = project.services().get("web").await.unwrap();

    fail(&mut northbound).await;
    project.endpoints("web", 8080, &["10.1.0.42"]).await;
    project.endpoints("new", 8080, &["10.1.0.43"]).await;
    project.create("new", json!({})).await;
    project.services().delete("leaving", &DeleteParams::default()).await.unwrap();
    for service in ["new", "leaving"] {
        let message = project.until_reason(service, "ProviderUnavailable").await;
        assert!(message.contains("OVN"), "{message}");
    }
    let events: Api<Event> = Api::namespaced(project.client.clone(), &project.namespace);
    eventually("an Event tells it, too", SOON, async || {
        let told = events.list(&ListParams::default()).await?.items;
        let is_it = |event: &Event| {
            event.reason.as_deref() == Some("ProviderUnavailable")
                && event.regarding.as_ref().is_some_and(|about| about.name.as_deref() == Some("new"))
        };
        anyhow::ensure!(told.iter().any(is_it), "{} Events", told.len());
        Ok(())
    })
    .await
    .unwrap();
    let now = project.services().get("web").await.unwrap();
    assert_eq!(now.metadata.resource_version, before.metadata.resource_version, "who is served says so still");
    for probe in ["/healthz", "/readyz"] {
        assert_eq!(get(controller.admin, probe).await.unwrap().0, 200, "{probe}: a restart would help nobody");
    }

    heal(&mut northbound).await;
    eventually("all is written after it", RETRIED, async || {
        let left = project.services().get_opt("leaving").await?;
        anyhow::ensure!(left.is_none(), "one is still leaving");
        let said = northbound.nbctl(["lb-list"]).await?;
        anyhow::ensure!(said.contains("10.1.0.42:8080") && said.contains("10.1.0.43:8080"), "{said}");
        Ok(())
    })
    .await
    .unwrap();
    project.until_served("new").await;
    project.until_reason("new", "Served").await;
    assert_eq!(addresses(&project.services().get("web").await.unwrap()), [address]);
    controller.stop().await;
}

#[tokio::test]
async fn ovn_goes_and_comes_back() {
    let northbound = Northbound::standalone().await.unwrap();
    let kill = async |northbound: &mut Northbound| northbound.stop(0, Signal::SIGKILL).await.unwrap();
    let restart = async |northbound: &mut Northbound| northbound.restart(0).await.unwrap();
    fails_and_recovers("ovn-gone", northbound, kill, restart).await;
}

#[tokio::test]
async fn ovn_hangs_and_goes_on() {
    let northbound = Northbound::standalone().await.unwrap();
    let stop = async |northbound: &mut Northbound| northbound.signal(0, Signal::SIGSTOP).unwrap();
    let go_on = async |northbound: &mut Northbound| northbound.signal(0, Signal::SIGCONT).unwrap();
    fails_and_recovers("ovn-hung", northbound, stop, go_on).await;
}

#[tokio::test]
async fn ovn_is_read_only_for_a_while() {
    let northbound = Northbound::standalone().await.unwrap();
    let close = async |northbound: &mut Northbound| northbound.set_read_only(true).await.unwrap();
    let open = async |northbound: &mut Northbound| northbound.set_read_only(false).await.unwrap();
    fails_and_recovers("ovn-closed", northbound, close, open).await;
}

#[tokio::test]
async fn ovn_loses_its_quorum_and_gets_it_back() {
    let northbound = Northbound::cluster(3).await.unwrap();
    let lose = async |northbound: &mut Northbound| {
        for member in [1, 2] {
            northbound.stop(member, Signal::SIGKILL).await.unwrap();
        }
    };
    let regain = async |northbound: &mut Northbound| {
        for member in [1, 2] {
            northbound.restart(member).await.unwrap();
        }
    };
    fails_and_recovers("quorum", northbound, lose, regain).await;
}
