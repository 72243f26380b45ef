use serde_json::{Value, json};

use super::*;
use crate::testing::{place, row, served, service, site, slice, update, uuid};
use crate::wanted::wanted;

fn look(nb: &Northbound, ready: &[&str]) -> Vec<(&'static str, bool)> {
    let slice = slice(ready);
    let sight = verify(&wanted(&service("shop", "web"), &[&slice], &site()), nb);
    sight.findings.iter().map(|finding| (finding.kind.label(), finding.sure)).collect()
}

const READY: [&str; 2] = ["10.1.0.42", "10.1.0.41"];

fn after(change: &Value) -> Vec<(&'static str, bool)> {
    let mut nb = served();
    update(&mut nb, change);
    look(&nb, &READY)
}

fn modify(table: &str, n: u128, columns: &Value) -> Value {
    json!({ table: { uuid(n).to_string(): { "modify": columns } } })
}

#[test]
fn what_the_manager_made_is_fine_whatever_the_order_of_its_backends() {
    assert_eq!(look(&served(), &READY), []);
}

#[test]
fn each_change_has_its_kind() {
    let vips = |pairs: &[[&str; 2]]| json!({ "vips": ["map", pairs] });
    let right = ["192.0.2.7:80", "10.1.0.41:8080,10.1.0.42:8080"];
    let member = json!({ "load_balancer": ["uuid", uuid(1)] });
    for (change, expected) in [
        (json!({ "Load_Balancer": { uuid(1).to_string(): { "delete": null } } }), ("row_missing", true)),
        (json!({ "Load_Balancer": { uuid(2).to_string(): row("shop-web-tcp") } }), ("row_duplicate", true)),
        (modify("Load_Balancer", 1, &json!({ "protocol": "udp" })), ("protocol", true)),
        (modify("Load_Balancer", 1, &vips(&[right])), ("vip_missing", true)),
        (modify("Load_Balancer", 1, &vips(&[["192.0.2.7:81", "10.1.0.41:1"]])), ("vip_extra", false)),
        (modify("Load_Balancer", 1, &vips(&[["192.0.2.7:80", "10.1.0.41:8080"]])), ("backends", false)),
        (modify("Logical_Router", 5, &member), ("router_detached", true)),
        (modify("Logical_Switch", 6, &member), ("switch_detached", true)),
        (json!({ "Logical_Router": { uuid(5).to_string(): { "delete": null } } }), ("router_missing", false)),
        (json!({ "Logical_Switch": { uuid(9).to_string(): place("shop-default", &[]) } }), ("switch_ambiguous", false)),
    ] {
        assert_eq!(after(&change), [expected], "{change}");
    }
}

#[test]
fn a_row_on_the_old_router_is_not_on_the_one_that_has_its_name_now() {
    let again = json!({ "Logical_Router": {
        uuid(5).to_string(): { "modify": { "name": "renamed" } },
        uuid(7).to_string(): place("shop", &[]),
    } });
    assert_eq!(after(&again), [("router_detached", true)]);
}

#[test]
fn without_endpoints_kube_dc_may_have_made_nothing_so_nothing_is_sure() {
    let mut nb = served();
    update(&mut nb, &json!({ "Load_Balancer": { uuid(1).to_string(): { "delete": null } } }));
    assert_eq!(look(&nb, &[]), [("row_missing", false)]);
}

#[test]
fn a_project_is_told_by_its_places_or_its_rows() {
    let sight = |nb: &Northbound| {
        let Sight { has_row, has_place, .. } = verify(&wanted(&service("shop", "web"), &[], &site()), nb);
        (has_row, has_place)
    };
    assert_eq!(sight(&served()), (true, true));
    assert_eq!(sight(&Northbound::default()), (false, false));
}
