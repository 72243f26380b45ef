//! Services and `EndpointSlices` as few bytes as they can be kept in.
//!
//! Each watch event becomes one of these at once. A cluster has ten thousand of them; what is not read is not kept.

use std::collections::{BTreeMap, HashSet};
use std::hash::Hash;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, LazyLock};

use ipnet::IpNet;
use k8s_openapi::api::discovery::v1::EndpointConditions;
use uuid::Uuid;

use super::{legacy, names, wire};
use crate::key::ServiceKey;
use crate::provider::{Families, Ingress, IpMode, Owner, Protocol, SessionAffinity, TrafficPolicy};

/// What a provider reads of a Service besides its spec.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Reads {
    /// Prefixes of annotations.
    pub(crate) annotations: &'static [&'static str],
    /// Finalizers of an older controller whose Services it takes over.
    pub(crate) finalizers: &'static [&'static str],
}

type Annotations = BTreeMap<Box<str>, Box<str>>;

/// Most Services have none that anybody reads.
static NONE: LazyLock<Arc<Annotations>> = LazyLock::new(Arc::default);

/// A range that no client is in.
const NOBODY: IpNet = IpNet::new_assert(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 32);

/// What is kept of a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Service {
    pub(crate) owner: Owner,
    pub(crate) resource_version: Box<str>,
    /// Seconds since the epoch; older Services win what two of them want.
    pub(crate) created: i64,
    pub(crate) deleting: bool,
    pub(crate) finalizer: bool,
    /// An older controller's finalizer is on it, which is to be swapped for ours: what it published is living.
    pub(crate) inherited: bool,
    /// The class that took this Service, from our annotation. It outlives `spec.loadBalancerClass`, which a type change
    /// clears, and is what tells our finalizer from another controller's of the same name.
    pub(crate) claimed_by: Option<Arc<str>>,
    pub(crate) load_balancer: bool,
    pub(crate) class: Option<Arc<str>>,
    pub(crate) paused: bool,
    pub(crate) ports: Box<[Port]>,
    pub(crate) families: Families,
    /// Of two families it takes one where there is no more.
    pub(crate) one_is_enough: bool,
    pub(crate) requested: Box<[IpAddr]>,
    pub(crate) group: Option<Group>,
    pub(crate) traffic_policy: TrafficPolicy,
    pub(crate) affinity: Option<SessionAffinity>,
    pub(crate) source_ranges: Box<[IpNet]>,
    pub(crate) annotations: Arc<Annotations>,
    pub(crate) ingress: Box<[Ingress]>,
    /// Most Services have the same.
    pub(crate) conditions: Arc<[Condition]>,
    /// The first thing in it that cannot be read, in words for its user.
    pub(crate) odd_request: Option<Box<str>>,
}

/// With whom of its namespace a Service shares its address.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Group {
    /// With those that have the same sharing key.
    Key(Arc<str>),
    /// With those that name the same address.
    Named(Arc<str>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Port {
    pub(crate) name: Arc<str>,
    pub(crate) protocol: Protocol,
    pub(crate) port: u16,
    pub(crate) node_port: Option<u16>,
}

/// One of our own conditions as it was last seen.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Condition {
    pub(crate) kind: Arc<str>,
    pub(crate) status: Arc<str>,
    pub(crate) reason: Arc<str>,
    pub(crate) message: Arc<str>,
}

/// What is kept of an `EndpointSlice`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Slice {
    pub(crate) service: ServiceKey,
    /// Name, protocol and number of each port.
    pub(crate) ports: Box<[(Arc<str>, Protocol, u16)]>,
    pub(crate) endpoints: Box<[Endpoint]>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) address: IpAddr,
    pub(crate) node: Option<Arc<str>>,
    pub(crate) state: EndpointState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EndpointState {
    Ready,
    /// On its way out but still answering: used only while nothing is ready.
    Draining,
    /// Neither.
    Out,
}

impl Service {
    pub(crate) fn key(&self) -> &ServiceKey {
        &self.owner.key
    }
}

/// What occurs again and again, kept once.
#[derive(Debug)]
struct Shared<T: ?Sized> {
    known: HashSet<Arc<T>>,
    purge_at: usize,
}

impl<T: ?Sized> Default for Shared<T> {
    fn default() -> Self {
        Self { known: HashSet::new(), purge_at: 0 }
    }
}

impl<T: ?Sized + Eq + Hash> Shared<T> {
    fn share<'a>(&mut self, one: &'a T) -> Arc<T>
    where
        Arc<T>: From<&'a T>,
    {
        if let Some(known) = self.known.get(one) {
            return Arc::clone(known);
        }
        if self.known.len() >= self.purge_at {
            self.known.retain(|s| Arc::strong_count(s) > 1);
            self.purge_at = (2 * self.known.len()).max(1_024);
        }
        let new: Arc<T> = one.into();
        self.known.insert(Arc::clone(&new));
        new
    }
}

/// Strings that occur again and again, and lists of conditions, kept once.
#[derive(Debug, Default)]
pub(crate) struct Strings {
    texts: Shared<str>,
    conditions: Shared<[Condition]>,
}

impl Strings {
    pub(crate) fn share(&mut self, text: &str) -> Arc<str> {
        self.texts.share(text)
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.texts.known.len()
    }
}

/// Reads a Service. `None` if it lacks what the API server always sets.
pub(crate) fn service(from: &wire::Service, reads: Reads, strings: &mut Strings) -> Option<Service> {
    let meta = &from.metadata;
    let spec = &from.spec;
    let key = ServiceKey::new(strings.share(meta.namespace.as_deref()?), strings.share(meta.name.as_deref()?));
    let annotation = |name: &str| meta.annotations.as_ref().and_then(|a| a.get(name)).map(String::as_str);
    let mut odd_request = None;

    let requested = requested(spec, annotation(names::LOAD_BALANCER_IPS), &mut odd_request);
    let source_ranges = source_ranges(spec, &mut odd_request);
    let affinity = (spec.session_affinity.as_deref() == Some("ClientIP")).then(|| SessionAffinity {
        seconds: spec
            .session_affinity_config
            .as_ref()
            .and_then(|c| c.client_ip.as_ref()?.timeout_seconds)
            .and_then(|s| u32::try_from(s).ok())
            .unwrap_or(10_800),
    });
    let kept = |name: &str| reads.annotations.iter().any(|prefix| name.starts_with(prefix));
    let annotations = meta.annotations.iter().flatten().filter(|(name, _)| kept(name));
    let annotations: Annotations =
        annotations.map(|(name, value)| (name.as_str().into(), value.as_str().into())).collect();

    Some(Service {
        owner: Owner { key, uid: Uuid::parse_str(meta.uid.as_deref()?).ok()? },
        resource_version: meta.resource_version.as_deref()?.into(),
        created: meta.creation_timestamp.as_ref().map_or(0, |t| t.0.as_second()),
        deleting: meta.deletion_timestamp.is_some(),
        finalizer: meta.finalizers.iter().flatten().any(|f| f == names::FINALIZER),
        inherited: meta.finalizers.iter().flatten().any(|f| reads.finalizers.contains(&f.as_str())),
        claimed_by: annotation(names::CLAIMED_BY).map(|class| strings.share(class)),
        load_balancer: spec.kind.as_deref() == Some("LoadBalancer"),
        class: spec.load_balancer_class.as_deref().map(|class| strings.share(class)),
        paused: annotation(names::PAUSED) == Some("true"),
        ports: ports(spec, strings),
        families: families(spec),
        one_is_enough: spec.ip_family_policy.as_deref() == Some("PreferDualStack"),
        requested,
        group: annotation(names::SHARING_KEY).map(|key| Group::Key(strings.share(key))),
        traffic_policy: match spec.external_traffic_policy.as_deref() {
            Some("Local") => TrafficPolicy::Local,
            _ => TrafficPolicy::Cluster,
        },
        affinity,
        source_ranges,
        annotations: if annotations.is_empty() { NONE.clone() } else { Arc::new(annotations) },
        ingress: ingress(&from.status),
        conditions: conditions(&from.status, strings),
        odd_request: odd_request.map(Into::into),
    })
}

fn ports(spec: &wire::ServiceSpec, strings: &mut Strings) -> Box<[Port]> {
    let mut ports: Vec<_> = spec
        .ports
        .iter()
        .flatten()
        .filter_map(|p| {
            Some(Port {
                name: strings.share(p.name.as_deref().unwrap_or_default()),
                protocol: protocol(p.protocol.as_deref())?,
                port: u16::try_from(p.port).ok()?,
                node_port: p.node_port.and_then(|n| u16::try_from(n).ok()),
            })
        })
        .collect();
    ports.sort_by_key(|a| (a.protocol, a.port));
    ports.into()
}

fn protocol(name: Option<&str>) -> Option<Protocol> {
    match name {
        None | Some("TCP") => Some(Protocol::Tcp),
        Some("UDP") => Some(Protocol::Udp),
        Some("SCTP") => Some(Protocol::Sctp),
        Some(_) => None,
    }
}

fn families(spec: &wire::ServiceSpec) -> Families {
    let names: Vec<_> = spec.ip_families.iter().flatten().map(String::as_str).collect();
    match names[..] {
        ["IPv6"] => Families::V6,
        ["IPv4", "IPv6"] => Families::V4V6,
        ["IPv6", "IPv4"] => Families::V6V4,
        _ => Families::V4,
    }
}

/// The annotation names one address a family; the older field names one address.
fn requested(spec: &wire::ServiceSpec, annotation: Option<&str>, problem: &mut Option<String>) -> Box<[IpAddr]> {
    let field = spec.load_balancer_ip.as_deref().filter(|ip| !ip.is_empty());
    let (text, place) = match (annotation, field) {
        (Some(text), _) => (text, names::LOAD_BALANCER_IPS),
        (None, Some(text)) => (text, "spec.loadBalancerIP"),
        (None, None) => return Box::default(),
    };
    let mut addresses: Vec<IpAddr> = Vec::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        if let Some(address) = legacy::address(part) {
            addresses.push(address);
        } else {
            problem.get_or_insert(format!("{place}: {part:?} is not an IP address"));
            return Box::default();
        }
    }
    let of_one_family =
        addresses.iter().filter(|a| a.is_ipv4()).count() > 1 || addresses.iter().filter(|a| a.is_ipv6()).count() > 1;
    if of_one_family {
        problem.get_or_insert(format!("{place}: at most one address of each family can be asked for"));
        return Box::default();
    }
    addresses.into()
}

/// A range that cannot be read lets nobody in. No range at all would let everybody in.
fn source_ranges(spec: &wire::ServiceSpec, problem: &mut Option<String>) -> Box<[IpNet]> {
    let texts = spec.load_balancer_source_ranges.iter().flatten();
    let mut ranges = Vec::new();
    let mut unreadable = None;
    for text in texts {
        match legacy::range(text.trim()) {
            Some(range) => ranges.push(range.trunc()),
            None => drop(unreadable.get_or_insert(text)),
        }
    }
    if let Some(text) = unreadable {
        problem.get_or_insert(format!("spec.loadBalancerSourceRanges: {text:?} is not a CIDR, and lets nobody in"));
        if ranges.is_empty() {
            ranges.push(NOBODY);
        }
    }
    ranges.sort_unstable();
    ranges.dedup();
    ranges.into()
}

fn ingress(status: &wire::ServiceStatus) -> Box<[Ingress]> {
    let ingress = status.load_balancer.as_ref().and_then(|l| l.ingress.as_ref());
    ingress
        .into_iter()
        .flatten()
        .filter_map(|i| {
            let mode = if i.ip_mode.as_deref() == Some("Proxy") { IpMode::Proxy } else { IpMode::Vip };
            Some(Ingress { address: i.ip.as_deref()?.parse().ok()?, mode })
        })
        .collect()
}

fn conditions(status: &wire::ServiceStatus, strings: &mut Strings) -> Arc<[Condition]> {
    let ours = status.conditions.iter().flatten().filter(|c| c.kind.starts_with(names::CONDITION_PREFIX));
    let ours = ours.map(|c| Condition {
        kind: strings.share(&c.kind),
        status: strings.share(&c.status),
        reason: strings.share(&c.reason),
        message: strings.share(&c.message),
    });
    let ours: Vec<_> = ours.collect();
    strings.conditions.share(&ours)
}

/// Reads a slice. `None` if it belongs to no Service or has no IP addresses.
pub(crate) fn slice(from: &wire::EndpointSlice, strings: &mut Strings) -> Option<Slice> {
    let service = slice_service(from, strings)?;
    let ports = from.ports.iter().filter_map(|p| {
        let number = u16::try_from(p.port?).ok()?;
        Some((strings.share(p.name.as_deref().unwrap_or_default()), protocol(p.protocol.as_deref())?, number))
    });
    let ports = ports.collect();
    let endpoints = from.endpoints.iter().filter_map(|e| {
        // Every address of an endpoint is the same endpoint; consumers use the first.
        let address = legacy::address(e.addresses.first()?)?;
        let node = e.node_name.as_deref().map(|node| strings.share(node));
        Some(Endpoint { address, node, state: state(e.conditions.as_ref()) })
    });
    let endpoints = endpoints.collect();
    Some(Slice { service, ports, endpoints })
}

/// The Service that a slice says it belongs to.
pub(crate) fn slice_service(from: &wire::EndpointSlice, strings: &mut Strings) -> Option<ServiceKey> {
    let (namespace, service) = (from.metadata.namespace.as_deref()?, from.service.as_deref()?);
    Some(ServiceKey::new(strings.share(namespace), strings.share(service)))
}

fn state(conditions: Option<&EndpointConditions>) -> EndpointState {
    let Some(conditions) = conditions else { return EndpointState::Ready };
    let terminating = conditions.terminating == Some(true);
    match (conditions.ready, conditions.serving) {
        (Some(true), _) => EndpointState::Ready,
        // "Unknown" counts as ready, as the API's documentation asks, except on the way out.
        (None, _) if !terminating => EndpointState::Ready,
        (_, Some(true)) if terminating => EndpointState::Draining,
        _ => EndpointState::Out,
    }
}
