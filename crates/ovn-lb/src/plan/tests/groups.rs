//! Rows that are attached by way of a load balancer group.

use super::*;

fn grouped() -> Site {
    Site { group: Some("{namespace}-group".parse().unwrap()), ..site() }
}

fn wish() -> Desired {
    desired(&wanted(&owner("shop", "web"), &["192.0.2.7"]), &grouped())
}

fn id(n: u128) -> Uuid {
    Uuid::from_u128(n)
}

/// A project whose router and switch have the group.
fn project() -> Model {
    let mut model = Model::project("shop").place(Kind::Group, 3, "shop-group");
    model.joined = [(id(1), id(3)), (id(2), id(3))].into();
    model
}

fn served() -> Model {
    let mut model = project();
    let first = plan(&wish(), &grouped(), &model.northbound());
    assert_eq!(kinds(&first), ["row_missing", "group_detached"]);
    model.carry_out(&first);
    assert!(plan(&wish(), &grouped(), &model.northbound()).is_empty());
    model
}

fn members(model: &Model, kind: Kind, n: u128) -> usize {
    model.places[&(kind, id(n))].1.len()
}

#[test]
fn a_row_is_in_the_group_and_on_neither_router_nor_switch() {
    let model = served();
    assert_eq!(
        [members(&model, Kind::Router, 1), members(&model, Kind::Switch, 2), members(&model, Kind::Group, 3)],
        [0, 0, 1]
    );
}

#[test]
fn a_row_moves_into_the_group_and_back_in_one_transaction() {
    let mut model = project();
    model.carry_out(&plan(&web(), &site(), &model.northbound()));
    let into = plan(&wish(), &grouped(), &model.northbound());
    assert_eq!(kinds(&into), ["marks", "group_detached", "router_left", "switch_left"]);
    model.carry_out(&into);
    assert_eq!(model, served());
    let back = plan(&web(), &site(), &model.northbound());
    assert_eq!(kinds(&back), ["marks", "router_detached", "switch_detached", "group_left"]);
    model.carry_out(&back);
    assert!(plan(&web(), &site(), &model.northbound()).is_empty());
    assert_eq!(members(&model, Kind::Group, 3), 0);
    assert_eq!(model.rows.values().next().unwrap().external_ids.get(marks::GROUP), None);
}

#[test]
fn what_is_for_some_clients_only_is_attached_by_itself() {
    let mut sticky = wanted(&owner("shop", "web"), &["192.0.2.7"]);
    sticky.affinity = Some(SessionAffinity { seconds: 60 });
    let mut ranged = wanted(&owner("shop", "web"), &["192.0.2.7"]);
    ranged.source_ranges = vec!["203.0.113.0/24".parse().unwrap()];
    for want in [sticky, ranged] {
        let mut model = served();
        let desired = desired(&want, &grouped());
        model.carry_out(&plan(&desired, &grouped(), &model.northbound()));
        assert!(plan(&desired, &grouped(), &model.northbound()).is_empty());
        let counts = [Kind::Router, Kind::Switch, Kind::Group].map(|kind| members(&model, kind, kind as u128 + 1));
        assert_eq!(counts, [1, 1, 0]);
    }
}

#[test]
fn while_the_row_for_clients_inside_cannot_be_made_the_other_stays_in_the_group() {
    let mut model = served();
    let mut want = wanted(&owner("shop", "web"), &["192.0.2.7"]);
    want.affinity = Some(SessionAffinity { seconds: 60 });
    let sticky = desired(&want, &grouped());
    model.places.remove(&(Kind::Router, id(1)));
    model.carry_out(&plan(&sticky, &grouped(), &model.northbound()));
    assert_eq!(members(&model, Kind::Group, 3), 1);
}

#[test]
fn every_way_to_take_a_row_from_its_clients_is_drift_and_mended() {
    type Spoil<'a> = (&'static str, &'a dyn Fn(&mut Model));
    let spoils: [Spoil<'_>; 3] = [
        ("group_detached", &|model| model.places.get_mut(&(Kind::Group, id(3))).unwrap().1.clear()),
        ("router_detached", &|model| model.joined.retain(|(place, _)| *place != id(1))),
        ("switch_detached", &|model| model.joined.retain(|(place, _)| *place != id(2))),
    ];
    for (kind, spoil) in spoils {
        let mut model = served();
        spoil(&mut model);
        let mend = plan(&wish(), &grouped(), &model.northbound());
        assert_eq!(kinds(&mend), [kind]);
        model.carry_out(&mend);
        assert_eq!(model, served());
    }
}

#[test]
fn a_router_made_anew_gets_the_group_back() {
    let mut model = served();
    model.places.remove(&(Kind::Router, id(1)));
    model.joined.remove(&(id(1), id(3)));
    model = model.place(Kind::Router, 9, "shop");
    let mend = plan(&wish(), &grouped(), &model.northbound());
    assert_eq!(
        mend.steps.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["+ load balancer group shop-group on router shop"]
    );
}

#[test]
fn a_group_that_goes_leaves_its_rows_on_router_and_switch() {
    let mut model = served();
    model.places.remove(&(Kind::Group, id(3)));
    model.joined.clear();
    let fallback = plan(&wish(), &grouped(), &model.northbound());
    assert_eq!(kinds(&fallback), ["router_detached", "switch_detached", "group_missing"]);
    model.carry_out(&fallback);
    let fresh = desired(&wanted(&owner("shop", "new"), &["192.0.2.8"]), &grouped());
    assert_eq!(kinds(&plan(&fresh, &grouped(), &model.northbound())), ["group_missing"], "and a new one waits");
}

/// A namespace can be named so that it gives the name of any group.
#[test]
fn a_group_that_was_not_put_on_the_projects_router_and_switch_is_not_used() {
    for left in [(id(1), id(3)), (id(2), id(3))] {
        let mut model = project();
        model.joined.remove(&left);
        let plan = plan(&wish(), &grouped(), &model.northbound());
        assert_eq!((plan.steps.len(), kinds(&plan)), (0, vec!["group_detached"]));
    }
}

#[test]
fn a_group_on_the_router_of_another_project_is_not_used() {
    let mut model = project().place(Kind::Router, 4, "bank");
    model.joined.insert((id(4), id(3)));
    let plan = plan(&wish(), &grouped(), &model.northbound());
    assert_eq!((plan.steps.len(), kinds(&plan)), (0, vec!["group_shared"]));
}

#[test]
fn a_row_leaves_a_group_that_is_put_on_the_router_of_another_project() {
    let mut model = served().place(Kind::Router, 4, "bank");
    model.joined.insert((id(4), id(3)));
    let out = plan(&wish(), &grouped(), &model.northbound());
    model.carry_out(&out);
    let members = |kind, place: u128| &model.places[&(kind, id(place))].1;
    let row = wish().rows[0].uuid;
    assert!(!members(Kind::Group, 3).contains(&row), "{:?}", out.steps);
    assert!(
        members(Kind::Router, 1).contains(&row) && members(Kind::Switch, 2).contains(&row),
        "it is served on its own"
    );
    let again = plan(&wish(), &grouped(), &model.northbound());
    assert_eq!((again.steps.len(), kinds(&again)), (0, vec!["group_shared"]));

    model.joined.remove(&(id(4), id(3)));
    model.carry_out(&plan(&wish(), &grouped(), &model.northbound()));
    assert!(model.places[&(Kind::Group, id(3))].1.contains(&row), "back when the group is the project's own again");
}

#[test]
fn that_somebody_put_a_row_into_a_group_is_no_proof_of_where_the_group_belongs() {
    let mut model = project();
    model.carry_out(&plan(&web(), &site(), &model.northbound()));
    model.joined.clear();
    model.places.get_mut(&(Kind::Group, id(3))).unwrap().1.insert(web().rows[0].uuid);
    for _ in 0..2 {
        let plan = plan(&wish(), &grouped(), &model.northbound());
        assert!(!plan.steps.iter().any(|step| matches!(step, Step::Join { .. })), "{:?}", plan.steps);
        model.carry_out(&plan);
    }
    assert_eq!(model.joined, BTreeSet::new());
}

#[test]
fn a_second_router_of_the_name_takes_no_row_out_of_its_group() {
    let model = served().place(Kind::Router, 9, "shop");
    let plan = plan(&wish(), &grouped(), &model.northbound());
    assert_eq!((plan.steps.len(), kinds(&plan)), (0, vec!["router_ambiguous"]));
}

#[test]
fn while_the_new_router_is_not_there_a_row_stays_in_its_group_whatever_the_flag_says_now() {
    let moved = |group: Option<&str>| Site {
        router: "vpc-{namespace}".parse().unwrap(),
        group: group.map(|group| group.parse().unwrap()),
        ..site()
    };
    for site in [moved(Some("{namespace}-group")), moved(Some("{namespace}-later")), moved(None)] {
        let mut model = served();
        let wish = desired(&wanted(&owner("shop", "web"), &["192.0.2.7"]), &site);
        let waiting = plan(&wish, &site, &model.northbound());
        assert_eq!((waiting.steps.len(), kinds(&waiting)), (0, vec!["router_missing"]));
        model = model.place(Kind::Router, 4, "vpc-shop");
        model.joined.insert((id(4), id(3)));
        model.joined.remove(&(id(1), id(3)));
        for _ in 0..2 {
            model.carry_out(&plan(&wish, &site, &model.northbound()));
        }
        let is_there = |kind, n| nb_is_on(&model, kind, n);
        assert!(is_there(Kind::Router, 4) && is_there(Kind::Switch, 2));
    }
}

#[test]
fn a_row_leaves_the_group_of_an_older_flag_before_the_new_one_is_there() {
    let mut model = served();
    let later = Site { group: Some("{namespace}-later".parse().unwrap()), ..site() };
    let wish = desired(&wanted(&owner("shop", "web"), &["192.0.2.7"]), &later);
    model.carry_out(&plan(&wish, &later, &model.northbound()));
    assert_eq!(
        [Kind::Router, Kind::Switch, Kind::Group].map(|kind| members(&model, kind, kind as u128 + 1)),
        [1, 1, 0]
    );
    assert_eq!(kinds(&plan(&wish, &later, &model.northbound())), ["group_missing"]);
}

fn nb_is_on(model: &Model, kind: Kind, n: u128) -> bool {
    model.northbound().is_on(wish().rows[0].uuid, kind, id(n))
}
