//! Neutron's ports.

use std::collections::BTreeSet;

use groundcrew_core::leader::Term;
use groundcrew_core::provider::{AddressPair, Device, Listing, Port, PortAddress, Ports, ProviderError};
use openstack_client::network::{self, PortUpdate};

use crate::OpenStack;
use crate::error::told;
use crate::listing::translate;

/// Networks that are asked for by name; with more, the request would outgrow what web servers take, and everything is
/// asked for instead.
const MOST_FILTERS: usize = 50;

impl Ports for OpenStack {
    async fn ports(&self, networks: &[String]) -> Result<Listing<Port>, ProviderError> {
        let wanted: BTreeSet<_> = networks.iter().map(String::as_str).collect();
        if wanted.is_empty() {
            return Ok(Listing::complete(Vec::new()));
        }
        let mut filters: Vec<_> = wanted.iter().map(|network| ("network_id", *network)).collect();
        if filters.len() > MOST_FILTERS {
            filters.clear();
        }
        let mut ports = self.client.network().ports(&filters).await.map_err(told)?;
        // A Neutron may ignore a filter.
        ports.items.retain(|port| wanted.contains(port.network_id.as_str()));
        Ok(translate("ports", ports, |port| Ok(from_neutron(port))))
    }

    async fn port(&self, id: &str) -> Result<Port, ProviderError> {
        self.client.network().port(id).await.map(from_neutron).map_err(told)
    }

    async fn set_port_groups(&self, seen: &Port, groups: &[String], term: &Term) -> Result<Port, ProviderError> {
        let change = PortUpdate { security_groups: Some(groups.to_vec()), ..PortUpdate::default() };
        self.update(seen, change, term).await
    }

    async fn set_port_pairs(&self, seen: &Port, pairs: &[AddressPair], term: &Term) -> Result<Port, ProviderError> {
        let pair =
            |pair: &AddressPair| network::AddressPair { ip_address: pair.range.clone(), mac_address: pair.mac.clone() };
        let change =
            PortUpdate { allowed_address_pairs: Some(pairs.iter().map(pair).collect()), ..PortUpdate::default() };
        self.update(seen, change, term).await
    }
}

impl OpenStack {
    async fn update(&self, seen: &Port, change: PortUpdate, term: &Term) -> Result<Port, ProviderError> {
        let network = self.client.network();
        self.write(term, network.update_port(&seen.id, &change, seen.revision)).await.map(from_neutron)
    }
}

fn from_neutron(port: network::Port) -> Port {
    let secured = port.is_secured();
    let address = |ip: network::FixedIp| PortAddress { subnet: ip.subnet_id, address: ip.ip_address };
    let pair = |pair: network::AddressPair| AddressPair { range: pair.ip_address, mac: pair.mac_address };
    Port {
        id: port.id,
        network: port.network_id,
        device: device(port.device_owner, port.device_id),
        addresses: port.fixed_ips.into_iter().map(address).collect(),
        secured,
        groups: port.security_groups,
        pairs: port.allowed_address_pairs.map(|pairs| pairs.into_iter().map(pair).collect()),
        revision: port.revision_number,
    }
}

/// The owners of router interfaces are many (`network:router_interface`, `..._distributed`,
/// `network:ha_router_replicated_interface`, ...), those of servers are `compute:<zone>`.
fn device(owner: String, id: String) -> Device {
    if owner.starts_with("compute:") {
        Device::Server(id)
    } else if owner.starts_with("network:") && owner.contains("router") {
        Device::Router(id)
    } else if owner.is_empty() && id.is_empty() {
        Device::Nothing
    } else {
        Device::Other(if owner.is_empty() { id } else { owner })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_port_belongs_to_is_told_by_its_owner() {
        for (owner, id, expected) in [
            ("compute:nova", "s", Device::Server("s".into())),
            ("compute:", "s", Device::Server("s".into())),
            ("network:router_interface", "r", Device::Router("r".into())),
            ("network:router_interface_distributed", "r", Device::Router("r".into())),
            ("network:ha_router_replicated_interface", "r", Device::Router("r".into())),
            ("network:router_gateway", "r", Device::Router("r".into())),
            ("network:dhcp", "d", Device::Other("network:dhcp".into())),
            ("Octavia", "lb-1", Device::Other("Octavia".into())),
            ("", "x", Device::Other("x".into())),
            ("", "", Device::Nothing),
        ] {
            assert_eq!(device(owner.into(), id.into()), expected, "{owner} {id}");
        }
    }
}
