//! The promises about addresses, as properties over long random lives; then the stories that explain them.

mod binding;
mod conflict;
mod gaps;
mod leaders;
mod namesakes;
mod survey;
mod tenants;
mod terms;
mod torn;

use std::collections::BTreeMap;

use groundcrew_api::address_pool::{AddressPool, AddressPoolSpec};
use groundcrew_core::provider::Families;
use proptest::prelude::*;
use uuid::Uuid;

use jiff::Timestamp;
use serde_json::Value;

use super::book::Write;
use super::pool::Pool;
use super::*;
use crate::testing;

const REST: Duration = Duration::from_mins(1);

/// A cluster with a memory: what is written to it is what the next process reads.
struct World {
    eips: BTreeMap<EipKey, EIp>,
    pools: Vec<AddressPool>,
    book: Book,
    now: Moment,
    writes: u64,
    published: BTreeMap<ServiceKey, Living>,
}

fn pool(name: &str, addresses: &[&str]) -> AddressPool {
    let addresses = addresses.iter().map(ToString::to_string).collect();
    AddressPool::new(name, AddressPoolSpec { addresses, ..AddressPoolSpec::default() })
}

/// What the API server makes of a merge patch.
fn patched(eip: &EIp, patch: &Value) -> EIp {
    fn merge(into: &mut Value, patch: &Value) {
        let Value::Object(fields) = patch else { return *into = patch.clone() };
        if !into.is_object() {
            *into = Value::Object(serde_json::Map::new());
        }
        for (name, value) in fields {
            match value {
                Value::Null => drop(into.as_object_mut().unwrap().remove(name)),
                value => merge(&mut into[name], value),
            }
        }
    }
    let mut object = serde_json::to_value(eip).unwrap();
    merge(&mut object, patch);
    serde_json::from_value(object).unwrap()
}

fn reader() -> Reader {
    Reader { cluster: "c1".into(), take_over: false }
}

fn read(eip: &EIp) -> Seen {
    eip::read(eip, &reader()).unwrap()
}

/// What [`Addresses::promise`] does where addresses come from pools.
fn promise(book: &mut Book, ask: &AddressAsk, network_type: Option<&str>, now: Moment) -> Result<Vec<EipKey>, Error> {
    let each = Family::in_order(ask.families).iter().map(|family| match book.hold(ask, *family, network_type)? {
        Promise::Kept(key) => Ok(key),
        Promise::Needs(need) => book.assign(&ask.owner, &need, now),
    });
    each.collect()
}

impl World {
    fn new(pools: Vec<AddressPool>) -> Self {
        let book = Book::new(reader(), REST, true);
        let mut world =
            Self { eips: BTreeMap::new(), pools, book, now: Moment::now(), writes: 0, published: BTreeMap::new() };
        world.restart();
        world
    }

    /// Another process begins with what is written down.
    fn restart(&mut self) {
        self.book = self.follower();
        self.begin();
    }

    /// This process begins to lead.
    fn begin(&mut self) {
        let listed: Vec<_> = self.eips.values().map(read).collect();
        let mut unlisted = self.book.stored();
        unlisted.retain(|key, _| !self.eips.contains_key(key));
        let living: Vec<_> = self.published.values().cloned().collect();
        self.book.begin(listed, &unlisted, &living, self.now);
    }

    /// Another process leads, and this one goes on with what it knew.
    fn replaced_by(&mut self, book: Book) -> Book {
        let before = std::mem::replace(&mut self.book, book);
        self.begin();
        before
    }

    /// A process that only followed so far.
    fn follower(&self) -> Book {
        let mut book = Book::new(reader(), REST, true);
        for pool in &self.pools {
            book.put_pool(Pool::new(pool));
        }
        book
    }

    fn edit(&mut self, pools: Vec<AddressPool>) {
        for name in self.book.pool_names() {
            self.book.remove_pool(&name);
        }
        for pool in &pools {
            self.book.put_pool(Pool::new(pool));
        }
        self.pools = pools;
    }

    /// What [`Addresses::store`] does with an API server.
    fn store(&mut self, key: &EipKey) {
        while let Some(write) = self.book.pending(key, Timestamp::UNIX_EPOCH) {
            self.writes += 1;
            let eip = match write {
                Write::Create(eip) => {
                    // One from before a crash is found instead.
                    let eip = self.eips.entry(key.clone()).or_insert_with(|| *eip);
                    eip.metadata.uid.get_or_insert_with(|| Uuid::from_u128(self.writes.into()).to_string());
                    eip
                }
                Write::Status(patch) | Write::Marks(patch) => {
                    let eip = self.eips.get_mut(key).unwrap();
                    *eip = patched(eip, &patch);
                    eip
                }
                Write::LetGo(_) | Write::Delete => {
                    let uid = read(&self.eips.remove(key).unwrap()).uid;
                    return self.book.deleted(key, Some(uid), self.now);
                }
            };
            eip.metadata.resource_version = Some(self.writes.to_string());
            self.book.observe(read(eip));
        }
    }

    fn hold(&mut self, ask: &AddressAsk) -> Result<Vec<IpAddr>, Error> {
        for key in self.book.unbind(ask, self.now) {
            self.store(&key);
        }
        let keys = promise(&mut self.book, ask, None, self.now)?;
        for key in &keys {
            self.store(key);
        }
        let addresses = self.book.addresses(&keys)?;
        assert_eq!(self.book.settled(ask, None), Some(addresses.clone()), "what was written is settled");
        let living = Living { owner: ask.owner.clone(), addresses: addresses.clone() };
        self.published.insert(ask.owner.key.clone(), living);
        Ok(addresses)
    }

    fn ask(&self, owner: &Owner, families: Families) -> AddressAsk {
        let mut ask = testing::ask(owner, families);
        if let Some(living) = self.published.get(&owner.key) {
            ask.current.clone_from(&living.addresses);
        }
        ask
    }

    fn serve(&mut self, name: &str) -> Result<String, Error> {
        let ask = self.ask(&testing::owner("shop", name), Families::V4);
        self.hold(&ask).map(|addresses| addresses[0].to_string())
    }

    /// Somebody else's.
    fn foreign(&mut self, key: &EipKey, address: &str) {
        let mut eip = EIp::new(&key.name, groundcrew_api::eip::EIpSpec::default());
        eip.metadata.namespace = Some(key.namespace.to_string());
        eip.metadata.uid = Some(Uuid::from_u128(9).to_string());
        eip.metadata.resource_version = Some("1".into());
        let status = serde_json::json!({
            "ipAddress": address, "ovnEIpRef": "x", "ownershipType": "Exclusive", "ready": true,
        });
        eip.status = Some(serde_json::from_value(status).unwrap());
        self.eips.insert(key.clone(), eip);
        self.restart();
    }

    fn release(&mut self, owner: &Owner) {
        self.published.remove(&owner.key);
        for key in self.book.leave(owner, self.now) {
            self.store(&key);
        }
    }
}

#[derive(Debug, Clone)]
enum Event {
    Serve {
        service: u8,
        dual: bool,
        /// The `EIp` that it names.
        bound: Option<u8>,
    },
    /// The process dies before anything is written down.
    Die {
        service: u8,
    },
    Release {
        service: u8,
    },
    Restart,
    Edit {
        pools: u8,
    },
    /// Somebody removes an `EIp` by hand, finalizer and all.
    LoseEip {
        service: u8,
    },
    /// A tenant makes an `EIp`, or somebody looks at it.
    Make {
        eip: u8,
    },
    Delete {
        eip: u8,
    },
    Tear {
        eip: u8,
    },
    Wait {
        seconds: u8,
    },
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let service = 0u8..6;
    let event = prop_oneof![
        6 => (service.clone(), any::<bool>(), prop::option::of(0u8..3))
            .prop_map(|(service, dual, bound)| Event::Serve { service, dual, bound }),
        1 => service.clone().prop_map(|service| Event::Die { service }),
        2 => service.clone().prop_map(|service| Event::Release { service }),
        2 => Just(Event::Restart),
        1 => (0u8..4).prop_map(|pools| Event::Edit { pools }),
        1 => service.prop_map(|service| Event::LoseEip { service }),
        3 => (0u8..3).prop_map(|eip| Event::Make { eip }),
        1 => (0u8..3).prop_map(|eip| Event::Delete { eip }),
        1 => (0u8..3).prop_map(|eip| Event::Tear { eip }),
        1 => any::<u8>().prop_map(|seconds| Event::Wait { seconds }),
    ];
    prop::collection::vec(event, 1..60)
}

/// Overlapping, moved, disabled, and none at all.
fn edited(n: u8) -> Vec<AddressPool> {
    match n {
        0 => vec![],
        1 => vec![pool("a", &["192.0.2.0/30", "2001:db8::/126"])],
        2 => vec![pool("a", &["192.0.2.2-192.0.2.5", "2001:db8::2-2001:db8::6"]), pool("b", &["192.0.2.0/29"])],
        _ => {
            let mut disabled = pool("a", &["192.0.2.0/29", "2001:db8::/125"]);
            disabled.spec.disabled = true;
            vec![disabled, pool("c", &["198.51.100.0/30", "2001:db8:1::/126"])]
        }
    }
}

/// The addresses of tenants' own, by their uids.
fn tenants_own(world: &World) -> BTreeMap<String, String> {
    let own = world.eips.iter().filter(|(key, _)| key.name.starts_with('e'));
    let own = own.filter_map(|(_, eip)| Some((eip.metadata.uid.clone()?, eip.status.as_ref()?.ip_address.clone()?)));
    own.collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3, ..ProptestConfig::default() })]

    /// One long life, where those below are many short ones.
    #[test]
    fn a_living_address_survives_a_thousand_restarts_and_pool_edits(turns in prop::collection::vec((0u8..4, 0u8..6), 1_000)) {
        let mut world = World::new(edited(1));
        let living = world.serve("web").unwrap();
        for (pools, other) in turns {
            world.edit(edited(pools));
            world.restart();
            // Others come and go, and get what is left.
            let name = format!("other-{other}");
            if world.published.contains_key(&ServiceKey::new("shop", name.as_str())) {
                world.release(&testing::owner("shop", &name));
                world.now = world.now + REST;
            } else if let Ok(given) = world.serve(&name) {
                prop_assert_ne!(given, living.clone());
            }
            prop_assert_eq!(world.serve("web").unwrap(), living.clone());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn no_address_is_given_twice_and_a_living_one_never_changes(events in events()) {
        let mut world = World::new(edited(1));
        let mut own = BTreeMap::new();
        for event in events {
            let before = world.published.clone();
            let mut released = None;
            match event {
                Event::Serve { service, dual, bound } => {
                    let owner = testing::owner("shop", &format!("s{service}"));
                    // A Service keeps the families that it was made with.
                    let dual = before.get(&owner.key).map_or(dual, |living| living.addresses.len() == 2);
                    let mut ask = world.ask(&owner, if dual { Families::V4V6 } else { Families::V4 });
                    ask.annotations = binding::bound(bound.map(|n| format!("e{n}")).as_deref());
                    // What was promised before, and what it inherited from an `EIp` that was torn away: it may be on another's.
                    let of = |n: u8| [Family::V4, Family::V6].map(|family| EipKey::of(&testing::owner("shop", &format!("s{n}")), family));
                    let is_his = |key: &EipKey| {
                        of(service).contains(key) || world.book.address(key).is_some_and(|a| world.book.listed(&owner, a).is_some())
                    };
                    let own: Vec<_> = (0..6).flat_map(of).filter(is_his).map(|key| world.book.address(&key)).collect();
                    if let Ok(addresses) = world.hold(&ask) {
                        let bound = bound.and_then(|n| world.book.address(&tenants::key(&format!("e{n}"))));
                        let new = addresses.iter().filter(|a| !ask.current.contains(a) && bound != Some(**a) && !own.contains(&Some(**a)));
                        for address in new {
                            let enabled = world.pools.iter().map(Pool::new).filter(|p| p.serves("shop", None));
                            prop_assert!(enabled.into_iter().any(|p| p.contains(*address)), "{address} is in no pool");
                        }
                    }
                }
                Event::Die { service } => {
                    let ask = world.ask(&testing::owner("shop", &format!("s{service}")), Families::V4);
                    let _ = promise(&mut world.book, &ask, None, world.now);
                    world.restart();
                }
                Event::Release { service } => {
                    let owner = testing::owner("shop", &format!("s{service}"));
                    world.release(&owner);
                    released = Some(owner.key);
                }
                Event::Restart => world.restart(),
                Event::Edit { pools } => world.edit(edited(pools)),
                Event::LoseEip { service } => {
                    let key = EipKey::of(&testing::owner("shop", &format!("s{service}")), pool::Family::V4);
                    if let Some(eip) = world.eips.remove(&key) {
                        let seen = read(&eip);
                        world.book.vanish(&key, seen.uid, world.now);
                    }
                }
                Event::Make { eip } => {
                    let name = format!("e{eip}");
                    let key = tenants::key(&name);
                    if !world.eips.contains_key(&key) {
                        world.make(&name, |_| {});
                    }
                    let _ = world.attend(&key);
                }
                Event::Delete { eip } => world.delete(&tenants::key(&format!("e{eip}"))),
                Event::Tear { eip } => {
                    let key = tenants::key(&format!("e{eip}"));
                    if let Some(eip) = world.eips.remove(&key) {
                        for service in world.book.vanish(&key, read(&eip).uid, world.now) {
                            let Some(living) = before.get(&service) else { continue };
                            let families = if living.addresses.len() == 2 { Families::V4V6 } else { Families::V4 };
                            world.hold(&world.ask(&living.owner, families)).unwrap();
                        }
                    }
                }
                Event::Wait { seconds } => world.now = world.now + Duration::from_secs(seconds.into()),
            }
            let mut holders = BTreeMap::new();
            for living in world.published.values() {
                for address in &living.addresses {
                    // Those that share an address do so on one `EIp`, which lists them all.
                    let eip = world.book.listed(&living.owner, *address);
                    prop_assert!(eip.is_some(), "{address} of {} is nobody's", living.owner);
                    let other = holders.insert(*address, eip.clone());
                    prop_assert!(other.is_none() || other == Some(eip), "{address} is given twice");
                }
            }
            let mut written = BTreeMap::new();
            for (key, eip) in &world.eips {
                if let Some(address) = eip.status.as_ref().and_then(|status| status.ip_address.clone()) {
                    let other = written.insert(address, key);
                    prop_assert!(other.is_none(), "{other:?} and {key} have the same address");
                }
            }
            let now = tenants_own(&world);
            for (uid, address) in std::mem::replace(&mut own, now) {
                prop_assert!(own.get(&uid).is_none_or(|now| *now == address), "a tenant's own changed its address");
            }
            for (key, living) in before {
                if Some(&key) != released.as_ref() {
                    prop_assert_eq!(world.published.get(&key), Some(&living));
                }
            }
        }
        // Also those that got one of two families, and wait for the other.
        for service in 0..6 {
            world.release(&testing::owner("shop", &format!("s{service}")));
        }
        for n in 0..3 {
            world.delete(&tenants::key(&format!("e{n}")));
        }
        let left: Vec<_> = world.eips.keys().filter(|key| world.book.uid(key).is_some()).collect();
        let crashed = left.iter().all(|key| world.eips[*key].status.is_none());
        prop_assert!(left.is_empty() || crashed, "{left:?} are left");
    }
}

#[test]
fn a_released_address_rests() {
    let mut world = World::new(vec![pool("a", &["192.0.2.1-192.0.2.2"])]);
    assert_eq!(world.serve("one").unwrap(), "192.0.2.1");
    world.release(&testing::owner("shop", "one"));
    assert_eq!(world.serve("two").unwrap(), "192.0.2.2");
    assert!(matches!(world.serve("three"), Err(Error::PoolRests { .. })));
    world.now = world.now + REST;
    assert_eq!(world.serve("three").unwrap(), "192.0.2.1");
}

#[test]
fn a_second_look_and_a_restart_write_nothing() {
    let mut world = World::new(vec![pool("a", &["192.0.2.1-192.0.2.2", "2001:db8::/120"])]);
    let ask = world.ask(&testing::owner("shop", "web"), Families::V6V4);
    let first = world.hold(&ask).unwrap();
    assert!(first[0].is_ipv6() && first[1].is_ipv4(), "in the order that was asked for");
    let writes = world.writes;
    assert_eq!(world.hold(&ask).unwrap(), first);
    world.restart();
    assert_eq!(world.book.settled(&ask, None), Some(first.clone()));
    assert_eq!(world.hold(&ask).unwrap(), first);
    assert_eq!(world.writes, writes);
}

#[test]
fn the_higher_priority_comes_first_and_only_namespaces_that_may() {
    let (mut low, mut high, mut other) =
        (pool("a", &["192.0.2.0/30"]), pool("z", &["198.51.100.7-198.51.100.7"]), pool("b", &["203.0.113.0/24"]));
    (low.spec.priority, high.spec.priority, other.spec.priority) = (1, 2, 3);
    other.spec.namespaces = vec!["bank".into()];
    let mut world = World::new(vec![low.clone(), high, other]);
    assert_eq!(world.serve("one").unwrap(), "198.51.100.7");
    assert_eq!(world.serve("two").unwrap(), "192.0.2.0");
    low.spec.disabled = true;
    world.edit(vec![low]);
    assert!(matches!(world.serve("three"), Err(Error::PoolEmpty { .. })));
    assert_eq!(world.serve("two").unwrap(), "192.0.2.0", "disabled keeps living addresses");
}

#[test]
fn a_network_type_chooses_among_pools() {
    let (mut public, mut cloud) = (pool("public", &["192.0.2.0/30"]), pool("cloud", &["10.0.0.0/30"]));
    public.spec.external_network_type = Some("public".into());
    cloud.spec.external_network_type = Some("cloud".into());
    let mut world = World::new(vec![public, cloud]);
    let ask = testing::ask(&testing::owner("shop", "web"), Families::V4);
    let keys = promise(&mut world.book, &ask, Some("public"), world.now).unwrap();
    assert_eq!(world.book.address(&keys[0]).unwrap().to_string(), "192.0.2.0");
    let ask = testing::ask(&testing::owner("shop", "other"), Families::V4);
    assert!(matches!(promise(&mut world.book, &ask, Some("dmz"), world.now), Err(Error::PoolEmpty { .. })));
}

#[test]
fn an_address_can_be_asked_for_by_number_if_it_is_free_and_in_a_pool() {
    let mut world = World::new(vec![pool("a", &["192.0.2.0/29"])]);
    let mut request = |name: &str, address: &str| {
        let mut ask = world.ask(&testing::owner("shop", name), Families::V4);
        ask.requested = vec![address.parse().unwrap()];
        world.hold(&ask).map(|addresses| addresses[0].to_string())
    };
    assert_eq!(request("one", "192.0.2.5").unwrap(), "192.0.2.5");
    let taken = request("two", "192.0.2.5").unwrap_err().to_string();
    assert!(taken.starts_with("192.0.2.5 is held by EIp slb-one-"), "{taken}");
    assert!(matches!(request("two", "198.51.100.1"), Err(Error::AddressOutside { .. })));
    assert_eq!(request("one", "192.0.2.6").unwrap(), "192.0.2.5", "a living address does not change");
}

#[test]
fn a_shared_address_stays_until_its_last_user_goes() {
    let mut world = World::new(vec![pool("a", &["192.0.2.0/29"])]);
    let (first, second) = (testing::owner("shop", "one"), testing::owner("shop", "two"));
    let address = world.serve("one").unwrap();
    let mut ask = world.ask(&second, Families::V4);
    ask.share_with = Some(first.clone());
    assert_eq!(world.hold(&ask).unwrap()[0].to_string(), address);
    world.restart();
    world.release(&first);
    assert_eq!(world.eips.len(), 1);
    assert_eq!(world.serve("two").unwrap(), address);
    world.release(&second);
    assert_eq!(world.eips.len(), 0);
}

#[test]
fn an_eip_of_somebody_else_keeps_its_address_from_us() {
    let mut world = World::new(vec![pool("a", &["192.0.2.1-192.0.2.2"])]);
    let key = EipKey { namespace: "bank".into(), name: "theirs".into() };
    world.foreign(&key, "192.0.2.1");
    assert_eq!(world.serve("web").unwrap(), "192.0.2.2");
    assert!(world.book.pending(&key, Timestamp::UNIX_EPOCH).is_none(), "it is not ours to write");
    let mut ask = world.ask(&testing::owner("shop", "more"), Families::V4);
    ask.requested = vec!["192.0.2.1".parse().unwrap()];
    let taken = world.hold(&ask).unwrap_err().to_string();
    assert_eq!(taken, "192.0.2.1 is held by another project");
}

#[test]
fn an_eip_removed_by_hand_is_made_again_with_its_address() {
    let mut world = World::new(vec![pool("a", &["192.0.2.0/29"])]);
    let address = world.serve("web").unwrap();
    let (key, eip) = world.eips.pop_first().unwrap();
    let woken = world.book.vanish(&key, read(&eip).uid, world.now);
    assert_eq!(woken, [ServiceKey::new("shop", "web")]);
    assert_eq!(world.serve("web").unwrap(), address);
    assert!(world.eips.contains_key(&key));
}

#[test]
fn a_service_that_comes_back_before_its_eip_is_gone_keeps_the_address() {
    let mut world = World::new(vec![pool("a", &["192.0.2.0/29"])]);
    let address = world.serve("web").unwrap();
    // The process dies after it decided to release, and before it wrote.
    world.book.leave(&testing::owner("shop", "web"), world.now);
    world.published.clear();
    assert_eq!(world.serve("web").unwrap(), address);
    world.restart();
    assert_eq!(world.serve("other").unwrap(), "192.0.2.1");
}

#[test]
fn an_eip_of_somebody_else_under_our_name_is_told_and_not_written() {
    let mut world = World::new(vec![pool("a", &["192.0.2.0/29"])]);
    let key = EipKey::of(&testing::owner("shop", "web"), pool::Family::V4);
    world.foreign(&key, "203.0.113.1");
    assert!(matches!(world.serve("web"), Err(Error::ForeignEip { .. })));
    assert!(world.book.pending(&key, Timestamp::UNIX_EPOCH).is_none());
    assert_eq!(world.book.address(&key).unwrap().to_string(), "203.0.113.1");
}
