//! `groundcrew doctor`, `pools` and `status` on real parts.

use std::process::{Command, Output};

use anyhow::ensure;
use groundcrew_api::floating_ip::FloatingIP;
use groundcrew_testkit::cloudsigma::{CloudSigma, PASSWORD, USER};
use groundcrew_testkit::eventually;
use groundcrew_testkit::kube::shared;
use groundcrew_testkit::openstack::fake::{self, Model};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::lab::{Lab, SOON};

async fn run(mut command: Command) -> Output {
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

/// The findings by name, and the exit code.
async fn doctor(lab: &Lab, more: impl FnOnce(&mut Command) -> &mut Command) -> (Value, Option<i32>) {
    let mut command = lab.person();
    command.args(["doctor", "--output", "json", "--lease-namespace", &lab.namespace]);
    command.args(["--kube-ovn-namespace", &lab.namespace, "--cilium-namespace", &lab.namespace]);
    more(&mut command);
    let output = run(command).await;
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    (report, output.status.code())
}

#[track_caller]
fn state<'a>(report: &'a Value, name: &str) -> (&'a str, String) {
    let findings = report["findings"].as_array().unwrap();
    let found =
        findings.iter().find(|finding| finding["name"] == name).unwrap_or_else(|| panic!("no {name}: {report:#}"));
    (found["state"].as_str().unwrap(), format!("{} {}", found["found"], found["next"]))
}

#[tokio::test]
async fn a_sound_installation_has_no_cross() {
    let lab = Lab::new("sound").await;
    let controller = lab.start("sound").await;
    lab.until_leads(&controller).await;
    let remotes = lab.northbound().remotes();
    // northd says its version when it comes to it.
    eventually("nothing is wrong", SOON, async || {
        let (report, code) = doctor(&lab, |command| command.args(["--ovn-nb", &remotes])).await;
        ensure!(code == Some(0), "{report:#}");
        for name in ["kubernetes", "clock", "definitions", "leaders", "rights of ovn-lb", "ovn", "ovn version"] {
            ensure!(state(&report, name).0 == "good", "{report:#}");
        }
        Ok(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn an_account_without_rights_is_told_which_it_lacks() {
    let lab = Lab::new("rightless").await;
    shared().await.unwrap().service_account(&lab.namespace, "nobody").await.unwrap();
    let account = format!("{}/nobody", lab.namespace);
    let (report, code) =
        doctor(&lab, |command| command.args(["--controllers", "ovn-lb,flight", "--service-account", &account])).await;
    assert_eq!(code, Some(1));
    let (verdict, words) = state(&report, "rights of ovn-lb");
    assert_eq!(verdict, "bad");
    assert!(words.contains("patch services/status") && words.contains("create eips.kube-dc.com"), "{words}");
    assert!(state(&report, "rights of flight").1.contains("update noderepairs/status.groundcrew.dev"), "{report:#}");
}

#[tokio::test]
async fn an_ovn_that_is_away_and_a_kube_ovn_that_deletes_are_told_with_their_remedies() {
    let lab = Lab::new("ailing").await;
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "kube-ovn-controller-1", "labels": { "app": "kube-ovn-controller" } },
        "spec": { "containers": [{ "name": "kube-ovn-controller", "image": "kubeovn/kube-ovn:v1.14.4" }] },
    });
    let pods: Api<Pod> = Api::namespaced(lab.client.clone(), &lab.namespace);
    pods.patch("kube-ovn-controller-1", &PatchParams::apply("test"), &Patch::Apply(pod)).await.unwrap();
    // Nobody listens there: the port is reserved and not used.
    let port = groundcrew_testkit::ReservedPort::new().unwrap();
    let away = format!("tcp:{}", port.address());
    let (report, code) = doctor(&lab, |command| command.args(["--ovn-nb", &away])).await;
    assert_eq!(code, Some(1));
    assert_eq!(state(&report, "ovn").0, "bad", "{report:#}");
    let (verdict, words) = state(&report, "kube-ovn");
    assert!(verdict == "bad" && words.contains("v1.14.4 deletes") && words.contains("GC_INTERVAL=0"), "{words}");
}

#[tokio::test]
async fn a_cilium_that_chooses_its_devices_and_a_member_of_ovn_that_is_away_are_told() {
    let lab = Lab::new("choosy").await;
    let floating: Api<FloatingIP> = Api::all(lab.client.clone());
    // Of no cluster that a controller of another test is.
    let address = "203.0.113.250";
    let object = json!({ "metadata": { "name": address }, "spec": { "address": address, "serial": 1 } });
    let object: FloatingIP = serde_json::from_value(object).unwrap();
    floating.create(&PostParams::default(), &object).await.unwrap();
    let settings: Api<ConfigMap> = Api::namespaced(lab.client.clone(), &lab.namespace);
    let set = async |data: Value| {
        let map =
            json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "cilium-config" }, "data": data });
        settings.patch("cilium-config", &PatchParams::apply("test").force(), &Patch::Apply(map)).await.unwrap();
    };
    let port = groundcrew_testkit::ReservedPort::new().unwrap();
    let endpoints = format!("{},tcp:{}", lab.northbound().remotes(), port.address());
    set(json!({ "enable-ipv4": "true" })).await;
    let (report, code) = doctor(&lab, |command| command.args(["--ovn-nb", &endpoints])).await;
    let (verdict, words) = state(&report, "cilium");
    assert!(verdict == "bad" && words.contains("set devices in cilium-config"), "{words}");
    assert_eq!((state(&report, "ovn").0, code), ("good", Some(1)), "one of two answers: {report:#}");
    let (verdict, words) = state(&report, "ovn cluster");
    assert!(verdict == "bad" && words.contains(&port.address().to_string()), "{words}");

    set(json!({ "devices": "ens3" })).await;
    let (report, _) = doctor(&lab, |command| command.args(["--ovn-nb", &endpoints])).await;
    assert_eq!(state(&report, "cilium").0, "good", "{report:#}");
    floating.delete(&object.name_any(), &DeleteParams::default()).await.unwrap();
}

#[tokio::test]
async fn credentials_are_tried_and_never_printed() {
    let lab = Lab::new("credentials").await;
    let cloud = CloudSigma::start().await.unwrap();
    let sigma = |command: &mut Command, password: &str| {
        let url = cloud.url();
        command.arg("--cloudsigma").env("CLOUDSIGMA_API_URL", url).env("CLOUDSIGMA_USERNAME", USER);
        command.env("CLOUDSIGMA_PASSWORD", password);
    };
    let (report, _) = doctor(&lab, |command| {
        sigma(command, PASSWORD);
        command
    })
    .await;
    assert_eq!(state(&report, "cloudsigma").0, "good", "{report:#}");
    cloud.accept_password(false);
    let (report, code) = doctor(&lab, |command| {
        sigma(command, PASSWORD);
        command
    })
    .await;
    let (verdict, words) = state(&report, "cloudsigma");
    assert_eq!((verdict, code), ("bad", Some(1)), "{report:#}");
    assert!(words.contains("look whether the credentials are right"), "{words}");
    assert!(!report.to_string().contains(PASSWORD));

    let model = Model::start().await.unwrap();
    let openstack = |command: &mut Command| {
        command.arg("--openstack").env("OS_AUTH_URL", model.fake.url()).env("OS_PASSWORD", fake::PASSWORD);
        command.env("OS_USERNAME", "kluster").env("OS_USER_DOMAIN_NAME", "Default");
        command.env("OS_PROJECT_NAME", "demo").env("OS_PROJECT_DOMAIN_NAME", "Default");
    };
    let (report, _) = doctor(&lab, |command| {
        openstack(command);
        command
    })
    .await;
    assert_eq!(state(&report, "openstack").0, "good", "{report:#}");
    assert_eq!(state(&report, "openstack routes").0, "good", "{report:#}");
    assert!(!report.to_string().contains(fake::PASSWORD));
    model.without_single_routes();
    let (report, _) = doctor(&lab, |command| {
        openstack(command);
        command
    })
    .await;
    assert_eq!(state(&report, "openstack routes").0, "bad", "{report:#}");
    model.fake.refuse(true);
    let (report, code) = doctor(&lab, |command| {
        openstack(command);
        command
    })
    .await;
    let (verdict, words) = state(&report, "openstack");
    assert_eq!((verdict, code), ("bad", Some(1)), "{report:#}");
    assert!(words.contains("look whether the credentials are right"), "{words}");
    assert!(!report.to_string().contains(fake::PASSWORD));
}

#[tokio::test]
async fn pools_and_status_show_what_is_left_and_who_waits() {
    let lab = Lab::new("glance").await;
    let controller = lab.start("glance").await;
    lab.until_leads(&controller).await;
    lab.create("web").await;
    lab.until_served("web").await;
    lab.create_with("waiting", &json!({ "groundcrew.dev/load-balancer-ips": "203.0.113.9" })).await;
    eventually("both tell", SOON, async || {
        let mut pools = lab.person();
        pools.args(["pools", "-o", "yaml"]);
        let output = run(pools).await;
        let pools: Vec<Value> = serde_saphyr::from_str(&String::from_utf8_lossy(&output.stdout))?;
        let pool = pools.iter().find(|pool| pool["name"] == lab.namespace.as_str()).cloned().unwrap_or_default();
        ensure!(pool["used"] == 1 && pool["family"] == "IPv4", "{pool:#}");

        let mut status = lab.person();
        status.args(["status", "-o", "json", "--lease-namespace", &lab.namespace]);
        let output = run(status).await;
        let status: Value = serde_json::from_slice(&output.stdout)?;
        ensure!(status["controllers"][0]["name"] == "ovn-lb", "{status:#}");
        ensure!(status["controllers"][0]["leader"].is_string(), "{status:#}");
        let key = format!("{}/waiting", lab.namespace);
        let waiting = status["waiting"].as_array().cloned().unwrap_or_default();
        let waits =
            waiting.iter().any(|each| each["service"] == key.as_str() && each["reason"] == "AddressOutsidePools");
        ensure!(waits && output.status.code() == Some(1), "{status:#}");
        Ok(())
    })
    .await
    .unwrap();
}
