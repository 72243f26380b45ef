//! Backends outside the project.

use groundcrew_testkit::eventually;
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::ListParams;
use serde_json::json;

use crate::drift::found;
use crate::harness::{Project, SOON};

#[tokio::test]
async fn a_backend_outside_the_project_is_left_out_and_told_until_the_router_reaches_it() {
    let project = Project::new("fence").await;
    let northbound = project.northbound().await;
    let router = project.namespace.as_str();
    let inside = ["lrp-add", router, "inside", "0a:00:00:00:00:01", "10.1.0.1/16"];
    northbound.nbctl(inside).await.unwrap();
    project.pool(8).await;
    // What follows the project's networks is nobody's drift, not even where drift is only told.
    let controller = project.start(&northbound.remotes(), &["--report-only"]).await;
    controller.until_ready().await;
    project.endpoints("web", 8080, &["10.1.0.41", "10.2.0.41"]).await;
    project.create("web", json!({})).await;
    project.until_served("web").await;

    let message = project.until_reason("web", "BackendOutsideProject").await;
    assert!(message.contains("10.2.0.41") && message.contains(router), "{message}");
    let list = northbound.nbctl(["lb-list"]).await.unwrap();
    assert!(list.contains("10.1.0.41:8080") && !list.contains("10.2.0.41"), "{list}");
    eventually("an Event tells it", SOON, async || {
        let events: Api<Event> = Api::namespaced(project.client.clone(), router);
        let events = events.list(&ListParams::default()).await?.items;
        let told = events.iter().find(|event| event.reason.as_deref() == Some("BackendOutsideProject"));
        anyhow::ensure!(told.is_some_and(|event| event.note.as_ref().is_some_and(|n| n.contains("10.2.0.41"))));
        Ok(())
    })
    .await
    .unwrap();

    let second = ["lrp-add", router, "second", "0a:00:00:00:00:02", "10.2.0.1/16"];
    northbound.nbctl(second).await.unwrap();
    project.until_reason("web", "Served").await;
    let list = northbound.nbctl(["lb-list"]).await.unwrap();
    assert!(list.contains("10.1.0.41:8080,10.2.0.41:8080"), "{list}");

    northbound.nbctl(["lrp-del", "inside", "--", "lrp-del", "second"]).await.unwrap();
    northbound.nbctl(["lrp-add", router, "elsewhere", "0a:00:00:00:00:03", "10.3.0.1/16"]).await.unwrap();
    project
        .until("web", "nothing is left to serve", |service| {
            let conditions = service.status.as_ref()?.conditions.as_ref()?;
            let ready = conditions.iter().find(|c| c.reason == "BackendOutsideProject")?;
            (ready.status == "False").then_some(())
        })
        .await;
    northbound.nbctl(["lr-lb-del", router]).await.unwrap();
    crate::drift::until_found(&controller, "router_detached", 1).await;
    assert_eq!(found(&controller, "vips").await, 0);
    controller.stop().await;
}
