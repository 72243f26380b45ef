//! What a process that led before, or only followed, makes of what others wrote meanwhile.

use super::*;
use crate::few::Few;

fn seen(world: &World, key: &EipKey) -> eip::Seen {
    read(&world.eips[key])
}

fn v4(name: &str) -> EipKey {
    EipKey::of(&testing::owner("shop", name), pool::Family::V4)
}

#[test]
fn who_leads_again_does_not_insist_on_what_it_could_not_write() {
    let mut world = World::new(vec![pool("a", &["192.0.2.1-192.0.2.4"])]);
    let ask = world.ask(&testing::owner("shop", "web"), Families::V4);
    // Promised, but the write never arrives.
    promise(&mut world.book, &ask, None, world.now).unwrap();
    assert_eq!(world.book.address(&v4("web")).unwrap().to_string(), "192.0.2.1");
    let mut first = world.replaced_by(world.follower());
    assert_eq!(world.serve("other").unwrap(), "192.0.2.1");
    assert_eq!(world.serve("web").unwrap(), "192.0.2.2");
    first.observe(seen(&world, &v4("web")));
    world.replaced_by(first);
    assert!(world.book.pending(&v4("web"), Timestamp::UNIX_EPOCH).is_none(), "the EIp is right as it is");
    assert_eq!(world.serve("web").unwrap(), "192.0.2.2");
    assert_eq!(world.serve("other").unwrap(), "192.0.2.1");
}

#[test]
fn a_promise_that_was_never_written_is_free_for_the_next_term() {
    let mut world = World::new(vec![pool("a", &["192.0.2.1-192.0.2.1"])]);
    let ask = world.ask(&testing::owner("shop", "web"), Families::V4);
    promise(&mut world.book, &ask, None, world.now).unwrap();
    world.begin();
    assert_eq!(world.serve("other").unwrap(), "192.0.2.1");
}

#[test]
fn an_eip_that_is_gone_when_a_term_begins_holds_nothing() {
    let mut world = World::new(vec![pool("a", &["192.0.2.1-192.0.2.1"])]);
    world.serve("web").unwrap();
    let first = world.replaced_by(world.follower());
    world.release(&testing::owner("shop", "web"));
    world.replaced_by(first);
    assert!(matches!(world.serve("other"), Err(Error::PoolRests { .. })), "it was released just now");
    world.now = world.now + REST;
    assert_eq!(world.serve("other").unwrap(), "192.0.2.1");
}

#[test]
fn a_follower_learns_the_address_of_an_eip_that_it_saw_being_made() {
    let mut world = World::new(vec![pool("a", &["192.0.2.1-192.0.2.4"])]);
    let mut follower = world.follower();
    world.serve("web").unwrap();
    let mut bare = world.eips[&v4("web")].clone();
    (bare.status, bare.metadata.resource_version) = (None, Some("1".into()));
    follower.observe(read(&bare));
    follower.observe(seen(&world, &v4("web")));
    assert_eq!(follower.address(&v4("web")).unwrap().to_string(), "192.0.2.1");
    let ask = world.ask(&testing::owner("shop", "web"), Families::V4);
    assert_eq!(follower.settled(&ask, None), world.book.settled(&ask, None));
    // Written down and not published yet: it is not free, whoever leads.
    world.published.clear();
    world.replaced_by(follower);
    assert_eq!(world.serve("other").unwrap(), "192.0.2.2");
}

#[test]
fn a_follower_keeps_no_promise_for_an_eip_that_is_gone() {
    let mut world = World::new(vec![pool("a", &["192.0.2.1-192.0.2.4"])]);
    let mut follower = world.follower();
    world.serve("web").unwrap();
    let last = seen(&world, &v4("web"));
    follower.observe(last.clone());
    // It is deleted as it is: nobody takes the users off it first.
    follower.vanish(&last.key, last.uid, world.now);
    assert_eq!(follower.address(&last.key), None);
}

#[test]
fn late_news_of_a_deleted_eip_brings_nothing_back() {
    let mut world = World::new(vec![pool("a", &["192.0.2.1-192.0.2.1"])]);
    world.serve("web").unwrap();
    let late = seen(&world, &v4("web"));
    world.release(&testing::owner("shop", "web"));
    world.book.observe(late.clone());
    assert_eq!(world.book.address(&late.key), None);
    world.book.vanish(&late.key, late.uid, world.now);
    assert_eq!(world.book.address(&late.key), None);
    assert!(world.book.gone().is_empty(), "its end has been told");
    world.now = world.now + REST;
    assert_eq!(world.serve("other").unwrap(), "192.0.2.1");
}

#[test]
fn an_eip_that_its_leader_let_go_is_not_taken_up() {
    let mut world = World::new(vec![pool("a", &["192.0.2.1-192.0.2.1"])]);
    world.serve("web").unwrap();
    let eip = world.eips.get_mut(&v4("web")).unwrap();
    eip.metadata.deletion_timestamp = serde_json::from_value("2026-01-01T00:00:00Z".into()).unwrap();
    // Somebody else's finalizer keeps the object.
    eip.metadata.finalizers = Some(vec!["example.com/theirs".into()]);
    world.published.clear();
    world.restart();
    assert_eq!(world.book.address(&v4("web")), None);
}

#[test]
fn one_that_leaves_again_after_a_failed_write_is_taken_off_the_eip() {
    let mut world = World::new(vec![pool("a", &["192.0.2.0/29"])]);
    let (first, second) = (testing::owner("shop", "one"), testing::owner("shop", "two"));
    world.serve("one").unwrap();
    let mut ask = world.ask(&second, Families::V4);
    ask.share_with = Some(first.clone());
    world.hold(&ask).unwrap();
    // The write does not arrive.
    assert!(world.book.leave(&second, world.now).contains(&v4("one")));
    world.release(&second);
    assert_eq!(seen(&world, &v4("one")).says.services, Few::from_iter(["one".into()]));
    assert!(world.book.leave(&second, world.now).is_empty(), "nothing is left to do");
}

#[test]
fn what_another_leader_released_is_not_kept_by_one_who_hears_of_it_late() {
    let mut world = World::new(vec![pool("a", &["192.0.2.1-192.0.2.1"])]);
    world.serve("web").unwrap();
    let late = seen(&world, &v4("web"));
    world.release(&testing::owner("shop", "web"));
    world.replaced_by(world.follower());
    world.book.observe(late.clone());
    world.book.vanish(&late.key, late.uid, world.now);
    assert_eq!(world.book.address(&late.key), None);
}
