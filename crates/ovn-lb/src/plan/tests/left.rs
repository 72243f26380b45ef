//! What we wrote is known again, whatever is wanted by now; what others changed is not taken for it.

use super::*;

proptest! {
    #[test]
    fn after_we_wrote_it_only_a_wish_can_differ(before in wishes(), after in wishes(), site in sites()) {
        let mut model = Model::project("shop").place(Kind::Group, 3, "shop-group");
        for place in [1, 2] {
            model.joined.insert((Uuid::from_u128(place), Uuid::from_u128(3)));
        }
        let first = plan(&desired(&before, &site), &site, &model.northbound());
        model.carry_out(&first);
        prop_assert!(first.held.is_empty());
        prop_assert!(is_as_left(&after, &site, &model.northbound()));
    }
}

fn want() -> Wanted {
    wanted(&owner("shop", "web"), &["192.0.2.7"])
}

fn is_left(model: &Model) -> bool {
    // Something else than there is.
    let mut want = want();
    want.frontends[0].backends.clear();
    is_as_left(&want, &site(), &model.northbound())
}

#[test]
fn every_way_to_spoil_a_row_is_seen_beside_a_new_wish() {
    let uuid = web().rows[0].uuid;
    let spoilt = |spoil: &dyn Fn(&mut LoadBalancer)| {
        let mut model = served();
        spoil(model.rows.get_mut(&uuid).unwrap());
        is_left(&model)
    };
    assert!(spoilt(&|_| {}));
    assert!(spoilt(&|row| row.protocol = None), "absent is tcp");
    assert!(!spoilt(&|row| row.vips = StrMap::default()));
    assert!(!spoilt(&|row| row.protocol = Some("udp".into())));
    assert!(!spoilt(&|row| row.options = StrMap::default()));
    assert!(!spoilt(&|row| row.selection_fields = ["ip_src"].into_iter().map(Box::from).collect()));
    assert!(!spoilt(&|row| row.external_ids = StrMap::default()));
    assert!(!spoilt(&|row| row.name = "x".into()));
}

#[test]
fn a_row_that_is_gone_or_off_its_router_was_taken() {
    let mut model = served();
    model.places.get_mut(&(Kind::Switch, Uuid::from_u128(2))).unwrap().1.clear();
    assert!(!is_left(&model));
    let mut model = served();
    model.places.remove(&(Kind::Router, Uuid::from_u128(1)));
    assert!(!is_left(&model), "with its router");
    let mut model = served();
    model.rows.clear();
    assert!(!is_left(&model));
}

#[test]
fn what_may_be_a_new_wish_is_taken_for_one() {
    let site = Site { router: "vpc-{namespace}".parse().unwrap(), ..site() };
    assert!(is_as_left(&want(), &site, &served().northbound()), "it is to move");

    let mut model = served();
    model.rows.clear();
    let mut ranged = want();
    ranged.source_ranges = vec!["203.0.113.0/24".parse().unwrap()];
    assert!(is_as_left(&ranged, &site, &model.northbound()), "we take it away where they cannot be enforced");

    let grouped = Site { group: Some("{namespace}-group".parse().unwrap()), ..super::site() };
    let mut waiting = served();
    waiting.carry_out(&plan(&desired(&want(), &grouped), &grouped, &waiting.northbound()));
    assert_ne!(waiting, served());
    assert!(is_as_left(&want(), &grouped, &waiting.northbound()), "its group cannot be used");

    let site = Site { take_over: true, ..site };
    assert!(!is_as_left(&want(), &site, &model.northbound()));
    let theirs = LoadBalancer { name: "shop-web-tcp".into(), ..LoadBalancer::default() };
    model.rows.insert(Uuid::from_u128(7), theirs);
    assert!(is_as_left(&want(), &site, &model.northbound()), "kube-dc's is to be taken over");
}
