//! `EIp`s that tenants make, and Services that are bound to them.

use groundcrew_api::address_pool::AddressPool;
use groundcrew_api::eip::{EIp, EIpSpec, EIpStatus, OwnershipType};
use groundcrew_testkit::eventually;
use groundcrew_testkit::ovn::Northbound;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::events::v1::Event;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use tokio::sync::{Mutex, MutexGuard};

use crate::drift::{name_of, until_found};
use crate::harness::{Controller, Project, SOON};

/// Only one controller of a cluster may serve tenants' EIps, and the tests share a cluster. To be held as well while
/// there is an EIp that nobody must serve and that nothing marks as somebody's yet.
pub(crate) async fn alone_with_eips() -> MutexGuard<'static, ()> {
    static SERVES_EIPS: Mutex<()> = Mutex::const_new(());
    SERVES_EIPS.lock().await
}

pub(crate) async fn serving(project: &Project, northbound: &Northbound) -> (Controller, MutexGuard<'static, ()>) {
    let alone = alone_with_eips().await;
    let controller = project.start(&northbound.remotes(), &["--serve-eips"]).await;
    controller.until_ready().await;
    (controller, alone)
}

impl Project {
    pub(crate) async fn make_eip(&self, name: &str, network_type: Option<&str>) -> EIp {
        let spec = EIpSpec { external_network_type: network_type.map(Into::into), ..EIpSpec::default() };
        self.eips().create(&PostParams::default(), &EIp::new(name, spec)).await.unwrap()
    }

    /// Waits until the EIp is as `probe` wants it.
    async fn until_eip<T>(&self, name: &str, what: &str, probe: impl Fn(&EIpStatus) -> Option<T>) -> T {
        eventually(what, SOON, async || {
            let status = self.eips().get(name).await?.status.unwrap_or_default();
            probe(&status).ok_or_else(|| anyhow::anyhow!("{status:?}"))
        })
        .await
        .unwrap()
    }

    pub(crate) async fn until_eip_ready(&self, name: &str) -> String {
        self.until_eip(name, "the EIp is ready", |status| status.ip_address.clone().filter(|_| status.ready)).await
    }

    pub(crate) async fn until_eip_reason(&self, name: &str, reason: &str) -> String {
        self.until_eip(name, &format!("the EIp says {reason}"), |status| {
            let ready = status.conditions.iter().find(|c| c.type_ == "Ready")?;
            (ready.reason == reason).then(|| ready.message.clone())
        })
        .await
    }

    pub(crate) async fn until_eip_gone(&self, name: &str) {
        eventually("the EIp is gone", SOON, async || match self.eips().get_opt(name).await? {
            None => Ok(()),
            Some(eip) => Err(anyhow::anyhow!("{:?}", eip.metadata)),
        })
        .await
        .unwrap();
    }

    /// A Service with one endpoint that names an EIp.
    pub(crate) async fn bind(&self, service: &str, annotation: &str, value: &str, port: u16) {
        self.endpoints(service, 8080, &["10.1.0.41"]).await;
        let ports = json!([{ "name": "http", "port": port, "targetPort": "web" }]);
        let object = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": { "name": service, "annotations": { format!("service.nlb.kube-dc.com/{annotation}"): value } },
            "spec": {
                "type": "LoadBalancer", "loadBalancerClass": self.class, "allocateLoadBalancerNodePorts": false,
                "ports": ports,
            },
        });
        self.services().create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    }

    pub(crate) async fn until_event(&self, reason: &str) -> String {
        let api: Api<Event> = Api::namespaced(self.client.clone(), &self.namespace);
        eventually(&format!("an Event {reason}"), SOON, async || {
            let events = api.list(&ListParams::default()).await?;
            let told = events.items.into_iter().find(|event| event.reason.as_deref() == Some(reason));
            told.and_then(|event| event.note).ok_or_else(|| anyhow::anyhow!("none"))
        })
        .await
        .unwrap()
    }
}

#[tokio::test]
async fn a_tenants_eip_gets_an_address_and_gives_it_back_when_it_is_deleted() {
    let project = Project::new("tenant").await;
    let northbound = project.northbound().await;
    let _alone = alone_with_eips().await;
    project.make_eip("early", Some("dmz")).await;
    let controller = project.start(&northbound.remotes(), &["--serve-eips"]).await;
    controller.until_ready().await;
    let message = project.until_eip_reason("early", "NoPool").await;
    assert!(message.contains("no AddressPool of network type dmz"), "{message}");
    project.pool(1).await;
    assert_eq!(project.until_eip_ready("early").await, project.address(1), "it is served as soon as a pool is there");
    let eip = project.eips().get("early").await.unwrap();
    assert_eq!(eip.finalizers(), ["groundcrew.dev/eip"]);
    let status = eip.status.unwrap();
    assert_eq!((&*status.ovn_eip_ref, status.ownership_type), (&*project.namespace, OwnershipType::Released));
    project.until_event("Assigned").await;

    project.make_eip("late", None).await;
    project.until_eip_reason("late", "PoolEmpty").await;
    controller.stop().await;
    project.eips().delete("early", &DeleteParams::default()).await.unwrap();
    assert!(project.eips().get("early").await.is_ok(), "the finalizer holds it");
    let controller = project.start(&northbound.remotes(), &["--serve-eips"]).await;
    project.until_eip_gone("early").await;
    project.pool(2).await;
    assert_eq!(project.until_eip_ready("late").await, project.address(2), "what was given back rests");
    controller.stop().await;
}

#[tokio::test]
async fn services_that_name_one_eip_share_it_and_the_later_loses_a_contested_port() {
    let project = Project::new("bound").await;
    let northbound = project.northbound().await;
    project.pool(8).await;
    let (controller, _alone) = serving(&project, &northbound).await;
    project.bind("web", "bind-on-eip", "mine", 80).await;
    let message = project.until_reason("web", "EipMissing").await;
    assert!(message.contains("no EIp mine"), "{message}");
    assert_eq!(project.eip_list().await, [], "no other address is taken meanwhile");
    project.make_eip("mine", None).await;
    let address = project.until_served("web").await;
    assert_eq!(address, project.until_eip_ready("mine").await);

    project.bind("later", "bind-on-eip", "mine", 80).await;
    let message = project.until_reason("later", "PortConflict").await;
    assert!(message.contains("port 80/tcp") && message.contains("/web"), "{message}");
    project.bind("other", "bind-on-eip", "mine", 81).await;
    assert_eq!(project.until_served("other").await, address);
    let owners = async || {
        let status = project.eips().get("mine").await.unwrap().status.unwrap();
        status.owners.into_iter().map(|owner| owner.owner_ref).collect::<Vec<_>>()
    };
    assert_eq!(owners().await, ["other", "web"]);

    // The tenant lets go of it, and it goes with its last user.
    controller.stop().await;
    let controller = project.start(&northbound.remotes(), &["--serve-eips"]).await;
    controller.until_ready().await;
    project.until_reason("later", "PortConflict").await;
    project.delete("web").await;
    assert_eq!(project.until_served("later").await, address, "the port is free");
    project.eips().delete("mine", &DeleteParams::default()).await.unwrap();
    let message = project.until_eip_reason("mine", "InUse").await;
    assert!(message.contains("Service later, Service other"), "{message}");
    let message = project.until_reason("other", "EipDeleted").await;
    assert!(message.contains("EIp mine"), "{message}");

    // So does one that was made for a Service.
    let address = project.served("own").await;
    let made = project.eip_list().await.into_iter().map(|eip| eip.name_any()).find(|name| name.starts_with("slb-"));
    let made = made.unwrap();
    project.eips().delete(&made, &DeleteParams::default()).await.unwrap();
    assert!(project.until_eip_reason(&made, "InUse").await.ends_with("Service own"));
    assert!(project.until_reason("own", "EipDeleted").await.contains(&made));
    assert_eq!(project.until_served("own").await, address);
    assert!(project.until_event("EipDeleted").await.contains("somebody has deleted"));
    assert!(project.until_event("InUse").await.contains("as soon as nobody uses it"));
    project.delete("own").await;
    project.until_eip_gone(&made).await;

    project.delete("other").await;
    project.delete("later").await;
    project.until_eip_gone("mine").await;
    assert_eq!(northbound.nbctl(["lb-list"]).await.unwrap(), "");
    controller.stop().await;
}

#[tokio::test]
async fn a_port_of_a_named_eip_is_who_was_there_firsts_also_where_the_other_is_a_load_balancer_of_somebody_else() {
    let project = Project::new("contested").await;
    let northbound = project.northbound().await;
    project.pool(8).await;
    let (controller, _alone) = serving(&project, &northbound).await;
    project.make_eip("mine", None).await;
    let address = project.until_eip_ready("mine").await;
    let (vip, router) = (format!("{address}:80"), project.namespace.as_str());
    let add = ["lb-add", "theirs", &vip, "10.1.0.9:80", "--", "lr-lb-add", router, "theirs"];
    northbound.nbctl(add).await.unwrap();
    project.bind("web", "bind-on-eip", "mine", 80).await;
    let message = project.until_reason("web", "PortConflict").await;
    assert!(message.contains("port 80/tcp") && message.contains("theirs"), "{message}");
    let rows = async || northbound.nbctl(["lb-list"]).await.unwrap().matches(&vip).count();
    assert_eq!(rows().await, 1);
    northbound.nbctl(["lb-del", "theirs"]).await.unwrap();
    assert_eq!(project.until_served("web").await, address);

    northbound.nbctl(add).await.unwrap();
    project.until_reason("web", "PortConflict").await;
    assert_eq!(rows().await, 2, "who was there first stays");
    northbound.nbctl(["lb-del", "theirs"]).await.unwrap();
    project.until_reason("web", "Served").await;

    // It moves to a port that somebody else has, and gives up the one that it had.
    let (vip, served) = (format!("{address}:443"), format!("{address}:80"));
    northbound.nbctl(["lb-add", "theirs", &vip, "10.1.0.9:443", "--", "lr-lb-add", router, "theirs"]).await.unwrap();
    let moved = json!({ "spec": { "ports": [{ "name": "http", "port": 443, "targetPort": "web" }] } });
    project.services().patch("web", &PatchParams::default(), &Patch::Merge(moved)).await.unwrap();
    let message = project.until_reason("web", "PortConflict").await;
    assert!(message.contains("port 443/tcp") && message.contains("theirs"), "{message}");
    // Nor does it get it by saying no more that it shares the address.
    for (round, bound) in [("again", Some("mine")), ("and again", None)] {
        let looks = controller.metric("groundcrew_service_reconciles_total{outcome=\"ok\"}").await;
        let resync = json!({ "metadata": { "annotations": {
            "kube-dc.com/lb-resync-timestamp": round, "service.nlb.kube-dc.com/bind-on-eip": bound,
        } } });
        project.services().patch("web", &PatchParams::default(), &Patch::Merge(resync)).await.unwrap();
        eventually("it is looked at", SOON, async || {
            let now = controller.metric("groundcrew_service_reconciles_total{outcome=\"ok\"}").await;
            anyhow::ensure!(now > looks, "{now}");
            Ok(())
        })
        .await
        .unwrap();
        let list = northbound.nbctl(["lb-list"]).await.unwrap();
        assert_eq!((list.matches(&vip).count(), list.matches(&served).count()), (1, 0), "{round}: {list}");
    }
    let ours = name_of(&northbound, "web").await;
    northbound.nbctl(["lb-del", &ours]).await.unwrap();
    until_found(&controller, "row_missing", 1).await;
    assert_eq!(name_of(&northbound, "web").await, ours, "it waits on");
    assert_eq!(northbound.nbctl(["lb-list"]).await.unwrap().matches(&vip).count(), 1, "and takes nothing");
    northbound.nbctl(["lb-del", "theirs"]).await.unwrap();
    project.until_reason("web", "AddressKept").await;
    assert!(northbound.nbctl(["lr-lb-list", router]).await.unwrap().contains(&vip));
    controller.stop().await;
}

/// Finalizers torn off: nobody hears that it goes.
async fn tear_out(project: &Project, service: &str) {
    let torn = json!({ "metadata": { "finalizers": null } });
    project.services().patch(service, &PatchParams::default(), &Patch::Merge(torn)).await.unwrap();
    project.services().delete(service, &DeleteParams::default()).await.unwrap();
}

#[tokio::test]
async fn the_name_of_a_service_that_was_torn_out_is_taken_off_the_eip_after_its_age_and_no_others() {
    let project = Project::new("tornout").await;
    let northbound = project.northbound().await;
    project.pool(8).await;
    let (controller, _alone) = serving(&project, &northbound).await;
    project.make_eip("mine", None).await;
    for (service, port) in [("web", 80), ("api", 81), ("gone", 82)] {
        project.bind(service, "bind-on-eip", "mine", port).await;
        project.until_served(service).await;
    }
    controller.stop().await;
    tear_out(&project, "gone").await;
    // Somebody else's, who writes himself down: his Service is there.
    let theirs = json!({
        "metadata": { "name": "theirs" }, "spec": { "type": "ClusterIP", "ports": [{ "port": 80 }] },
    });
    project.services().create(&PostParams::default(), &serde_json::from_value(theirs).unwrap()).await.unwrap();
    let owners: Vec<_> =
        ["web", "api", "gone", "theirs"].iter().map(|name| json!({ "type": "ServiceLb", "ownerRef": name })).collect();
    let status = json!({ "status": { "owners": owners } });
    project.eips().patch_status("mine", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();

    let flags = ["--serve-eips", "--orphan-age", "1s", "--scan-interval", "500ms"];
    let controller = project.start(&northbound.remotes(), &flags).await;
    let owners_are = async |expected: &[&str]| {
        project
            .until_eip("mine", &format!("{expected:?} use it"), |status| {
                let owners: Vec<_> = status.owners.iter().map(|owner| &*owner.owner_ref).collect();
                (owners == expected).then_some(())
            })
            .await;
    };
    owners_are(&["api", "theirs", "web"]).await;
    // One that goes the same way while we look.
    tear_out(&project, "api").await;
    owners_are(&["theirs", "web"]).await;
    assert!(!northbound.nbctl(["lb-list"]).await.unwrap().contains(":81"), "and its row is gone, too");
    project.until_reason("web", "Served").await;
    controller.stop().await;
}

#[tokio::test]
async fn an_address_of_somebody_else_is_used_as_far_as_its_owner_allows_and_an_edit_moves_nobody() {
    let project = Project::new("gateway").await;
    let northbound = project.northbound().await;
    let _alone = alone_with_eips().await;
    project.pool(8).await;
    let _controller = project.controller(&northbound).await;
    for (name, ownership, user) in [("default-gw", "Shared", "Snat"), ("floating", "Exclusive", "FIp")] {
        project.make_eip(name, None).await;
        let last = if name == "floating" { 201 } else { 200 };
        let status = json!({ "status": {
            "ipAddress": project.address(last), "ovnEIpRef": "theirs", "ready": true, "ownershipType": ownership,
            "owners": [{ "type": user, "ownerRef": "x" }],
        } });
        project.eips().patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    }
    project.bind("web", "bind-on-default-gw-eip", "true", 80).await;
    assert_eq!(project.until_served("web").await, project.address(200));
    let status = project.eips().get("default-gw").await.unwrap().status.unwrap();
    let owners: Vec<_> = status.owners.iter().map(|owner| (&*owner.kind, &*owner.owner_ref)).collect();
    assert_eq!(owners, [("Snat", "x"), ("ServiceLb", "web")]);
    assert_eq!((&*status.ovn_eip_ref, status.conditions.len()), ("theirs", 0), "the rest is not ours to write");
    project.bind("api", "bind-on-eip", "floating", 80).await;
    project.until_reason("api", "EipExclusive").await;

    let edit = json!({ "metadata": { "annotations": { "service.nlb.kube-dc.com/bind-on-eip": "floating" } } });
    project.services().patch("web", &PatchParams::default(), &Patch::Merge(edit)).await.unwrap();
    let message = project.until_reason("web", "AddressKept").await;
    assert!(message.contains(&project.address(200)), "{message}");
    project.until_event("AddressKept").await;
    project.delete("web").await;
    let status = project.eips().get("default-gw").await.unwrap().status.unwrap();
    assert_eq!(status.owners.len(), 1);
}

#[tokio::test]
async fn another_address_asked_for_later_moves_nobody_and_is_told() {
    let project = Project::new("asks-later").await;
    let northbound = project.northbound().await;
    project.pool(8).await;
    let _controller = project.controller(&northbound).await;
    let address = project.served("web").await;
    project.until_reason("web", "Served").await;
    let ask = async |asked: Option<String>| {
        let edit = json!({ "spec": { "loadBalancerIP": asked } });
        project.services().patch("web", &PatchParams::default(), &Patch::Merge(edit)).await.unwrap();
    };
    ask(Some(project.address(5))).await;
    let message = project.until_reason("web", "AddressKept").await;
    assert!(message.contains(&address) && message.contains(&project.address(5)), "{message}");
    assert_eq!(project.until_served("web").await, address);
    ask(Some(address.clone())).await;
    project.until_reason("web", "Served").await;
    ask(None).await;
    assert_eq!(project.until_served("web").await, address);
}

#[tokio::test]
async fn a_pool_says_how_much_of_it_is_used_and_a_namespace_gets_as_many_as_it_may() {
    let project = Project::new("report").await;
    let northbound = project.northbound().await;
    project.pool(8).await;
    let pools: Api<AddressPool> = Api::all(project.client.clone());
    // Not the whole object: its status is written meanwhile, by the controllers of all tests.
    let set_limit = async |limit: Option<u32>| {
        let patch = json!({ "spec": { "perNamespaceLimit": limit } });
        pools.patch(&project.namespace, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    };
    set_limit(Some(1)).await;
    let controller = project.controller(&northbound).await;
    project.served("web").await;
    project.create("more", json!({})).await;
    let message = project.until_reason("more", "LimitReached").await;
    assert!(message.contains(&format!("AddressPool {}", project.namespace)), "{message}");
    let until_counts = async |used, free, resting: usize| {
        eventually(&format!("{used} used, {free} free, {resting} at rest"), SOON, async || {
            let status = pools.get(&project.namespace).await?.status.unwrap_or_default();
            let counts = status.ipv4.unwrap_or_default();
            anyhow::ensure!((counts.used, counts.free, status.resting.len()) == (used, free, resting), "{status:?}");
            Ok(())
        })
        .await
        .unwrap();
    };
    until_counts(1, 7, 0).await;
    let of = |state: &str| {
        format!(
            r#"groundcrew_pool_addresses{{family="ipv4",pool="{}",source="AddressPool",state="{state}"}}"#,
            project.namespace
        )
    };
    eventually("the metrics say so, too", SOON, async || {
        let shown = format!("{}, {}", controller.metric(&of("used")).await, controller.metric(&of("free")).await);
        if shown == "1, 7" { Ok(()) } else { Err(shown) }
    })
    .await
    .unwrap();
    project.delete("web").await;
    assert_eq!(project.until_served("more").await, project.address(2), "what was given back rests");
    until_counts(1, 7, 1).await;
    set_limit(None).await;
    project.create("again", json!({ "loadBalancerIP": project.address(1) })).await;
    assert_eq!(project.until_served("again").await, project.address(1), "but not for whoever had it");
    project.delete("again").await;
    until_counts(1, 7, 1).await;

    // The next process lets it rest, too.
    controller.stop().await;
    let _controller = project.controller(&northbound).await;
    project.create("asks", json!({ "loadBalancerIP": project.address(1) })).await;
    project.until_reason("asks", "AddressRests").await;
}

#[tokio::test]
async fn what_a_node_has_is_not_given_out() {
    let project = Project::new("nodes").await;
    let northbound = project.northbound().await;
    let nodes: Api<Node> = Api::all(project.client.clone());
    let name = format!("node-{}", project.namespace);
    let node = json!({ "metadata": { "name": name } });
    nodes.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
    let status = json!({ "status": { "addresses": [
        { "type": "Hostname", "address": project.address(3) },
        { "type": "InternalIP", "address": project.address(1) },
        { "type": "ExternalIP", "address": project.address(2) },
    ] } });
    nodes.patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    project.pool(4).await;
    let _controller = project.controller(&northbound).await;
    assert_eq!(project.served("web").await, project.address(3));
    project.create("node", json!({ "loadBalancerIP": project.address(2) })).await;
    let message = project.until_reason("node", "AddressTaken").await;
    assert!(message.contains("a node"), "{message}");
    let pools: Api<AddressPool> = Api::all(project.client.clone());
    eventually("the pool counts it as not free", SOON, async || {
        let counts = pools.get(&project.namespace).await?.status.unwrap_or_default().ipv4.unwrap_or_default();
        anyhow::ensure!((counts.used, counts.free) == (1, 1), "{counts:?}");
        Ok(())
    })
    .await
    .unwrap();
    nodes.delete(&name, &DeleteParams::default()).await.unwrap();
    assert_eq!(project.until_served("node").await, project.address(2), "it is given as soon as the node is gone");
}

#[tokio::test]
async fn what_something_in_ovn_has_is_not_given_out() {
    let project = Project::new("taken-by").await;
    let northbound = project.northbound().await;
    let (router, port, nat) = (&*project.namespace, format!("{}/24", project.address(1)), project.address(2));
    let (gateway, vip) = (project.address(3), format!("{}:80", project.address(4)));
    northbound.nbctl(["lrp-add", router, "outside", "00:00:00:00:00:01", &port]).await.unwrap();
    northbound.nbctl(["lr-nat-add", router, "snat", &nat, "10.1.0.0/16"]).await.unwrap();
    northbound.nbctl(["lr-route-add", router, "0.0.0.0/0", &gateway]).await.unwrap();
    northbound.nbctl(["lb-add", "by-hand", &vip, "10.1.0.41:8080"]).await.unwrap();
    project.pool(8).await;
    let _controller = project.controller(&northbound).await;
    assert_eq!(project.served("web").await, project.address(5));
    for (name, last, what) in [
        ("port", 1, "a router port"),
        ("nat", 2, "a NAT rule"),
        ("hop", 3, "the next hop of a route"),
        ("lb", 4, "a load balancer in OVN"),
    ] {
        project.create(name, json!({ "loadBalancerIP": project.address(last) })).await;
        let message = project.until_reason(name, "AddressTaken").await;
        assert!(message.contains(what), "{message}");
    }
    northbound.nbctl(["lr-nat-del", router]).await.unwrap();
    assert_eq!(project.until_served("nat").await, nat, "it is given as soon as it is free");
    northbound.nbctl(["lr-route-del", router]).await.unwrap();
    assert_eq!(project.until_served("hop").await, gateway);
    northbound.nbctl(["lb-del", "by-hand"]).await.unwrap();
    assert_eq!(project.until_served("lb").await, project.address(4));
}

#[tokio::test]
async fn the_edges_of_a_routers_network_are_not_given_out() {
    let project = Project::new("edges").await;
    let northbound = project.northbound().await;
    let port = format!("{}/29", project.address(1));
    northbound.nbctl(["lrp-add", &project.namespace, "outside", "00:00:00:00:00:01", &port]).await.unwrap();
    // What a person writes who knows the network and nothing else.
    project.pool_of(&format!("{}/29", project.address(0))).await;
    let _controller = project.controller(&northbound).await;
    for n in 2..7 {
        assert_eq!(project.served(&format!("s{n}")).await, project.address(n));
    }
    project.create("late", json!({})).await;
    project.until_reason("late", "PoolEmpty").await;
}
