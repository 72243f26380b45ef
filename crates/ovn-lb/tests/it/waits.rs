//! Who waits is told for what, and is served when that is over.

use groundcrew_core::service::names;
use groundcrew_testkit::eventually;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

use crate::harness::{Project, SOON, addresses};

#[tokio::test]
async fn an_address_that_rests_is_given_as_soon_as_it_has_rested() {
    let project = Project::new("rest").await;
    let northbound = project.northbound().await;
    project.pool(1).await;
    let controller = project.start(&northbound.remotes(), &["--address-rest", "10s"]).await;
    controller.until_ready().await;
    project.served("first").await;
    project.create("second", json!({})).await;
    project.until_reason("second", "PoolEmpty").await;
    // Refused so often that it would ask again by itself in two minutes and a half at the earliest.
    let refused = r#"groundcrew_service_reconciles_total{outcome="quota"}"#;
    for round in 0..5 {
        let so_far = controller.metric(refused).await;
        let touch = json!({ "metadata": { "annotations": { "kube-dc.com/lb-resync-timestamp": round.to_string() } } });
        project.services().patch("second", &PatchParams::default(), &Patch::Merge(touch)).await.unwrap();
        eventually("it is refused again", SOON, async || match controller.metric(refused).await {
            now if now > so_far => Ok(()),
            now => Err(now),
        })
        .await
        .unwrap();
    }
    project.delete("first").await;
    eventually("it is served after the rest", SOON, async || {
        let second = project.services().get("second").await?;
        anyhow::ensure!(addresses(&second) == [project.address(1)], "{:?}", second.status);
        Ok(())
    })
    .await
    .unwrap();
    controller.stop().await;
}

#[tokio::test]
async fn who_shares_the_address_of_one_that_gets_none_is_told_and_joins_it() {
    let project = Project::new("partner").await;
    let northbound = project.northbound().await;
    project.pool(2).await;
    let controller = project.controller(&northbound).await;
    let key = json!({ names::SHARING_KEY: "one" });
    project.create_annotated("first", key.clone(), json!({ "loadBalancerIP": "203.0.113.5" })).await;
    project.until_reason("first", "AddressOutsidePools").await;
    let port = |port: u16| json!({ "ports": [{ "name": "http", "port": port, "targetPort": "web" }] });
    project.create_annotated("second", key.clone(), port(443)).await;
    let message = project.until_reason("second", "WaitsForShared").await;
    assert!(message.contains("first") && message.contains("203.0.113.5"), "{message}");
    let mend = json!({ "spec": { "loadBalancerIP": project.address(2) } });
    project.services().patch("first", &PatchParams::default(), &Patch::Merge(mend)).await.unwrap();
    assert_eq!(project.until_served("second").await, project.address(2));
    assert_eq!(project.until_served("first").await, project.address(2));
    controller.stop().await;
}

#[tokio::test]
async fn a_service_that_goes_without_the_word_whose_it_is_goes_all_the_same() {
    let project = Project::new("unnamed").await;
    let northbound = project.northbound().await;
    project.pool(8).await;
    let controller = project.controller(&northbound).await;
    project.served("web").await;
    controller.stop().await;
    let unname = json!({ "metadata": { "annotations": { names::CLAIMED_BY: null } } });
    project.services().patch("web", &PatchParams::default(), &Patch::Merge(unname)).await.unwrap();
    project.services().delete("web", &DeleteParams::default()).await.unwrap();
    let controller = project.controller(&northbound).await;
    project.until_gone("web").await;
    assert_eq!((northbound.nbctl(["lb-list"]).await.unwrap(), project.eip_list().await.len()), (String::new(), 0));
    controller.stop().await;
}
