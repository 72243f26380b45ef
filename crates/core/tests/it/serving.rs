//! What a Service gets, and how it gives it back.

use std::net::IpAddr;

use groundcrew_core::provider::{Frontend, Protocol};
use groundcrew_core::testing::MemoryCloud;
use k8s_openapi::api::core::v1::Service;
use kube::api::DeleteParams;
use serde_json::json;

use crate::harness::{Lab, address, is_claimed, ready};

fn backends(frontend: &Frontend) -> Vec<String> {
    frontend.backends.iter().map(|b| format!("{}:{}", b.address, b.port)).collect()
}

#[tokio::test]
async fn a_service_of_our_class_is_claimed_served_and_told_so() {
    let lab = Lab::new("served").await;
    lab.slice("web", "web-a", 8080, &[("10.0.0.1", json!({ "ready": true }))]).await;
    lab.create("web", json!({}), json!({ "memory.example/size": "large", "other.example/x": "y" })).await;
    let _controller = lab.controller(&[]).await;

    let address = lab.until_served("web").await;
    let service = lab.services().get("web").await.unwrap();
    assert!(is_claimed(&service));
    let (status, reason, _) = ready(&service).unwrap();
    assert_eq!((status.as_str(), reason.as_str()), ("True", "Served"));

    let wanted = lab.cloud.load_balancer(&lab.key("web")).unwrap();
    assert_eq!(wanted.addresses, [address.parse::<IpAddr>().unwrap()]);
    assert_eq!(wanted.frontends[0].protocol, Protocol::Tcp);
    assert_eq!(backends(&wanted.frontends[0]), ["10.0.0.1:8080"]);
    let kept: Vec<_> = wanted.ask.annotations.keys().map(|k| &**k).collect();
    assert_eq!(kept, ["memory.example/size"], "only what the provider reads is kept");
}

#[tokio::test]
async fn backends_follow_the_slices() {
    let lab = Lab::new("slices").await;
    lab.create("web", json!({}), json!({})).await;
    let _controller = lab.controller(&[]).await;
    let message = lab.until_reason("web", "NoEndpoints").await;
    assert!(message.contains("refused"), "{message}");

    let has = |want: &'static [&'static str]| {
        let key = lab.key("web");
        move |cloud: &MemoryCloud| {
            cloud.load_balancer(&key).is_some_and(|wanted| backends(&wanted.frontends[0]) == want)
        }
    };
    lab.slice("web", "web-a", 8080, &[("10.0.0.1", json!({ "ready": true })), ("10.0.0.2", json!({ "ready": false }))])
        .await;
    lab.slice("web", "web-b", 9090, &[("10.0.0.3", json!({}))]).await;
    lab.until_cloud("the ready endpoints of both slices", has(&["10.0.0.1:8080", "10.0.0.3:9090"])).await;
    lab.until_reason("web", "Served").await;

    let draining = json!({ "ready": false, "serving": true, "terminating": true });
    let out = json!({ "ready": false, "serving": false, "terminating": true });
    lab.slice("web", "web-a", 8080, &[("10.0.0.1", draining), ("10.0.0.2", out)]).await;
    lab.until_cloud("a draining endpoint waits behind a ready one", has(&["10.0.0.3:9090"])).await;
    lab.slice("web", "web-b", 9090, &[]).await;
    lab.until_cloud("while nothing is ready, the draining one answers", has(&["10.0.0.1:8080"])).await;
}

#[tokio::test]
async fn a_port_that_no_pod_has_is_told_once_that_has_lasted() {
    let lab = Lab::new("gap").await;
    let ports = json!([{ "name": "http", "port": 80 }, { "name": "admin", "port": 9000 }]);
    lab.create("web", json!({ "ports": ports }), json!({})).await;
    let controller = lab.controller(&[]).await;
    lab.until_reason("web", "NoEndpoints").await;
    lab.slice("web", "web-a", 8080, &[("10.0.0.1", json!({}))]).await;
    lab.until_reason("web", "Served").await;
    let writes = controller.metric("groundcrew_service_writes_total{part=\"status\"}").await;
    assert!(writes < 2.5, "{writes} writes before it has lasted");
    let message = lab.until_reason("web", "EndpointsMissing").await;
    assert_eq!(message, "no endpoint is ready for port 9000/tcp: connections there are refused");
    let (status, ..) = ready(&lab.services().get("web").await.unwrap()).unwrap();
    assert_eq!(status, "True", "the rest is served");

    // As in a rolling update of all pods.
    lab.slice("web", "web-a", 8080, &[]).await;
    lab.until_reason("web", "NoEndpoints").await;
    lab.slice("web", "web-a", 8080, &[("10.0.0.2", json!({}))]).await;
    lab.until_reason("web", "EndpointsMissing").await;
    let writes = controller.metric("groundcrew_service_writes_total{part=\"status\"}").await;
    assert!(writes < 5.5, "{writes} writes: it is told with the rest");
    controller.stop().await;
}

#[tokio::test]
async fn a_service_of_another_class_or_none_is_left_alone_unless_told() {
    let lab = Lab::new("classes").await;
    lab.create("theirs", json!({ "loadBalancerClass": "other.example/lb" }), json!({})).await;
    lab.create("nobodys", json!({ "loadBalancerClass": null }), json!({})).await;
    lab.create("ours", json!({}), json!({})).await;

    let controller = lab.controller(&[]).await;
    lab.until_served("ours").await;
    controller.stop().await;
    for name in ["theirs", "nobodys"] {
        let service = lab.services().get(name).await.unwrap();
        assert!(!is_claimed(&service) && address(&service).is_none(), "{name}");
    }
}

#[tokio::test]
async fn with_the_switch_a_service_without_class_is_served_and_stays_served_without_it() {
    // Class-less Services are seen by every controller in the process's cluster, so this one has a cluster of its own.
    let control_plane = Box::leak(Box::new(groundcrew_testkit::kube::ControlPlane::start().await.unwrap()));
    let lab = Lab::on(control_plane, "classless").await;
    lab.create("nobodys", json!({ "loadBalancerClass": null }), json!({})).await;
    let controller = lab.controller(&["--take-classless"]).await;
    let before = lab.until_served("nobodys").await;
    controller.stop().await;

    let controller = lab.controller(&[]).await;
    lab.slice("nobodys", "slice", 80, &[("10.0.0.9", json!({}))]).await;
    let key = lab.key("nobodys");
    lab.until_cloud("the new backend", |cloud| cloud.load_balancer(&key).unwrap().has_backends()).await;
    assert_eq!(address(&lab.services().get("nobodys").await.unwrap()), Some(before));
    controller.stop().await;
}

#[tokio::test]
async fn a_deleted_service_leaves_nothing() {
    let lab = Lab::new("deleted").await;
    lab.create("web", json!({}), json!({})).await;
    let _controller = lab.controller(&[]).await;
    lab.until_served("web").await;
    lab.services().delete("web", &DeleteParams::default()).await.unwrap();
    lab.until_gone("web").await;
    assert_eq!(lab.cloud.count(), 0);
}

#[tokio::test]
async fn a_service_that_changes_its_type_is_given_back_whole() {
    let lab = Lab::new("retyped").await;
    lab.create("web", json!({}), json!({})).await;
    let _controller = lab.controller(&[]).await;
    lab.until_served("web").await;
    lab.patch("web", json!({ "spec": { "type": "ClusterIP", "loadBalancerClass": null } })).await;
    lab.until("web", "neither claim, address nor condition is left", |service| {
        (!is_claimed(service) && address(service).is_none() && ready(service).is_none()).then_some(())
    })
    .await;
    assert_eq!(lab.cloud.count(), 0);
}

#[tokio::test]
async fn a_service_that_goes_to_another_class_of_ours_is_let_go_before_it_is_taken() {
    let first = Lab::new("classes-change").await;
    let second = Lab { class: format!("{}-second", first.class), cloud: MemoryCloud::default(), ..first.clone() };
    first.create("web", json!({}), json!({})).await;
    let controller = first.controller(&[]).await;
    first.until_served("web").await;
    controller.stop().await;
    first.patch("web", json!({ "spec": { "type": "ClusterIP", "loadBalancerClass": null } })).await;
    first.patch("web", json!({ "spec": { "type": "LoadBalancer", "loadBalancerClass": second.class } })).await;

    let _takes = second.controller(&[]).await;
    let message = second.until_reason("web", "ClaimedByAnother").await;
    assert!(message.contains(&first.class), "{message}");
    assert_eq!((first.cloud.count(), second.cloud.count()), (1, 0));
    let _lets_go = first.controller(&[]).await;
    second.until_reason("web", "NoEndpoints").await;
    assert_eq!((first.cloud.count(), second.cloud.count()), (0, 1));
}

#[tokio::test]
async fn a_service_made_anew_under_its_old_name_is_another_service() {
    let lab = Lab::new("anew").await;
    lab.create("web", json!({}), json!({})).await;
    let controller = lab.controller(&[]).await;
    lab.until_served("web").await;
    controller.stop().await;

    // While nobody watches, somebody drops the finalizer, deletes the Service and makes it again.
    lab.patch("web", json!({ "metadata": { "finalizers": null } })).await;
    lab.services().delete("web", &DeleteParams::default()).await.unwrap();
    let new = lab.create("web", json!({}), json!({})).await;
    let _controller = lab.controller(&[]).await;
    lab.until_served("web").await;
    let wanted = lab.cloud.load_balancer(&lab.key("web"));
    let uid = new.metadata.uid.unwrap();
    assert!(lab.cloud.owner_uids().contains(&uid.parse().unwrap()), "{wanted:?}");
}

fn published(service: &Service) -> Vec<IpAddr> {
    let ingress = service.status.as_ref().and_then(|status| status.load_balancer.as_ref()?.ingress.as_ref());
    ingress.into_iter().flatten().filter_map(|ingress| ingress.ip.as_ref()?.parse().ok()).collect()
}

#[tokio::test]
async fn addresses_can_be_asked_for_one_of_each_family_or_by_the_older_field() {
    let lab = Lab::new("requested").await;
    let asked = |ips: &str| json!({ "groundcrew.dev/load-balancer-ips": ips });
    lab.create("one", json!({}), asked("192.0.2.77")).await;
    lab.create("field", json!({ "loadBalancerIP": "192.0.2.78" }), json!({})).await;
    lab.create("wins", json!({ "loadBalancerIP": "192.0.2.80" }), asked("192.0.2.79")).await;
    let both = json!({ "ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv4", "IPv6"] });
    lab.create("both", both, asked("192.0.2.81, 2001:db8::81")).await;
    let _controller = lab.controller(&[]).await;
    for (name, address) in [("one", "192.0.2.77"), ("field", "192.0.2.78"), ("wins", "192.0.2.79")] {
        assert_eq!(lab.until_served(name).await, address);
    }
    lab.until_served("both").await;
    let expected: [IpAddr; 2] = ["192.0.2.81".parse().unwrap(), "2001:db8::81".parse().unwrap()];
    assert_eq!(published(&lab.services().get("both").await.unwrap()), expected);
}

#[tokio::test]
async fn services_with_one_sharing_key_share_an_address_and_the_younger_loses_a_contested_port() {
    let lab = Lab::new("sharing").await;
    let key = json!({ "groundcrew.dev/sharing-key": "front" });
    let port = |port: u16| json!({ "ports": [{ "name": "http", "port": port }] });
    let _controller = lab.controller(&[]).await;
    lab.create("first", port(80), key.clone()).await;
    let shared = lab.until_served("first").await;
    lab.create("second", port(443), key.clone()).await;
    assert_eq!(lab.until_served("second").await, shared);

    lab.create("third", port(80), key.clone()).await;
    let message = lab.until_reason("third", "PortConflict").await;
    assert_eq!(message, format!("port 80/tcp of the shared address is taken by {}/first", lab.namespace));

    lab.services().delete("first", &DeleteParams::default()).await.unwrap();
    assert_eq!(lab.until_served("third").await, shared, "the loser gets the port when its holder goes");
}

#[tokio::test]
async fn who_is_served_and_loses_a_port_to_another_is_told_and_keeps_its_address_and_its_other_ports() {
    let lab = Lab::new("contested").await;
    let key = json!({ "groundcrew.dev/sharing-key": "front" });
    let ports = |ports: &[u16]| {
        let ports: Vec<_> = ports.iter().map(|port| json!({ "name": format!("p{port}"), "port": port })).collect();
        json!({ "ports": ports })
    };
    let serves = |service: &str, ports: &'static [u16]| {
        let key = lab.key(service);
        move |cloud: &MemoryCloud| {
            let served = cloud.load_balancer(&key).map(|wanted| wanted.frontends).unwrap_or_default();
            served.iter().map(|frontend| frontend.port).eq(ports.iter().copied())
        }
    };
    let _controller = lab.controller(&[]).await;
    lab.create("older", ports(&[80]), key.clone()).await;
    let shared = lab.until_served("older").await;
    lab.create("younger", ports(&[443, 444]), key).await;
    assert_eq!(lab.until_served("younger").await, shared);

    lab.patch("older", json!({ "spec": ports(&[443]) })).await;
    let message = lab.until_reason("younger", "PortConflict").await;
    assert!(message.contains("443/tcp") && message.contains("/older"), "{message}");
    lab.until_cloud("the older one has the port", serves("older", &[443])).await;
    lab.until_cloud("the younger one has the other", serves("younger", &[444])).await;
    assert_eq!(lab.until_served("younger").await, shared, "its address stays");

    lab.patch("older", json!({ "spec": ports(&[80]) })).await;
    lab.until_cloud("the younger one has both again", serves("younger", &[443, 444])).await;
    lab.until_reason("younger", "NoEndpoints").await;
}

#[tokio::test]
async fn a_service_of_both_families_gets_an_address_of_each_in_its_own_order() {
    let lab = Lab::new("families").await;
    let _controller = lab.controller(&[]).await;
    for (name, families) in [("six", ["IPv6", "IPv4"]), ("four", ["IPv4", "IPv6"])] {
        lab.create(name, json!({ "ipFamilyPolicy": "RequireDualStack", "ipFamilies": families }), json!({})).await;
        let published = lab
            .until(name, "it has two addresses", |service| Some(self::published(service)).filter(|all| all.len() == 2))
            .await;
        let found = published.iter().map(|address| if address.is_ipv6() { "IPv6" } else { "IPv4" });
        assert_eq!(found.collect::<Vec<_>>(), families);
        assert_eq!(lab.cloud.load_balancer(&lab.key(name)).unwrap().addresses, published);
    }
}
