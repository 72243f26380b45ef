//! When it is refused before anything is touched.

use std::collections::BTreeSet;
use std::time::Duration;

use groundcrew_api::deorbit::{DeorbitSpec, Policies, Policy};
use groundcrew_core::provider::LeftoverClass;

use crate::deorbit::cloud::Sight;
use crate::deorbit::objects::{Claim, Object, Volume};
use crate::deorbit::observe::{Cluster, Life};
use crate::deorbit::preflight::refusals;
use crate::deorbit::targets::{Served, targets};

const DRIVER: &str = "cinder.csi.openstack.org";

fn cluster(going: bool) -> Cluster {
    let object = |namespace: &str, name: &str| Object {
        namespace: namespace.into(),
        name: name.into(),
        terminating: going.then_some(jiff::Timestamp::UNIX_EPOCH),
        ..Object::default()
    };
    let volume = Volume {
        object: Object { terminating: None, ..object("", "pv") },
        driver: DRIVER.into(),
        handle: "1".into(),
        retained: false,
        claim: Some("shop/data".into()),
    };
    let claim = Claim { object: object("shop", "data"), volume: Some("pv".into()), class: None, provisioner: None };
    Cluster { uid: "uid".into(), volumes: vec![volume], claims: vec![claim], ..Cluster::default() }
}

fn refused(cluster: &Cluster) -> Vec<String> {
    refused_with(Policies::default(), cluster)
}

fn refused_with(policies: Policies, cluster: &Cluster) -> Vec<String> {
    let spec = DeorbitSpec { confirm: "uid".into(), policies, ..DeorbitSpec::default() };
    let served = Served { drivers: BTreeSet::from([DRIVER.into()]), classes: BTreeSet::new() };
    let known = BTreeSet::from([LeftoverClass::LoadBalancer, LeftoverClass::Volume]);
    refusals(&spec, cluster, &targets(cluster, &spec, &served), &Sight::default(), &known)
}

#[test]
fn a_cloud_without_the_volume_of_a_living_claim_is_another_cloud() {
    assert!(refused(&cluster(false))[0].contains("--csi-cluster"));
}

#[test]
fn a_cloud_without_the_volume_of_a_claim_that_goes_may_have_removed_it_already() {
    assert_eq!(refused(&cluster(true)), [""; 0]);
}

/// Nobody would do what is waited for, and we may not.
#[test]
fn a_dead_controller_is_told_at_once_unless_we_may_do_its_work() {
    let dead = || Some(Life::Dead(Duration::from_hours(1)));
    let dead = Cluster { volume_controller: dead(), snapshot_controller: dead(), ..cluster(true) };
    let told = refused(&dead);
    assert!(told.len() == 1 && told[0].contains("policies.volumes"), "there are no snapshots: {told:?}");
    let policies = Policies { volumes: Policy::Delete, ..Policies::default() };
    assert_eq!(refused_with(policies, &dead), [""; 0]);
}

#[test]
fn a_cluster_that_somebody_protects_stays() {
    let protected = Cluster { protected: true, ..cluster(true) };
    assert!(refused(&protected)[0].contains("groundcrew.dev/deorbit=keep"));
}
