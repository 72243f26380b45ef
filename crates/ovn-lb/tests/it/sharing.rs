//! Who is on an address keeps its ports there, whatever it says later.

use groundcrew_core::service::names;
use groundcrew_testkit::ovn::Northbound;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::eips::serving;
use crate::harness::{Project, rows};

const BIND: &str = "service.nlb.kube-dc.com/bind-on-eip";

impl Project {
    async fn annotate(&self, service: &str, annotations: Value) {
        let edit = json!({ "metadata": { "annotations": annotations } });
        self.services().patch(service, &PatchParams::default(), &Patch::Merge(edit)).await.unwrap();
    }

    async fn sharing(&self, service: &str, port: u16) {
        self.endpoints(service, 8080, &["10.1.0.41"]).await;
        let ports = json!({ "ports": [{ "name": "http", "port": port, "targetPort": "web" }] });
        self.create_annotated(service, json!({ names::SHARING_KEY: "one" }), ports).await;
    }
}

/// How many rows have this virtual address.
async fn count(northbound: &Northbound, vip: &str) -> usize {
    northbound.nbctl(["lb-list"]).await.unwrap().split_whitespace().filter(|word| *word == vip).count()
}

#[tokio::test]
async fn who_takes_its_sharing_key_off_keeps_its_port_until_it_goes() {
    let project = Project::new("unshared").await;
    let northbound = project.northbound().await;
    project.pool(8).await;
    let controller = project.controller(&northbound).await;
    project.sharing("first", 80).await;
    let address = project.until_served("first").await;
    project.sharing("second", 443).await;
    assert_eq!(project.until_served("second").await, address);

    project.annotate("second", json!({ names::SHARING_KEY: null })).await;
    project.sharing("third", 443).await;
    let message = project.until_reason("third", "PortConflict").await;
    assert!(message.contains("port 443/tcp") && message.contains("/second"), "{message}");
    assert_eq!(count(&northbound, &format!("{address}:443")).await, 1);
    let moved = json!({ "spec": { "ports": [{ "name": "http", "port": 80, "targetPort": "web" }] } });
    project.services().patch("second", &PatchParams::default(), &Patch::Merge(moved)).await.unwrap();
    let message = project.until_reason("second", "PortConflict").await;
    assert!(message.contains("port 80/tcp") && message.contains("/first"), "{message}");
    assert_eq!(project.until_served("third").await, address, "nobody wants that port any more");
    assert_eq!(count(&northbound, &format!("{address}:80")).await, 1);

    project.delete("first").await;
    project.until_reason("second", "Served").await;
    assert_eq!(project.until_served("second").await, address);
    controller.stop().await;
}

#[tokio::test]
async fn who_takes_the_name_of_an_eip_off_keeps_its_port_until_it_goes() {
    let project = Project::new("unbound").await;
    let northbound = project.northbound().await;
    project.pool(8).await;
    let (controller, _alone) = serving(&project, &northbound).await;
    project.make_eip("mine", None).await;
    let address = project.until_eip_ready("mine").await;
    project.bind("web", "bind-on-eip", "mine", 80).await;
    assert_eq!(project.until_served("web").await, address);
    project.annotate("web", json!({ BIND: null })).await;
    project.until_reason("web", "AddressKept").await;
    project.bind("api", "bind-on-eip", "mine", 80).await;
    let message = project.until_reason("api", "PortConflict").await;
    assert!(message.contains("/web"), "{message}");
    assert_eq!(count(&northbound, &format!("{address}:80")).await, 1);
    project.delete("web").await;
    assert_eq!(project.until_served("api").await, address);
    controller.stop().await;
}

/// `kubectl replace` with a manifest that knows neither finalizer nor annotation.
#[tokio::test]
async fn a_write_that_takes_our_claim_off_moves_nobody() {
    let project = Project::new("unclaimed").await;
    let northbound = project.northbound().await;
    project.pool(8).await;
    let (controller, _alone) = serving(&project, &northbound).await;
    project.make_eip("mine", None).await;
    project.until_eip_ready("mine").await;
    let address = project.served("web").await;
    project.annotate("web", json!({ BIND: "mine" })).await;
    project.until_reason("web", "AddressKept").await;
    let eips = async || project.eip_list().await.into_iter().map(|eip| (eip.name_any(), eip.uid())).collect::<Vec<_>>();
    let before = (eips().await, rows(&northbound).await);
    let unclaim = json!({ "metadata": { "finalizers": null, "annotations": { names::CLAIMED_BY: null } } });
    project.services().patch("web", &PatchParams::default(), &Patch::Merge(unclaim)).await.unwrap();
    project.until("web", "it is claimed again", |web| (!web.finalizers().is_empty()).then_some(())).await;
    // The look that claimed it goes on after that.
    let edit = json!({ "spec": { "ports": [{ "name": "http", "port": 81, "targetPort": "web" }] } });
    project.services().patch("web", &PatchParams::default(), &Patch::Merge(edit)).await.unwrap();
    let follows = |said: &str| said.contains(&format!("{address}:81"));
    project.until_nbctl(&northbound, &["lb-list"], "its row follows", follows).await;
    let edit = json!({ "spec": { "ports": [{ "name": "http", "port": 80, "targetPort": "web" }] } });
    project.services().patch("web", &PatchParams::default(), &Patch::Merge(edit)).await.unwrap();
    let follows = |said: &str| said.contains(&format!("{address}:80"));
    project.until_nbctl(&northbound, &["lb-list"], "its row follows", follows).await;
    assert_eq!((eips().await, rows(&northbound).await), before);
    assert_eq!(project.until_served("web").await, address);
    controller.stop().await;
}

#[tokio::test]
async fn an_unpublished_address_that_is_left_for_a_named_one_goes_after_its_row() {
    let project = Project::new("rebound").await;
    let northbound = project.northbound().await;
    project.pool(8).await;
    let (controller, alone) = serving(&project, &northbound).await;
    project.make_eip("mine", None).await;
    let named = project.until_eip_ready("mine").await;
    let own = project.served("web").await;
    controller.stop().await;
    drop(alone);
    // As a crash between row and status leaves it.
    let unpublished = json!({ "status": { "loadBalancer": { "ingress": null }, "conditions": null } });
    project.services().patch_status("web", &PatchParams::default(), &Patch::Merge(unpublished)).await.unwrap();
    project.annotate("web", json!({ BIND: "mine", names::PAUSED: "true" })).await;

    let (controller, _alone) = serving(&project, &northbound).await;
    northbound.set_read_only(true).await.unwrap();
    project.annotate("web", json!({ names::PAUSED: null })).await;
    project.until_reason("web", "ProviderUnavailable").await;
    let made = async || project.eip_list().await.into_iter().find(|eip| eip.name_any().starts_with("slb-web-"));
    assert!(made().await.is_some_and(|eip| eip.metadata.deletion_timestamp.is_none()), "its row answers still");
    assert_eq!(count(&northbound, &format!("{own}:80")).await, 1);
    northbound.set_read_only(false).await.unwrap();
    assert_eq!(project.until_served("web").await, named);
    assert_eq!((count(&northbound, &format!("{own}:80")).await, made().await.is_none()), (0, true));
    controller.stop().await;
}
