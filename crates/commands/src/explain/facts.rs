//! Everything that is known about one Service and its way, as it was read.

use std::collections::BTreeMap;
use std::net::IpAddr;

use groundcrew_api::address_pool::AddressPool;
use groundcrew_api::eip::EIp;
use groundcrew_api::floating_ip::FloatingIP;
use groundcrew_api::kube_ovn::OvnEip;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Service, ServicePort};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::cluster::Seen;
use crate::ovn::{Northbound, Southbound};

/// What was read. What could not be read says why; what the cluster does not have is empty.
#[derive(Debug)]
pub(crate) struct Facts {
    /// By the API server's clock.
    pub(crate) now: Timestamp,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) service: Seen<Option<Service>>,
    pub(crate) slices: Seen<Vec<EndpointSlice>>,
    /// The controllers' Leases.
    pub(crate) leases: Seen<Vec<Lease>>,
    /// Of the Service's namespace.
    pub(crate) eips: Seen<Vec<EIp>>,
    pub(crate) pools: Seen<Vec<AddressPool>>,
    /// Those that the EIps name.
    pub(crate) ovn_eips: Seen<Vec<OvnEip>>,
    /// Those of the Service's addresses.
    pub(crate) floating: Seen<Vec<FloatingIP>>,
    /// The agents' Leases.
    pub(crate) agents: Seen<Vec<Lease>>,
    /// Those that should hold or do hold an address.
    pub(crate) nodes: Seen<Vec<Node>>,
    /// `None` where it was not asked for.
    pub(crate) northbound: Option<Seen<Northbound>>,
    /// Whether `ovn-northd` had time to take what was written, and has not.
    pub(crate) northd_behind: bool,
    pub(crate) southbound: Option<Seen<Southbound>>,
}

/// One port, its protocol in lower case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Port<'a> {
    pub(crate) name: &'a str,
    pub(crate) protocol: Protocol,
    pub(crate) number: i32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Protocol {
    Tcp,
    Udp,
    Sctp,
}

impl Protocol {
    pub(crate) fn of(text: Option<&str>) -> Self {
        match text.map(str::to_ascii_lowercase).as_deref() {
            Some("udp") => Self::Udp,
            Some("sctp") => Self::Sctp,
            _ => Self::Tcp,
        }
    }

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
        }
    }
}

impl Facts {
    /// What the Service calls itself everywhere.
    pub(crate) fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// The ports of a Service.
pub(crate) fn ports<'a>(service: &'a Service) -> Vec<Port<'a>> {
    let ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
    let port = |port: &'a ServicePort| Port {
        name: port.name.as_deref().unwrap_or_default(),
        protocol: Protocol::of(port.protocol.as_deref()),
        number: port.port,
    };
    ports.map(port).collect()
}

/// The addresses that it has published.
pub(crate) fn addresses(service: &Service) -> Vec<IpAddr> {
    let ingress = service.status.iter().filter_map(|status| status.load_balancer.as_ref()?.ingress.as_ref()).flatten();
    ingress.filter_map(|ingress| ingress.ip.as_ref()?.parse().ok()).collect()
}

pub(crate) fn annotation<'a>(annotations: Option<&'a BTreeMap<String, String>>, name: &str) -> Option<&'a str> {
    annotations?.get(name).map(String::as_str)
}

/// A condition of the Service.
pub(crate) fn condition<'a>(service: &'a Service, kind: &str) -> Option<&'a Condition> {
    service.status.as_ref()?.conditions.as_ref()?.iter().find(|condition| condition.type_ == kind)
}
