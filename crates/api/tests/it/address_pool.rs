//! What an `AddressPool` may list.

use groundcrew_api::address_pool::{AddressPool, AddressPoolSpec};
use serde_json::{Value, json};

use crate::rules::refusals;

pub(crate) const FORM: &str = "must be a CIDR such as 203.0.113.0/28 or a range such as 203.0.113.10-203.0.113.20";
pub(crate) const EXCLUDED_FORM: &str = "must be an address such as 203.0.113.1, a CIDR such as 203.0.113.0/28 or a range such as 203.0.113.10-203.0.113.20";
pub(crate) const HOST_BITS: &str =
    "must not have bits set behind the prefix length: write the first address of the network, or a range";
pub(crate) const FAMILY: &str = "must be a range within one family, IPv4 or IPv6";
pub(crate) const ORDER: &str = "must be a range that does not end before it starts";

/// Lines that a pool takes.
pub(crate) const GOOD: &[&str] = &[
    "203.0.113.0/28",
    "203.0.113.7/32",
    "2001:db8::/64",
    "2001:db8::7/128",
    "0.0.0.0/0",
    "203.0.113.10-203.0.113.10",
    "203.0.113.9-203.0.113.10",
    "9.255.255.255-10.0.0.0",
    "0.0.0.0-255.255.255.255",
    "127.255.255.255-128.0.0.0",
    "2001:db8::10-2001:db8::1f",
    "2001:db8::ffff-2001:db8::1:0",
    "2001:db8::-2001:db8:0:0:0:0:0:0",
    "::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
];

/// Lines that it refuses, and with which words.
pub(crate) const BAD: &[(&str, &str)] = &[
    ("", FORM),
    ("203.0.113.7", FORM),
    ("203.0.113.0/33", FORM),
    ("203.0.113.300-203.0.113.301", FORM),
    ("203.0.113.010-203.0.113.20", FORM),
    ("203.0.113.10-20", FORM),
    ("203.0.113.10 - 203.0.113.20", FORM),
    ("203.0.113.1-203.0.113.2-203.0.113.3", FORM),
    ("203.0.113.10-", FORM),
    ("203.0.113.0/28-203.0.113.16/28", FORM),
    ("::ffff:203.0.113.1-::ffff:203.0.113.2", FORM),
    ("fe80::1%eth0-fe80::2%eth0", FORM),
    ("203.0.113.5/28", HOST_BITS),
    ("2001:db8::1/64", HOST_BITS),
    ("203.0.113.10-2001:db8::20", FAMILY),
    ("203.0.113.20-203.0.113.10", ORDER),
    ("10.0.0.0-9.255.255.255", ORDER),
    ("128.0.0.0-127.255.255.255", ORDER),
];

pub(crate) fn pool(spec: &Value) -> Value {
    json!({
        "apiVersion": "groundcrew.dev/v1alpha1",
        "kind": "AddressPool",
        "metadata": {"name": "public"},
        "spec": spec,
    })
}

#[test]
fn a_pool_lists_networks_and_ranges_of_either_family() {
    assert_eq!(refusals(&pool(&json!({"addresses": GOOD, "excluded": GOOD}))), [""; 0]);
}

#[test]
fn a_wrong_line_is_named_and_told_what_is_wrong_with_it() {
    for (line, message) in BAD {
        let spec = json!({"addresses": ["203.0.113.0/28", line]});
        assert_eq!(refusals(&pool(&spec)), [format!("spec.addresses[1]: {message}")], "{line}");
    }
}

/// Not what one would wish, but what CEL can do: see the rule.
#[test]
fn a_backward_ipv6_range_is_left_to_the_controller() {
    assert_eq!(refusals(&pool(&json!({"addresses": ["2001:db8::1f-2001:db8::10"]}))), [""; 0]);
}

#[test]
fn a_pool_without_addresses_is_refused() {
    assert_eq!(refusals(&pool(&json!({"addresses": []}))), ["spec.addresses: must have at least one CIDR or range"]);
}

#[test]
fn single_addresses_can_be_excluded() {
    let spec = json!({"addresses": ["203.0.113.0/28"], "excluded": ["203.0.113.1", "2001:db8::1", "nonsense"]});
    assert_eq!(refusals(&pool(&spec)), [format!("spec.excluded[2]: {EXCLUDED_FORM}")]);
}

#[test]
fn a_pool_takes_anybody_and_is_in_use_unless_it_says_otherwise() {
    let read: AddressPool = serde_json::from_value(pool(&json!({"addresses": ["203.0.113.0/28"]}))).unwrap();
    let expected = AddressPoolSpec { addresses: vec!["203.0.113.0/28".into()], ..AddressPoolSpec::default() };
    assert_eq!(read.spec, expected);
    assert!(!read.spec.disabled && read.spec.namespaces.is_empty() && read.spec.priority == 0);
}
