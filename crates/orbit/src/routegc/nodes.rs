//! The few fields of Nodes that decide about routes.

use std::net::IpAddr;

use ipnet::IpNet;
use k8s_openapi::api::core::v1;

use crate::nodes::server;

/// A Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Its uid, for Events.
    pub uid: String,
    /// The id of the server that it is, if it says so.
    pub server: Option<String>,
    /// The ranges that its pods have their addresses from.
    pub pod_ranges: Vec<IpNet>,
    /// Its own addresses, the inner ones first.
    pub addresses: Vec<IpAddr>,
}

impl Node {
    /// Its addresses of the family of a range.
    pub fn addresses_like(&self, range: IpNet) -> impl Iterator<Item = IpAddr> {
        let v4 = matches!(range, IpNet::V4(_));
        self.addresses.iter().copied().filter(move |address| address.is_ipv4() == v4)
    }
}

impl From<v1::Node> for Node {
    fn from(node: v1::Node) -> Self {
        let spec = node.spec.unwrap_or_default();
        let ranges =
            spec.pod_cidrs.filter(|ranges| !ranges.is_empty()).or_else(|| spec.pod_cidr.map(|range| vec![range]));
        let pod_ranges = ranges.unwrap_or_default().iter().filter_map(|range| range.parse().ok()).collect();
        let told = node.status.and_then(|status| status.addresses).unwrap_or_default();
        let of = |kind: &str| {
            let kind = kind.to_owned();
            told.iter().filter(move |address| address.type_ == kind).filter_map(|address| address.address.parse().ok())
        };
        Self {
            addresses: of("InternalIP").chain(of("ExternalIP")).collect(),
            name: node.metadata.name.unwrap_or_default(),
            uid: node.metadata.uid.unwrap_or_default(),
            server: spec.provider_id.as_deref().and_then(server),
            pod_ranges,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_known_by_all_its_ranges_and_addresses_and_by_nothing_that_cannot_be_read() {
        let node: v1::Node = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "n1", "uid": "u1"},
            "spec": {"providerID": "openstack:///5f0c", "podCIDR": "10.1.1.0/24", "podCIDRs": ["10.1.1.0/24", "fd00:1::/64", "nonsense"]},
            "status": {"addresses": [
                {"type": "Hostname", "address": "n1"}, {"type": "ExternalIP", "address": "192.0.2.7"},
                {"type": "InternalIP", "address": "10.0.0.7"}, {"type": "InternalIP", "address": "fd00::7"}]},
        }))
        .unwrap();
        let node = Node::from(node);
        assert_eq!(node.server.as_deref(), Some("5f0c"));
        assert_eq!(node.pod_ranges, ["10.1.1.0/24".parse().unwrap(), "fd00:1::/64".parse().unwrap()]);
        let expected: [IpAddr; 3] =
            ["10.0.0.7".parse().unwrap(), "fd00::7".parse().unwrap(), "192.0.2.7".parse().unwrap()];
        assert_eq!(node.addresses, expected);
        assert_eq!(node.addresses_like("fd00:1::/64".parse().unwrap()).collect::<Vec<_>>(), expected[1..2]);
    }

    #[test]
    fn an_old_node_has_only_the_one_range() {
        let node: v1::Node =
            serde_json::from_value(serde_json::json!({"metadata": {"name": "n"}, "spec": {"podCIDR": "10.1.1.0/24"}}))
                .unwrap();
        assert_eq!(Node::from(node).pod_ranges, ["10.1.1.0/24".parse().unwrap()]);
    }
}
