//! What is left of a cluster at kube-ovn.

use groundcrew_core::leader::Term;
use groundcrew_core::provider::Leftovers;

use super::*;
use crate::leftovers::{abandon, found, leftovers, remove};

#[tokio::test]
async fn what_a_dead_controller_left_at_kube_ovn_is_removed_after_its_load_balancer() {
    let cloud = Cloud::new("left").await;
    let others = format!("other-{}", cloud.external());
    cloud.foreign(&others, &cloud.project.address(6)).await;
    let controller = cloud.controller().await;
    let key = || json!({ "groundcrew.dev/sharing-key": "one" });
    cloud.project.create_annotated("web", key(), json!({})).await;
    let address = cloud.project.until_served("web").await;
    cloud.project.create_annotated("api", key(), json!({ "ports": [{ "port": 81 }] })).await;
    assert_eq!(cloud.project.until_served("api").await, address);
    controller.stop().await;
    abandon(&cloud.project, "web").await;
    abandon(&cloud.project, "api").await;

    let leftovers = leftovers(&cloud.project, &cloud.northbound);
    let items = found(&leftovers).await;
    let kinds: Vec<_> = items.iter().map(|item| item.kind.name).collect();
    assert_eq!(kinds, ["ovn-load-balancer", "ovn-load-balancer", "ovn-eip", "eip"]);
    // kube-ovn gives the address to the next one at once, and it would still be answered here.
    let refused = async || leftovers.remove(&items[2], &Term::alone("test")).await.unwrap_err();
    let error = refused().await;
    assert_eq!(error.response().reason, "InUse", "{error}");
    assert!(items[1].about.ends_with("/web") && items[2].about.ends_with("/web"), "{items:?}");
    remove(&leftovers, &items[1]).await;
    eventually("the one that shared it is in the way", SOON, async || {
        let error = refused().await.to_string();
        ensure!(error.contains(&items[0].name), "{error}");
        Ok(())
    })
    .await
    .unwrap();
    for item in &items {
        remove(&leftovers, item).await;
    }
    cloud
        .until_ovn_eips("only somebody else's is left", |eips| {
            let names: Vec<_> = eips.iter().map(ResourceExt::name_any).collect();
            ensure!(names == [others.as_str()], "{names:?}");
            Ok(())
        })
        .await;
    assert_eq!(cloud.northbound.nbctl(["lb-list"]).await.unwrap(), "");
    assert_eq!(cloud.project.eip_list().await.len(), 0);
    assert_eq!(found(&leftovers).await, []);
}
