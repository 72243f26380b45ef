//! Networks of both families, and addresses that kube-ovn cannot be asked for by number.

use super::*;

#[test]
fn what_has_an_address_of_the_other_family_in_use_leaves_its_place_to_another() {
    let (mut world, web) = (World::new(), owner("shop", "web"));
    world.subnet("ext", &json!({ "public": "true" }), "192.0.2.0/29,2001:db8::/120", &[]);
    let name = wish(world.next(&web)).name;
    let spec = json!({ "externalSubnet": "ext", "type": "nat" });
    let both = json!({ "v4Ip": "192.0.2.2", "v6Ip": "2001:db8::2", "ready": true });
    world.put(&name, 7, Some(&web), spec.clone(), both, false);
    let needed = BTreeSet::from([Arc::<str>::from(name.as_str())]);
    let next = |world: &World, needed: &BTreeSet<_>, address: &str| {
        world.catalog.next(&web, &need(&web, None, Some(address)), needed, &[], world.now)
    };
    assert!(matches!(next(&world, &needed, "192.0.2.2"), Next::Use { .. }), "it has the right one");
    assert!(matches!(next(&world, &NONE, "192.0.2.4"), Next::Drop(_)));
    let other = wish(next(&world, &needed, "192.0.2.4"));
    assert_ne!(other.name, name);
    let asked = json!({ "externalSubnet": "ext", "type": "nat", "v4Ip": "192.0.2.4" });
    world.put(&other.name, 8, Some(&web), asked, json!(null), false);
    assert!(matches!(next(&world, &needed, "192.0.2.4"), Next::Wait { name, .. } if *name == *other.name));
    let dropped = next(&world, &needed, "192.0.2.5");
    assert!(matches!(dropped, Next::Drop(dropped) if *dropped == *other.name), "nobody needs that one");
}

#[test]
fn an_ipv6_address_is_never_asked_for_by_number() {
    let (mut world, web) = (World::new(), owner("shop", "web"));
    world.subnet("ext", &json!({ "public": "true" }), "2001:db8::0/120", &[]);
    let ask = |requested: Option<&str>| Need { family: Family::V6, ..need(&web, None, requested) };
    let next = |world: &World, requested| world.catalog.next(&web, &ask(requested), &NONE, &[], world.now);
    let is_refused = |next: Next| matches!(next, Next::Refuse(Error::NotByNumber { .. }));
    assert!(is_refused(next(&world, Some("2001:db8::7"))));

    let Wish { name, address: None, .. } = wish(next(&world, None)) else { panic!("asked by number") };
    let spec = json!({ "externalSubnet": "ext", "type": "nat", "v6Ip": "2001:db8::2" });
    world.put(&name, 7, Some(&web), spec.clone(), json!({ "v6Ip": "2001:db8::2", "ready": true }), false);
    assert!(matches!(next(&world, Some("2001:db8::2")), Next::Use { .. }), "it happens to be just that");
    assert!(matches!(next(&world, Some("2001:db8::7")), Next::Drop(_)));
    world.put(&name, 7, Some(&web), spec, json!(null), true);
    assert!(is_refused(next(&world, Some("2001:db8::7"))), "and no other is made");
}

#[test]
fn an_ipv6_address_in_use_whose_ovn_eip_is_gone_is_told_of_and_not_asked_for_in_vain() {
    let (mut world, web) = (World::new(), owner("shop", "web"));
    world.subnet("ext", &json!({ "public": "true" }), "2001:db8::0/120", &[]);
    let spec = json!({ "externalSubnet": "ext", "type": "nat" });
    world.put("mine", 7, Some(&web), spec.clone(), json!({ "v6Ip": "2001:db8::2", "ready": true }), false);
    assert_eq!(world.keep(&web, "2001:db8::2", "mine"), Keep::Safe("mine".into()));
    world.put("mine", 7, Some(&web), spec.clone(), json!({ "v6Ip": "2001:db8::2", "ready": true }), true);
    match world.keep(&web, "2001:db8::2", "mine") {
        Keep::Unsafe(Why { reason: "AddressUnreserved", message }) => {
            assert!(message.contains("by number"), "{message}");
        }
        other => panic!("{other:?}"),
    }
    world.put("thief", 8, None, spec, json!({ "v6Ip": "2001:db8::2", "ready": true }), false);
    assert!(matches!(world.keep(&web, "2001:db8::2", "mine"), Keep::Unsafe(Why { reason: "AddressTaken", .. })));
}
