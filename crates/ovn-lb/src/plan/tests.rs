//! The promises to others as properties, on a model of the tables; then the stories that explain them.

mod groups;
mod left;
mod legacy;
mod model;

use std::collections::{BTreeMap, BTreeSet};

use groundcrew_core::provider::{SessionAffinity, Wanted};
use ovsdb_client::{Set, Touched, Value};
use proptest::prelude::*;
use serde_json::json;

use self::model::*;
use super::*;
use crate::desired::{Check, desired};
use crate::memo::{Known, Memos, Question};
use crate::northbound::{Acl, HealthCheck, PortGroup};
use crate::ranges::{ACTION, DIRECTION, Guard, PRIORITY, guard};
use crate::testing::{frontend, owner, site, wanted};

proptest! {
    #[test]
    fn a_plan_carried_out_leaves_nothing_to_do(want in wishes(), mut model in models(), checked: bool, site in sites()) {
        let desired = desired(&want, &site);
        let desired = if checked { probed(desired) } else { desired };
        let first = plan(&desired, &site, &model.northbound());
        model.carry_out(&first);
        let second = plan(&desired, &site, &model.northbound());
        prop_assert_eq!(second.steps, vec![]);
        prop_assert_eq!(second.held, first.held);
    }

    #[test]
    fn what_was_carried_out_is_recalled_as_it_was_desired(mut want in wishes(), site in sites()) {
        want.source_ranges.clear();
        let site = Site { group: None, ..site };
        let mut model = Model::project("shop");
        let mut desired = desired(&want, &site);
        model.carry_out(&plan(&desired, &site, &model.northbound()));
        let nb = model.northbound();
        prop_assume!(plan(&desired, &site, &nb).is_empty());
        let question = Question {
            uid: want.owner().uid,
            fingerprint: want.fingerprint(),
            router: &desired.router,
            switch: &desired.switch,
            addresses: None,
            nb: &nb,
        };
        let memos = Memos::default();
        let ask = |question: &Question<'_>| memos.ask(question, want.owner(), &site.cluster);
        prop_assert_eq!(ask(&question), Known::Nothing);
        memos.note(&question);
        prop_assert_eq!(ask(&question), Known::Same);
        let gone = desired.rows.iter().map(|row| (row.uuid.to_string(), json!({ "delete": null })));
        let gone = json!({ "Load_Balancer": gone.collect::<serde_json::Map<_, _>>() });
        let mut lost = nb.clone();
        ovsdb_client::apply(&gone.to_string(), &mut lost, &mut Touched::default()).unwrap();
        let question = Question { nb: &lost, ..question };
        desired.rows.sort_by_key(|row| row.uuid);
        if desired.rows.is_empty() {
            prop_assert_eq!(ask(&question), Known::Same);
        } else {
            let Known::Other(mut recalled) = ask(&question) else { panic!("nothing is recalled") };
            recalled.sort_by_key(|row| row.uuid);
            prop_assert_eq!(recalled, desired.rows);
        }
        let edited = Question { fingerprint: question.fingerprint ^ 1, ..question };
        prop_assert_eq!(ask(&edited), Known::Nothing);
    }

    #[test]
    fn what_is_not_ours_never_changes(want in wishes(), mut model in models(), gone: bool, site in sites()) {
        let mut before = foreign(&model);
        let desired = if gone { Desired::nothing(want.owner(), &site) } else { probed(desired(&want, &site)) };
        let plan = plan(&desired, &site, &model.northbound());
        for step in &plan.steps {
            // Where a group belongs is told by a row of ours that is in it.
            if let Step::Join { place, group } = step {
                let (_, members) = &model.places[&(Kind::Group, group.uuid)];
                prop_assert!(members.iter().any(|row| is_ours(*row, &model.rows[row])));
                before.joined.insert((place.uuid, group.uuid));
            }
        }
        model.carry_out(&plan);
        prop_assert_eq!(foreign(&model), before);
    }

    #[test]
    fn a_service_that_is_gone_leaves_nothing(mut model in models()) {
        let desired = Desired::nothing(&owner("shop", "web"), &site());
        let plan = plan(&desired, &site(), &model.northbound());
        prop_assert_eq!(&plan.held, &vec![]);
        model.carry_out(&plan);
        prop_assert!(!model.rows.iter().any(|(uuid, row)| is_ours(*uuid, row)));
        prop_assert_eq!(&model.groups, &foreign(&model).groups);
    }

    #[test]
    fn where_ranges_cannot_be_enforced_there_is_no_row(want in wishes(), mut model in models()) {
        let desired = desired(&want, &site());
        let plan = plan(&desired, &site(), &model.northbound());
        model.carry_out(&plan);
        let served = model.rows.iter().any(|(uuid, row)| is_ours(*uuid, row));
        let mine = model.groups.values().filter(|group| marks::uid(&group.external_ids) == Some(want.owner().uid));
        let guarded = mine.filter(|group| group.external_ids.get(marks::CLUSTER) == Some("c1")).count();
        if served && !want.source_ranges.is_empty() {
            let unguarded = plan.held.iter().any(|held| matches!(held, Held::Unguarded { .. }));
            prop_assert!(guarded == 1 && !unguarded);
        }
        if want.source_ranges.is_empty() {
            prop_assert_eq!(guarded, 0);
        }
    }
}

fn kinds(plan: &Plan) -> Vec<&'static str> {
    plan.differences().into_iter().map(|d| d.kind).collect()
}

fn web() -> Desired {
    desired(&wanted(&owner("shop", "web"), &["192.0.2.7"]), &site())
}

/// A project in which the Service is served.
fn served() -> Model {
    let mut model = Model::project("shop");
    let plan = plan(&web(), &site(), &model.northbound());
    assert_eq!(kinds(&plan), ["row_missing", "router_detached", "switch_detached"]);
    model.carry_out(&plan);
    model
}

#[test]
fn every_way_to_spoil_a_row_has_its_word() {
    let uuid = web().rows[0].uuid;
    let spoilt = |spoil: &dyn Fn(&mut LoadBalancer)| {
        let mut model = served();
        spoil(model.rows.get_mut(&uuid).unwrap());
        kinds(&plan(&web(), &site(), &model.northbound()))
    };
    assert_eq!(spoilt(&|row| row.vips = StrMap::default()), ["vips"]);
    assert_eq!(spoilt(&|row| row.protocol = Some("udp".into())), ["protocol"]);
    assert_eq!(spoilt(&|row| row.protocol = None), Vec::<&str>::new(), "absent is tcp");
    assert_eq!(spoilt(&|row| row.options = StrMap::default()), ["options"]);
    assert_eq!(spoilt(&|row| row.external_ids = StrMap::default()), ["marks"]);
    assert_eq!(spoilt(&|row| row.name = "x".into()), ["name"]);
}

/// In one transaction each: there is no moment without a row on the switch.
#[test]
fn affinity_moves_clients_inside_to_a_row_of_their_own_and_back() {
    let mut model = served();
    let mut want = wanted(&owner("shop", "web"), &["192.0.2.7"]);
    want.affinity = Some(SessionAffinity { seconds: 60 });
    let sticky = desired(&want, &site());
    let on = plan(&sticky, &site(), &model.northbound());
    let shown = |plan: &Plan| plan.steps.iter().map(ToString::to_string).collect::<Vec<_>>();
    let (name, inside) = (&sticky.rows[0].name, &sticky.rows[1].name);
    assert_eq!(
        shown(&on),
        [
            format!("~ load balancer {name}"),
            format!("+ load balancer {inside}"),
            format!("+ {inside} on switch shop-default"),
            format!("- {name} on switch shop-default"),
        ]
    );
    assert_eq!(kinds(&on), ["options", "selection_fields", "row_missing", "switch_detached", "switch_left"]);
    model.carry_out(&on);
    assert!(plan(&sticky, &site(), &model.northbound()).is_empty());

    let mut spoilt = model.clone();
    spoilt.rows.get_mut(&sticky.rows[1].uuid).unwrap().selection_fields = Set::default();
    assert_eq!(kinds(&plan(&sticky, &site(), &spoilt.northbound())), ["selection_fields"]);

    let off = plan(&web(), &site(), &model.northbound());
    assert_eq!(shown(&off)[..2], [format!("~ load balancer {name}"), format!("+ {name} on switch shop-default")]);
    assert!(shown(&off)[2].starts_with(&format!("- load balancer {inside} (")));
    model.carry_out(&off);
    assert_eq!(model, served());
}

#[test]
fn while_the_row_for_clients_inside_cannot_be_made_they_keep_the_other() {
    let mut model = served();
    let mut want = wanted(&owner("shop", "web"), &["192.0.2.7"]);
    want.affinity = Some(SessionAffinity { seconds: 60 });
    let sticky = desired(&want, &site());
    model.places.remove(&(Kind::Router, Uuid::from_u128(1)));
    let plan = plan(&sticky, &site(), &model.northbound());
    assert_eq!(kinds(&plan), ["options", "selection_fields", "router_missing"]);
}

fn ranged() -> Desired {
    let mut want = wanted(&owner("shop", "web"), &["192.0.2.7"]);
    want.source_ranges = vec!["203.0.113.0/24".parse().unwrap()];
    desired(&want, &site())
}

#[test]
fn source_ranges_come_and_go_in_the_transaction_of_the_row_and_every_way_to_spoil_them_is_drift() {
    let mut model = Model::project("shop");
    let first = plan(&ranged(), &site(), &model.northbound());
    assert_eq!(kinds(&first), ["source_ranges", "row_missing", "router_detached", "switch_detached"]);
    model.carry_out(&first);
    assert!(plan(&ranged(), &site(), &model.northbound()).is_empty());
    let (group, acl) = (*model.groups.keys().next().unwrap(), *model.acls.keys().next().unwrap());
    let spoils: [&dyn Fn(&mut Model); 9] = [
        &|model| drop(model.groups.remove(&group)),
        &|model| model.groups.get_mut(&group).unwrap().acls = Set::default(),
        &|model| model.groups.get_mut(&group).unwrap().ports = Set::default(),
        &|model| drop(model.acls.remove(&acl)),
        &|model| model.acls.get_mut(&acl).unwrap().r#match = "0".into(),
        &|model| model.acls.get_mut(&acl).unwrap().priority = 1,
        &|model| model.acls.get_mut(&acl).unwrap().action = "allow".into(),
        &|model| model.acls.get_mut(&acl).unwrap().direction = "to-lport".into(),
        &|model| model.acls.get_mut(&acl).unwrap().options = [("apply-after-lb", "true")].into_iter().collect(),
    ];
    for spoil in spoils {
        let mut wrong = model.clone();
        spoil(&mut wrong);
        let mend = plan(&ranged(), &site(), &wrong.northbound());
        assert_eq!(kinds(&mend), ["source_ranges"]);
        wrong.carry_out(&mend);
        assert_eq!(wrong, model);
    }
    model.carry_out(&plan(&web(), &site(), &model.northbound()));
    assert_eq!(model, served(), "ranges that are taken out leave nothing");
}

#[test]
fn a_service_that_gets_ranges_that_cannot_be_enforced_is_closed() {
    let mut model = served();
    model.peered = true;
    assert!(plan(&web(), &site(), &model.northbound()).is_empty(), "without ranges it is none of our business");
    let closed = plan(&ranged(), &site(), &model.northbound());
    assert_eq!(kinds(&closed), ["row_left", "source_ranges"]);
    model.carry_out(&closed);
    assert!(model.rows.is_empty());
    model.peered = false;
    model.carry_out(&plan(&ranged(), &site(), &model.northbound()));
    assert!(plan(&ranged(), &site(), &model.northbound()).is_empty());
    assert_eq!(model.rows.len(), 1);
}

#[test]
fn every_way_to_spoil_a_health_check_is_drift_and_mended() {
    let desired = probed(web());
    let mut model = Model::project("shop");
    model.carry_out(&plan(&desired, &site(), &model.northbound()));
    assert!(plan(&desired, &site(), &model.northbound()).is_empty());
    let (uuid, check) = (desired.rows[0].uuid, desired.rows[0].checks[0].uuid);
    let spoils: [&dyn Fn(&mut Model); 5] = [
        &|model| model.rows.get_mut(&uuid).unwrap().health_check = Set::default(),
        &|model| model.rows.get_mut(&uuid).unwrap().ip_port_mappings = StrMap::default(),
        &|model| model.checks.get_mut(&check).unwrap().options = StrMap::default(),
        &|model| model.checks.get_mut(&check).unwrap().vip = "192.0.2.9:80".into(),
        &|model| {
            let extra = Uuid::from_u128(9);
            model.checks.insert(extra, HealthCheck::default());
            model.rows.get_mut(&uuid).unwrap().health_check = [check, extra].into_iter().collect();
        },
    ];
    for spoil in spoils {
        let (before, mut wrong) = (model.clone(), model.clone());
        spoil(&mut wrong);
        wrong.collect();
        let mend = plan(&desired, &site(), &wrong.northbound());
        assert_eq!(kinds(&mend), ["health_check"]);
        wrong.carry_out(&mend);
        assert_eq!(wrong, before);
    }
    model.carry_out(&plan(&web(), &site(), &model.northbound()));
    assert_eq!(model, served(), "without the annotation nothing is left of it");
}

#[test]
fn a_router_made_anew_under_its_old_name_is_attached_again() {
    let mut model = served();
    model.places.remove(&(Kind::Router, Uuid::from_u128(1)));
    assert_eq!(kinds(&plan(&web(), &site(), &model.northbound())), ["router_missing"]);
    model = model.place(Kind::Router, 9, "shop");
    assert_eq!(kinds(&plan(&web(), &site(), &model.northbound())), ["router_detached"]);
}

#[test]
fn after_a_restore_the_row_is_known_by_its_marks_and_kept() {
    let mut model = served();
    let row = model.rows.remove(&web().rows[0].uuid).unwrap();
    model.rows.insert(Uuid::from_u128(77), row);
    for (_, members) in model.places.values_mut() {
        *members = BTreeSet::from([Uuid::from_u128(77)]);
    }
    assert!(plan(&web(), &site(), &model.northbound()).is_empty());
}

#[test]
fn of_two_rows_for_one_service_the_second_goes() {
    let mut model = served();
    let row = model.rows[&web().rows[0].uuid].clone();
    model.rows.insert(Uuid::from_u128(1), row);
    let plan = plan(&web(), &site(), &model.northbound());
    assert_eq!(kinds(&plan), ["duplicate"]);
    assert!(plan.steps[0].to_string().ends_with("(00000000-0000-0000-0000-000000000001)"), "{}", plan.steps[0]);
}

#[test]
fn a_row_of_somebody_else_under_our_name_is_told_and_in_nobodys_way() {
    let ours = &web().rows[0];
    let mut model = Model::project("shop");
    let mut row = seen(ours);
    row.external_ids = StrMap::default();
    model.rows.insert(Uuid::from_u128(5), row.clone());
    let plan = plan(&web(), &site(), &model.northbound());
    assert_eq!(kinds(&plan), ["row_missing", "router_detached", "switch_detached"]);
    model.carry_out(&plan);
    assert_eq!(model.rows[&Uuid::from_u128(5)], row);
    assert_eq!(namesake(ours, &site(), &model.northbound()), Some(Uuid::from_u128(5)));
    assert_eq!(namesake(ours, &site(), &served().northbound()), None, "it is its own");
}

#[test]
fn half_a_project_gets_no_row() {
    let model = Model::default().place(Kind::Router, 1, "shop");
    let plan = plan(&web(), &site(), &model.northbound());
    assert_eq!(plan.steps, []);
    assert_eq!(kinds(&plan), ["switch_missing"]);
}

#[test]
fn a_new_router_template_moves_the_row_and_leaves_the_old_router() {
    let mut model = served().place(Kind::Router, 3, "vpc-shop");
    let site = Site { router: "vpc-{namespace}".parse().unwrap(), ..site() };
    let desired = desired(&wanted(&owner("shop", "web"), &["192.0.2.7"]), &site);
    let moved = plan(&desired, &site, &model.northbound());
    let shown: Vec<_> = moved.steps.iter().map(ToString::to_string).collect();
    let name = &desired.rows[0].name;
    assert_eq!(
        shown,
        [format!("~ load balancer {name}"), format!("- {name} on router shop"), format!("+ {name} on router vpc-shop"),]
    );
    model.carry_out(&moved);
    assert!(plan(&desired, &site, &model.northbound()).is_empty());
}

#[test]
fn while_its_new_router_or_switch_is_not_there_a_row_stays_where_it_is_and_what_else_is_wanted_is_done() {
    let there = Model::project("shop");
    let on = |model: &Model, kind, id: u128| model.places[&(kind, Uuid::from_u128(id))].1.len();
    for (kind, held, model) in [
        (Kind::Router, "router_missing", there.clone().place(Kind::Switch, 4, "net-shop")),
        (Kind::Switch, "switch_missing", there.clone().place(Kind::Router, 3, "vpc-shop")),
    ] {
        let mut model = model;
        let site_now =
            Site { router: "vpc-{namespace}".parse().unwrap(), switch: "net-{namespace}".parse().unwrap(), ..site() };
        model.carry_out(&plan(&ranged(), &site(), &model.northbound()));
        let rules = model.groups.clone();
        let mut want = wanted(&owner("shop", "web"), &["192.0.2.7"]);
        want.source_ranges = vec!["203.0.113.0/24".parse().unwrap()];
        let waiting = plan(&desired(&want, &site_now), &site_now, &model.northbound());
        assert_eq!((waiting.steps.len(), kinds(&waiting)), (0, vec![held]));

        want.frontends[0].backends.clear();
        let edited = plan(&desired(&want, &site_now), &site_now, &model.northbound());
        assert_eq!(kinds(&edited), ["vips", held]);
        model.carry_out(&edited);
        assert!(is_as_left(&want, &site_now, &model.northbound()));
        assert_eq!(kinds(&plan(&desired(&want, &site_now), &site_now, &model.northbound())), [held]);
        assert_eq!(model.groups, rules);

        model = match kind {
            Kind::Router => model.place(Kind::Router, 3, "vpc-shop"),
            _ => model.place(Kind::Switch, 4, "net-shop"),
        };
        model.carry_out(&plan(&desired(&want, &site_now), &site_now, &model.northbound()));
        assert!(plan(&desired(&want, &site_now), &site_now, &model.northbound()).is_empty());
        let members = [
            on(&model, Kind::Router, 1),
            on(&model, Kind::Router, 3),
            on(&model, Kind::Switch, 2),
            on(&model, Kind::Switch, 4),
        ];
        assert_eq!(members, [0, 1, 0, 1]);
    }
}

#[test]
fn where_its_old_router_is_gone_as_well_a_row_goes_where_it_can() {
    let mut model = served().place(Kind::Router, 3, "vpc-shop");
    model.places.remove(&(Kind::Switch, Uuid::from_u128(2)));
    let site =
        Site { router: "vpc-{namespace}".parse().unwrap(), switch: "net-{namespace}".parse().unwrap(), ..site() };
    let moving = plan(&desired(&wanted(&owner("shop", "web"), &["192.0.2.7"]), &site), &site, &model.northbound());
    assert_eq!(kinds(&moving), ["marks", "router_left", "router_detached", "switch_missing"]);
}

#[test]
fn while_the_router_is_there_twice_or_not_at_all_source_ranges_are_kept() {
    let mut model = Model::project("shop");
    model.carry_out(&plan(&ranged(), &site(), &model.northbound()));
    let twice = model.clone().place(Kind::Router, 9, "shop");
    let held = |model: &Model| {
        let plan = plan(&ranged(), &site(), &model.northbound());
        (plan.steps.len(), kinds(&plan))
    };
    assert_eq!(held(&twice), (0, vec!["router_ambiguous"]), "those of the router that the row is on");
    let mut renamed = model.clone();
    renamed.places.get_mut(&(Kind::Router, Uuid::from_u128(1))).unwrap().0 = "renamed".into();
    assert_eq!(held(&renamed), (0, vec!["router_missing"]));
    model.places.remove(&(Kind::Router, Uuid::from_u128(1)));
    assert_eq!(held(&model), (0, vec!["router_missing"]));
}

#[test]
fn what_is_marked_as_anothers_is_not_taken_away_for_a_service_of_the_same_uid_that_is_gone() {
    let mut model = Model::project("shop");
    model.carry_out(&plan(&ranged(), &site(), &model.northbound()));
    let forged = Owner { key: groundcrew_core::key::ServiceKey::new("evil", "web"), ..owner("shop", "web") };
    assert!(plan(&Desired::nothing(&forged, &site()), &site(), &model.northbound()).is_empty());
    model.carry_out(&plan(&Desired::nothing(&owner("shop", "web"), &site()), &site(), &model.northbound()));
    assert!(model.rows.is_empty() && model.groups.is_empty());
}

#[test]
fn a_row_of_ours_that_says_it_is_another_clusters_is_told_and_left_alone() {
    let mut model = served();
    let uuid = web().rows[0].uuid;
    let row = model.rows.get_mut(&uuid).unwrap();
    row.external_ids =
        row.external_ids.iter().map(|(k, v)| (k, if k == marks::CLUSTER { "other" } else { v })).collect();
    let plan = plan(&web(), &site(), &model.northbound());
    assert_eq!(plan.steps, []);
    assert!(matches!(&plan.held[..], [Held::Marked { uuid: found, .. }] if *found == uuid), "{:?}", plan.held);
}
