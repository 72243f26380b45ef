//! A Service that is deleted and made again under its name is another owner, also of an address that it shares.

use super::*;

fn owner(name: &str, life: u128) -> Owner {
    Owner { uid: Uuid::from_u128(life), ..testing::owner("shop", name) }
}

fn share(world: &mut World, owner: &Owner, with: &Owner) -> IpAddr {
    let mut ask = world.ask(owner, Families::V4);
    ask.share_with = Some(with.clone());
    world.hold(&ask).unwrap()[0]
}

/// `a` made the address, shared it with `b`, went, and came back as another to share `b`'s.
fn made_again() -> (World, [Owner; 3], IpAddr) {
    let mut world = World::new(vec![pool("a", &["192.0.2.0/29"])]);
    let (a1, a2, b) = (owner("a", 1), owner("a", 2), owner("b", 3));
    let address = world.hold(&world.ask(&a1, Families::V4)).unwrap()[0];
    share(&mut world, &b, &a1);
    world.release(&a1);
    assert_eq!(share(&mut world, &a2, &b), address, "settled, too");
    (world, [a1, a2, b], address)
}

#[test]
fn the_new_one_shares_and_the_old_one_cannot_take_it_from_him() {
    let (mut world, [a1, a2, b], address) = made_again();
    for restarted in [false, true] {
        if restarted {
            world.restart();
        }
        assert!(world.book.owned().all(|(_, owner)| owner != a1), "it is not an orphan of the old one");
        assert!(world.book.leave(&a1, world.now).is_empty());
        assert_eq!(world.book.settled(&world.ask(&a2, Families::V4), None), Some(vec![address]));
    }
    world.release(&b);
    let c = owner("c", 4);
    assert_eq!(share(&mut world, &c, &a2), address);
    world.release(&c);
    world.release(&a2);
    assert!(world.eips.is_empty() && world.book.stored().is_empty());
}

#[test]
fn the_new_one_leaves_again_after_a_failed_write() {
    let (mut world, [_, a2, b], _) = made_again();
    world.book.leave(&a2, world.now);
    world.release(&a2);
    world.release(&b);
    assert!(world.eips.is_empty());
}

#[test]
fn a_follower_sees_that_the_new_one_is_served() {
    let (world, [_, a2, _], address) = made_again();
    let mut follower = world.follower();
    for eip in world.eips.values() {
        follower.observe(read(eip));
    }
    assert_eq!(follower.settled(&world.ask(&a2, Families::V4), None), Some(vec![address]));
}

#[test]
fn a_new_one_that_does_not_share_gets_an_address_of_its_own() {
    let mut world = World::new(vec![pool("a", &["192.0.2.0/29"])]);
    let (a1, a2, b) = (owner("a", 1), owner("a", 2), owner("b", 3));
    let shared = world.hold(&world.ask(&b, Families::V4)).unwrap()[0];
    share(&mut world, &a1, &b);
    // It is gone without a word, and so is the process that would have known.
    world.published.remove(&a1.key);
    world.restart();
    assert_ne!(world.hold(&world.ask(&a2, Families::V4)).unwrap()[0], shared);
    world.restart();
    world.release(&a2);
    world.release(&b);
    assert!(world.eips.is_empty());
}
