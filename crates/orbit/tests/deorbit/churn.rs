//! Others go on working in the cluster, or left it half done.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::ensure;
use groundcrew_api::deorbit::Phase;
use groundcrew_orbit::deorbit::observe;
use groundcrew_testkit::eventually;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, PersistentVolumeClaim, Service};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{from_value, json};
use tokio_util::task::AbortOnDropHandle;

use crate::faults::all;
use crate::lab::{Lab, SOON, claim};
use crate::standins::{finalizers, lease};

/// An operator that wants its Service, its claim and its `StatefulSet` back whenever they are not as it made them.
struct Operator {
    refused: Arc<AtomicUsize>,
    scaled: Arc<AtomicUsize>,
    _task: AbortOnDropHandle<()>,
}

impl Operator {
    /// It scales up again as often as this; then somebody has noticed.
    const STUBBORN: usize = 3;

    fn start(client: &Client, namespace: &str) -> Self {
        let (refused, scaled) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let counts = (refused.clone(), scaled.clone());
        let services: Api<Service> = Api::namespaced(client.clone(), namespace);
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
        let sets: Api<StatefulSet> = Api::namespaced(client.clone(), namespace);
        let task = tokio::spawn(async move {
            let service =
                json!({"metadata": {"name": "web"}, "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}});
            let service: Service = from_value(service).unwrap();
            let data: PersistentVolumeClaim = from_value(claim("data", "cinder")).unwrap();
            loop {
                let made = [
                    services.create(&PostParams::default(), &service).await.map(drop),
                    claims.create(&PostParams::default(), &data).await.map(drop),
                ];
                let denied = |made: &&kube::Result<()>| {
                    made.as_ref().is_err_and(|error| error.to_string().contains("being deorbited"))
                };
                counts.0.fetch_add(made.iter().filter(denied).count(), Ordering::SeqCst);
                let stopped =
                    sets.get("db").await.is_ok_and(|set| set.spec.is_some_and(|spec| spec.replicas == Some(0)));
                if stopped && counts.1.load(Ordering::SeqCst) < Self::STUBBORN {
                    let up = Patch::Merge(json!({"spec": {"replicas": 1}}));
                    if sets.patch("db", &PatchParams::default(), &up).await.is_ok() {
                        counts.1.fetch_add(1, Ordering::SeqCst);
                    }
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        Self { refused, scaled, _task: AbortOnDropHandle::new(task) }
    }
}

pub(crate) async fn an_operator_that_makes_everything_again_is_held_off(lab: &Lab) {
    lab.served("web").await;
    lab.bound("data", "cinder").await;
    lab.stateful_set("db", "cinder").await;
    let operator = Operator::start(&lab.client, &lab.namespace);
    let running = lab.start();
    lab.deorbit(&json!({})).await;
    let status = lab.until_phase(Phase::Clean).await;
    lab.assert_as_before().await;
    running.stop().await;
    let (scaled, refused) = (operator.scaled.load(Ordering::SeqCst), operator.refused.load(Ordering::SeqCst));
    assert!(scaled > 0 && refused > 0, "scaled {scaled} times, refused {refused} times: {status:?}");
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(lab.client.clone(), &lab.namespace);
    assert_eq!(claims.list(&ListParams::default()).await.unwrap().items.len(), 0, "neither its own nor the set's");
}

/// The controller of these Gateways: it makes a Service for each, and has not heard yet that one is gone.
fn gateway_controller(lab: &Lab, gateways: [&'static str; 2]) -> (Arc<AtomicUsize>, AbortOnDropHandle<()>) {
    let refused = Arc::new(AtomicUsize::new(0));
    let (services, count): (Api<Service>, _) = (Api::namespaced(lab.client.clone(), &lab.namespace), refused.clone());
    let task = tokio::spawn(async move {
        loop {
            for gateway in gateways {
                let labels = json!({"gateway.networking.k8s.io/gateway-name": gateway});
                let service = json!({"metadata": {"name": format!("{gateway}-edge"), "labels": labels},
                    "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}});
                let made = services.create(&PostParams::default(), &from_value(service).unwrap()).await;
                if made.is_err_and(|error| error.to_string().contains("being deorbited")) {
                    count.fetch_add(1, Ordering::SeqCst);
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    (refused, AbortOnDropHandle::new(task))
}

pub(crate) async fn a_gateway_goes_before_its_services_and_one_that_is_kept_keeps_them(lab: &Lab) {
    let gateways: Api<DynamicObject> = Api::namespaced_with(lab.client.clone(), &lab.namespace, &observe::gateway());
    for name in ["front", "kept"] {
        lab.dynamic(&observe::gateway(), name).await;
    }
    let keep = Patch::Merge(json!({"metadata": {"labels": {"groundcrew.dev/deorbit": "keep"}}}));
    gateways.patch("kept", &PatchParams::default(), &keep).await.unwrap();
    let (refused, _controller) = gateway_controller(lab, ["front", "kept"]);
    lab.until_served("front-edge").await;
    let balancer = lab.until_served("kept-edge").await;
    let services: Api<Service> = Api::namespaced(lab.client.clone(), &lab.namespace);
    let uid = services.get("kept-edge").await.unwrap().uid();

    let running = lab.start();
    lab.deorbit(&json!({"policies": all("delete"), "budgets": {"stages": {"Verify": "1s"}}})).await;
    let status = lab.until_phase(Phase::Clean).await;
    running.stop().await;
    assert!(refused.load(Ordering::SeqCst) > 0, "it makes them again and again");
    let left = services.list(&ListParams::default()).await.unwrap().items;
    let left: Vec<_> =
        left.iter().map(|one| (one.name_any(), one.uid(), one.metadata.deletion_timestamp.is_some())).collect();
    assert_eq!(left, [("kept-edge".to_owned(), uid, false)]);
    assert_eq!(lab.place.ids("loadbalancers").await, [balancer]);
    assert!(gateways.get_opt("front").await.unwrap().is_none() && gateways.get_opt("kept").await.unwrap().is_some());
    let line = status.report.iter().find(|line| line.kind == "Service").unwrap();
    assert!(line.kept && line.reason.contains("Gateway") && line.reason.contains("stays"), "{line:?}");
}

pub(crate) async fn a_namespace_that_is_already_going_does_not_hold_it_up(lab: &Lab) {
    lab.served("web").await;
    lab.bound("data", "cinder").await;
    // It does not end by itself.
    let maps: Api<ConfigMap> = Api::namespaced(lab.client.clone(), &lab.namespace);
    let held = json!({"metadata": {"name": "held", "finalizers": ["test.example/held"]}});
    maps.create(&PostParams::default(), &from_value(held).unwrap()).await.unwrap();
    let namespaces: Api<Namespace> = Api::all(lab.client.clone());
    // Its controllers are slower than the namespace's.
    lab.standins.stop(&lab.standins.balancers).await;
    namespaces.delete(&lab.namespace, &DeleteParams::default()).await.unwrap();
    let services: Api<Service> = Api::namespaced(lab.client.clone(), &lab.namespace);
    eventually("the namespace takes its Service along", SOON, async || {
        ensure!(services.get("web").await?.metadata.deletion_timestamp.is_some(), "it lives");
        Ok(())
    })
    .await
    .unwrap();
    let running = lab.start();
    lab.deorbit(&json!({})).await;
    lab.until("it waits for the Service", |status| status.stage.contains("LoadBalancers")).await;
    lab.standins.balancers.store(true, Ordering::SeqCst);
    lab.until_phase(Phase::Clean).await;
    lab.assert_as_before().await;
    running.stop().await;
    assert!(namespaces.get(&lab.namespace).await.unwrap().metadata.deletion_timestamp.is_some());
    finalizers(&maps, "held", &[]).await.unwrap();
}

pub(crate) async fn a_claim_that_waits_for_its_first_pod_goes_before_it_gets_a_volume(lab: &Lab) {
    lab.claim("late", "cinder-late").await;
    lab.bound("data", "cinder").await;
    let running = lab.start();
    lab.deorbit(&json!({})).await;
    lab.until_phase(Phase::Clean).await;
    running.stop().await;
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(lab.client.clone(), &lab.namespace);
    assert_eq!(claims.list(&ListParams::default()).await.unwrap().items.len(), 0);
    lab.assert_as_before().await;
}

/// As after a restore: the node is gone, and so is whoever would detach.
pub(crate) async fn a_stale_attachment_is_let_go_when_its_volume_is_gone(lab: &Lab) {
    const HELD: &str = "external-attacher/cinder-csi-openstack-org";
    lab.bound("data", "cinder").await;
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(lab.client.clone(), &lab.namespace);
    let volume = claims.get("data").await.unwrap().spec.unwrap().volume_name.unwrap();
    let attachments: Api<VolumeAttachment> = Api::all(lab.client.clone());
    let stale = json!({"metadata": {"name": "stale", "finalizers": [HELD]}, "spec": {
        "attacher": "cinder.csi.openstack.org", "nodeName": "gone", "source": {"persistentVolumeName": volume}}});
    attachments.create(&PostParams::default(), &from_value(stale).unwrap()).await.unwrap();
    lab.standins.stop(&lab.standins.volumes).await;
    lease(&lab.client, "cinder-csi-openstack-org", false).await;
    let running = lab.start();
    lab.deorbit(&json!({"policies": all("delete"), "budgets": {"stages": {"Verify": "1s"}}})).await;
    lab.until_phase(Phase::Clean).await;
    running.stop().await;
    assert!(attachments.get_opt("stale").await.unwrap().is_none());
    lab.assert_as_before().await;
}

pub(crate) async fn without_snapshots_and_gateways_in_the_cluster_there_are_none_of_them(lab: &Lab) {
    lab.served("web").await;
    lab.bound("data", "cinder").await;
    let definitions: Api<CustomResourceDefinition> = Api::all(lab.client.clone());
    for resource in [observe::snapshot(), observe::content(), observe::gateway()] {
        let name = format!("{}.{}", resource.plural, resource.group);
        definitions.delete(&name, &DeleteParams::default()).await.unwrap();
        let objects: Api<DynamicObject> = Api::all_with(lab.client.clone(), &resource);
        eventually(&format!("{name} is not known any more"), SOON, async || {
            match objects.list(&ListParams::default()).await {
                Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
                listed => Err(format!("{:?}", listed.map(|listed| listed.items.len()))),
            }
        })
        .await
        .unwrap();
    }
    let running = lab.start();
    lab.deorbit(&json!({})).await;
    lab.until_phase(Phase::Clean).await;
    running.stop().await;
    lab.assert_as_before().await;
}

pub(crate) async fn a_cluster_that_somebody_protects_is_refused(lab: &Lab) {
    lab.served("web").await;
    let before = lab.place.everything().await;
    let namespaces: Api<Namespace> = Api::all(lab.client.clone());
    let label = |value: Option<&str>| Patch::Merge(json!({"metadata": {"labels": {"groundcrew.dev/deorbit": value}}}));
    namespaces.patch("kube-system", &PatchParams::default(), &label(Some("keep"))).await.unwrap();
    let running = lab.start();
    lab.deorbit(&json!({})).await;
    let status = lab.until_phase(Phase::Refused).await;
    namespaces.patch("kube-system", &PatchParams::default(), &label(None)).await.unwrap();
    running.stop().await;
    assert!(status.message.contains("groundcrew.dev/deorbit=keep"), "{}", status.message);
    assert_eq!(lab.place.everything().await, before);
    let services: Api<Service> = Api::namespaced(lab.client.clone(), &lab.namespace);
    let names: Vec<_> =
        services.list(&ListParams::default()).await.unwrap().iter().map(ResourceExt::name_any).collect();
    assert_eq!(names, ["web"]);
}
