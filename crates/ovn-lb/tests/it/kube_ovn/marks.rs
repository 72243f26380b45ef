//! `OvnEip`s that somebody takes our marks off.

use super::*;

impl Cloud {
    /// Takes every mark of ours off, as somebody who tidies up labels by hand.
    async fn unmark(&self, ovn_eip: &str) {
        let none = json!({ "metadata": {
            "labels": { label::CLUSTER: null, label::OWNER_UID: null }, "annotations": { annotation::OWNER: null },
        } });
        let api = self.kube_ovn.ovn_eips();
        api.patch(ovn_eip, &PatchParams::default(), &Patch::Merge(&none)).await.unwrap();
    }
}

#[tokio::test]
async fn an_ovn_eip_that_loses_our_marks_gets_them_back_and_goes_with_its_service_all_the_same() {
    let cloud = Cloud::new("unmarked").await;
    let controller = cloud.controller().await;
    let address = cloud.project.served("web").await;
    let before = cloud.ovn_eips().await[0].clone();
    cloud.unmark(&before.name_any()).await;
    cloud
        .until_ovn_eips("it has our marks again", |eips| {
            let is_same = eips.len() == 1 && eips[0].uid() == before.uid() && address_of(&eips[0]) == address;
            let is_marked = eips[0].labels() == before.labels();
            ensure!(is_same && is_marked && eips[0].annotations().contains_key(annotation::OWNER), "{eips:?}");
            Ok(())
        })
        .await;
    cloud.project.until_reason("web", "Served").await;
    let events: Api<Event> = Api::namespaced(cloud.project.client.clone(), &cloud.project.namespace);
    let told = events.list(&ListParams::default()).await.unwrap().items;
    assert!(told.iter().all(|event| event.reason.as_deref() != Some("AddressTaken")), "nobody has taken it");
    controller.stop().await;

    // Nobody puts them back before the Service goes.
    cloud.unmark(&before.name_any()).await;
    cloud.project.services().delete("web", &DeleteParams::default()).await.unwrap();
    let _controller = cloud.controller().await;
    cloud
        .until_ovn_eips("it is gone", |eips| {
            ensure!(eips.is_empty(), "{eips:?}");
            Ok(())
        })
        .await;
    cloud.project.until_gone("web").await;
}
