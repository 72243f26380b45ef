//! kube-ovn-controller's pods and Lease, as they change.

use groundcrew_api::names::kube_ovn::CONTROLLER;
use groundcrew_core::leader::Moment;
use groundcrew_core::runtime::Runtime;
use groundcrew_core::watch::{self, Sink};
use k8s_openapi::api::coordination::v1 as coordination;
use k8s_openapi::api::core::v1 as core;
use kube::Api;
use tracing::info;

use super::Attribution;
use super::kube_ovn::{Leader, Pod};

const PODS: &str = "kube-ovn-controller's pods";
const LEASE: &str = "kube-ovn-controller's Lease";

/// Until the process ends. Neither watch is waited for: a cluster may not let us read them.
pub(crate) fn follow(runtime: &Runtime, namespace: &str, attribution: &Attribution) {
    let (client, ready, stop) = (&runtime.client, &runtime.ready, runtime.tasks.stop());
    let sink = PodSink { attribution: attribution.clone(), listed: Vec::new() };
    let pods = watch::follow(Api::namespaced(client.clone(), namespace), PODS, sink, ready.clone(), stop.clone());
    runtime.tasks.spawn("kube-ovn pods", pods);
    let sink = LeaseSink { attribution: attribution.clone() };
    let lease = watch::follow(Api::namespaced(client.clone(), namespace), LEASE, sink, ready.clone(), stop.clone());
    runtime.tasks.spawn("kube-ovn Lease", lease);
}

struct PodSink {
    attribution: Attribution,
    listed: Vec<Pod>,
}

fn read(pod: core::Pod) -> Option<Pod> {
    let is_its = pod.metadata.labels.as_ref()?.get("app").is_some_and(|app| app == CONTROLLER);
    let statuses = pod.status.and_then(|status| status.container_statuses).unwrap_or_default();
    let image = pod.spec.and_then(|spec| spec.containers.into_iter().find(|c| c.name == CONTROLLER)?.image);
    is_its.then_some(Pod {
        uid: pod.metadata.uid?.into(),
        name: pod.metadata.name?.into(),
        restarts: statuses.iter().map(|status| status.restart_count).sum(),
        image,
    })
}

impl Sink<core::Pod> for PodSink {
    fn apply(&mut self, object: core::Pod) {
        let Some(pod) = read(object) else { return };
        self.attribution.kube_ovn(|kube_ovn| {
            let changed = kube_ovn.pod(&pod, Moment::now());
            if changed {
                info!(pod = &*pod.name, restarts = pod.restarts, "kube-ovn-controller started: it may collect rows");
            }
            changed
        });
    }

    fn delete(&mut self, object: core::Pod) {
        if let Some(pod) = read(object) {
            self.attribution.kube_ovn(|kube_ovn| {
                kube_ovn.pod_gone(&pod.uid);
                false
            });
        }
    }

    fn list_begins(&mut self) {
        self.listed.clear();
    }

    fn listed(&mut self, object: core::Pod) {
        self.listed.extend(read(object));
    }

    fn list_complete(&mut self) {
        let listed = std::mem::take(&mut self.listed);
        self.attribution.kube_ovn(|kube_ovn| kube_ovn.pods(&listed, Moment::now()));
    }
}

struct LeaseSink {
    attribution: Attribution,
}

impl Sink<coordination::Lease> for LeaseSink {
    fn apply(&mut self, object: coordination::Lease) {
        if object.metadata.name.as_deref() != Some(CONTROLLER) {
            return;
        }
        let spec = object.spec.unwrap_or_default();
        let leader = Leader {
            holder: spec.holder_identity.unwrap_or_default(),
            transitions: spec.lease_transitions.unwrap_or_default(),
        };
        self.attribution.kube_ovn(|kube_ovn| {
            let changed = kube_ovn.leader(leader.clone(), Moment::now());
            if changed {
                info!(leader = leader.holder, "kube-ovn-controller has a new leader: it will collect rows");
            }
            changed
        });
    }

    fn delete(&mut self, _: coordination::Lease) {}

    fn list_begins(&mut self) {}

    fn listed(&mut self, object: coordination::Lease) {
        self.apply(object);
    }

    fn list_complete(&mut self) {
        self.attribution.kube_ovn(|kube_ovn| {
            kube_ovn.leases_listed();
            false
        });
    }
}
