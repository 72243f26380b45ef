//! What the pools say about themselves, and how much of them a namespace may have.

use groundcrew_api::address_pool::AddressPoolStatus;

use super::*;

type Statuses = BTreeMap<Arc<str>, AddressPoolStatus>;

/// What the pools say after somebody who leads has looked; how many writes it took.
fn report(world: &World, told: &mut Statuses, wall: Timestamp) -> usize {
    for pool in &world.pools {
        told.entry(pool.metadata.name.as_deref().unwrap().into()).or_default();
    }
    let wanted = world.book.survey(told, world.now, wall);
    let writes = wanted.iter().filter(|(name, status)| told.get(*name) != Some(status)).count();
    *told = wanted;
    writes
}

fn condition<'a>(status: &'a AddressPoolStatus, kind: &str) -> (&'a str, &'a str) {
    let condition = status.conditions.iter().find(|condition| condition.type_ == kind).unwrap();
    (&condition.status, &condition.message)
}

#[test]
fn used_and_free_are_counted_and_said_once() {
    let mut world =
        World::new(vec![pool("a", &["192.0.2.0/30", "2001:db8::/64"]), pool("b", &["192.0.2.2-192.0.2.9"])]);
    let mut told = Statuses::new();
    let wall = Timestamp::UNIX_EPOCH;
    world.hold(&world.ask(&testing::owner("shop", "web"), Families::V4V6)).unwrap();
    assert_eq!(report(&world, &mut told, wall), 2);
    let (v4, v6) = (told["a"].ipv4.unwrap(), told["a"].ipv6.unwrap());
    assert_eq!((v4.used, v4.free, v6.used, v6.free), (1, 3, 1, i64::MAX));
    assert_eq!((told["b"].ipv4.unwrap().free, told["b"].ipv6), (8, None));
    assert_eq!(condition(&told["b"], "Overlap"), ("True", "has addresses in common with a; each is given out once"));
    assert_eq!(condition(&told["a"], "Ready"), ("True", ""));
    assert_eq!(report(&world, &mut told, wall + Duration::from_secs(1)), 0, "steady state writes nothing");
    world.restart();
    assert_eq!(report(&world, &mut told, wall), 0);

    // Living addresses stay, in the pool or not; a backward range passes the API server's rules.
    world.edit(vec![pool("a", &["198.51.100.0/31", "2001:db8::9-2001:db8::1"])]);
    report(&world, &mut told, wall);
    let (v4, v6) = (told["a"].ipv4.unwrap(), told["a"].ipv6.unwrap());
    assert_eq!((v4.used, v4.free, v6.used, v6.free), (1, 2, 1, 0));
    assert_eq!(condition(&told["a"], "Overlap").0, "False");
    let (ready, why) = condition(&told["a"], "Ready");
    assert_eq!(ready, "False");
    assert!(why.ends_with("left out: 2001:db8::9-2001:db8::1"), "{why}");
}

#[test]
fn a_namespace_gets_as_many_as_it_may() {
    let mut limited = pool("a", &["192.0.2.0/29"]);
    limited.spec.per_namespace_limit = Some(2);
    let mut world = World::new(vec![limited]);
    world.serve("one").unwrap();
    let own = world.make("mine", |_| {});
    world.attend(&own).unwrap();
    let refused = world.serve("two").unwrap_err();
    assert!(matches!(refused, Error::LimitReached { limit: 2, .. }), "{refused}");
    let other = testing::owner("bank", "web");
    world.hold(&world.ask(&other, Families::V4)).unwrap();
    world.serve("one").unwrap();
    world.restart();
    assert!(matches!(world.serve("two"), Err(Error::LimitReached { .. })), "after a restart, too");
    world.release(&testing::owner("shop", "one"));
    world.serve("two").unwrap();
    // Where another pool serves it, too, that one is next.
    world.pools.push(pool("b", &["198.51.100.0/30"]));
    world.edit(world.pools.clone());
    assert_eq!(world.serve("three").unwrap(), "198.51.100.0");
}

#[test]
fn a_pool_that_is_made_anew_under_another_name_gives_nobody_more_than_it_may() {
    let limited = |name, addresses: &[&str]| {
        let mut limited = pool(name, addresses);
        limited.spec.per_namespace_limit = Some(2);
        limited
    };
    let mut world = World::new(vec![limited("public", &["192.0.2.0/28"])]);
    world.serve("one").unwrap();
    // One that kube-ovn gave, before addresses came from pools.
    world.make("mine", |eip| {
        let ours = serde_json::json!({ "labels": { "groundcrew.dev/cluster": "c1" } });
        let status = serde_json::json!({ "ipAddress": "192.0.2.9", "ovnEIpRef": "slb-mine-1a2b", "ready": true });
        *eip = patched(eip, &serde_json::json!({ "metadata": ours, "status": status }));
    });
    for pools in [
        vec![limited("public-v4", &["192.0.2.0/28"])],
        vec![limited("public", &["198.51.100.0/28"]), limited("z", &["192.0.2.0/28"])],
    ] {
        let renewed = pools.last().unwrap().metadata.name.clone().unwrap();
        world.edit(pools);
        let mut ask = world.ask(&testing::owner("shop", "two"), Families::V4);
        ask.requested = vec!["192.0.2.5".parse().unwrap()];
        let refused = world.hold(&ask).unwrap_err().to_string();
        assert!(refused.contains(&format!("AddressPool {renewed} as it may, 2")), "{refused}");
    }
    // Of two pools that have it, an address counts for the one that it is from.
    world.edit(vec![limited("public", &["192.0.2.0/29"]), limited("z", &["192.0.2.0/28"])]);
    world.serve("two").unwrap();
    assert_eq!(world.serve("three").unwrap(), "192.0.2.2", "one of z counts for z");
    assert!(matches!(world.serve("four"), Err(Error::LimitReached { .. })));
    // That of a project's router is nobody's.
    world.book.avoid([("192.0.2.9".parse().unwrap(), "a router port")].into());
    assert_eq!(world.serve("four").unwrap(), "192.0.2.3");
}

#[test]
fn who_gave_an_address_back_gets_it_at_once_by_number_and_nobody_else_does() {
    let mut world = World::new(vec![pool("a", &["192.0.2.1-192.0.2.1"])]);
    let by_number = |world: &mut World, namespace| {
        let mut ask = world.ask(&testing::owner(namespace, "again"), Families::V4);
        ask.requested = vec!["192.0.2.1".parse().unwrap()];
        world.hold(&ask).map(|addresses| addresses[0].to_string())
    };
    world.serve("web").unwrap();
    world.release(&testing::owner("shop", "web"));
    assert!(matches!(by_number(&mut world, "bank"), Err(Error::AddressRests { .. })), "another project's clients wait");
    assert!(matches!(world.serve("web"), Err(Error::PoolRests { .. })), "without a number it is not preferred");
    assert_eq!(by_number(&mut world, "shop").unwrap(), "192.0.2.1");
    assert!(matches!(world.serve("web"), Err(Error::PoolEmpty { .. })), "nothing rests any more");
    let (mut told, wall) = (Statuses::new(), Timestamp::UNIX_EPOCH);
    report(&world, &mut told, wall);
    assert_eq!(told["a"].resting, []);

    // Given back once more, it rests for others as long as ever. A new process does not know whose it was.
    world.now = world.now + REST / 2;
    world.release(&testing::owner("shop", "again"));
    world.now = world.now + REST / 2;
    report(&world, &mut told, wall);
    assert!(matches!(by_number(&mut world, "bank"), Err(Error::AddressRests { .. })));
    world.book = world.follower();
    world.book.let_rest(&told["a"].resting, world.now, wall);
    world.begin();
    assert!(matches!(by_number(&mut world, "shop"), Err(Error::AddressRests { .. })));
}

#[test]
fn an_address_that_rests_for_the_second_time_rests_until_the_second_end() {
    let mut world = World::new(vec![pool("a", &["192.0.2.0/32"])]);
    let (mut told, mut wall) = (Statuses::new(), Timestamp::UNIX_EPOCH);
    let owner = testing::owner("shop", "web");
    for _ in 0..2 {
        world.serve("web").unwrap();
        world.release(&owner);
        report(&world, &mut told, wall);
        let left = told["a"].resting[0].until.0.duration_since(wall);
        assert!(left >= jiff::SignedDuration::try_from(REST).unwrap(), "{left:?}");
        (world.now, wall) = (world.now + REST, wall + REST);
    }
}

#[test]
fn a_restart_while_an_address_rests_tells_nothing_new() {
    let mut world = World::new(vec![pool("a", &["192.0.2.0/29"])]);
    let (mut told, mut wall) = (Statuses::new(), Timestamp::UNIX_EPOCH);
    world.serve("web").unwrap();
    world.release(&testing::owner("shop", "web"));
    report(&world, &mut told, wall);
    let passed = REST / 2;
    (world.now, wall) = (world.now + passed, wall + passed);
    world.book = world.follower();
    world.book.let_rest(&told["a"].resting, world.now, wall);
    world.begin();
    // Two clocks are never read at the same time.
    assert_eq!(report(&world, &mut told, wall + Duration::from_millis(7)), 0);
    assert_eq!(report(&world, &mut told, wall - Duration::from_millis(7)), 0);
}

#[test]
fn a_wall_clock_that_jumps_ends_no_rest_and_makes_none_longer() {
    const HOUR: Duration = Duration::from_hours(1);
    let epoch = Timestamp::UNIX_EPOCH + 2 * HOUR;
    for jumped in [epoch - HOUR, epoch + HOUR] {
        let mut world = World::new(vec![pool("a", &["192.0.2.0/32"])]);
        let mut told = Statuses::new();
        world.serve("web").unwrap();
        world.release(&testing::owner("shop", "web"));
        report(&world, &mut told, epoch);
        assert!(matches!(world.serve("next"), Err(Error::PoolRests { .. })), "it rests, whatever the clock says");
        // Whoever leads next, by the same clock, goes by what is told now.
        report(&world, &mut told, jumped);
        world.book = world.follower();
        world.book.let_rest(&told["a"].resting, world.now, jumped);
        world.begin();
        assert!(matches!(world.serve("next"), Err(Error::PoolRests { .. })), "under the next leader, too");
        world.now = world.now + REST + Duration::from_secs(1);
        assert_eq!(world.serve("next").unwrap(), "192.0.2.0", "and no longer than it should");
    }
}

#[derive(Debug, Clone)]
enum Event {
    Serve(u8),
    Release(u8),
    /// Another process begins with what is written down.
    Restart,
    Wait(u8),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        4 => (0u8..6).prop_map(Event::Serve),
        3 => (0u8..6).prop_map(Event::Release),
        2 => Just(Event::Restart),
        2 => (0u8..50).prop_map(Event::Wait),
    ];
    prop::collection::vec(event, 1..80)
}

proptest! {
    #[test]
    fn a_released_address_rests_whoever_leads(events in events()) {
        let mut world = World::new(vec![pool("a", &["192.0.2.0/29"])]);
        let (mut told, mut wall, mut released) = (Statuses::new(), Timestamp::UNIX_EPOCH, BTreeMap::new());
        for event in events {
            match event {
                Event::Serve(service) => {
                    let before = world.published.len();
                    if let Ok(address) = world.serve(&format!("s{service}")) && world.published.len() > before {
                        let until = released.get(&address).copied().unwrap_or(wall);
                        prop_assert!(until <= wall, "{address} rests until {until}, and it is {wall}");
                    }
                }
                Event::Release(service) => {
                    let owner = testing::owner("shop", &format!("s{service}"));
                    if let Some(living) = world.published.get(&owner.key) {
                        released.insert(living.addresses[0].to_string(), wall + REST);
                    }
                    world.release(&owner);
                }
                Event::Restart => {
                    world.book = world.follower();
                    for status in told.values() {
                        world.book.let_rest(&status.resting, world.now, wall);
                    }
                    world.begin();
                }
                Event::Wait(seconds) => {
                    let seconds = Duration::from_secs(seconds.into());
                    (world.now, wall) = (world.now + seconds, wall + seconds);
                }
            }
            report(&world, &mut told, wall);
        }
    }
}

#[test]
fn what_ovn_and_the_nodes_have_is_neither_given_out_nor_free() {
    let mut world = World::new(vec![pool("a", &["192.0.2.0/29"])]);
    let address = |n: u8| IpAddr::from([192, 0, 2, n]);
    world.book.avoid([(address(0), "a router port"), (address(2), "a NAT rule in OVN")].into());
    world.book.avoid_nodes([address(1), address(2), address(99)].into());
    let mut told = Statuses::new();
    assert_eq!(world.serve("web").unwrap(), "192.0.2.3");
    report(&world, &mut told, Timestamp::UNIX_EPOCH);
    let counts = told["a"].ipv4.unwrap();
    assert_eq!((counts.used, counts.free), (1, 4));

    // A node comes that has the address of a living Service: it stays used, and is counted once.
    world.book.avoid_nodes([address(3)].into());
    report(&world, &mut told, Timestamp::UNIX_EPOCH);
    let counts = told["a"].ipv4.unwrap();
    assert_eq!((counts.used, counts.free), (1, 5));
    assert_eq!(world.serve("web").unwrap(), "192.0.2.3");
}
