//! Addresses from kube-ovn, whose controller says little and forgets some. On an API server of their own: what it serves
//! decides where addresses come from.

mod leftovers;
mod marks;
mod places;
mod routes;
mod take_over;
mod taken;
mod tenants;

use anyhow::{Result, ensure};
use groundcrew_api::names::{annotation, label};
use groundcrew_testkit::eventually;
use groundcrew_testkit::kube::ControlPlane;
use groundcrew_testkit::kube_ovn::{KubeOvn, crds};
use groundcrew_testkit::ovn::Northbound;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::events::v1::Event;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::harness::{Controller, Project, SOON, addresses};

/// One test's project on a cluster with kube-ovn, with an external network of its own.
struct Cloud {
    project: Project,
    kube_ovn: KubeOvn,
    northbound: Northbound,
}

async fn control_plane() -> &'static ControlPlane {
    static SHARED: OnceCell<ControlPlane> = OnceCell::const_new();
    let start = async || {
        let mut plane = ControlPlane::start().await?;
        plane.start_controller_manager(&["namespace-controller"]).await?;
        plane.define(&crds()?).await?;
        Ok::<_, anyhow::Error>(plane)
    };
    SHARED.get_or_try_init(start).await.unwrap()
}

impl Cloud {
    /// The external Subnet has the addresses .2 to .6 of the project's network; .1 is its gateway.
    async fn new(name: &str) -> Self {
        let project = Project::on(control_plane().await, name).await;
        let northbound = project.northbound().await;
        let kube_ovn = KubeOvn::start(project.client.clone(), &format!("ext-{}", project.namespace));
        let cloud = Self { project, kube_ovn, northbound };
        cloud.subnet(&cloud.external(), "29").await;
        cloud
    }

    fn external(&self) -> String {
        format!("ext-{}", self.project.namespace)
    }

    /// Each test has a type of network of its own.
    async fn subnet(&self, name: &str, length: &str) {
        let spec = json!({
            "cidrBlock": format!("{}/{length}", self.project.address(0)),
            "gateway": self.project.address(1), "protocol": "IPv4",
        });
        let labels = json!({ label::EXTERNAL_NETWORK_TYPE: self.project.namespace });
        self.kube_ovn.put("Subnet", name, labels, spec).await.unwrap();
    }

    async fn controller(&self) -> Controller {
        self.controller_with(&[]).await
    }

    async fn controller_with(&self, flags: &[&str]) -> Controller {
        let network = ["--network-type", &self.project.namespace];
        let flags: Vec<_> = network.iter().chain(flags).copied().collect();
        let controller = self.project.start(&self.northbound.remotes(), &flags).await;
        controller.until_ready().await;
        controller
    }

    /// Those of this test's network.
    async fn ovn_eips(&self) -> Vec<DynamicObject> {
        let all = self.kube_ovn.ovn_eips().list(&ListParams::default()).await.unwrap();
        let of_ours = |eip: &DynamicObject| {
            eip.data["spec"]["externalSubnet"].as_str().is_some_and(|subnet| subnet.starts_with(&self.external()))
        };
        all.items.into_iter().filter(of_ours).collect()
    }

    async fn until_ovn_eips<T>(&self, what: &str, probe: impl Fn(&[DynamicObject]) -> Result<T>) -> T {
        eventually(what, SOON, async || probe(&self.ovn_eips().await)).await.unwrap()
    }

    /// Somebody else's.
    async fn foreign(&self, name: &str, address: &str) {
        let spec = json!({ "externalSubnet": self.external(), "type": "nat", "v4Ip": address });
        self.kube_ovn.put("OvnEip", name, json!({}), spec).await.unwrap();
        eventually("the other one is served", SOON, async || {
            let eip = self.kube_ovn.ovn_eips().get(name).await?;
            ensure!(eip.data["status"]["ready"] == json!(true), "{}", eip.data);
            Ok(())
        })
        .await
        .unwrap();
    }

    async fn delete(&self, ovn_eip: &str) {
        self.kube_ovn.ovn_eips().delete(ovn_eip, &DeleteParams::default()).await.unwrap();
    }

    async fn until_event(&self, reason: &str) -> String {
        let events: Api<Event> = Api::namespaced(self.project.client.clone(), &self.project.namespace);
        eventually(&format!("an Event {reason}"), SOON, async || {
            let told = events.list(&ListParams::default()).await?.items;
            let found = told.iter().find(|event| event.reason.as_deref() == Some(reason));
            let reasons = || told.iter().filter_map(|e| e.reason.as_deref()).collect::<Vec<_>>().join(", ");
            found.and_then(|event| event.note.clone()).ok_or_else(|| anyhow::anyhow!("told so far: {}", reasons()))
        })
        .await
        .unwrap()
    }
}

fn address_of(eip: &DynamicObject) -> &str {
    eip.data["status"]["v4Ip"].as_str().unwrap_or_default()
}

#[tokio::test]
async fn an_address_is_used_once_kube_ovn_says_ready_not_when_it_says_which() {
    let cloud = Cloud::new("ready").await;
    let _controller = cloud.controller().await;
    cloud.kube_ovn.hold_ready(true);
    cloud.project.endpoints("web", 8080, &["10.1.0.41"]).await;
    cloud.project.create("web", json!({})).await;
    let address = cloud
        .until_ovn_eips("kube-ovn says which", |eips| {
            ensure!(eips.len() == 1 && !address_of(&eips[0]).is_empty(), "{}", eips.len());
            Ok(address_of(&eips[0]).to_owned())
        })
        .await;
    // Long enough to be told why it takes so long, and still not used.
    cloud.project.until_reason("web", "KubeOvnSilent").await;
    assert_eq!(addresses(&cloud.project.services().get("web").await.unwrap()), [""; 0]);
    assert_eq!(cloud.northbound.nbctl(["lb-list"]).await.unwrap(), "");
    cloud.kube_ovn.hold_ready(false);
    assert_eq!(cloud.project.until_served("web").await, address);
}

#[tokio::test]
async fn an_ovn_eip_is_marked_of_type_nat_and_leaves_to_kube_ovn_what_kube_ovn_fills_in() {
    let cloud = Cloud::new("marks").await;
    let _controller = cloud.controller().await;
    let address = cloud.project.served("web").await;
    let service = cloud.project.services().get("web").await.unwrap();
    let eips = cloud.ovn_eips().await;
    let [eip] = &eips[..] else { panic!("{} OvnEips", eips.len()) };
    assert_eq!((address_of(eip), &eip.data["spec"]["type"]), (&*address, &json!("nat")));
    assert_eq!(eip.labels()[label::OWNER_UID], service.uid().unwrap());
    assert_eq!(eip.labels()[label::CLUSTER], cloud.project.namespace);
    assert_eq!(eip.annotations()[annotation::OWNER], format!("{}/web", cloud.project.namespace));
    let of_ours: Vec<_> =
        eip.managed_fields().iter().filter(|entry| entry.manager.as_deref() == Some("groundcrew")).collect();
    let owned = serde_json::to_string(&of_ours.iter().map(|entry| &entry.fields_v1).collect::<Vec<_>>()).unwrap();
    assert!(owned.contains("f:externalSubnet"), "{owned}");
    for field in ["v4Ip", "v6Ip", "macAddress"] {
        assert!(!owned.contains(field), "{owned}");
    }
    let status = cloud.project.eip_list().await[0].status.clone().unwrap();
    assert_eq!((status.ovn_eip_ref, status.ip_address), (eip.name_any(), Some(address)));
}

#[tokio::test]
async fn a_requested_address_is_asked_for_and_an_impossible_one_is_refused_with_the_reason() {
    let cloud = Cloud::new("asked").await;
    let (project, network) = (&cloud.project, cloud.external());
    let spec = json!({
        "cidrBlock": format!("{}/29", project.address(0)), "gateway": project.address(1),
        "excludeIps": [format!("{}..{}", project.address(2), project.address(3))],
    });
    let labels = json!({ label::EXTERNAL_NETWORK_TYPE: project.namespace });
    cloud.kube_ovn.put("Subnet", &network, labels, spec).await.unwrap();
    let _controller = cloud.controller().await;
    project.create("five", json!({ "loadBalancerIP": project.address(5) })).await;
    assert_eq!(project.until_served("five").await, project.address(5));
    project.create("same", json!({ "loadBalancerIP": project.address(5) })).await;
    project.until_reason("same", "AddressTaken").await;
    cloud.foreign(&format!("other-{network}"), &project.address(6)).await;
    project.create("theirs", json!({ "loadBalancerIP": project.address(6) })).await;
    let message = project.until_reason("theirs", "AddressTaken").await;
    assert!(!message.contains("other-"), "names of others are theirs: {message}");
    project.create("outside", json!({ "loadBalancerIP": project.address(77) })).await;
    project.until_reason("outside", "AddressOutsideSubnets").await;
    // kube-ovn would give it out, although the operator keeps it back.
    project.create("excluded", json!({ "loadBalancerIP": project.address(3) })).await;
    project.until_reason("excluded", "AddressExcluded").await;
    assert_eq!(cloud.ovn_eips().await.len(), 2);
}

#[tokio::test]
async fn a_full_network_is_told_and_a_freed_address_is_given() {
    let cloud = Cloud::new("full").await;
    cloud.subnet(&cloud.external(), "30").await;
    let controller = cloud.controller().await;
    cloud.project.served("first").await;
    cloud.project.create("second", json!({})).await;
    let message = cloud.project.until_reason("second", "PoolEmpty").await;
    assert!(message.contains(&cloud.external()), "{message}");
    let left = format!(
        r#"groundcrew_pool_addresses{{family="ipv4",pool="{}",source="Subnet",state="free"}}"#,
        cloud.external()
    );
    assert!(controller.metric(&left).await < 0.5);
    cloud.project.delete("first").await;
    assert_eq!(cloud.project.until_served("second").await, cloud.project.address(2));
}

#[tokio::test]
async fn a_namespace_gets_as_many_addresses_of_a_subnet_as_it_may() {
    let cloud = Cloud::new("limit").await;
    let (project, external) = (&cloud.project, cloud.external());
    let limit = async |limit: &str| {
        let patch = json!({ "metadata": { "annotations": { annotation::PER_NAMESPACE_LIMIT: limit } } });
        let subnets = cloud.kube_ovn.subnets();
        subnets.patch(&external, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    };
    limit("1").await;
    let _controller = cloud.controller().await;
    project.served("one").await;
    project.create("two", json!({})).await;
    let message = project.until_reason("two", "LimitReached").await;
    assert!(message.contains(&format!("Subnet {external}")), "{message}");
    cloud.until_event("LimitReached").await;
    assert_eq!(cloud.ovn_eips().await.len(), 1, "kube-ovn is not asked");
    limit("2").await;
    project.until_served("two").await;
    project.create("three", json!({})).await;
    project.until_reason("three", "LimitReached").await;
    project.delete("one").await;
    project.until_served("three").await;
    assert_eq!(addresses(&project.services().get("two").await.unwrap()).len(), 1);
}

#[tokio::test]
async fn silence_of_kube_ovn_is_told_after_a_while_and_over_when_it_is_back() {
    let mut cloud = Cloud::new("silent").await;
    cloud.kube_ovn.stop().await;
    let _controller = cloud.controller().await;
    cloud.project.create("web", json!({})).await;
    let message = cloud.project.until_reason("web", "KubeOvnSilent").await;
    assert!(message.contains("kube-ovn-controller"), "{message}");
    cloud.until_event("KubeOvnSilent").await;
    cloud.kube_ovn.restart();
    cloud.project.until_served("web").await;
    assert_eq!(cloud.ovn_eips().await.len(), 1);
}

#[tokio::test]
async fn without_a_network_of_the_type_the_label_that_is_missing_is_told() {
    let cloud = Cloud::new("unlabelled").await;
    let _controller = cloud.controller_with(&[]).await;
    let mut service = serde_json::to_value(cloud.project.create("web", json!({})).await).unwrap();
    cloud.project.until_served("web").await;
    service["metadata"] = json!({
        "name": "dmz", "annotations": { annotation::EXTERNAL_NETWORK_TYPE: "dmz" },
    });
    for field in ["clusterIP", "clusterIPs"] {
        service["spec"].as_object_mut().unwrap().remove(field);
    }
    let service = serde_json::from_value(service).unwrap();
    cloud.project.services().create(&PostParams::default(), &service).await.unwrap();
    let message = cloud.project.until_reason("dmz", "NoPool").await;
    assert!(message.contains(&format!("{}=dmz", label::EXTERNAL_NETWORK_TYPE)), "{message}");
}

#[tokio::test]
async fn a_released_service_leaves_nothing_even_if_kube_ovn_was_away_meanwhile() {
    let mut cloud = Cloud::new("stuck").await;
    let _controller = cloud.controller().await;
    cloud.project.served("web").await;
    cloud.kube_ovn.stop().await;
    cloud.project.delete("web").await;
    assert_eq!(cloud.northbound.nbctl(["lb-list"]).await.unwrap(), "");
    assert_eq!(cloud.project.eip_list().await.len(), 0);
    let eips = cloud.ovn_eips().await;
    assert!(eips.len() == 1 && eips[0].metadata.deletion_timestamp.is_some(), "in deletion, and kube-ovn is away");
    cloud.kube_ovn.restart();
    // It passes over what was deleted before it started, until somebody touches it.
    cloud
        .until_ovn_eips("the OvnEip is gone", |eips| {
            ensure!(eips.is_empty(), "{:?}", eips[0].metadata);
            Ok(())
        })
        .await;
}

#[tokio::test]
async fn a_deleted_namespace_leaves_nothing() {
    let cloud = Cloud::new("namespace").await;
    let _controller = cloud.controller().await;
    cloud.project.served("web").await;
    cloud.project.served("other").await;
    let namespaces: Api<Namespace> = Api::all(cloud.project.client.clone());
    namespaces.delete(&cloud.project.namespace, &DeleteParams::default()).await.unwrap();
    eventually("the namespace is gone", 2 * SOON, async || {
        match namespaces.get_opt(&cloud.project.namespace).await? {
            None => Ok(()),
            Some(namespace) => Err(anyhow::anyhow!("{:?}", namespace.status)),
        }
    })
    .await
    .unwrap();
    assert_eq!(cloud.northbound.nbctl(["lb-list"]).await.unwrap(), "");
    cloud
        .until_ovn_eips("the OvnEips are gone", |eips| {
            ensure!(eips.is_empty(), "{} are left", eips.len());
            Ok(())
        })
        .await;
}

#[tokio::test]
async fn an_ovn_eip_that_somebody_deletes_under_a_living_service_is_made_again_with_its_address() {
    let cloud = Cloud::new("pulled").await;
    let _controller = cloud.controller().await;
    let address = cloud.project.served("web").await;
    let before = cloud.ovn_eips().await[0].clone();
    cloud.delete(&before.name_any()).await;
    let note = cloud.until_event("AddressUnreserved").await;
    assert!(note.contains(&address), "{note}");
    let after = cloud
        .until_ovn_eips("it is there again", |eips| {
            let again = eips.iter().find(|eip| eip.uid() != before.uid() && eip.data["status"]["ready"] == json!(true));
            again.cloned().ok_or_else(|| anyhow::anyhow!("{} OvnEips", eips.len()))
        })
        .await;
    assert_eq!(address_of(&after), address);
    cloud.project.until_reason("web", "Served").await;
    let said = async || Ok::<_, anyhow::Error>(cloud.project.eip_list().await[0].status.clone().unwrap().ovn_eip_ref);
    eventually("the EIp names it", SOON, async || {
        let said = said().await?;
        ensure!(said == after.name_any(), "{said}");
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(addresses(&cloud.project.services().get("web").await.unwrap()), [address]);
}

#[tokio::test]
async fn an_address_that_kube_ovn_gave_to_somebody_else_meanwhile_stays_and_is_told_loudly() {
    let mut cloud = Cloud::new("stolen").await;
    let controller = cloud.controller().await;
    let address = cloud.project.served("web").await;
    controller.stop().await;
    cloud.delete(&cloud.ovn_eips().await[0].name_any()).await;
    let thief = format!("thief-{}", cloud.external());
    cloud.foreign(&thief, &address).await;

    let _controller = cloud.controller().await;
    let message = cloud.project.until_reason("web", "AddressTaken").await;
    assert!(message.contains(&address), "{message}");
    assert_eq!(addresses(&cloud.project.services().get("web").await.unwrap()), std::slice::from_ref(&address));
    assert!(cloud.northbound.nbctl(["lb-list"]).await.unwrap().contains(&address), "it is served all the same");
    cloud.delete(&thief).await;
    cloud
        .until_ovn_eips("it is reserved again", |eips| {
            let held = eips.iter().any(|eip| address_of(eip) == address && eip.labels().contains_key(label::CLUSTER));
            ensure!(held, "{} OvnEips", eips.len());
            Ok(())
        })
        .await;
    cloud.project.until_reason("web", "Served").await;
    cloud.kube_ovn.stop().await;
}

#[tokio::test]
async fn what_is_there_is_adopted_by_the_next_process_and_nothing_is_written() {
    let cloud = Cloud::new("adopted").await;
    let controller = cloud.controller().await;
    let address = cloud.project.served("web").await;
    controller.stop().await;
    let before = cloud.ovn_eips().await;
    let eip = cloud.project.eip_list().await[0].clone();
    let controller = cloud.controller().await;
    cloud.project.served("next").await;
    let after: Vec<_> = cloud.ovn_eips().await.into_iter().filter(|eip| address_of(eip) == address).collect();
    assert_eq!(after.iter().map(ResourceExt::resource_version).collect::<Vec<_>>(), [before[0].resource_version()]);
    let unchanged = cloud.project.eips().get(&eip.name_any()).await.unwrap();
    assert_eq!(unchanged.resource_version(), eip.resource_version());
    controller.stop().await;

    // Even without its EIp: what kube-ovn holds for the Service is found by its mark.
    let gone = json!({ "metadata": { "finalizers": null } });
    let eips = cloud.project.eips();
    eips.patch(&eip.name_any(), &PatchParams::default(), &Patch::Merge(&gone)).await.unwrap();
    eips.delete(&eip.name_any(), &DeleteParams::default()).await.unwrap();
    let _controller = cloud.controller().await;
    eventually("the EIp is made again", SOON, async || {
        let status = eips.get(&eip.name_any()).await?.status.unwrap_or_default();
        ensure!(status.ovn_eip_ref == before[0].name_any(), "{status:?}");
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(addresses(&cloud.project.services().get("web").await.unwrap()), [address]);
    assert_eq!(cloud.ovn_eips().await.len(), 2);
}

#[tokio::test]
async fn an_ovn_eip_without_a_service_is_removed_and_one_of_another_cluster_is_not() {
    let cloud = Cloud::new("orphans").await;
    let make = async |name: &str, cluster: &str| {
        let spec = json!({ "externalSubnet": cloud.external(), "type": "nat" });
        let labels = json!({
            label::CLUSTER: cluster, label::OWNER_UID: "6f2c6a4e-5a4b-4c39-9d2e-1d0f5c1b7a00",
        });
        cloud.kube_ovn.put("OvnEip", name, labels, spec).await.unwrap();
        let mark = json!({ "metadata": { "annotations": { annotation::OWNER: format!("{}/gone", cloud.project.namespace) } } });
        let api = cloud.kube_ovn.ovn_eips();
        api.patch(name, &PatchParams::default(), &Patch::Merge(&mark)).await.unwrap();
    };
    let (ours, theirs) = (format!("ours-{}", cloud.external()), format!("theirs-{}", cloud.external()));
    make(&ours, &cloud.project.namespace).await;
    make(&theirs, "another-cluster").await;
    let _controller = cloud.controller_with(&["--orphan-age", "1s", "--scan-interval", "500ms"]).await;
    cloud
        .until_ovn_eips("the orphan is gone", |eips| {
            ensure!(!eips.iter().any(|eip| eip.name_any() == ours), "{} OvnEips", eips.len());
            Ok(())
        })
        .await;
    let left = cloud.ovn_eips().await;
    assert_eq!(left.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), [theirs]);
    assert!(left[0].metadata.deletion_timestamp.is_none());
}

#[tokio::test]
async fn a_network_that_the_router_is_not_connected_to_gives_no_address() {
    let cloud = Cloud::new("apart").await;
    let namespace = &cloud.project.namespace;
    // The list alone connects nothing.
    let spec = |enabled: bool| json!({ "namespaces": [namespace], "enableExternal": enabled, "extraExternalSubnets": [cloud.external()] });
    cloud.kube_ovn.put("Vpc", namespace, json!({}), spec(false)).await.unwrap();
    let _controller = cloud.controller().await;
    cloud.project.create("web", json!({})).await;
    let message = cloud.project.until_reason("web", "SubnetNotConnected").await;
    assert!(message.contains(&cloud.external()) && message.contains("enableExternal"), "{message}");
    assert_eq!(cloud.ovn_eips().await.len(), 0);
    cloud.kube_ovn.put("Vpc", namespace, json!({}), spec(true)).await.unwrap();
    cloud.project.until_served("web").await;
}

#[tokio::test]
async fn a_router_that_has_its_port_from_elsewhere_is_connected() {
    let cloud = Cloud::new("ported").await;
    let namespace = &cloud.project.namespace;
    cloud.kube_ovn.put("Vpc", namespace, json!({}), json!({ "namespaces": [namespace] })).await.unwrap();
    let _controller = cloud.controller().await;
    cloud.project.create("web", json!({})).await;
    cloud.project.until_reason("web", "SubnetNotConnected").await;
    let (port, network) = (format!("out-{namespace}"), format!("{}/29", cloud.project.address(6)));
    let add = ["lrp-add", namespace, &port, "00:00:00:00:07:01", &network];
    let gateway = ["--", "lrp-set-gateway-chassis", &port, "gw"];
    cloud.northbound.nbctl(add.into_iter().chain(gateway)).await.unwrap();
    cloud.project.until_served("web").await;
}

#[tokio::test]
async fn a_cluster_without_kube_ovn_is_refused_where_kube_ovn_was_asked_for() {
    let project = Project::new("without").await;
    let northbound = project.northbound().await;
    let refused = project.refused(&northbound.remotes(), &["--address-source", "kube-ovn"]).await;
    assert!(refused.contains("install kube-ovn"), "{refused}");
}
