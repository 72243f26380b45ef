//! What a Service wants from the world outside. Kubernetes objects in, values out.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use super::object::{EndpointState, Port, Service, Slice};
use super::sharing::{self, Place};
use crate::provider::{AddressAsk, Backend, ErrorKind, Frontend, ProviderError, Wanted};

/// `addresses` are those that we have published on it; `group` are the Services that share its address, itself included.
pub(crate) fn desired(
    service: &Service,
    slices: &mut dyn Iterator<Item = &Slice>,
    group: &[impl AsRef<Service>],
    addresses: Vec<IpAddr>,
) -> Result<Wanted, ProviderError> {
    if let Some(error) = trouble(service, group).filter(|_| addresses.is_empty()) {
        return Err(error);
    }
    let (share_with, contested) = match sharing::place(service, group) {
        Place::First => (None, Vec::new()),
        Place::With(owner) => (Some(owner), Vec::new()),
        Place::Refused { ports, holder } => (Some(holder), ports),
    };
    let partner = group.iter().map(AsRef::as_ref).find(|member| share_with.as_ref() == Some(&member.owner));
    if let Some(error) = partner.and_then(|partner| sharing::wait(service, partner)) {
        return Err(error);
    }
    let slices: Vec<_> = slices.collect();
    Ok(Wanted {
        ask: AddressAsk {
            owner: service.owner.clone(),
            families: service.families,
            one_is_enough: service.one_is_enough,
            requested: service.requested.to_vec(),
            share_families: partner.map(|partner| partner.families),
            share_with,
            current: addresses.clone(),
            annotations: service.annotations.clone(),
        },
        addresses,
        frontends: service
            .ports
            .iter()
            .filter(|port| !contested.contains(port))
            .map(|port| frontend(port, &slices))
            .collect(),
        traffic_policy: service.traffic_policy,
        affinity: service.affinity,
        source_ranges: service.source_ranges.to_vec(),
    })
}

/// What keeps a Service from getting an address. One that has its address keeps it, and is served as far as it can be: a
/// living address does not change, whatever is asked for now, and ports that nobody else has are its own.
pub(crate) fn trouble(service: &Service, group: &[impl AsRef<Service>]) -> Option<ProviderError> {
    let invalid = odd_request(service).map(|message| ProviderError::new(ErrorKind::Invalid, message));
    invalid.or_else(|| sharing::conflict(service, group))
}

/// Why nobody can give a Service what it asks for.
pub(crate) fn odd_request(service: &Service) -> Option<String> {
    let odd_family = || {
        let odd = service.requested.iter().find(|address| !service.families.contains(**address))?;
        Some(format!("{odd} is asked for, but spec.ipFamilies does not have its family"))
    };
    service.odd_request.as_ref().map(ToString::to_string).or_else(odd_family)
}

fn frontend(port: &Port, slices: &[&Slice]) -> Frontend {
    let mut backends = backends(port, slices, EndpointState::Ready);
    // As kube-proxy does it: while nothing is ready, those that still answer on their way out are better than none. Each
    // family for itself: of a pod with both, one slice tells of its end before the other.
    let [has_v4, has_v6] = [true, false].map(|v4| backends.keys().any(|(address, _)| address.is_ipv4() == v4));
    if !(has_v4 && has_v6) {
        let draining = self::backends(port, slices, EndpointState::Draining).into_iter();
        backends.extend(draining.filter(|((address, _), _)| if address.is_ipv4() { !has_v4 } else { !has_v6 }));
    }
    Frontend {
        protocol: port.protocol,
        port: port.port,
        node_port: port.node_port,
        backends: backends.into_iter().map(|((address, port), node)| Backend { address, port, node }).collect(),
    }
}

/// Address and port of each, once however many slices have it, and its node if one of them says so.
fn backends(port: &Port, slices: &[&Slice], state: EndpointState) -> BTreeMap<(IpAddr, u16), Option<Arc<str>>> {
    let mut found = BTreeMap::new();
    for slice in slices {
        // A slice's ports carry the Service port's name and the number that its target resolved to.
        let numbers = slice.ports.iter().filter(|(name, protocol, _)| *name == port.name && *protocol == port.protocol);
        for (_, _, number) in numbers {
            for endpoint in slice.endpoints.iter().filter(|endpoint| endpoint.state == state) {
                let node: &mut Option<Arc<str>> = found.entry((endpoint.address, *number)).or_default();
                if node.is_none() {
                    node.clone_from(&endpoint.node);
                }
            }
        }
    }
    found
}
