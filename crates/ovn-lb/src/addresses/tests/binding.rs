//! Services on an `EIp` that they name.

use std::collections::BTreeMap;

use groundcrew_api::eip::{EIpOwner, EIpStatus, OwnershipType};
use groundcrew_api::names::annotation::{BIND_ON_DEFAULT_GW_EIP, BIND_ON_EIP};
use groundcrew_api::names::finalizer;
use groundcrew_core::provider::Beside;

use super::*;

pub(super) fn bound(name: Option<&str>) -> Arc<BTreeMap<Box<str>, Box<str>>> {
    Arc::new(name.map(|name| (BIND_ON_EIP.into(), name.into())).into_iter().collect())
}

impl World {
    fn bind(&mut self, service: &str, eip: Option<&str>) -> Result<String, Error> {
        let mut ask = self.ask(&testing::owner("shop", service), Families::V4);
        ask.annotations = bound(eip);
        self.hold(&ask).map(|addresses| addresses[0].to_string())
    }

    fn own(&mut self, name: &str) -> (EipKey, String) {
        let key = self.make(name, |_| {});
        self.attend(&key).unwrap();
        let address = self.status(&key).ip_address.unwrap();
        (key, address)
    }
}

fn user(kind: &str, name: &str) -> EIpOwner {
    EIpOwner { kind: kind.into(), owner_ref: name.into() }
}

#[test]
fn the_name_wins_over_the_gateway_and_false_is_no() {
    let annotations = |pairs: &[(&str, &str)]| -> BTreeMap<Box<str>, Box<str>> {
        pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
    };
    assert_eq!(bound_to(&annotations(&[(BIND_ON_EIP, "a"), (BIND_ON_DEFAULT_GW_EIP, "true")])), Some("a"));
    assert_eq!(bound_to(&annotations(&[(BIND_ON_EIP, ""), (BIND_ON_DEFAULT_GW_EIP, "true")])), Some("default-gw"));
    assert_eq!(bound_to(&annotations(&[(BIND_ON_DEFAULT_GW_EIP, "false")])), None);
}

#[test]
fn a_bound_service_is_written_down_and_taken_off_and_the_eip_stays() {
    let mut world = World::new(vec![pool("a", &["192.0.2.0/29"])]);
    let (key, address) = world.own("mine");
    assert_eq!(world.bind("web", Some("mine")).unwrap(), address);
    assert_eq!(world.bind("api", Some("mine")).unwrap(), address);
    let status = world.status(&key);
    assert_eq!(status.owners, [user("ServiceLb", "api"), user("ServiceLb", "web")]);
    assert_eq!((status.ownership_type, status.delete_released), (OwnershipType::Shared, None));
    world.restart();
    let writes = world.writes;
    assert_eq!(world.bind("web", Some("mine")).unwrap(), address);
    assert_eq!(world.writes, writes);
    for name in ["web", "api"] {
        world.release(&testing::owner("shop", name));
    }
    let status = world.status(&key);
    assert_eq!((status.owners.len(), status.ownership_type), (0, OwnershipType::Released));
    assert_eq!(status.ip_address, Some(address));
}

#[test]
fn what_is_missing_or_exclusive_is_told() {
    let mut world = World::new(vec![pool("a", &["192.0.2.0/29"])]);
    assert!(matches!(world.bind("web", Some("mine")), Err(Error::EipMissing { .. })));
    assert!(matches!(world.bind("web", Some("bank/theirs")), Err(Error::EipMissing { .. })));
    let key = world.make("mine", |_| {});
    assert!(matches!(world.bind("web", Some("mine")), Err(Error::EipNotReady { .. })));
    world.attend(&key).unwrap();
    let address = world.bind("web", Some("mine")).unwrap();
    world.make("floating", |eip| {
        eip.status = Some(EIpStatus {
            ip_address: Some("203.0.113.1".into()),
            ovn_eip_ref: "x".into(),
            ready: true,
            owners: vec![user("FIp", "vm")],
            ..EIpStatus::default()
        });
    });
    assert!(matches!(world.bind("api", Some("floating")), Err(Error::EipExclusive { .. })));
    let own = world.bind("own", None).unwrap();
    let theirs = EipKey::of(&testing::owner("shop", "own"), pool::Family::V4).name;
    assert!(matches!(world.bind("api", Some(&theirs)), Err(Error::EipOfService { .. })));
    world.delete(&key);
    assert!(matches!(world.bind("late", Some("mine")), Err(Error::EipNotReady { .. })), "it is on its way out");
    assert_eq!(world.status(&key).conditions[0].reason, "InUse");
    assert_ne!(own, address);
    world.release(&testing::owner("shop", "web"));
    assert!(!world.eips.contains_key(&key), "the last user is gone");
}

#[test]
fn an_edit_of_the_annotation_moves_nobody_and_is_told() {
    let mut world = World::new(vec![pool("a", &["192.0.2.0/29"])]);
    let (_, address) = world.own("mine");
    let kept = |world: &World, service: &str, eip: Option<&str>| {
        let mut ask = world.ask(&testing::owner("shop", service), Families::V4);
        ask.annotations = bound(eip);
        world.book.kept(&ask).map(|caveat| caveat.message)
    };
    assert_eq!(world.bind("web", Some("mine")).unwrap(), address);
    assert_eq!(kept(&world, "web", Some("mine")), None);
    for edit in [None, Some("other")] {
        assert_eq!(world.bind("web", edit).unwrap(), address);
        let said = kept(&world, "web", edit).unwrap();
        assert!(said.starts_with(&format!("stays on {address}")), "{said}");
    }
    let own = world.bind("api", None).unwrap();
    assert_eq!(world.bind("api", Some("mine")).unwrap(), own);
    assert!(kept(&world, "api", Some("mine")).unwrap().contains("to get EIp mine"));
    assert!(world.book.is_on(&testing::owner("shop", "web"), "mine"));
    assert!(!world.book.is_on(&testing::owner("shop", "api"), "mine"));
}

#[test]
fn of_what_kube_dc_serves_only_the_users_are_written() {
    let mut world = World::new(vec![pool("a", &["192.0.2.0/29"])]);
    let snat = user("Snat", "shop");
    let key = world.make("default-gw", |eip| {
        eip.metadata.finalizers = Some(vec![finalizer::KUBE_DC_EIP.to_owned()]);
        eip.status = Some(EIpStatus {
            ip_address: Some("203.0.113.1".into()),
            ovn_eip_ref: "shop-public".into(),
            ownership_type: OwnershipType::Shared,
            owners: vec![snat.clone()],
            ready: true,
            ..EIpStatus::default()
        });
    });
    let before = world.eips[&key].clone();
    assert_eq!(world.bind("web", Some("default-gw")).unwrap(), "203.0.113.1");
    assert_eq!(world.status(&key).owners, [snat.clone(), user("ServiceLb", "web")]);

    // The manager writes its list anew. It is not fought over; the next look puts the entry back.
    let mut theirs = world.eips[&key].clone();
    theirs.status.as_mut().unwrap().owners = vec![snat.clone()];
    world.writes += 1;
    theirs.metadata.resource_version = Some(world.writes.to_string());
    assert_eq!(world.book.observe(read(&theirs)), []);
    world.eips.insert(key.clone(), theirs);
    assert!(world.book.pending(&key, Timestamp::UNIX_EPOCH).is_none());
    assert_eq!(world.bind("web", Some("default-gw")).unwrap(), "203.0.113.1");
    assert_eq!(world.status(&key).owners, [snat.clone(), user("ServiceLb", "web")]);
    world.release(&testing::owner("shop", "web"));
    let mut after = world.eips[&key].clone();
    after.metadata.resource_version.clone_from(&before.metadata.resource_version);
    assert_eq!(after, before, "as it was");
}

#[test]
fn both_families_are_one_of_the_eip_and_one_of_its_own() {
    let mut world = World::new(vec![pool("a", &["192.0.2.0/29", "2001:db8::/120"])]);
    let (_, address) = world.own("mine");
    let mut ask = world.ask(&testing::owner("shop", "web"), Families::V6V4);
    ask.annotations = bound(Some("mine"));
    let held = world.hold(&ask).unwrap();
    assert!(held[0].is_ipv6());
    assert_eq!(held[1].to_string(), address);
    let mut ask = world.ask(&testing::owner("shop", "six"), Families::V6);
    ask.annotations = bound(Some("mine"));
    assert!(matches!(world.hold(&ask), Err(Error::EipFamily { .. })));
}

#[test]
fn who_is_on_one_address_is_told_of_each_other_whatever_they_say_now() {
    let mut world = World::new(vec![pool("a", &["192.0.2.0/29"])]);
    let (key, _) = world.own("mine");
    for name in ["web", "api"] {
        world.bind(name, Some("mine")).unwrap();
    }
    let address = world.bind("alone", None).unwrap().parse().unwrap();
    let owner = |name: &str| testing::owner("shop", name);
    let beside = |world: &World, name: &str, named: Option<&str>| {
        let Beside { services, names } = world.book.beside(&owner(name), named);
        let services = services.iter().map(|owner| &*owner.key.name).collect::<Vec<_>>().join(" ");
        (services, names.join(" "))
    };
    let both = ("api web".to_owned(), "mine".to_owned());
    assert_eq!(beside(&world, "web", None), both);
    assert_eq!(beside(&world, "new", Some("mine")), both);
    assert_eq!(beside(&world, "new", None), Default::default());
    assert_eq!(beside(&world, "alone", None), Default::default(), "it has its own for itself");
    let is_alone = |name: &str| world.book.is_alone(&owner(name));
    assert_eq!((is_alone("web"), is_alone("alone"), is_alone("new")), (false, true, true));
    let holds = |name: &str| world.book.holds(&owner(name), address);
    assert_eq!((holds("alone"), holds("web"), holds("new")), (true, false, false));
    assert_eq!(world.book.said_of(&owner("alone")), [address]);
    let mut namesake = owner("alone");
    namesake.uid = uuid::Uuid::from_u128(7);
    assert!(!world.book.holds(&namesake, address), "another Service of that name");

    // Of a name that somebody else has written nobody knows which Service it means.
    let mut eip = world.eips[&key].clone();
    eip.status.as_mut().unwrap().owners.push(user("ServiceLb", "stale"));
    world.writes += 1;
    eip.metadata.resource_version = Some(world.writes.to_string());
    world.book.observe(read(&eip));
    assert_eq!(beside(&world, "web", None), both);
    assert_eq!(beside(&world, "stale", None), Default::default());
    let shared = world.book.address(&key).unwrap();
    assert!(world.book.holds(&owner("stale"), shared), "what it has published there is its own");
}

/// Another controller of this cluster, for another class, has Services on the same `EIp`.
#[test]
fn what_a_controller_of_another_class_says_of_its_own_users_stands() {
    let mut world = World::new(vec![pool("a", &["192.0.2.0/29"])]);
    let (key, address) = world.own("mine");
    assert_eq!(world.bind("web", Some("mine")).unwrap(), address);
    let told = |world: &mut World, names: &[&str]| {
        let mut theirs = world.eips[&key].clone();
        theirs.status.as_mut().unwrap().owners = names.iter().map(|name| user("ServiceLb", name)).collect();
        world.writes += 1;
        theirs.metadata.resource_version = Some(world.writes.to_string());
        world.eips.insert(key.clone(), theirs.clone());
        let woken = world.book.observe(read(&theirs));
        (woken.len(), world.book.pending(&key, Timestamp::UNIX_EPOCH).is_some())
    };
    assert_eq!(told(&mut world, &["api", "web"]), (0, false), "theirs came");
    assert_eq!(told(&mut world, &["web"]), (0, false), "and went");
    assert_eq!(told(&mut world, &["api", "web"]), (0, false));
    assert_eq!(told(&mut world, &["api"]), (2, true), "ours is put back");
    world.store(&key);
    assert_eq!(world.status(&key).owners, [user("ServiceLb", "api"), user("ServiceLb", "web")]);
    // Ours leaves while theirs goes.
    world.book.leave(&testing::owner("shop", "web"), world.now);
    assert_eq!(told(&mut world, &["web"]), (0, true));
    world.store(&key);
    assert_eq!(world.status(&key).owners, []);
}

#[test]
fn an_eip_torn_out_from_under_its_services_leaves_them_the_address() {
    let mut world = World::new(vec![pool("a", &["192.0.2.0/29"])]);
    let (key, address) = world.own("mine");
    world.bind("web", Some("mine")).unwrap();
    world.bind("api", Some("mine")).unwrap();
    let torn = world.eips.remove(&key).unwrap();
    let woken = world.book.vanish(&key, read(&torn).uid, world.now);
    assert_eq!(woken.len(), 2);
    for name in ["web", "api"] {
        assert_eq!(world.bind(name, Some("mine")).unwrap(), address);
    }
    assert_eq!(world.eips.len(), 1, "on one EIp that was made for the first of them");
    assert_ne!(world.own("mine").1, address);
}

#[test]
fn one_that_has_published_nothing_may_change_its_mind() {
    let mut world = World::new(vec![pool("a", &["192.0.2.0/29"])]);
    let ((first, _), (second, address)) = (world.own("first"), world.own("second"));
    world.bind("web", Some("first")).unwrap();
    world.published.clear();
    assert_eq!(world.bind("web", Some("second")).unwrap(), address);
    assert_eq!((world.status(&first).owners.len(), world.status(&second).owners.len()), (0, 1));
    world.published.clear();
    let own = world.bind("web", None).unwrap();
    assert_ne!(own, address);
    world.published.clear();
    assert_eq!(world.bind("web", Some("second")).unwrap(), address);
    assert_eq!(world.eips.len(), 2, "its own is gone");
}
