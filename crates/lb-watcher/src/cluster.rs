//! What the watcher knows of the cluster: Services of type `LoadBalancer`, and the `EndpointSlices` of all, each as few
//! bytes as it can be kept in.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use groundcrew_api::names::annotation::{CLAIMED_BY, LB_RESYNC_TIMESTAMP, PAUSED};
use groundcrew_api::names::finalizer::KUBE_DC_SERVICE;
use groundcrew_core::key::ServiceKey;
use groundcrew_core::provider::Protocol;
use groundcrew_core::watch::Sink;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::discovery::v1 as discovery;

use crate::names::{PROTOCOLS, possible_owners, row_name};

/// What is kept of a Service of type `LoadBalancer`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Service {
    pub(crate) key: ServiceKey,
    pub(crate) uid: Box<str>,
    pub(crate) resource_version: Box<str>,
    pub(crate) deleting: bool,
    /// kube-dc's finalizer is on it: it is kube-dc's beyond doubt.
    pub(crate) finalizer: bool,
    /// It asks for another controller than the one that takes everything.
    pub(crate) class: bool,
    /// One of this project's controllers serves it now.
    pub(crate) claimed: bool,
    pub(crate) paused: bool,
    pub(crate) ports: Box<[Port]>,
    pub(crate) ingress: Box<[IpAddr]>,
    /// What we, or a predecessor, last asked the manager with.
    pub(crate) resync: Option<Box<str>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Port {
    pub(crate) name: Box<str>,
    pub(crate) protocol: Protocol,
    pub(crate) port: u16,
}

/// What is kept of an `EndpointSlice`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Slice {
    pub(crate) ports: Box<[(Box<str>, Protocol, u16)]>,
    /// Addresses that are ready: the others are not in the Endpoints that kube-dc reads.
    pub(crate) ready: Box<[IpAddr]>,
}

impl Service {
    /// Whether there is something to verify: kube-dc has served it, and nobody asked to leave it alone.
    pub(crate) fn is_served(&self) -> bool {
        self.has_rows() && !self.paused
    }

    /// Whether kube-dc's manager keeps rows for it, as far as the Service says.
    fn has_rows(&self) -> bool {
        !self.deleting && !self.claimed && !self.ingress.is_empty() && (self.finalizer || !self.class)
    }

    fn has(&self, protocol: Protocol) -> bool {
        self.ports.iter().any(|port| port.protocol == protocol)
    }

    fn read(from: &core::Service) -> Option<Self> {
        let (meta, spec) = (&from.metadata, from.spec.as_ref()?);
        if spec.type_.as_deref() != Some("LoadBalancer") {
            return None;
        }
        let annotation = |name: &str| meta.annotations.as_ref().and_then(|a| a.get(name)).map(String::as_str);
        let ingress = from.status.iter().filter_map(|s| s.load_balancer.as_ref()?.ingress.as_ref()).flatten();
        let ports = spec.ports.iter().flatten().filter_map(|port| {
            Some(Port {
                name: port.name.as_deref().unwrap_or_default().into(),
                protocol: protocol(port.protocol.as_deref())?,
                port: u16::try_from(port.port).ok()?,
            })
        });
        Some(Self {
            key: ServiceKey::new(meta.namespace.as_deref()?, meta.name.as_deref()?),
            uid: meta.uid.as_deref()?.into(),
            resource_version: meta.resource_version.as_deref()?.into(),
            deleting: meta.deletion_timestamp.is_some(),
            finalizer: meta.finalizers.iter().flatten().any(|finalizer| finalizer == KUBE_DC_SERVICE),
            class: spec.load_balancer_class.is_some(),
            claimed: annotation(CLAIMED_BY).is_some(),
            paused: annotation(PAUSED) == Some("true"),
            ports: ports.collect(),
            ingress: ingress.filter_map(|ingress| ingress.ip.as_deref()?.parse().ok()).collect(),
            resync: annotation(LB_RESYNC_TIMESTAMP).map(Into::into),
        })
    }
}

impl Slice {
    fn read(from: &discovery::EndpointSlice) -> Self {
        let ports = from.ports.iter().flatten().filter_map(|port| {
            let name = port.name.as_deref().unwrap_or_default().into();
            Some((name, protocol(port.protocol.as_deref())?, u16::try_from(port.port?).ok()?))
        });
        let is_ready = |endpoint: &&discovery::Endpoint| {
            // "Unknown" counts as ready, as the API's documentation asks.
            endpoint.conditions.as_ref().and_then(|conditions| conditions.ready) != Some(false)
        };
        let ready = from.endpoints.iter().filter(is_ready);
        Self {
            ports: ports.collect(),
            ready: ready.filter_map(|endpoint| endpoint.addresses.first()?.parse().ok()).collect(),
        }
    }
}

fn protocol(name: Option<&str>) -> Option<Protocol> {
    match name {
        None | Some("TCP") => Some(Protocol::Tcp),
        Some("UDP") => Some(Protocol::Udp),
        // kube-dc makes no rows for others.
        Some(_) => None,
    }
}

fn slice_id(from: &discovery::EndpointSlice) -> Option<(ServiceKey, Box<str>)> {
    let service = from.metadata.labels.as_ref()?.get("kubernetes.io/service-name")?;
    let key = ServiceKey::new(from.metadata.namespace.as_deref()?, service.as_str());
    Some((key, from.metadata.name.as_deref()?.into()))
}

/// Called with each Service that should be looked at again.
type Wake = dyn Fn(ServiceKey) + Send + Sync;

pub(crate) struct Cluster {
    state: RwLock<State>,
    wake: Box<Wake>,
}

#[derive(Default)]
struct State {
    services: HashMap<ServiceKey, Arc<Service>>,
    /// Slices of each Service by their own name.
    slices: HashMap<ServiceKey, BTreeMap<Box<str>, Slice>>,
    /// The Service that each slice belongs to, by the slice's namespace and name: its label can be changed.
    labelled: HashMap<(Box<str>, Box<str>), ServiceKey>,
}

impl Cluster {
    pub(crate) fn new(wake: Box<Wake>) -> Self {
        Self { state: RwLock::default(), wake }
    }

    pub(crate) fn service(&self, key: &ServiceKey) -> Option<Arc<Service>> {
        self.read().services.get(key).cloned()
    }

    /// Runs `f` over the slices of a Service.
    pub(crate) fn with_slices<T>(&self, key: &ServiceKey, f: impl FnOnce(&[&Slice]) -> T) -> T {
        let state = self.read();
        let slices: Vec<_> = state.slices.get(key).into_iter().flat_map(BTreeMap::values).collect();
        f(&slices)
    }

    pub(crate) fn keys(&self) -> Vec<ServiceKey> {
        self.read().services.keys().cloned().collect()
    }

    /// Services whose namespace is one of these.
    pub(crate) fn in_namespaces(&self, is_one: impl Fn(&str) -> bool) -> Vec<ServiceKey> {
        self.read().services.keys().filter(|key| is_one(&key.namespace)).cloned().collect()
    }

    /// The Services that kube-dc's manager may have made a row of this name for.
    pub(crate) fn claimants(&self, row: &str) -> Vec<ServiceKey> {
        self.read().claimants(row)
    }

    /// Every Service that a row of this name may have to do with, whoever serves it now.
    pub(crate) fn namesakes(&self, row: &str) -> Vec<ServiceKey> {
        self.read().named(row, |_| true)
    }

    fn put(&self, from: &core::Service) -> Option<ServiceKey> {
        let Some(service) = Service::read(from) else {
            // Not a load balancer, or not any more.
            self.remove(&ServiceKey::new(from.metadata.namespace.as_deref()?, from.metadata.name.as_deref()?));
            return None;
        };
        let key = service.key.clone();
        let mut state = self.write();
        let changed = state.services.get(&key).is_none_or(|present| **present != service);
        let mut woken = state.twins(&key);
        if changed {
            state.services.insert(key.clone(), Arc::new(service));
            woken.extend(state.twins(&key));
        }
        drop(state);
        if changed {
            self.wake_all(&key, woken);
        }
        Some(key)
    }

    fn remove(&self, key: &ServiceKey) {
        let mut state = self.write();
        let twins = state.twins(key);
        let gone = state.services.remove(key).is_some();
        drop(state);
        if gone {
            self.wake_all(key, twins);
        }
    }

    fn wake_all(&self, key: &ServiceKey, twins: BTreeSet<ServiceKey>) {
        (self.wake)(key.clone());
        for twin in twins.into_iter().filter(|twin| twin != key) {
            (self.wake)(twin);
        }
    }

    fn put_slice(&self, from: &discovery::EndpointSlice) -> Option<(ServiceKey, Box<str>)> {
        let id = slice_id(from);
        let left = self.write().label(from, id.as_ref().map(|(key, _)| key));
        if let Some((left, name)) = left {
            self.remove_slice(&left, &name);
        }
        let (key, name) = id?;
        let slice = Slice::read(from);
        let mut state = self.write();
        let slices = state.slices.entry(key.clone()).or_default();
        let changed = slices.get(&name) != Some(&slice);
        slices.insert(name.clone(), slice);
        let wake = changed && state.services.contains_key(&key);
        drop(state);
        if wake {
            (self.wake)(key.clone());
        }
        Some((key, name))
    }

    fn remove_slice(&self, key: &ServiceKey, name: &str) {
        let mut state = self.write();
        let Entry::Occupied(mut slices) = state.slices.entry(key.clone()) else { return };
        let changed = slices.get_mut().remove(name).is_some();
        if slices.get().is_empty() {
            slices.remove();
        }
        let id = ((*key.namespace).into(), name.into());
        if state.labelled.get(&id) == Some(key) {
            state.labelled.remove(&id);
        }
        let wake = changed && state.services.contains_key(key);
        drop(state);
        if wake {
            (self.wake)(key.clone());
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Notes the Service that a slice says it belongs to. Returns the one that it belonged to before, if that is another,
    /// and the slice's name.
    fn label(
        &mut self,
        from: &discovery::EndpointSlice,
        service: Option<&ServiceKey>,
    ) -> Option<(ServiceKey, Box<str>)> {
        let id: (Box<str>, Box<str>) =
            (from.metadata.namespace.as_deref()?.into(), from.metadata.name.as_deref()?.into());
        let name = id.1.clone();
        let before = match service {
            Some(service) => self.labelled.insert(id, service.clone()),
            None => self.labelled.remove(&id),
        };
        before.filter(|before| service != Some(before)).map(|before| (before, name))
    }

    fn claimants(&self, row: &str) -> Vec<ServiceKey> {
        self.named(row, Service::has_rows)
    }

    fn named(&self, row: &str, is_one: impl Fn(&Service) -> bool) -> Vec<ServiceKey> {
        let has = |key: &ServiceKey, protocol| {
            self.services.get(key).is_some_and(|service| service.has(protocol) && is_one(service))
        };
        possible_owners(row).filter(|(key, protocol)| has(key, *protocol)).map(|(key, _)| key).collect()
    }

    /// Every Service, this one included, that claims a row of the same name as one of this one's.
    fn twins(&self, key: &ServiceKey) -> BTreeSet<ServiceKey> {
        PROTOCOLS.into_iter().flat_map(|protocol| self.claimants(&row_name(key, protocol))).collect()
    }
}

/// Feeds the Service watch into the cache.
pub(crate) struct ServiceSink {
    cluster: Arc<Cluster>,
    /// Keys seen since the list began; the others are gone when it ends.
    listed: HashSet<ServiceKey>,
}

impl ServiceSink {
    pub(crate) fn new(cluster: Arc<Cluster>) -> Self {
        Self { cluster, listed: HashSet::new() }
    }
}

impl Sink<core::Service> for ServiceSink {
    fn apply(&mut self, object: core::Service) {
        self.cluster.put(&object);
    }

    fn delete(&mut self, object: core::Service) {
        if let (Some(namespace), Some(name)) = (object.metadata.namespace, object.metadata.name) {
            self.cluster.remove(&ServiceKey::new(namespace, name));
        }
    }

    fn list_begins(&mut self) {
        self.listed.clear();
    }

    fn listed(&mut self, object: core::Service) {
        self.listed.extend(self.cluster.put(&object));
    }

    fn list_complete(&mut self) {
        let listed = std::mem::take(&mut self.listed);
        for key in self.cluster.keys().into_iter().filter(|key| !listed.contains(key)) {
            self.cluster.remove(&key);
        }
    }
}

/// Feeds the `EndpointSlice` watch into the cache.
pub(crate) struct SliceSink {
    cluster: Arc<Cluster>,
    listed: HashSet<(ServiceKey, Box<str>)>,
}

impl SliceSink {
    pub(crate) fn new(cluster: Arc<Cluster>) -> Self {
        Self { cluster, listed: HashSet::new() }
    }
}

impl Sink<discovery::EndpointSlice> for SliceSink {
    fn apply(&mut self, object: discovery::EndpointSlice) {
        self.cluster.put_slice(&object);
    }

    fn delete(&mut self, object: discovery::EndpointSlice) {
        if let Some((key, name)) = slice_id(&object) {
            self.cluster.remove_slice(&key, &name);
        }
    }

    fn list_begins(&mut self) {
        self.listed.clear();
    }

    fn listed(&mut self, object: discovery::EndpointSlice) {
        self.listed.extend(self.cluster.put_slice(&object));
    }

    fn list_complete(&mut self) {
        let listed = std::mem::take(&mut self.listed);
        let held: Vec<_> = {
            let state = self.cluster.read();
            let all = state.slices.iter().flat_map(|(key, slices)| slices.keys().map(move |name| (key, name)));
            all.map(|(key, name)| (key.clone(), name.clone())).collect()
        };
        for (key, name) in held.into_iter().filter(|id| !listed.contains(id)) {
            self.cluster.remove_slice(&key, &name);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::testing;

    /// `shop/web` with these changes to its manifest.
    fn changed(changes: Value) -> core::Service {
        let mut service = testing::manifest("shop", "web");
        merge(&mut service, changes);
        serde_json::from_value(service).unwrap()
    }

    fn merge(into: &mut Value, changes: Value) {
        match (into, changes) {
            (Value::Object(into), Value::Object(changes)) => {
                for (key, change) in changes {
                    merge(into.entry(key).or_insert(Value::Null), change);
                }
            }
            (into, change) => *into = change,
        }
    }

    #[test]
    fn only_whom_kube_dc_serves_is_verified_and_has_a_claim_to_a_row() {
        let cluster = Arc::new(Cluster::new(Box::new(|_| {})));
        let mut sink = ServiceSink::new(cluster.clone());
        let mut is_kube_dcs = |changes: Value| {
            sink.apply(changed(changes));
            let served = cluster.service(&ServiceKey::new("shop", "web")).unwrap().is_served();
            assert_eq!(cluster.claimants("shop-web-tcp").len(), usize::from(served));
            assert_eq!(cluster.namesakes("shop-web-tcp").len(), 1, "so the row is no orphan");
            served
        };
        let theirs = json!({ "finalizers": ["service.kube-dc.com/finalizer"] });
        assert!(is_kube_dcs(json!({})));
        assert!(is_kube_dcs(json!({ "metadata": theirs })));
        assert!(is_kube_dcs(json!({ "metadata": theirs, "spec": { "loadBalancerClass": "x/y" } })));
        assert!(!is_kube_dcs(json!({ "spec": { "loadBalancerClass": "x/y" } })), "another class");
        assert!(!is_kube_dcs(json!({ "status": null })), "it has no address");
        let deleted = json!({ "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": theirs["finalizers"] });
        assert!(!is_kube_dcs(json!({ "metadata": deleted })));
        let taken_over = json!({
            "finalizers": ["service.kubernetes.io/load-balancer-cleanup"],
            "annotations": { "groundcrew.dev/claimed-by": "groundcrew.dev/ovn" },
        });
        assert!(!is_kube_dcs(json!({ "metadata": taken_over })), "ovn-lb has taken it over");
    }

    #[test]
    fn a_slice_that_is_given_to_another_service_leaves_the_one_that_it_was_of() {
        let cluster = Arc::new(Cluster::new(Box::new(|_| {})));
        let mut sink = SliceSink::new(cluster.clone());
        let of = |service: Value| -> discovery::EndpointSlice {
            let labels = json!({ "kubernetes.io/service-name": service });
            let labels = if service.is_null() { json!({}) } else { labels };
            serde_json::from_value(json!({
                "metadata": { "namespace": "shop", "name": "custom", "labels": labels },
                "addressType": "IPv4", "ports": [{ "name": "http", "port": 8080 }],
                "endpoints": [{ "addresses": ["10.1.0.41"] }],
            }))
            .unwrap()
        };
        let has = |name: &str| cluster.with_slices(&ServiceKey::new("shop", name), |slices| !slices.is_empty());
        sink.apply(of(json!("blue")));
        assert_eq!((has("blue"), has("green")), (true, false));
        sink.apply(of(json!("green")));
        assert_eq!((has("blue"), has("green")), (false, true));
        sink.apply(of(Value::Null));
        assert_eq!((has("blue"), has("green")), (false, false), "nobody's");
    }
}
