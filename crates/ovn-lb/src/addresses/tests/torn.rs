//! Against a real API server: an `EIp` that is gone before anybody has told.

use groundcrew_api::eip::EIpSpec;
use groundcrew_api::names::finalizer;
use groundcrew_core::events::Events;
use groundcrew_testkit::kube::shared;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use prometheus::Registry;
use serde_json::json;

use super::*;
use crate::metrics::Metrics;

/// Who leads, and hears of nothing: no watch runs here.
struct Leader {
    api: Api<EIp>,
    addresses: Arc<Addresses>,
    looks: broadcast::Receiver<Look>,
    namespace: String,
    term: Term,
}

impl Leader {
    async fn new(name: &str) -> Self {
        let control_plane = shared().await.unwrap();
        control_plane.define(&groundcrew_api::crds()).await.unwrap();
        let client = control_plane.client().await.unwrap();
        let namespace = control_plane.namespace(name).await.unwrap();
        let sender = broadcast::Sender::new(16);
        let (deadline, looks) = (Duration::from_secs(10), sender.subscribe());
        let pools = Metrics::new(&Registry::new()).unwrap().pools;
        let rules = Rules { rest: REST, serve_eips: true, ..Rules::default() };
        let addresses = Arc::new(Addresses::new(client.clone(), "c1".into(), rules, deadline, sender, pools));
        addresses.lock().book.put_pool(Pool::new(&pool("a", &["192.0.2.0/29"])));
        let (api, term) = (Api::namespaced(client, &namespace), Term::alone("test"));
        addresses.begin(&term, &[]).await.unwrap();
        Self { api, addresses, looks, namespace, term }
    }

    fn key(&self, name: &str) -> EipKey {
        EipKey::new(Some(&self.namespace), Some(name))
    }

    fn bound(&self, service: &str, eip: &str) -> AddressAsk {
        let mut ask = testing::ask(&testing::owner(&self.namespace, service), Families::V4);
        ask.annotations = binding::bound(Some(eip));
        ask
    }

    /// Somebody writes, and the watch tells.
    async fn told(&self, name: &str, patch: &Value) {
        let eip = self.api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
        self.addresses.observe(&eip);
    }

    async fn told_status(&self, name: &str, status: &Value) {
        let patch = json!({ "status": status });
        let eip = self.api.patch_status(name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
        self.addresses.observe(&eip);
    }

    /// It goes, finalizer and all, and nobody tells.
    async fn tear(&self, name: &str) {
        let bare = json!({ "metadata": { "finalizers": null } });
        self.api.patch(name, &PatchParams::default(), &Patch::Merge(&bare)).await.unwrap();
        let _ = self.api.delete(name, &DeleteParams::default()).await;
    }
}

#[tokio::test]
async fn who_is_on_an_eip_that_goes_unheard_keeps_his_address_and_is_not_served_without() {
    let leader = Leader::new("torn").await;
    let mut theirs = EIp::new("default-gw", EIpSpec::default());
    theirs.metadata.finalizers = Some(vec![finalizer::KUBE_DC_EIP.to_owned()]);
    leader.api.create(&PostParams::default(), &theirs).await.unwrap();
    let status = json!({ "ipAddress": "203.0.113.1", "ovnEIpRef": "port", "ready": true, "ownershipType": "Shared" });
    leader.told_status("default-gw", &status).await;
    let mut web = leader.bound("web", "default-gw");
    let held = leader.addresses.hold(&web, &leader.term).await.unwrap();
    assert_eq!(held[0].to_string(), "203.0.113.1");
    web.current.clone_from(&held);
    leader.told_status("default-gw", &json!({ "owners": [] })).await;
    leader.tear("default-gw").await;
    let refused = leader.addresses.hold(&web, &leader.term).await;
    assert!(matches!(refused, Err(Error::Lost)), "{refused:?}");
    assert_eq!(leader.addresses.hold(&web, &leader.term).await.unwrap(), held, "on an EIp of its own");

    // One that has published nothing is not served without an address either.
    leader.api.create(&PostParams::default(), &theirs).await.unwrap();
    leader.told_status("default-gw", &status).await;
    let api = leader.bound("api", "default-gw");
    leader.tear("default-gw").await;
    let refused = leader.addresses.hold(&api, &leader.term).await;
    assert!(matches!(refused, Err(Error::Lost)), "{refused:?}");
}

#[tokio::test]
async fn those_on_an_eip_that_a_write_finds_gone_look_again() {
    let mut leader = Leader::new("gone").await;
    let (key, events) = (leader.key("office"), Events::unheard().unwrap());
    let office = leader.api.create(&PostParams::default(), &EIp::new("office", EIpSpec::default())).await.unwrap();
    leader.addresses.observe(&office);
    leader.addresses.look(&key, &events, &leader.term).await;
    let web = leader.bound("web", "office");
    let held = leader.addresses.hold(&web, &leader.term).await.unwrap();

    leader.api.delete("office", &DeleteParams::default()).await.unwrap();
    leader.told("office", &json!({})).await;
    leader.tear("office").await;
    while leader.looks.try_recv().is_ok() {}
    leader.addresses.look(&key, &events, &leader.term).await;
    assert_eq!(leader.looks.try_recv().ok(), Some(Look::At(web.owner.key.clone())));
    assert_eq!(leader.addresses.hold(&web, &leader.term).await.unwrap(), held);
}
