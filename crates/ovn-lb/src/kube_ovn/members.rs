//! The namespaces that are a Subnet's: those that it lists, and those with labels that it selects.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt;
use kube::core::SelectorExt;

use super::networks::Subnet;

/// What every namespace has, and has its name in.
const NAME: &str = "kubernetes.io/metadata.name";

/// There are as many as Services, so the label of the name is left out.
type Labels = Box<[(Box<str>, Box<str>)]>;

/// A namespace, as far as Subnets select by it.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) name: Arc<str>,
    labels: Labels,
}

impl Member {
    pub(crate) fn new(namespace: &Namespace) -> Self {
        let labels = namespace.labels().iter().filter(|(key, _)| *key != NAME);
        let labels = labels.map(|(key, value)| (key.as_str().into(), value.as_str().into()));
        Self { name: namespace.name_any().into(), labels: labels.collect() }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Members(BTreeMap<Arc<str>, Labels>);

impl Members {
    /// All that are this one's.
    pub(crate) fn of(&self, subnet: &Subnet) -> BTreeSet<Box<str>> {
        let mut namespaces: BTreeSet<_> = subnet.namespaces.iter().cloned().collect();
        if !subnet.selectors.is_empty() {
            let selected = self.0.iter().filter(|(name, labels)| selects(subnet, name, labels));
            namespaces.extend(selected.map(|(name, _)| (&**name).into()));
        }
        namespaces
    }

    pub(crate) fn has(&self, subnet: &Subnet, namespace: &str) -> bool {
        let is_selected = || self.0.get(namespace).is_some_and(|labels| selects(subnet, namespace, labels));
        subnet.namespaces.iter().any(|listed| **listed == *namespace) || is_selected()
    }

    /// Whether that is anything new.
    pub(crate) fn put(&mut self, Member { name, labels }: Member) -> bool {
        if self.0.get(&name) == Some(&labels) {
            return false;
        }
        self.0.insert(name, labels);
        true
    }

    pub(crate) fn remove(&mut self, name: &str) -> bool {
        self.0.remove(name).is_some()
    }

    pub(crate) fn names(&self) -> BTreeSet<Arc<str>> {
        self.0.keys().cloned().collect()
    }
}

/// One of its selectors is enough.
fn selects(subnet: &Subnet, name: &str, labels: &Labels) -> bool {
    if subnet.selectors.is_empty() {
        return false;
    }
    let labels = labels.iter().map(|(key, value)| (key.to_string(), value.to_string()));
    let labels = labels.chain([(NAME.to_owned(), name.to_owned())]).collect();
    subnet.selectors.iter().any(|selector| selector.matches(&labels))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::kube_ovn::networks::Networks;

    #[test]
    fn a_namespace_is_a_subnets_by_its_name_or_its_labels() {
        let networks = &mut Networks::default();
        let subnet = |name: &str, spec: Value| {
            Subnet::new(&serde_json::from_value(json!({ "metadata": { "name": name }, "spec": spec })).unwrap())
        };
        let namespace = |name: &str, labels: Value| {
            Member::new(&serde_json::from_value(json!({ "metadata": { "name": name, "labels": labels } })).unwrap())
        };
        let only = |name: &str| Some(BTreeSet::from([name.into()]));
        let switch = |networks: &Networks, name: &str| networks.place(name).switch.map(|name| name.to_string());
        // One of the selectors is enough; nobody can read the second.
        let selectors = json!([
            { "matchExpressions": [{ "key": "team", "operator": "In", "values": ["blue", "green"] }] },
            { "matchExpressions": [{ "key": "team", "operator": "Near", "values": ["blue"] }] },
            { "matchLabels": { "vip": "yes" } },
            { "matchLabels": { "kubernetes.io/metadata.name": "inn" } },
        ]);
        assert_eq!(networks.put_namespace(namespace("shop", json!({ "team": "blue" }))), None, "nobody selects it yet");
        networks.put_namespace(namespace("bank", json!({ "team": "red" })));
        let net = subnet("net", json!({ "namespaces": ["named"], "namespaceSelectors": selectors }));
        assert_eq!(networks.put_subnet(net.clone()), Some(["named", "shop"].map(Into::into).into()));
        assert_eq!(switch(networks, "shop").as_deref(), Some("net"));
        assert_eq!((switch(networks, "named").as_deref(), switch(networks, "bank")), (Some("net"), None));

        assert_eq!(networks.put_namespace(namespace("bank", json!({ "team": "red", "vip": "yes" }))), only("bank"));
        assert_eq!(networks.put_namespace(namespace("bank", json!({ "team": "green" }))), None, "still selected");
        assert_eq!(
            networks.put_namespace(namespace("named", json!({ "team": "blue" }))),
            None,
            "it was its own before"
        );
        assert_eq!(networks.remove_namespace("named"), None, "its name is still in the list");
        assert_eq!(switch(networks, "named").as_deref(), Some("net"));
        assert_eq!(networks.put_namespace(namespace("shop", json!({}))), only("shop"));
        assert_eq!(switch(networks, "shop"), None);
        assert_eq!(
            networks.put_namespace(namespace("inn", json!({ "kubernetes.io/metadata.name": "inn" }))),
            only("inn")
        );
        assert_eq!(networks.remove_namespace("inn"), only("inn"));
        assert_eq!(networks.remove_namespace("bank"), only("bank"));
        assert_eq!(networks.put_namespace(namespace("bank", json!({ "vip": "yes" }))), only("bank"));

        assert_eq!(networks.put_subnet(subnet("net", json!({}))), Some(["named", "bank"].map(Into::into).into()));
        assert_eq!(switch(networks, "bank"), None);
        let everybody = subnet("every", json!({ "namespaceSelectors": [{}] }));
        networks.put_subnet(everybody);
        assert_eq!(switch(networks, "shop").as_deref(), Some("every"));
        assert_eq!(networks.remove_subnet("every"), Some(["bank", "shop"].map(Into::into).into()));
    }
}
