//! What a Service wants from the world outside. Kubernetes objects in, values out.

use std::collections::BTreeSet;
use std::net::IpAddr;

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
    if let Some(problem) = &service.problem {
        return Err(ProviderError::new(ErrorKind::Invalid, &**problem));
    }
    if let Some(error) = trouble(service, group).filter(|_| addresses.is_empty()) {
        return Err(error);
    }
    let (share_with, contested) = match sharing::place(service, group) {
        Place::First => (None, Vec::new()),
        Place::With(owner) => (Some(owner), Vec::new()),
        Place::Refused { ports, holder } => (Some(holder), ports),
    };
    let slices: Vec<_> = slices.collect();
    Ok(Wanted {
        ask: AddressAsk {
            owner: service.owner.clone(),
            families: service.families,
            requested: service.requested.to_vec(),
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
    let odd_family = || {
        let odd = service.requested.iter().find(|address| !service.families.contains(**address))?;
        Some(format!("{odd} is asked for, but spec.ipFamilies does not have its family"))
    };
    let odd_request = service.odd_request.as_ref().map(ToString::to_string).or_else(odd_family);
    let invalid = odd_request.map(|message| ProviderError::new(ErrorKind::Invalid, message));
    invalid.or_else(|| sharing::conflict(service, group))
}

fn frontend(port: &Port, slices: &[&Slice]) -> Frontend {
    let mut backends = backends(port, slices, EndpointState::Ready);
    if backends.is_empty() {
        // As kube-proxy does it: while nothing is ready, those that still answer on their way out are better than none.
        backends = self::backends(port, slices, EndpointState::Draining);
    }
    Frontend {
        protocol: port.protocol,
        port: port.port,
        node_port: port.node_port,
        backends: backends.into_iter().collect(),
    }
}

fn backends(port: &Port, slices: &[&Slice], state: EndpointState) -> BTreeSet<Backend> {
    let mut found = BTreeSet::new();
    for slice in slices {
        // A slice's ports carry the Service port's name and the number that its target resolved to.
        let numbers = slice.ports.iter().filter(|(name, protocol, _)| *name == port.name && *protocol == port.protocol);
        for (_, _, number) in numbers {
            let endpoints = slice.endpoints.iter().filter(|endpoint| endpoint.state == state);
            found.extend(endpoints.map(|endpoint| Backend {
                address: endpoint.address,
                port: *number,
                node: endpoint.node.clone(),
            }));
        }
    }
    found
}
