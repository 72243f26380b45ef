//! Cinder.

use std::collections::BTreeSet;

use openstack_client::Kind;
use serde_json::json;

use super::{Place, gone};

const CLUSTER: &str = "cinder.csi.openstack.org/cluster";

pub(crate) async fn volumes_are_found_by_the_cluster_that_their_metadata_names(place: &impl Place) {
    let mut own = BTreeSet::new();
    for name in ["pvc-1", "pvc-2"] {
        own.insert(place.volume(name, json!({CLUSTER: "demo", "other": "x"})).await);
    }
    for near in ["demo-2", "demo_x", "dem", "Demo"] {
        place.volume("pvc-3", json!({CLUSTER: near})).await;
    }
    place.volume("demo", json!({})).await;
    let filter = json!({CLUSTER: "demo"}).to_string();
    let storage = place.client().block_storage();
    let found = storage.volumes(&[("metadata", &filter)]).await.unwrap();
    assert!(found.is_complete());
    // Databases compare as they were set up to, some without regard to case: whoever deletes looks again.
    let exact = found.items.iter().filter(|volume| volume.metadata[CLUSTER] == "demo");
    assert_eq!(exact.map(|volume| volume.id.clone()).collect::<BTreeSet<_>>(), own);
    let paged = storage.volumes(&[("limit", "3")]).await.unwrap();
    assert!(paged.is_complete(), "{:?}", paged.gaps);
    assert_eq!(paged.items.len(), 7);
}

pub(crate) async fn a_volume_with_a_snapshot_stays_until_that_is_gone(place: &impl Place) {
    let volume = place.volume("pvc-1", json!({})).await;
    let snapshot = place.snapshot(&volume).await;
    let storage = place.client().block_storage();
    let error = storage.delete_volume(&volume).await.unwrap_err();
    assert_eq!((error.kind(), error.status()), (Kind::Invalid, Some(400)), "{error}");
    assert_eq!(storage.volume(&volume).await.unwrap().status, "available");

    assert_eq!(storage.snapshots(&[]).await.unwrap().items[0].volume_id, volume);
    storage.delete_snapshot(&snapshot).await.unwrap();
    let emptied = groundcrew_testkit::eventually("the snapshot is gone", super::SOON, async || {
        let left = storage.snapshots(&[]).await?;
        anyhow::ensure!(left.is_complete() && left.items.is_empty(), "{:?}", left.items);
        Ok(())
    });
    emptied.await.unwrap();
    storage.delete_volume(&volume).await.unwrap();
    gone("the volume is gone", async || storage.volume(&volume).await).await;
    storage.delete_volume(&volume).await.unwrap();
    storage.delete_snapshot(&snapshot).await.unwrap();
}
