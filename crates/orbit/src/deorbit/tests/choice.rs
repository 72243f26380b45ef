//! What goes and what stays, and when a stage is given up.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use groundcrew_api::deorbit::{DeorbitSpec, Policies, Policy, StageName};
use k8s_openapi::api::core::v1::PersistentVolume;
use k8s_openapi::api::networking::v1 as networking;
use serde_json::{from_value, json};

use crate::deorbit::cloud::Sight;
use crate::deorbit::judge::Evidence;
use crate::deorbit::objects::{Claim, Content, Ingress, Object, Pod, Service, Snapshot, Volume};
use crate::deorbit::observe::{Cluster, Life};
use crate::deorbit::plan::View;
use crate::deorbit::targets::{Served, targets};

fn served() -> Served {
    Served {
        drivers: BTreeSet::from(["cinder.csi.openstack.org".into(), "kubernetes.io/cinder".into()]),
        classes: BTreeSet::from(["groundcrew.dev/ovn".into()]),
    }
}

fn object(name: &str) -> Object {
    Object { namespace: "shop".into(), name: name.into(), ..Object::default() }
}

fn claim(name: &str, volume: Option<&str>, class: Option<&str>) -> Claim {
    Claim { object: object(name), volume: volume.map(Into::into), class: class.map(Into::into), provisioner: None }
}

/// A volume for the claim of the same name.
fn volume(name: &str, source: &serde_json::Value) -> Volume {
    let mut spec = source.clone();
    spec["persistentVolumeReclaimPolicy"] = json!("Delete");
    spec["claimRef"] = json!({"namespace": "shop", "name": name});
    let volume: PersistentVolume = from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap();
    volume.into()
}

#[test]
fn only_claims_of_our_drivers_go_bound_or_not() {
    let cluster = Cluster {
        volumes: vec![
            volume("csi", &json!({"csi": {"driver": "cinder.csi.openstack.org", "volumeHandle": "1"}})),
            volume("in-tree", &json!({"cinder": {"volumeID": "2"}})),
            volume("nfs-csi", &json!({"csi": {"driver": "nfs.csi.k8s.io", "volumeHandle": "3"}})),
            volume("manila", &json!({"csi": {"driver": "cephfs.manila.csi.openstack.org", "volumeHandle": "4"}})),
            volume("local", &json!({"local": {"path": "/data"}})),
        ],
        claims: vec![
            claim("csi", Some("csi"), None),
            claim("in-tree", Some("in-tree"), None),
            claim("nfs-csi", Some("nfs-csi"), None),
            claim("manila", Some("manila"), None),
            claim("local", Some("local"), None),
            claim("pending", None, Some("cinder")),
            claim("pending-elsewhere", None, Some("nfs")),
            claim("nobodys", None, None),
        ],
        classes: BTreeMap::from([
            ("cinder".into(), "cinder.csi.openstack.org".into()),
            ("nfs".into(), "nfs.csi.k8s.io".into()),
        ]),
        ..Cluster::default()
    };
    let chosen = targets(&cluster, &DeorbitSpec::default(), &served());
    let names: Vec<_> = chosen.claims.iter().map(|claim| claim.object.name.as_str()).collect();
    assert_eq!(names, ["csi", "in-tree", "pending"]);
    let volumes: Vec<_> = chosen.volumes.iter().map(|volume| volume.handle.as_str()).collect();
    assert_eq!(volumes, ["1", "2"]);
}

#[test]
fn a_pod_with_a_volume_of_its_own_goes_and_one_with_another_s_claim_stays() {
    let pod = |name: &str, claim: &str| Pod { object: object(name), claims: vec![claim.to_owned()] };
    let cluster = Cluster {
        claims: vec![claim("own-scratch", None, Some("cinder")), claim("files", None, Some("nfs"))],
        pods: vec![pod("own", "own-scratch"), pod("other", "files")],
        classes: BTreeMap::from([("cinder".into(), "cinder.csi.openstack.org".into())]),
        ..Cluster::default()
    };
    let chosen = targets(&cluster, &DeorbitSpec::default(), &served());
    let names: Vec<_> = chosen.pods.iter().map(|pod| pod.object.name.as_str()).collect();
    assert_eq!(names, ["own"]);
}

fn content(name: &str, snapshot: &str, handle: &str) -> Content {
    Content {
        object: Object { name: name.into(), ..Object::default() },
        driver: "cinder.csi.openstack.org".into(),
        handle: handle.into(),
        retained: false,
        snapshot: format!("shop/{snapshot}"),
    }
}

fn snapshot(name: &str) -> Snapshot {
    Snapshot { object: object(name), claim: None }
}

/// Otherwise the driver removes what somebody asked to keep, as soon as the object is gone that holds it.
#[test]
fn the_label_on_a_volume_or_on_the_content_of_a_snapshot_keeps_the_claim_and_the_snapshot_too() {
    let mut cluster = Cluster {
        volumes: vec![volume("data", &json!({"csi": {"driver": "cinder.csi.openstack.org", "volumeHandle": "1"}}))],
        claims: vec![claim("data", Some("data"), None)],
        snapshots: vec![snapshot("yesterday")],
        contents: vec![content("c", "yesterday", "2")],
        ..Cluster::default()
    };
    let count = |cluster: &Cluster| {
        let chosen = targets(cluster, &DeorbitSpec::default(), &served());
        (chosen.claims.len() + chosen.snapshots.len(), chosen.spared.iter().filter(|one| one.wanted).count())
    };
    assert_eq!(count(&cluster), (2, 0));
    cluster.volumes[0].object.keep = true;
    cluster.contents[0].object.keep = true;
    assert_eq!(count(&cluster), (0, 2));
}

/// Otherwise they would count as kept, and the cluster as clean, after the policy is another.
#[test]
fn what_only_a_policy_keeps_is_not_noted_as_kept_and_what_a_label_or_a_namespace_keeps_is() {
    let mut cluster = Cluster {
        volumes: vec![volume("data", &json!({"csi": {"driver": "cinder.csi.openstack.org", "volumeHandle": "1"}}))],
        claims: vec![claim("data", Some("data"), None)],
        ..Cluster::default()
    };
    let policies = Policies { volumes: Policy::Keep, ..Policies::default() };
    let mut spec = DeorbitSpec { policies, ..DeorbitSpec::default() };
    let noted = |cluster: &Cluster, spec: &DeorbitSpec| {
        let chosen = targets(cluster, spec, &served());
        (chosen.claims.len(), chosen.kept_volumes.len())
    };
    assert_eq!(noted(&cluster, &spec), (0, 0));
    cluster.claims[0].object.keep = true;
    assert_eq!(noted(&cluster, &spec), (0, 1));
    cluster.claims[0].object.keep = false;
    spec.policies.volumes = Policy::Delete;
    assert_eq!(noted(&cluster, &spec), (1, 0));
    spec.protect.namespaces.push("shop".into());
    assert_eq!(noted(&cluster, &spec), (0, 1));
}

#[test]
fn of_two_contents_that_name_one_snapshot_both_are_kept_with_it_and_one_of_another_s_spares_it() {
    let mut kept = snapshot("yesterday");
    kept.object.keep = true;
    let mut cluster = Cluster {
        snapshots: vec![kept],
        contents: vec![content("new", "yesterday", "2"), content("old", "yesterday", "1")],
        ..Cluster::default()
    };
    let chosen = targets(&cluster, &DeorbitSpec::default(), &served());
    let handles: Vec<_> = chosen.kept_volumes.iter().map(|one| one.handle.as_str()).collect();
    assert_eq!(handles, ["2", "1"]);
    cluster.snapshots[0].object.keep = false;
    for foreign in [0, 1] {
        let mut cluster = cluster.clone();
        cluster.contents[foreign].driver = "rbd.csi.ceph.com".into();
        let chosen = targets(&cluster, &DeorbitSpec::default(), &served());
        assert!(chosen.snapshots.is_empty(), "{:?}", chosen.snapshots);
    }
}

fn service(name: &str, class: Option<&str>, claimed: Option<&str>) -> Service {
    let (class, claimed) = (class.map(Into::into), claimed.map(Into::into));
    Service {
        object: object(name),
        class,
        claimed,
        balancer: None,
        keeps_address: false,
        has_address: true,
        gateway: None,
    }
}

#[test]
fn the_services_of_a_gateway_that_stays_stay_wherever_they_are() {
    let read = |name: &str, mut metadata: serde_json::Value| {
        metadata["name"] = json!(name);
        let spec = json!({"type": "LoadBalancer"});
        Service::read(from_value(json!({"metadata": metadata, "spec": spec})).unwrap()).unwrap()
    };
    let owner = |version: &str| json!([{"apiVersion": version, "kind": "Gateway", "name": "front", "uid": "1"}]);
    let envoy = json!({"gateway.envoyproxy.io/owning-gateway-namespace": "shop",
        "gateway.envoyproxy.io/owning-gateway-name": "front"});
    let named = |gateway: &str| json!({"gateway.networking.k8s.io/gateway-name": gateway});
    let services = vec![
        read("labelled", json!({"namespace": "shop", "labels": named("front")})),
        read("owned", json!({"namespace": "shop", "ownerReferences": owner("gateway.networking.k8s.io/v1")})),
        read("envoy", json!({"namespace": "envoy-gateway-system", "labels": envoy})),
        read("of-another", json!({"namespace": "shop", "labels": named("back")})),
        read("elsewhere", json!({"namespace": "other", "labels": named("front")})),
        read("of-another-kind", json!({"namespace": "shop", "ownerReferences": owner("networking.istio.io/v1")})),
    ];
    let kept = Object { keep: true, ..object("front") };
    let cluster = Cluster { services, gateways: vec![kept, object("back")], ..Cluster::default() };
    let chosen = targets(&cluster, &DeorbitSpec::default(), &served());
    let going: Vec<_> = chosen.services.iter().map(|service| service.object.name.as_str()).collect();
    assert_eq!(going, ["of-another", "elsewhere", "of-another-kind"]);
    let labelled = chosen.spared.iter().filter(|spared| spared.wanted && spared.why.contains("its label"));
    assert_eq!(labelled.count(), 4, "{:?}", chosen.spared);
}

#[test]
fn services_that_none_of_the_clouds_serves_stay_and_are_told() {
    let (ovn, sigma) = (Some("groundcrew.dev/ovn"), Some("groundcrew.dev/cloudsigma"));
    let cluster = Cluster {
        services: vec![
            service("classless", None, None),
            service("ovn", ovn, ovn),
            service("sigma", sigma, sigma),
            // Its controller takes those without a class, too.
            service("classless-sigma", None, sigma),
            service("foreign", Some("example.com/lb"), None),
        ],
        ..Cluster::default()
    };
    let chosen = targets(&cluster, &DeorbitSpec::default(), &served());
    let names: Vec<_> = chosen.services.iter().map(|service| service.object.name.as_str()).collect();
    assert_eq!(names, ["classless", "ovn"]);
    assert!(chosen.spared.iter().all(|spared| !spared.wanted) && chosen.spared.len() == 3, "{:?}", chosen.spared);
}

#[test]
fn to_keep_its_address_a_service_of_ours_stays_and_one_of_openstack_s_goes_without_it() {
    let ovn = Some("groundcrew.dev/ovn");
    let cluster =
        Cluster { services: vec![service("classless", None, None), service("ovn", ovn, ovn)], ..Cluster::default() };
    let policies = Policies { floating_ips: Policy::Keep, ..Policies::default() };
    let spec = DeorbitSpec { policies, ..DeorbitSpec::default() };
    let chosen = targets(&cluster, &spec, &served());
    let names: Vec<_> = chosen.services.iter().map(|service| service.object.name.as_str()).collect();
    assert_eq!(names, ["classless"]);
    let kept: Vec<_> = chosen.spared.iter().map(|spared| (spared.key.as_str(), spared.wanted)).collect();
    assert_eq!(kept, [("shop/ovn", true)]);
}

#[test]
fn an_ingress_that_asks_for_its_address_is_noted_before_it_goes() {
    let ingress = |name: &str, note: Option<&str>| -> Ingress {
        let notes = note.map(|note| json!({"octavia.ingress.kubernetes.io/keep-floatingip": note}));
        from_value::<networking::Ingress>(
            json!({"metadata": {"namespace": "shop", "name": name, "annotations": notes}}),
        )
        .unwrap()
        .into()
    };
    let ingresses = vec![ingress("a", Some("true")), ingress("b", Some("false")), ingress("c", None)];
    let cluster = Cluster { ingresses, ..Cluster::default() };
    let chosen = targets(&cluster, &DeorbitSpec::default(), &served());
    assert_eq!((chosen.ingresses.len(), chosen.kept_addresses), (3, vec!["Ingress shop/a".to_owned()]));
}

/// Somebody may change the policy while it runs; what a label keeps stays kept.
#[test]
fn what_a_policy_alone_keeps_is_not_noted_for_the_rest_of_the_run() {
    let mut cluster = Cluster {
        volumes: vec![volume("data", &json!({"csi": {"driver": "cinder.csi.openstack.org", "volumeHandle": "1"}}))],
        claims: vec![claim("data", Some("data"), None)],
        snapshots: vec![snapshot("yesterday")],
        contents: vec![content("c", "yesterday", "2")],
        ..Cluster::default()
    };
    let policies = Policies { volumes: Policy::Keep, snapshots: Policy::Keep, ..Policies::default() };
    let spec = DeorbitSpec { policies, ..DeorbitSpec::default() };
    let chosen = targets(&cluster, &spec, &served());
    assert_eq!((chosen.spared.len(), chosen.kept_volumes.len()), (2, 0), "{:?}", chosen.kept_volumes);
    cluster.claims[0].object.keep = true;
    cluster.snapshots[0].object.keep = true;
    let chosen = targets(&cluster, &spec, &served());
    assert_eq!((chosen.spared.len(), chosen.kept_volumes.len()), (2, 2), "{:?}", chosen.kept_volumes);
}

#[test]
fn what_is_being_deleted_already_is_not_called_kept() {
    let mut going = claim("data", None, Some("cinder"));
    going.object.terminating = Some(jiff::Timestamp::UNIX_EPOCH);
    let cluster = Cluster {
        claims: vec![going],
        classes: BTreeMap::from([("cinder".into(), "cinder.csi.openstack.org".into())]),
        ..Cluster::default()
    };
    let policies = Policies { volumes: Policy::Keep, ..Policies::default() };
    let chosen = targets(&cluster, &DeorbitSpec { policies, ..DeorbitSpec::default() }, &served());
    assert!(chosen.claims.is_empty(), "no pod is deleted for it");
    let [spared] = chosen.spared.as_slice() else { panic!("{:?}", chosen.spared) };
    assert!(!spared.wanted && spared.why.ends_with("being deleted already"), "{spared:?}");
}

/// Otherwise a run would end before it had ordered anything.
#[test]
fn a_dead_controller_is_given_up_only_when_everything_of_its_stage_was_ordered_to_go() {
    let hopeless = |terminating: Option<jiff::Timestamp>| {
        let mut service = service("web", None, None);
        service.object.terminating = terminating;
        let cluster = Cluster {
            services: vec![service],
            balancer_controller: Some(Life::Dead(Duration::from_hours(1))),
            ..Cluster::default()
        };
        let (spec, sight) = (DeorbitSpec::default(), Sight::default());
        let evidence = Evidence::new(&cluster, &spec, &[], &[], jiff::Timestamp::UNIX_EPOCH);
        let view = View::new(&cluster, targets(&cluster, &spec, &served()), &sight, &evidence, true);
        view.work(&spec, &BTreeMap::new())[&StageName::LoadBalancers].hopeless.is_some()
    };
    assert!(!hopeless(None));
    assert!(hopeless(Some(jiff::Timestamp::UNIX_EPOCH)));
}
