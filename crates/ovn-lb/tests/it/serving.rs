//! What a Service gets, and how it gives it back.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::net::Ipv6Addr;

use groundcrew_api::address_pool::AddressPool;
use groundcrew_api::eip::{EIp, EIpOwner, OwnershipType};
use groundcrew_testkit::eventually;
use groundcrew_testkit::kube::ControlPlane;
use groundcrew_testkit::ovn::Northbound;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::events::v1::Event;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::harness::{Project, SOON, addresses, rows};

#[tokio::test]
async fn a_service_gets_an_address_and_a_row_on_router_and_switch() {
    let project = Project::new("served").await;
    let northbound = project.northbound().await;
    project.pool(8).await;
    let _controller = project.controller(&northbound).await;
    project.endpoints("web", 8080, &["10.1.0.41", "10.1.0.42"]).await;
    project.create("web", json!({})).await;
    let address = project.until_served("web").await;
    assert_eq!(address, project.address(1));

    // The commands that operators of such clouds know by heart.
    let namespace = &project.namespace;
    let list = northbound.nbctl(["lb-list"]).await.unwrap();
    let row: Vec<_> = list.lines().find(|line| line.contains(&address)).unwrap().split_whitespace().collect();
    // `ovn-nbctl` shows the first sixteen characters of a name.
    assert!(format!("{namespace}-web-tcp-").starts_with(row[1]), "{list}");
    assert_eq!(row[2..], ["tcp", &format!("{address}:80"), "10.1.0.41:8080,10.1.0.42:8080"]);
    for place in [["lr-lb-list", namespace], ["ls-lb-list", &format!("{namespace}-default")]] {
        let attached = northbound.nbctl(place).await.unwrap();
        assert!(attached.contains(row[0]), "{place:?}: {attached}");
    }
    let full = rows(&northbound).await;
    assert!(full.contains("reject=\"true\"") || full.contains("reject=true"), "{full}");
    assert!(!full.contains("vendor"), "kube-ovn collects what it takes for its own: {full}");

    let eips = project.eip_list().await;
    assert_eq!(eips.len(), 1);
    assert!(eips[0].name_any().starts_with("slb-web-"));
    let status = eips[0].status.clone().unwrap();
    assert_eq!(status.ip_address.as_deref(), Some(&*address));
    assert_eq!((status.ovn_eip_ref.as_str(), status.ready), (namespace.as_str(), true));
    assert_eq!((status.ownership_type, status.delete_released), (OwnershipType::Shared, Some(true)));
    assert_eq!(status.owners, [EIpOwner { kind: "ServiceLb".into(), owner_ref: "web".into() }]);

    let service = project.services().get("web").await.unwrap();
    let ingress = service.status.unwrap().load_balancer.unwrap().ingress.unwrap();
    assert_eq!(ingress[0].ip_mode.as_deref(), Some("Proxy"));
}

#[tokio::test]
async fn every_protocol_has_its_row() {
    let project = Project::new("protocols").await;
    let northbound = project.northbound().await;
    project.pool(8).await;
    let _controller = project.controller(&northbound).await;
    let ports = json!([
        { "name": "http", "port": 80, "protocol": "TCP" },
        { "name": "dns", "port": 53, "protocol": "UDP" },
        { "name": "sig", "port": 36412, "protocol": "SCTP" },
    ]);
    project.endpoints("web", 8080, &["10.1.0.41"]).await;
    project.create("web", json!({ "ports": ports, "sessionAffinity": "ClientIP"})).await;
    project.until_served("web").await;
    let list = northbound.nbctl(["lb-list"]).await.unwrap();
    let protocols: Vec<_> = list.lines().skip(1).filter_map(|line| line.split_whitespace().nth(2)).collect();
    // Two for each, because of the affinity: one for clients outside, one for those inside.
    assert_eq!(protocols.len(), 6, "{list}");
    for protocol in ["tcp", "udp", "sctp"] {
        assert!(protocols.contains(&protocol), "{list}");
    }
    assert!(rows(&northbound).await.contains("affinity_timeout=\"10800\""));
}

#[tokio::test]
async fn affinity_that_ovn_is_too_old_for_is_kept_otherwise_and_told_and_a_newer_ovn_costs_no_write() {
    let project = Project::new("sticky-old").await;
    let northbound = project.northbound().await;
    project.pool(8).await;
    let northd = async |version: &str| {
        let option = format!("options:northd_internal_version={version}");
        northbound.nbctl(["set", "NB_Global", ".", &option]).await.unwrap();
    };
    northd("22.03.2-20.21.0-58.3").await;
    let controller = project.controller(&northbound).await;
    project.endpoints("web", 8080, &["10.1.0.41"]).await;
    project.create("web", json!({ "sessionAffinity": "ClientIP" })).await;
    let message = project.until_reason("web", "AffinityLimited").await;
    assert!(message.starts_with("OVN 22.03 keeps clients outside"), "{message}");
    let find = ["--bare", "--columns=selection_fields", "find", "Load_Balancer", "options:affinity_timeout=10800"];
    assert_eq!(northbound.nbctl(find).await.unwrap().trim(), "ip_src");

    let commits = || controller.metric("groundcrew_ovn_commits_total{outcome=\"ok\"}");
    let before = commits().await;
    northd("22.12.1-20.27.0-70.6").await;
    // Any look at it; the scan is one.
    let touch = json!({ "metadata": { "annotations": { "kube-dc.com/lb-resync-timestamp": "1" } } });
    project.services().patch("web", &PatchParams::default(), &Patch::Merge(touch)).await.unwrap();
    project.until_reason("web", "Served").await;
    assert!((commits().await - before).abs() < 0.5, "the rows are as they were");
}

#[tokio::test]
async fn rows_follow_endpoints_and_ports() {
    let project = Project::new("follow").await;
    let northbound = project.northbound().await;
    project.pool(8).await;
    let _controller = project.controller(&northbound).await;
    let address = project.served("web").await;
    let list = ["lb-list"];

    project.endpoints("web", 9090, &["10.1.0.51", "10.1.0.52"]).await;
    let moved = "10.1.0.51:9090,10.1.0.52:9090";
    project.until_nbctl(&northbound, &list, "the row has the new endpoints", |said| said.contains(moved)).await;

    project.endpoints("web", 9090, &[]).await;
    project.until_nbctl(&northbound, &list, "the row has no endpoint", |said| !said.contains("10.1.0.5")).await;
    let message = project.until_reason("web", "NoEndpoints").await;
    assert!(message.contains("refused"), "{message}");

    let ports = json!({ "spec": { "ports": [{ "name": "http", "port": 8443, "targetPort": "web" }] } });
    project.services().patch("web", &PatchParams::default(), &Patch::Merge(ports)).await.unwrap();
    let vip = format!("{address}:8443");
    project.until_nbctl(&northbound, &list, "the row has the new port", |said| said.contains(&vip)).await;
}

#[tokio::test]
async fn delete_leaves_nothing() {
    let project = Project::new("delete").await;
    let northbound = project.northbound().await;
    project.pool(8).await;
    let _controller = project.controller(&northbound).await;
    project.served("web").await;
    project.delete("web").await;
    assert_eq!(northbound.nbctl(["lb-list"]).await.unwrap(), "");
    assert_eq!(northbound.nbctl(["lr-lb-list", &project.namespace]).await.unwrap(), "");
    assert_eq!(project.eip_list().await, []);
}

#[tokio::test]
async fn a_service_of_another_type_gives_everything_back() {
    let project = Project::new("retype").await;
    let northbound = project.northbound().await;
    project.pool(8).await;
    let _controller = project.controller(&northbound).await;
    project.served("web").await;
    let patch =
        json!({ "spec": { "type": "ClusterIP", "loadBalancerClass": null, "allocateLoadBalancerNodePorts": null } });
    project.services().patch("web", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    project.until("web", "the address is withdrawn", |service| addresses(service).is_empty().then_some(())).await;
    eventually("the finalizer is gone", SOON, async || {
        let service = project.services().get("web").await?;
        anyhow::ensure!(service.finalizers().is_empty(), "{:?}", service.finalizers());
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(northbound.nbctl(["lb-list"]).await.unwrap(), "");
    assert_eq!(project.eip_list().await, []);
}

#[tokio::test]
async fn a_restart_writes_nothing() {
    let project = Project::new("restart").await;
    let northbound = project.northbound().await;
    project.pool(8).await;
    let controller = project.controller(&northbound).await;
    for n in 0..5 {
        project.served(&format!("web{n}")).await;
    }
    controller.stop().await;

    let versions = async || {
        let mut versions = BTreeMap::new();
        for n in 0..5 {
            let service = project.services().get(&format!("web{n}")).await.unwrap();
            versions.insert(service.name_any(), service.resource_version());
        }
        for eip in project.eip_list().await {
            versions.insert(eip.name_any(), eip.resource_version());
        }
        versions
    };
    let (before, rows_before) = (versions().await, rows(&northbound).await);
    let controller = project.controller(&northbound).await;
    eventually("everything was looked at", SOON, async || {
        let looks = controller.metric("groundcrew_service_reconciles_total{outcome=\"ok\"}").await;
        if looks >= 5.0 { Ok(()) } else { Err(format!("{looks} looks")) }
    })
    .await
    .unwrap();
    assert_eq!(versions().await, before);
    assert_eq!(rows(&northbound).await, rows_before);
    assert!(controller.metric("groundcrew_ovn_commits_total{outcome=\"ok\"}").await < 0.5, "no row was written");
    assert!(controller.metric("groundcrew_ovn_connected_bool").await > 0.5);
}

/// Kind, name and version of every object of a kind.
async fn versions<K>(client: &Client) -> BTreeMap<String, Option<String>>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let all = Api::<K>::all(client.clone()).list(&ListParams::default()).await.unwrap().items;
    let name = |object: &K| {
        let namespace = object.namespace().unwrap_or_default();
        format!("{} {namespace}/{}", K::kind(&()), object.name_any())
    };
    all.iter().map(|object| (name(object), object.resource_version())).collect()
}

#[tokio::test]
async fn a_restart_while_an_address_rests_writes_nothing_at_all() {
    static ALONE: OnceCell<ControlPlane> = OnceCell::const_new();
    // The controllers of all tests write to all pools of their cluster.
    let project = Project::on(ALONE.get_or_try_init(ControlPlane::start).await.unwrap(), "rested").await;
    let northbound = project.northbound().await;
    project.pool(8).await;
    let controller = project.controller(&northbound).await;
    for name in ["web", "goes"] {
        project.served(name).await;
    }
    project.delete("goes").await;
    let pools: Api<AddressPool> = Api::all(project.client.clone());
    eventually("the pool says that an address rests", SOON, async || {
        let status = pools.get(&project.namespace).await?.status.unwrap_or_default();
        let used = status.ipv4.unwrap_or_default().used;
        anyhow::ensure!((used, status.resting.len()) == (1, 1), "{status:?}");
        Ok(())
    })
    .await
    .unwrap();
    controller.stop().await;

    let everything = async || {
        let client = &project.client;
        let mut all = versions::<Service>(client).await;
        all.extend(versions::<EndpointSlice>(client).await);
        all.extend(versions::<EIp>(client).await);
        all.extend(versions::<AddressPool>(client).await);
        all.extend(versions::<Event>(client).await);
        all
    };
    let (before, rows_before) = (everything().await, rows(&northbound).await);
    // The rest that it takes over is shorter than its own.
    let flags = ["--address-rest", "10m", "--scan-interval", "200ms"];
    let controller = project.start(&northbound.remotes(), &flags).await;
    controller.until_ready().await;
    // A pool is written to once a second at most; so many scans take longer.
    eventually("everything was looked at again and again", SOON, async || {
        let scans = controller.metric("groundcrew_service_full_scans_total").await;
        if scans >= 15.0 { Ok(()) } else { Err(format!("{scans} scans")) }
    })
    .await
    .unwrap();
    assert_eq!(everything().await, before);
    assert_eq!(rows(&northbound).await, rows_before);
    assert!(controller.metric("groundcrew_ovn_commits_total{outcome=\"ok\"}").await < 0.5, "no row was written");
    controller.stop().await;
}

#[tokio::test]
async fn a_service_deleted_while_nobody_ran_is_released_by_the_next_start() {
    let project = Project::new("missed").await;
    let northbound = project.northbound().await;
    project.pool(8).await;
    let controller = project.controller(&northbound).await;
    project.served("web").await;
    controller.stop().await;
    project.services().delete("web", &DeleteParams::default()).await.unwrap();
    assert!(project.services().get("web").await.is_ok(), "the finalizer holds it");
    let _controller = project.controller(&northbound).await;
    project.until_gone("web").await;
    assert_eq!(northbound.nbctl(["lb-list"]).await.unwrap(), "");
    assert_eq!(project.eip_list().await, []);
}

#[tokio::test]
async fn a_living_address_survives_its_pool_its_eip_and_a_restart() {
    let project = Project::new("living").await;
    let northbound = project.northbound().await;
    project.pool(2).await;
    let controller = project.controller(&northbound).await;
    let address = project.served("web").await;
    controller.stop().await;

    let eip = project.eip_list().await.remove(0).name_any();
    let no_finalizer = json!({ "metadata": { "finalizers": null } });
    project.eips().patch(&eip, &PatchParams::default(), &Patch::Merge(no_finalizer)).await.unwrap();
    project.eips().delete(&eip, &DeleteParams::default()).await.unwrap();
    project.pool_of(&format!("{}-{}", project.address(100), project.address(101))).await;
    let _controller = project.controller(&northbound).await;
    // Another Service asks at the same time; it must not be given what is published.
    let other = project.served("other").await;
    assert_eq!(other, project.address(100));
    eventually("the EIp is back with the address", SOON, async || {
        let status = project.eips().get(&eip).await?.status;
        anyhow::ensure!(status.as_ref().and_then(|s| s.ip_address.as_ref()) == Some(&address), "{status:?}");
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(project.until_served("web").await, address);
}

/// The virtual addresses of all rows with their backends.
pub(crate) async fn vips(northbound: &Northbound) -> BTreeMap<String, String> {
    let said = northbound.nbctl(["--format=json", "--columns=vips", "list", "Load_Balancer"]).await.unwrap();
    let table: Value = serde_json::from_str(&said).unwrap();
    let rows = table["data"].as_array().unwrap().iter().flat_map(|row| row[0][1].as_array().unwrap());
    rows.map(|pair| (pair[0].as_str().unwrap().to_owned(), pair[1].as_str().unwrap().to_owned())).collect()
}

#[tokio::test]
async fn fifty_ports_are_served_as_two_rows_and_each_follows_its_own_edit() {
    let project = Project::new("fifty").await;
    let northbound = project.northbound().await;
    project.pool(8).await;
    let _controller = project.controller(&northbound).await;
    let protocol = |n: u16| if n.is_multiple_of(2) { "TCP" } else { "UDP" };
    let port = |n: u16, number: u16| json!({ "name": format!("p{n}"), "port": number, "protocol": protocol(n) });
    let ports: Vec<_> = (0..50).map(|n| port(n, 8000 + n)).collect();
    let targets =
        (0..50).map(|n| json!({ "name": format!("p{n}"), "protocol": protocol(n), "port": 9000 + n })).collect();
    project.slice("many", "many", targets, &["10.1.0.41", "10.1.0.42"]).await;
    project.create("many", json!({ "ports": ports })).await;
    let address = project.until_served("many").await;
    let expected: BTreeMap<_, _> = (0..50)
        .map(|n| (format!("{address}:{}", 8000 + n), format!("10.1.0.41:{0},10.1.0.42:{0}", 9000 + n)))
        .collect();
    assert_eq!(vips(&northbound).await, expected);
    let before = rows(&northbound).await;
    assert_eq!(before.matches("_uuid").count(), 2, "{before}");

    let moved: Vec<_> = (1..50).map(|n| port(n, if n == 49 { 7000 } else { 8000 + n })).collect();
    let edit = json!({ "spec": { "ports": moved } });
    project.services().patch("many", &PatchParams::default(), &Patch::Merge(edit)).await.unwrap();
    let mut expected = expected;
    expected.remove(&format!("{address}:8000"));
    let last = expected.remove(&format!("{address}:8049")).unwrap();
    expected.insert(format!("{address}:7000"), last);
    eventually("the rows follow", SOON, async || {
        let found = vips(&northbound).await;
        anyhow::ensure!(found == expected, "{} virtual addresses", found.len());
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(addresses(&project.services().get("many").await.unwrap()), [address]);
}

#[tokio::test]
async fn a_service_of_both_families_that_becomes_one_of_a_single_family_gives_the_other_address_back() {
    let project = Project::new("families").await;
    let northbound = project.northbound().await;
    let v4 = project.address(1);
    // As it is written where it is published.
    let v6: Ipv6Addr = format!("2001:db8:{}::1", v4.replace('.', ":")).parse().unwrap();
    let v6 = v6.to_string();
    project.pool_of(&format!("{v4}-{v4},{v6}-{v6}")).await;
    let controller = project.controller(&northbound).await;
    project.endpoints("web", 8080, &["10.1.0.41"]).await;
    project.create("web", json!({ "ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv4"] })).await;
    assert_eq!(project.until_served("web").await, v4);
    let published = async |what: &str, expected: &[&str]| {
        project.until("web", what, |service| (addresses(service) == expected).then_some(())).await;
    };
    let turn = async |policy: &str| {
        let edit = json!({ "spec": { "ipFamilyPolicy": policy } });
        project.services().patch("web", &PatchParams::default(), &Patch::Merge(edit)).await.unwrap();
    };
    turn("RequireDualStack").await;
    published("both are published", &[&v4, &v6]).await;
    assert_eq!(project.eip_list().await.len(), 2);
    turn("SingleStack").await;
    published("one is left", &[&v4]).await;
    eventually("its EIp is gone", SOON, async || {
        let eips = project.eip_list().await;
        anyhow::ensure!(eips.len() == 1, "{eips:?}");
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(vips(&northbound).await.into_keys().collect::<Vec<_>>(), [format!("{v4}:80")]);
    project.delete("web").await;
    assert_eq!((northbound.nbctl(["lb-list"]).await.unwrap(), project.eip_list().await.len()), (String::new(), 0));
    controller.stop().await;
}

#[tokio::test]
async fn a_thousand_endpoints_in_ten_slices_are_all_backends_and_a_slice_can_change_its_service() {
    let project = Project::new("crowd").await;
    let northbound = project.northbound().await;
    project.pool(8).await;
    let _controller = project.controller(&northbound).await;
    let ports = json!([{ "name": "http", "protocol": "TCP", "port": 8080 }]);
    for slice in 0..10 {
        let endpoints: Vec<_> = (0..100).map(|n| format!("10.1.{slice}.{n}")).collect();
        let endpoints: Vec<_> = endpoints.iter().map(String::as_str).collect();
        project.slice(&format!("part-{slice}"), "blue", ports.clone(), &endpoints).await;
    }
    project.create("blue", json!({})).await;
    project.create("green", json!({})).await;
    let [blue, green] = [project.until_served("blue").await, project.until_served("green").await];
    let counts = async |what: &str, expected: [usize; 2]| {
        eventually(what, SOON, async || {
            let vips = vips(&northbound).await;
            let count = |address: &str| {
                let backends = vips.get(&format!("{address}:80"));
                backends.map_or(0, |backends| backends.split(',').filter(|backend| !backend.is_empty()).count())
            };
            let found = [count(&blue), count(&green)];
            anyhow::ensure!(found == expected, "{found:?}");
            Ok(())
        })
        .await
        .unwrap();
    };
    counts("all are backends", [1_000, 0]).await;
    let slices: Api<EndpointSlice> = Api::namespaced(project.client.clone(), &project.namespace);
    let label = async |slice: &str, service: Value| {
        let patch = json!({ "metadata": { "labels": { "kubernetes.io/service-name": service } } });
        slices.patch(slice, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    };
    label("part-3", json!("green")).await;
    counts("it serves the other one", [900, 100]).await;
    label("part-3", Value::Null).await;
    counts("it serves nobody", [900, 0]).await;
}

/// More than a look takes.
const EDITS: u16 = 120;

#[tokio::test]
async fn a_service_edited_faster_than_it_is_looked_at_ends_as_the_last_edit_says() {
    let project = Project::new("hasty").await;
    let northbound = project.northbound().await;
    project.pool(100).await;
    let controller = project.controller(&northbound).await;
    project.served("web").await;
    let services = project.services();
    for n in 1..=EDITS {
        let ports = json!([{ "name": "http", "port": 1000 + n, "targetPort": "web" }]);
        let kind = if n % 10 == 5 { "ClusterIP" } else { "LoadBalancer" };
        let (class, node_ports) =
            if kind == "LoadBalancer" { (json!(project.class), json!(false)) } else { (Value::Null, Value::Null) };
        let edit = json!({ "spec": {
            "type": kind, "loadBalancerClass": class, "allocateLoadBalancerNodePorts": node_ports, "ports": ports,
        } });
        services.patch("web", &PatchParams::default(), &Patch::Merge(edit)).await.unwrap();
        if n % 3 == 0 {
            project.endpoints("web", 8000 + n, &["10.1.0.41"]).await;
        }
    }
    let settled = async |what: &str, vip: String, backend: String| {
        eventually(what, SOON, async || {
            let service = services.get("web").await?;
            let [published] = &addresses(&service)[..] else { anyhow::bail!("{:?}", service.status) };
            let found = vips(&northbound).await;
            let expected = BTreeMap::from([(format!("{published}:{vip}"), backend.clone())]);
            anyhow::ensure!(found == expected, "{found:?} instead of {expected:?}");
            Ok(published.clone())
        })
        .await
        .unwrap()
    };
    let last = settled("the last edit counts", (1000 + EDITS).to_string(), format!("10.1.0.41:{}", 8000 + EDITS)).await;
    assert_eq!(project.eip_list().await.len(), 1, "nothing is left of the states in between");
    // What came in between may have cost the address; edits of ports alone may not.
    for n in 1..=EDITS {
        let edit = json!({ "spec": { "ports": [{ "name": "http", "port": 2000 + n, "targetPort": "web" }] } });
        services.patch("web", &PatchParams::default(), &Patch::Merge(edit)).await.unwrap();
    }
    let vip = (2000 + EDITS).to_string();
    assert_eq!(settled("the last port counts", vip, format!("10.1.0.41:{}", 8000 + EDITS)).await, last);
    project.delete("web").await;
    assert_eq!((northbound.nbctl(["lb-list"]).await.unwrap(), project.eip_list().await.len()), (String::new(), 0));
    controller.stop().await;
}
