//! `deorbit` ends a cluster whose own controllers are dead, so that it has to do everything itself; and helm has it end one
//! before it removes a release.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{anyhow, ensure};
use groundcrew_api::deorbit::{Deorbit, Phase};
use groundcrew_api::eip::EIp;
use groundcrew_api::names::{annotation, finalizer, label};
use groundcrew_testkit::cloudsigma::{CloudSigma, PASSWORD, USER};
use groundcrew_testkit::kube_ovn;
use groundcrew_testkit::openstack::Method;
use groundcrew_testkit::openstack::fake::Model;
use groundcrew_testkit::ovn::Central;
use groundcrew_testkit::{Signal, eventually};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use super::openstack::World;
use super::{Installed, MOUNTED, NAMESPACE, SOON, namespace, program};
use crate::helm::{REPOSITORY, succeeded};
use crate::release::{api_of, helm_on};

const PROJECT: &str = "shop";
const DRIVER: &str = "cinder.csi.openstack.org";
/// Without nodes a pod is never scheduled, and goes at once.
const CONTROLLERS: [&str; 3] = [
    "persistentvolume-binder-controller",
    "persistentvolumeclaim-protection-controller",
    "persistentvolume-protection-controller",
];

fn definition(group: &str, kind: &str, scope: &str) -> CustomResourceDefinition {
    let plural = format!("{}s", kind.to_lowercase());
    let definition = json!({
        "metadata": {
            "name": format!("{plural}.{group}"),
            "annotations": { "api-approved.kubernetes.io": "unapproved, a test" },
        },
        "spec": {
            "group": group, "scope": scope,
            "names": { "kind": kind, "plural": plural, "singular": kind.to_lowercase() },
            "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            } } }],
        },
    });
    serde_json::from_value(definition).unwrap()
}

/// What OpenStack's controllers made for the Service `web`, the claim `data` and its snapshots: their ids.
struct Outside {
    balancer: String,
    volume: String,
    snapshots: [String; 2],
}

fn made_outside(model: &Model) -> Outside {
    let make = |path: &str, kind: &str, fields: Value| -> String {
        let made = model.ask(&Method::POST, path, &json!({ kind: fields })).unwrap();
        made[kind]["id"].as_str().unwrap().to_owned()
    };
    let name = format!("kube_service_prod_{PROJECT}_web");
    let about = format!("Kubernetes external service {PROJECT}/web from cluster prod");
    let balancer = json!({ "name": name, "tags": [name], "description": about });
    let balancer = make("lb/v2/lbaas/loadbalancers", "loadbalancer", balancer);
    let marks = json!({ "cinder.csi.openstack.org/cluster": "prod-csi" });
    let volume = json!({ "name": "pv-data", "size": 10, "metadata": marks });
    let volume = make("volume/v3/p1/volumes", "volume", volume);
    let snapshots = ["yesterday", "orphan"].map(|name| {
        let fields = json!({ "name": name, "volume_id": volume, "metadata": marks });
        make("volume/v3/p1/snapshots", "snapshot", fields)
    });
    Outside { balancer, volume, snapshots }
}

fn object(version: &str, kind: &str, metadata: Value, fields: Value) -> Value {
    let mut object = json!({ "apiVersion": version, "kind": kind });
    object["metadata"] = metadata;
    let Value::Object(fields) = fields else { panic!("{fields} are no fields") };
    object.as_object_mut().unwrap().extend(fields);
    object
}

/// Of somebody who has not been here for long.
fn lease(name: &str) -> Value {
    let spec =
        json!({ "holderIdentity": "it", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000000Z" });
    let metadata = json!({ "name": name, "namespace": "kube-system" });
    object("coordination.k8s.io/v1", "Lease", metadata, json!({ "spec": spec }))
}

fn bound(kind: &str) -> String {
    format!("snapshot.storage.kubernetes.io/{kind}-bound-protection")
}

fn content(name: &str, handle: &str) -> Value {
    let spec = json!({
        "driver": DRIVER, "deletionPolicy": "Delete", "source": { "snapshotHandle": handle },
        "volumeSnapshotRef": { "namespace": PROJECT, "name": name },
    });
    let metadata = json!({ "name": name, "finalizers": [bound("volumesnapshotcontent")] });
    object("snapshot.storage.k8s.io/v1", "VolumeSnapshotContent", metadata, json!({ "spec": spec }))
}

/// A cluster that uses everything: what makes pods, what holds volumes, what has load balancers.
fn objects(Outside { balancer, volume, snapshots }: &Outside) -> Vec<Value> {
    let pod = json!({
        "containers": [{ "name": "c", "image": "none" }], "restartPolicy": "Never",
        "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": "data" } }],
    });
    let lasting = |fields: Value| {
        let mut spec = json!({
            "replicas": 1, "selector": { "matchLabels": { "app": "shop" } },
            "template": { "metadata": { "labels": { "app": "shop" } }, "spec": pod.clone() },
        });
        spec["template"]["spec"]["restartPolicy"] = "Always".into();
        spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        spec
    };
    let job = json!({ "template": { "spec": pod.clone() } });
    let named = |name: &str| json!({ "name": name });
    let access = json!(["ReadWriteOnce"]);
    vec![
        lease("cloud-controller-manager"),
        lease("cinder-csi-openstack-org"),
        lease("snapshot-controller-leader"),
        object("storage.k8s.io/v1", "StorageClass", named("cinder"), json!({ "provisioner": DRIVER })),
        object(
            "v1",
            "PersistentVolume",
            json!({ "name": "pv-data", "finalizers": ["external-provisioner.volume.kubernetes.io/finalizer"] }),
            json!({ "spec": {
                "capacity": { "storage": "10Gi" }, "accessModes": access, "storageClassName": "cinder",
                "persistentVolumeReclaimPolicy": "Delete", "csi": { "driver": DRIVER, "volumeHandle": volume },
                "claimRef": { "namespace": PROJECT, "name": "data" },
            } }),
        ),
        object(
            "v1",
            "PersistentVolumeClaim",
            named("data"),
            json!({ "spec": {
                "accessModes": access, "storageClassName": "cinder", "volumeName": "pv-data",
                "resources": { "requests": { "storage": "10Gi" } },
            } }),
        ),
        object(
            "storage.k8s.io/v1",
            "VolumeAttachment",
            json!({ "name": "data-on-n1", "finalizers": ["external-attacher/cinder-csi-openstack-org"] }),
            json!({ "spec": {
                "attacher": DRIVER, "nodeName": "n1", "source": { "persistentVolumeName": "pv-data" },
            } }),
        ),
        object("v1", "Pod", named("holder"), json!({ "spec": pod })),
        object("apps/v1", "Deployment", named("app"), json!({ "spec": lasting(json!({})) })),
        object("apps/v1", "StatefulSet", named("db"), json!({ "spec": lasting(json!({ "serviceName": "db" })) })),
        object("apps/v1", "ReplicaSet", named("bare"), json!({ "spec": lasting(json!({})) })),
        object("batch/v1", "Job", named("once"), json!({ "spec": job })),
        object(
            "batch/v1",
            "CronJob",
            named("nightly"),
            json!({ "spec": { "schedule": "0 0 * * *", "jobTemplate": { "spec": job } } }),
        ),
        object(
            "v1",
            "Service",
            json!({
                "name": "web", "finalizers": ["service.kubernetes.io/load-balancer-cleanup"],
                "annotations": { "loadbalancer.openstack.org/load-balancer-id": balancer },
            }),
            json!({ "spec": { "type": "LoadBalancer", "ports": [{ "port": 80 }] } }),
        ),
        object(
            "networking.k8s.io/v1",
            "Ingress",
            named("front"),
            json!({ "spec": { "defaultBackend": { "service": { "name": "web", "port": { "number": 80 } } } } }),
        ),
        object("gateway.networking.k8s.io/v1", "Gateway", named("front"), json!({})),
        object(
            "snapshot.storage.k8s.io/v1",
            "VolumeSnapshot",
            json!({ "name": "yesterday", "finalizers": [bound("volumesnapshot")] }),
            json!({}),
        ),
        content("yesterday", &snapshots[0]),
        // Nobody has it any more.
        content("orphan", &snapshots[1]),
    ]
}

async fn furnish(installed: &mut Installed, model: &Model) {
    let kinds = [
        definition("snapshot.storage.k8s.io", "VolumeSnapshot", "Namespaced"),
        definition("snapshot.storage.k8s.io", "VolumeSnapshotContent", "Cluster"),
        definition("gateway.networking.k8s.io", "Gateway", "Namespaced"),
    ];
    installed.plane.define(&kinds).await.unwrap();
    installed.plane.start_controller_manager(&CONTROLLERS).await.unwrap();
    namespace(&installed.client, PROJECT).await;
    // Pods name it.
    installed.plane.service_account(PROJECT, "default").await.unwrap();
    for object in objects(&made_outside(model)) {
        let api = api_of(&installed.client, &object, PROJECT);
        let made = serde_json::from_value(object.clone()).unwrap();
        api.create(&PostParams::default(), &made).await.unwrap_or_else(|error| panic!("{error}: {object}"));
    }
    let claim = json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim" });
    let claims = api_of(&installed.client, &claim, PROJECT);
    eventually("the claim is bound", SOON, async || {
        let phase = claims.get("data").await?.data["status"]["phase"].clone();
        ensure!(phase == "Bound", "{phase}");
        Ok(())
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn deorbit_leaves_nothing_of_a_cluster_with_the_rights_of_the_chart() {
    let world = World::new().await;
    world.add_route("10.244.1.0/24", "10.180.1.1");
    let mut installed = world.installed("deorbit", "--interval=50ms").await;
    furnish(&mut installed, &world.model).await;
    let controller = installed.start("deorbit").await;

    let namespaces: Api<Namespace> = Api::all(installed.client.clone());
    let uid = namespaces.get("kube-system").await.unwrap().uid().unwrap();
    let all = ["volumes", "snapshots", "backups", "loadBalancers", "floatingIps", "securityGroups", "routes"];
    let mut policies: serde_json::Map<_, _> = all.iter().map(|kind| ((*kind).to_owned(), "delete".into())).collect();
    // Then Services and Ingresses are told first.
    policies["floatingIps"] = "keep".into();
    let spec = json!({ "confirm": uid, "policies": policies, "budgets": { "stages": { "Verify": "1s" } } });
    let deorbit = json!({
        "apiVersion": "groundcrew.dev/v1alpha1", "kind": "Deorbit", "metadata": { "name": "end" }, "spec": spec,
    });
    let deorbits: Api<Deorbit> = Api::all(installed.client.clone());
    deorbits.create(&PostParams::default(), &serde_json::from_value(deorbit).unwrap()).await.unwrap();
    eventually("nothing is left", SOON * 2, async || {
        let status = deorbits.get("end").await?.status.unwrap_or_default();
        let (stages, report) = (&status.stages, &status.report);
        ensure!(
            status.phase == Phase::Clean,
            "{:?} {} {stages:?} {report:?}\n{}",
            status.phase,
            status.message,
            controller.process.last_words()
        );
        Ok(())
    })
    .await
    .unwrap();
    assert!(!world.routes().contains("10.244.1.0/24"), "{}", world.routes());
    let outside = world.model.everything();
    for kind in ["loadbalancers", "volumes", "snapshots"] {
        assert!(outside.get(kind).is_none_or(std::collections::BTreeMap::is_empty), "{outside:?}");
    }
    let reports: Api<ConfigMap> = Api::namespaced(installed.client.clone(), "groundcrew");
    assert!(reports.get("deorbit-end-report").await.unwrap().data.unwrap()["report.json"].contains("\"left\":0"));

    // With the object the block goes.
    deorbits.delete("end", &DeleteParams::default()).await.unwrap();
    eventually("the Deorbit goes", SOON, async || match deorbits.get_opt("end").await? {
        None => Ok(()),
        Some(left) => Err(anyhow!("{:?}", left.metadata.finalizers)),
    })
    .await
    .unwrap();
    controller.process.end(Signal::SIGTERM).await.unwrap();
    installed.assert_used_but("deorbit", &[]);
}

/// The template of a cluster's chart, as the documentation prints it.
fn documented_hook() -> String {
    let page = fs::read_to_string(Path::new(REPOSITORY).join("docs/deorbit.md")).unwrap();
    let section = page.split_once("\n## As a hook\n").unwrap().1;
    section.split_once("```yaml\n").unwrap().1.split_once("```").unwrap().0.to_owned()
}

/// The release of a cluster that has this hook, and things that need no cloud to go.
async fn install_cluster(installed: &mut Installed) {
    let chart = installed.scratch.join("cluster");
    fs::create_dir_all(chart.join("templates")).unwrap();
    fs::write(chart.join("Chart.yaml"), "apiVersion: v2\nname: cluster\nversion: 0.1.0\n").unwrap();
    fs::write(chart.join("templates/hook.yaml"), documented_hook()).unwrap();
    succeeded(helm_on(&installed.plane, NAMESPACE).args(["install", "cluster"]).arg(&chart).output().unwrap());
    installed.plane.start_controller_manager(&CONTROLLERS).await.unwrap();
    namespace(&installed.client, PROJECT).await;
    let claim = json!({
        "accessModes": ["ReadWriteOnce"], "storageClassName": "cinder",
        "resources": { "requests": { "storage": "10Gi" } },
    });
    let named = |name: &str| json!({ "name": name });
    for object in [
        object("storage.k8s.io/v1", "StorageClass", named("cinder"), json!({ "provisioner": DRIVER })),
        object("v1", "PersistentVolumeClaim", named("data"), json!({ "spec": claim })),
    ] {
        let made = serde_json::from_value(object.clone()).unwrap();
        api_of(&installed.client, &object, PROJECT).create(&PostParams::default(), &made).await.unwrap();
    }
}

/// What a node does with the pod of a Job: its line with its account's rights, and how it ended.
async fn run_job(installed: &Installed, jobs: &Api<Job>, name: &str) {
    let job = serde_json::to_value(jobs.get(name).await.unwrap()).unwrap();
    let pod = &job["spec"]["template"]["spec"];
    assert_eq!(pod["serviceAccountName"], Installed::account("deorbit"));
    let mount = pod["containers"][0]["volumeMounts"][0]["mountPath"].as_str().unwrap();
    assert_eq!(mount, format!("{MOUNTED}/openstack"));
    let mut line = Command::new(program());
    for arg in pod["containers"][0]["args"].as_array().unwrap() {
        line.arg(arg.as_str().unwrap().replace(MOUNTED, installed.scratch.path().to_str().unwrap()));
    }
    let identity = installed.identity("deorbit").await;
    // A pod knows its own namespace.
    line.arg("--kubeconfig").arg(identity.path()).args(["--lease-namespace", NAMESPACE]);
    let ended = tokio::task::spawn_blocking(move || line.output().unwrap()).await.unwrap();
    assert_eq!(ended.status.code(), Some(0), "{}", String::from_utf8_lossy(&ended.stderr));
    let now = "2026-01-01T00:00:00Z";
    let conditions = ["SuccessCriteriaMet", "Complete"].map(|kind| {
        json!({ "type": kind, "status": "True", "reason": "Test", "message": "", "lastTransitionTime": now,
            "lastProbeTime": now })
    });
    let status = json!({ "startTime": now, "completionTime": now, "succeeded": 1, "conditions": conditions });
    let patch = Patch::Merge(json!({ "status": status }));
    jobs.patch_status(name, &PatchParams::default(), &patch).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_documented_hook_of_helm_ends_a_cluster_before_its_release_goes() {
    let world = World::new().await;
    let mut installed = world.installed("deorbit", "--interval=50ms").await;
    install_cluster(&mut installed).await;
    let controller = installed.start("deorbit").await;
    controller.until_leads(&installed.client, NAMESPACE, "groundcrew-deorbit", SOON).await.unwrap();

    let mut helm = helm_on(&installed.plane, NAMESPACE);
    helm.args(["uninstall", "cluster", "--timeout", "5m"]);
    let uninstall = tokio::task::spawn_blocking(move || helm.output().unwrap());
    let jobs: Api<Job> = Api::namespaced(installed.client.clone(), NAMESPACE);
    eventually("helm asks for the end of the cluster", SOON, async || jobs.get("deorbit").await).await.unwrap();
    let roles: Api<ClusterRole> = Api::all(installed.client.clone());
    assert!(roles.get_opt("ask-for-deorbit").await.unwrap().is_some(), "the release is there until it has ended");
    run_job(&installed, &jobs, "deorbit").await;
    succeeded(uninstall.await.unwrap());

    let deorbits: Api<Deorbit> = Api::all(installed.client.clone());
    let status = deorbits.get("deorbit").await.unwrap().status.unwrap();
    assert_eq!((status.phase, status.let_go), (Phase::Clean, true), "{}", status.message);
    let claim = json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim" });
    assert!(api_of(&installed.client, &claim, PROJECT).get_opt("data").await.unwrap().is_none());
    assert!(roles.get_opt("ask-for-deorbit").await.unwrap().is_none(), "the release is gone");
    controller.process.end(Signal::SIGTERM).await.unwrap();
    let asked = installed.asked_and_granted("deorbit");
    let made = |asked: &Value| asked["verb"] == "create" && asked["objectRef"]["resource"] == "deorbits";
    assert!(asked.iter().any(made), "by the account of the hook");
}

/// Whom something was made for that is still there.
const GONE: &str = "0b7a8c1e-0000-4000-8000-000000000000";

/// What `ovn-lb` made for a Service that is gone: an address, and where it came from.
async fn leave_in_ovn(installed: &Installed) {
    let of_ours = |definition: &CustomResourceDefinition| definition.name_any() == "eips.kube-dc.com";
    let mut kinds: Vec<_> = groundcrew_api::crds().into_iter().filter(of_ours).collect();
    kinds.extend(kube_ovn::crds().unwrap());
    installed.plane.define(&kinds).await.unwrap();
    let object = |version: &str, kind: &str, spec: Value| {
        let metadata = json!({
            "name": "slb-gone", "finalizers": [finalizer::EIP],
            "labels": { label::CLUSTER: "prod", label::OWNER_UID: GONE },
            "annotations": { annotation::OWNER: format!("{PROJECT}/gone") },
        });
        json!({ "apiVersion": version, "kind": kind, "spec": spec, "metadata": metadata })
    };
    let eips: Api<EIp> = Api::namespaced(installed.client.clone(), PROJECT);
    let eip = serde_json::from_value(object("kube-dc.com/v1", "EIp", json!({}))).unwrap();
    eips.create(&PostParams::default(), &eip).await.unwrap();
    let kind = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("kubeovn.io", "v1", "OvnEip"), "ovn-eips");
    let kube_ovns: Api<DynamicObject> = Api::all_with(installed.client.clone(), &kind);
    let theirs = json!({ "externalSubnet": "public", "type": "nat" });
    let theirs = serde_json::from_value(object("kubeovn.io/v1", "OvnEip", theirs)).unwrap();
    kube_ovns.create(&PostParams::default(), &theirs).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn deorbit_cleans_ovn_and_cloudsigma_with_the_rights_of_the_chart() {
    let (central, cloud) = (Central::start().await.unwrap(), CloudSigma::start().await.unwrap());
    let before = cloud.account(|account| {
        account.add_ip([198, 18, 0, 1].into());
        let before = account.ips["198.18.0.1"]["meta"].clone();
        let owner = GONE.replace('-', "");
        account.ips.get_mut("198.18.0.1").unwrap()["meta"] =
            json!({ "groundcrew-cluster": "prod", owner: format!("{PROJECT}/gone") });
        before
    });
    let sets = [
        format!("ovn.northbound={{{}}}", central.northbound().tcp(0)),
        "ovn.tls.existingSecret=".to_owned(),
        format!("controllers.cloudsigma-ccm.apiUrl={}", cloud.url()),
        format!("controllers.cloudsigma-ccm.username={USER}"),
        "controllers.cloudsigma-ccm.region=".to_owned(),
        "controllers.deorbit.extraArgs={--interval=50ms}".to_owned(),
    ];
    let sets: Vec<_> = sets.into_iter().flat_map(|set| ["--set".to_owned(), set]).collect();
    let installed = Installed::new("deorbit-elsewhere", &sets).await;
    installed.mount("cloudsigma", "password", PASSWORD);
    namespace(&installed.client, PROJECT).await;
    leave_in_ovn(&installed).await;
    let controller = installed.start("deorbit").await;

    let namespaces: Api<Namespace> = Api::all(installed.client.clone());
    let uid = namespaces.get("kube-system").await.unwrap().uid().unwrap();
    let spec = json!({
        "confirm": uid, "policies": { "floatingIps": "delete" }, "budgets": { "stages": { "Verify": "1s" } },
    });
    let deorbit = json!({
        "apiVersion": "groundcrew.dev/v1alpha1", "kind": "Deorbit", "metadata": { "name": "end" }, "spec": spec,
    });
    let deorbits: Api<Deorbit> = Api::all(installed.client.clone());
    deorbits.create(&PostParams::default(), &serde_json::from_value(deorbit).unwrap()).await.unwrap();
    eventually("nothing is left", SOON, async || {
        let status = deorbits.get("end").await?.status.unwrap_or_default();
        ensure!(status.phase == Phase::Clean, "{status:?}\n{}", controller.process.last_words());
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(cloud.account(|account| account.ips["198.18.0.1"]["meta"].clone()), before);
    controller.process.end(Signal::SIGTERM).await.unwrap();
    let asked = installed.asked_and_granted("deorbit");
    for (verb, resource) in [
        ("patch", "eips"),
        ("delete", "eips"),
        ("patch", "ovn-eips"),
        ("delete", "ovn-eips"),
        ("get", "services"),
        ("get", "floatingips"),
    ] {
        let uses = |asked: &Value| asked["verb"] == verb && asked["objectRef"]["resource"] == resource;
        assert!(asked.iter().any(uses), "{verb} {resource}");
    }
}
