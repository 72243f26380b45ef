use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

use crate::address_pool::AddressPool;
use crate::deorbit::Deorbit;
use crate::eip;
use crate::floating_ip::FloatingIP;
use crate::node_repair::NodeRepair;

/// Every custom resource definition of groundcrew, always in the same order.
///
/// The definitions outlive a Helm release that carries them: taking one away deletes all its objects, and with them every
/// address in use.
#[must_use]
pub fn crds() -> Vec<CustomResourceDefinition> {
    let mut crds = vec![eip::crd(), AddressPool::crd(), FloatingIP::crd(), NodeRepair::crd(), Deorbit::crd()];
    for crd in &mut crds {
        // Not by the derive's `annotation` and `label`, which would put them on every object made with `new` as well.
        crd.metadata.annotations = Some(map([("helm.sh/resource-policy", "keep")]));
        crd.metadata.labels =
            Some(map([("app.kubernetes.io/name", "groundcrew"), ("app.kubernetes.io/part-of", "groundcrew")]));
    }
    crds
}

fn map<const N: usize>(entries: [(&str, &str); N]) -> BTreeMap<String, String> {
    entries.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
}
