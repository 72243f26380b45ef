//! However it ends, what it says is true, and it ends.

use std::sync::atomic::Ordering;

use anyhow::ensure;
use clap::Parser;
use groundcrew_api::deorbit::{DeorbitStatus, Phase, ReportLine, StageName};
use groundcrew_core::runtime::{Runtime, RuntimeArgs};
use groundcrew_orbit::deorbit::cli::{self, Shown, Wish};
use groundcrew_orbit::deorbit::{Args, freeze, observe};
use groundcrew_testkit::{Scratch, eventually};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::batch::v1::CronJob;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::networking::v1::Ingress;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, from_value, json};

use crate::abort::untouchable;
use crate::faults::all;
use crate::lab::{CLUSTER, CSI, Lab, SOON, claim};

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    wish: Wish,
    #[command(flatten)]
    shown: Shown,
    #[command(flatten)]
    deorbit: Args,
    #[command(flatten)]
    runtime: RuntimeArgs,
}

/// `groundcrew deorbit run`: the code that it exits with, and the file that it wrote.
async fn run(lab: &Lab, more: &[&str]) -> (u8, Option<DeorbitStatus>) {
    let scratch = Scratch::new("ends").unwrap();
    let report = scratch.path().join("report.json");
    let (uid, kubeconfig) = (lab.uid().await, lab.plane.kubeconfig_path().to_str().unwrap());
    let mut line = vec!["deorbit", "--kubeconfig", kubeconfig, "--confirm", &uid, "--interval", "50ms"];
    line.extend(["--cluster-id", "test", "--lease-namespace", "default", "--name", "end", "--no-leader-election"]);
    line.extend(more);
    let Line { wish, shown, deorbit, runtime } = Line::parse_from(line);
    let (clouds, to) = (lab.clouds((CLUSTER, CSI)), Some(report.clone()));
    let running =
        cli::run(runtime, deorbit, wish, shown, to, async |runtime: &Runtime| Ok(clouds(runtime.client.clone())));
    let code = tokio::time::timeout(SOON, Box::pin(running)).await.expect("it ends in time");
    (code, std::fs::read_to_string(&report).ok().map(|text| serde_json::from_str(&text).unwrap()))
}

fn cron_job(name: &str) -> Value {
    let pod = json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "none"}]});
    json!({"metadata": {"name": name}, "spec": {"schedule": "0 0 1 1 *",
        "jobTemplate": {"spec": {"template": {"spec": pod}}}}})
}

pub(crate) async fn what_cannot_be_stopped_puts_everything_back_and_the_next_run_is_free_to_go(lab: &Lab) {
    lab.stateful_set("db", "cinder").await;
    lab.make::<CronJob>(cron_job("stuck")).await;
    untouchable(lab, "cronjobs", "UPDATE", "stuck").await;
    let before = lab.place.everything().await;
    let quiesces = |status: &DeorbitStatus| status.stage.contains("Quiesce");
    let budgets = json!({"stages": {"Quiesce": "1s"}});
    let cut = lab.cut_short("it quiesces", quiesces, &budgets);
    let ((code, status), ()) = tokio::join!(run(lab, &["--stage-budget", "1h"]), cut);
    let status = status.unwrap();
    assert_eq!((code, status.phase), (cli::REFUSED, Phase::Refused), "{status:?}");
    assert!(status.message.contains("Quiesce did not succeed") && status.message.contains("not this one"));
    let sets: Api<StatefulSet> = Api::namespaced(lab.client.clone(), &lab.namespace);
    assert_eq!(sets.get("db").await.unwrap().spec.unwrap().replicas, Some(1), "it runs again");
    eventually("claims can be made again", SOON, async || {
        ensure!(!freeze::is_blocked(&lab.client, SOON).await?, "the API server still refuses");
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(lab.place.everything().await, before);

    lab.touchable().await;
    let (code, status) = run(lab, &[]).await;
    assert_eq!(code, cli::CLEAN, "{status:?}");
    lab.assert_as_before().await;
}

pub(crate) async fn when_the_time_is_up_the_report_comes_first_and_then_the_cluster_may_go_or_is_held(lab: &Lab) {
    lab.served("web").await;
    lab.standins.stop(&lab.standins.balancers).await;
    let reports: Api<ConfigMap> = Api::namespaced(lab.client.clone(), "default");
    let budgets = json!({"stages": {"LoadBalancers": "1s", "Verify": "1s", "Cloud": "1s"}});
    let running = lab.start();
    let ended = async |wish: &str| {
        // Of a test before.
        let _ = reports.delete("deorbit-end-report", &DeleteParams::default()).await;
        lab.deorbit(&json!({"onBudgetEnd": wish, "budgets": budgets})).await;
        let status = lab.until_phase(Phase::Leftovers).await;
        assert!(status.report.iter().any(|line| line.kind == "octavia-load-balancer"), "{:?}", status.report);
        assert_eq!((status.report_config_map.as_str(), status.stage.as_str()), ("default/deorbit-end-report", ""));
        status
    };

    let status = ended("Proceed").await;
    assert_eq!((status.let_go, cli::exit(&status)), (true, cli::CLEAN), "{}", status.message);
    assert!(status.message.contains("the cluster may go all the same"), "{}", status.message);
    let (report, end) = (reports.get("deorbit-end-report").await.unwrap(), lab.deorbits().get("end").await.unwrap());
    let version = |version: Option<String>| version.unwrap().parse::<u64>().unwrap();
    assert!(version(report.resource_version()) < version(end.resource_version()), "whoever may go has its report");
    lab.gone("end").await;

    let status = ended("Hold").await;
    assert_eq!((status.let_go, cli::exit(&status)), (false, cli::LEFTOVERS), "{}", status.message);
    assert!(reports.get_opt("deorbit-end-report").await.unwrap().is_some());
    assert_eq!(lab.place.ids("loadbalancers").await.len(), 1, "nobody was told to remove it");
    lab.standins.balancers.store(true, Ordering::SeqCst);
    let status = lab.until_phase(Phase::Clean).await;
    running.stop().await;
    assert!(status.let_go);
    lab.assert_as_before().await;
}

/// A role for everything, with or without the right to see pods.
async fn let_see_pods(lab: &Lab, pods: bool) {
    let roles: Api<ClusterRole> = Api::all(lab.client.clone());
    let everything = json!({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]});
    let others = json!({"apiGroups": ["apps", "batch", "storage.k8s.io", "networking.k8s.io", "groundcrew.dev",
        "coordination.k8s.io", "events.k8s.io", "snapshot.storage.k8s.io", "gateway.networking.k8s.io",
        "admissionregistration.k8s.io"], "resources": ["*"], "verbs": ["*"]});
    let core = json!({"apiGroups": [""], "verbs": ["*"], "resources": ["services", "namespaces", "nodes", "configmaps",
        "persistentvolumes", "persistentvolumeclaims", "events"]});
    let allowed = if pods { json!([everything]) } else { json!([others, core]) };
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "sighted"}, "rules": allowed});
    roles.patch("sighted", &PatchParams::apply("it").force(), &Patch::Apply(role)).await.unwrap();
}

/// An API server takes its time to go by a role.
async fn until_sees_pods(account: &Client, sees: bool) {
    let (services, pods): (Api<Service>, Api<Pod>) = (Api::all(account.clone()), Api::all(account.clone()));
    eventually("the role is in effect", SOON, async || {
        services.list(&ListParams::default()).await?;
        ensure!(pods.list(&ListParams::default()).await.is_ok() == sees, "not yet");
        Ok(())
    })
    .await
    .unwrap();
}

pub(crate) async fn without_the_right_to_look_it_is_refused_and_midway_it_ends_as_unknown(lab: &Lab) {
    lab.served("web").await;
    lab.standins.stop(&lab.standins.balancers).await;
    let before = lab.place.everything().await;
    let account = lab.plane.service_account("default", "sighted").await.unwrap();
    let_see_pods(lab, false).await;
    let bindings: Api<ClusterRoleBinding> = Api::all(lab.client.clone());
    let subject = json!({"kind": "ServiceAccount", "namespace": "default", "name": "sighted"});
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "sighted"});
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "sighted"}, "roleRef": role, "subjects": [subject]});
    bindings.patch("sighted", &PatchParams::apply("it").force(), &Patch::Apply(binding)).await.unwrap();
    let client = account.client().await.unwrap();
    until_sees_pods(&client, false).await;
    let running = lab.start_as((CLUSTER, CSI), account.path());
    lab.deorbit(&json!({})).await;
    let status = lab.until_phase(Phase::Refused).await;
    assert!(status.message.contains("cannot list pods"), "{}", status.message);
    assert_eq!((status.stages.len(), lab.place.everything().await), (0, before));
    lab.gone("end").await;

    let_see_pods(lab, true).await;
    until_sees_pods(&client, true).await;
    lab.deorbit(&json!({"policies": all("delete")})).await;
    let waits = |status: &DeorbitStatus| status.stage.contains("LoadBalancers");
    lab.until("it waits for the Service", waits).await;
    let_see_pods(lab, false).await;
    until_sees_pods(&client, false).await;
    lab.cut_short("it waits still", waits, &json!({"total": "1s"})).await;
    let status = lab.until_phase(Phase::Leftovers).await;
    running.stop().await;
    let kinds: Vec<_> = status.report.iter().map(|line| line.kind.as_str()).collect();
    assert!(kinds.contains(&"unknown") && kinds.contains(&"octavia-load-balancer"), "{kinds:?}");
    assert_eq!(lab.place.ids("loadbalancers").await.len(), 1, "nothing goes that nobody can judge");
}

pub(crate) async fn a_report_that_cannot_be_written_does_not_hold_up_the_end(lab: &Lab) {
    lab.bound("data", "cinder").await;
    let reports: Api<ConfigMap> = Api::namespaced(lab.client.clone(), "default");
    let _ = reports.delete("deorbit-end-report", &kube::api::DeleteParams::default()).await;
    untouchable(lab, "configmaps", "CREATE", "deorbit-end-report").await;
    let running = lab.start();
    lab.deorbit(&json!({})).await;
    let status = lab.until_phase(Phase::Clean).await;
    running.stop().await;
    assert!(status.message.contains("in this status only") && status.message.contains("not this one"));
    assert_eq!(status.report_config_map, "");
    lab.assert_as_before().await;
}

pub(crate) async fn a_second_deorbit_says_for_whom_it_waits_and_a_budget_that_breaks_midway_refuses_nothing(lab: &Lab) {
    lab.served("web").await;
    lab.standins.stop(&lab.standins.balancers).await;
    let running = lab.start();
    lab.deorbit(&json!({})).await;
    lab.until("it waits for the Service", |status| status.stage.contains("LoadBalancers")).await;
    let second = json!({"metadata": {"name": "second"}, "spec": {"confirm": lab.uid().await}});
    lab.deorbits().create(&PostParams::default(), &from_value(second).unwrap()).await.unwrap();
    eventually("the second tells", SOON, async || {
        let message = lab.deorbits().get("second").await?.status.unwrap_or_default().message;
        ensure!(message == "waits for Deorbit end", "{message:?}");
        Ok(())
    })
    .await
    .unwrap();
    let broken = Patch::Merge(json!({"spec": {"budgets": {"stages": {"Verify": "soon"}}}}));
    lab.deorbits().patch("end", &PatchParams::default(), &broken).await.unwrap();
    let status = lab.until("it tells", |status| status.message.contains("budgets.stages.Verify")).await;
    assert_eq!(status.phase, Phase::Running);
    lab.standins.balancers.store(true, Ordering::SeqCst);
    lab.until_phase(Phase::Clean).await;
    eventually("then it is the second's turn", SOON, async || {
        let status = lab.deorbits().get("second").await?.status.unwrap_or_default();
        ensure!(status.phase == Phase::Clean, "{status:?}");
        Ok(())
    })
    .await
    .unwrap();
    running.stop().await;
    lab.assert_as_before().await;
}

pub(crate) async fn every_line_of_a_long_report_is_in_the_file_and_in_the_config_map(lab: &Lab) {
    for n in 0..120 {
        lab.place.old_volume("demo-csi", &format!("orphan-{n}")).await;
    }
    let before = lab.place.everything().await;
    let held = |status: &DeorbitStatus| {
        let cloud = status.stages.iter().find(|stage| stage.name == StageName::Cloud);
        cloud.is_some_and(|cloud| cloud.message.contains("maxCloudDeletes"))
    };
    let budgets = json!({"total": "1s"});
    let cut = lab.cut_short("the cloud is not touched", held, &budgets);
    let ((code, status), ()) = tokio::join!(run(lab, &["--policy", "all=delete"]), cut);
    let (file, shown) = (status.unwrap(), lab.status().await);
    assert_eq!((code, file.report.len(), shown.report.len(), shown.left), (cli::LEFTOVERS, 120, 100, 120));
    assert!(file.report.iter().all(|line| line.reason.contains("maxCloudDeletes (100)")), "{:?}", file.report[0]);
    let cloud = shown.stages.iter().find(|stage| stage.name == StageName::Cloud).unwrap();
    assert!(cloud.message.contains("maxCloudDeletes"), "{cloud:?}");
    let (namespace, name) = shown.report_config_map.split_once('/').unwrap();
    let reports: Api<ConfigMap> = Api::namespaced(lab.client.clone(), namespace);
    let text = reports.get(name).await.unwrap().data.unwrap().remove("report.json").unwrap();
    let document: Value = serde_json::from_str(&text).unwrap();
    let lines: Vec<ReportLine> = from_value(document["things"].clone()).unwrap();
    assert_eq!((lines, &document["left"], &document["cut"]), (file.report, &json!(120), &json!(0)));
    assert_eq!(lab.place.everything().await, before);
}

pub(crate) async fn the_block_is_proven_where_the_place_of_the_probe_is_protected_and_holds_for_every_kind(lab: &Lab) {
    lab.make::<Service>(json!({"metadata": {"name": "inner"}, "spec": {"ports": [{"port": 80}]}})).await;
    let running = lab.start();
    lab.deorbit(&json!({"protect": {"namespaces": ["kube-system", "default"]}})).await;
    lab.until_phase(Phase::Clean).await;
    running.stop().await;

    let denied = |what: &str, made: kube::Result<()>| {
        assert!(made.is_err_and(|error| error.to_string().contains("being deorbited")), "{what}");
    };
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(lab.client.clone(), &lab.namespace);
    let data = from_value(claim("data", "cinder")).unwrap();
    denied("claim", claims.create(&dry, &data).await.map(drop));
    let services: Api<Service> = Api::namespaced(lab.client.clone(), &lab.namespace);
    let outer = json!({"metadata": {"name": "outer"}, "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}});
    denied("Service", services.create(&dry, &from_value(outer).unwrap()).await.map(drop));
    let becomes = Patch::Merge(json!({"spec": {"type": "LoadBalancer"}}));
    denied("a Service that changes", services.patch("inner", &PatchParams::default(), &becomes).await.map(drop));
    let ingresses: Api<Ingress> = Api::namespaced(lab.client.clone(), &lab.namespace);
    let backend = json!({"service": {"name": "inner", "port": {"number": 80}}});
    let front = json!({"metadata": {"name": "front"}, "spec": {"defaultBackend": backend}});
    denied("Ingress", ingresses.create(&dry, &from_value(front).unwrap()).await.map(drop));
    for resource in [observe::gateway(), observe::snapshot()] {
        let api: Api<DynamicObject> = Api::namespaced_with(lab.client.clone(), &lab.namespace, &resource);
        denied(&resource.kind, api.create(&dry, &DynamicObject::new("new", &resource)).await.map(drop));
    }
    // What harms nobody, and what is protected.
    let plain = json!({"metadata": {"name": "plain"}, "spec": {"ports": [{"port": 80}]}});
    services.create(&dry, &from_value(plain).unwrap()).await.unwrap();
    let protected: Api<PersistentVolumeClaim> = Api::namespaced(lab.client.clone(), "default");
    protected.create(&dry, &data).await.unwrap();
}

pub(crate) async fn a_plan_becomes_a_run_when_it_is_no_dry_run_any_more(lab: &Lab) {
    lab.served("web").await;
    lab.bound("data", "cinder").await;
    let running = lab.start();
    lab.deorbit(&json!({"dryRun": true})).await;
    let planned = lab.until_phase(Phase::Planned).await;
    assert!(planned.stages.is_empty() && planned.started_at.is_none(), "{planned:?}");
    let go = Patch::Merge(json!({"spec": {"dryRun": false}}));
    lab.deorbits().patch("end", &PatchParams::default(), &go).await.unwrap();
    lab.until_phase(Phase::Clean).await;
    running.stop().await;
    lab.assert_as_before().await;
    assert!(lab.deorbits().get("end").await.unwrap().uid().is_some());
}
