//! kube-ovn's objects as it really writes them.

use std::time::Duration;

use groundcrew_api::kube_ovn::{
    OvnEip, OvnEipApply, OvnEipApplySpec, OvnEipSpec, OvnEipStatus, OvnEipType, Subnet, Vpc, VpcSpec,
};
use groundcrew_testkit::eventually;
use groundcrew_testkit::kube::shared;
use http::Request;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Resource;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::core::ObjectMeta;
use serde_json::{Value, json};

#[test]
fn an_ovn_eip_that_kube_ovn_has_not_looked_at_has_no_address() {
    for status in [json!(null), json!({}), json!({"v4Ip": "", "v6Ip": "", "ready": false, "nat": ""})] {
        let object = json!({
            "metadata": {"name": "eip-web"},
            "spec": {"externalSubnet": "ext-public", "type": "nat", "v4Ip": "", "macAddress": ""},
            "status": status,
        });
        let read: OvnEip = serde_json::from_value(object).unwrap();
        let (external_subnet, kind) = (Some("ext-public".into()), Some("nat".into()));
        assert_eq!(read.spec, OvnEipSpec { external_subnet, kind, ..OvnEipSpec::default() });
        assert_eq!(read.status.unwrap_or_default(), OvnEipStatus::default());
    }
}

#[test]
fn an_assigned_ovn_eip_tells_both_addresses() {
    let object = json!({
        "metadata": {"name": "eip-web"},
        "spec": {"externalSubnet": "ext-public", "type": "nat", "v4Ip": "168.119.17.55", "macAddress": "ae:d6:b9:e1:76:78"},
        "status": {
            "ready": true,
            "v4Ip": "168.119.17.55",
            "v6Ip": "2001:db8::7",
            "macAddress": "ae:d6:b9:e1:76:78",
            "nat": "",
            "type": "nat",
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    });
    let status = serde_json::from_value::<OvnEip>(object).unwrap().status.unwrap();
    assert!(status.ready);
    assert_eq!(status.v4_ip.as_deref(), Some("168.119.17.55"));
    assert_eq!(status.v6_ip.as_deref(), Some("2001:db8::7"));
    assert_eq!(status.nat, None);
}

#[test]
fn we_send_no_field_that_kube_ovn_fills_in() {
    let apply = OvnEipApply::new(
        ObjectMeta { name: Some("eip-web".into()), ..ObjectMeta::default() },
        OvnEipApplySpec { external_subnet: "ext-public".into(), kind: OvnEipType::Nat, v4_ip: None },
    );
    assert_eq!(
        serde_json::to_value(apply).unwrap(),
        json!({
            "apiVersion": "kubeovn.io/v1",
            "kind": "OvnEip",
            "metadata": {"name": "eip-web"},
            "spec": {"externalSubnet": "ext-public", "type": "nat"},
        })
    );
}

/// kube-ovn is played by another field manager, its definition by the part that matters here.
#[tokio::test]
async fn applying_again_leaves_to_kube_ovn_what_it_filled_in() {
    let client = shared().await.unwrap().client().await.unwrap();
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "ovn-eips.kubeovn.io"},
        "spec": {
            "group": "kubeovn.io",
            "scope": "Cluster",
            "names": {"kind": "OvnEip", "plural": "ovn-eips", "singular": "ovn-eip"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
                "subresources": {"status": {}},
            }],
        },
    });
    let crds = Api::<CustomResourceDefinition>::all(client.clone());
    crds.create(&PostParams::default(), &serde_json::from_value(definition).unwrap()).await.unwrap();

    let eips = Api::<OvnEip>::all(client.clone());
    let ours = PatchParams::apply("groundcrew");
    let apply = Patch::Apply(OvnEipApply::new(
        ObjectMeta { name: Some("eip-web".into()), ..ObjectMeta::default() },
        OvnEipApplySpec { external_subnet: "ext-public".into(), kind: OvnEipType::Nat, v4_ip: None },
    ));
    let served = async || eips.patch("eip-web", &ours, &apply).await;
    let made = eventually("OvnEips are served", Duration::from_mins(1), served).await.unwrap();
    assert_eq!((made.spec.external_subnet.as_deref(), made.status), (Some("ext-public"), None));

    let filled_in = json!({"spec": {"v4Ip": "168.119.17.55", "macAddress": "ae:d6:b9:e1:76:78"}});
    eips.patch("eip-web", &PatchParams::default(), &Patch::Merge(&filled_in)).await.unwrap();
    eips.patch("eip-web", &ours, &apply).await.unwrap();

    let stored: Value =
        client.request(Request::get(OvnEip::url_path(&(), None) + "/eip-web").body(vec![]).unwrap()).await.unwrap();
    assert_eq!(stored["spec"]["v4Ip"], filled_in["spec"]["v4Ip"]);
    assert_eq!(stored["spec"]["macAddress"], filled_in["spec"]["macAddress"]);
}

#[test]
fn a_vpc_is_read_with_the_nulls_that_go_leaves() {
    let object = json!({
        "metadata": {"name": "shalb-demo"},
        "spec": {"namespaces": ["shalb-demo"], "bfdPort": null, "staticRoutes": [{"cidr": "0.0.0.0/0"}]},
        "status": {
            "router": "shalb-demo",
            "defaultLogicalSwitch": "",
            "subnets": ["shalb-demo-default"],
            "vpcPeerings": null,
            "extraExternalSubnets": null,
            "tcpLoadBalancer": "vpc-shalb-demo-tcp-load",
        },
    });
    let vpc: Vpc = serde_json::from_value(object).unwrap();
    assert_eq!(vpc.spec.namespaces, ["shalb-demo"]);
    assert!(vpc.spec.policy_routes.is_empty() && !vpc.spec.enable_external);
    let status = vpc.status.unwrap();
    assert_eq!(status.router.as_deref(), Some("shalb-demo"));
    assert_eq!(status.default_logical_switch, None);
    assert_eq!(status.subnets, ["shalb-demo-default"]);
    assert!(status.extra_external_subnets.is_empty());

    let bare: Vpc = serde_json::from_value(json!({"metadata": {"name": "new"}})).unwrap();
    assert_eq!((bare.spec, bare.status), (VpcSpec::default(), None));
}

#[test]
fn policy_routes_of_others_are_written_back_as_they_were_read() {
    let routes = json!([
        {"priority": 30000, "match": "ip4.src == 10.1.0.40", "action": "reroute", "nextHopIP": "168.119.17.49"},
        {"priority": 29000, "match": "ip4", "action": "drop"},
        {"priority": 0, "match": "ip6", "action": "allow", "bfd": {"minRx": 300}},
        {},
    ]);
    let vpc: Vpc =
        serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": {"policyRoutes": routes}})).unwrap();
    assert_eq!(vpc.spec.policy_routes[0].next_hop_ip.as_deref(), Some("168.119.17.49"));
    assert_eq!(serde_json::to_value(&vpc.spec.policy_routes).unwrap(), routes);
}

#[test]
fn a_subnet_is_read_by_its_layout_only() {
    let object = json!({
        "metadata": {"name": "ext-public", "labels": {"network.kube-dc.com/external-network-type": "public"}},
        "spec": {
            "default": false,
            "vpc": "ovn-cluster",
            "protocol": "Dual",
            "cidrBlock": "168.119.17.48/28,2001:db8::/64",
            "gateway": "168.119.17.49,2001:db8::1",
            "excludeIps": ["168.119.17.49", "168.119.17.50..168.119.17.52"],
            "vlan": "vlan4011",
            "enableLb": true,
            "natOutgoing": false,
        },
        // Both forms are out there: a float in 1.14, a big number later.
        "status": {"v4availableIPs": 12.0, "v6availableIPs": "18446744073709551600"},
    });
    let subnet: Subnet = serde_json::from_value(object).unwrap();
    assert_eq!(subnet.spec.cidr_block.as_deref(), Some("168.119.17.48/28,2001:db8::/64"));
    assert_eq!(subnet.spec.vlan.as_deref(), Some("vlan4011"));
    assert_eq!(subnet.spec.exclude_ips.len(), 2);
    assert_eq!(subnet.spec.enable_lb, Some(true));
}

/// The plurals are part of every request, and two of the three are not what one would guess.
#[test]
fn the_paths_are_those_of_kube_ovn() {
    let paths = [OvnEip::url_path(&(), None), Vpc::url_path(&(), None), Subnet::url_path(&(), None)];
    assert_eq!(paths, ["/apis/kubeovn.io/v1/ovn-eips", "/apis/kubeovn.io/v1/vpcs", "/apis/kubeovn.io/v1/subnets"]);
}
