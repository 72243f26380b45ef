//! When it is refused before anything is touched.

use std::collections::BTreeSet;
use std::time::Duration;

use groundcrew_api::deorbit::{DeorbitSpec, Policies, Policy};
use groundcrew_core::provider::LeftoverClass;

use crate::deorbit::cloud::Sight;
use crate::deorbit::objects::{Claim, Content, Object, Volume};
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
    let known = BTreeSet::from([LeftoverClass::LoadBalancer, LeftoverClass::Volume]);
    refused_by(&spec, cluster, &known)
}

fn refused_by(spec: &DeorbitSpec, cluster: &Cluster, known: &BTreeSet<LeftoverClass>) -> Vec<String> {
    let served = Served { drivers: BTreeSet::from([DRIVER.into()]), classes: BTreeSet::new() };
    refusals(spec, cluster, &targets(cluster, spec, &served), &Sight::default(), known)
}

#[test]
fn a_cloud_without_the_volume_of_a_living_claim_is_another_cloud() {
    assert!(refused(&cluster(false))[0].contains("--csi-cluster"));
}

#[test]
fn a_cloud_without_the_volume_of_a_claim_that_goes_may_have_removed_it_already() {
    assert_eq!(refused(&cluster(true)), [""; 0]);
}

/// What goes already may be stuck, and nobody would see it.
#[test]
fn volumes_and_snapshots_of_cinder_s_want_somebody_who_looks_for_them_also_when_they_go() {
    let spec = DeorbitSpec { confirm: "uid".into(), ..DeorbitSpec::default() };
    let content = Content {
        object: Object::default(),
        driver: DRIVER.into(),
        handle: "2".into(),
        retained: false,
        snapshot: "shop/yesterday".into(),
    };
    let pictured = Cluster { uid: "uid".into(), contents: vec![content], ..Cluster::default() };
    for cluster in [cluster(true), pictured] {
        let told = refused_by(&spec, &cluster, &BTreeSet::from([LeftoverClass::LoadBalancer]));
        assert!(told.len() == 1 && told[0].contains("--csi-cluster"), "{told:?}");
    }
    let foreign = Volume { driver: "nfs.csi.k8s.io".into(), ..cluster(true).volumes.remove(0) };
    let foreign = Cluster { volumes: vec![foreign], ..cluster(true) };
    assert_eq!(refused_by(&spec, &foreign, &BTreeSet::from([LeftoverClass::LoadBalancer])), [""; 0]);
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
