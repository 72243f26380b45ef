//! What there is not: an address of a family, one that does not rest, an answer to a write, our own marks.

use groundcrew_core::provider::Families;

use super::*;

#[test]
fn of_a_family_that_the_other_has_not_there_is_an_address_of_its_own() {
    let mut world = World::new(vec![pool("a", &["192.0.2.0/29", "2001:db8::/120"])]);
    let first = world.serve("one").unwrap();
    let mut ask = world.ask(&testing::owner("shop", "two"), Families::V4V6);
    ask.share_with = Some(testing::owner("shop", "one"));
    ask.share_families = Some(Families::V4V6);
    assert!(matches!(world.hold(&ask), Err(Error::NothingToShare { .. })), "it will have one");
    ask.share_families = Some(Families::V4);
    let both = world.hold(&ask).unwrap();
    assert_eq!((both[0].to_string(), both[1].is_ipv6()), (first, true));
}

#[test]
fn what_rests_is_told_in_the_same_words_all_the_time_and_given_at_its_end() {
    let mut world = World::new(vec![pool("a", &["192.0.2.1-192.0.2.2"])]);
    world.serve("one").unwrap();
    world.serve("two").unwrap();
    assert!(matches!(world.serve("three"), Err(Error::PoolEmpty { pools: 1, .. })));
    world.release(&testing::owner("shop", "one"));
    let told = world.serve("three").unwrap_err().to_string();
    assert!(told.contains("some were given back a while ago and rest"), "{told}");
    world.now = world.now + REST / 3;
    world.release(&testing::owner("shop", "two"));
    let error = world.serve("three").unwrap_err();
    assert_eq!(error.to_string(), told, "what counts down would be written again and again");
    let Error::PoolRests { left, .. } = error else { panic!("{error}") };
    assert_eq!(left, REST * 2 / 3);
    let mut by_number = world.ask(&testing::owner("bank", "web"), Families::V4);
    by_number.requested = vec!["192.0.2.1".parse().unwrap()];
    let told = world.hold(&by_number).unwrap_err().to_string();
    world.now = world.now + Duration::from_secs(1);
    assert_eq!(world.hold(&by_number).unwrap_err().to_string(), told);
    world.now = world.now + left;
    assert_eq!(world.serve("three").unwrap(), "192.0.2.1");
}

#[test]
fn a_pool_whose_exclusions_cannot_be_read_gives_out_nothing_new() {
    let mut open = pool("a", &["192.0.2.0/29"]);
    let mut world = World::new(vec![open.clone()]);
    let address = world.serve("web").unwrap();
    open.spec.excluded = vec!["192.0.2.2-2001:db8::2".into()];
    world.edit(vec![open]);
    assert_eq!(world.serve("web").unwrap(), address, "what is living stays");
    for requested in [vec![], vec!["192.0.2.5".parse().unwrap()]] {
        let mut ask = world.ask(&testing::owner("shop", "more"), Families::V4);
        ask.requested = requested;
        let error = world.hold(&ask).unwrap_err().to_string();
        assert!(error.contains("192.0.2.2-2001:db8::2"), "{error}");
    }
}

#[test]
fn who_could_not_write_that_it_left_a_family_tries_again() {
    let mut world = World::new(vec![pool("a", &["192.0.2.0/29", "2001:db8::/120"])]);
    let owner = testing::owner("shop", "web");
    let both = world.hold(&world.ask(&owner, Families::V4V6)).unwrap();
    let single = world.ask(&owner, Families::V4);
    for _ in 0..2 {
        assert!(world.book.has_surplus(&single));
        assert_eq!(world.book.leave_surplus(&single, world.now), [EipKey::of(&owner, Family::V6)], "the write fails");
    }
    for key in world.book.leave_surplus(&single, world.now) {
        world.store(&key);
    }
    assert!(!world.book.has_surplus(&single));
    assert_eq!(world.eips.keys().cloned().collect::<Vec<_>>(), [EipKey::of(&owner, Family::V4)]);
    assert_eq!(world.hold(&single).unwrap(), both[..1]);
}

#[test]
fn the_address_of_a_family_that_is_left_is_free_also_where_it_was_only_promised_again() {
    let mut world = World::new(vec![pool("a", &["192.0.2.0/29", "2001:db8::1-2001:db8::1"])]);
    let owner = testing::owner("shop", "web");
    let both = world.hold(&world.ask(&owner, Families::V4V6)).unwrap();
    let single = world.ask(&owner, Families::V4);
    // Whoever led before came as far as this: the EIp is gone, and the Service says the address still.
    world.eips.remove(&EipKey::of(&owner, Family::V6)).unwrap();
    world.restart();
    assert_eq!(world.book.leave_surplus(&single, world.now), [], "there is nothing to write");
    assert!(!world.book.has_surplus(&single));
    assert_eq!(world.hold(&single).unwrap(), both[..1]);
    world.now = world.now + REST;
    let other = world.ask(&testing::owner("shop", "other"), Families::V6);
    assert_eq!(world.hold(&other).unwrap(), both[1..]);
}

#[test]
fn one_that_is_made_again_while_it_is_let_go_is_not_taken_for_the_one_that_went() {
    let mut world = World::new(vec![pool("a", &["192.0.2.0/29"])]);
    let key = world.make("mine", |_| {});
    world.attend(&key).unwrap();
    let gone = read(&world.eips[&key]).uid;
    world.book.vanish(&key, gone, world.now);
    world.eips.remove(&key);
    world.make("mine", |_| {});
    // The answer to the write that let the first one go comes only now.
    world.book.deleted(&key, Some(gone), world.now);
    assert!(world.book.gone().is_empty());
    world.attend(&key).unwrap();
    assert!(world.status(&key).ready);
}

#[test]
fn who_could_not_write_that_it_left_for_another_eip_tries_again() {
    let mut world = World::new(vec![pool("a", &["192.0.2.0/29"])]);
    let key = world.make("mine", |_| {});
    world.attend(&key).unwrap();
    world.serve("web").unwrap();
    world.published.clear();
    let mut ask = world.ask(&testing::owner("shop", "web"), Families::V4);
    ask.annotations = super::binding::bound(Some("mine"));
    let own = EipKey::of(&ask.owner, Family::V4);
    for _ in 0..2 {
        assert_eq!(world.book.unbind(&ask, world.now), std::slice::from_ref(&own), "the write fails");
    }
    world.hold(&ask).unwrap();
    assert!(!world.eips.contains_key(&own));
    assert_eq!(world.book.unbind(&ask, world.now), []);
}

#[test]
fn one_that_we_made_is_ours_whatever_is_written_on_it() {
    let mut world = World::new(vec![pool("a", &["192.0.2.0/29"])]);
    let owner = testing::owner("shop", "web");
    let key = EipKey::of(&owner, Family::V4);
    let strip = |world: &mut World| {
        let version = Uuid::from_u128(world.writes.into());
        let eip = world.eips.get_mut(&key).unwrap();
        eip.metadata.labels = None;
        eip.metadata.resource_version = Some((version.as_u128() + 1).to_string());
        world.writes += 1;
        world.book.observe(read(&world.eips[&key]))
    };
    let address = world.serve("web").unwrap();
    let ask = world.ask(&owner, Families::V4);
    assert_eq!(strip(&mut world), std::slice::from_ref(&owner.key), "its Service puts it right");
    assert_eq!(world.book.settled(&ask, None), None);
    assert_eq!(world.serve("web").unwrap(), address);
    assert_eq!(read(&world.eips[&key]).whose, Whose::Service(owner.clone()));
    strip(&mut world);
    world.release(&owner);
    assert_eq!(world.eips.len(), 0, "and it goes with its Service");
}

#[test]
fn an_eip_that_others_share_keeps_its_address_when_whom_it_was_made_for_needs_it_for_another() {
    let mut world = World::new(vec![pool("a", &["192.0.2.0/29"])]);
    let (maker, sharer) = (testing::owner("shop", "a"), testing::owner("shop", "b"));
    let address = world.serve("a").unwrap();
    let mut ask = world.ask(&sharer, Families::V4);
    ask.share_with = Some(maker.clone());
    world.hold(&ask).unwrap();
    world.release(&maker);
    // It comes back on a tenant's own, which somebody tears out.
    let key = world.make("mine", |_| {});
    world.attend(&key).unwrap();
    let mut ask = world.ask(&maker, Families::V4);
    ask.annotations = super::binding::bound(Some("mine"));
    let living = world.hold(&ask).unwrap();
    assert_ne!(living[0].to_string(), address);
    let torn = world.eips.remove(&key).unwrap();
    world.book.vanish(&key, read(&torn).uid, world.now);
    assert_eq!(world.hold(&world.ask(&maker, Families::V4)).unwrap(), living);
    assert_eq!(world.serve("b").unwrap(), address);
    world.restart();
    assert_eq!(world.hold(&world.ask(&maker, Families::V4)).unwrap(), living);
    assert_eq!(world.serve("b").unwrap(), address);
    world.release(&maker);
    world.release(&sharer);
    assert_eq!(world.eips.len(), 0);
}
