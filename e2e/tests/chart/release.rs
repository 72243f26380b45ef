//! A release from its installation to its end, on a real kube-apiserver.

use std::collections::BTreeMap;
use std::process::Command;

use groundcrew_api::address_pool::{AddressPool, AddressPoolSpec};
use groundcrew_testkit::kube::{ControlPlane, shared};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams, ValidationDirective};
use kube::core::{GroupVersionKind, TypeMeta};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use crate::helm::{chart, helm, objects, rendered, succeeded, values};
use crate::render::CASES;

/// helm against this cluster.
pub(crate) fn helm_on(plane: &ControlPlane, namespace: &str) -> Command {
    let mut helm = helm();
    helm.env("KUBECONFIG", plane.kubeconfig_path()).env("HELM_NAMESPACE", namespace);
    helm
}

/// Of the kinds that tests write, those without a namespace.
const CLUSTER_WIDE: [&str; 8] = [
    "ClusterRole",
    "ClusterRoleBinding",
    "CustomResourceDefinition",
    "Namespace",
    "PersistentVolume",
    "StorageClass",
    "VolumeAttachment",
    "VolumeSnapshotContent",
];

pub(crate) fn api_of(client: &Client, object: &Value, namespace: &str) -> Api<DynamicObject> {
    let types: TypeMeta =
        serde_json::from_value(json!({ "apiVersion": object["apiVersion"], "kind": object["kind"] })).unwrap();
    let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(&types).unwrap());
    let cluster_wide = CLUSTER_WIDE.contains(&&*types.kind);
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or(namespace);
    if cluster_wide {
        Api::all_with(client.clone(), &resource)
    } else {
        Api::namespaced_with(client.clone(), namespace, &resource)
    }
}

/// The kinds of the Prometheus operator, which the chart writes and does not bring along. Their fields are not checked.
async fn define_monitors(plane: &ControlPlane) {
    let any = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let definitions = ["ServiceMonitor", "PodMonitor", "PrometheusRule"].map(|kind| {
        let plural = format!("{}s", kind.to_lowercase());
        let definition = json!({
            "metadata": { "name": format!("{plural}.monitoring.coreos.com") },
            "spec": {
                "group": "monitoring.coreos.com", "scope": "Namespaced",
                "names": { "kind": kind, "plural": plural, "singular": kind.to_lowercase() },
                "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": any } }],
            },
        });
        serde_json::from_value::<CustomResourceDefinition>(definition).unwrap()
    });
    plane.define(&definitions).await.unwrap();
}

#[tokio::test]
async fn the_api_server_takes_every_rendered_object_to_the_letter() {
    let plane = shared().await.unwrap();
    define_monitors(plane).await;
    let client = plane.client().await.unwrap();
    for namespace in ["groundcrew", "groundcrew-probes", "cloudsigma-csi"] {
        let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(client.clone());
        let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } });
        namespaces.patch(namespace, &PatchParams::apply("test"), &Patch::Apply(object)).await.unwrap();
    }
    let strict = PatchParams {
        dry_run: true,
        field_validation: Some(ValidationDirective::Strict),
        ..PatchParams::apply("test").force()
    };
    for case in CASES {
        for object in objects(&rendered(case, &[])) {
            let name = object["metadata"]["name"].as_str().unwrap();
            let api = api_of(&client, &object, "groundcrew");
            let taken = api.patch(name, &strict, &Patch::Apply(&object)).await;
            taken.unwrap_or_else(|error| panic!("{case}: {} {name}: {error}", object["kind"]));
        }
    }
}

/// All objects of a release, with their resourceVersions.
async fn versions(client: &Client, manifests: &str, namespace: &str) -> BTreeMap<String, Option<String>> {
    let mut versions = BTreeMap::new();
    for object in objects(manifests) {
        let name = object["metadata"]["name"].as_str().unwrap();
        let found = api_of(client, &object, namespace).get_opt(name).await.unwrap();
        versions.insert(format!("{} {name}", object["kind"]), found.and_then(|found| found.resource_version()));
    }
    versions
}

#[tokio::test]
async fn a_release_comes_changes_and_goes_and_addresses_outlive_it() {
    let plane = ControlPlane::start().await.unwrap();
    let (client, namespace) = (plane.client().await.unwrap(), "edge");
    let helm = || helm_on(&plane, namespace);
    let run = |verb: &[&str], case: &str, more: &[&str]| {
        let mut helm = helm();
        succeeded(helm.args(verb).arg(chart()).arg("--values").arg(values(case)).args(more).output().unwrap())
    };
    let said = run(&["install", "groundcrew", "--create-namespace"], "ovn-lb", &[]);
    assert!(said.contains(&format!("kubectl --namespace {namespace} get pods")), "{said}");

    let pools: Api<AddressPool> = Api::all(client.clone());
    let spec = AddressPoolSpec { addresses: vec!["192.0.2.0/28".into()], ..AddressPoolSpec::default() };
    groundcrew_testkit::eventually("AddressPools can be made", std::time::Duration::from_secs(30), async || {
        pools.create(&PostParams::default(), &AddressPool::new("public", spec.clone())).await
    })
    .await
    .unwrap();

    // An upgrade that changes nothing writes nothing but helm's own record.
    let manifests = succeeded(helm().args(["get", "manifest", "groundcrew"]).output().unwrap());
    let before = versions(&client, &manifests, namespace).await;
    assert!(before.values().all(Option::is_some), "{before:?}");
    run(&["upgrade", "groundcrew"], "ovn-lb", &[]);
    assert_eq!(versions(&client, &manifests, namespace).await, before);

    // One that does changes that and nothing else, definitions included: crds/ of a chart would stay as they are.
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let pool_definition = definitions.get("addresspools.groundcrew.dev").await.unwrap();
    let mut older = serde_json::to_value(&pool_definition).unwrap();
    older["spec"]["versions"][0]["additionalPrinterColumns"] = Value::Null;
    definitions
        .replace("addresspools.groundcrew.dev", &PostParams::default(), &serde_json::from_value(older).unwrap())
        .await
        .unwrap();
    run(&["upgrade", "groundcrew"], "ovn-lb", &["--set", "log=debug"]);
    let columns = |crd: CustomResourceDefinition| crd.spec.versions[0].additional_printer_columns.clone();
    let now = definitions.get("addresspools.groundcrew.dev").await.unwrap();
    assert_eq!(columns(now), columns(pool_definition));

    // A controller that is turned off goes with its rights.
    run(&["upgrade", "groundcrew"], "lb-watcher", &[]);
    let after = versions(&client, &manifests, namespace).await;
    let left: Vec<_> = after.iter().filter(|(_, version)| version.is_some()).map(|(name, _)| name.as_str()).collect();
    assert!(left.iter().all(|name| name.contains("CustomResourceDefinition")), "{left:?}");

    succeeded(helm().args(["uninstall", "groundcrew"]).output().unwrap());
    let deployments: Api<k8s_openapi::api::apps::v1::Deployment> = Api::namespaced(client.clone(), namespace);
    assert!(deployments.list(&ListParams::default()).await.unwrap().items.is_empty());
    let roles: Api<k8s_openapi::api::rbac::v1::ClusterRole> = Api::all(client.clone());
    let ours = ListParams::default().labels("app.kubernetes.io/part-of=groundcrew");
    assert!(roles.list(&ours).await.unwrap().items.is_empty());
    assert_eq!(
        pools.get("public").await.unwrap().spec.addresses,
        ["192.0.2.0/28"],
        "the definitions stay, and so do pools"
    );

    // Who changes his mind finds everything again.
    run(&["install", "groundcrew"], "ovn-lb", &[]);
    assert!(pools.get("public").await.is_ok());
}
