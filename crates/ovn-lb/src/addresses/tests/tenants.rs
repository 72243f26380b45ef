//! `EIp`s that tenants make themselves.

use groundcrew_api::eip::{EIpOwner, EIpSpec, EIpStatus, OwnershipType};
use groundcrew_api::names::{annotation, finalizer, label};

use super::book::Care;
use super::*;

pub(super) fn key(name: &str) -> EipKey {
    EipKey { namespace: "shop".into(), name: name.into() }
}

impl World {
    /// A tenant makes one, and the watch tells.
    pub(super) fn make(&mut self, name: &str, change: impl FnOnce(&mut EIp)) -> EipKey {
        let key = key(name);
        let mut eip = EIp::new(name, EIpSpec::default());
        eip.metadata.namespace = Some("shop".into());
        change(&mut eip);
        self.writes += 1;
        eip.metadata.uid = Some(Uuid::from_u128(self.writes.into()).to_string());
        eip.metadata.resource_version = Some(self.writes.to_string());
        self.book.observe(read(&eip));
        self.eips.insert(key.clone(), eip);
        key
    }

    /// What the controller of tenants' own does with an API server.
    pub(super) fn attend(&mut self, key: &EipKey) -> Result<(), Error> {
        let outcome = match self.book.attend(key, None, None) {
            Ok(Care::Needs(need)) => self.book.choose(&need, self.now).map(Some),
            Ok(_) => Ok(None),
            Err(error) => Err(error),
        };
        match &outcome {
            Ok(Some((pool, address))) => self.book.enter(key, *address, pool.clone()),
            Ok(None) => {}
            Err(error) => self.book.refuse(key, &ProviderError::from(error.clone())),
        }
        self.store(key);
        outcome.map(drop)
    }

    /// The tenant deletes his own; a finalizer of ours keeps it.
    pub(super) fn delete(&mut self, key: &EipKey) {
        let Some(eip) = self.eips.get_mut(key) else { return };
        self.writes += 1;
        eip.metadata.resource_version = Some(self.writes.to_string());
        eip.metadata.deletion_timestamp = serde_json::from_value("2026-01-01T00:00:00Z".into()).unwrap();
        let seen = read(eip);
        if eip.metadata.finalizers.iter().flatten().next().is_none() {
            self.eips.remove(key);
            self.book.vanish(key, seen.uid, self.now);
        } else {
            self.book.observe(seen);
            let _ = self.attend(key);
        }
    }

    pub(super) fn status(&self, key: &EipKey) -> EIpStatus {
        self.eips[key].status.clone().unwrap_or_default()
    }
}

#[test]
fn a_tenants_own_gets_an_address_and_keeps_it_until_it_is_deleted() {
    let mut world = World::new(vec![pool("a", &["192.0.2.1-192.0.2.1"])]);
    let key = world.make("mine", |_| {});
    world.attend(&key).unwrap();
    let eip = &world.eips[&key];
    assert_eq!(eip.metadata.finalizers, Some(vec![finalizer::EIP.to_owned()]));
    let status = world.status(&key);
    assert_eq!((status.ip_address.as_deref(), &*status.ovn_eip_ref), (Some("192.0.2.1"), "a"));
    assert_eq!((status.ownership_type, status.delete_released, status.ready), (OwnershipType::Released, None, true));
    assert_eq!((&*status.conditions[0].reason, &*status.conditions[0].status), ("Assigned", "True"));
    let writes = world.writes;
    for _ in 0..2 {
        world.attend(&key).unwrap();
        world.edit(vec![]);
        world.restart();
    }
    assert_eq!(world.writes, writes, "steady state writes nothing");
    assert!(matches!(world.serve("web"), Err(Error::PoolEmpty { .. })));
    world.edit(vec![pool("a", &["192.0.2.1-192.0.2.1"])]);
    world.delete(&key);
    assert!(world.eips.is_empty());
    assert!(matches!(world.serve("web"), Err(Error::PoolRests { .. })), "it rests");
    world.now = world.now + REST;
    assert_eq!(world.serve("web").unwrap(), "192.0.2.1");
}

#[test]
fn one_that_no_pool_serves_says_so_until_one_does() {
    let mut world = World::new(vec![pool("a", &["192.0.2.0/30"])]);
    world.pools[0].spec.external_network_type = Some("public".into());
    world.edit(world.pools.clone());
    let key = world.make("mine", |eip| eip.spec.external_network_type = Some("dmz".into()));
    assert!(matches!(world.attend(&key), Err(Error::PoolEmpty { pools: 0, .. })));
    let status = world.status(&key);
    assert_eq!((status.ip_address, status.ready, &*status.ovn_eip_ref), (None, false, ""));
    let said = &status.conditions[0];
    assert_eq!((&*said.status, &*said.reason), ("False", "NoPool"));
    assert!(said.message.contains("network type dmz"), "{}", said.message);
    assert_eq!(world.eips[&key].metadata.finalizers, None, "what has no address is not held");
    let writes = world.writes;
    let _ = world.attend(&key);
    world.restart();
    let _ = world.attend(&key);
    assert_eq!(world.writes, writes, "it is said once");
    let mut dmz = pool("d", &["198.51.100.0/30"]);
    dmz.spec.external_network_type = Some("dmz".into());
    world.edit(vec![dmz]);
    world.attend(&key).unwrap();
    assert_eq!(world.status(&key).ip_address.as_deref(), Some("198.51.100.0"));
}

#[test]
fn an_address_can_be_asked_for_and_a_child_cannot() {
    let mut world = World::new(vec![pool("a", &["192.0.2.0/29", "2001:db8::/120"])]);
    let ask = |address: &'static str| {
        move |eip: &mut EIp| {
            let name = annotation::LOAD_BALANCER_IPS.to_owned();
            eip.metadata.annotations = Some([(name, address.to_owned())].into());
        }
    };
    let v6 = world.make("six", ask("2001:db8::7"));
    world.attend(&v6).unwrap();
    assert_eq!(world.status(&v6).ip_address.as_deref(), Some("2001:db8::7"));
    let both = world.make("both", ask("192.0.2.3,2001:db8::8"));
    assert!(matches!(world.attend(&both), Err(Error::OddRequest { .. })));
    let taken = world.make("taken", ask("2001:db8::7"));
    assert!(matches!(world.attend(&taken), Err(Error::AddressTaken { .. })));
    assert_eq!(world.status(&taken).conditions[0].reason, "AddressTaken");
    let child = world.make("child", |eip| eip.spec.child_ref = Some("bank-public".into()));
    assert!(matches!(world.attend(&child), Err(Error::ChildRef { .. })));
    assert_eq!(world.status(&child).conditions[0].reason, "ChildRefRefused");
}

#[test]
fn what_somebody_else_serves_is_not_written() {
    let mut world = World::new(vec![pool("a", &["192.0.2.0/29"])]);
    let theirs = world.make("theirs", |eip| eip.metadata.finalizers = Some(vec![finalizer::KUBE_DC_EIP.to_owned()]));
    let another = world.make("another", |eip| {
        eip.metadata.labels = Some([(label::CLUSTER.to_owned(), "c2".to_owned())].into());
    });
    let by_hand = world.make("by-hand", |eip| {
        eip.status = Some(EIpStatus { ip_address: Some("192.0.2.0".into()), ready: true, ..EIpStatus::default() });
    });
    let writes = world.writes;
    for key in [&theirs, &another, &by_hand] {
        world.attend(key).unwrap();
    }
    assert_eq!(world.writes, writes);
    assert_eq!(world.serve("web").unwrap(), "192.0.2.1");
}

#[test]
fn without_the_switch_none_is_served_but_those_that_have_an_address_are_let_go() {
    let mut world = World::new(vec![pool("a", &["192.0.2.0/29"])]);
    let served = world.make("served", |_| {});
    world.attend(&served).unwrap();
    world.book = Book::new(reader(), REST, false);
    world.edit(world.pools.clone());
    world.begin();
    let new = world.make("new", |_| {});
    world.attend(&new).unwrap();
    assert_eq!(world.eips[&new].status, None);
    world.delete(&served);
    assert!(!world.eips.contains_key(&served));
}

#[test]
fn marks_that_a_tenant_writes_himself_give_him_no_address_where_none_is_served() {
    let mut world = World::new(vec![pool("a", &["192.0.2.0/29"])]);
    world.book = Book::new(reader(), REST, false);
    world.edit(world.pools.clone());
    world.begin();
    let forged = world.make("forged", |eip| {
        eip.metadata.labels = Some([(label::CLUSTER.to_owned(), "c1".to_owned())].into());
        eip.metadata.finalizers = Some(vec![finalizer::EIP.to_owned()]);
    });
    assert_eq!(read(&world.eips[&forged]).whose, Whose::Tenant);
    world.attend(&forged).unwrap();
    assert_eq!(world.eips[&forged].status, None);
    world.delete(&forged);
    assert!(!world.eips.contains_key(&forged), "our finalizer does not keep it for ever");
}

#[test]
fn what_a_tenant_marks_as_made_for_a_service_that_is_none_goes_with_that_one() {
    let mut world = World::new(vec![pool("a", &["192.0.2.0/29"])]);
    let address = world.serve("web").unwrap();
    let served = world.make("served", |_| {});
    world.attend(&served).unwrap();
    let ghost = testing::owner("shop", "ghost");
    let marks = eip::object(&served, &ghost, "c1").metadata;
    let bare = world.make("bare", |eip| {
        (eip.metadata.labels, eip.metadata.annotations) = (marks.labels.clone(), marks.annotations.clone());
    });
    let eip = world.eips.get_mut(&served).unwrap();
    (eip.metadata.labels, eip.metadata.annotations) = (marks.labels, marks.annotations);
    world.writes += 1;
    eip.metadata.resource_version = Some(world.writes.to_string());
    world.book.observe(read(&world.eips[&served]));
    let of_ghost: Vec<_> =
        world.book.owned().filter(|(_, owner)| *owner == ghost).map(|(key, _)| key.clone()).collect();
    assert_eq!(of_ghost, [bare.clone(), served.clone()]);
    assert!(of_ghost.iter().all(|key| world.book.is_unused(key)), "they stop nothing");
    world.release(&ghost);
    assert_eq!(world.book.owned().map(|(_, owner)| owner).collect::<Vec<_>>(), [testing::owner("shop", "web")]);
    assert_eq!((world.eips.len(), world.serve("web").unwrap()), (1, address));
}

#[test]
fn one_in_use_is_held_and_says_by_whom() {
    let mut world = World::new(vec![pool("a", &["192.0.2.0/29"])]);
    let key = world.make("mine", |_| {});
    world.attend(&key).unwrap();
    let snat = EIpOwner { kind: "Snat".into(), owner_ref: "out".into() };
    let eip = world.eips.get_mut(&key).unwrap();
    eip.status.as_mut().unwrap().owners = vec![snat];
    eip.metadata.resource_version = Some("1000".into());
    world.writes = 1000;
    world.book.observe(read(&world.eips[&key]));
    world.delete(&key);
    let status = world.status(&key);
    let said = &status.conditions[0];
    assert_eq!((&*said.reason, status.ip_address.as_deref()), ("InUse", Some("192.0.2.0")));
    assert!(said.message.ends_with("used by Snat out"), "{}", said.message);
}

#[test]
fn one_of_a_service_that_somebody_deletes_says_so_and_so_does_its_service() {
    let mut world = World::new(vec![pool("a", &["192.0.2.0/29"])]);
    let address = world.serve("web").unwrap();
    let web = testing::owner("shop", "web");
    let key = EipKey::of(&web, Family::V4);
    let torn = |world: &World| world.book.torn(&world.ask(&web, Families::V4)).map(|caveat| caveat.reason);
    assert_eq!((world.book.to_attend(), torn(&world)), (vec![], None));
    let mut eip = world.eips[&key].clone();
    world.writes += 1;
    eip.metadata.resource_version = Some(world.writes.to_string());
    eip.metadata.deletion_timestamp = serde_json::from_value("2026-01-01T00:00:00Z".into()).unwrap();
    assert_eq!(world.book.observe(read(&eip)), std::slice::from_ref(&web.key), "it looks again");
    world.eips.insert(key.clone(), eip);
    for _ in 0..2 {
        assert_eq!((world.book.to_attend(), torn(&world)), (vec![key.clone()], Some("EipDeleted")));
        world.attend(&key).unwrap();
        let status = world.status(&key);
        assert_eq!((&*status.conditions[0].reason, status.ip_address.as_deref()), ("InUse", Some(&*address)));
        assert!(status.conditions[0].message.ends_with("used by Service web"), "{}", status.conditions[0].message);
        let writes = world.writes;
        assert_eq!(world.serve("web").unwrap(), address);
        world.restart();
        world.attend(&key).unwrap();
        assert_eq!(world.writes, writes, "it is said once");
    }
    let gone = read(&world.eips.remove(&key).unwrap());
    world.book.vanish(&key, gone.uid, world.now);
    assert_eq!(world.serve("web").unwrap(), address);
    assert_eq!((world.status(&key).ready, torn(&world)), (true, None), "one that is made anew is as any other");
    world.release(&web);
    assert!(world.eips.is_empty());
}
