//! What may be asked of an `EIp`.

use groundcrew_api::eip::{EIp, EIpOwner, EIpSpec, OwnershipType};
use serde_json::{Value, json};

use crate::rules::{refusals, refusals_of_edit};

const NETWORK_FIXED: &str = "spec.externalNetworkType: externalNetworkType is immutable";
const CHILD_FIXED: &str = "spec.childRef: childRef is immutable";

fn eip(spec: &Value) -> Value {
    json!({"apiVersion": "kube-dc.com/v1", "kind": "EIp", "metadata": {"name": "web"}, "spec": spec})
}

fn without_spec() -> Value {
    json!({"apiVersion": "kube-dc.com/v1", "kind": "EIp", "metadata": {"name": "web"}})
}

#[test]
fn an_eip_asks_for_a_network_or_a_child_or_neither() {
    let accepted = [
        without_spec(),
        eip(&json!({})),
        eip(&json!({"externalNetworkType": "public"})),
        eip(&json!({"externalNetworkType": "whatever-the-operator-calls-it"})),
        eip(&json!({"childRef": "shalb-demo-ext-public"})),
        // kube-dc treats empty as absent.
        eip(&json!({"externalNetworkType": "", "childRef": "shalb-demo-ext-public"})),
    ];
    for object in accepted {
        assert_eq!(refusals(&object), [""; 0], "{object}");
    }
    assert_eq!(
        refusals(&eip(&json!({"externalNetworkType": "public", "childRef": "shalb-demo-ext-public"}))),
        ["spec: externalNetworkType and childRef cannot be set at the same time"]
    );
}

#[test]
fn where_an_address_comes_from_cannot_be_changed_by_any_number_of_edits() {
    let public = eip(&json!({"externalNetworkType": "public"}));
    let child = eip(&json!({"childRef": "shalb-demo-ext-public"}));
    let empty = eip(&json!({}));

    assert_eq!(refusals_of_edit(&public, &eip(&json!({"externalNetworkType": "cloud"}))), [NETWORK_FIXED]);
    assert_eq!(refusals_of_edit(&child, &eip(&json!({"childRef": "another"}))), [CHILD_FIXED]);
    // Taking away and adding again would be a change in two steps.
    assert_eq!(refusals_of_edit(&public, &empty), [NETWORK_FIXED]);
    assert_eq!(refusals_of_edit(&public, &without_spec()), [NETWORK_FIXED]);
    assert_eq!(refusals_of_edit(&empty, &public), [NETWORK_FIXED]);
    assert_eq!(refusals_of_edit(&without_spec(), &child), [CHILD_FIXED]);
    assert_eq!(refusals_of_edit(&public, &child), [NETWORK_FIXED, CHILD_FIXED]);

    assert_eq!(refusals_of_edit(&public, &public), [""; 0]);
    assert_eq!(refusals_of_edit(&empty, &without_spec()), [""; 0]);
    assert_eq!(refusals_of_edit(&empty, &eip(&json!({"externalNetworkType": ""}))), [""; 0]);
}

#[test]
fn an_eip_without_a_spec_can_be_read() {
    let read: EIp = serde_json::from_value(without_spec()).unwrap();
    assert_eq!(read.spec, EIpSpec::default());
    let read: EIp = serde_json::from_value(eip(&Value::Null)).unwrap();
    assert_eq!(read.spec, EIpSpec::default());
}

/// A status as kube-dc's manager leaves it.
#[test]
fn what_kube_dc_wrote_comes_back_unchanged() {
    let written = json!({
        "apiVersion": "kube-dc.com/v1",
        "kind": "EIp",
        "metadata": {
            "name": "slb-etcd-lb-x7k2p",
            "namespace": "shalb-demo",
            "finalizers": ["eip.kube-dc.com/finalizer"],
        },
        "spec": {"externalNetworkType": "public"},
        "status": {
            "ipAddress": "168.119.17.55",
            "ovnEIpRef": "eip-slb-etcd-lb-x7k2p",
            "ownershipType": "Shared",
            "owners": [
                {"type": "ServiceLb", "ownerRef": "etcd-lb"},
                {"type": "SomethingNewer", "ownerRef": "x"},
                {"ownerRef": "untyped"},
            ],
            "deleteReleased": true,
            "ready": true,
            "conditions": [{
                "type": "Ready",
                "status": "True",
                "reason": "Allocated",
                "message": "",
                "lastTransitionTime": "2025-12-02T10:00:00Z",
            }],
        },
    });
    let read: EIp = serde_json::from_value(written.clone()).unwrap();
    let status = read.status.as_ref().unwrap();
    assert_eq!(status.ownership_type, OwnershipType::Shared);
    assert_eq!(status.owners[0].kind, EIpOwner::SERVICE_LB);
    assert_eq!(serde_json::to_value(&read).unwrap(), written);
}

#[test]
fn an_ownership_that_we_do_not_know_can_be_read() {
    let mut object = eip(&json!({}));
    object["status"] = json!({"ovnEIpRef": "", "ownershipType": "Borrowed", "ready": false});
    let read: EIp = serde_json::from_value(object).unwrap();
    assert_eq!(read.status.unwrap().ownership_type, OwnershipType::Unknown);
}
