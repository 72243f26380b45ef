//! Nudges and re-syncs on a real Neutron: what comes goes at once, and nothing else changes.

use std::collections::BTreeSet;

use anyhow::{Context, ensure};
use groundcrew_testkit::controller::metric;
use groundcrew_testkit::eventually;
use groundcrew_testkit::openstack::{self, Method, Project, Service};
use serde_json::{Value, json};

use crate::{Lab, SOON, neutron, steps};

async fn read(project: &Project, kind: &str, id: &str) -> Value {
    let path = format!("v2.0/{}s/{id}", kind.replace('_', "-"));
    project.get(Service::Network, &path).await.unwrap()[kind].clone()
}

/// Who may send what, without the ids of the rules.
fn rules(group: &Value) -> BTreeSet<String> {
    let rule = |rule: &Value| {
        let keys = ["direction", "ethertype", "protocol", "port_range_min", "remote_ip_prefix", "description"];
        keys.map(|key| rule[key].to_string()).join(" ")
    };
    group["security_group_rules"].as_array().unwrap().iter().map(rule).collect()
}

fn routes(router: &Value) -> BTreeSet<String> {
    router["routes"].as_array().unwrap().iter().map(ToString::to_string).collect()
}

#[tokio::test]
async fn a_nudge_and_a_re_sync_leave_nothing_behind_and_do_not_come_again_soon() {
    let mut lab = Lab::new().await;
    let openstack = openstack::shared().await.unwrap();
    let project = openstack.project("push").await.unwrap();
    lab.cloud.neutron = Some(neutron(openstack, &project));
    let lan = project.lan("10.180.0.0/16").await.unwrap();
    let group = project.create("security_group", json!({"name": "nodes"})).await.unwrap();
    for (number, server) in ["a", "b", "c"].into_iter().enumerate() {
        lab.cloud.boot(server);
        lab.node(server, &format!("10.180.0.{}", number + 10), true).await;
    }
    lab.pods("c", "198.19.1.0/24").await;
    let route = |to: &str, via: &str| json!({"destination": to, "nexthop": via});
    let both = [route("198.19.1.0/24", "10.180.0.12"), route("192.168.7.0/24", "10.180.0.99")];
    let path = format!("v2.0/routers/{}/add_extraroutes", lan.router);
    let both = json!({"router": {"routes": both}});
    project.ask(Service::Network, Method::PUT, &path, Some(&both)).await.unwrap().ok().unwrap();

    lab.report("a", &["b", "c"], &[]).await;
    let quick = ["--unreachable-after", "1s", "--push-every", "1h", "--nudge", "repair", "--routes", "repair"];
    let places = ["--security-group", &group, "--router", &lan.router, "--probe-namespace", "default"];
    let running = lab.start(&[&quick[..], &places].concat()).await;
    eventually("the group lets pods through", SOON, async || {
        let rules = rules(&read(&project, "security_group", &group).await);
        let pods = rules.iter().filter(|rule| rule.contains("198.19.0.0/16")).count();
        ensure!(pods == 3, "{rules:?}");
        Ok(())
    })
    .await
    .unwrap();
    let before = (read(&project, "security_group", &group).await, read(&project, "router", &lan.router).await);
    let revision = |thing: &Value| thing["revision_number"].as_i64().context("a revision").unwrap();

    lab.report("a", &["b"], &["c"]).await;
    lab.report("b", &["a"], &["c"]).await;
    lab.told_about("groundcrew-flight", "GroupNudged").await;
    lab.told_about("groundcrew-flight", "RouterResynced").await;
    let passes = "groundcrew_flight_passes_total{outcome=\"ok\"}";
    let seen = metric(running.admin, passes).await.unwrap();
    running.until_metric(passes, |passes| passes > seen + 3.0).await;
    for action in ["nudge", "resync"] {
        running.until_metric(&steps(action, "done"), |n| (n - 1.0).abs() < 0.1).await;
        running.until_metric(&steps(action, "failed"), |n| n < 0.1).await;
    }
    running.stop().await;
    let after = (read(&project, "security_group", &group).await, read(&project, "router", &lan.router).await);
    assert_eq!(rules(&after.0), rules(&before.0));
    assert_eq!(routes(&after.1), routes(&before.1));
    assert!(revision(&after.0) >= revision(&before.0) + 2, "a rule came and went");
    assert!(revision(&after.1) >= revision(&before.1) + 2, "a route came and went");
}
