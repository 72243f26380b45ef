//! Services and EndpointSlices as they are read from the wire: only the fields that anybody here looks at.
//!
//! Most of an object is what nobody reads, `managedFields` first of all. What is not named here is skipped by the parser
//! and never allocated, which is most of the time and of the garbage of a cold start.

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::discovery::v1 as discovery;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Resource;
use serde::Deserialize;

#[derive(Debug, Clone, Deserialize)]
#[serde(from = "RawService")]
pub(crate) struct Service {
    pub(crate) metadata: ObjectMeta,
    pub(crate) spec: ServiceSpec,
    pub(crate) status: ServiceStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ServiceSpec {
    #[serde(rename = "type")]
    pub(crate) kind: Option<String>,
    pub(crate) load_balancer_class: Option<String>,
    #[serde(rename = "loadBalancerIP")]
    pub(crate) load_balancer_ip: Option<String>,
    pub(crate) load_balancer_source_ranges: Option<Vec<String>>,
    pub(crate) ip_families: Option<Vec<String>>,
    pub(crate) ip_family_policy: Option<String>,
    pub(crate) external_traffic_policy: Option<String>,
    pub(crate) session_affinity: Option<String>,
    pub(crate) session_affinity_config: Option<core::SessionAffinityConfig>,
    pub(crate) ports: Option<Vec<ServicePort>>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ServicePort {
    pub(crate) name: Option<String>,
    pub(crate) protocol: Option<String>,
    pub(crate) port: i32,
    pub(crate) node_port: Option<i32>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ServiceStatus {
    pub(crate) load_balancer: Option<core::LoadBalancerStatus>,
    pub(crate) conditions: Option<Vec<Condition>>,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Condition {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) status: String,
    #[serde(default)]
    pub(crate) reason: String,
    #[serde(default)]
    pub(crate) message: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(from = "RawSlice")]
pub(crate) struct EndpointSlice {
    pub(crate) metadata: ObjectMeta,
    /// The Service that its label names.
    pub(crate) service: Option<String>,
    pub(crate) ports: Vec<SlicePort>,
    pub(crate) endpoints: Vec<Endpoint>,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct SlicePort {
    pub(crate) name: Option<String>,
    pub(crate) protocol: Option<String>,
    pub(crate) port: Option<i32>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Endpoint {
    pub(crate) addresses: Vec<String>,
    pub(crate) conditions: Option<discovery::EndpointConditions>,
    pub(crate) node_name: Option<String>,
}

#[derive(Deserialize)]
struct RawService {
    metadata: ServiceMetadata,
    #[serde(default)]
    spec: ServiceSpec,
    #[serde(default)]
    status: ServiceStatus,
}

// The two kinds of metadata are written out: `flatten` would keep all of it until it knows what to flatten.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ServiceMetadata {
    name: Option<String>,
    namespace: Option<String>,
    resource_version: Option<String>,
    uid: Option<String>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    finalizers: Option<Vec<String>>,
    annotations: Option<BTreeMap<String, String>>,
}

impl From<RawService> for Service {
    fn from(raw: RawService) -> Self {
        let RawService { metadata, spec, status } = raw;
        let metadata = ObjectMeta {
            name: metadata.name,
            namespace: metadata.namespace,
            resource_version: metadata.resource_version,
            uid: metadata.uid,
            creation_timestamp: metadata.creation_timestamp,
            deletion_timestamp: metadata.deletion_timestamp,
            finalizers: metadata.finalizers,
            annotations: metadata.annotations,
            ..ObjectMeta::default()
        };
        Self { metadata, spec, status }
    }
}

#[derive(Deserialize)]
struct RawSlice {
    metadata: SliceMetadata,
    ports: Option<Vec<SlicePort>>,
    endpoints: Option<Vec<Endpoint>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SliceMetadata {
    name: Option<String>,
    namespace: Option<String>,
    resource_version: Option<String>,
    #[serde(default)]
    labels: SliceLabels,
}

#[derive(Default, Deserialize)]
struct SliceLabels {
    #[serde(rename = "kubernetes.io/service-name")]
    service: Option<String>,
}

impl From<RawSlice> for EndpointSlice {
    fn from(raw: RawSlice) -> Self {
        let RawSlice { metadata, ports, endpoints } = raw;
        let service = metadata.labels.service;
        let metadata = ObjectMeta {
            name: metadata.name,
            namespace: metadata.namespace,
            resource_version: metadata.resource_version,
            ..ObjectMeta::default()
        };
        Self { metadata, service, ports: ports.unwrap_or_default(), endpoints: endpoints.unwrap_or_default() }
    }
}

/// The resource that the full type is, with less in it.
macro_rules! same_resource_as {
    ($full:ty, $lean:ty) => {
        impl Resource for $lean {
            type DynamicType = ();
            type Scope = <$full as Resource>::Scope;

            fn kind(dt: &()) -> Cow<'_, str> {
                <$full as Resource>::kind(dt)
            }
            fn group(dt: &()) -> Cow<'_, str> {
                <$full as Resource>::group(dt)
            }
            fn version(dt: &()) -> Cow<'_, str> {
                <$full as Resource>::version(dt)
            }
            fn plural(dt: &()) -> Cow<'_, str> {
                <$full as Resource>::plural(dt)
            }
            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }
            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

same_resource_as!(core::Service, Service);
same_resource_as!(discovery::EndpointSlice, EndpointSlice);
