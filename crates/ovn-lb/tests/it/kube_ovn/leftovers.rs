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
    cloud.project.served("web").await;
    controller.stop().await;
    abandon(&cloud.project, "web").await;

    let leftovers = leftovers(&cloud.project, &cloud.northbound);
    let items = found(&leftovers).await;
    let kinds: Vec<_> = items.iter().map(|item| item.kind.name).collect();
    assert_eq!(kinds, ["ovn-load-balancer", "ovn-eip", "eip"]);
    // kube-ovn gives the address to the next one at once, and it would still be answered here.
    let error = leftovers.remove(&items[1], &Term::alone("test")).await.unwrap_err();
    assert_eq!(error.response().reason, "InUse", "{error}");
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
