//! The traps of kube-ovn, one by one; then that the indexes agree with the objects whatever happens to them.

mod families;

use groundcrew_core::key::ServiceKey;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::addresses::{EipKey, Family};
use crate::kube_ovn::decide::PATIENCE;
use crate::kube_ovn::networks::{Subnet, Vpc};
use crate::metrics::pool_addresses;
use crate::testing::owner;

const OURS: &str = "c1";
/// Nothing that the owner has must stay.
const NONE: BTreeSet<Arc<str>> = BTreeSet::new();

struct World {
    catalog: Catalog,
    now: Moment,
    versions: u64,
}

impl World {
    /// A public network of five addresses, .2 to .6, that is everybody's default.
    fn new() -> Self {
        let mut world = Self { catalog: Catalog::default(), now: Moment::now(), versions: 0 };
        world.subnet("ext", &json!({ "public": "true" }), "192.0.2.0/29", &[]);
        world
    }

    /// `kind` is the type of the network; its value tells whether it is the default one.
    fn subnet(&mut self, name: &str, kind: &Value, cidr: &str, excluded: &[&str]) {
        let mut labels = serde_json::Map::new();
        for (kind, default) in kind.as_object().into_iter().flatten() {
            labels.insert(label::EXTERNAL_NETWORK_TYPE.into(), json!(kind));
            labels.insert(label::DEFAULT_EXTERNAL.into(), default.clone());
        }
        let gateway = cidr.replace("0/", "1/").split('/').next().unwrap().to_owned();
        let object = json!({
            "metadata": { "name": name, "labels": labels },
            "spec": { "cidrBlock": cidr, "gateway": gateway, "excludeIps": excluded },
        });
        self.catalog.networks.put_subnet(Subnet::new(&serde_json::from_value(object).unwrap()));
    }

    fn vpc(&mut self, name: &str, namespaces: &[&str], extra: &[&str]) {
        let object = json!({
            "metadata": { "name": name },
            "spec": { "namespaces": namespaces, "enableExternal": true, "extraExternalSubnets": extra },
        });
        self.catalog.networks.put_vpc(Vpc::new(&serde_json::from_value(object).unwrap()));
    }

    #[allow(clippy::needless_pass_by_value, reason = "what is written on the spot needs no name")]
    fn put(&mut self, name: &str, uid: u128, owner: Option<&Owner>, spec: Value, status: Value, leaving: bool) -> News {
        self.versions += 1;
        let mut meta = json!({
            "name": name, "uid": Uuid::from_u128(uid).to_string(), "resourceVersion": self.versions.to_string(),
            "finalizers": ["kubeovn.io/kube-ovn-controller"],
        });
        if let Some(owner) = owner {
            meta["labels"] = json!({ label::CLUSTER: OURS, label::OWNER_UID: owner.uid });
            meta["annotations"] = json!({ annotation::OWNER: owner.key.to_string() });
        }
        if leaving {
            meta["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        let object = json!({ "metadata": meta, "spec": spec, "status": status });
        let (name, eip) = Eip::read(&serde_json::from_value(object).unwrap(), OURS).unwrap();
        self.catalog.eips.put(name, eip, self.now)
    }

    fn ready(&mut self, name: &str, uid: u128, owner: Option<&Owner>, address: &str) -> News {
        let status = json!({ "v4Ip": address, "ready": true });
        self.put(name, uid, owner, json!({ "externalSubnet": "ext", "type": "nat" }), status, false)
    }

    /// kube-ovn has connected a router.
    fn port(&mut self, vpc: &str, subnet: &str) -> News {
        let spec = json!({ "externalSubnet": subnet, "type": "lrp" });
        self.put(&format!("{vpc}-{subnet}"), 99, None, spec, json!(null), false)
    }

    fn next(&self, owner: &Owner) -> Next {
        self.catalog.next(owner, &need(owner, None, None), &NONE, &[], self.now)
    }

    fn keep(&self, owner: &Owner, address: &str, reference: &str) -> Keep {
        let made = Made {
            owner: owner.clone(),
            address: address.parse().unwrap(),
            reference: reference.into(),
            of_tenant: false,
            is_child: false,
        };
        self.catalog.keep(&made, self.now)
    }
}

fn need(owner: &Owner, kind: Option<&str>, requested: Option<&str>) -> Need {
    Need {
        eip: EipKey::of(owner, Family::V4),
        family: Family::V4,
        network_type: kind.map(Into::into),
        requested: requested.map(|address| address.parse().unwrap()),
    }
}

fn wish(next: Next) -> Wish {
    match next {
        Next::Make(wish) => wish,
        other => panic!("{other:?}"),
    }
}

fn refusal(next: Next) -> String {
    match next {
        Next::Refuse(error) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_name_is_always_the_same_and_never_that_of_a_router_port() {
    let (mut world, web) = (World::new(), owner("shop", "web"));
    let name = wish(world.next(&web)).name;
    assert_eq!(wish(World::new().next(&web)).name, name);
    assert_ne!(wish(World::new().next(&owner("a", "web"))).name, name, "another Service of that name");
    // Somebody's Vpc and Subnet whose names together are ours: deleting ours would take their port.
    let (vpc, subnet) = name.split_at(name.find("web").unwrap() + 3);
    world.vpc(vpc, &[], &[]);
    world.subnet(&subnet[1..], &json!({}), "10.9.0.0/24", &[]);
    let other = wish(world.next(&web)).name;
    assert_ne!(other, name);
    assert!(!world.catalog.networks.is_router_port(&other));
}

#[test]
fn an_ovn_eip_of_our_name_without_our_mark_is_never_used() {
    let (mut world, web) = (World::new(), owner("shop", "web"));
    let name = wish(world.next(&web)).name;
    for stranger in [None, Some(owner("shop", "other"))] {
        world.ready(&name, 7, stranger.as_ref(), "192.0.2.2");
        assert!(refusal(world.next(&web)).contains(&name));
    }
}

#[test]
fn an_address_counts_once_it_is_ready_and_not_when_it_is_told() {
    let (mut world, web) = (World::new(), owner("shop", "web"));
    let spec = json!({ "externalSubnet": "ext", "type": "nat", "v4Ip": "192.0.2.2" });
    let name = wish(world.next(&web)).name;
    world.put(&name, 7, Some(&web), spec, json!({ "v4Ip": "192.0.2.2" }), false);
    assert!(matches!(world.next(&web), Next::Wait { .. }));
    world.ready(&name, 7, Some(&web), "192.0.2.2");
    assert!(matches!(world.next(&web), Next::Use { address, .. } if address.to_string() == "192.0.2.2"));
}

#[test]
fn a_changed_spec_means_nothing_once_an_address_is_assigned() {
    let (mut world, web) = (World::new(), owner("shop", "web"));
    let spec = json!({ "externalSubnet": "ext", "type": "nat", "v4Ip": "192.0.2.6" });
    world.put("mine", 7, Some(&web), spec, json!({ "v4Ip": "192.0.2.2", "ready": true }), false);
    assert_eq!(world.keep(&web, "192.0.2.2", "mine"), Keep::Safe("mine".into()));
    assert!(world.catalog.eips.holders("192.0.2.6".parse().unwrap()).next().is_none());
}

#[test]
fn silence_is_explained_by_what_can_be_seen() {
    let web = owner("shop", "web");
    let told = |world: &mut World, spec: Value, requested: Option<&str>| {
        let name = wish(world.next(&web)).name;
        world.put(&name, 7, Some(&web), spec, json!(null), false);
        world.now = world.now + PATIENCE;
        match world.catalog.next(&web, &need(&web, None, requested), &NONE, &[], world.now) {
            Next::Refuse(Error::OvnEipSilent { reason, message }) => (reason, message),
            other => panic!("{other:?}"),
        }
    };
    let asked = json!({ "externalSubnet": "ext", "type": "nat", "v4Ip": "192.0.2.3" });
    let (reason, message) = told(&mut World::new(), asked.clone(), Some("192.0.2.3"));
    assert!(reason == "KubeOvnSilent" && message.contains("192.0.2.3 may be in use"), "{message}");
    let mut world = World::new();
    world.ready("theirs", 9, None, "192.0.2.3");
    let (reason, message) = told(&mut world, asked, Some("192.0.2.3"));
    assert_eq!((reason, &*message), ("AddressTaken", "192.0.2.3 is held by somebody else"));
    let any = json!({ "externalSubnet": "ext", "type": "nat" });
    assert_eq!(told(&mut World::new(), any.clone(), None).0, "KubeOvnSilent");
    let mut world = World::new();
    world.subnet("ext", &json!({ "public": "true" }), "192.0.2.0/29,2001:db8::/120", &[]);
    let (_, message) = told(&mut world, any.clone(), None);
    assert!(message.contains("no release up to 1.16.2 gives addresses of a Subnet with IPv6"), "{message}");
    let mut world = World::new();
    let name = wish(world.next(&web)).name;
    world.put(&name, 7, Some(&web), any, json!(null), false);
    for n in 2..=6 {
        world.ready(&format!("theirs-{n}"), n, None, &format!("192.0.2.{n}"));
    }
    world.now = world.now + PATIENCE;
    assert!(refusal(world.next(&web)).contains("no IPv4 address seems to be left in Subnet ext"));
}

#[test]
fn what_was_asked_for_before_the_user_thought_again_goes() {
    let (mut world, web) = (World::new(), owner("shop", "web"));
    let name = wish(world.next(&web)).name;
    let asked = json!({ "externalSubnet": "ext", "type": "nat", "v4Ip": "192.0.2.3" });
    world.put(&name, 7, Some(&web), asked, json!(null), false);
    let drop = |next| matches!(next, Next::Drop(dropped) if *dropped == *name);
    assert!(drop(world.catalog.next(&web, &need(&web, None, Some("192.0.2.4")), &NONE, &[], world.now)));
    assert!(drop(world.catalog.next(&web, &need(&web, Some("cloud"), None), &NONE, &[], world.now)));
}

#[test]
fn the_connected_networks_come_first_then_the_default_one_then_the_one_with_the_most_room() {
    let mut world = World { catalog: Catalog::default(), ..World::new() };
    world.subnet("small", &json!({ "public": "false" }), "198.51.100.0/29", &[]);
    world.subnet("large", &json!({ "public": "false" }), "203.0.113.0/24", &[]);
    world.subnet("cloud", &json!({ "cloud": "true" }), "100.64.0.0/16", &[]);
    let names = |world: &World, kind| -> Vec<String> {
        let networks = &world.catalog.networks;
        let found = networks.candidates("shop", kind, Family::V4, &world.catalog.eips, &[]);
        found.iter().map(|subnet| subnet.name.to_string()).collect()
    };
    assert_eq!(names(&world, Some("public")), ["large", "small"]);
    assert_eq!(names(&world, None), ["cloud", "large", "small"]);
    world.vpc("shop", &["shop"], &["large"]);
    world.port("shop", "small");
    assert_eq!(names(&world, Some("public")), ["small", "large"]);
    assert_eq!(names(&world, Some("dmz")), [""; 0]);
}

#[test]
fn a_router_is_connected_by_its_port_and_not_by_what_its_vpc_asks_for() {
    let mut world = World { catalog: Catalog::default(), ..World::new() };
    world.subnet("ext", &json!({ "public": "true" }), "192.0.2.0/29", &[]);
    world.subnet("more", &json!({ "public": "false" }), "198.51.100.0/24", &[]);
    let web = owner("shop", "web");
    let vpc = |world: &mut World, enabled: bool, extra: &[&str]| {
        let spec = json!({ "namespaces": ["shop"], "enableExternal": enabled, "extraExternalSubnets": extra });
        let object = json!({ "metadata": { "name": "v" }, "spec": spec, "status": { "extraExternalSubnets": extra } });
        world.catalog.networks.put_vpc(Vpc::new(&serde_json::from_value(object).unwrap()));
    };
    let apart = |world: &World| match world.next(&web) {
        Next::Refuse(Error::SubnetNotConnected { subnet, why, .. }) => format!("{subnet}: {why}"),
        other => panic!("{other:?}"),
    };
    // Without the switch kube-ovn connects nothing.
    vpc(&mut world, false, &["more"]);
    assert!(apart(&world).contains("enableExternal"), "{}", apart(&world));
    // With others in the list it does not connect the default one.
    vpc(&mut world, true, &["more"]);
    assert!(apart(&world).contains("ext: add the Subnet to"), "{}", apart(&world));
    vpc(&mut world, true, &[]);
    assert!(apart(&world).contains("ext: kube-ovn has not"), "{}", apart(&world));

    vpc(&mut world, true, &["more"]);
    assert!(world.port("v", "more").connected, "who waits is woken");
    assert_eq!(&*wish(world.next(&web)).subnet, "more");
    // The default Vpc may have its port from a ConfigMap, with no OvnEip.
    let ports = ["192.0.2.2".parse().unwrap()];
    assert_eq!(&*wish(world.catalog.next(&web, &need(&web, None, None), &NONE, &ports, world.now)).subnet, "ext");
    let gone = json!({ "externalSubnet": "more", "type": "lrp" });
    assert!(world.put("v-more", 99, None, gone, json!(null), true).connected);
    assert!(apart(&world).starts_with("ext: "), "{}", apart(&world));
}

#[test]
fn room_is_counted_from_the_objects_and_not_from_what_the_subnet_claims() {
    let mut world = World::new();
    world.subnet(
        "ext",
        &json!({ "public": "true" }),
        "192.0.2.0/28",
        &["192.0.2.1", "192.0.2.3..192.0.2.10", "192.0.2.9"],
    );
    let free = |world: &World| {
        let subnet = world.catalog.networks.subnet("ext").unwrap();
        subnet.free(Family::V4, &world.catalog.eips)
    };
    assert_eq!(free(&world), 5, ".2 and .11 to .14");
    world.ready("a", 1, None, "192.0.2.2");
    assert_eq!(free(&world), 4);
    let gauges = pool_addresses("Subnet").unwrap();
    rooms::show(&world.catalog, &gauges);
    let shown = |state| gauges.with_label_values(&["ext", "ipv4", state]).get();
    assert_eq!((shown("used"), shown("free")), (1, 4));
    let spec = json!({ "externalSubnet": "ext" });
    world.put("a", 1, None, spec, json!({ "v4Ip": "192.0.2.2", "ready": true }), true);
    assert_eq!(free(&world), 5, "freed at the deletion timestamp");
}

#[test]
fn a_namespace_has_as_many_of_a_network_as_it_may_and_those_that_are_asked_for_count() {
    let limited = |limit: &str| {
        let object = json!({
            "metadata": {
                "name": "ext", "labels": { label::EXTERNAL_NETWORK_TYPE: "public", label::DEFAULT_EXTERNAL: "true" },
                "annotations": { annotation::PER_NAMESPACE_LIMIT: limit },
            },
            "spec": { "cidrBlock": "192.0.2.0/29", "gateway": "192.0.2.1" },
        });
        Subnet::new(&serde_json::from_value(object).unwrap())
    };
    let (mut world, web) = (World::new(), owner("shop", "web"));
    let (one, two) = (owner("shop", "one"), owner("shop", "two"));
    let is_full = |world: &World, limit: u32| {
        let next = world.next(&web);
        matches!(next, Next::Refuse(Error::LimitReached { limit: told, .. }) if told == limit)
    };
    world.catalog.networks.put_subnet(limited("2"));
    world.ready("one", 1, Some(&one), "192.0.2.2");
    assert_eq!(&*wish(world.next(&web)).subnet, "ext");
    world.catalog.asked.insert("two".to_owned(), ("ext".into(), "shop".into()));
    assert!(is_full(&world, 2), "it is being made");
    world.put("two", 2, Some(&two), json!({ "externalSubnet": "ext", "type": "nat" }), json!(null), false);
    assert!(is_full(&world, 2), "kube-ovn has not answered yet");
    world.catalog.asked.clear();
    assert!(is_full(&world, 2));
    assert_eq!(&*wish(world.next(&owner("bank", "web"))).subnet, "ext", "another namespace");
    let by_number = world.catalog.next(&web, &need(&web, None, Some("192.0.2.5")), &NONE, &[], world.now);
    assert!(refusal(by_number).contains("as many addresses of Subnet ext as it may, 2"));

    world.subnet("more", &json!({ "public": "false" }), "198.51.100.0/29", &[]);
    assert_eq!(&*wish(world.next(&web)).subnet, "more");
    world.catalog.networks.remove_subnet("more");
    world.catalog.networks.put_subnet(limited("3"));
    assert_eq!(&*wish(world.next(&web)).subnet, "ext");
    world.catalog.networks.put_subnet(limited("a few"));
    assert!(is_full(&world, 0), "not meant to be without a limit");
    let made = Next::Use { name: "one".into(), address: "192.0.2.2".parse().unwrap() };
    assert_eq!(format!("{:?}", world.next(&one)), format!("{made:?}"), "what is there stays");
}

#[test]
fn an_address_in_use_is_asked_for_again_by_number_when_its_ovn_eip_is_on_its_way_out() {
    let (mut world, web) = (World::new(), owner("shop", "web"));
    let name = wish(world.next(&web)).name;
    world.ready(&name, 7, Some(&web), "192.0.2.2");
    assert_eq!(world.keep(&web, "192.0.2.2", &name), Keep::Safe((&*name).into()));
    let spec = json!({ "externalSubnet": "ext", "v4Ip": "192.0.2.2" });
    let news = world.put(&name, 7, Some(&web), spec, json!({ "v4Ip": "192.0.2.2", "ready": true }), true);
    assert!(news.freed && news.owner == Some(ServiceKey::new("shop", "web")));
    let Keep::Make(again) = world.keep(&web, "192.0.2.2", &name) else { panic!("not made again") };
    assert_eq!(again.address, Some("192.0.2.2".parse().unwrap()));
    assert_ne!(again.name, name, "the old one is stuck there");
    world.ready("thief", 8, None, "192.0.2.2");
    assert!(matches!(world.keep(&web, "192.0.2.2", &name), Keep::Unsafe(Why { reason: "AddressTaken", .. })));
    assert_eq!(world.keep(&web, "203.0.113.1", "pool"), Keep::Elsewhere, "an address of a pool");
}

#[test]
fn an_ovn_eip_of_ours_that_lost_our_marks_gets_them_back_and_nobody_elses_does() {
    let (mut world, web) = (World::new(), owner("shop", "web"));
    let name = wish(world.next(&web)).name;
    let adopted = Keep::Adopt((&*name).into());
    world.ready(&name, 7, Some(&web), "192.0.2.2");
    let news = world.ready(&name, 7, None, "192.0.2.2");
    assert_eq!(news.owner, Some(web.key.clone()), "whose it was looks again");
    assert_eq!(world.keep(&web, "192.0.2.2", &name), adopted);
    let is_theirs = |keep: Keep| matches!(keep, Keep::Unsafe(Why { reason: "AddressTaken", .. }));
    assert!(is_theirs(world.keep(&web, "192.0.2.2", "slb-other")), "the EIp says that it is from another");
    assert!(is_theirs(world.keep(&owner("shop", "other"), "192.0.2.2", &name)), "it was made for another");
    for marks in [json!({ label::CLUSTER: "c2" }), json!({ label::EIP: "bank.office" })] {
        let object = json!({
            "metadata": {
                "name": name, "uid": Uuid::from_u128(7), "resourceVersion": "100", "labels": marks,
            },
            "spec": { "externalSubnet": "ext", "type": "nat" },
            "status": { "v4Ip": "192.0.2.2", "ready": true },
        });
        let (name, eip) = Eip::read(&serde_json::from_value(object).unwrap(), OURS).unwrap();
        let mut world = World::new();
        world.catalog.eips.put(name.clone(), eip, world.now);
        assert!(is_theirs(world.keep(&web, "192.0.2.2", &name)), "{marks}");
    }
}

#[test]
fn an_address_of_either_family_is_one_that_there_is() {
    let mut world = World { catalog: Catalog::default(), ..World::new() };
    let family = |world: &World, kind| world.catalog.family("shop", kind);
    assert_eq!(family(&world, None), Family::V4);
    world.subnet("six", &json!({ "cloud": "false" }), "2001:db8::0/120", &[]);
    assert_eq!(family(&world, None), Family::V6);
    world.subnet("four", &json!({ "public": "true" }), "192.0.2.0/29", &[]);
    assert_eq!((family(&world, None), family(&world, Some("cloud"))), (Family::V4, Family::V6));
}

#[test]
fn only_the_projects_own_ovn_eips_can_be_named_as_children() {
    let mut world = World::new();
    world.vpc("shop", &["shop"], &[]);
    world.vpc("other", &["other"], &[]);
    let lrp = json!({ "externalSubnet": "ext", "type": "lrp" });
    for (n, vpc) in ["shop", "other"].into_iter().enumerate() {
        let status = json!({ "v4Ip": format!("192.0.2.{}", n + 2), "ready": true });
        world.put(&format!("{vpc}-ext"), n as u128, None, lrp.clone(), status, false);
    }
    world.ready("mine", 7, Some(&owner("shop", "web")), "192.0.2.5");
    let child = |namespace, name| world.catalog.child(namespace, name).map(|address| address.to_string());
    assert_eq!(child("shop", "shop-ext").unwrap(), "192.0.2.2");
    assert_eq!(child("shop", "mine").unwrap(), "192.0.2.5");
    for (namespace, name) in [("shop", "other-ext"), ("other", "mine"), ("shop", "nothing"), ("none", "shop-ext")] {
        assert!(matches!(child(namespace, name), Err(Error::ForeignChild { .. })), "{namespace} {name}");
    }
}

#[test]
fn a_stuck_deletion_is_touched_after_a_while_and_again_if_that_did_not_help() {
    let (mut world, web) = (World::new(), owner("shop", "web"));
    let spec = json!({ "externalSubnet": "ext" });
    world.put("mine", 7, Some(&web), spec.clone(), json!({ "v4Ip": "192.0.2.2", "ready": true }), true);
    world.put("theirs", 8, None, spec, json!({ "v4Ip": "192.0.2.3", "ready": true }), true);
    let touched = |world: &mut World, later: u64| {
        world.now = world.now + Duration::from_secs(later);
        let due = world.catalog.due(world.now);
        due.touch.into_iter().map(|(name, _)| name).collect::<Vec<_>>()
    };
    assert_eq!(touched(&mut world, 1), [""; 0]);
    assert_eq!(touched(&mut world, 5), ["mine"]);
    assert_eq!(touched(&mut world, 5), [""; 0]);
    assert_eq!(touched(&mut world, 5), ["mine"]);
}

#[test]
fn an_ovn_eip_of_a_dual_stack_network_serves_both_families() {
    let (mut world, web) = (World::new(), owner("shop", "web"));
    world.subnet("ext", &json!({ "public": "true" }), "192.0.2.0/29,2001:db8::/120", &[]);
    let status = json!({ "v4Ip": "192.0.2.2", "v6Ip": "2001:db8::2", "ready": true });
    world.put("mine", 7, Some(&web), json!({ "externalSubnet": "ext" }), status, false);
    let v6 = Need { family: Family::V6, ..need(&web, None, None) };
    let next = world.catalog.next(&web, &v6, &NONE, &[], world.now);
    assert!(matches!(next, Next::Use { address, .. } if address.to_string() == "2001:db8::2"));
}

#[test]
fn where_a_namespace_lives_is_what_kube_ovn_says_or_nothing() {
    let mut world = World::new();
    assert_eq!(world.catalog.networks.place("shop"), places::Place::default());
    world.vpc("v", &[], &[]);
    let subnet = json!({
        "metadata": { "name": "net" }, "spec": { "vpc": "v", "namespaces": ["shop"], "cidrBlock": "10.1.0.0/16" },
    });
    world.catalog.networks.put_subnet(Subnet::new(&serde_json::from_value(subnet).unwrap()));
    let place = world.catalog.networks.place("shop");
    assert_eq!((place.router.as_deref(), place.switch.as_deref()), (Some("v"), Some("net")));
    let vpc = json!({
        "metadata": { "name": "v" }, "spec": {}, "status": { "router": "r", "defaultLogicalSwitch": "other" },
    });
    let concerned = world.catalog.networks.put_vpc(Vpc::new(&serde_json::from_value(vpc).unwrap())).unwrap();
    assert!(concerned.contains("shop"), "its Subnet is behind that Vpc");
    let place = world.catalog.networks.place("shop");
    assert_eq!((place.router.as_deref(), place.switch.as_deref()), (Some("r"), Some("net")));
    let places = Places::default();
    places.follow("shop", &world.catalog.networks);
    assert_eq!(places.of("shop"), place);
    world.catalog.networks.remove_vpc("v");
    assert_eq!(world.catalog.networks.place("shop").router, None);
    places.follow("shop", &world.catalog.networks);
    assert_eq!(places.of("shop"), world.catalog.networks.place("shop"));
    world.catalog.networks.remove_subnet("net");
    places.follow("shop", &world.catalog.networks);
    assert_eq!(places.of("shop"), places::Place::default());
}

#[test]
fn an_address_of_a_second_network_needs_a_return_route_for_each_backend() {
    let mut world = World::new();
    world.subnet("cloud", &json!({ "cloud": "false" }), "100.64.0.0/24", &[]);
    let vpc = |routes: Value| {
        let spec = json!({ "namespaces": ["shop"], "enableExternal": true, "policyRoutes": routes });
        Vpc::new(&serde_json::from_value(json!({ "metadata": { "name": "v" }, "spec": spec })).unwrap())
    };
    world.catalog.networks.put_vpc(vpc(json!([])));
    let backends: BTreeSet<IpAddr> = ["10.1.0.4", "10.1.0.5", "fd00::4"].map(|text| text.parse().unwrap()).into();
    let told = |world: &World, egress, address: &str| {
        let (address, told) = ([address.parse().unwrap()], routes::Obstacle::Forbidden);
        let mut missing = world.catalog.missing_routes("shop", egress, &address, &backends, told);
        missing.pop().map(|caveat| caveat.message)
    };
    assert_eq!(told(&world, None, "192.0.2.2"), None, "the default network");
    assert_eq!(told(&world, Some("cloud"), "100.64.0.9"), None, "the project leaves by it");
    assert_eq!(told(&world, None, "203.0.113.9"), None, "of no network of kube-ovn's");
    let message = told(&world, None, "100.64.0.9").unwrap();
    let all = "nextHopIP 100.64.0.1 for the match \"ip4.src == 10.1.0.4\", \"ip4.src == 10.1.0.5\"";
    assert!(message.contains(all) && !message.contains("fd00"), "{message}");
    let route = |n: u8, hop: &str| {
        let matches = format!("ip4.src == 10.1.0.{n}");
        json!({ "priority": 30_010, "match": matches, "action": "reroute", "nextHopIP": hop })
    };
    world.catalog.networks.put_vpc(vpc(json!([route(4, "100.64.0.1"), route(5, "192.0.2.1")])));
    let message = told(&world, None, "100.64.0.9").unwrap();
    assert!(!message.contains("10.1.0.4") && message.contains("10.1.0.5"), "sent elsewhere: {message}");
    world.catalog.networks.put_vpc(vpc(json!([route(4, "100.64.0.1"), route(5, "100.64.0.1")])));
    assert_eq!(told(&world, None, "100.64.0.9"), None);
}

#[test]
fn of_two_networks_of_one_type_the_one_that_the_default_route_leads_to_is_the_way_out() {
    let mut world = World::new();
    world.subnet("more", &json!({ "public": "false" }), "198.51.100.0/24", &[]);
    let vpc = |routes: Value| {
        let spec = json!({ "namespaces": ["shop"], "enableExternal": true, "staticRoutes": routes });
        Vpc::new(&serde_json::from_value(json!({ "metadata": { "name": "v" }, "spec": spec })).unwrap())
    };
    let elsewhere = |world: &World| {
        let leaves =
            |address: &str| world.catalog.leaves_elsewhere("shop", Some("public"), &[address.parse().unwrap()]);
        [leaves("192.0.2.2"), leaves("198.51.100.9")]
    };
    let route = |cidr: &str, hop: &str| json!({ "cidr": cidr, "nextHopIP": hop });
    world.catalog.networks.put_vpc(vpc(Value::Null));
    assert_eq!(elsewhere(&world), [false, false], "nobody says by which of them");
    world.catalog.networks.put_vpc(vpc(json!([route("0.0.0.0/0", "192.0.2.1")])));
    assert_eq!(elsewhere(&world), [false, true]);
    world.catalog.networks.put_vpc(vpc(json!([route("0.0.0.0/0", "198.51.100.1")])));
    assert_eq!(elsewhere(&world), [true, false], "whatever is labelled as the default");
    let by_source = json!({ "cidr": "0.0.0.0/0", "nextHopIP": "192.0.2.1", "policy": "policySrc" });
    for other in
        [route("10.9.0.0/16", "192.0.2.1"), route("0.0.0.0/0", "10.1.0.254"), route("::/0", "2001:db8::1"), by_source]
    {
        world.catalog.networks.put_vpc(vpc(json!([other])));
        assert_eq!(elsewhere(&world), [false, false], "{other}");
    }
}

proptest! {
    /// Whatever comes and goes in whatever order: who holds what, and how much is left, follows from the objects alone.
    #[test]
    fn the_indexes_say_what_the_objects_say(
        steps in prop::collection::vec((0usize..4, 0u128..3, prop::option::of(2u8..6), any::<bool>(), any::<bool>()), 1..60)
    ) {
        let mut world = World::new();
        let mut objects = std::collections::BTreeMap::new();
        for (n, uid, address, leaving, gone) in steps {
            let (name, web) = (format!("e{n}"), owner("shop", &format!("s{n}")));
            if gone {
                world.catalog.eips.remove(&name, Uuid::from_u128(uid));
                objects.retain(|other, (has, _, _)| *other != name || *has != uid);
                continue;
            }
            let status = address.map(|n| json!({ "v4Ip": format!("192.0.2.{n}"), "ready": true }));
            world.put(&name, uid, Some(&web), json!({ "externalSubnet": "ext" }), json!(status), leaving);
            objects.insert(name, (uid, address, leaving));
        }
        let holding = |n| objects.values().filter(|(_, a, leaving)| *a == Some(n) && !leaving).count();
        for n in 2..6 {
            let address = std::net::Ipv4Addr::new(192, 0, 2, n).into();
            prop_assert_eq!(world.catalog.eips.holders(address).count(), holding(n));
        }
        prop_assert_eq!(world.catalog.eips.held("ext"), (2..6).map(holding).sum::<usize>() as u64);
        let staying = objects.values().filter(|(_, _, leaving)| !leaving).count();
        prop_assert_eq!(world.catalog.eips.used("ext", "shop"), staying);
        prop_assert_eq!(world.catalog.eips.ours().count(), objects.len());
        let unsettled = objects.values().filter(|(_, address, leaving)| address.is_none() || *leaving).count();
        prop_assert_eq!(world.catalog.eips.unsettled().count(), unsettled);
    }
}

#[test]
fn what_kube_dc_made_for_an_eip_is_adopted_on_request_and_what_it_only_used_is_not() {
    let put = |world: &mut World, name: &str, uid: u128, eip: &str, made: bool| {
        let annotations = if made { json!({ annotation::OVN_EIP_CREATED_BY_EIP: "true" }) } else { json!({}) };
        let object = json!({
            "metadata": {
                "name": name, "uid": Uuid::from_u128(uid), "resourceVersion": "1", "annotations": annotations,
                "labels": { label::EIP: eip },
            },
            "spec": { "externalSubnet": "ext", "type": "nat" },
            "status": { "v4Ip": format!("192.0.2.{uid}"), "ready": true },
        });
        let (name, eip) = Eip::read(&serde_json::from_value(object).unwrap(), OURS).unwrap();
        world.catalog.eips.put(name, eip, world.now);
    };
    let office = owner("shop", "office");
    for take_over in [true, false] {
        let mut world = World::new();
        world.catalog.take_over = take_over;
        put(&mut world, "made", 2, "shop.office", true);
        put(&mut world, "used", 3, "shop.office", false);
        put(&mut world, "anothers", 4, "bank.office", true);
        let made: Arc<str> = "made".into();
        let expected = if take_over { Keep::Adopt(made) } else { Keep::Safe(made) };
        assert_eq!(world.keep(&office, "192.0.2.2", "made"), expected);
        assert_eq!(world.keep(&office, "192.0.2.3", "used"), Keep::Safe("used".into()));
        assert!(matches!(world.keep(&office, "192.0.2.4", "anothers"), Keep::Unsafe(_)), "another project's");
        assert!(matches!(world.keep(&office, "192.0.2.2", "used"), Keep::Unsafe(_)), "not the one that it refers to");
    }
}
