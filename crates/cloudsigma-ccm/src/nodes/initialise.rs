//! What a node should say about the server that it is. Pure.

use std::collections::BTreeSet;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::PROVIDER;
use crate::client::Server;

/// Put on by kubelet and by Cluster API until somebody knows the server.
const UNINITIALISED: [&str; 2] =
    ["node.cloudprovider.kubernetes.io/uninitialized", "node.cluster.x-k8s.io/uninitialized"];
const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";
const PROVIDED_IP: &str = "alpha.kubernetes.io/provided-node-ip";

/// On a node: the account that had its server. Only there can it be missed.
const ACCOUNT: &str = groundcrew_api::names::annotation::CLOUDSIGMA_ACCOUNT;

/// Where the nodes are.
#[derive(Debug, Clone, Default)]
pub(crate) struct Site {
    /// The region, for the labels.
    pub(crate) region: Option<String>,
    /// The API's host, without which an account's id says little.
    pub(crate) host: String,
}

impl Site {
    /// One account of one location.
    pub(crate) fn account(&self, user: &str) -> String {
        format!("{}/{user}", self.host)
    }
}

/// The account that had a node's server.
pub(crate) fn account(node: &Node) -> Option<&str> {
    node.annotations().get(ACCOUNT).map(String::as_str)
}

/// The changes of one node: of the object, and of its status. `None` where it is right already.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Changes {
    pub(crate) object: Option<Value>,
    pub(crate) status: Option<Value>,
}

impl Changes {
    /// For people: what comes, what goes, and what becomes another.
    pub(crate) fn lines(&self, node: &Node) -> Vec<String> {
        let mut lines = Vec::new();
        let part = |pointer: &str| self.object.as_ref().and_then(|object| object.pointer(pointer));
        lines.extend(part("/spec/providerID").and_then(Value::as_str).map(|id| format!("+ providerID {id}")));
        for (kind, known) in [("annotation", node.annotations()), ("label", node.labels())] {
            let new = part(&format!("/metadata/{kind}s")).and_then(Value::as_object).into_iter().flatten();
            lines.extend(new.map(|(name, value)| {
                let sign = if known.contains_key(name) { '~' } else { '+' };
                format!("{sign} {kind} {name}={}", value.as_str().unwrap_or_default())
            }));
        }
        if let Some(wanted) = part("/spec/taints").and_then(Value::as_array) {
            let wanted: BTreeSet<_> = wanted.iter().filter_map(|taint| taint["key"].as_str()).collect();
            let known: BTreeSet<_> = taints(node).map(|taint| taint.key.as_str()).collect();
            lines.extend(known.difference(&wanted).map(|key| format!("- taint {key}")));
            lines.extend(wanted.difference(&known).map(|key| format!("+ taint {key}")));
        }
        if let Some(status) = &self.status {
            let word = |address: &Value, key: &str| address[key].as_str().unwrap_or_default().to_owned();
            let told = status["status"]["addresses"].as_array().into_iter().flatten();
            let told: Vec<_> =
                told.map(|address| format!("{} {}", word(address, "type"), word(address, "address"))).collect();
            lines.push(format!("~ addresses {}", told.join(", ")));
        }
        lines
    }
}

/// Whether a node waits to be initialised.
pub(crate) fn is_new(node: &Node) -> bool {
    taints(node).any(|taint| UNINITIALISED.contains(&taint.key.as_str()))
}

/// Whether a node without a providerID is this server: by its name, which anybody can give, and by an address.
pub(crate) fn is_of(node: &Node, server: &Server) -> bool {
    let own: BTreeSet<IpAddr> = super::addresses(node).into_iter().chain(given(node)).collect();
    server.name == node.name_any() && server.nics().iter().any(|nic| !nic.addresses.is_disjoint(&own))
}

/// The addresses that kubelet was told are its own: one, or one of each family.
fn given(node: &Node) -> Vec<IpAddr> {
    let text = node.annotations().get(PROVIDED_IP).map(String::as_str).unwrap_or_default();
    text.split(',').filter_map(|ip| ip.trim().parse().ok()).collect()
}

/// `floating` are addresses that move between nodes: never one of a node's own, whatever NIC has them.
pub(crate) fn changes(
    node: &Node,
    server: &Server,
    site: &Site,
    account: &str,
    floating: &BTreeSet<IpAddr>,
) -> Changes {
    Changes { object: object(node, server, site, account), status: status(node, server, floating) }
}

fn object(node: &Node, server: &Server, site: &Site, account: &str) -> Option<Value> {
    let mut patch = json!({});
    if self::account(node) != Some(account) {
        patch["metadata"]["annotations"][ACCOUNT] = account.into();
    }
    let spec = node.spec.as_ref();
    if spec.and_then(|spec| spec.provider_id.as_ref()).is_none() {
        patch["spec"]["providerID"] = format!("{PROVIDER}{}", server.uuid).into();
    }
    if is_new(node) {
        for (name, value) in labels(server, site) {
            if node.labels().get(name) != Some(&value) {
                patch["metadata"]["labels"][name] = value.into();
            }
        }
    }
    let stopped = server.status == "stopped";
    let kept = taints(node).filter(|taint| !UNINITIALISED.contains(&taint.key.as_str())).filter(|t| t.key != SHUTDOWN);
    let mut kept: Vec<_> = kept.map(|taint| json!(taint)).collect();
    if stopped {
        let known = taints(node).find(|taint| taint.key == SHUTDOWN).map(|taint| json!(taint));
        kept.push(known.unwrap_or_else(|| json!({ "key": SHUTDOWN, "effect": "NoSchedule" })));
    }
    let before: Vec<_> = taints(node).map(|taint| json!(taint)).collect();
    if before.len() != kept.len() || before.iter().any(|taint| !kept.contains(taint)) {
        patch["spec"]["taints"] = kept.into();
    }
    if patch == json!({}) {
        return None;
    }
    // A list of taints is replaced whole: only in the state in which it was read.
    patch["metadata"]["resourceVersion"] = node.resource_version().into();
    Some(patch)
}

fn labels(server: &Server, site: &Site) -> Vec<(&'static str, String)> {
    let mut labels = Vec::new();
    if let Some(region) = &site.region {
        // A location is one data centre: region and zone are the same.
        for name in [
            "topology.kubernetes.io/region",
            "topology.kubernetes.io/zone",
            "failure-domain.beta.kubernetes.io/region",
            "failure-domain.beta.kubernetes.io/zone",
        ] {
            labels.push((name, region.clone()));
        }
    }
    if let Some(size) = server.size() {
        labels.push(("node.kubernetes.io/instance-type", size.clone()));
        labels.push(("beta.kubernetes.io/instance-type", size));
    }
    labels
}

fn status(node: &Node, server: &Server, floating: &BTreeSet<IpAddr>) -> Option<Value> {
    let given = given(node);
    let nics = server.nics();
    let at_the_cloud: Vec<_> =
        nics.iter().flat_map(|nic| &nic.addresses).copied().filter(|address| !floating.contains(address)).collect();
    let known = node.status.as_ref().and_then(|status| status.addresses.as_ref());
    let known: Vec<_> = known.into_iter().flatten().map(|a| (a.type_.clone(), a.address.clone())).collect();
    let is_known = known.iter().any(|(kind, _)| kind != "Hostname");
    if at_the_cloud.is_empty() && (given.is_empty() || is_known) {
        // A NIC in manual mode has no address that the cloud knows; nor has a server that is stopped.
        return None;
    }
    // What kubelet was told comes first of its kind. One that the cloud does not know is still the node's own.
    let mut found = given;
    for address in at_the_cloud {
        if !found.contains(&address) {
            found.push(address);
        }
    }
    let mut wanted = vec![("Hostname".to_owned(), hostname(node))];
    wanted.extend(found.iter().map(|address| {
        let kind = if is_private(*address) { "InternalIP" } else { "ExternalIP" };
        (kind.to_owned(), address.to_string())
    }));
    // What runs in the cluster needs an InternalIP; on a server with public addresses alone it is the first of them.
    if !wanted.iter().any(|(kind, _)| kind == "InternalIP")
        && let Some(first) = found.first()
    {
        wanted.push(("InternalIP".to_owned(), first.to_string()));
    }
    if wanted == known {
        return None;
    }
    let addresses: Vec<_> = wanted.iter().map(|(kind, address)| json!({ "type": kind, "address": address })).collect();
    Some(json!({ "metadata": { "resourceVersion": node.resource_version() }, "status": { "addresses": addresses } }))
}

fn hostname(node: &Node) -> String {
    node.labels().get("kubernetes.io/hostname").cloned().unwrap_or_else(|| node.name_any())
}

/// Of the private networks, not of all that begins with 172.
fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_private() || v4.octets()[0] == 100 && (64..128).contains(&v4.octets()[1]),
        IpAddr::V6(v6) => v6.is_unique_local(),
    }
}

fn taints(node: &Node) -> impl Iterator<Item = &k8s_openapi::api::core::v1::Taint> {
    node.spec.as_ref().and_then(|spec| spec.taints.as_ref()).into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    use super::*;

    fn server(status: &str, addresses: &[&str]) -> Server {
        let nics: Vec<_> = addresses
            .iter()
            .map(|address| json!({ "mac": "22:00:00:00:00:01", "vlan": null, "ip_v4_conf": { "conf": "static", "ip": { "uuid": address } } }))
            .collect();
        let server = json!({ "uuid": "u1", "name": "server", "status": status, "cpu": 4000, "mem": 4_294_967_296_u64, "nics": nics });
        serde_json::from_value(server).unwrap()
    }

    fn node(value: Value) -> Node {
        let mut node =
            json!({ "metadata": { "name": "n1", "resourceVersion": "7", "annotations": { ACCOUNT: HERE } } });
        let Value::Object(parts) = value else { panic!("{value}") };
        for (part, fields) in parts {
            for (field, value) in fields.as_object().into_iter().flatten() {
                node[&part][field] = value.clone();
            }
        }
        serde_json::from_value(node).unwrap()
    }

    fn new_node() -> Node {
        let taints: Vec<_> = UNINITIALISED.iter().map(|key| json!({ "key": key, "effect": "NoSchedule" })).collect();
        let others = json!({ "key": "dedicated", "value": "db", "effect": "NoExecute" });
        node(json!({ "spec": { "taints": [taints[0], others, taints[1]] } }))
    }

    const HERE: &str = "zrh.example/me";

    fn changes(node: &Node, server: &Server, floating: &BTreeSet<IpAddr>) -> Changes {
        let site = Site { region: Some("zrh".into()), host: "zrh.example".into() };
        assert_eq!(site.account("me"), HERE);
        super::changes(node, server, &site, HERE, floating)
    }

    #[test]
    fn a_new_node_gets_its_id_labels_and_addresses_and_loses_both_taints() {
        let changes = changes(&new_node(), &server("running", &["203.0.113.4", "10.0.0.4"]), &BTreeSet::new());
        let object = changes.object.unwrap();
        assert_eq!(object["spec"]["providerID"], "cloudsigma://u1");
        assert_eq!(object["spec"]["taints"], json!([{ "key": "dedicated", "value": "db", "effect": "NoExecute" }]));
        assert_eq!(object["metadata"]["labels"]["topology.kubernetes.io/zone"], "zrh");
        assert_eq!(object["metadata"]["labels"]["node.kubernetes.io/instance-type"], "4000mhz-4096mb");
        assert_eq!(object["metadata"]["resourceVersion"], "7");
        let addresses = &changes.status.unwrap()["status"]["addresses"];
        let expected = json!([
            { "type": "Hostname", "address": "n1" },
            { "type": "ExternalIP", "address": "203.0.113.4" },
            { "type": "InternalIP", "address": "10.0.0.4" },
        ]);
        assert_eq!(*addresses, expected);
    }

    #[test]
    fn a_plan_for_people_says_what_comes_what_goes_and_what_becomes_another() {
        let new = new_node();
        let lines = changes(&new, &server("running", &["203.0.113.4"]), &BTreeSet::new()).lines(&new);
        let with = |start: &str| lines.iter().filter(|line| line.starts_with(start)).collect::<Vec<_>>();
        assert_eq!(with("+ providerID "), ["+ providerID cloudsigma://u1"]);
        assert_eq!(with("+ label topology.kubernetes.io/region"), ["+ label topology.kubernetes.io/region=zrh"]);
        assert_eq!(with("- taint ").len(), UNINITIALISED.len(), "{lines:?}");
        assert_eq!(with("+ taint ").len(), 0, "{lines:?}");
        let addresses = "~ addresses Hostname n1, ExternalIP 203.0.113.4, InternalIP 203.0.113.4";
        assert_eq!(with("~ "), [addresses]);
        let elsewhere = node(json!({ "metadata": { "annotations": { ACCOUNT: "gva.example/me" } },
            "spec": { "providerID": "cloudsigma://u1" } }));
        let lines = changes(&elsewhere, &server("stopped", &[]), &BTreeSet::new()).lines(&elsewhere);
        assert_eq!(lines, [format!("~ annotation {ACCOUNT}={HERE}"), format!("+ taint {SHUTDOWN}")]);
    }

    #[test]
    fn a_node_that_says_everything_is_left_alone() {
        let done = node(json!({
            "spec": { "providerID": "cloudsigma://u1" },
            "status": { "addresses": [
                { "type": "Hostname", "address": "n1" }, { "type": "InternalIP", "address": "10.0.0.4" },
            ] },
        }));
        assert_eq!(changes(&done, &server("running", &["10.0.0.4"]), &BTreeSet::new()), Changes::default());
    }

    #[test]
    fn a_name_alone_does_not_make_a_server_a_node() {
        let named = |ip: &str| {
            let mut node = node(json!({ "metadata": { "annotations": { PROVIDED_IP: ip } } }));
            node.metadata.name = Some("server".into());
            node
        };
        assert!(is_of(&named("203.0.113.4"), &server("running", &["203.0.113.4"])));
        assert!(is_of(&named("203.0.113.4,2001:db8::4"), &server("running", &["203.0.113.4"])), "one of each family");
        assert!(!is_of(&named("203.0.113.5"), &server("running", &["203.0.113.4"])), "another address");
        let other = Node {
            metadata: ObjectMeta { name: Some("n9".into()), ..named("203.0.113.4").metadata },
            ..Node::default()
        };
        assert!(!is_of(&other, &server("running", &["203.0.113.4"])), "another name");
    }

    #[test]
    fn a_node_remembers_the_account_that_had_its_server() {
        let elsewhere = node(
            json!({ "metadata": { "annotations": { ACCOUNT: "gva.example/me" } }, "spec": { "providerID": "cloudsigma://u1" } }),
        );
        let object = changes(&elsewhere, &server("running", &[]), &BTreeSet::new()).object.unwrap();
        assert_eq!(object["metadata"]["annotations"][ACCOUNT], HERE);
    }

    #[test]
    fn a_floating_address_is_never_a_nodes_own() {
        let floating = BTreeSet::from(["203.0.113.9".parse().unwrap()]);
        let changes = changes(&new_node(), &server("running", &["203.0.113.4", "203.0.113.9"]), &floating);
        assert!(!changes.status.unwrap().to_string().contains("203.0.113.9"));
    }

    #[test]
    fn what_is_known_stays_when_the_cloud_knows_no_address() {
        assert_eq!(changes(&new_node(), &server("running", &[]), &BTreeSet::new()).status, None);
        let own = json!([{ "type": "ExternalIP", "address": "203.0.113.5" }]);
        let known = node(json!({ "metadata": { "annotations": { ACCOUNT: HERE, PROVIDED_IP: "10.0.0.4" } },
            "status": { "addresses": own } }));
        assert_eq!(changes(&known, &server("running", &[]), &BTreeSet::new()).status, None);
    }

    /// Its NIC is in manual mode, and an older kubelet leaves its addresses to us.
    #[test]
    fn a_node_without_any_address_has_the_ones_that_kubelet_was_given() {
        let told =
            node(json!({ "metadata": { "annotations": { ACCOUNT: HERE, PROVIDED_IP: "203.0.113.5,2001:db8::5" } } }));
        let status = changes(&told, &server("running", &[]), &BTreeSet::new()).status.unwrap();
        let expected = json!([
            { "type": "Hostname", "address": "n1" },
            { "type": "ExternalIP", "address": "203.0.113.5" },
            { "type": "ExternalIP", "address": "2001:db8::5" },
            { "type": "InternalIP", "address": "203.0.113.5" },
        ]);
        assert_eq!(status["status"]["addresses"], expected);
    }

    #[test]
    fn a_stopped_server_taints_its_node_until_it_runs() {
        let known = node(json!({ "spec": { "providerID": "cloudsigma://u1" } }));
        let stopped = changes(&known, &server("stopped", &[]), &BTreeSet::new()).object.unwrap();
        assert_eq!(stopped["spec"]["taints"], json!([{ "key": SHUTDOWN, "effect": "NoSchedule" }]));
        let tainted = node(json!({ "spec": { "providerID": "cloudsigma://u1",
            "taints": [{ "key": SHUTDOWN, "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z" }] } }));
        assert_eq!(changes(&tainted, &server("stopped", &[]), &BTreeSet::new()).object, None, "once is enough");
        let running = changes(&tainted, &server("running", &[]), &BTreeSet::new()).object.unwrap();
        assert_eq!(running["spec"]["taints"], json!([]));
    }

    #[test]
    fn public_addresses_that_begin_with_172_are_public() {
        assert!(is_private([172, 16, 0, 1].into()) && !is_private([172, 64, 0, 1].into()));
    }

    #[test]
    fn the_address_that_kubelet_was_given_comes_first() {
        let told = node(json!({ "metadata": { "annotations": { ACCOUNT: HERE, PROVIDED_IP: "203.0.113.5" } } }));
        let changes = self::changes(&told, &server("running", &["203.0.113.4", "203.0.113.5"]), &BTreeSet::new());
        let status = changes.status.unwrap();
        assert_eq!(status["status"]["addresses"][1]["address"], "203.0.113.5");
        let both =
            node(json!({ "metadata": { "annotations": { ACCOUNT: HERE, PROVIDED_IP: "10.0.0.4, 2001:db8::5" } } }));
        let status = self::changes(&both, &server("running", &["203.0.113.4"]), &BTreeSet::new()).status.unwrap();
        let addresses: Vec<_> = (1..4).map(|n| status["status"]["addresses"][n]["address"].clone()).collect();
        assert_eq!(addresses, ["10.0.0.4", "2001:db8::5", "203.0.113.4"]);
    }
}
