//! `groundcrew doctor` asks for what the chart gives: for no other right, for all but those that only some setups need, and
//! for the definitions of the controllers that are there.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;

use super::{Installed, program};

/// What the chart gives and doctor does not ask for, because only some setups need it.
const NOT_ASKED: [(&str, &[&str]); 5] = [
    (
        "ovn-lb",
        &[
            // Beside kube-ovn and kube-dc.
            "create ovn-eips.kubeovn.io",
            "delete ovn-eips.kubeovn.io",
            "get ovn-eips.kubeovn.io",
            "get vpcs.kubeovn.io",
            "list leases.coordination.k8s.io",
            "list namespaces",
            "list ovn-eips.kubeovn.io",
            "list pods",
            "list projects.kube-dc.com",
            "list subnets.kubeovn.io",
            "list vpcs.kubeovn.io",
            "patch ovn-eips.kubeovn.io",
            "patch vpcs.kubeovn.io",
            "watch leases.coordination.k8s.io",
            "watch namespaces",
            "watch ovn-eips.kubeovn.io",
            "watch pods",
            "watch projects.kube-dc.com",
            "watch subnets.kubeovn.io",
            "watch vpcs.kubeovn.io",
            // Without a cluster id.
            "get namespaces",
        ],
    ),
    ("lb-watcher", &["list leases.coordination.k8s.io", "list pods", "watch leases.coordination.k8s.io", "watch pods"]),
    ("cloudsigma-ccm", &["get namespaces"]),
    // With net-probe.
    ("flight", &["list leases.coordination.k8s.io"]),
    // In one namespace, and only to try.
    ("deorbit", &["create persistentvolumeclaims"]),
];

async fn doctor(installed: &Installed, more: &[&str]) -> (Value, Option<i32>) {
    let mut doctor = Command::new(program());
    doctor.args(["doctor", "--output", "json"]).args(more);
    doctor.arg("--kubeconfig").arg(installed.plane.kubeconfig_path());
    let output = tokio::task::spawn_blocking(move || doctor.output().unwrap()).await.unwrap();
    let report = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    (report, output.status.code())
}

fn finding<'a>(report: &'a Value, name: &str) -> &'a Value {
    let mut findings = report["findings"].as_array().unwrap().iter();
    findings.find(|finding| finding["name"] == name).unwrap_or_else(|| panic!("no {name}: {report:#}"))
}

#[tokio::test]
async fn doctor_asks_for_the_rights_that_every_controller_of_the_chart_has() {
    // The operator's kinds are not there.
    let sets = ["--set", "prometheus.serviceMonitor.enabled=false", "--set", "prometheus.prometheusRule.enabled=false"];
    let installed = Installed::new("all", &sets.map(str::to_owned)).await;
    for controller in installed.controllers() {
        let (namespace, name) = (installed.namespace(controller), format!("rights of {controller}"));
        let of = async |account: &str| {
            let line = ["--controllers", controller, "--lease-namespace", namespace, "--service-account", account];
            doctor(&installed, &line).await.0
        };
        let report = of(&format!("{namespace}/groundcrew-{controller}")).await;
        assert_eq!(finding(&report, &name)["state"], "good", "{report:#}");
        assert_ne!(finding(&report, "definitions")["state"], "bad", "{report:#}");

        // Who may do nothing is told of everything.
        let report = of(&format!("{namespace}/nobody")).await;
        let told = finding(&report, &name)["found"].as_str().unwrap();
        let asked: BTreeSet<_> = told.split_once(" may not: ").unwrap().1.split(", ").map(str::to_owned).collect();
        let mut given = BTreeSet::new();
        for (_, rule) in installed.rules(controller) {
            let words = |field: &str| rule[field].as_array().unwrap().iter().map(|word| word.as_str().unwrap());
            for group in
                words("apiGroups").map(|group| if group.is_empty() { String::new() } else { format!(".{group}") })
            {
                for resource in words("resources") {
                    given.extend(words("verbs").map(|verb| format!("{verb} {resource}{group}")));
                }
            }
        }
        let not_asked: BTreeSet<_> = given.difference(&asked).cloned().collect();
        let excused = NOT_ASKED.iter().find(|(name, _)| *name == controller).map_or(&[][..], |(_, rights)| rights);
        let excused: BTreeSet<_> = excused.iter().map(|right| (*right).to_owned()).collect();
        assert_eq!(not_asked, excused, "of {controller}; those that are excused are on the right");
        assert!(asked.is_subset(&given), "{controller}: {:?}", asked.difference(&given));
    }
}

#[tokio::test]
async fn doctor_faults_no_chart_for_the_definitions_of_controllers_that_it_does_not_run() {
    let installed = Installed::new("ovn-lb", &[]).await;
    let (report, code) = doctor(&installed, &["--controllers", "ovn-lb", "--lease-namespace", "groundcrew"]).await;
    assert_eq!(finding(&report, "definitions")["state"], "good", "{report:#}");
    assert_eq!(finding(&report, "other definitions")["state"], "note", "{report:#}");
    assert_eq!(code, Some(0), "{report:#}");

    // One that somebody takes away, or a controller that is still to come: its definition is the release's to bring.
    let (report, code) = doctor(&installed, &["--controllers", "flight", "--lease-namespace", "groundcrew"]).await;
    let definitions = finding(&report, "definitions");
    assert_eq!((&definitions["state"], code), (&Value::from("bad"), Some(1)), "{report:#}");
    assert_eq!(definitions["found"], "noderepairs.groundcrew.dev is missing");
    let next = definitions["next"].as_str().unwrap();
    assert!(next.starts_with("helm upgrade groundcrew charts/groundcrew --namespace groundcrew "), "{next}");
}

/// The chart gives less to one that does less, and that is no fault.
#[tokio::test]
async fn doctor_faults_no_chart_for_rights_that_a_setup_does_not_need() {
    for (case, set, controller) in [
        ("lb-watcher", "controllers.lb-watcher.reportOnly=true", "lb-watcher"),
        ("cloudsigma-ccm", "controllers.cloudsigma-ccm.nodesOnly=true", "cloudsigma-ccm"),
    ] {
        let installed = Installed::new(case, &["--set".to_owned(), set.to_owned()]).await;
        let account = format!("groundcrew/groundcrew-{controller}");
        let line = ["--controllers", controller, "--lease-namespace", "groundcrew", "--service-account", &account];
        let (report, code) = doctor(&installed, &line).await;
        let rights = finding(&report, &format!("rights of {controller}"));
        assert_eq!((&rights["state"], code), (&Value::from("note"), Some(0)), "{report:#}");
        assert!(rights["found"].as_str().unwrap().contains("patch services"), "{report:#}");
        assert!(rights["next"].as_str().unwrap().starts_with("nothing if the controller has --"), "{report:#}");
    }
}
