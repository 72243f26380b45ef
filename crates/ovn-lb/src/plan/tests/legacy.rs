//! Rows that kube-dc made.

use std::net::IpAddr;

use super::*;

fn taking_over() -> Site {
    Site { take_over: true, ..site() }
}

/// A row under kube-dc's name for `shop/web`.
fn row(protocol: &str, vips: &[&str], marks: StrMap) -> LoadBalancer {
    LoadBalancer {
        name: format!("shop-web-{protocol}").as_str().into(),
        vips: vips.iter().map(|vip| (*vip, "10.1.0.41:31416")).collect(),
        protocol: Some(protocol.into()),
        external_ids: marks,
        ..LoadBalancer::default()
    }
}

prop_compose! {
    fn rows_of_kube_dc()(udp: bool, wrong: bool, vips in 0usize..4, marks in 0u8..3, id in 300u128..303) -> (Uuid, LoadBalancer) {
        let vips: &[&str] =
            [&["192.0.2.7:80"][..], &["192.0.2.7:443", "192.0.2.7:80"], &["192.0.2.7:80", "192.0.2.8:80"], &["192.0.2.8:80"]][vips];
        let marks: StrMap = match marks {
            0 => StrMap::default(),
            1 => [("vendor", "kube-ovn")].into_iter().collect(),
            _ => [(marks::CLUSTER, "c2")].into_iter().collect(),
        };
        let mut made = row(if udp { "udp" } else { "tcp" }, vips, marks);
        if wrong {
            made.protocol = Some("sctp".into());
        }
        (Uuid::from_u128(id), made)
    }
}

/// Whether kube-dc made it for the Service, and for a protocol that it has.
fn is_of(row: &LoadBalancer, want: &Wanted) -> bool {
    is_kube_dcs(row) && want.frontends.iter().any(|f| f.protocol.to_string() == row.protocol.as_deref().unwrap())
}

/// The same for a protocol that it does not have any more.
fn is_left_of(row: &LoadBalancer, want: &Wanted) -> bool {
    is_kube_dcs(row) && !is_of(row, want)
}

fn is_kube_dcs(row: &LoadBalancer) -> bool {
    let of_service = row.vips.iter().all(|(vip, _)| vip.starts_with("192.0.2.7:"));
    of_service && row.name.ends_with(row.protocol.as_deref().unwrap()) && row.external_ids.get(marks::CLUSTER).is_none()
}

proptest! {
    #[test]
    fn what_is_taken_over_keeps_its_uuid_and_nothing_else_changes(
        want in wishes(), mut model in models(), old in prop::collection::btree_map(0u8..3, rows_of_kube_dc(), 0..3),
    ) {
        model.rows.extend(old.into_values());
        let desired = desired(&want, &taking_over());
        let before = foreign(&model);
        let first = plan(&desired, &taking_over(), &model.northbound());
        model.carry_out(&first);
        for (uuid, row) in &before.rows {
            match model.rows.get(uuid) {
                Some(now) => prop_assert!(now == row || is_of(row, &want), "{row:?} became {now:?}"),
                None => prop_assert!(is_left_of(row, &want), "{row:?} is gone"),
            }
        }
        let second = plan(&desired, &taking_over(), &model.northbound());
        prop_assert_eq!(second.steps, vec![]);
        prop_assert_eq!(second.held, first.held);
    }

    #[test]
    fn unless_asked_for_no_row_of_kube_dc_changes(
        want in wishes(), mut model in models(), old in prop::collection::btree_map(0u8..3, rows_of_kube_dc(), 0..3),
    ) {
        model.rows.extend(old.into_values());
        let before = foreign(&model);
        model.carry_out(&plan(&desired(&want, &site()), &site(), &model.northbound()));
        prop_assert_eq!(foreign(&model), before);
    }
}

#[test]
fn a_row_with_just_our_addresses_is_adopted_in_place() {
    let mut model = Model::project("shop");
    let old = Uuid::from_u128(77);
    model.rows.insert(old, row("tcp", &["192.0.2.7:80"], [("vendor", "kube-ovn")].into_iter().collect()));
    for (_, members) in model.places.values_mut() {
        members.insert(old);
    }
    let places = model.places.clone();
    let plan = plan(&web(), &taking_over(), &model.northbound());
    assert_eq!(plan.steps.len(), 1, "one update: {:?}", plan.steps);
    model.carry_out(&plan);
    assert_eq!(model.places, places, "it is never detached");
    let adopted = &model.rows[&old];
    assert_eq!(*adopted.name, *web().rows[0].name);
    assert_eq!(marks::owner(&adopted.external_ids, "c1").unwrap(), owner("shop", "web"));
}

/// It has no mark, so nobody would ever collect it, and it would answer for ever.
#[test]
fn a_row_for_a_protocol_that_the_service_does_not_have_any_more_goes() {
    let mut model = Model::project("shop");
    model.rows.insert(Uuid::from_u128(5), row("udp", &["192.0.2.7:53"], StrMap::default()));
    model.rows.insert(Uuid::from_u128(6), row("sctp", &["192.0.2.7:99"], StrMap::default()));
    assert!(!kinds(&plan(&web(), &site(), &model.northbound())).contains(&"row_left"), "only if it is asked for");
    let take_over = plan(&web(), &taking_over(), &model.northbound());
    model.carry_out(&take_over);
    assert!(!model.rows.contains_key(&Uuid::from_u128(5)));
    assert!(model.rows.contains_key(&Uuid::from_u128(6)), "kube-dc never made one for SCTP");
    assert!(plan(&web(), &taking_over(), &model.northbound()).is_empty());
}

#[test]
fn of_two_services_with_one_old_name_the_one_with_the_addresses_gets_the_row() {
    let of = |namespace, service, address| {
        let desired = desired(&wanted(&owner(namespace, service), &[address]), &taking_over());
        (legacy_of(&desired), desired)
    };
    let (one, _) = of("shop-web", "api", "192.0.2.7");
    let (other, _) = of("shop", "web-api", "192.0.2.8");
    assert!(matches!(one, Legacy::Ours(..)), "{one:?}");
    assert!(matches!(other, Legacy::Anothers(..)), "{other:?}");
}

fn legacy_of(desired: &Desired) -> Legacy {
    let mut model = Model::default();
    let made = LoadBalancer { name: "shop-web-api-tcp".into(), ..row("tcp", &["192.0.2.7:80"], StrMap::default()) };
    model.rows.insert(Uuid::from_u128(5), made);
    legacy(&desired.rows[0], &desired.owner, &model.northbound())
}

#[test]
fn a_row_with_more_than_our_addresses_is_told_and_not_written() {
    let mut model = Model::project("shop");
    model.rows.insert(Uuid::from_u128(5), row("tcp", &["192.0.2.7:80", "192.0.2.8:80"], StrMap::default()));
    let plan = plan(&web(), &taking_over(), &model.northbound());
    assert_eq!(plan.steps, []);
    assert_eq!(kinds(&plan), ["take_over"]);
}

/// What goes with `shop/web`, which had these addresses; `192.0.2.9` is another Service's.
fn discarded(rows: &[LoadBalancer], had: &[&str]) -> Result<usize, &'static str> {
    let mut model = Model::default();
    model.rows.extend((5u128..).map(Uuid::from_u128).zip(rows.iter().cloned()));
    let had: Vec<IpAddr> = had.iter().map(|address| address.parse().unwrap()).collect();
    let is_anothers = |address: IpAddr| address.to_string() == "192.0.2.9";
    match discard(&owner("shop", "web"), &had, is_anothers, &model.northbound()) {
        Ok(steps) => Ok(steps.len()),
        Err(Error::TakeOverUnclear { .. }) => Err("some of its addresses"),
        Err(Error::LeftUnclear { .. }) => Err("nobody knows"),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn with_a_service_goes_what_has_its_addresses_and_what_may_have_them_is_told() {
    let made = |protocol: &str, vips: &[&str]| row(protocol, vips, StrMap::default());
    let both = [made("tcp", &["192.0.2.7:80"]), made("udp", &["192.0.2.7:53"])];
    assert_eq!(discarded(&both, &["192.0.2.7"]), Ok(2));
    assert_eq!(discarded(&both, &["192.0.2.7", "192.0.2.8"]), Ok(2), "its name stands on another EIp, too");
    assert_eq!(
        discarded(&[made("tcp", &["192.0.2.7:80", "192.0.2.8:80"])], &["192.0.2.7"]),
        Err("some of its addresses")
    );
    assert_eq!(discarded(&[both[0].clone(), both[0].clone()], &["192.0.2.7"]), Err("some of its addresses"));
    assert_eq!(discarded(&[made("tcp", &["192.0.2.8:80"])], &["192.0.2.7"]), Ok(0), "another Service's of that name");
    assert_eq!(discarded(&both, &[]), Err("nobody knows"));
    assert_eq!(discarded(&[made("tcp", &["192.0.2.9:80"])], &[]), Ok(0), "an EIp says that it is another Service's");
    assert_eq!(discarded(&[], &[]), Ok(0));
    let marked = row("tcp", &["192.0.2.7:80"], [(marks::CLUSTER, "c2")].into_iter().collect());
    assert_eq!(discarded(&[marked], &[]), Ok(0), "a cluster of ours has it");
}
