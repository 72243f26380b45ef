//! What the chart renders to, and what it refuses.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use groundcrew_testkit::Scratch;
use serde_json::{Value, json};

use crate::helm::{KUBE_VERSION, REPOSITORY, chart, helm, objects, rendered, template, values};

/// Every controller alone, and all together.
pub(crate) const CASES: [&str; 12] = [
    "all",
    "cloudsigma-ccm",
    "cloudsigma-ccm-hosted",
    "deorbit",
    "deorbit-elsewhere",
    "flight",
    "lb-watcher",
    "net-probe",
    "node-agent",
    "ovn-lb",
    "ovn-lb-tls",
    "routegc",
];

/// Rendered apart from the cases: these files are not the chart's own text.
const WITHOUT_FILES: [&str; 3] =
    ["--set=crds.enabled=false", "--set=dashboards.enabled=false", "--set=prometheus.prometheusRule.enabled=false"];

#[test]
fn the_chart_is_clean_by_helms_own_lint() {
    for case in CASES {
        let lint = helm().args(["lint", "--strict"]).arg(chart()).arg("--values").arg(values(case)).output().unwrap();
        assert!(lint.status.success(), "{case}: {}", String::from_utf8_lossy(&lint.stdout));
    }
}

#[test]
fn every_case_renders_as_the_golden_files_say() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/chart/golden");
    let mut stale = Vec::new();
    for case in CASES {
        let (file, now) = (golden.join(format!("{case}.yaml")), rendered(case, &WITHOUT_FILES));
        if std::env::var_os("GROUNDCREW_BLESS").is_some() {
            fs::write(&file, &now).unwrap();
        }
        if fs::read_to_string(&file).unwrap_or_default() != now {
            stale.push(case);
        }
    }
    assert!(stale.is_empty(), "{stale:?} render otherwise now: run `make chart` and read the difference");
    let there: BTreeSet<_> =
        fs::read_dir(golden).unwrap().map(|f| f.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(there, CASES.iter().map(|case| format!("{case}.yaml")).collect());
}

#[test]
fn every_controller_of_the_values_has_a_case() {
    let all = objects(&rendered("all", &WITHOUT_FILES));
    let values: Value = serde_saphyr::from_str(&fs::read_to_string(chart().join("values.yaml")).unwrap()).unwrap();
    let workloads = all.iter().filter(|object| ["Deployment", "DaemonSet"].contains(&object["kind"].as_str().unwrap()));
    let names: BTreeSet<_> =
        workloads.map(|object| object["spec"]["template"]["spec"]["containers"][0]["name"].as_str().unwrap()).collect();
    assert_eq!(names, values["controllers"].as_object().unwrap().keys().map(String::as_str).collect());
    for name in names {
        assert!(CASES.contains(&name), "no case for {name} alone");
    }
}

#[test]
fn nobody_may_do_everything() {
    for case in CASES {
        for object in objects(&rendered(case, &[])) {
            let name = object["metadata"]["name"].as_str().unwrap();
            let rules = object["rules"].as_array().cloned().unwrap_or_default();
            for rule in &rules {
                for field in ["apiGroups", "resources", "verbs", "resourceNames"] {
                    let all =
                        rule[field].as_array().into_iter().flatten().any(|word| word.as_str().unwrap().contains('*'));
                    assert!(!all, "{case}: {name}: {rule}");
                }
                let verbs = rule["verbs"].to_string();
                let grants = ["escalate", "bind", "impersonate"].iter().any(|verb| verbs.contains(verb));
                assert!(!grants && !rule["resources"].to_string().contains("nodes/proxy"), "{case}: {name}: {rule}");
            }
            if object["kind"].as_str().unwrap().ends_with("Binding") {
                assert!(!["cluster-admin", "admin", "edit"].contains(&object["roleRef"]["name"].as_str().unwrap()));
            }
        }
    }
}

#[test]
fn no_pod_is_privileged_and_only_the_agent_has_capabilities() {
    for object in objects(&rendered("all", &WITHOUT_FILES)) {
        let pod = &object["spec"]["template"]["spec"];
        if pod.is_null() {
            continue;
        }
        let (container, name) = (&pod["containers"][0], pod["containers"][0]["name"].as_str().unwrap());
        let on_host = name == "node-agent";
        let host_network = on_host || name == "cloudsigma-ccm";
        assert_eq!(pod["hostNetwork"].as_bool().unwrap_or_default(), host_network, "{name}");
        assert_eq!(pod["securityContext"]["runAsNonRoot"].as_bool().unwrap_or_default(), !on_host, "{name}");
        assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault", "{name}");
        for field in ["hostPID", "hostIPC"] {
            assert!(pod[field].is_null(), "{name}");
        }
        let limits = &container["securityContext"];
        assert_eq!(limits["allowPrivilegeEscalation"], false, "{name}");
        assert_eq!(limits["readOnlyRootFilesystem"], true, "{name}");
        assert_eq!(limits["capabilities"]["drop"].to_string(), r#"["ALL"]"#, "{name}");
        let added = if on_host { r#"["NET_ADMIN","NET_RAW"]"# } else { "null" };
        assert_eq!(limits["capabilities"]["add"].to_string(), added, "{name}");
        assert!(container["resources"]["limits"]["memory"].is_string(), "{name}");
        // `--shutdown-budget`, and 5 s for the farewell.
        assert!(pod["terminationGracePeriodSeconds"].as_u64().unwrap() >= 20 + 5, "{name}");
        for volume in pod["volumes"].as_array().into_iter().flatten() {
            assert!(volume["secret"].is_object(), "{name}: {volume}");
        }
    }
}

#[test]
fn alerts_and_dashboards_are_installed_as_they_are_on_request_only() {
    let kinds = |manifests: &str| -> Vec<String> {
        objects(manifests).iter().map(|object| object["kind"].as_str().unwrap().to_owned()).collect()
    };
    let off = kinds(&rendered("ovn-lb", &[]));
    for kind in ["ServiceMonitor", "PodMonitor", "PrometheusRule", "ConfigMap"] {
        assert!(!off.contains(&kind.to_owned()), "{kind}");
    }
    let all = objects(&rendered(
        "all",
        &["--set-json", r#"prometheus.prometheusRule.extraAlerts=[{"alert":"Mine","expr":"1"}]"#],
    ));
    let rule = all.iter().find(|object| object["kind"] == "PrometheusRule").unwrap();
    let groups = rule["spec"]["groups"].as_array().unwrap();
    assert_eq!(groups.last().unwrap()["rules"][0]["alert"], "Mine");
    if let Ok(text) = fs::read_to_string(chart().join("files/alerts.yaml")) {
        let alerts: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(groups[..groups.len() - 1], *alerts["groups"].as_array().unwrap());
    }
    for file in fs::read_dir(chart().join("files/dashboards")).into_iter().flatten() {
        let file = file.unwrap();
        let name = file.file_name().into_string().unwrap();
        let found = all.iter().find_map(|object| object["data"][&name].as_str());
        let found = found.unwrap_or_else(|| panic!("no ConfigMap has {name}"));
        let (installed, written): (Value, Value) = (
            serde_json::from_str(found).unwrap(),
            serde_json::from_str(&fs::read_to_string(file.path()).unwrap()).unwrap(),
        );
        assert_eq!(installed, written, "{name}");
    }
}

/// The alerts of a rendered chart, in their order.
fn rules(objects: &[Value]) -> Vec<Value> {
    let rule = objects.iter().find(|object| object["kind"] == "PrometheusRule").unwrap();
    let groups = rule["spec"]["groups"].as_array().unwrap().iter();
    groups.flat_map(|group| group["rules"].as_array().unwrap().clone()).collect()
}

#[test]
fn an_operator_leaves_out_and_changes_alerts_and_metrics() {
    let rendered = |more: &[&str]| objects(&rendered("all", more));
    let alerts = |objects: &[Value]| -> BTreeSet<String> {
        rules(objects).iter().map(|rule| rule["alert"].as_str().unwrap().to_owned()).collect()
    };
    let mut all = alerts(&rendered(&[]));
    let out = ["GroundcrewDriftFound", "GroundcrewPoolFilling"];
    let set = format!("--set=prometheus.prometheusRule.disabledAlerts={{{}}}", out.join(","));
    let left = alerts(&rendered(&[&set]));
    assert!(out.iter().all(|name| all.remove(*name)), "{all:?}");
    assert_eq!(left, all);

    let mine = r#"{"GroundcrewDriftFound": {"labels": {"severity": "info", "team": "net"}, "for": "1h"}}"#;
    let changed = rendered(&["--set-json", &format!("prometheus.prometheusRule.overrides={mine}")]);
    let (changed, usual) = (rules(&changed), rules(&rendered(&[])));
    for (now, before) in changed.iter().zip(&usual) {
        let mut wanted = before.clone();
        if before["alert"] == "GroundcrewDriftFound" {
            wanted["for"] = "1h".into();
            wanted["labels"] = json!({"severity": "info", "team": "net"});
        }
        assert_eq!(now, &wanted);
    }
    assert_ne!(changed, usual);

    let relabelings = r#"[{"action":"drop","regex":"groundcrew_.+","sourceLabels":["__name__"]}]"#;
    let wanted: Value = serde_json::from_str(relabelings).unwrap();
    let pods = ["--set=prometheus.serviceMonitor.enabled=false", "--set=prometheus.podMonitor.enabled=true"];
    for (kind, value, list, more) in [
        ("ServiceMonitor", "serviceMonitor", "endpoints", &[][..]),
        ("PodMonitor", "podMonitor", "podMetricsEndpoints", &pods),
    ] {
        let set = format!("prometheus.{value}.metricRelabelings={relabelings}");
        let objects = rendered(&[more, &["--set-json", &set]].concat());
        let mut monitors = objects.iter().filter(|object| object["kind"] == kind).peekable();
        assert!(monitors.peek().is_some(), "{kind}");
        assert!(monitors.all(|monitor| monitor["spec"][list][0]["metricRelabelings"] == wanted), "{kind}");
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "one table")]
fn wrong_values_are_refused_with_their_path_and_the_reason() {
    for (case, set, path, reason) in [
        ("ovn-lb", "controllers.ovn-lb.replicas=two", "/controllers/ovn-lb/replicas", "want integer"),
        ("ovn-lb", "controllers.ovnLb.enabled=true", "/controllers", "'ovnLb' not allowed"),
        ("ovn-lb", "ovn.northbound={unix:/run/ovn}", "/ovn/northbound/0", "does not match"),
        ("ovn-lb", "ovn.northbound={tcp:192.0.2.1:66411}", "/ovn/northbound/0", "does not match"),
        ("ovn-lb", r"ovn.northbound={tcp:192.0.2.1:6641\,tcp:192.0.2.2:6641}", "/ovn/northbound/0", "does not match"),
        ("ovn-lb", "ovn.northbound={tcp:2001:db8::1:6641}", "/ovn/northbound/0", "does not match"),
        (
            "ovn-lb",
            "controllers.ovn-lb.resources.limits.memory=256MB",
            "/controllers/ovn-lb/resources/limits/memory",
            "does not match",
        ),
        ("ovn-lb", "networkPolicy.extraEgress[0].port=443", "/networkPolicy/extraEgress/0", "'port' not allowed"),
        (
            "ovn-lb",
            "networkPolicy.metricsFrom[0].namespace=x",
            "/networkPolicy/metricsFrom/0",
            "'namespace' not allowed",
        ),
        ("ovn-lb", "kubeOvn.namespace=Kube", "/kubeOvn/namespace", "does not match"),
        (
            "routegc",
            "controllers.routegc.podCidrs={10.244.0.0/33}",
            "/controllers/routegc/podCidrs/0",
            "does not match",
        ),
        (
            "routegc",
            "controllers.routegc.podCidrs={10.256.0.0/16}",
            "/controllers/routegc/podCidrs/0",
            "does not match",
        ),
        (
            "node-agent",
            "controllers.node-agent.adminAddress=127.0.0.1:0",
            "/controllers/node-agent/adminAddress",
            "pattern",
        ),
        (
            "ovn-lb",
            "controllers.ovn-lb.extraArgs={--log=debug}",
            "controllers.ovn-lb.extraArgs",
            "the chart gives --log itself",
        ),
        (
            "node-agent",
            "controllers.node-agent.extraArgs={--admin-address=0.0.0.0:9}",
            "controllers.node-agent.extraArgs",
            "the chart gives --admin-address itself",
        ),
        ("ovn-lb", "ovn.northbound=null", "ovn.northbound", "controllers.ovn-lb needs it"),
        ("ovn-lb", "ovn.northbound={ssl:192.0.2.1:6641}", "ovn.tls.existingSecret", "certificates"),
        ("ovn-lb", r"podLabels.app\.kubernetes\.io/name=mine", "podLabels", "pods are known by app.kubernetes.io/name"),
        // A group or a word that is taken out altogether.
        ("ovn-lb", "controllers.flight=null", "/controllers", "missing property 'flight'"),
        ("ovn-lb", "prometheus=null", "at ''", "missing property 'prometheus'"),
        ("ovn-lb", "log=null", "at ''", "missing property 'log'"),
        ("ovn-lb", "ovn.router=null", "/ovn", "missing property 'router'"),
        ("ovn-lb", "image.repository=", "image.repository", "make image"),
        ("ovn-lb", "image.digest=sha256:beef", "/image/digest", "does not match"),
        ("ovn-lb", "clusterId=Prod_1", "/clusterId", "does not match"),
        ("ovn-lb", "controllers.ovn-lb.addressSource=pool", "/controllers/ovn-lb/addressSource", "pools"),
        ("ovn-lb", "controllers.ovn-lb.enabled=false", "controllers", "all of them are off"),
        (
            "all",
            "controllers.ovn-lb.takeClassless=true",
            "controllers.cloudsigma-ccm.takeClassless",
            "both would serve",
        ),
        ("all", "controllers.node-agent.enabled=false", "controllers.node-agent.enabled", "nodesOnly"),
        ("all", "kubeconfig.existingSecret=far", "controllers.node-agent.enabled", "kubeconfig.existingSecret"),
        (
            "cloudsigma-ccm-hosted",
            "controllers.node-agent.enabled=true",
            "controllers.node-agent.enabled",
            "a release of their own",
        ),
        ("node-agent", "controllers.node-agent.adminAddress=:8090", "/controllers/node-agent/adminAddress", "pattern"),
        ("all", "prometheus.prometheusRule.runbookUrl=", "/prometheus/prometheusRule/runbookUrl", "pattern"),
        (
            "all",
            "prometheus.prometheusRule.disabledAlerts={GroundcrewNothing}",
            "prometheus.prometheusRule.disabledAlerts",
            "no alert is called GroundcrewNothing",
        ),
        (
            "all",
            "prometheus.prometheusRule.overrides.GroundcrewNothing.for=1h",
            "prometheus.prometheusRule.overrides",
            "no alert is called GroundcrewNothing",
        ),
        (
            "all",
            "prometheus.prometheusRule.overrides.GroundcrewDriftFound.for=soon",
            "/prometheus/prometheusRule/overrides/GroundcrewDriftFound/for",
            "does not match",
        ),
        ("all", "prometheus.podMonitor.enabled=true", "prometheus.podMonitor.enabled", "scraped twice"),
        ("ovn-lb", "securityContext.privileged=true", "/securityContext/privileged", "value must be"),
        (
            "ovn-lb",
            "controllers.ovn-lb.securityContext.allowPrivilegeEscalation=true",
            "/controllers/ovn-lb/securityContext/allowPrivilegeEscalation",
            "value must be",
        ),
        ("ovn-lb", "controllers.ovn-lb.extraVolumes[0].emptyDir={}", "/controllers/ovn-lb/extraVolumes/0", "'name'"),
        (
            "ovn-lb",
            "controllers.ovn-lb.extraVolumes[0].name=ovn-tls",
            "controllers.ovn-lb.extraVolumes",
            "call yours otherwise",
        ),
        (
            "ovn-lb",
            "controllers.ovn-lb.extraContainers[0].name=ovn-lb,controllers.ovn-lb.extraContainers[0].image=x",
            "controllers.ovn-lb.extraContainers",
            "call yours otherwise",
        ),
        ("all", "controllers.cloudsigma-ccm.existingSecret=", "controllers.cloudsigma-ccm.existingSecret", "password"),
        ("all", "controllers.cloudsigma-ccm.username=", "controllers.cloudsigma-ccm", "oauthUrl"),
        ("all", "controllers.cloudsigma-ccm.password=x", "/controllers/cloudsigma-ccm", "'password' not allowed"),
        ("routegc", "controllers.routegc.podCidrs={0.0.0.0/0}", "/controllers/routegc/podCidrs/0", "does not match"),
        ("routegc", "controllers.routegc.podCidrs=null", "controllers.routegc.podCidrs", "nothing outside them"),
        ("flight", "openstack.existingSecret=", "openstack.existingSecret", "cloud.conf"),
        ("flight", "controllers.flight.nodes=delete", "/controllers/flight/nodes", "repair"),
        ("routegc", "controllers.flight.deleteServers=true", "controllers.flight.deleteServers", "repair"),
        ("net-probe", "controllers.net-probe.namespace=groundcrew", "controllers.net-probe.namespace", "leader"),
        ("net-probe", "kubeconfig.existingSecret=far", "controllers.net-probe.enabled", "kubeconfig.existingSecret"),
        ("deorbit", "controllers.deorbit.podCidrs=null", "controllers.deorbit.podCidrs", "no route outside"),
        ("deorbit", "controllers.deorbit.podCidrs={::/0}", "/controllers/deorbit/podCidrs/0", "does not match"),
        ("deorbit", "controllers.deorbit.cloudLacks={cinder}", "/controllers/deorbit/cloudLacks/0", "backups"),
        ("deorbit", "controllers.deorbit.leases.ccm=ccm", "/controllers/deorbit/leases/ccm", "does not match"),
        ("deorbit", "openstack.existingSecret=", "openstack.existingSecret", "cloud.conf"),
        ("deorbit", "controllers.deorbit.ovn=true", "ovn.northbound", "controllers.deorbit.ovn"),
        ("deorbit", "controllers.deorbit.cloudsigma=true", "controllers.cloudsigma-ccm.region", "location"),
        ("deorbit", "controllers.deorbit.ovn=yes", "/controllers/deorbit/ovn", "boolean"),
        (
            "deorbit",
            "controllers.deorbit.ccmCluster=,controllers.deorbit.csiCluster=,controllers.deorbit.routers=null",
            "controllers.deorbit",
            "routers, ovn or cloudsigma",
        ),
    ] {
        let output = template(case, &["--set", set]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{set} was taken");
        assert!(said.contains(path) && said.contains(reason), "{set}: {said}");
    }
}

/// The workload of a controller.
fn workload<'a>(objects: &'a [Value], controller: &str) -> &'a Value {
    let mut found =
        objects.iter().filter(|object| ["Deployment", "DaemonSet"].contains(&object["kind"].as_str().unwrap()));
    found.find(|object| object["spec"]["template"]["spec"]["containers"][0]["name"] == controller).unwrap()
}

/// Defaults that are lists or maps may be taken out.
#[test]
fn what_is_taken_out_is_not_there() {
    let out =
        ["controllers.node-agent.tolerations", "controllers.ovn-lb.resources", "prometheus.prometheusRule.overrides"];
    let out: Vec<_> = out.iter().flat_map(|value| ["--set".to_owned(), format!("{value}=null")]).collect();
    let all = objects(&rendered("all", &out.iter().map(String::as_str).collect::<Vec<_>>()));
    assert!(workload(&all, "node-agent")["spec"]["template"]["spec"]["tolerations"].is_null());
    let resources = &workload(&all, "ovn-lb")["spec"]["template"]["spec"]["containers"][0]["resources"];
    assert!(resources.is_null(), "{resources}");
    assert!(rules(&all).len() > 20);
}

#[test]
fn an_operator_adds_to_pods_and_changes_their_security_field_by_field() {
    let set = [
        r#"podSecurityContext={"runAsUser":1000650000,"fsGroup":null,"supplementalGroups":[7]}"#,
        r#"securityContext={"seLinuxOptions":{"type":"spc_t"}}"#,
        r#"controllers.ovn-lb.podSecurityContext={"runAsUser":null}"#,
        r#"controllers.ovn-lb.extraVolumes=[{"name":"cache","emptyDir":{}}]"#,
        r#"controllers.ovn-lb.extraVolumeMounts=[{"name":"cache","mountPath":"/cache"}]"#,
        r#"controllers.ovn-lb.extraContainers=[{"name":"proxy","image":"registry.example.com/proxy:1"}]"#,
        r#"controllers.node-agent.securityContext={"appArmorProfile":{"type":"RuntimeDefault"}}"#,
    ];
    let set: Vec<_> = set.iter().flat_map(|one| ["--set-json", *one]).collect();
    let usual = objects(&rendered("all", &WITHOUT_FILES));
    let changed = objects(&rendered("all", &[&WITHOUT_FILES[..], &set[..]].concat()));
    let pod = |objects: &[Value], controller: &str| workload(objects, controller)["spec"]["template"]["spec"].clone();

    let ours = pod(&changed, "ovn-lb");
    let profile = json!({"type": "RuntimeDefault"});
    let common =
        json!({"runAsNonRoot": true, "runAsGroup": 65532, "supplementalGroups": [7], "seccompProfile": profile});
    assert_eq!(ours["securityContext"], common, "neither user nor group: the platform gives them");
    let mut wanted = pod(&usual, "ovn-lb")["containers"][0]["securityContext"].clone();
    wanted["seLinuxOptions"] = json!({"type": "spc_t"});
    assert_eq!(ours["containers"][0]["securityContext"], wanted);
    assert_eq!(ours["containers"][1]["name"], "proxy");
    assert_eq!(ours["containers"][0]["volumeMounts"], json!([{"name": "cache", "mountPath": "/cache"}]));
    assert_eq!(ours["volumes"], json!([{"name": "cache", "emptyDir": {}}]));

    let other = pod(&changed, "routegc");
    assert_eq!(other["securityContext"]["runAsUser"], 1_000_650_000);
    assert_eq!(other["containers"].as_array().unwrap().len(), 1);
    assert_eq!(other["volumes"], pod(&usual, "routegc")["volumes"]);

    let (agent, before) = (pod(&changed, "node-agent"), pod(&usual, "node-agent"));
    assert_eq!(agent["securityContext"], before["securityContext"], "it cannot work as another user");
    let mut wanted = before["containers"][0]["securityContext"].clone();
    wanted["appArmorProfile"] = profile;
    assert_eq!(agent["containers"][0]["securityContext"], wanted);
}

#[test]
fn who_initialises_nodes_runs_where_neither_a_pod_network_nor_a_ready_node_is() {
    let all = objects(&rendered("all", &WITHOUT_FILES));
    let ccm = workload(&all, "cloudsigma-ccm");
    let pod = &ccm["spec"]["template"]["spec"];
    assert_eq!((&pod["hostNetwork"], &pod["dnsPolicy"]), (&Value::Bool(true), &Value::from("Default")));
    let tolerated: BTreeSet<_> =
        pod["tolerations"].as_array().unwrap().iter().map(|one| one["key"].as_str().unwrap()).collect();
    for taint in [
        "node.cloudprovider.kubernetes.io/uninitialized",
        "node.cluster.x-k8s.io/uninitialized",
        "node.kubernetes.io/network-unavailable",
        "node.kubernetes.io/not-ready",
    ] {
        assert!(tolerated.contains(taint), "{taint}: {tolerated:?}");
    }
    // Its port is the node's: a rollout that waits for a free node would wait for ever.
    assert_eq!(ccm["spec"]["strategy"]["rollingUpdate"]["maxSurge"], 0);
    let container = &pod["containers"][0];
    assert_eq!(container["ports"][0]["containerPort"], 8092);
    assert_eq!(container["readinessProbe"]["httpGet"]["host"], "127.0.0.1");

    let inner = "--set=controllers.cloudsigma-ccm.adminAddress=$(GROUNDCREW_NODE_IP):9000";
    let all = objects(&rendered("all", &[&WITHOUT_FILES[..], &[inner]].concat()));
    let container = &workload(&all, "cloudsigma-ccm")["spec"]["template"]["spec"]["containers"][0];
    assert!(container["args"].to_string().contains("--admin-address=$(GROUNDCREW_NODE_IP):9000"), "{container}");
    assert!(container["env"].to_string().contains("status.hostIP"), "{container}");
    assert_eq!(container["ports"][0]["containerPort"], 9000);
    assert!(container["livenessProbe"]["httpGet"]["host"].is_null(), "the node's own address is asked anyway");

    let pod_network = objects(&rendered("all", &["--set=controllers.cloudsigma-ccm.hostNetwork=false"]));
    let hosted = objects(&rendered("cloudsigma-ccm-hosted", &[]));
    for objects in [pod_network, hosted] {
        let ccm = workload(&objects, "cloudsigma-ccm");
        assert!(ccm["spec"]["template"]["spec"]["hostNetwork"].is_null() && ccm["spec"]["strategy"].is_null());
        assert_eq!(ccm["spec"]["template"]["spec"]["containers"][0]["ports"][0]["containerPort"], 8080);
        let mut policies = objects.iter().filter(|object| object["kind"] == "NetworkPolicy");
        assert!(policies.any(|policy| policy["metadata"]["name"] == "groundcrew-cloudsigma-ccm"));
    }
}

#[test]
fn only_what_can_be_reached_is_scraped() {
    let monitored = |kind: &str, more: &[&str]| -> BTreeSet<String> {
        let one = |monitor: &Value| {
            let labels = &monitor["spec"]["selector"]["matchLabels"];
            labels["app.kubernetes.io/component"].as_str().unwrap().to_owned()
        };
        let all = objects(&rendered("all", &[&WITHOUT_FILES[..], more].concat()));
        all.iter().filter(|object| object["kind"] == kind).map(one).collect()
    };
    let on_pods = "deorbit flight lb-watcher net-probe ovn-lb routegc".split(' ').map(str::to_owned);
    let on_pods: BTreeSet<_> = on_pods.collect();
    assert_eq!(monitored("ServiceMonitor", &[]), on_pods);
    let pods = ["--set=prometheus.serviceMonitor.enabled=false", "--set=prometheus.podMonitor.enabled=true"];
    assert_eq!(monitored("PodMonitor", &pods), on_pods);
    let inner = [
        "--set=controllers.node-agent.adminAddress=$(GROUNDCREW_NODE_IP):8090",
        "--set=controllers.cloudsigma-ccm.adminAddress=[2001:db8::7]:8092",
    ];
    for (kind, more) in [("ServiceMonitor", &[][..]), ("PodMonitor", &pods)] {
        let found = monitored(kind, &[&inner[..], more].concat());
        let also = ["cloudsigma-ccm", "node-agent"].map(str::to_owned);
        assert_eq!(found, on_pods.iter().cloned().chain(also).collect(), "{kind}");
    }
    assert!(monitored("PodMonitor", &[]).is_empty());
}

#[test]
fn runbooks_are_where_the_operator_says() {
    let urls = |more: &[&str]| -> Vec<String> {
        let rules = rules(&objects(&rendered("all", more)));
        rules.iter().map(|rule| rule["annotations"]["runbook_url"].as_str().unwrap().to_owned()).collect()
    };
    let given = urls(&["--set=prometheus.prometheusRule.runbookUrl=https://wiki.example.com/groundcrew/runbooks/"]);
    assert!(given.len() > 10);
    for (set, usual) in given.iter().zip(urls(&[])) {
        let page = set.strip_prefix("https://wiki.example.com/groundcrew/runbooks/").unwrap();
        assert_eq!(usual, format!("https://groundcrew.dev/docs/runbooks/{page}"));
        assert!(Path::new(REPOSITORY).join("docs/runbooks").join(page.replace(".html", ".md")).is_file(), "{page}");
    }
}

#[test]
fn a_pod_has_longer_to_stop_than_its_controller_takes() {
    for object in objects(&rendered("all", &[&WITHOUT_FILES[..], &["--set=shutdownBudgetSeconds=100"]].concat())) {
        let pod = &object["spec"]["template"]["spec"];
        if pod.is_object() {
            let name = &pod["containers"][0]["name"];
            assert_eq!(pod["terminationGracePeriodSeconds"], 110, "{name}");
            assert!(pod["containers"][0]["args"].to_string().contains("--shutdown-budget=100s"), "{name}");
        }
    }
}

#[test]
fn the_chart_is_of_the_version_of_the_program() {
    let chart: Value = serde_saphyr::from_str(&fs::read_to_string(chart().join("Chart.yaml")).unwrap()).unwrap();
    assert_eq!(chart["appVersion"], env!("CARGO_PKG_VERSION"), "the workspace has one version");
}

#[test]
fn the_notes_name_the_next_commands_and_what_is_not_scraped() {
    // helm shows them after an installation only: as any other template they can be rendered without one.
    let copy = Scratch::new("notes").unwrap();
    let copied = Command::new("cp").arg("-r").arg(chart()).arg(copy.join("chart")).status().unwrap();
    assert!(copied.success());
    let templates = copy.join("chart/templates");
    fs::rename(templates.join("NOTES.txt"), templates.join("notes.yaml")).unwrap();
    let notes = |case: &str| {
        let mut helm = helm();
        helm.args(["template", "groundcrew"]).arg(copy.join("chart")).arg("--values").arg(values(case));
        // It is no YAML, and shown all the same.
        let said = helm.args(["--kube-version", KUBE_VERSION, "--debug"]).output().unwrap();
        let said = String::from_utf8(said.stdout).unwrap();
        let notes = said.split("templates/notes.yaml\n").nth(1).unwrap_or_else(|| panic!("{said}"));
        notes.split("\n---\n").next().unwrap().to_owned()
    };
    let all = notes("all");
    for part in [
        "kubectl --namespace groundcrew get pods",
        "kubectl --namespace groundcrew-probes get pods",
        "groundcrew doctor --lease-namespace groundcrew --ovn-nb tcp:192.0.2.10:6641 --cloud-conf FILE\n",
        "groundcrew explain service NAMESPACE/NAME --ovn-nb tcp:192.0.2.10:6641\n",
        "controllers.node-agent.adminAddress='$(GROUNDCREW_NODE_IP):8090'",
        "The metrics of cloudsigma-ccm are not scraped",
    ] {
        assert!(all.contains(part), "no {part:?} in {all}");
    }
    let hosted = notes("cloudsigma-ccm-hosted");
    assert!(hosted.contains("with a release of their own in the namespace\ngroundcrew there"), "{hosted}");
    let tls = notes("ovn-lb-tls");
    let certificates = "16641 --ovn-ca FILE --ovn-certificate FILE --ovn-key FILE --ovn-any-name";
    assert_eq!(tls.matches(certificates).count(), 2, "for doctor and for explain: {tls}");
    let routes = notes("routegc");
    assert!(!routes.contains("explain") && !routes.contains("scraped") && !routes.contains("--ovn-nb"), "{routes}");
}
