//! What each call sends, and what it makes of the answer.

use std::collections::BTreeMap;

use openstack_client::Kind;
use openstack_client::compute::Reboot;
use openstack_client::network::{AddressPair, Direction, Ethertype, NewRule, PortUpdate, Route};
use serde_json::{Value, json};

use crate::fake::{Cloud, Reply};

fn route(destination: &str, nexthop: &str) -> Route {
    Route { destination: destination.into(), nexthop: nexthop.into() }
}

#[tokio::test]
async fn routes_are_changed_one_by_one_or_all_with_a_guard() {
    let cloud = Cloud::start(|seen| {
        let routes = &seen.body["router"]["routes"];
        Reply::ok(&json!({"router": {"id": "r1", "revision_number": 7, "routes": routes, "tenant_id": "p1", "project_id": "p1"}}))
    })
    .await;
    let client = cloud.client();
    let network = client.network();
    let routes = [route("10.1.0.0/24", "10.0.0.7")];
    assert_eq!(network.add_routes("r1", &routes).await.unwrap().routes, routes);
    assert_eq!(network.remove_routes("r1", &routes).await.unwrap().revision_number, Some(7));
    network.replace_routes("r1", &routes, Some(6)).await.unwrap();
    network.replace_routes("r1", &routes, None).await.unwrap();
    let seen = cloud.seen();
    assert_eq!(
        cloud.lines(),
        [
            "PUT /v2.0/routers/r1/add_extraroutes",
            "PUT /v2.0/routers/r1/remove_extraroutes",
            "PUT /v2.0/routers/r1",
            "PUT /v2.0/routers/r1"
        ]
    );
    assert_eq!(seen[1].body, json!({"router": {"routes": [{"destination": "10.1.0.0/24", "nexthop": "10.0.0.7"}]}}));
    let guards: Vec<_> = seen.iter().map(|seen| seen.header("if-match")).collect();
    assert_eq!(guards, [None, None, Some("revision_number=6"), None]);
}

#[tokio::test]
async fn a_port_is_changed_in_what_was_asked_and_nothing_else() {
    let cloud = Cloud::start(|_| Reply::ok(&json!({"port": {"id": "p1"}}))).await;
    let client = cloud.client();
    let change = PortUpdate { security_groups: Some(vec!["g1".into(), "g2".into()]), ..PortUpdate::default() };
    client.network().update_port("p1", &change, Some(3)).await.unwrap();
    let pairs = vec![AddressPair { ip_address: "10.1.0.0/24".into(), mac_address: None }];
    let change = PortUpdate { allowed_address_pairs: Some(pairs), ..PortUpdate::default() };
    client.network().update_port("p1", &change, None).await.unwrap();
    let seen = cloud.seen();
    assert_eq!(seen[0].body, json!({"port": {"security_groups": ["g1", "g2"]}}));
    assert_eq!(seen[0].header("if-match"), Some("revision_number=3"));
    assert_eq!(seen[1].body, json!({"port": {"allowed_address_pairs": [{"ip_address": "10.1.0.0/24"}]}}));
}

#[tokio::test]
async fn a_rule_that_is_there_already_is_fine() {
    let mut first = true;
    let cloud = Cloud::start(move |seen| {
        if std::mem::take(&mut first) {
            let mut rule = seen.body["security_group_rule"].clone();
            rule["id"] = json!("rule1");
            return Reply::json(201, &json!({"security_group_rule": rule}));
        }
        let fault = json!({"type": "SecurityGroupRuleExists", "message": "Security group rule already exists. Rule id is rule1.", "detail": ""});
        Reply::json(409, &json!({"NeutronError": fault}))
    })
    .await;
    let client = cloud.client();
    let rule = NewRule {
        security_group_id: "g1".into(),
        direction: Direction::Ingress,
        ethertype: Ethertype::IPv4,
        protocol: Some("tcp".into()),
        port_range_min: None,
        port_range_max: None,
        remote_ip_prefix: Some("10.1.0.0/16".into()),
        description: "pods".into(),
    };
    assert_eq!(client.network().create_rule(&rule).await.unwrap().unwrap().id, "rule1");
    assert_eq!(client.network().create_rule(&rule).await.unwrap(), None);
    let expected = json!({"security_group_id": "g1", "direction": "ingress", "ethertype": "IPv4", "protocol": "tcp",
        "remote_ip_prefix": "10.1.0.0/16", "description": "pods"});
    assert_eq!(cloud.seen()[0].body["security_group_rule"], expected);
}

#[tokio::test]
async fn servers_are_rebooted_tagged_and_deleted_by_the_documented_requests() {
    let cloud = Cloud::start(|_| Reply::text(202, "")).await;
    let client = cloud.client();
    let compute = client.compute();
    compute.reboot("s1", Reboot::Soft).await.unwrap();
    compute.reboot("s1", Reboot::Hard).await.unwrap();
    compute.add_security_group("s1", "g1").await.unwrap();
    compute.add_tag("s1", "a/b c").await.unwrap();
    compute.set_metadata("s1", &BTreeMap::from([("k".into(), "v".into())])).await.unwrap();
    compute.delete_server("s1").await.unwrap();
    compute.detach_volume("s1", "v1").await.unwrap();
    let sent: Vec<(String, Value)> = cloud.seen().into_iter().map(|seen| (seen.line, seen.body)).collect();
    let line = |line: &str| line.to_owned();
    assert_eq!(
        sent,
        [
            (line("POST /compute/v2.1/servers/s1/action"), json!({"reboot": {"type": "SOFT"}})),
            (line("POST /compute/v2.1/servers/s1/action"), json!({"reboot": {"type": "HARD"}})),
            (line("POST /compute/v2.1/servers/s1/action"), json!({"addSecurityGroup": {"name": "g1"}})),
            (line("PUT /compute/v2.1/servers/s1/tags/a%2Fb%20c"), Value::Null),
            (line("POST /compute/v2.1/servers/s1/metadata"), json!({"metadata": {"k": "v"}})),
            (line("DELETE /compute/v2.1/servers/s1"), Value::Null),
            (line("DELETE /compute/v2.1/servers/s1/os-volume_attachments/v1"), Value::Null),
        ]
    );
}

#[tokio::test]
async fn load_balancers_and_volumes_are_filtered_and_deleted_by_the_documented_requests() {
    let cloud = Cloud::start(|seen| match seen.line.split(' ').next() {
        Some("DELETE") => Reply::text(204, ""),
        Some("PUT") => {
            Reply::ok(&json!({"loadbalancer": {"id": "l1", "tags": ["x"], "created_at": "2026-01-01T00:00:00"}}))
        }
        _ => Reply::ok(&json!({"loadbalancers": [], "volumes": []})),
    })
    .await;
    let client = cloud.client();
    client.load_balancers().list(&[("tags", "kube_service_a_b_c")]).await.unwrap();
    client.load_balancers().delete_cascade("l1").await.unwrap();
    let tagged = client.load_balancers().replace_tags("l1", &["x".into()]).await.unwrap();
    assert_eq!(tagged.created_at.unwrap().to_string(), "2026-01-01T00:00:00Z");
    client.block_storage().volumes(&[("metadata", r#"{"cinder.csi.openstack.org/cluster":"a"}"#)]).await.unwrap();
    client.block_storage().delete_volume("v1").await.unwrap();
    client.block_storage().delete_snapshot("n1").await.unwrap();
    client.block_storage().delete_backup("b1").await.unwrap();
    assert_eq!(
        cloud.lines(),
        [
            "GET /lb/v2/lbaas/loadbalancers?tags=kube_service_a_b_c",
            "DELETE /lb/v2/lbaas/loadbalancers/l1?cascade=true",
            "PUT /lb/v2/lbaas/loadbalancers/l1",
            "GET /volume/v3/p1/volumes/detail?metadata=%7B%22cinder.csi.openstack.org%2Fcluster%22%3A%22a%22%7D",
            "DELETE /volume/v3/p1/volumes/v1",
            "DELETE /volume/v3/p1/snapshots/n1",
            "DELETE /volume/v3/p1/backups/b1",
        ]
    );
    assert_eq!(cloud.seen()[4].header("openstack-api-version"), Some("volume 3.43"));
}

#[tokio::test]
async fn extensions_and_quota_are_read() {
    let cloud = Cloud::start(|seen| match seen.line.as_str() {
        "GET /v2.0/extensions" => {
            Reply::ok(&json!({"extensions": [{"alias": "extraroute", "name": "x"}, {"alias": "extraroute-atomic"}]}))
        }
        "GET /v2.0/quotas/p1" => Reply::ok(&json!({"quota": {"router_route": 31, "port": -1}})),
        other => panic!("{other}"),
    })
    .await;
    let client = cloud.client();
    let extensions = client.network().extensions().await.unwrap();
    assert!(extensions.atomic_routes() && !extensions.if_match());
    assert_eq!(client.network().quota().await.unwrap().get("router_route"), Some(&31));
}

#[tokio::test]
async fn deleting_what_is_gone_is_fine_and_what_is_busy_is_a_conflict() {
    let cloud = Cloud::start(|seen| {
        let (status, body) = match seen.line.rsplit('/').next().unwrap() {
            "gone" => (404, json!({"itemNotFound": {"code": 404, "message": "Volume gone could not be found."}})),
            "gone?cascade=true" => (404, json!({"faultcode": "Client", "faultstring": "Load Balancer gone not found.", "debuginfo": null})),
            "busy?cascade=true" => (409, json!({"faultcode": "Client", "faultstring": "Invalid state PENDING_CREATE of loadbalancer resource busy"})),
            "used" => (409, json!({"NeutronError": {"type": "SecurityGroupInUse", "message": "Security Group used in use.", "detail": ""}})),
            other => panic!("{other}"),
        };
        Reply::json(status, &body).header("x-openstack-request-id", "req-1")
    })
    .await;
    let client = cloud.client();
    client.block_storage().delete_volume("gone").await.unwrap();
    client.load_balancers().delete_cascade("gone").await.unwrap();
    assert_eq!(client.load_balancers().delete_cascade("busy").await.unwrap_err().kind(), Kind::Conflict);
    let used = client.network().delete_security_group("used").await.unwrap_err();
    assert_eq!(
        (used.kind(), used.code(), used.request_id()),
        (Kind::Conflict, Some("SecurityGroupInUse"), Some("req-1"))
    );
}

#[tokio::test]
async fn without_an_id_nothing_is_sent() {
    let cloud = Cloud::start(|seen| panic!("{}", seen.line)).await;
    let client = cloud.client();
    for id in ["", ".", ".."] {
        assert_eq!(client.network().delete_security_group(id).await.unwrap_err().kind(), Kind::Invalid);
        assert_eq!(client.compute().delete_server(id).await.unwrap_err().kind(), Kind::Invalid);
    }
}
