//! What the policies of the pods' network let through, by the rules of their API. Whether a CNI keeps to them is for its own tests.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::helm::{objects, rendered};
use crate::render::CASES;

/// Where OpenStack's services listen that are asked: Keystone, Nova, Cinder, Neutron, Octavia.
const OPENSTACK: [u64; 5] = [5000, 8774, 8776, 9696, 9876];
/// Of somebody else: SSH, HTTP, etcd, a database, OVN's southbound, a status page, a kubelet.
const FOREIGN: [u64; 7] = [22, 80, 2379, 3306, 6642, 8081, 10250];
const PROMETHEUS: &str =
    r#"networkPolicy.metricsFrom=[{"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"monitoring"}}}]"#;

/// A controller's pod on the pod network.
struct Pod {
    controller: String,
    namespace: String,
    labels: Value,
    /// Its ports, by name.
    ports: BTreeMap<String, u64>,
    /// What it was told.
    words: Vec<String>,
}

impl Pod {
    /// Those of a workload, unless they are on the network of their node.
    fn of(workload: &Value) -> Option<Self> {
        let template = &workload["spec"]["template"];
        let pod = &template["spec"];
        if pod.is_null() || pod["hostNetwork"] == true {
            return None;
        }
        let container = &pod["containers"][0];
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let ports = list(&container["ports"]);
        let variables = list(&container["env"]).into_iter().filter(|variable| variable["value"].is_string());
        let variables = variables.map(|variable| format!("{}={}", text(&variable["name"]), text(&variable["value"])));
        Some(Self {
            controller: text(&container["name"]),
            namespace: text(&workload["metadata"]["namespace"]),
            labels: template["metadata"]["labels"].clone(),
            ports: ports.iter().map(|port| (text(&port["name"]), port["containerPort"].as_u64().unwrap())).collect(),
            words: list(&container["args"]).iter().map(text).chain(variables).collect(),
        })
    }

    /// The TCP ports of all that it was told to work on, but for the API server.
    fn wants(&self) -> BTreeSet<u64> {
        let mut ports = BTreeSet::new();
        let port = |address: &str| address.rsplit(':').next().and_then(|port| port.parse::<u64>().ok());
        for word in &self.words {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            match name {
                "--ovn-nb" => ports.extend(value.split(',').filter_map(port)),
                "--cloud-conf" => ports.extend(OPENSTACK),
                "--region" | "CLOUDSIGMA_REGION" => ports.extend([443]),
                "--api-url" | "--oauth-url" | "CLOUDSIGMA_API_URL" => {
                    let (scheme, rest) = value.split_once("://").unwrap();
                    let usual = if scheme == "http" { 80 } else { 443 };
                    ports.extend([port(rest.split('/').next().unwrap_or_default()).unwrap_or(usual)]);
                }
                _ => {}
            }
        }
        ports
    }
}

/// Who is at the other end.
enum Peer<'a> {
    /// Somebody outside the cluster, or a node of it.
    Address,
    Pod {
        namespace: &'a str,
        labels: &'a Value,
    },
}

struct Net {
    policies: Vec<Value>,
    pods: Vec<Pod>,
}

impl Net {
    fn new(case: &str, more: &[&str]) -> Self {
        let all = objects(&rendered(case, more));
        let pods = all.iter().filter_map(Pod::of).collect();
        Self { policies: all.into_iter().filter(|object| object["kind"] == "NetworkPolicy").collect(), pods }
    }

    /// Whether a pod may be reached (`ingress`), or may reach somebody (`egress`). What no policy selects may all.
    fn allows(&self, direction: &str, pod: &Pod, peer: &Peer<'_>, (protocol, port): (&str, u64)) -> bool {
        let of = |policy: &&Value| {
            let spec = &policy["spec"];
            let mut types = spec["policyTypes"].as_array().unwrap().iter();
            policy["metadata"]["namespace"] == pod.namespace
                && selects(&spec["podSelector"], &pod.labels)
                && types.any(|one| one.as_str().unwrap().eq_ignore_ascii_case(direction))
        };
        let policies: Vec<_> = self.policies.iter().filter(of).collect();
        let side = if direction == "ingress" { "from" } else { "to" };
        let mut rules = policies.iter().flat_map(|policy| policy["spec"][direction].as_array().into_iter().flatten());
        policies.is_empty()
            || rules.any(|rule| {
                // A named port is that of whoever is reached: a fellow, which has the same.
                any(&rule["ports"], |one| {
                    one["protocol"].as_str().unwrap_or("TCP") == protocol
                        && match &one["port"] {
                            Value::String(name) => pod.ports.get(name) == Some(&port),
                            number => number.as_u64() == Some(port),
                        }
                }) && any(&rule[side], |one| is_peer(one, peer, &pod.namespace))
            })
    }
}

/// Whether one of them fits. Where there is no list everything does.
fn any(list: &Value, fits: impl Fn(&Value) -> bool) -> bool {
    list.as_array().is_none_or(|list| list.is_empty() || list.iter().any(fits))
}

fn selects(selector: &Value, labels: &Value) -> bool {
    assert!(selector["matchExpressions"].is_null(), "no policy of ours has these: {selector}");
    let wanted = selector["matchLabels"].as_object();
    wanted.is_none_or(|wanted| wanted.iter().all(|(name, value)| labels[name] == *value))
}

fn is_peer(rule: &Value, peer: &Peer<'_>, own: &str) -> bool {
    assert!(rule["ipBlock"].is_null(), "no policy of ours has these: {rule}");
    let Peer::Pod { namespace, labels } = peer else { return false };
    let there = match &rule["namespaceSelector"] {
        Value::Null => *namespace == own,
        selector => selects(selector, &json!({"kubernetes.io/metadata.name": namespace})),
    };
    there && selects(&rule["podSelector"], labels)
}

#[test]
fn pods_reach_what_their_line_names_the_api_server_and_names_and_nothing_else() {
    let more = ["--set=controllers.cloudsigma-ccm.hostNetwork=false"];
    let http = "--set=controllers.cloudsigma-ccm.apiUrl=http://api.example.com/v2,controllers.cloudsigma-ccm.region=";
    let odd = "--set=controllers.cloudsigma-ccm.apiUrl=https://api.example.com:8443/v2";
    let cases = CASES.into_iter().map(|case| (case, more.to_vec()));
    let cases = cases.chain([("all", vec![more[0], http]), ("all", vec![more[0], odd])]);
    let mut tried = BTreeSet::new();
    for (case, more) in cases {
        let net = Net::new(case, &more);
        for pod in &net.pods {
            tried.insert(pod.controller.clone());
            let api: &[u64] = if case == "ovn-lb-tls" { &[8443] } else { &[443, 6443] };
            let wants: BTreeSet<_> = pod.wants().into_iter().chain(api.iter().copied()).chain([53]).collect();
            for port in wants.iter().copied().chain(FOREIGN).chain([443, 6443, 6641, 8080]).chain(OPENSTACK) {
                let found = net.allows("egress", pod, &Peer::Address, ("TCP", port));
                assert_eq!(found, wants.contains(&port), "{case}: {} to TCP {port}", pod.controller);
                let names = net.allows("egress", pod, &Peer::Address, ("UDP", port));
                assert_eq!(names, port == 53, "{case}: {} to UDP {port}", pod.controller);
            }
        }
    }
    let all = ["cloudsigma-ccm", "deorbit", "flight", "lb-watcher", "net-probe", "ovn-lb", "routegc"];
    assert_eq!(tried, BTreeSet::from(all.map(str::to_owned)));
}

#[test]
fn pods_are_reached_at_their_admin_port_alone_and_only_by_those_who_may() {
    let labels = json!({"app": "prometheus"});
    let pod_network = "--set=controllers.cloudsigma-ccm.hostNetwork=false";
    for (more, closed) in [(&[pod_network][..], false), (&[pod_network, "--set-json", PROMETHEUS], true)] {
        let net = Net::new("all", more);
        assert_eq!(net.pods.len(), 7);
        for pod in &net.pods {
            let name = &pod.controller;
            let reached = |peer: &Peer<'_>, port| net.allows("ingress", pod, peer, ("TCP", port));
            let prometheus = Peer::Pod { namespace: "monitoring", labels: &labels };
            let tenant = Peer::Pod { namespace: "tenant", labels: &labels };
            assert!(reached(&prometheus, pod.ports["admin"]), "{name}");
            for other in [&tenant, &Peer::Address] {
                assert_eq!(reached(other, pod.ports["admin"]), !closed, "{name}");
            }
            for port in FOREIGN {
                assert!(!reached(&prometheus, port), "{name}: {port}");
            }
        }
    }
}

#[test]
fn probes_reach_each_other_and_nobody_else_asks_them_where_only_prometheus_may() {
    let net = Net::new("all", &["--set-json", PROMETHEUS]);
    let probe = net.pods.iter().find(|pod| pod.controller == "net-probe").unwrap();
    let admin = ("TCP", probe.ports["admin"]);
    let fellow = Peer::Pod { namespace: &probe.namespace, labels: &probe.labels };
    let elsewhere = Peer::Pod { namespace: "tenant", labels: &probe.labels };
    for direction in ["ingress", "egress"] {
        assert!(net.allows(direction, probe, &fellow, admin), "{direction}");
        assert!(!net.allows(direction, probe, &elsewhere, admin), "{direction}");
        assert!(!net.allows(direction, probe, &Peer::Address, admin), "{direction}");
    }
}
