//! Nova behind [`Instances`].

use std::collections::{BTreeMap, BTreeSet};

use anyhow::ensure;
use groundcrew_core::leader::Term;
use groundcrew_core::provider::{ErrorKind, Instance, InstanceState, Instances, Reboot};
use groundcrew_testkit::eventually;
use serde_json::json;

use super::{Place, SOON, gone};

fn term() -> Term {
    Term::alone("test")
}

/// Waits until a server is in this state and nothing is being done to it.
async fn is(place: &impl Place, server: &str, state: InstanceState) -> Instance {
    eventually(&format!("the server is {state:?}"), SOON, async || {
        let now = place.openstack().instance(server).await?;
        ensure!(now.state == state && now.task.is_none(), "{now:?}");
        Ok(now)
    })
    .await
    .unwrap()
}

pub(crate) async fn a_server_is_listed_rebooted_both_ways_and_deleted(place: &impl Place) {
    let server = place.boot("n1").await;
    let listing = place.openstack().instances().await.unwrap();
    assert!(listing.complete);
    let [listed] = listing.items.as_slice() else { panic!("{listing:?}") };
    assert_eq!((&listed.id, listed.name.as_str(), listed.state), (&server, "n1", InstanceState::Running));
    assert_eq!((listed.addresses.len(), listed.locked, &listed.fault), (1, false, &None), "{listed:?}");

    for how in [Reboot::Soft, Reboot::Hard] {
        place.openstack().reboot(&server, how, &term()).await.unwrap();
        is(place, &server, InstanceState::Running).await;
    }
    place.openstack().delete_instance(&server, &term()).await.unwrap();
    gone("the server is gone", async || place.client().compute().server(&server).await).await;
    let listing = place.openstack().instances().await.unwrap();
    assert!(listing.complete && listing.items.is_empty(), "{listing:?}");
    place.openstack().delete_instance(&server, &term()).await.unwrap();
    let error = place.openstack().reboot(&server, Reboot::Soft, &term()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

pub(crate) async fn a_failed_server_refuses_a_soft_reboot_and_takes_a_hard_one(place: &impl Place) {
    let server = place.boot("n1").await;
    place.fail(&server).await;
    is(place, &server, InstanceState::Failed).await;
    let error = place.openstack().reboot(&server, Reboot::Soft, &term()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert!(!error.maybe_applied(), "{error}");
    is(place, &server, InstanceState::Failed).await;
    place.openstack().reboot(&server, Reboot::Hard, &term()).await.unwrap();
    is(place, &server, InstanceState::Running).await;
}

pub(crate) async fn a_locked_server_says_so_and_refuses(place: &impl Place) {
    let server = place.boot("n1").await;
    place.lock(&server).await;
    assert!(place.openstack().instances().await.unwrap().items[0].locked);
    for how in [Reboot::Soft, Reboot::Hard] {
        let error = place.openstack().reboot(&server, how, &term()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
        assert!(error.to_string().contains("is locked"), "{error}");
    }
    let error = place.openstack().delete_instance(&server, &term()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    is(place, &server, InstanceState::Running).await;
}

pub(crate) async fn a_server_of_another_project_is_neither_listed_nor_found(place: &impl Place) {
    let foreign = place.boot_elsewhere().await;
    let own = place.boot("n1").await;
    let listing = place.openstack().instances().await.unwrap();
    let listed: Vec<_> = listing.items.iter().map(|server| &server.id).collect();
    assert!(listing.complete && listed == [&own], "{listed:?}");
    assert_eq!(place.openstack().instance(&foreign).await.unwrap_err().kind(), ErrorKind::NotFound);
    let error = place.openstack().reboot(&foreign, Reboot::Hard, &term()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
}

pub(crate) async fn a_cell_that_is_down_makes_the_list_incomplete_and_its_server_unknown(place: &impl Place) {
    let (lost, other) = (place.boot("n1").await, place.boot("n2").await);
    place.lose(&lost).await;
    let listing = place.openstack().instances().await.unwrap();
    assert!(!listing.complete, "{listing:?}");
    let states: BTreeMap<_, _> = listing.items.iter().map(|server| (&server.id, server.state)).collect();
    assert_eq!(
        states,
        BTreeMap::from([(&lost, InstanceState::Unknown), (&other, InstanceState::Running)]),
        "one that is not known is not gone"
    );
    assert_eq!(place.openstack().instance(&lost).await.unwrap().state, InstanceState::Unknown);
    place.find(&lost).await;
    let listing = place.openstack().instances().await.unwrap();
    assert!(listing.complete && listing.items.iter().all(|server| server.state == InstanceState::Running));
}

pub(crate) async fn tags_and_metadata_are_added_to_what_is_there(place: &impl Place) {
    let server = place.boot("n1").await;
    let tags = |tags: &[&str]| tags.iter().map(ToString::to_string).collect::<BTreeSet<_>>();
    let pairs = |pairs: serde_json::Value| serde_json::from_value::<BTreeMap<String, String>>(pairs).unwrap();
    let openstack = place.openstack();
    openstack.mark_instance(&server, &tags(&["k8s"]), &pairs(json!({"a": "1", "b": "2"})), &term()).await.unwrap();
    let more = (tags(&["k8s", "groundcrew:kluster=demo"]), pairs(json!({"b": "3"})));
    openstack.mark_instance(&server, &more.0, &more.1, &term()).await.unwrap();
    let marked = openstack.instance(&server).await.unwrap();
    assert_eq!((marked.tags, marked.metadata), (more.0, pairs(json!({"a": "1", "b": "3"}))));
}
