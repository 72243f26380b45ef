//! Who should answer in the end.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};

use super::super::facts::{Facts, Port, Protocol, ports};
use crate::finding::Finding;

/// Whether somebody is ready on every port.
pub(super) fn ready(facts: &Facts, service: &Service) -> Finding {
    const NAME: &str = "endpoints";
    let slices = match &facts.slices {
        Ok(slices) => slices,
        Err(why) => return Finding::unknown(NAME, why.to_string(), "ask as a user who may list EndpointSlices"),
    };
    let ports = ports(service);
    let empty: Vec<_> = ports.iter().filter(|port| serving(slices, port).is_empty()).collect();
    if empty.is_empty() {
        let all: BTreeSet<_> = ports.iter().flat_map(|port| serving(slices, port)).map(|at| at.ip()).collect();
        return Finding::good(NAME, format!("{} ready: {}", all.len(), some(all.iter().map(ToString::to_string))));
    }
    let words: Vec<_> = empty.iter().map(|port| format!("{}/{}", port.number, port.protocol.word())).collect();
    let unready: BTreeSet<_> = endpoints(slices).filter(|each| !is_ready(each)).map(target).collect();
    let selector = service.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    let (found, next) = match (unready.is_empty(), selector) {
        (false, _) => (
            format!("none is ready; not ready: {}", some(unready)),
            "kubectl describe the pods that are not ready".into(),
        ),
        (true, Some(selector)) if endpoints(slices).next().is_none() => {
            let labels = selector.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",");
            let next = format!("kubectl get pods -n {} -l {labels}", facts.namespace);
            (format!("no pod has the labels {labels}"), next)
        }
        (true, None) if endpoints(slices).next().is_none() => (
            "it has no selector, and nobody has made an EndpointSlice for it".to_owned(),
            "set spec.selector, or make an EndpointSlice".to_owned(),
        ),
        (true, _) => (
            "the EndpointSlices have no such port".to_owned(),
            "compare spec.ports[].targetPort with the ports of the pods' containers".to_owned(),
        ),
    };
    Finding::bad(NAME, format!("port {}: {found}", words.join(", ")), next)
}

/// The endpoints that a port is served by, as kube-proxy chooses them: the ready ones, else those that still answer on
/// their way out.
pub(super) fn serving(slices: &[EndpointSlice], port: &Port<'_>) -> BTreeSet<SocketAddr> {
    let ready = at(slices, port, is_ready);
    if ready.is_empty() { at(slices, port, is_draining) } else { ready }
}

/// The nodes that have a ready endpoint.
pub(super) fn nodes(slices: &[EndpointSlice]) -> BTreeSet<&str> {
    endpoints(slices).filter(|each| is_ready(each)).filter_map(|each| each.node_name.as_deref()).collect()
}

fn at(slices: &[EndpointSlice], port: &Port<'_>, fits: fn(&Endpoint) -> bool) -> BTreeSet<SocketAddr> {
    let mut found = BTreeSet::new();
    for slice in slices.iter().filter(|slice| slice.address_type != "FQDN") {
        let numbers = slice.ports.iter().flatten().filter(|each| {
            each.name.as_deref().unwrap_or_default() == port.name
                && Protocol::of(each.protocol.as_deref()) == port.protocol
        });
        for number in numbers.filter_map(|each| u16::try_from(each.port?).ok()) {
            let addresses = slice.endpoints.iter().filter(|each| fits(each)).flat_map(|each| &each.addresses);
            let addresses = addresses.filter_map(|address| address.parse::<IpAddr>().ok());
            found.extend(addresses.map(|address| SocketAddr::new(address, number)));
        }
    }
    found
}

fn endpoints(slices: &[EndpointSlice]) -> impl Iterator<Item = &Endpoint> {
    slices.iter().flat_map(|slice| &slice.endpoints)
}

/// Not said is ready, as the field's own documentation asks, except on the way out.
fn is_ready(endpoint: &Endpoint) -> bool {
    endpoint
        .conditions
        .as_ref()
        .is_none_or(|conditions| conditions.ready.unwrap_or(conditions.terminating != Some(true)))
}

fn is_draining(endpoint: &Endpoint) -> bool {
    endpoint
        .conditions
        .as_ref()
        .is_some_and(|conditions| conditions.terminating == Some(true) && conditions.serving == Some(true))
}

fn target(endpoint: &Endpoint) -> String {
    let pod = endpoint.target_ref.as_ref().and_then(|target| target.name.clone());
    pod.or_else(|| endpoint.addresses.first().cloned()).unwrap_or_default()
}

/// The first few.
pub(super) fn some(all: impl IntoIterator<Item = String>) -> String {
    const MOST: usize = 4;
    let all: Vec<_> = all.into_iter().collect();
    let named = all.iter().take(MOST).map(String::as_str).collect::<Vec<_>>().join(", ");
    match all.len().saturating_sub(MOST) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

/// What the VIPs of a protocol should lead to.
pub(super) fn wanted(
    slices: &[EndpointSlice],
    service: &Service,
    protocol: Protocol,
    address: IpAddr,
) -> BTreeMap<String, BTreeSet<SocketAddr>> {
    let ports = ports(service).into_iter().filter(|port| port.protocol == protocol);
    let vips = ports.filter_map(|port| {
        let vip = SocketAddr::new(address, u16::try_from(port.number).ok()?);
        let backends = serving(slices, &port).into_iter().filter(|at| at.is_ipv4() == address.is_ipv4());
        Some((vip.to_string(), backends.collect()))
    });
    vips.collect()
}
