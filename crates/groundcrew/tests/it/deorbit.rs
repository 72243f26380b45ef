//! The end of a cluster that has things in OVN and in a CloudSigma account. OpenStack's are elsewhere: `make e2e-deorbit`.

use std::net::IpAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{anyhow, ensure};
use groundcrew_api::address_pool::{AddressPool, AddressPoolSpec};
use groundcrew_api::deorbit::{Deorbit, DeorbitStatus, Phase};
use groundcrew_api::eip::EIp;
use groundcrew_api::floating_ip::FloatingIP;
use groundcrew_orbit::deorbit::freeze;
use groundcrew_testkit::agents::Agents;
use groundcrew_testkit::cloudsigma::{CloudSigma, Nic, PASSWORD, USER};
use groundcrew_testkit::controller::Controller;
use groundcrew_testkit::kube::ControlPlane;
use groundcrew_testkit::openstack::fake::{Model, PASSWORD as OPENSTACK_PASSWORD};
use groundcrew_testkit::ovn::Central;
use groundcrew_testkit::{Scratch, Signal, eventually};
use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::CronJob;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams, TypeMeta,
};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, from_value, json};
use tokio::time::{MissedTickBehavior, timeout};

/// A Deorbit is about all of a cluster, so that each test has one of its own.
const SOON: Duration = Duration::from_mins(2);
const CLUSTER: &str = "demo";
/// Its name begins with ours.
const NEIGHBOUR: &str = "demo_x";

struct Cluster {
    plane: ControlPlane,
    client: Client,
    namespace: String,
    scratch: Scratch,
}

impl Cluster {
    async fn new(name: &str) -> Self {
        let plane = ControlPlane::start().await.unwrap();
        plane.define(&groundcrew_api::crds()).await.unwrap();
        let client = plane.client().await.unwrap();
        let namespace = plane.namespace("shop").await.unwrap();
        Self { plane, client, namespace, scratch: Scratch::new(name).unwrap() }
    }

    fn command(&self, line: &[&str]) -> Command {
        self.command_of(CLUSTER, line)
    }

    fn command_of(&self, id: &str, line: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_groundcrew"));
        command.args(line).args(["--cluster-id", id, "--lease-namespace", "default"]);
        command.env("GROUNDCREW_KUBECONFIG", self.plane.kubeconfig_path());
        command
    }

    /// What a person types: the code, and what was said.
    async fn type_(&self, command: Command) -> (i32, String, String) {
        let mut command = tokio::process::Command::from(command);
        let running = command.stdin(Stdio::null()).kill_on_drop(true).output();
        let said = timeout(SOON, running).await.unwrap().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (said.status.code().unwrap(), text(said.stdout), text(said.stderr))
    }

    async fn start(&self, name: &str, command: Command) -> Controller {
        Controller::start(name, command, self.scratch.path(), SOON).await.unwrap()
    }

    fn services(&self) -> Api<Service> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    async fn served(&self, name: &str, class: &str) -> IpAddr {
        let service = json!({"metadata": {"name": name}, "spec": {"type": "LoadBalancer", "loadBalancerClass": class,
            "allocateLoadBalancerNodePorts": false, "ports": [{"port": 80}]}});
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": name, "labels": {"kubernetes.io/service-name": name}},
            "ports": [{"name": "", "port": 8080, "protocol": "TCP"}],
            "endpoints": [{"addresses": ["10.1.0.41"], "conditions": {"ready": true}}],
        });
        let slices: Api<EndpointSlice> = Api::namespaced(self.client.clone(), &self.namespace);
        slices.create(&PostParams::default(), &from_value(slice).unwrap()).await.unwrap();
        self.services().create(&PostParams::default(), &from_value(service).unwrap()).await.unwrap();
        eventually(&format!("{name} has an address"), SOON, async || {
            let status = self.services().get(name).await?.status;
            let ingress = status.as_ref().and_then(|status| status.load_balancer.as_ref()?.ingress.as_ref()?.first());
            let address = ingress.and_then(|ingress| ingress.ip.as_ref()).ok_or_else(|| anyhow!("{status:?}"))?;
            anyhow::Ok(address.parse()?)
        })
        .await
        .unwrap()
    }

    /// Somebody takes a Service away although nobody cleaned up after it.
    async fn tear_out(&self, name: &str) {
        let free = json!({"metadata": {"finalizers": null}});
        self.services().patch(name, &PatchParams::default(), &Patch::Merge(free)).await.unwrap();
        self.services().delete(name, &DeleteParams::default()).await.unwrap();
    }

    async fn uid(&self) -> String {
        Api::<Namespace>::all(self.client.clone()).get("kube-system").await.unwrap().uid().unwrap()
    }

    async fn deorbit(&self, fields: &Value) {
        let mut spec = json!({"confirm": self.uid().await});
        spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let deorbit = from_value(json!({"metadata": {"name": "deorbit"}, "spec": spec})).unwrap();
        Api::<Deorbit>::all(self.client.clone()).create(&PostParams::default(), &deorbit).await.unwrap();
    }

    async fn until(&self, phase: Phase) -> DeorbitStatus {
        let deorbits: Api<Deorbit> = Api::all(self.client.clone());
        eventually(&format!("{phase:?}"), SOON, async || {
            let status = deorbits.get("deorbit").await?.status.unwrap_or_default();
            ensure!(status.phase == phase, "{:?} {} {:?}", status.phase, status.message, status.report);
            Ok(status)
        })
        .await
        .unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_cloud_nothing_is_asked_for_and_what_was_asked_for_can_be_looked_at_and_aborted() {
    let cluster = Cluster::new("deorbit-no-cloud").await;
    let deorbits: Api<Deorbit> = Api::all(cluster.client.clone());
    let uid = cluster.uid().await;
    let mut run = cluster.command(&["deorbit", "run", "--ccm-cluster", "prod", "--confirm", &uid]);
    run.env("HOME", cluster.scratch.path());
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("OS_")) {
        run.env_remove(name);
    }
    let (code, _, said) = cluster.type_(run).await;
    assert_eq!(code, 1, "{said}");
    assert_eq!(deorbits.list(&ListParams::default()).await.unwrap().items.len(), 0, "{said}");

    let typed = async |words: &[&str]| cluster.type_(cluster.command(words)).await;
    assert_eq!(typed(&["deorbit", "status"]).await.0, 4, "there is none");
    assert_eq!(typed(&["deorbit", "abort"]).await.0, 0, "there is none");
    cluster.deorbit(&json!({})).await;
    let (code, shown, said) = typed(&["deorbit", "status", "--output", "json"]).await;
    let status: DeorbitStatus = serde_json::from_str(&shown).unwrap();
    assert_eq!((code, status.phase), (3, Phase::Pending), "{said}");
    // Whoever carries it out writes all the time how far it is.
    let theirs = deorbits.clone();
    let (tell, mut written) = tokio::sync::watch::channel(0_u64);
    let writer = tokio::spawn(async move {
        // It leaves room between two writes for somebody who looks and deletes what he saw.
        let mut pace = tokio::time::interval(Duration::from_millis(20));
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let progress = |n: u64| Patch::Merge(json!({"status": {"message": n.to_string()}}));
        for n in 0.. {
            pace.tick().await;
            if theirs.patch_status("deorbit", &PatchParams::default(), &progress(n)).await.is_err() {
                return;
            }
            tell.send_replace(n + 1);
        }
    });
    timeout(SOON, written.wait_for(|written| *written > 0)).await.unwrap().unwrap();
    let (code, _, said) = typed(&["deorbit", "abort"]).await;
    assert_eq!(code, 0, "{said}");
    writer.await.unwrap();
    assert!(said.contains("aborted") && deorbits.get_opt("deorbit").await.unwrap().is_none(), "{said}");

    // Too late.
    cluster.deorbit(&json!({})).await;
    let begun = json!({"status": {"phase": "Running", "irreversibleAt": "2026-01-01T00:00:00Z"}});
    deorbits.patch_status("deorbit", &PatchParams::default(), &Patch::Merge(begun)).await.unwrap();
    let (code, _, said) = typed(&["deorbit", "abort"]).await;
    assert_eq!(code, 4, "{said}");
    assert!(said.contains("too late") && deorbits.get_opt("deorbit").await.unwrap().is_some(), "{said}");
}

/// The file that says where this cloud is.
fn cloud_conf(cluster: &Cluster, cloud: &Model) -> PathBuf {
    let (file, url) = (cluster.scratch.path().join("cloud.conf"), format!("{}/v3", cloud.fake.url()));
    let who = format!("username = demo\npassword = {OPENSTACK_PASSWORD}\ntenant-name = kluster\ndomain-id = default");
    std::fs::write(&file, format!("[Global]\nauth-url = {url}\n{who}\n")).unwrap();
    file
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_follows_the_controller_also_where_its_kubeconfig_names_another_namespace() {
    let (cluster, cloud) = (Cluster::new("deorbit-elsewhere").await, Model::start().await.unwrap());
    let conf = cloud_conf(&cluster, &cloud);
    let line = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_groundcrew"));
        command.args(words).args(["--csi-cluster", "prod-csi", "--cloud-conf"]).arg(&conf);
        command.env("GROUNDCREW_KUBECONFIG", cluster.plane.kubeconfig_path());
        command
    };
    let controller =
        cluster.start("deorbit", line(&["deorbit-controller", "--lease-namespace", &cluster.namespace])).await;
    controller.until_leads(&cluster.client, &cluster.namespace, "groundcrew-deorbit", SOON).await.unwrap();
    let uid = cluster.uid().await;
    let (code, _, said) = cluster.type_(line(&["deorbit", "run", "--confirm", &uid])).await;
    assert_eq!(code, 0, "{said}");
    let leases: Api<Lease> = Api::all(cluster.client.clone());
    let named = ListParams::default().fields("metadata.name=groundcrew-deorbit");
    let places: Vec<_> = leases.list(&named).await.unwrap().iter().map(|lease| lease.namespace().unwrap()).collect();
    assert_eq!(places, [cluster.namespace.as_str()], "it had none of its own");
    controller.process.end(Signal::SIGTERM).await.unwrap();
}

/// A Deployment that uses a claim, and two `CronJobs`: what a run stops first. Nobody lets the claim go.
async fn run_workloads(cluster: &Cluster) {
    let make = async |version: &str, kind: &str, metadata: Value, spec: Value| {
        let object = json!({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec});
        let types: TypeMeta = from_value(json!({"apiVersion": version, "kind": kind})).unwrap();
        let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(&types).unwrap());
        let api: Api<DynamicObject> = Api::namespaced_with(cluster.client.clone(), &cluster.namespace, &resource);
        api.create(&PostParams::default(), &from_value(object).unwrap()).await.unwrap();
    };
    let classes: Api<StorageClass> = Api::all(cluster.client.clone());
    let class = json!({"metadata": {"name": "cinder"}, "provisioner": "cinder.csi.openstack.org"});
    classes.create(&PostParams::default(), &from_value(class).unwrap()).await.unwrap();
    let held = json!({"name": "data", "finalizers": ["test.example/held"]});
    let claim = json!({"accessModes": ["ReadWriteOnce"], "storageClassName": "cinder",
        "resources": {"requests": {"storage": "10Gi"}}});
    make("v1", "PersistentVolumeClaim", held, claim).await;
    let containers = json!([{"name": "c", "image": "none"}]);
    let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
    let pods = json!({"metadata": {"labels": {"app": "app"}}, "spec": {"containers": containers, "volumes": volumes}});
    let spec = json!({"replicas": 3, "selector": {"matchLabels": {"app": "app"}}, "template": pods});
    make("apps/v1", "Deployment", json!({"name": "app"}), spec).await;
    let job = json!({"template": {"spec": {"restartPolicy": "Never", "containers": containers}}});
    for name in ["nightly", "stuck"] {
        let spec = json!({"schedule": "0 0 1 1 *", "jobTemplate": {"spec": job}});
        make("batch/v1", "CronJob", json!({"name": name}), spec).await;
    }
}

/// Nobody may change the `CronJob` `stuck`, so that nothing after it begins; or somebody may again.
async fn forbid(cluster: &Cluster, forbidden: bool) {
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(cluster.client.clone());
    if forbidden {
        let policies: Api<ValidatingAdmissionPolicy> = Api::all(cluster.client.clone());
        let rule =
            json!({"apiGroups": ["batch"], "apiVersions": ["*"], "resources": ["cronjobs"], "operations": ["UPDATE"]});
        let policy = json!({"metadata": {"name": "untouchable"}, "spec": {"matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": "object.metadata.name != 'stuck'", "message": "not this one"}]}});
        policies.create(&PostParams::default(), &from_value(policy).unwrap()).await.unwrap();
        let binding = json!({"metadata": {"name": "untouchable"},
            "spec": {"policyName": "untouchable", "validationActions": ["Deny"]}});
        bindings.create(&PostParams::default(), &from_value(binding).unwrap()).await.unwrap();
    } else {
        bindings.delete("untouchable", &DeleteParams::default()).await.unwrap();
    }
    let jobs: Api<CronJob> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
    let dry = PatchParams { dry_run: true, ..PatchParams::default() };
    eventually("the API server goes by it", SOON, async || {
        let changed = jobs.patch("stuck", &dry, &Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}))).await;
        ensure!(changed.is_err() == forbidden, "not yet");
        Ok(())
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_abort_brings_back_what_was_stopped_and_is_refused_after_the_first_deletion() {
    let (cluster, cloud) = (Cluster::new("deorbit-abort").await, Model::start().await.unwrap());
    run_workloads(&cluster).await;
    forbid(&cluster, true).await;
    let deorbits: Api<Deorbit> = Api::all(cluster.client.clone());
    let deployments: Api<Deployment> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
    let jobs: Api<CronJob> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
    let wanted = async || {
        let (app, job) = (deployments.get("app").await.unwrap(), jobs.get("nightly").await.unwrap());
        (app.spec.unwrap().replicas, job.spec.unwrap().suspend)
    };
    let until = async |what: &str, probe: &dyn Fn(&DeorbitStatus) -> bool| {
        eventually(what, SOON, async || {
            let status = deorbits.get("deorbit").await?.status.unwrap_or_default();
            ensure!(probe(&status), "{status:?}");
            Ok(status)
        })
        .await
        .unwrap()
    };
    let mut line = cluster.command(&["deorbit-controller", "--csi-cluster", "prod-csi", "--interval", "100ms"]);
    line.arg("--cloud-conf").arg(cloud_conf(&cluster, &cloud));
    let controller = cluster.start("deorbit", line).await;
    let abort = async || cluster.type_(cluster.command(&["deorbit", "abort"])).await;

    cluster.deorbit(&json!({})).await;
    until("it is stuck in Quiesce", &|status: &DeorbitStatus| status.message.contains("not this one")).await;
    eventually("the others are stopped", SOON, async || {
        let wanted = wanted().await;
        ensure!(wanted == (Some(0), Some(true)), "{wanted:?}");
        Ok(())
    })
    .await
    .unwrap();
    let left = "groundcrew_deorbit_left_things";
    controller.until_metric(left, SOON, |left| left > 0.5).await.unwrap();
    let (code, _, said) = abort().await;
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("aborted") && deorbits.get_opt("deorbit").await.unwrap().is_none(), "{said}");
    controller.until_metric(left, SOON, |left| left < 0.5).await.unwrap();
    assert_eq!(wanted().await, (Some(3), Some(false)));
    let app = deployments.get("app").await.unwrap();
    assert!(!app.annotations().contains_key("groundcrew.dev/before-deorbit"), "{:?}", app.annotations());
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(cluster.client.clone());
    assert!(policies.get_opt("groundcrew-deorbit").await.unwrap().is_none());
    eventually("claims can be made again", SOON, async || {
        ensure!(!freeze::is_blocked(&cluster.client, SOON).await?, "the API server still refuses");
        Ok(())
    })
    .await
    .unwrap();

    forbid(&cluster, false).await;
    cluster.deorbit(&json!({})).await;
    let status = until("it waits for the claim", &|status: &DeorbitStatus| status.stage.contains("Claims")).await;
    assert!(status.irreversible_at.is_some());
    let (code, _, said) = abort().await;
    assert_eq!(code, 4, "{said}");
    assert!(said.contains("too late: things have been deleted"), "{said}");
    let deorbit = deorbits.get("deorbit").await.unwrap();
    assert!(deorbit.metadata.deletion_timestamp.is_none(), "nothing was done");
    assert_eq!(wanted().await, (Some(0), Some(true)));
    controller.process.end(Signal::SIGTERM).await.unwrap();
}

struct Ovn {
    cluster: Cluster,
    central: Central,
    endpoints: String,
}

impl Ovn {
    async fn new(name: &str) -> Self {
        let cluster = Cluster::new(name).await;
        let addresses = vec!["100.64.0.0/24".to_owned()];
        let pool = AddressPool::new("public", AddressPoolSpec { addresses, ..AddressPoolSpec::default() });
        Api::all(cluster.client.clone()).create(&PostParams::default(), &pool).await.unwrap();
        let central = Central::start().await.unwrap();
        let northbound = central.northbound();
        let switch = format!("{}-default", cluster.namespace);
        northbound.nbctl(["lr-add", &cluster.namespace, "--", "ls-add", &switch]).await.unwrap();
        northbound.nbctl(["lb-add", "theirs", "192.0.2.9:80", "10.0.0.9:80"]).await.unwrap();
        let mark = format!("external_ids:groundcrew-cluster={NEIGHBOUR}");
        northbound.nbctl(["set", "load_balancer", "theirs", &mark]).await.unwrap();
        northbound.nbctl(["lb-add", "nobodys", "192.0.2.8:80", "10.0.0.8:80"]).await.unwrap();
        let endpoints = northbound.remotes();
        Self { cluster, central, endpoints }
    }

    async fn serve(&self) -> Controller {
        let command = self.cluster.command(&["ovn-lb", "--ovn-nb", &self.endpoints, "--no-leader-election"]);
        self.cluster.start("ovn-lb", command).await
    }

    /// Everything that anybody has there.
    async fn everything(&self) -> String {
        let mut all = String::new();
        for columns in [["Load_Balancer", "name,vips,external_ids"], ["Logical_Router", "name,load_balancer"]] {
            let columns =
                ["--format=csv".to_owned(), format!("--columns={}", columns[1]), "list".into(), columns[0].into()];
            let listed = self.central.northbound().nbctl(columns).await.unwrap();
            let mut lines: Vec<_> = listed.lines().collect();
            lines.sort_unstable();
            all.push_str(&lines.join("\n"));
        }
        all
    }

    async fn eips(&self) -> usize {
        Api::<EIp>::all(self.cluster.client.clone()).list(&ListParams::default()).await.unwrap().items.len()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_cluster_has_in_ovn_goes_with_it_and_only_its_neighbour_is_left() {
    let ovn = Ovn::new("deorbit-ovn").await;
    let before = ovn.everything().await;
    let controller = ovn.serve().await;
    ovn.cluster.served("web", "groundcrew.dev/ovn").await;
    let uid = ovn.cluster.uid().await;
    let at = ["--ovn-nb", &ovn.endpoints];

    let wrong = [&["deorbit", "run", "--confirm", &uid, "--name", "wrong"][..], &at].concat();
    let (code, _, said) = ovn.cluster.type_(ovn.cluster.command_of("dem", &wrong)).await;
    assert_eq!(code, 4, "{said}");
    assert!(said.contains("nothing outside carries the mark") && said.contains("--cluster-id"), "{said}");

    let (code, plan, said) =
        ovn.cluster.type_(ovn.cluster.command(&[&["deorbit", "plan", "--output", "json"][..], &at].concat())).await;
    assert_eq!(code, 0, "{said}");
    let plan: Value = serde_json::from_str(&plan).unwrap();
    assert!(plan["things"].to_string().contains("ovn-load-balancer"), "{plan}");

    let run = ovn.cluster.command(&[&["deorbit", "run", "--confirm", &uid, "--output", "json"][..], &at].concat());
    let (code, report, said) = ovn.cluster.type_(run).await;
    assert_eq!(code, 0, "{said}");
    let report: DeorbitStatus = serde_json::from_str(&report).unwrap();
    assert_eq!((report.phase, report.left), (Phase::Clean, 0));
    assert!(said.contains("LoadBalancers") || said.contains("Freeze"), "progress, a line for each change: {said}");
    assert_eq!(ovn.everything().await, before);
    assert_eq!(ovn.eips().await, 0);
    let (code, _, _) = ovn.cluster.type_(ovn.cluster.command(&["deorbit", "status"])).await;
    assert_eq!(code, 0);
    controller.process.end(Signal::SIGTERM).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_of_the_controller_prints_what_a_deorbit_would_do_as_a_diff_and_writes_nothing() {
    let ovn = Ovn::new("deorbit-dry").await;
    let controller = ovn.serve().await;
    ovn.cluster.served("web", "groundcrew.dev/ovn").await;
    controller.process.end(Signal::SIGTERM).await.unwrap();
    let before = ovn.everything().await;
    ovn.cluster.deorbit(&json!({})).await;
    let deorbits: Api<Deorbit> = Api::all(ovn.cluster.client.clone());
    let asked = deorbits.get("deorbit").await.unwrap();

    let line = ["deorbit-controller", "--ovn-nb", &ovn.endpoints, "--dry-run", "--interval", "1s"];
    let dry = ovn.cluster.start("deorbit", ovn.cluster.command(&line)).await;
    let goes = format!("  - delete Service (1): {}/web\n", ovn.cluster.namespace);
    eventually("the plan is shown", SOON, async || {
        let log = dry.process.log();
        ensure!(log.contains("Deorbit deorbit\n") && log.contains(&goes), "no\n{goes}in\n{log}");
        Ok(())
    })
    .await
    .unwrap();
    let now = deorbits.get("deorbit").await.unwrap();
    assert_eq!(now.metadata.resource_version, asked.metadata.resource_version, "not even a finalizer");
    assert_eq!(ovn.everything().await, before);
    assert!(ovn.cluster.services().get("web").await.unwrap().metadata.deletion_timestamp.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_dead_controller_left_in_ovn_goes_by_itself_and_then_the_service() {
    let ovn = Ovn::new("deorbit-ovn-dead").await;
    let before = ovn.everything().await;
    let controller = ovn.serve().await;
    for name in ["web", "torn"] {
        ovn.cluster.served(name, "groundcrew.dev/ovn").await;
    }
    controller.process.end(Signal::SIGKILL).await.unwrap();
    ovn.cluster.tear_out("torn").await;
    assert_eq!(ovn.eips().await, 2);

    let line = ["deorbit-controller", "--ovn-nb", &ovn.endpoints, "--no-leader-election", "--interval", "100ms"];
    let deorbit = ovn.cluster.start("deorbit", ovn.cluster.command(&line)).await;
    // Reported where nobody said that they may go: the Service waits for a controller that is dead.
    ovn.cluster.deorbit(&json!({"budgets": {"stages": {"LoadBalancers": "2s", "Verify": "1s", "Cloud": "1s"}}})).await;
    let status = ovn.cluster.until(Phase::Leftovers).await;
    let kinds: Vec<_> = status.report.iter().map(|line| line.kind.as_str()).collect();
    for kind in ["Service", "ovn-load-balancer", "eip"] {
        assert!(kinds.contains(&kind), "{kind} in {kinds:?}");
    }
    assert!(status.report.iter().any(|line| line.command.starts_with("ovn-nbctl lb-del ")), "{:?}", status.report);
    let deorbits: Api<Deorbit> = Api::all(ovn.cluster.client.clone());
    deorbits.delete("deorbit", &DeleteParams::default()).await.unwrap();
    eventually("it has stopped", SOON, async || {
        ensure!(deorbits.get_opt("deorbit").await?.is_none(), "not yet");
        Ok(())
    })
    .await
    .unwrap();

    let all = json!({"loadBalancers": "delete", "floatingIps": "delete", "securityGroups": "delete"});
    let budgets = json!({"stages": {"LoadBalancers": "2s", "Verify": "1s"}});
    ovn.cluster.deorbit(&json!({"policies": all, "budgets": budgets})).await;
    ovn.cluster.until(Phase::Clean).await;
    assert_eq!(ovn.everything().await, before);
    assert_eq!(ovn.eips().await, 0);
    let services = ovn.cluster.services().list(&ListParams::default()).await.unwrap();
    assert_eq!(services.items.len(), 0, "its finalizer went last");
    deorbit.process.end(Signal::SIGTERM).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_of_cloudsigma_stays_while_a_node_answers_for_it_and_then_the_account_is_as_before() {
    let cluster = Cluster::new("deorbit-cloudsigma").await;
    let cloud = CloudSigma::start().await.unwrap();
    let agents = Agents::start(&cluster.client, "default", CLUSTER, 3);
    let server = cloud.account(|account| {
        (1..=3).for_each(|n| account.add_ip(IpAddr::from([198, 18, 0, n])));
        // Another cluster's, whose name begins with ours.
        let theirs = json!({"groundcrew-cluster": NEIGHBOUR, "note": "ours"});
        account.ips.get_mut("198.18.0.3").unwrap()["meta"] = theirs;
        account.add_server("n1", Nic::Manual)
    });
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let node = json!({"metadata": {"name": "n1"}, "spec": {"providerID": format!("cloudsigma://{server}")}});
    nodes.create(&PostParams::default(), &from_value(node).unwrap()).await.unwrap();
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    nodes.patch_status("n1", &PatchParams::default(), &Patch::Strategic(ready)).await.unwrap();
    agents.live("n1");
    let before = cloud.snapshot();
    let serve = || {
        let mut command = cluster.command(&["cloudsigma-ccm", "--no-leader-election", "--discovery-interval", "200ms"]);
        command.args(["--api-url", &cloud.url(), "--username", USER, "--claim-settle", "500ms"]);
        command.env("CLOUDSIGMA_PASSWORD", PASSWORD);
        command
    };
    let controller = cluster.start("ccm", serve()).await;
    cluster.served("web", "groundcrew.dev/cloudsigma").await;
    let torn = cluster.served("torn", "groundcrew.dev/cloudsigma").await;
    controller.process.end(Signal::SIGKILL).await.unwrap();
    cluster.tear_out("torn").await;
    let floating: Api<FloatingIP> = Api::all(cluster.client.clone());
    floating.delete(&FloatingIP::name_of(torn), &DeleteParams::default()).await.unwrap();

    let mut command = cluster.command(&["deorbit-controller", "--cloudsigma", "--no-leader-election"]);
    command.args(["--interval", "100ms"]).env("CLOUDSIGMA_API_URL", cloud.url());
    command.env("CLOUDSIGMA_USERNAME", USER).env("CLOUDSIGMA_PASSWORD", PASSWORD);
    let deorbit = cluster.start("deorbit", command).await;
    let budgets = json!({"stages": {"LoadBalancers": "2s", "Verify": "1s", "Cloud": "10s"}});
    cluster.deorbit(&json!({"policies": {"floatingIps": "delete"}, "budgets": budgets})).await;
    let status = cluster.until(Phase::Leftovers).await;
    let left: Vec<_> = status.report.iter().filter(|line| line.kind == "cloudsigma-address").collect();
    let [line] = left.as_slice() else { panic!("{:?}", status.report) };
    assert!(line.id != torn.to_string() && line.reason.contains("node n1 still answers"), "{line:?}");

    // Whoever can take it from the node comes back, and the held run sees that nothing is left.
    let controller = cluster.start("heir", serve()).await;
    cluster.until(Phase::Clean).await;
    // The heir may just then have tagged what was still there when it looked; it takes that away again.
    eventually("the account is as before", SOON, async || {
        let now = cloud.snapshot();
        ensure!(now.ips == before.ips && now.tags == before.tags, "{:?} {:?}", now.ips, now.tags);
        Ok(())
    })
    .await
    .unwrap();
    deorbit.process.end(Signal::SIGTERM).await.unwrap();
    controller.process.end(Signal::SIGTERM).await.unwrap();
}
