//! Deleting the object before anything was deleted puts everything back; afterwards it only stops.

use anyhow::ensure;
use groundcrew_api::deorbit::Phase;
use groundcrew_testkit::eventually;
use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::batch::v1::CronJob;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{from_value, json};

use crate::lab::{Lab, SOON};

/// Nobody may change objects of this name, so that the stage which has to does not end.
pub(crate) async fn untouchable(lab: &Lab, resource: &str, operation: &str, name: &str) {
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(lab.client.clone());
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(lab.client.clone());
    let rule = json!({"apiGroups": ["*"], "apiVersions": ["*"], "resources": [resource], "operations": [operation]});
    let subject = if operation == "DELETE" { "oldObject" } else { "object" };
    let policy = json!({"metadata": {"name": "untouchable"}, "spec": {"matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": format!("{subject}.metadata.name != '{name}'"), "message": "not this one"}]}});
    policies.create(&PostParams::default(), &from_value(policy).unwrap()).await.unwrap();
    let binding = json!({"metadata": {"name": "untouchable"},
        "spec": {"policyName": "untouchable", "validationActions": ["Deny"]}});
    bindings.create(&PostParams::default(), &from_value(binding).unwrap()).await.unwrap();
    // An API server takes its time to begin with it.
    let maps: Api<ConfigMap> = Api::namespaced(lab.client.clone(), "default");
    let probe = json!({"metadata": {"name": name}});
    if (resource, operation) == ("configmaps", "CREATE") {
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        eventually("nobody makes it", SOON, async || {
            ensure!(maps.create(&dry, &from_value(probe.clone())?).await.is_err(), "somebody can");
            anyhow::Ok(())
        })
        .await
        .unwrap();
    }
}

pub(crate) async fn an_abort_puts_replicas_back_and_lifts_the_block(lab: &Lab) {
    lab.stateful_set("db", "cinder").await;
    lab.served("web").await;
    let job = |name: &str| {
        json!({"metadata": {"name": name}, "spec": {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template":
            {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "none"}]}}}}}})
    };
    lab.make::<CronJob>(job("nightly")).await;
    lab.make::<CronJob>(job("stuck")).await;
    untouchable(lab, "cronjobs", "UPDATE", "stuck").await;
    let before = lab.place.everything().await;
    let sets: Api<StatefulSet> = Api::namespaced(lab.client.clone(), &lab.namespace);
    let jobs: Api<CronJob> = Api::namespaced(lab.client.clone(), &lab.namespace);
    let replicas = async || sets.get("db").await.unwrap().spec.unwrap().replicas;
    let suspended = async || jobs.get("nightly").await.unwrap().spec.unwrap().suspend;

    let running = lab.start();
    lab.deorbit(&json!({})).await;
    lab.until("it is stuck in quiesce", |status| status.message.contains("not this one")).await;
    // A set whose status was just written is stopped a pass later.
    eventually("the others are stopped", SOON, async || {
        let stopped = (replicas().await, suspended().await);
        ensure!(stopped == (Some(0), Some(true)), "{stopped:?}");
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(lab.status().await.irreversible_at, None);
    // Whoever comes after a crash can abort as well: nothing of it is in memory only.
    running.kill().await;
    lab.deorbits().delete("end", &DeleteParams::default()).await.unwrap();
    let running = lab.start();
    eventually("the object is gone", SOON, async || {
        ensure!(lab.deorbits().get_opt("end").await?.is_none(), "it is there");
        Ok(())
    })
    .await
    .unwrap();
    running.stop().await;
    assert_eq!((replicas().await, suspended().await), (Some(1), Some(false)));
    assert_eq!(lab.place.everything().await, before);
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(lab.client.clone());
    assert!(policies.get_opt("groundcrew-deorbit").await.unwrap().is_none());
    eventually("claims can be made again", SOON, async || {
        ensure!(
            !groundcrew_orbit::deorbit::freeze::is_blocked(&lab.client, SOON).await?,
            "the API server still refuses"
        );
        Ok(())
    })
    .await
    .unwrap();
}

pub(crate) async fn a_delete_that_a_policy_denies_is_told_and_stopping_after_it_brings_no_workload_back(lab: &Lab) {
    lab.stateful_set("db", "cinder").await;
    lab.served("stuck").await;
    untouchable(lab, "services", "DELETE", "stuck").await;
    let running = lab.start();
    lab.deorbit(&json!({"policies": {"loadBalancers": "delete"},
        "budgets": {"stages": {"LoadBalancers": "3s", "Verify": "1s"}}}))
        .await;
    let status = lab.until_phase(Phase::Leftovers).await;
    let line = |kind: &str| status.report.iter().find(|line| line.kind == kind).unwrap();
    assert!(line("Service").reason.contains("not this one"), "{:?}", line("Service"));
    // Its load balancer may be in use: the Service is there, and nobody deletes it.
    assert!(line("octavia-load-balancer").reason.contains("nobody deletes it"));
    assert_eq!(lab.place.ids("loadbalancers").await.len(), 1);

    lab.deorbits().delete("end", &DeleteParams::default()).await.unwrap();
    eventually("the object is gone", SOON, async || {
        ensure!(lab.deorbits().get_opt("end").await?.is_none(), "it is there");
        Ok(())
    })
    .await
    .unwrap();
    running.stop().await;
    let sets: Api<StatefulSet> = Api::namespaced(lab.client.clone(), &lab.namespace);
    let set = sets.get("db").await.unwrap();
    assert_eq!(set.spec.unwrap().replicas, Some(0));
    assert_eq!(set.metadata.annotations.unwrap()["groundcrew.dev/before-deorbit"], "1");
}

pub(crate) async fn an_abort_that_cannot_put_everything_back_says_so_until_it_can(lab: &Lab) {
    lab.stateful_set("db", "cinder").await;
    let job = json!({"metadata": {"name": "stuck"}, "spec": {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template":
        {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "none"}]}}}}}});
    lab.make::<CronJob>(job).await;
    untouchable(lab, "cronjobs", "UPDATE", "stuck").await;
    let sets: Api<StatefulSet> = Api::namespaced(lab.client.clone(), &lab.namespace);
    let replicas = async || sets.get("db").await.unwrap().spec.unwrap().replicas;
    let running = lab.start();
    lab.deorbit(&json!({})).await;
    lab.until("it is stuck in quiesce", |status| status.message.contains("not this one")).await;
    eventually("the set is stopped", SOON, async || {
        ensure!(replicas().await == Some(0), "it runs");
        Ok(())
    })
    .await
    .unwrap();
    // From now on nobody may change the set either.
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(lab.client.clone());
    let rule = json!({"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["statefulsets", "cronjobs"],
        "operations": ["UPDATE"]});
    let held = json!({"spec": {"matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": "false", "message": "not this one either"}]}});
    policies.patch("untouchable", &PatchParams::default(), &Patch::Merge(held)).await.unwrap();
    let dry = PatchParams { dry_run: true, ..PatchParams::default() };
    eventually("nobody changes the set", SOON, async || {
        let changed = sets.patch("db", &dry, &Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}))).await;
        ensure!(changed.is_err(), "somebody can");
        Ok(())
    })
    .await
    .unwrap();
    lab.deorbits().delete("end", &DeleteParams::default()).await.unwrap();
    lab.until("it says so", |status| {
        status.message.contains("it cannot be ended yet") && status.message.contains("not this one either")
    })
    .await;
    lab.touchable().await;
    eventually("the object is gone", SOON, async || {
        ensure!(lab.deorbits().get_opt("end").await?.is_none(), "it is there");
        Ok(())
    })
    .await
    .unwrap();
    running.stop().await;
    assert_eq!(replicas().await, Some(1));
}
