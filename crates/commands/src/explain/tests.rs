//! What each fault looks like, and which hop it breaks first.

use groundcrew_ovn::mark;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use ovsdb_client::{Touched, Uuid};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::facts::Facts;
use super::hops::hops;
use crate::cluster::Unseen;
use crate::finding::{Finding, State};
use crate::ovn::{Northbound, Southbound};

const UID: &str = "00000000-0000-0000-0000-000000000001";
const ROW: u128 = 1;
const ROUTER: u128 = 2;
const SWITCH: u128 = 3;
const PORT: u128 = 4;
const GATEWAY: u128 = 5;

fn now() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

fn object<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn lease(name: &str, seconds_ago: i64, labels: &Value) -> Lease {
    let renewed = now() - SignedDuration::from_secs(seconds_ago);
    object(json!({
        "metadata": { "name": name, "labels": labels },
        "spec": { "holderIdentity": "pod-1", "leaseDurationSeconds": 15, "renewTime": format!("{renewed:.6}") },
    }))
}

fn id(n: u128) -> String {
    Uuid::from_u128(n).to_string()
}

fn refer(n: u128) -> Value {
    json!(["uuid", id(n)])
}

fn tables() -> Value {
    let marks = json!([
        [mark::CLUSTER, "c1"],
        [mark::NAMESPACE, "shop"],
        [mark::SERVICE, "web"],
        [mark::UID, UID],
        [mark::ROUTER, "shop"],
        [mark::SWITCH, "shop-default"]
    ]);
    json!({
        "Load_Balancer": { id(ROW): { "initial": {
            "name": "shop-web-tcp-1a2b3c4d", "vips": ["map", [["192.0.2.7:80", "10.1.0.41:8080"]]],
            "protocol": "tcp", "external_ids": ["map", marks],
        } } },
        "Logical_Router": { id(ROUTER): { "initial": {
            "name": "shop", "load_balancer": refer(ROW), "ports": refer(PORT),
        } } },
        "Logical_Switch": { id(SWITCH): { "initial": { "name": "shop-default", "load_balancer": refer(ROW) } } },
        "Logical_Router_Port": { id(PORT): { "initial": {
            "name": "shop-public", "networks": "192.0.2.1/24", "gateway_chassis": refer(GATEWAY),
        } } },
        "Gateway_Chassis": { id(GATEWAY): { "initial": { "chassis_name": "chassis-1", "priority": 20 } } },
        "NB_Global": { id(9): { "initial": { "nb_cfg": 1, "sb_cfg": 1 } } },
    })
}

fn northbound(tables: &Value) -> Northbound {
    let mut nb = Northbound::default();
    ovsdb_client::apply(&tables.to_string(), &mut nb, &mut Touched::default()).unwrap();
    nb
}

fn service() -> Value {
    json!({
        "metadata": {
            "name": "web", "namespace": "shop", "uid": UID,
            "finalizers": ["service.kubernetes.io/load-balancer-cleanup"],
            "annotations": { "groundcrew.dev/claimed-by": "groundcrew.dev/ovn" },
        },
        "spec": {
            "type": "LoadBalancer", "loadBalancerClass": "groundcrew.dev/ovn", "selector": { "app": "web" },
            "ports": [{ "name": "http", "port": 80, "protocol": "TCP" }],
        },
        "status": { "loadBalancer": { "ingress": [{ "ip": "192.0.2.7" }] } },
    })
}

fn slice(ready: bool) -> Value {
    json!({
        "metadata": { "name": "web-1" }, "addressType": "IPv4",
        "ports": [{ "name": "http", "port": 8080, "protocol": "TCP" }],
        "endpoints": [{
            "addresses": ["10.1.0.41"], "conditions": { "ready": ready }, "nodeName": "node-1",
            "targetRef": { "kind": "Pod", "name": "web-abc" },
        }],
    })
}

fn eip() -> Value {
    json!({
        "metadata": { "name": "slb-web-1", "namespace": "shop", "labels": { "groundcrew.dev/owner-uid": UID } },
        "spec": {},
        "status": { "ipAddress": "192.0.2.7", "ovnEIpRef": "public", "ready": true, "ownershipType": "Shared" },
    })
}

/// A Service that answers.
fn whole() -> Facts {
    Facts {
        now: now(),
        namespace: "shop".into(),
        name: "web".into(),
        service: Ok(Some(object(service()))),
        slices: Ok(vec![object(slice(true))]),
        leases: Ok(vec![lease("groundcrew-ovn-lb", 2, &json!({}))]),
        eips: Ok(vec![object(eip())]),
        pools: Ok(vec![object(json!({ "metadata": { "name": "public" }, "spec": { "addresses": ["192.0.2.0/24"] } }))]),
        ovn_eips: Ok(vec![]),
        floating: Ok(vec![]),
        agents: Ok(vec![]),
        nodes: Ok(vec![]),
        northbound: Some(Ok(northbound(&tables()))),
        northd_behind: false,
        southbound: None,
    }
}

fn with_service(change: impl FnOnce(&mut Value)) -> Facts {
    let mut service = service();
    change(&mut service);
    Facts { service: Ok(Some(object(service))), ..whole() }
}

fn with_tables(change: impl FnOnce(&mut Value)) -> Facts {
    let mut tables = tables();
    change(&mut tables);
    Facts { northbound: Some(Ok(northbound(&tables))), ..whole() }
}

fn first_cross(facts: &Facts) -> Finding {
    let hops = hops(facts);
    hops.iter().find(|hop| hop.state == State::Bad).cloned().unwrap_or_else(|| panic!("nothing is broken: {hops:#?}"))
}

#[track_caller]
fn breaks(facts: &Facts, hop: &str, word: &str) {
    let cross = first_cross(facts);
    assert_eq!(cross.name, hop, "{cross:?}");
    assert!(cross.found.contains(word), "{cross:?}");
    assert!(cross.next.is_some_and(|next| !next.is_empty()));
}

fn unready(reason: &str, message: &str) -> Value {
    json!([{
        "type": "groundcrew.dev/Ready", "status": "False", "reason": reason, "message": message,
        "lastTransitionTime": "2026-01-01T11:00:00Z",
    }])
}

#[test]
fn a_service_that_answers_has_no_cross_and_nothing_unknown() {
    let hops = hops(&whole());
    assert!(hops.iter().all(|hop| hop.state == State::Good), "{hops:#?}");
    let names: Vec<_> = hops.iter().map(|hop| hop.name).collect();
    assert_eq!(
        names,
        [
            "service",
            "class",
            "controller",
            "address",
            "eip",
            "source",
            "row",
            "vips",
            "router",
            "switch",
            "gateway",
            "northd",
            "endpoints",
            "backends"
        ]
    );
}

#[test]
fn faults_of_the_service_itself_come_first() {
    breaks(&Facts { service: Ok(None), ..whole() }, "service", "no Service shop/web");
    breaks(&with_service(|s| s["spec"]["type"] = "ClusterIP".into()), "service", "ClusterIP");
    let deleted = with_service(|s| s["metadata"]["deletionTimestamp"] = "2026-01-01T11:59:00Z".into());
    breaks(&deleted, "service", "load-balancer-cleanup");
    let paused = with_service(|s| s["metadata"]["annotations"]["groundcrew.dev/paused"] = "true".into());
    breaks(&paused, "service", "paused");
    let other = with_service(|s| {
        s["spec"]["loadBalancerClass"] = "example.com/other".into();
        s["metadata"]["annotations"] = json!({});
    });
    breaks(&other, "class", "example.com/other");
}

#[test]
fn a_controller_that_is_gone_is_told_from_one_that_was_never_there() {
    let late = Facts { leases: Ok(vec![lease("groundcrew-ovn-lb", 60, &json!({}))]), ..whole() };
    breaks(&late, "controller", "silent for 60 s");
    let mut unclaimed = with_service(|s| {
        s["metadata"]["finalizers"] = json!([]);
        s["status"] = json!({});
    });
    unclaimed.leases = Ok(vec![]);
    breaks(&unclaimed, "controller", "nobody has claimed");
    let alone = Facts { leases: Ok(vec![]), ..whole() };
    assert!(hops(&alone).iter().all(|hop| hop.state != State::Bad), "without election there is no Lease");
}

#[test]
fn a_pending_service_gives_its_reason_and_the_remedy() {
    let pending = with_service(|s| s["status"] = json!({ "conditions": unready("PoolEmpty", "pool public is empty") }));
    let cross = first_cross(&pending);
    assert_eq!(cross.name, "address");
    assert!(cross.found.contains("pool public is empty (PoolEmpty)"), "{cross:?}");
    assert!(cross.next.unwrap().contains("groundcrew pools"));
}

#[test]
fn faults_of_the_eip_and_its_source_are_told_apart() {
    breaks(&Facts { eips: Ok(vec![]), ..whole() }, "eip", "nothing keeps it from others");
    let with_eip = |change: fn(&mut Value)| {
        let mut eip = eip();
        change(&mut eip);
        Facts { eips: Ok(vec![object(eip)]), ..whole() }
    };
    let unready = with_eip(|e| e["status"]["ready"] = false.into());
    breaks(&unready, "eip", "not ready");
    assert_eq!(first_cross(&unready).next.unwrap(), "kubectl describe eips slb-web-1 -n shop");
    breaks(&with_eip(|e| e["metadata"]["labels"] = json!({})), "eip", "does not name this Service");
    let mut other = with_eip(|e| e["status"]["ovnEIpRef"] = "eip-1".into());
    let ovn_eip = json!({ "metadata": { "name": "eip-1" }, "status": { "ready": true, "v4Ip": "192.0.2.8" } });
    other.ovn_eips = Ok(vec![object(ovn_eip)]);
    breaks(&other, "source", "does not have 192.0.2.7");
}

#[test]
fn faults_in_ovn_are_told_in_the_order_of_the_way() {
    let row = |t: &mut Value| t["Load_Balancer"][id(ROW)]["initial"].clone();
    breaks(&with_tables(|t| t["Load_Balancer"] = json!({})), "row", "no Load_Balancer");
    let rival = with_tables(|t| {
        let mut rival = row(t);
        rival["name"] = "stranger".into();
        rival["external_ids"] = json!(["map", []]);
        t["Load_Balancer"][id(7)] = json!({ "initial": rival });
        t["Logical_Router"][id(ROUTER)]["initial"]["load_balancer"] = json!(["set", [refer(ROW), refer(7)]]);
    });
    breaks(&rival, "row", "stranger");
    let no_vip = with_tables(|t| t["Load_Balancer"][id(ROW)]["initial"]["vips"] = json!(["map", []]));
    breaks(&no_vip, "vips", "no VIP 192.0.2.7:80");
    let no_router = with_tables(|t| t["Logical_Router"][id(ROUTER)]["initial"]["name"] = "other".into());
    breaks(&no_router, "router", "no router shop");
    let off = |table: &str, n| with_tables(|t| t[table][id(n)]["initial"]["load_balancer"] = json!(["set", []]));
    breaks(&off("Logical_Router", ROUTER), "router", "clients outside");
    breaks(&off("Logical_Switch", SWITCH), "switch", "clients inside");
    let port = |key: &str, value: Value| with_tables(|t| t["Logical_Router_Port"][id(PORT)]["initial"][key] = value);
    breaks(&port("networks", json!("198.51.100.1/24")), "gateway", "nobody answers for it");
    breaks(&port("gateway_chassis", json!(["set", []])), "gateway", "no gateway chassis");
    breaks(&Facts { northd_behind: true, ..whole() }, "northd", "does not take");
    let stale = with_tables(|t| {
        t["Load_Balancer"][id(ROW)]["initial"]["vips"] = json!(["map", [["192.0.2.7:80", "10.1.0.99:8080"]]]);
    });
    breaks(&stale, "backends", "10.1.0.99:8080 instead of 10.1.0.41:8080");
}

#[test]
fn a_group_on_router_and_switch_is_as_good_as_being_there_oneself() {
    let grouped = with_tables(|t| {
        t["Load_Balancer_Group"] = json!({ id(8): { "initial": { "name": "all", "load_balancer": refer(ROW) } } });
        for (table, n) in [("Logical_Router", ROUTER), ("Logical_Switch", SWITCH)] {
            t[table][id(n)]["initial"]["load_balancer"] = json!(["set", []]);
            t[table][id(n)]["initial"]["load_balancer_group"] = refer(8);
        }
    });
    assert!(hops(&grouped).iter().all(|hop| hop.state == State::Good), "{:#?}", hops(&grouped));
}

#[test]
fn the_southbound_database_tells_where_the_gateway_is_and_who_answers_probes() {
    let southbound = |chassis: Value, status: &str| {
        let tables = json!({
            "Chassis": { id(20): { "initial": { "name": "chassis-1", "hostname": "gw-1" } } },
            "Port_Binding": { id(21): { "initial": {
                "type": "chassisredirect", "logical_port": "cr-shop-public", "chassis": chassis,
            } } },
            "Service_Monitor": { id(22): { "initial": {
                "ip": "10.1.0.41", "port": 8080, "protocol": "tcp", "status": status,
            } } },
        });
        let mut sb = Southbound::default();
        ovsdb_client::apply(&tables.to_string(), &mut sb, &mut Touched::default()).unwrap();
        Some(Ok(sb))
    };
    let nowhere = Facts { southbound: southbound(json!(["set", []]), "online"), ..whole() };
    breaks(&nowhere, "gateway", "is on no chassis");
    let mut probed = with_service(|s| s["metadata"]["annotations"]["groundcrew.dev/health-check"] = "true".into());
    breaks(&probed, "health checks", "not probed");
    let mut tables = tables();
    tables["Load_Balancer"][id(ROW)]["initial"]["health_check"] = refer(30);
    probed.northbound = Some(Ok(northbound(&tables)));
    probed.southbound = southbound(refer(20), "offline");
    breaks(&probed, "health checks", "10.1.0.41:8080 offline");
    probed.southbound = southbound(refer(20), "online");
    assert!(hops(&probed).iter().all(|hop| hop.state == State::Good));
}

#[test]
fn pods_that_are_not_ready_are_named_and_pods_that_do_not_exist_are_searched_for() {
    let no_backend =
        || with_tables(|t| t["Load_Balancer"][id(ROW)]["initial"]["vips"] = json!(["map", [["192.0.2.7:80", ""]]]));
    let unready = Facts { slices: Ok(vec![object(slice(false))]), ..no_backend() };
    breaks(&unready, "endpoints", "web-abc");
    let none = Facts { slices: Ok(vec![]), ..no_backend() };
    breaks(&none, "endpoints", "app=web");
    let mut misnamed = slice(true);
    misnamed["ports"][0]["name"] = "https".into();
    breaks(&Facts { slices: Ok(vec![object(misnamed)]), ..no_backend() }, "endpoints", "no such port");
}

#[test]
fn what_could_not_be_seen_is_neither_good_nor_bad() {
    let blind = Facts { northbound: None, eips: Err(Unseen("cannot list EIps: forbidden".into())), ..whole() };
    let states: Vec<_> = hops(&blind).iter().filter(|hop| hop.state != State::Good).map(|hop| hop.state).collect();
    assert_eq!(states, [State::Unknown, State::Unknown]);
    let away = Facts { northbound: Some(Err(Unseen("cannot see OVN".into()))), ..whole() };
    assert!(hops(&away).iter().any(|hop| hop.name == "row" && hop.state == State::Unknown));
}

#[test]
fn kube_dcs_own_load_balancers_are_found_by_their_name() {
    let mut facts = with_service(|s| {
        s["spec"]["loadBalancerClass"] = Value::Null;
        s["metadata"]["annotations"] = json!({});
        s["metadata"]["finalizers"] = json!(["service.kube-dc.com/finalizer"]);
    });
    let mut eip = eip();
    eip["metadata"]["labels"] = json!({});
    eip["status"]["owners"] = json!([{ "type": "ServiceLb", "ownerRef": "web" }]);
    facts.eips = Ok(vec![object(eip)]);
    let mut tables = tables();
    tables["Load_Balancer"][id(ROW)]["initial"]["external_ids"] = json!(["map", []]);
    breaks(&Facts { northbound: Some(Ok(northbound(&tables))), ..with_kube_dc(&facts) }, "row", "no Load_Balancer");
    tables["Load_Balancer"][id(ROW)]["initial"]["name"] = "shop-web-tcp".into();
    facts.northbound = Some(Ok(northbound(&tables)));
    assert!(hops(&facts).iter().all(|hop| hop.state != State::Bad), "{:#?}", hops(&facts));
}

/// The same Service and EIp in another OVN.
fn with_kube_dc(facts: &Facts) -> Facts {
    Facts { service: facts.service.clone(), eips: facts.eips.clone(), ..whole() }
}

mod cloudsigma {
    use super::*;

    fn floating() -> Value {
        json!({
            "metadata": { "name": "192.0.2.7" },
            "spec": { "address": "192.0.2.7", "holder": "node-1", "serial": 3, "owner": "shop/web" },
            "status": { "holder": "node-1", "serial": 3, "conditions": [{
                "type": "Ready", "status": "True", "reason": "Held", "message": "",
                "lastTransitionTime": "2026-01-01T11:00:00Z",
            }] },
        })
    }

    fn node(ready: &str) -> Value {
        json!({ "metadata": { "name": "node-1" }, "status": { "conditions": [{ "type": "Ready", "status": ready }] } })
    }

    fn agent(seconds_ago: i64) -> Lease {
        lease("groundcrew-node-node-1", seconds_ago, &json!({ "groundcrew.dev/agent-node": "node-1" }))
    }

    fn held() -> Facts {
        let facts = with_service(|s| {
            s["spec"]["loadBalancerClass"] = "groundcrew.dev/cloudsigma".into();
            s["metadata"]["annotations"]["groundcrew.dev/claimed-by"] = "groundcrew.dev/cloudsigma".into();
        });
        Facts {
            leases: Ok(vec![lease("groundcrew-cloudsigma-ccm", 2, &json!({}))]),
            floating: Ok(vec![object(floating())]),
            agents: Ok(vec![agent(1)]),
            nodes: Ok(vec![object(node("True"))]),
            northbound: None,
            ..facts
        }
    }

    fn with_floating(change: impl FnOnce(&mut Value)) -> Facts {
        let mut floating = floating();
        change(&mut floating);
        Facts { floating: Ok(vec![object(floating)]), ..held() }
    }

    #[test]
    fn an_address_that_its_node_holds_has_no_cross() {
        assert!(hops(&held()).iter().all(|hop| hop.state == State::Good), "{:#?}", hops(&held()));
    }

    #[test]
    fn each_fault_on_the_way_to_the_node_is_told() {
        breaks(&Facts { floating: Ok(vec![]), ..held() }, "floating IP", "no FloatingIP 192.0.2.7");
        breaks(&with_floating(|f| f["spec"]["holder"] = Value::Null), "floating IP", "has no node");
        breaks(&with_floating(|f| f["spec"]["owner"] = "shop/other".into()), "floating IP", "shop/other");
        breaks(&with_floating(|f| f["status"]["holder"] = "node-2".into()), "floating IP", "has not let go");
        breaks(&with_floating(|f| f["status"]["holder"] = Value::Null), "floating IP", "has not taken it");
        breaks(
            &with_floating(|f| f["status"]["conditions"][0]["status"] = "False".into()),
            "floating IP",
            "cannot hold 192.0.2.7",
        );
        breaks(&Facts { agents: Ok(vec![agent(40)]), ..held() }, "agent", "silent for 40 s");
        breaks(&Facts { agents: Ok(vec![]), ..held() }, "agent", "has no agent");
        breaks(&Facts { nodes: Ok(vec![object(node("False"))]), ..held() }, "node", "not ready");
    }

    #[test]
    fn whoever_shares_the_address_has_no_cross_although_the_object_names_another() {
        let shared = with_floating(|f| f["spec"]["owner"] = "shop/other".into());
        let mut service: Value = serde_json::to_value(shared.service.clone().unwrap()).unwrap();
        service["metadata"]["annotations"]["groundcrew.dev/sharing-key"] = "one".into();
        let facts = |floating: Facts| Facts { service: Ok(Some(object(service.clone()))), ..floating };
        let shared = facts(shared);
        assert!(hops(&shared).iter().all(|hop| hop.state == State::Good), "{:#?}", hops(&shared));
        let elsewhere = facts(with_floating(|f| f["spec"]["owner"] = "bank/other".into()));
        breaks(&elsewhere, "floating IP", "bank/other");
    }

    #[test]
    fn a_node_that_cannot_take_the_address_gives_its_reason_and_one_that_was_evicted_has_no_say() {
        let refused = |holder: Value| {
            with_floating(|f| {
                f["spec"]["evicted"] = "node-2".into();
                f["status"]["holder"] = holder;
                f["status"]["conditions"][0]["status"] = "False".into();
                f["status"]["conditions"][0]["reason"] = "LinkDown".into();
                f["status"]["conditions"][0]["message"] = "the interface eth1 has no link".into();
            })
        };
        for holder in [Value::Null, "node-2".into()] {
            let facts = refused(holder);
            breaks(&facts, "floating IP", "the interface eth1 has no link (LinkDown)");
            assert!(first_cross(&facts).next.is_some_and(|next| next.contains("put the node's network right")));
        }
        // That the last holder let go is not why the next one has not taken it.
        let released = with_floating(|f| {
            f["status"]["holder"] = Value::Null;
            f["status"]["conditions"][0]["status"] = "False".into();
            f["status"]["conditions"][0]["reason"] = "Released".into();
        });
        breaks(&released, "floating IP", "has not taken it");
    }

    #[test]
    fn a_local_service_needs_an_endpoint_on_the_node_that_holds_the_address() {
        let mut facts = held();
        let mut service: Value = serde_json::to_value(facts.service.clone().unwrap()).unwrap();
        service["spec"]["externalTrafficPolicy"] = "Local".into();
        facts.service = Ok(Some(object(service)));
        assert!(hops(&facts).iter().all(|hop| hop.state == State::Good));
        let mut elsewhere = slice(true);
        elsewhere["endpoints"][0]["nodeName"] = "node-2".into();
        facts.slices = Ok(vec![object(elsewhere)]);
        breaks(&facts, "local endpoints", "node-1");
    }
}
