//! Against a real API server: what somebody else writes just before we do.

use groundcrew_api::eip::EIpSpec;
use groundcrew_api::kube_ovn::OvnEip;
use groundcrew_api::names::label;
use groundcrew_core::events::Events;
use groundcrew_core::watch::Sink;
use groundcrew_testkit::kube::shared;
use groundcrew_testkit::kube_ovn::crds;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams, PostParams};
use ovsdb_client::{Config, Replica, parse_list};
use prometheus::Registry;
use serde_json::json;

use super::*;
use crate::kube_ovn::{self, KubeOvn, SubnetSink};
use crate::metrics::Metrics;
use crate::view::View;

/// Another kind of user, which the book is not told of: no watch runs here.
async fn add_user(api: &Api<EIp>, name: &str) {
    let users = json!([{ "type": "ServiceLb", "ownerRef": "web" }, { "type": "Snat", "ownerRef": "out" }]);
    let patch = json!({ "status": { "owners": users } });
    api.patch_status(name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
}

#[tokio::test]
async fn an_eip_that_got_a_user_just_before_its_deletion_stays() {
    let control_plane = shared().await.unwrap();
    control_plane.define(&groundcrew_api::crds()).await.unwrap();
    let client = control_plane.client().await.unwrap();
    let namespace = control_plane.namespace("book").await.unwrap();
    let (deadline, looks) = (Duration::from_secs(10), broadcast::Sender::new(16));
    let rules = Rules { rest: REST, ..Rules::default() };
    let pools = Metrics::new(&Registry::new()).unwrap().pools;
    let addresses = Addresses::new(client.clone(), "c1".into(), rules, deadline, looks, pools);
    addresses.lock().book.put_pool(Pool::new(&pool("a", &["192.0.2.0/29"])));
    let (owner, term) = (testing::owner(&namespace, "web"), Term::alone("test"));
    addresses.begin(&Term::alone("test"), &[]).await.unwrap();
    let held = addresses.hold(&testing::ask(&owner, Families::V4), &term).await.unwrap();

    let api: Api<EIp> = Api::namespaced(client, &namespace);
    let key = EipKey::of(&owner, pool::Family::V4);
    add_user(&api, &key.name).await;
    addresses.release(&owner, &term).await.unwrap();
    let eip = api.get(&key.name).await.unwrap();
    assert_eq!(eip.metadata.deletion_timestamp, None);
    let status = eip.status.unwrap();
    assert_eq!(status.ip_address, Some(held[0].to_string()));
    assert_eq!(status.owners.iter().map(|owner| &*owner.owner_ref).collect::<Vec<_>>(), ["out"]);
}

#[tokio::test]
async fn the_ovn_eip_of_an_eip_that_got_a_user_just_before_its_deletion_stays() {
    let control_plane = shared().await.unwrap();
    control_plane.define(&groundcrew_api::crds()).await.unwrap();
    control_plane.define(&crds().unwrap()).await.unwrap();
    let client = control_plane.client().await.unwrap();
    let namespace = control_plane.namespace("reserved").await.unwrap();
    let (cluster, deadline) = (Arc::<str>::from(namespace.as_str()), Duration::from_secs(10));
    let rules = kube_ovn::Rules { take_over: false, write_routes: false };
    let nobody = Config::new(parse_list("tcp:127.0.0.1:1").unwrap());
    let (events, view) = (Events::unheard().unwrap(), View { replica: Replica::open(nobody) });
    let kube_ovn = KubeOvn::new(client.clone(), cluster.clone(), deadline, events, view, rules);
    let kube_ovn = Arc::new(kube_ovn);
    let rules = Rules { rest: REST, kube_ovn: Some(kube_ovn.clone()), ..Rules::default() };
    let pools = Metrics::new(&Registry::new()).unwrap().pools;
    let looks = broadcast::Sender::new(16);
    let addresses = Arc::new(Addresses::new(client.clone(), cluster, rules, deadline, looks, pools));
    let subnet = json!({
        "metadata": { "name": namespace, "labels": { label::DEFAULT_EXTERNAL: "true" } },
        "spec": { "cidrBlock": "192.0.2.0/29", "gateway": "192.0.2.1" },
    });
    SubnetSink::new(kube_ovn.clone(), addresses.clone()).apply(serde_json::from_value(subnet).unwrap());
    let (owner, term) = (testing::owner(&namespace, "web"), Term::alone("test"));
    addresses.begin(&term, &[]).await.unwrap();
    let ask = testing::ask(&owner, Families::V4);
    addresses.hold(&ask, &term).await.expect_err("kube-ovn has not answered yet");
    let [name] = &kube_ovn.of(owner.uid)[..] else { panic!("one is asked for") };
    let ovn_eips: Api<OvnEip> = Api::all(client.clone());
    let ready = json!({ "status": { "v4Ip": "192.0.2.3", "ready": true } });
    let made = ovn_eips.patch_status(name, &PatchParams::default(), &Patch::Merge(&ready)).await.unwrap();
    addresses.begin(&term, &[]).await.unwrap();
    addresses.hold(&ask, &term).await.unwrap();

    let api: Api<EIp> = Api::namespaced(client, &namespace);
    let key = EipKey::of(&owner, pool::Family::V4);
    add_user(&api, &key.name).await;
    addresses.release(&owner, &term).await.unwrap();
    assert_eq!(api.get(&key.name).await.unwrap().metadata.deletion_timestamp, None);
    let kept = ovn_eips.get(name).await.unwrap();
    assert_eq!((kept.uid(), kept.metadata.deletion_timestamp), (made.uid(), None), "the address is his, too");

    let alone = json!({ "status": { "owners": [] } });
    let eip = api.patch_status(&key.name, &PatchParams::default(), &Patch::Merge(&alone)).await.unwrap();
    addresses.observe(&eip);
    addresses.release(&owner, &term).await.unwrap();
    assert!(api.get_opt(&key.name).await.unwrap().is_none());
    assert!(ovn_eips.get_opt(name).await.unwrap().is_none(), "and goes with its last user");
}

#[tokio::test]
async fn the_address_of_an_eip_that_cannot_be_read_is_not_given_to_anybody() {
    let control_plane = shared().await.unwrap();
    control_plane.define(&groundcrew_api::crds()).await.unwrap();
    let client = control_plane.client().await.unwrap();
    let namespace = control_plane.namespace("unread").await.unwrap();
    let api: Api<EIp> = Api::namespaced(client.clone(), &namespace);
    api.create(&PostParams::default(), &EIp::new("odd", EIpSpec::default())).await.unwrap();
    let status = json!({ "status": { "ipAddress": "192.0.2.1", "ovnEIpRef": "", "ready": true } });
    api.patch_status("odd", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();

    let pools = Metrics::new(&Registry::new()).unwrap().pools;
    let (deadline, looks) = (Duration::from_secs(10), broadcast::Sender::new(16));
    let addresses = Addresses::new(client, "c1".into(), Rules::default(), deadline, looks, pools);
    let (addresses, term) = (Arc::new(addresses), Term::alone("test"));
    addresses.lock().book.put_pool(Pool::new(&pool("a", &["192.0.2.1-192.0.2.2"])));
    // The first list of a process that leads from the start.
    let mut watch = EipSink::new(addresses.clone());
    watch.list_begins();
    watch.unreadable(Some(&namespace), "odd");
    watch.list_complete();
    addresses.begin(&term, &[]).await.unwrap();
    let (web, asks) = (testing::owner(&namespace, "web"), |address: &str| vec![address.parse().unwrap()]);
    let mut ask = testing::ask(&web, Families::V4);
    ask.requested = asks("192.0.2.1");
    let refused = addresses.hold(&ask, &term).await.unwrap_err().to_string();
    assert!(refused.contains("an EIp that cannot be read"), "{refused}");
    ask.requested = vec![];
    assert_eq!(addresses.hold(&ask, &term).await.unwrap(), asks("192.0.2.2"));

    watch.deleted_unread(Some(&namespace), "odd");
    let mut other = testing::ask(&testing::owner(&namespace, "other"), Families::V4);
    other.requested = asks("192.0.2.1");
    assert_eq!(addresses.hold(&other, &term).await.unwrap(), asks("192.0.2.1"));
}
