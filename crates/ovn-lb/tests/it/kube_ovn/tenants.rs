//! EIps that tenants make, and Services with an address of each family, where addresses are kube-ovn's.

use groundcrew_api::eip::{EIp, EIpSpec};
use k8s_openapi::api::core::v1::Service;

use super::*;
use crate::eips::alone_with_eips;

impl Cloud {
    /// An EIp on an `OvnEip` that is there already, or will be.
    async fn make_child(&self, name: &str, ovn_eip: &str) {
        let spec = EIpSpec { child_ref: Some(ovn_eip.to_owned()), ..EIpSpec::default() };
        self.project.eips().create(&PostParams::default(), &EIp::new(name, spec)).await.unwrap();
    }
}

#[tokio::test]
async fn a_tenants_eip_has_an_ovn_eip_of_its_own_or_one_of_its_own_project_and_no_others() {
    let cloud = Cloud::new("tenants").await;
    let (project, external) = (&cloud.project, cloud.external());
    let namespace = project.namespace.as_str();
    let _alone = alone_with_eips().await;
    let _controller = cloud.controller_with(&["--serve-eips"]).await;

    // The address of its own router, as kube-dc makes `default-gw`, and that of somebody else's. Neither is there yet.
    let (own, others) = (format!("{namespace}-{external}"), format!("another-{external}"));
    cloud.make_child("default-gw", &own).await;
    cloud.make_child("theirs", &others).await;
    project.until_eip_reason("default-gw", "ChildRefRefused").await;
    project.until_eip_reason("theirs", "ChildRefRefused").await;
    for (vpc, namespaces) in [("another", json!([])), (namespace, json!([namespace]))] {
        let spec = json!({ "namespaces": namespaces, "enableExternal": true, "extraExternalSubnets": [external] });
        cloud.kube_ovn.put("Vpc", vpc, json!({}), spec).await.unwrap();
    }
    let gateway = project.until_eip_ready("default-gw").await;
    assert_eq!(address_of(&cloud.kube_ovn.ovn_eips().get(&own).await.unwrap()), gateway);
    project.until_eip_reason("theirs", "ChildRefRefused").await;
    cloud.until_event("ChildRefRefused").await;

    project.make_eip("office", Some(namespace)).await;
    let office = project.until_eip_ready("office").await;
    let reference = project.eips().get("office").await.unwrap().status.unwrap().ovn_eip_ref;
    let held = cloud.kube_ovn.ovn_eips().get(&reference).await.unwrap();
    assert_eq!((address_of(&held), held.labels()[label::CLUSTER].as_str()), (office.as_str(), namespace));

    project.endpoints("web", 8080, &["10.1.0.41"]).await;
    project.create_annotated("web", json!({ annotation::BIND_ON_DEFAULT_GW_EIP: "true" }), json!({})).await;
    assert_eq!(project.until_served("web").await, gateway);
    // Users of two EIps would not be kept from each other's ports.
    for (second, taken) in [("second-gw", &own), ("second-office", &reference.clone())] {
        cloud.make_child(second, taken).await;
        project.until_eip_reason(second, "AddressTaken").await;
        project.eips().delete(second, &DeleteParams::default()).await.unwrap();
        project.until_eip_gone(second).await;
    }
    // Whose it was is told when somebody deletes it, and it is asked for again.
    cloud.delete(&reference).await;
    cloud.until_event("AddressUnreserved").await;
    let events: Api<Event> = Api::namespaced(project.client.clone(), namespace);
    let told = events.list(&ListParams::default()).await.unwrap().items;
    let told = told.into_iter().find(|event| event.reason.as_deref() == Some("AddressUnreserved")).unwrap();
    let about = told.regarding.unwrap();
    assert_eq!((about.kind.as_deref(), about.name.as_deref()), (Some("EIp"), Some("office")));
    let is_again = |eip: &DynamicObject| eip.uid() != held.uid() && address_of(eip) == office;
    cloud
        .until_ovn_eips("the address of the EIp is held again", |eips| {
            ensure!(eips.iter().any(is_again), "{eips:?}");
            Ok(())
        })
        .await;
    assert_eq!(project.until_eip_ready("office").await, office);

    project.delete("web").await;
    for name in ["default-gw", "office"] {
        project.eips().delete(name, &DeleteParams::default()).await.unwrap();
        project.until_eip_gone(name).await;
    }
    let mut routers = [own, others];
    routers.sort();
    cloud
        .until_ovn_eips("those of routers stay, and the other goes with its EIp", |eips| {
            let mut names: Vec<_> = eips.iter().map(ResourceExt::name_any).collect();
            names.sort();
            ensure!(names == routers, "{names:?}");
            Ok(())
        })
        .await;
}

#[tokio::test]
async fn one_ovn_eip_of_a_dual_stack_network_is_both_addresses_of_a_service() {
    let cloud = Cloud::new("dual").await;
    let (project, external) = (&cloud.project, cloud.external());
    let spec = json!({
        "cidrBlock": format!("{}/29,2001:db8:77::/120", project.address(0)),
        "gateway": format!("{},2001:db8:77::1", project.address(1)), "protocol": "Dual",
    });
    let labels = json!({ label::EXTERNAL_NETWORK_TYPE: project.namespace });
    cloud.kube_ovn.put("Subnet", &external, labels, spec).await.unwrap();
    let _controller = cloud.controller().await;
    project.endpoints("web", 8080, &["10.1.0.41"]).await;
    let ports = json!([{ "name": "http", "protocol": "TCP", "port": 8080 }]);
    project.slice("web6", "web", ports, &["fd00::41"]).await;
    project.create("web", json!({ "ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv4", "IPv6"] })).await;
    let both = |service: &Service| Some(addresses(service)).filter(|published| published.len() == 2);
    let published = project.until("web", "it has an address of each family", both).await;

    let eips = cloud.ovn_eips().await;
    assert_eq!(eips.len(), 1);
    let status = &eips[0].data["status"];
    assert_eq!([&status["v4Ip"], &status["v6Ip"]], [&json!(published[0]), &json!(published[1])]);
    let references: Vec<_> =
        project.eip_list().await.into_iter().filter_map(|eip| eip.status).map(|status| status.ovn_eip_ref).collect();
    assert_eq!(references, [eips[0].name_any(), eips[0].name_any()]);
    let rows = cloud.northbound.nbctl(["lb-list"]).await.unwrap();
    assert!(rows.contains("10.1.0.41:8080") && rows.contains("[fd00::41]:8080"), "{rows}");

    project.delete("web").await;
    assert_eq!(project.eip_list().await.len(), 0);
    cloud
        .until_ovn_eips("the OvnEip goes with the second EIp", |eips| {
            ensure!(eips.is_empty(), "{} are left", eips.len());
            Ok(())
        })
        .await;
}
