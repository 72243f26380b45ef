//! Who else probes, and whom of them to ask.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use groundcrew_core::watch::Sink;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use tokio::sync::watch;

/// The addresses of the probe on each node; of both families where it has them.
pub(crate) type Peers = BTreeMap<String, Vec<SocketAddr>>;

const SERVICE_LABEL: &str = "kubernetes.io/service-name";

/// The next `n` after us, in a ring by name: so everybody is asked by as many, however many there are.
pub(crate) fn neighbours<'a>(peers: &'a Peers, own: &str, n: usize) -> Vec<(&'a str, &'a [SocketAddr])> {
    let after = peers.iter().filter(|(node, _)| node.as_str() > own);
    let before = peers.iter().filter(|(node, _)| node.as_str() < own);
    after.chain(before).take(n).map(|(node, addresses)| (node.as_str(), addresses.as_slice())).collect()
}

/// Folds the slices of one Service into [`Peers`].
pub(crate) struct Slices {
    service: String,
    /// By the name of the slice.
    known: BTreeMap<String, Vec<(String, SocketAddr)>>,
    listed: BTreeMap<String, Vec<(String, SocketAddr)>>,
    found: watch::Sender<Arc<Peers>>,
}

impl Slices {
    pub(crate) fn new(service: String, found: watch::Sender<Arc<Peers>>) -> Self {
        Self { service, known: BTreeMap::new(), listed: BTreeMap::new(), found }
    }

    /// The probes of a slice of our Service. One that is not ready is not asked: its node may be down, which is no fault
    /// of the network.
    fn probes(&self, slice: EndpointSlice) -> Option<(String, Vec<(String, SocketAddr)>)> {
        let labels = slice.metadata.labels.unwrap_or_default();
        if labels.get(SERVICE_LABEL) != Some(&self.service) {
            return None;
        }
        let port = slice.ports.iter().flatten().find_map(|port| u16::try_from(port.port?).ok())?;
        let probes = slice.endpoints.into_iter().filter_map(|one| {
            one.conditions.as_ref().and_then(|of| of.ready).unwrap_or(true).then_some(())?;
            let address: IpAddr = one.addresses.first()?.parse().ok()?;
            Some((one.node_name?, SocketAddr::new(address, port)))
        });
        Some((slice.metadata.name?, probes.collect()))
    }

    fn tell(&self) {
        let mut peers = Peers::new();
        for (node, address) in self.known.values().flatten() {
            peers.entry(node.clone()).or_default().push(*address);
        }
        self.found.send_replace(Arc::new(peers));
    }
}

impl Sink<EndpointSlice> for Slices {
    fn apply(&mut self, object: EndpointSlice) {
        let name = object.metadata.name.clone().unwrap_or_default();
        match self.probes(object) {
            Some((name, probes)) => self.known.insert(name, probes),
            None => self.known.remove(&name),
        };
        self.tell();
    }

    fn delete(&mut self, object: EndpointSlice) {
        self.known.remove(&object.metadata.name.unwrap_or_default());
        self.tell();
    }

    fn list_begins(&mut self) {
        self.listed.clear();
    }

    fn listed(&mut self, object: EndpointSlice) {
        self.listed.extend(self.probes(object));
    }

    fn list_complete(&mut self) {
        self.known = std::mem::take(&mut self.listed);
        self.tell();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_value, json};

    use super::*;

    fn peers(names: &[&str]) -> Peers {
        names.iter().map(|name| ((*name).to_owned(), vec!["10.0.0.1:8080".parse().unwrap()])).collect()
    }

    #[test]
    fn everybody_is_asked_by_as_many_and_nobody_by_itself() {
        let nodes: Vec<_> = (0..20).map(|n| format!("n{n}")).collect();
        let all = peers(&nodes.iter().map(String::as_str).collect::<Vec<_>>());
        let mut asked: BTreeMap<&str, usize> = BTreeMap::new();
        for own in &nodes {
            for (node, _) in neighbours(&all, own, 8) {
                assert_ne!(node, own);
                *asked.entry(node).or_default() += 1;
            }
        }
        assert!(nodes.iter().all(|node| asked[node.as_str()] == 8), "{asked:?}");
    }

    #[test]
    fn few_are_all_asked_once() {
        let all = peers(&["a", "b", "c"]);
        let names = |own| neighbours(&all, own, 8).into_iter().map(|(node, _)| node).collect::<Vec<_>>();
        assert_eq!(names("b"), ["c", "a"]);
        assert_eq!(names("not in the list yet"), ["a", "b", "c"]);
    }

    fn slice(name: &str, service: &str, endpoints: &Value) -> EndpointSlice {
        let labels = json!({SERVICE_LABEL: service});
        from_value(json!({"metadata": {"name": name, "labels": labels}, "addressType": "IPv4",
            "ports": [{"port": 8080}], "endpoints": endpoints}))
        .unwrap()
    }

    #[test]
    fn only_ready_probes_of_our_service_are_asked_with_all_their_addresses() {
        let (found, peers) = watch::channel(Arc::new(Peers::new()));
        let mut slices = Slices::new("probes".into(), found);
        let of = |node: &str, address: &str, ready: bool| json!({"nodeName": node, "addresses": [address], "conditions": {"ready": ready}});
        slices.list_begins();
        slices.listed(slice("one", "probes", &json!([of("a", "10.0.0.1", true), of("b", "10.0.0.2", false)])));
        slices.listed(slice("two", "probes", &json!([of("a", "fd00::1", true)])));
        slices.listed(slice("other", "web", &json!([of("c", "10.0.0.3", true)])));
        assert!(peers.borrow().is_empty(), "half a list is none");
        slices.list_complete();
        let a: Vec<SocketAddr> = vec!["10.0.0.1:8080".parse().unwrap(), "[fd00::1]:8080".parse().unwrap()];
        assert_eq!(**peers.borrow(), Peers::from([("a".to_owned(), a)]));
        slices.delete(slice("one", "probes", &json!([])));
        slices.apply(slice("two", "probes", &json!([])));
        assert_eq!(**peers.borrow(), Peers::new());
    }
}
