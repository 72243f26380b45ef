//! Where the pods of a namespace live, by what kube-ovn's Vpcs and Subnets say.

use super::*;
use crate::drift::{found, until_found};

#[tokio::test]
async fn the_router_and_the_switch_are_those_that_kube_ovn_names() {
    let cloud = Cloud::new("places").await;
    let namespace = &cloud.project.namespace;
    let (vpc, subnet) = (format!("vpc-{namespace}"), format!("net-{namespace}"));
    let spec = json!({ "namespaces": [namespace], "enableExternal": true, "extraExternalSubnets": [cloud.external()] });
    cloud.kube_ovn.put("Vpc", &vpc, json!({}), spec).await.unwrap();
    let spec = json!({ "vpc": vpc, "namespaces": [namespace], "cidrBlock": "10.1.0.0/16", "gateway": "10.1.0.1" });
    cloud.kube_ovn.put("Subnet", &subnet, json!({}), spec).await.unwrap();
    cloud.northbound.nbctl(["lr-add", &vpc, "--", "ls-add", &subnet]).await.unwrap();
    // To follow kube-ovn is nobody's drift, not even where drift is only told.
    let controller = cloud.controller_with(&["--report-only"]).await;
    let address = cloud.project.served("web").await;
    let attached = async |kind: &str, name: &str| cloud.northbound.nbctl([kind, name]).await.unwrap();
    assert!(attached("lr-lb-list", &vpc).await.contains(&address));
    assert!(attached("ls-lb-list", &subnet).await.contains(&address));
    assert!(!attached("lr-lb-list", namespace).await.contains(&address));

    // kube-ovn makes another router of it, and says so before it is there.
    let (project, new) = (&cloud.project, format!("{vpc}-new"));
    cloud.kube_ovn.put_vpc_status(&vpc, json!({ "router": new })).await.unwrap();
    let message = project.until_reason("web", "RouterMissing").await;
    assert!(message.contains(&new), "{message}");
    project.endpoints("web", 8080, &["10.1.0.42"]).await;
    let follows = |said: &str| said.contains("10.1.0.42:8080");
    project.until_nbctl(&cloud.northbound, &["lb-list"], "it is served where it was meanwhile", follows).await;
    assert!(attached("lr-lb-list", &vpc).await.contains(&address));

    cloud.northbound.nbctl(["lr-add", &new]).await.unwrap();
    project
        .until_nbctl(&cloud.northbound, &["lr-lb-list", &new], "it is on the new router", |s| s.contains(&address))
        .await;
    project
        .until_nbctl(&cloud.northbound, &["lr-lb-list", &vpc], "it left the old one", |s| !s.contains(&address))
        .await;
    project.until_reason("web", "Served").await;
    cloud.northbound.nbctl(["lr-lb-del", &new]).await.unwrap();
    until_found(&controller, "router_detached", 1).await;
    assert_eq!(found(&controller, "router_missing").await, 0);
}

#[tokio::test]
async fn a_subnet_has_the_namespaces_that_it_selects_by_their_labels() {
    let cloud = Cloud::new("selected").await;
    let (project, namespace) = (&cloud.project, &cloud.project.namespace);
    let (vpc, subnet) = (format!("vpc-{namespace}"), format!("net-{namespace}"));
    let spec = json!({ "enableExternal": true, "extraExternalSubnets": [cloud.external()] });
    cloud.kube_ovn.put("Vpc", &vpc, json!({}), spec).await.unwrap();
    let selector = json!({ "matchLabels": { "team": namespace } });
    let spec =
        json!({ "vpc": vpc, "namespaceSelectors": [selector], "cidrBlock": "10.1.0.0/16", "gateway": "10.1.0.1" });
    cloud.kube_ovn.put("Subnet", &subnet, json!({}), spec).await.unwrap();
    cloud.northbound.nbctl(["lr-add", &vpc, "--", "ls-add", &subnet]).await.unwrap();
    let label = async |team: Option<&str>| {
        let patch = json!({ "metadata": { "labels": { "team": team } } });
        let namespaces: Api<Namespace> = Api::all(project.client.clone());
        namespaces.patch(namespace, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    };
    label(Some(namespace)).await;
    let _controller = cloud.controller().await;
    let address = project.served("web").await;
    let listed = async |kind: &'static str, name: &str, what: &str, is_there: bool| {
        let done = |list: &str| list.contains(&address) == is_there;
        project.until_nbctl(&cloud.northbound, &[kind, name], what, done).await;
    };
    listed("lr-lb-list", &vpc, "it is on the router of the Subnet", true).await;
    listed("ls-lb-list", &subnet, "it is on the Subnet", true).await;

    label(None).await;
    listed("lr-lb-list", namespace, "without the label it is where the templates say", true).await;
    listed("lr-lb-list", &vpc, "it left the router of the Subnet", false).await;
    label(Some(namespace)).await;
    listed("lr-lb-list", &vpc, "it is back", true).await;
    listed("lr-lb-list", namespace, "it left the other", false).await;
}
