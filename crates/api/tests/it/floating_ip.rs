//! What may be asked of a `FloatingIP`.

use groundcrew_api::floating_ip::{FloatingIP, FloatingIPSpec, Protocol, TrafficPolicy};
use serde_json::{Value, json};

use crate::rules::{refusals, refusals_of_edit};

pub(crate) const FORM: &str =
    "spec.address: must be an address in its shortest form, such as 203.0.113.7 or 2001:db8::7";
pub(crate) const UNICAST: &str =
    "spec.address: must be an address that one host can have: not loopback, link-local, multicast or unspecified";
const NAME: &str = "the name must be the address, with dashes for colons: so no address has two objects";

pub(crate) fn fip(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "groundcrew.dev/v1alpha1", "kind": "FloatingIP", "metadata": {"name": name}, "spec": spec})
}

#[test]
fn an_address_of_either_family_has_one_name() {
    for address in ["203.0.113.7", "10.0.0.1", "2001:db8::7", "2001:db8:0:1::a"] {
        let name = FloatingIP::name_of(address.parse().unwrap());
        assert_eq!(refusals(&fip(&name, &json!({"address": address, "serial": 1}))), [""; 0], "{address}");
    }
    let told = refusals(&fip("web", &json!({"address": "203.0.113.7", "serial": 1})));
    assert!(matches!(&told[..], [told] if told.ends_with(NAME)), "{told:?}");
}

#[test]
fn what_no_host_can_have_is_refused() {
    for (address, message) in [
        ("203.0.113.300", FORM),
        ("203.0.113.7/32", FORM),
        ("2001:DB8::7", FORM),
        ("2001:db8:0:0:0:0:0:7", FORM),
        ("127.0.0.1", UNICAST),
        ("0.0.0.0", UNICAST),
        ("224.0.0.5", UNICAST),
        ("fe80::1", UNICAST),
    ] {
        let name = address.replace(':', "-");
        assert_eq!(refusals(&fip(&name, &json!({"address": address, "serial": 1}))), [message], "{address}");
    }
}

#[test]
fn a_change_of_holder_raises_the_serial_which_never_falls() {
    let spec = |holder: Option<&str>, serial| {
        let mut spec = json!({"address": "203.0.113.7", "serial": serial});
        if let Some(holder) = holder {
            spec["holder"] = holder.into();
        }
        fip("203.0.113.7", &spec)
    };
    let rises = ["spec.serial: serial must rise when holder changes"];
    let held = spec(Some("a"), 4);
    assert_eq!(refusals_of_edit(&held, &spec(Some("b"), 5)), [""; 0]);
    assert_eq!(refusals_of_edit(&held, &spec(None, 5)), [""; 0]);
    assert_eq!(refusals_of_edit(&held, &spec(Some("b"), 4)), rises);
    assert_eq!(refusals_of_edit(&held, &spec(None, 4)), rises);
    assert_eq!(refusals_of_edit(&spec(None, 4), &held), rises);
    assert_eq!(refusals_of_edit(&held, &spec(Some("a"), 3)), ["spec.serial: serial must not fall"]);
}

#[test]
fn an_address_is_never_another_and_a_holder_is_not_evicted() {
    let old = fip("203.0.113.7", &json!({"address": "203.0.113.7", "serial": 1}));
    let new = fip("203.0.113.7", &json!({"address": "203.0.113.8", "serial": 1}));
    assert!(refusals_of_edit(&old, &new).contains(&"spec.address: address is immutable".to_owned()));
    let both = json!({"address": "203.0.113.7", "serial": 1, "holder": "a", "evicted": "a"});
    assert_eq!(refusals(&fip("203.0.113.7", &both)), ["spec: evicted must not be the holder"]);
}

#[test]
fn what_is_left_out_reads_as_nothing() {
    let read: FloatingIP =
        serde_json::from_value(fip("203.0.113.7", &json!({"address": "203.0.113.7", "serial": 1}))).unwrap();
    assert_eq!(read.spec, FloatingIPSpec { address: "203.0.113.7".into(), serial: 1, ..FloatingIPSpec::default() });
    let port = json!({"protocol": "SCTP", "port": 5060});
    let read: FloatingIP =
        serde_json::from_value(fip("203.0.113.7", &json!({"address": "203.0.113.7", "serial": 1, "nat": [port]})))
            .unwrap();
    let port = &read.spec.nat[0];
    assert_eq!((port.protocol, port.external_traffic_policy), (Protocol::Sctp, TrafficPolicy::Cluster));
}
