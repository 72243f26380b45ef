//! Against a real API server: what somebody else writes just before we do.

use groundcrew_testkit::kube::shared;
use kube::api::{Patch, PatchParams};

use super::*;

#[tokio::test]
async fn an_eip_that_got_a_user_just_before_its_deletion_stays() {
    let control_plane = shared().await.unwrap();
    control_plane.define(&groundcrew_api::crds()).await.unwrap();
    let client = control_plane.client().await.unwrap();
    let namespace = control_plane.namespace("book").await.unwrap();
    let (deadline, looks) = (Duration::from_secs(10), broadcast::Sender::new(16));
    let rules = Rules { rest: REST, ..Rules::default() };
    let addresses = Addresses::new(client.clone(), "c1".into(), rules, deadline, looks);
    addresses.lock().book.put_pool(Pool::new(&pool("a", &["192.0.2.0/29"])));
    let (owner, term) = (testing::owner(&namespace, "web"), Term::alone("test"));
    addresses.begin(&Term::alone("test"), &[]).await.unwrap();
    let held = addresses.hold(&testing::ask(&owner, Families::V4), &term).await.unwrap();

    // No watch runs here, so the book does not know.
    let api: Api<EIp> = Api::namespaced(client, &namespace);
    let key = EipKey::of(&owner, pool::Family::V4);
    let users = serde_json::json!([{ "type": "ServiceLb", "ownerRef": "web" }, { "type": "Snat", "ownerRef": "out" }]);
    let patch = serde_json::json!({ "status": { "owners": users } });
    api.patch_status(&key.name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();

    addresses.release(&owner, &term).await.unwrap();
    let eip = api.get(&key.name).await.unwrap();
    assert_eq!(eip.metadata.deletion_timestamp, None);
    let status = eip.status.unwrap();
    assert_eq!(status.ip_address, Some(held[0].to_string()));
    assert_eq!(status.owners.iter().map(|owner| &*owner.owner_ref).collect::<Vec<_>>(), ["out"]);
}
