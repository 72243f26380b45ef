//! Services that kube-dc served.

use groundcrew_api::eip::{EIp, EIpSpec};
use groundcrew_api::names::finalizer;
use groundcrew_testkit::eventually;
use groundcrew_testkit::ovn::Northbound;
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::eips::alone_with_eips;
use crate::harness::{Project, SOON, addresses, rows};

/// A Service, its status and its row as kube-dc leaves them. The row's uuid.
async fn served_by_kube_dc(project: &Project, northbound: &Northbound, address: &str, vips: &[&str]) -> String {
    project.endpoints("web", 8080, &["10.1.0.41"]).await;
    project.create("web", json!({})).await;
    let finalizer = json!({ "metadata": { "finalizers": [finalizer::KUBE_DC_SERVICE] } });
    project.services().patch("web", &PatchParams::default(), &Patch::Merge(finalizer)).await.unwrap();
    let status = json!({ "status": { "loadBalancer": { "ingress": [{ "ip": address, "ipMode": "Proxy" }] } } });
    project.services().patch_status("web", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    let (namespace, name) = (&project.namespace, format!("{}-web-tcp", project.namespace));
    for vip in vips {
        northbound.nbctl(["lb-add", &name, vip, "10.1.0.40:31416"]).await.unwrap();
    }
    let switch = format!("{namespace}-default");
    northbound.nbctl(["lr-lb-add", namespace, &name, "--", "ls-lb-add", &switch, &name]).await.unwrap();
    let uuid = northbound.nbctl(["--bare", "--columns=_uuid", "find", "Load_Balancer", &format!("name={name}")]).await;
    uuid.unwrap().trim().to_owned()
}

#[tokio::test]
async fn what_kube_dc_served_keeps_its_address_and_its_row_and_has_our_finalizer() {
    let project = Project::new("takeover").await;
    let northbound = project.northbound().await;
    project.pool(8).await;
    let address = project.address(200);
    let vip = format!("{address}:80");
    let uuid = served_by_kube_dc(&project, &northbound, &address, &[&vip]).await;

    let controller = project.start(&northbound.remotes(), &["--take-over"]).await;
    controller.until_ready().await;
    project.until_reason("web", "Served").await;
    let service = project.services().get("web").await.unwrap();
    assert_eq!(service.finalizers(), [finalizer::LOAD_BALANCER_CLEANUP]);
    assert_eq!(project.until_served("web").await, address);
    let columns = ["--bare", "--columns=_uuid,name", "list", "Load_Balancer"];
    let row = northbound.nbctl(columns).await.unwrap();
    assert_eq!(row.split_whitespace().next(), Some(&*uuid), "the same row, and no other: {row}");
    assert!(row.contains(&format!("{}-web-tcp-", project.namespace)), "{row}");
    for place in [["lr-lb-list", &project.namespace], ["ls-lb-list", &format!("{}-default", project.namespace)]] {
        let attached = northbound.nbctl(place).await.unwrap();
        assert!(attached.contains(&vip) && attached.contains("10.1.0.41:8080"), "{attached}");
    }
    project.delete("web").await;
    assert_eq!(northbound.nbctl(["lb-list"]).await.unwrap(), "");
}

#[tokio::test]
async fn a_service_that_was_deleted_after_kube_dc_had_gone_goes_with_its_row() {
    let project = Project::new("stuck").await;
    let northbound = project.northbound().await;
    project.pool(8).await;
    let address = project.address(200);
    served_by_kube_dc(&project, &northbound, &address, &[&format!("{address}:80")]).await;
    let namesake = format!("{}-web-udp", project.namespace);
    northbound
        .nbctl(["lb-add", &namesake, &format!("{}:80", project.address(201)), "10.1.0.40:53", "udp"])
        .await
        .unwrap();
    project.services().delete("web", &DeleteParams::default()).await.unwrap();
    assert!(project.services().get("web").await.is_ok(), "only kube-dc's finalizer keeps it");

    let controller = project.start(&northbound.remotes(), &["--take-over"]).await;
    controller.until_ready().await;
    eventually("the Service goes", SOON, async || {
        anyhow::ensure!(project.services().get_opt("web").await?.is_none());
        Ok(())
    })
    .await
    .unwrap();
    let left = northbound.nbctl(["--bare", "--columns=name", "list", "Load_Balancer"]).await.unwrap();
    assert_eq!(left.trim(), namesake, "not with the Service's addresses, so not the Service's");
}

/// The API server takes away what it had published.
#[tokio::test]
async fn a_service_that_became_another_type_after_kube_dc_had_gone_leaves_nothing_on_its_address() {
    let project = Project::new("retyped").await;
    let northbound = project.northbound().await;
    project.pool(8).await;
    let _alone = alone_with_eips().await;
    let address = project.address(200);
    served_by_kube_dc(&project, &northbound, &address, &[&format!("{address}:80")]).await;
    let retype =
        json!({ "spec": { "type": "ClusterIP", "loadBalancerClass": null, "allocateLoadBalancerNodePorts": null } });
    project.services().patch("web", &PatchParams::default(), &Patch::Merge(retype)).await.unwrap();
    let mut web = project.services().get("web").await.unwrap();
    assert_eq!(addresses(&web), [""; 0]);

    // Nothing says yet which addresses it had, and a row has the name that kube-dc gave to its own.
    let flags = ["--take-over", "--take-classless"];
    let controller = project.start(&northbound.remotes(), &flags).await;
    controller.until_ready().await;
    let message = project.until_event("TakeOverUnclear").await;
    assert!(message.contains(&format!("{}-web-tcp", project.namespace)), "{message}");
    assert!(northbound.nbctl(["lb-list"]).await.unwrap().contains(&address));
    web = project.services().get("web").await.unwrap();
    assert_eq!(web.finalizers(), [finalizer::KUBE_DC_SERVICE], "it is to be taken away still");
    controller.stop().await;

    // Without kube-dc's finalizer, or the controllers of other tests would take it over.
    let eip = EIp::new("slb-web-x7k2p", EIpSpec::default());
    project.eips().create(&PostParams::default(), &eip).await.unwrap();
    let status = json!({ "status": {
        "ipAddress": address, "ovnEIpRef": "theirs", "ready": true, "ownershipType": "Shared", "deleteReleased": true,
        "owners": [{ "type": "ServiceLb", "ownerRef": "web" }],
    } });
    project.eips().patch_status("slb-web-x7k2p", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    let controller = project.start(&northbound.remotes(), &flags).await;
    project.until("web", "it is let go of", |web| web.finalizers().is_empty().then_some(())).await;
    assert_eq!(northbound.nbctl(["lb-list"]).await.unwrap(), "");
    controller.stop().await;
}

#[tokio::test]
async fn a_row_with_another_services_addresses_too_is_left_alone_and_told() {
    let project = Project::new("unclear").await;
    let northbound = project.northbound().await;
    project.pool(8).await;
    let address = project.address(200);
    let vips = [format!("{address}:80"), format!("{}:80", project.address(201))];
    served_by_kube_dc(&project, &northbound, &address, &[&vips[0], &vips[1]]).await;
    let before = rows(&northbound).await;
    let controller = project.start(&northbound.remotes(), &["--take-over"]).await;
    controller.until_ready().await;
    let message = project.until_reason("web", "TakeOverUnclear").await;
    assert!(message.contains(&format!("{}-web-tcp", project.namespace)), "{message}");
    assert_eq!(rows(&northbound).await, before);
    assert_eq!(project.until_served("web").await, address, "the address stays published");

    // The operator splits it by hand.
    let name = format!("{}-web-tcp", project.namespace);
    northbound.nbctl(["lb-del", &name, &vips[1]]).await.unwrap();
    project.until_reason("web", "Served").await;
}

#[tokio::test]
async fn without_the_flag_kube_dcs_rows_and_finalizer_stay() {
    let project = Project::new("asked").await;
    let northbound = project.northbound().await;
    project.pool(8).await;
    let address = project.address(200);
    let uuid = served_by_kube_dc(&project, &northbound, &address, &[&format!("{address}:80")]).await;
    let show = ["--columns=_uuid,name,vips,external_ids", "list", "Load_Balancer", &uuid];
    let before = northbound.nbctl(show).await.unwrap();
    let _controller = project.controller(&northbound).await;
    eventually("the Service is ours", SOON, async || {
        let service = project.services().get("web").await?;
        let finalizers = service.finalizers();
        anyhow::ensure!(finalizers.iter().any(|f| f == finalizer::LOAD_BALANCER_CLEANUP), "{finalizers:?}");
        anyhow::ensure!(finalizers.iter().any(|f| f == finalizer::KUBE_DC_SERVICE), "{finalizers:?}");
        Ok(())
    })
    .await
    .unwrap();
    project.until_reason("web", "Served").await;
    assert_eq!(northbound.nbctl(show).await.unwrap(), before);
}
