use groundcrew_api::deorbit::{DeorbitSpec, KeptVolume, Policies, Policy};
use groundcrew_core::key::ServiceKey;
use groundcrew_core::provider::{Leftover, LeftoverClass, LeftoverKind, User};
use proptest::prelude::*;

use crate::deorbit::judge::{Evidence, Verdict};
use crate::deorbit::objects::{Claim, Content, Object, Service, Snapshot, Volume};
use crate::deorbit::observe::Cluster;

fn now() -> jiff::Timestamp {
    jiff::Timestamp::from_second(100_000).unwrap()
}

fn thing(class: LeftoverClass) -> Leftover {
    Leftover {
        kind: LeftoverKind { name: "thing", class },
        id: "handle".into(),
        name: "thing".into(),
        about: String::new(),
        gib: None,
        users: vec![User::Service(ServiceKey::new("shop", "web"))],
        created: Some(jiff::Timestamp::UNIX_EPOCH),
        doubt: None,
        kept: false,
        command: String::new(),
    }
}

fn object(namespace: &str, name: &str, going: bool) -> Object {
    let terminating = going.then_some(jiff::Timestamp::UNIX_EPOCH);
    Object { namespace: namespace.into(), name: name.into(), terminating, ..Object::default() }
}

fn service(going: bool) -> Service {
    Service {
        object: object("shop", "web", going),
        class: None,
        claimed: None,
        balancer: None,
        keeps_address: false,
        has_address: false,
        gateway: None,
    }
}

fn volume(claim: &str) -> Volume {
    Volume {
        object: object("", "pv", false),
        driver: "d".into(),
        handle: "handle".into(),
        retained: false,
        claim: Some(claim.into()),
    }
}

fn claim(going: bool) -> Claim {
    Claim { object: object("shop", "data", going), volume: Some("pv".into()), class: None, provisioner: None }
}

fn spec(policy: Policy) -> DeorbitSpec {
    let policies = Policies {
        volumes: policy,
        snapshots: policy,
        backups: policy,
        load_balancers: policy,
        floating_ips: policy,
        security_groups: policy,
        routes: policy,
        ..Policies::default()
    };
    DeorbitSpec { policies, ..DeorbitSpec::default() }
}

fn verdict(cluster: &Cluster, kept: &[KeptVolume], leftover: &Leftover) -> Verdict {
    Evidence::new(cluster, &spec(Policy::Delete), kept, &[], now()).judge(leftover)
}

#[test]
fn the_address_of_an_ingress_that_asked_for_it_is_kept_and_not_that_of_a_service_of_its_name() {
    let spec = spec(Policy::Delete);
    let noted = ["Ingress shop/web".to_owned()];
    let judge = |user: User| {
        let address = Leftover { users: vec![user], ..thing(LeftoverClass::FloatingIp) };
        Evidence::new(&Cluster::default(), &spec, &[], &noted, now()).judge(&address)
    };
    let web = || ServiceKey::new("shop", "web");
    assert!(matches!(judge(User::Ingress(web())), Verdict::Keep(why) if why.contains("Ingress shop/web")));
    assert_eq!(judge(User::Service(web())), Verdict::Remove);
}

#[test]
fn what_a_living_service_has_stays_and_what_a_going_one_has_may_go() {
    let with = |service| Cluster { services: vec![service], ..Cluster::default() };
    let balancer = thing(LeftoverClass::LoadBalancer);
    assert!(matches!(verdict(&with(service(false)), &[], &balancer), Verdict::Report(_)));
    assert_eq!(verdict(&with(service(true)), &[], &balancer), Verdict::Remove);
    assert_eq!(verdict(&Cluster::default(), &[], &balancer), Verdict::Remove);
}

/// The label is about the Service and what it has outside, so that the cluster counts as clean with both.
#[test]
fn what_a_service_with_the_label_to_keep_it_has_is_kept_and_not_left() {
    let with = |going: bool| {
        let mut service = service(going);
        service.object.keep = true;
        Cluster { services: vec![service], ..Cluster::default() }
    };
    for class in [LeftoverClass::LoadBalancer, LeftoverClass::FloatingIp, LeftoverClass::SecurityGroup] {
        assert!(matches!(verdict(&with(false), &[], &thing(class)), Verdict::Keep(_)), "{class:?}");
        assert_eq!(verdict(&with(true), &[], &thing(class)), Verdict::Remove, "{class:?}: somebody deletes it");
    }
}

#[test]
fn what_the_service_of_a_gateway_with_the_label_to_keep_it_has_is_kept_too() {
    let with = |keep: bool| {
        let service = Service { gateway: Some("edge/front".into()), ..service(false) };
        let gateway = Object { keep, ..object("edge", "front", false) };
        Cluster { services: vec![service], gateways: vec![gateway], ..Cluster::default() }
    };
    let balancer = thing(LeftoverClass::LoadBalancer);
    assert!(matches!(verdict(&with(true), &[], &balancer), Verdict::Keep(_)));
    assert!(matches!(verdict(&with(false), &[], &balancer), Verdict::Report(_)), "nobody deletes it yet");
}

#[test]
fn the_volume_of_a_living_claim_stays() {
    let with = |claims: Vec<Claim>| Cluster { volumes: vec![volume("shop/data")], claims, ..Cluster::default() };
    let leftover = thing(LeftoverClass::Volume);
    assert!(matches!(verdict(&with(vec![claim(false)]), &[], &leftover), Verdict::Report(_)));
    assert_eq!(verdict(&with(vec![claim(true)]), &[], &leftover), Verdict::Remove);
    assert_eq!(verdict(&with(vec![]), &[], &leftover), Verdict::Remove);
    // Somebody deleted the object, which waits for its claim.
    let mut held = with(vec![claim(false)]);
    held.volumes[0].object.terminating = Some(now());
    assert!(matches!(verdict(&held, &[], &leftover), Verdict::Report(_)));
}

#[test]
fn the_snapshot_and_the_backup_of_a_living_volume_snapshot_stay() {
    let with = |going: bool| Cluster {
        snapshots: vec![Snapshot { object: object("shop", "yesterday", going), claim: None }],
        contents: vec![Content {
            object: object("", "content", false),
            driver: "d".into(),
            handle: "handle".into(),
            retained: false,
            snapshot: "shop/yesterday".into(),
        }],
        ..Cluster::default()
    };
    for class in [LeftoverClass::Snapshot, LeftoverClass::Backup] {
        assert!(matches!(verdict(&with(false), &[], &thing(class)), Verdict::Report(_)), "{class:?}");
        assert_eq!(verdict(&with(true), &[], &thing(class)), Verdict::Remove, "{class:?}");
    }
}

#[test]
fn a_retained_volume_goes_only_by_its_own_policy_and_never_while_its_claim_lives() {
    let kept = [KeptVolume { handle: "handle".into(), why: "Retain".into(), retained: true }];
    let leftover = thing(LeftoverClass::Volume);
    assert_eq!(verdict(&Cluster::default(), &kept, &leftover), Verdict::Report("Retain".into()));
    let mut asked = spec(Policy::Report);
    asked.policies.retained_volumes = Policy::Delete;
    let judge = |cluster: &Cluster| Evidence::new(cluster, &asked, &kept, &[], now()).judge(&leftover);
    assert_eq!(judge(&Cluster::default()), Verdict::Remove);
    let living = Cluster { volumes: vec![volume("shop/data")], claims: vec![claim(false)], ..Cluster::default() };
    assert!(matches!(judge(&living), Verdict::Report(_)));
}

#[test]
fn the_wish_to_keep_is_stronger_than_the_policy_to_delete_what_is_retained() {
    let note = |retained| KeptVolume { handle: "handle".into(), why: "kept".into(), retained };
    let mut asked = spec(Policy::Delete);
    asked.policies.retained_volumes = Policy::Delete;
    for kept in [[note(true), note(false)], [note(false), note(true)]] {
        let cluster = Cluster::default();
        let verdict = Evidence::new(&cluster, &asked, &kept, &[], now()).judge(&thing(LeftoverClass::Volume));
        assert_eq!(verdict, Verdict::Keep("kept".into()));
    }
}

proptest! {
    /// The one promise that everything else serves.
    #[test]
    fn nothing_in_doubt_or_kept_or_not_asked_for_is_ever_removed(
        class in prop::sample::select(vec![
            LeftoverClass::LoadBalancer, LeftoverClass::FloatingIp, LeftoverClass::SecurityGroup,
            LeftoverClass::Snapshot, LeftoverClass::Backup, LeftoverClass::Volume, LeftoverClass::Route,
        ]),
        doubt in any::<bool>(),
        kept in any::<bool>(),
        policy in prop::sample::select(vec![Policy::Delete, Policy::Report, Policy::Keep]),
    ) {
        let leftover = Leftover { doubt: doubt.then(|| "doubt".into()), kept, ..thing(class) };
        let cluster = Cluster::default();
        let verdict = Evidence::new(&cluster, &spec(policy), &[], &[], now()).judge(&leftover);
        prop_assert_eq!(verdict == Verdict::Remove, !doubt && !kept && policy == Policy::Delete);
    }
}
