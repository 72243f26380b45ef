//! Against a real API server: an `EIp` that is gone before anybody has told.

use groundcrew_api::eip::EIpSpec;
use groundcrew_api::kube_ovn::OvnEip;
use groundcrew_api::names::{annotation, finalizer, label};
use groundcrew_core::events::Events;
use groundcrew_core::watch::Sink;
use groundcrew_testkit::kube::shared;
use groundcrew_testkit::kube_ovn::crds;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use ovsdb_client::{Config, Replica, parse_list};
use prometheus::Registry;
use serde_json::json;

use super::*;
use crate::kube_ovn::{self, OvnEipSink, SubnetSink};
use crate::metrics::Metrics;
use crate::view::View;

/// Who leads, and hears of nothing: no watch runs here.
struct Leader {
    api: Api<EIp>,
    ovn_eips: Api<OvnEip>,
    addresses: Arc<Addresses>,
    looks: broadcast::Receiver<Look>,
    namespace: String,
    term: Term,
}

impl Leader {
    /// One who gives out addresses of a pool.
    async fn new(name: &str) -> Self {
        Self::start(name, false, |rules| rules).await
    }

    /// One where kube-ovn is, with one Subnet. Its name is that of the cluster, too.
    async fn with_kube_ovn(name: &str) -> Self {
        Self::start(name, true, |rules| rules).await
    }

    async fn start(name: &str, with_kube_ovn: bool, change: impl FnOnce(Rules) -> Rules) -> Self {
        let control_plane = shared().await.unwrap();
        control_plane.define(&groundcrew_api::crds()).await.unwrap();
        control_plane.define(&crds().unwrap()).await.unwrap();
        let client = control_plane.client().await.unwrap();
        let namespace = control_plane.namespace(name).await.unwrap();
        let cluster = Arc::<str>::from(namespace.as_str());
        let sender = broadcast::Sender::new(16);
        let (deadline, looks) = (Duration::from_secs(10), sender.subscribe());
        let pools = Metrics::new(&Registry::new()).unwrap().pools;
        let kube_ovn = with_kube_ovn.then(|| {
            let nobody = Config::new(parse_list("tcp:127.0.0.1:1").unwrap());
            let (events, view) = (Events::unheard().unwrap(), View { replica: Replica::open(nobody) });
            let rules = kube_ovn::Rules { take_over: false, write_routes: false };
            Arc::new(KubeOvn::new(client.clone(), cluster.clone(), deadline, events, view, rules))
        });
        let rules = Rules { rest: REST, serve_eips: true, kube_ovn: kube_ovn.clone(), ..Rules::default() };
        let addresses = Addresses::new(client.clone(), cluster, change(rules), deadline, sender, pools);
        let addresses = Arc::new(addresses);
        addresses.lock().book.put_pool(Pool::new(&pool("a", &["192.0.2.128/25"])));
        if let Some(kube_ovn) = kube_ovn {
            let subnet = json!({
                "metadata": { "name": namespace, "labels": { label::DEFAULT_EXTERNAL: "true" } },
                "spec": { "cidrBlock": "198.51.100.0/24", "gateway": "198.51.100.1" },
            });
            SubnetSink::new(kube_ovn, addresses.clone()).apply(serde_json::from_value(subnet).unwrap());
        }
        let (api, ovn_eips) = (Api::namespaced(client.clone(), &namespace), Api::all(client));
        let leader = Self { api, ovn_eips, addresses, looks, namespace, term: Term::alone("test") };
        leader.begin(&[]).await;
        leader
    }

    /// A term begins.
    async fn begin(&self, living: &[Living]) {
        self.addresses.begin(&self.term, living).await.unwrap();
    }

    /// kube-ovn has given this address to somebody of ours or to another, or has not answered yet.
    async fn ovn_eip<'a>(&self, name: &str, owner: impl Into<Option<&'a Owner>>, address: Option<&str>) -> String {
        let name = format!("{name}-{}", self.namespace);
        let mut object = json!({
            "apiVersion": OvnEip::api_version(&()), "kind": OvnEip::kind(&()),
            "metadata": { "name": name },
            "spec": { "externalSubnet": self.namespace, "type": "nat" },
        });
        if let Some(owner) = owner.into() {
            object["metadata"]["labels"] = json!({ label::CLUSTER: self.namespace, label::OWNER_UID: owner.uid });
            object["metadata"]["annotations"] = json!({ annotation::OWNER: owner.key.to_string() });
        }
        self.ovn_eips.patch(&name, &PatchParams::apply("test"), &Patch::Apply(&object)).await.unwrap();
        let ready = json!({ "status": { "v4Ip": address, "ready": address.is_some() } });
        self.ovn_eips.patch_status(&name, &PatchParams::default(), &Patch::Merge(&ready)).await.unwrap();
        name
    }

    /// The `OvnEip`s that no `EIp` needs, as far as is known.
    fn alone(&self) -> Vec<String> {
        let owned = self.addresses.owned().into_iter();
        owned.filter_map(|owned| owned.what.strip_prefix("OvnEip ").map(ToOwned::to_owned)).collect()
    }

    fn owner(&self, name: &str) -> Owner {
        testing::owner(&self.namespace, name)
    }

    fn key(&self, name: &str) -> EipKey {
        EipKey::new(Some(&self.namespace), Some(name))
    }

    fn bound(&self, service: &str, eip: &str) -> AddressAsk {
        let mut ask = testing::ask(&self.owner(service), Families::V4);
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

    async fn look(&self, name: &str) {
        self.addresses.look(&self.key(name), &Events::unheard().unwrap(), &self.term).await;
    }

    /// A tenant makes one, and the watch tells.
    async fn make(&self, name: &str) -> Owner {
        let eip = self.api.create(&PostParams::default(), &EIp::new(name, EIpSpec::default())).await.unwrap();
        self.addresses.observe(&eip);
        Owner { uid: eip.metadata.uid.unwrap().parse().unwrap(), ..self.owner(name) }
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
    leader.make("office").await;
    leader.look("office").await;
    let web = leader.bound("web", "office");
    let held = leader.addresses.hold(&web, &leader.term).await.unwrap();

    leader.api.delete("office", &DeleteParams::default()).await.unwrap();
    leader.told("office", &json!({})).await;
    leader.tear("office").await;
    while leader.looks.try_recv().is_ok() {}
    leader.look("office").await;
    assert_eq!(leader.looks.try_recv().ok(), Some(Look::At(web.owner.key.clone())));
    assert_eq!(leader.addresses.hold(&web, &leader.term).await.unwrap(), held);
}

#[tokio::test]
async fn the_ovn_eip_of_an_eip_that_is_lost_is_known_again_by_who_answers_there() {
    let leader = Leader::with_kube_ovn("lost").await;
    let (office, web) = (leader.owner("office"), leader.owner("web"));
    let name = leader.ovn_eip("office", &office, Some("198.51.100.3")).await;
    let living = Living { owner: web.clone(), addresses: vec!["198.51.100.3".parse().unwrap()] };
    leader.begin(std::slice::from_ref(&living)).await;
    assert_eq!(leader.alone(), [""; 0], "no orphan, though nobody has looked at the Service yet");
    leader.addresses.release(&office, &leader.term).await.unwrap();
    assert_eq!(leader.ovn_eips.get(&name).await.unwrap().metadata.deletion_timestamp, None);

    let mut ask = testing::ask(&web, Families::V4);
    ask.current.clone_from(&living.addresses);
    assert_eq!(leader.addresses.hold(&ask, &leader.term).await.unwrap(), living.addresses);
    assert_eq!(leader.addresses.caveats(&ask), []);
    let [eip] = &leader.api.list(&ListParams::default()).await.unwrap().items[..] else { panic!("there is one EIp") };
    assert_eq!(eip.status.as_ref().unwrap().ovn_eip_ref, name);

    leader.addresses.release(&web, &leader.term).await.unwrap();
    assert_eq!(leader.alone(), [&*name], "nobody is there any more");
    leader.addresses.release(&office, &leader.term).await.unwrap();
    assert!(leader.ovn_eips.get_opt(&name).await.unwrap().is_none());
}

#[tokio::test]
async fn an_ovn_eip_that_a_tenants_eip_waits_for_is_no_orphan_and_neither_is_one_on_its_way_out() {
    let leader = Leader::with_kube_ovn("waits").await;
    let owner = leader.make("office").await;
    let waits = leader.ovn_eip("office", &owner, None).await;
    let gone = leader.ovn_eip("gone", &leader.owner("gone"), Some("198.51.100.4")).await;
    leader.begin(&[]).await;
    assert_eq!(leader.alone(), [&*gone]);
    let held = json!({ "metadata": { "finalizers": [finalizer::KUBE_OVN] } });
    leader.ovn_eips.patch(&gone, &PatchParams::default(), &Patch::Merge(&held)).await.unwrap();
    leader.ovn_eips.delete(&gone, &DeleteParams::default()).await.unwrap();
    leader.begin(&[]).await;
    assert_eq!(leader.alone(), [""; 0], "kube-ovn is to let it go, and nothing is left to do here");
    leader.tear("office").await;
    leader.begin(&[]).await;
    assert_eq!(leader.alone(), [&*waits], "nobody waits any more");
}

#[tokio::test]
async fn where_new_addresses_are_from_pools_those_of_kube_ovn_are_kept_and_given_back() {
    let leader = Leader::start("pools", true, |rules| Rules { from_pools: true, ..rules }).await;
    let web = leader.owner("web");
    let before = leader.ovn_eip("slb-web", &web, Some("198.51.100.5")).await;
    let living = Living { owner: web.clone(), addresses: vec!["198.51.100.5".parse().unwrap()] };
    leader.begin(std::slice::from_ref(&living)).await;
    let mut ask = testing::ask(&web, Families::V4);
    ask.current.clone_from(&living.addresses);
    assert_eq!(leader.addresses.hold(&ask, &leader.term).await.unwrap(), living.addresses);

    let kube_ovn = leader.addresses.kube_ovn.as_ref().unwrap();
    leader.ovn_eips.delete(&before, &DeleteParams::default()).await.unwrap();
    leader.begin(std::slice::from_ref(&living)).await;
    leader.addresses.hold(&ask, &leader.term).await.unwrap();
    let [again] = &kube_ovn.of(web.uid)[..] else { panic!("it is asked for again") };

    // Of a pool in the midst of a Subnet of kube-ovn's.
    leader.addresses.lock().book.put_pool(Pool::new(&pool("b", &["198.51.100.200-198.51.100.201"])));
    for (name, requested) in [("api", vec![]), ("more", vec!["198.51.100.200".parse().unwrap()])] {
        let mut ask = testing::ask(&leader.owner(name), Families::V4);
        ask.requested = requested;
        leader.addresses.hold(&ask, &leader.term).await.unwrap();
        assert!(kube_ovn.of(ask.owner.uid).is_empty());
    }
    leader.addresses.release(&web, &leader.term).await.unwrap();
    assert!(leader.ovn_eips.get_opt(again).await.unwrap().is_none());
    leader.ovn_eip("slb-gone", &leader.owner("gone"), Some("198.51.100.6")).await;
    leader.begin(&[]).await;
    assert_eq!(leader.alone().len(), 1, "what is left of one that is gone is found");
}

#[tokio::test]
async fn who_waits_for_an_address_is_woken_when_we_delete_an_ovn_eip() {
    let mut leader = Leader::with_kube_ovn("freed").await;
    let web = leader.owner("web");
    let name = leader.ovn_eip("web", &web, Some("198.51.100.7")).await;
    leader.begin(&[]).await;
    let kube_ovn = leader.addresses.kube_ovn.clone().unwrap();
    let mut watch = OvnEipSink::new(kube_ovn, leader.addresses.clone());
    let object = leader.ovn_eips.get(&name).await.unwrap();
    let waits = leader.owner("waits");
    leader.addresses.lock().waits(&waits);
    leader.addresses.unreserve(&web, None, &leader.term).await.unwrap();
    while leader.looks.try_recv().is_ok() {}
    watch.delete(object);
    assert_eq!(leader.looks.try_recv().ok(), Some(Look::At(waits.key)));
}

#[tokio::test]
async fn a_tenants_eip_whose_address_kube_ovn_gave_away_is_not_ready() {
    let leader = Leader::with_kube_ovn("given").await;
    let owner = leader.make("office").await;
    let name = leader.ovn_eip("office", &owner, Some("198.51.100.9")).await;
    let said = async |leader: &Leader| {
        leader.begin(&[]).await;
        leader.look("office").await;
        let status = leader.api.get("office").await.unwrap().status.unwrap();
        (status.ready, status.conditions[0].reason.clone(), status.ip_address.unwrap_or_default())
    };
    let is_there = || (true, "Assigned".to_owned(), "198.51.100.9".to_owned());
    assert_eq!(said(&leader).await, is_there());
    leader.ovn_eips.delete(&name, &DeleteParams::default()).await.unwrap();
    let thief = leader.ovn_eip("thief", None, Some("198.51.100.9")).await;
    assert_eq!(said(&leader).await, (false, "AddressTaken".to_owned(), "198.51.100.9".to_owned()));
    assert!(leader.addresses.lock().unserved.contains(&leader.key("office")), "it looks again with any change");
    let refused = leader.addresses.hold(&leader.bound("web", "office"), &leader.term).await.unwrap_err();
    assert!(matches!(&refused, Error::EipNotReady { why, .. } if why.contains("somebody else")), "{refused}");
    leader.ovn_eips.delete(&thief, &DeleteParams::default()).await.unwrap();
    assert_eq!(said(&leader).await, is_there(), "it is asked for again");
}
