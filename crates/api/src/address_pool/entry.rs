//! What one line of an AddressPool may say, as rules that the API server checks.
//!
//! The rules are on the items and not on the list, so that a refusal names the line. Each looks at one mistake and passes
//! whatever another rule refuses: a line gets one message.

use kube::core::Rule;
use schemars::{Schema, SchemaGenerator, json_schema};

/// The longest possible line: two IPv6 addresses written out in full, and the dash.
const MAX_LENGTH: usize = 2 * 39 + 1;
/// The API server multiplies the cost of the rules by this, and refuses the definition when the product is too high; with
/// Kubernetes 1.36 that is at about 6600 lines.
const MAX_LINES: usize = 256;

// Not `split`: the API server cannot tell how long the parts of a split are, and takes them for endless.
const FIRST: &str = "self.substring(0, self.indexOf('-'))";
const LAST: &str = "self.substring(self.indexOf('-') + 1)";

/// The schema of `spec.addresses`.
pub(super) fn addresses(_: &mut SchemaGenerator) -> Schema {
    let form = Rule::new(format!("isCIDR(self) || {}", is_range()))
        .message("must be a CIDR such as 203.0.113.0/28 or a range such as 203.0.113.10-203.0.113.20");
    let some = Rule::new("self.size() > 0").message("must have at least one CIDR or range");
    list(&form, &[some])
}

/// The schema of `spec.excluded`, where a single address is fine too.
pub(super) fn excluded(_: &mut SchemaGenerator) -> Schema {
    let form = Rule::new(format!("isIP(self) || isCIDR(self) || {}", is_range())).message(
        "must be an address such as 203.0.113.1, a CIDR such as 203.0.113.0/28 or a range such as 203.0.113.10-203.0.113.20",
    );
    list(&form, &[])
}

fn list(form: &Rule, rules: &[Rule]) -> Schema {
    let mut schema = json_schema!({
        "type": "array",
        "maxItems": MAX_LINES,
        "x-kubernetes-list-type": "set",
        "items": {
            "type": "string",
            "maxLength": MAX_LENGTH,
            "x-kubernetes-validations": [form, no_host_bits(), one_family(), in_order()],
        },
    });
    if !rules.is_empty() {
        schema.insert("x-kubernetes-validations".into(), serde_json::json!(rules));
    }
    schema
}

/// `203.0.113.5/28` may mean one address or sixteen.
fn no_host_bits() -> Rule {
    Rule::new("!isCIDR(self) || cidr(self) == cidr(self).masked()")
        .message("must not have bits set behind the prefix length: write the first address of the network, or a range")
}

fn one_family() -> Rule {
    Rule::new(format!("!({}) || ip({FIRST}).family() == ip({LAST}).family()", is_range()))
        .message("must be a range within one family, IPv4 or IPv6")
}

/// CEL can parse addresses but not order them. Four octets make a number; for IPv6 there is no such way within the cost
/// that a rule may have, so that a backward range of that family is told by the controller, in a condition.
fn in_order() -> Rule {
    let number = |ip: &str| {
        let octet = |n: usize, weight: u32| format!("int({ip}.split('.')[{n}]) * {weight}");
        [octet(0, 1 << 24), octet(1, 1 << 16), octet(2, 1 << 8), octet(3, 1)].join(" + ")
    };
    let is_v4 = |ip: &str| format!("ip({ip}).family() == 4");
    let rule =
        format!("!({} && {} && {}) || {} <= {}", is_range(), is_v4(FIRST), is_v4(LAST), number(FIRST), number(LAST));
    Rule::new(rule).message("must be a range that does not end before it starts")
}

fn is_range() -> String {
    format!("self.contains('-') && isIP({FIRST}) && isIP({LAST})")
}
