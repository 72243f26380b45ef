//! What stands in the way is told, nothing of anybody else's is changed, and it is over when the cause is gone.

use groundcrew_api::address_pool::AddressPool;
use groundcrew_api::names::{annotation, finalizer, label};
use groundcrew_testkit::ovn::Northbound;
use groundcrew_testkit::{Signal, eventually};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::drift::{found, until_found};
use crate::harness::{Project, SOON, get};

#[tokio::test]
async fn while_ovn_is_away_at_the_start_readiness_says_so() {
    let project = Project::new("away").await;
    let mut northbound = project.northbound().await;
    project.pool(8).await;
    project.endpoints("web", 8080, &["10.1.0.41"]).await;
    project.create("web", json!({})).await;
    northbound.stop(0, Signal::SIGKILL).await.unwrap();
    let controller = project.start(&northbound.remotes(), &[]).await;
    let said = eventually("readiness names OVN and the cause", SOON, async || {
        match get(controller.admin, "/readyz").await? {
            (503, why) if why.contains("northbound database") && why.contains("refused") => Ok(why),
            (status, why) => Err(anyhow::anyhow!("{status} {why}")),
        }
    })
    .await
    .unwrap();
    assert!(said.contains(&northbound.tcp(0)), "{said}");
    northbound.restart(0).await.unwrap();
    controller.until_ready().await;
    project.until_served("web").await;
}

#[tokio::test]
async fn a_project_without_router_waits_for_it() {
    let project = Project::new("bare").await;
    let northbound = Northbound::standalone().await.unwrap();
    project.pool(8).await;
    let _controller = project.controller(&northbound).await;
    project.endpoints("web", 8080, &["10.1.0.41"]).await;
    project.create("web", json!({})).await;
    project.until_reason("web", "RouterMissing").await;
    assert_eq!(northbound.nbctl(["lb-list"]).await.unwrap(), "", "no row that nobody can reach");
    northbound.nbctl(["lr-add", &project.namespace]).await.unwrap();
    project.until_reason("web", "SwitchMissing").await;
    northbound.nbctl(["ls-add", &format!("{}-default", project.namespace)]).await.unwrap();
    project.until_served("web").await;
    project.until_reason("web", "Served").await;
}

#[tokio::test]
async fn an_empty_pool_is_told_and_a_freed_or_added_address_is_given() {
    let project = Project::new("empty").await;
    let northbound = project.northbound().await;
    project.pool(1).await;
    let controller = project.start(&northbound.remotes(), &["--address-rest", "1s"]).await;
    controller.until_ready().await;
    project.served("first").await;
    project.create("second", json!({})).await;
    let message = project.until_reason("second", "PoolEmpty").await;
    assert!(message.contains("no IPv4 address is left"), "{message}");
    project.pool(2).await;
    assert_eq!(project.until_served("second").await, project.address(2));
}

#[tokio::test]
async fn an_eip_whose_marks_somebody_took_off_gets_them_back_and_goes_with_its_service() {
    let project = Project::new("unmarked").await;
    let northbound = project.northbound().await;
    project.pool(8).await;
    let controller = project.controller(&northbound).await;
    project.served("web").await;
    let name = project.eip_list().await[0].metadata.name.clone().unwrap();
    let set = async |cluster: Value| {
        let patch = json!({ "metadata": { "labels": { label::CLUSTER: cluster } } });
        project.eips().patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    };
    for cluster in [Value::Null, json!("another")] {
        set(cluster).await;
        eventually("the mark is back", SOON, async || {
            let labels = project.eips().get(&name).await?.metadata.labels.unwrap_or_default();
            anyhow::ensure!(labels.get(label::CLUSTER) == Some(&project.namespace), "{labels:?}");
            Ok(())
        })
        .await
        .unwrap();
    }
    set(Value::Null).await;
    project.delete("web").await;
    assert_eq!(project.eip_list().await.len(), 0);
    controller.stop().await;
}

#[tokio::test]
async fn an_address_on_which_an_orphan_of_ours_answers_is_given_to_nobody_until_it_is_gone() {
    let project = Project::new("stray").await;
    let northbound = project.northbound().await;
    project.pool(1).await;
    let (uid, vip) = (Uuid::from_u128(7).to_string(), format!("{}:80", project.address(1)));
    let orphan = async |vip: &str| {
        northbound.nbctl(["lb-add", "orphan", vip, "10.9.9.9:80"]).await.unwrap();
        let marks = [
            ("groundcrew-cluster", project.namespace.as_str()),
            ("groundcrew-namespace", &project.namespace),
            ("groundcrew-service", "gone"),
            ("groundcrew-uid", &uid),
        ];
        let marks = marks.map(|(key, value)| format!("external_ids:{key}={value}"));
        let set = ["set", "Load_Balancer", "orphan"].into_iter().chain(marks.iter().map(String::as_str));
        northbound.nbctl(set).await.unwrap();
    };
    orphan(&vip).await;
    let controller = project.start(&northbound.remotes(), &["--orphan-age", "1h"]).await;
    controller.until_ready().await;
    project.endpoints("web", 8080, &["10.1.0.41"]).await;
    project.create("web", json!({})).await;
    let message = project.until_reason("web", "PoolEmpty").await;
    assert!(message.contains("whose Service is gone"), "{message}");
    northbound.nbctl(["lb-del", "orphan"]).await.unwrap();
    assert_eq!(project.until_served("web").await, project.address(1));
    // One that comes later is seen as well.
    orphan(&format!("{}:80", project.address(2))).await;
    project.pool(2).await;
    project.create("api", json!({ "loadBalancerIP": project.address(2) })).await;
    let message = project.until_reason("api", "AddressTaken").await;
    assert!(message.contains("whose Service is gone"), "{message}");
    northbound.nbctl(["lb-del", "orphan"]).await.unwrap();
    assert_eq!(project.until_served("api").await, project.address(2));
    controller.stop().await;
}

#[tokio::test]
async fn an_address_of_somebody_else_or_of_no_pool_is_refused() {
    let project = Project::new("taken").await;
    let northbound = project.northbound().await;
    project.pool(8).await;
    let pools: Api<AddressPool> = Api::all(project.client.clone());
    let of_a_type = Patch::Merge(json!({ "spec": { "externalNetworkType": "public" } }));
    pools.patch(&project.namespace, &PatchParams::default(), &of_a_type).await.unwrap();
    let _controller = project.controller(&northbound).await;
    project.create("first", json!({ "loadBalancerIP": project.address(5) })).await;
    assert_eq!(project.until_served("first").await, project.address(5));
    project.create("second", json!({ "loadBalancerIP": project.address(5) })).await;
    let message = project.until_reason("second", "AddressTaken").await;
    assert!(message.contains(&format!("{} is held by EIp slb-first-", project.address(5))), "{message}");
    project.create("third", json!({ "loadBalancerIP": "203.0.113.5" })).await;
    project.until_reason("third", "AddressOutsidePools").await;
    project.create_annotated("fourth", json!({ annotation::EXTERNAL_NETWORK_TYPE: "dmz" }), json!({})).await;
    let message = project.until_reason("fourth", "NoPool").await;
    assert!(message.contains("dmz"), "{message}");
    project.delete("first").await;
}

#[tokio::test]
async fn where_source_ranges_cannot_be_enforced_a_service_is_closed_not_open() {
    let project = Project::new("ranges").await;
    let northbound = project.northbound().await;
    project.pool(8).await;
    // What we take away ourselves is nobody's drift, not even where drift is only told.
    let controller = project.start(&northbound.remotes(), &["--report-only"]).await;
    controller.until_ready().await;
    let router = project.namespace.as_str();
    // A cable to another router without a switch on the way: there is no place for a rule.
    let cable = ["lrp-add", router, "cable", "0a:00:00:00:00:01", "10.1.0.1/16", "peer=another"];
    northbound.nbctl(cable).await.unwrap();
    project.served("web").await;
    let ranges = json!({ "spec": { "loadBalancerSourceRanges": ["203.0.113.0/24"] } });
    project.services().patch("web", &PatchParams::default(), &Patch::Merge(&ranges)).await.unwrap();
    let message = project.until_reason("web", "SourceRangesUnenforceable").await;
    assert!(message.contains("cable") && message.contains(router), "{message}");
    assert_eq!(northbound.nbctl(["lb-list"]).await.unwrap(), "", "what was open to everybody is closed");

    let none = json!({ "spec": { "loadBalancerSourceRanges": null } });
    project.services().patch("web", &PatchParams::default(), &Patch::Merge(none)).await.unwrap();
    project.until_reason("web", "Served").await;
    project.services().patch("web", &PatchParams::default(), &Patch::Merge(&ranges)).await.unwrap();
    project.until_reason("web", "SourceRangesUnenforceable").await;
    northbound.nbctl(["clear", "Logical_Router_Port", "cable", "peer"]).await.unwrap();
    project.until_reason("web", "Served").await;
    project.until_nbctl(&northbound, &["lr-lb-list", router], "it is back", |said| !said.is_empty()).await;
    let rules = northbound.nbctl(["--bare", "--columns=match", "list", "ACL"]).await.unwrap();
    assert!(rules.contains("tcp.dst == {80}"), "{rules}");
    northbound.nbctl(["lr-lb-del", router]).await.unwrap();
    until_found(&controller, "router_detached", 1).await;
    assert_eq!(found(&controller, "row_missing").await, 0);
    controller.stop().await;
}

#[tokio::test]
async fn a_row_without_a_service_is_collected_and_a_foreign_one_is_not() {
    let project = Project::new("orphans").await;
    let northbound = project.northbound().await;
    project.pool(8).await;
    let controller = project.controller(&northbound).await;
    project.served("web").await;
    controller.stop().await;

    // What a Service would leave whose namespace was purged from the database of the cluster.
    let mark = |key: &str, value: &str| format!("external_ids:groundcrew-{key}={value}");
    let marks = [
        mark("cluster", &project.namespace),
        mark("namespace", &project.namespace),
        mark("service", "gone"),
        mark("uid", "8f14e45f-ceea-467f-a0e6-1d2c3b4a5968"),
    ];
    let orphan = ["lb-add", "orphan", "203.0.113.1:80", "10.9.9.9:80", "--", "set", "load_balancer", "orphan"];
    northbound.nbctl(orphan.iter().copied().chain(marks.iter().map(String::as_str))).await.unwrap();
    // Another cluster's mark, and none at all.
    let other = mark("cluster", "another");
    let others = ["lb-add", "theirs", "203.0.113.2:80", "10.9.9.9:80", "--", "set", "load_balancer", "theirs", &other];
    northbound.nbctl(others).await.unwrap();
    northbound.nbctl(["lb-add", "plain", "203.0.113.3:80", "10.9.9.9:80"]).await.unwrap();

    let flags = ["--scan-interval", "500ms", "--orphan-age", "1s"];
    let controller = project.start(&northbound.remotes(), &flags).await;
    controller.until_ready().await;
    let list = ["--bare", "--columns=name", "list", "Load_Balancer"];
    let left = project.until_nbctl(&northbound, &list, "the orphan is gone", |said| !said.contains("orphan\n")).await;
    assert_eq!(left.split_whitespace().count(), 3, "{left}");
    project.until_reason("web", "Served").await;
}

#[tokio::test]
async fn an_eip_of_ours_without_a_service_is_collected_and_too_many_orphans_are_not() {
    let project = Project::new("left-eip").await;
    let northbound = project.northbound().await;
    project.pool(8).await;
    let orphan = |name: &str, uid: u128| {
        let uid = uuid::Uuid::from_u128(uid).to_string();
        let owner = format!("{}/{name}", project.namespace);
        json!({
            "apiVersion": "kube-dc.com/v1", "kind": "EIp", "spec": {},
            "metadata": {
                "name": format!("slb-{name}-00000000"), "finalizers": [finalizer::EIP],
                "labels": { label::CLUSTER: project.namespace, label::OWNER_UID: uid },
                "annotations": { annotation::OWNER: owner },
            },
        })
    };
    let leave = async |name: &str, uid: u128, last: u8| {
        let eip = serde_json::from_value(orphan(name, uid)).unwrap();
        let made = project.eips().create(&PostParams::default(), &eip).await.unwrap();
        let status = json!({ "status": {
            "ipAddress": project.address(last), "ovnEIpRef": project.namespace, "ownershipType": "Shared",
            "owners": [{ "type": "ServiceLb", "ownerRef": name }], "deleteReleased": true, "ready": true,
        } });
        let name = made.metadata.name.unwrap();
        project.eips().patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    };
    leave("one", 1, 1).await;
    leave("two", 2, 2).await;
    project.endpoints("web", 8080, &["10.1.0.41"]).await;
    project.create("web", json!({})).await;
    let flags = ["--scan-interval", "200ms", "--orphan-age", "300ms", "--orphan-limit", "1"];
    let controller = project.start(&northbound.remotes(), &flags).await;
    controller.until_ready().await;
    project.until_served("web").await;
    let scans = async || controller.metric("groundcrew_service_full_scans_total").await;
    eventually("the brake holds", SOON, async || {
        let braked = controller.metric("groundcrew_service_orphans_braked").await;
        if braked > 1.5 { Ok(()) } else { Err(braked) }
    })
    .await
    .unwrap();
    let until = scans().await + 3.0;
    eventually("it goes on holding", SOON, async || {
        let now = scans().await;
        if now >= until { Ok(()) } else { Err(now) }
    })
    .await
    .unwrap();
    assert_eq!(project.eip_list().await.len(), 3, "two at once are too many");
    controller.stop().await;

    // What a tenant can write himself counts for nothing: no address, no user, and a Service that never was.
    for n in 3..7 {
        let mut forged = orphan("ghost", n);
        (forged["metadata"]["name"], forged["metadata"]["finalizers"]) = (format!("forged-{n}").into(), json!([]));
        project.eips().create(&PostParams::default(), &serde_json::from_value(forged).unwrap()).await.unwrap();
    }
    let flags = ["--scan-interval", "200ms", "--orphan-age", "300ms", "--orphan-limit", "2"];
    let _controller = project.start(&northbound.remotes(), &flags).await;
    eventually("those of nobody are gone", SOON, async || {
        let left: Vec<_> = project.eip_list().await.into_iter().filter_map(|eip| eip.metadata.name).collect();
        if matches!(&left[..], [only] if only.starts_with("slb-web-")) { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await
    .unwrap();
    project.until_reason("web", "Served").await;
}

#[tokio::test]
async fn a_router_that_sends_replies_out_by_another_network_is_told_until_it_has_a_policy_for_them() {
    let project = Project::new("ways").await;
    let northbound = project.northbound().await;
    project.pool(8).await;
    let (router, first) = (project.namespace.as_str(), project.address(254));
    let port = |name: &str, address: &str| {
        let (mac, chassis) = ("0a:00:00:00:00:01", "gw");
        format!("lrp-add {router} {name} {mac} {address} -- lrp-set-gateway-chassis {name} {chassis}")
    };
    let inside = format!("lrp-add {router} inside 0a:00:00:00:00:02 10.1.0.1/16");
    let (one, other) = (port("one", "203.0.113.1/24"), port("other", &format!("{first}/24")));
    let route = format!("lr-route-add {router} 0.0.0.0/0 203.0.113.254");
    let ports = format!("{inside} -- {one} -- {other} -- {route}");
    northbound.nbctl(ports.split_whitespace()).await.unwrap();
    let _controller = project.controller(&northbound).await;
    project.served("web").await;
    let message = project.until_reason("web", "ReturnRouteMissing").await;
    assert!(message.contains("\"ip4.src == 10.1.0.41\"") && message.contains("203.0.113.254"), "{message}");

    let gateway = project.address(253);
    let policy = ["lr-policy-add", router, "30010", "ip4.src == 10.1.0.41", "reroute", &gateway];
    northbound.nbctl(policy).await.unwrap();
    project.until_reason("web", "Served").await;
    northbound.nbctl(["lr-policy-del", router, "30010"]).await.unwrap();
    project.until_reason("web", "ReturnRouteMissing").await;
    northbound.nbctl(["lr-route-del", router, "0.0.0.0/0"]).await.unwrap();
    northbound.nbctl(["lr-route-add", router, "0.0.0.0/0", &gateway]).await.unwrap();
    project.until_reason("web", "Served").await;
}
