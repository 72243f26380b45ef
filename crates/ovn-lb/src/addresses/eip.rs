//! An address as an `EIp` object: how it is named, read and written. Pure.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use groundcrew_api::eip::{EIp, EIpOwner, EIpSpec, OwnershipType};
use groundcrew_api::names::{annotation, condition, eip, finalizer, label};
use groundcrew_core::key::ServiceKey;
use groundcrew_core::provider::Owner;
use jiff::Timestamp;
use kube::core::ObjectMeta;
use serde_json::{Value, json};
use uuid::Uuid;

use super::pool::Family;
use crate::marks;

/// Namespace and name of an `EIp`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EipKey {
    pub(crate) namespace: Arc<str>,
    pub(crate) name: Arc<str>,
}

impl fmt::Display for EipKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl EipKey {
    pub(crate) fn new(namespace: Option<&str>, name: Option<&str>) -> Self {
        Self { namespace: namespace.unwrap_or_default().into(), name: name.unwrap_or_default().into() }
    }

    /// The `EIp` that is made for a Service. Always the same one: whoever is interrupted finds what he began.
    pub(crate) fn of(owner: &Owner, family: Family) -> Self {
        let digest = marks::digest(&format!("{}/{}", owner.uid, family.word()));
        let name = format!("{}{}-{}", eip::SERVICE_PREFIX, owner.key.name, &digest[..8]);
        Self { namespace: owner.key.namespace.clone(), name: name.into() }
    }
}

/// What an `EIp` says about its address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Says {
    pub(crate) address: Option<IpAddr>,
    /// The pool that the address was taken from. It may be gone by now.
    pub(crate) pool: Arc<str>,
    /// The Services that use it, by name.
    pub(crate) services: BTreeSet<Arc<str>>,
    /// Users of other kinds. We neither know nor touch them.
    pub(crate) others: Vec<EIpOwner>,
}

/// One `EIp` as the API server has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) key: EipKey,
    pub(crate) uid: Uuid,
    pub(crate) resource_version: Box<str>,
    /// It is being deleted and lacks our finalizer: whoever led has released the address already.
    pub(crate) let_go: bool,
    /// Set if this cluster made it, and for whom.
    pub(crate) made_for: Option<Owner>,
    pub(crate) says: Says,
}

/// `None` only for an object that no API server sends.
pub(crate) fn read(eip: &EIp, cluster: &str) -> Option<Seen> {
    let meta = &eip.metadata;
    let status = eip.status.clone().unwrap_or_default();
    let (services, others): (Vec<_>, Vec<_>) =
        status.owners.into_iter().partition(|owner| owner.kind == EIpOwner::SERVICE_LB);
    Some(Seen {
        key: EipKey { namespace: meta.namespace.as_deref()?.into(), name: meta.name.as_deref()?.into() },
        uid: meta.uid.as_deref()?.parse().ok()?,
        resource_version: meta.resource_version.as_deref()?.into(),
        let_go: meta.deletion_timestamp.is_some() && !meta.finalizers.iter().flatten().any(|f| f == finalizer::EIP),
        made_for: made_for(meta, cluster),
        says: Says {
            address: status.ip_address.and_then(|address| address.parse().ok()),
            pool: status.ovn_eip_ref.into(),
            services: services.into_iter().map(|owner| owner.owner_ref.into()).collect(),
            others,
        },
    })
}

fn made_for(meta: &ObjectMeta, cluster: &str) -> Option<Owner> {
    let labels = meta.labels.as_ref()?;
    if labels.get(label::CLUSTER)? != cluster {
        return None;
    }
    let (namespace, name) = meta.annotations.as_ref()?.get(annotation::OWNER)?.split_once('/')?;
    // A tenant can write this annotation, so it says nothing about other namespaces.
    if Some(namespace) != meta.namespace.as_deref() {
        return None;
    }
    Some(Owner { key: ServiceKey::new(namespace, name), uid: labels.get(label::OWNER_UID)?.parse().ok()? })
}

/// The object to create. Its address follows in the status.
pub(crate) fn object(key: &EipKey, owner: &Owner, cluster: &str) -> EIp {
    let mut eip = EIp::new(&key.name, EIpSpec::default());
    let meta = &mut eip.metadata;
    meta.namespace = Some(key.namespace.to_string());
    meta.labels = Some(
        [(label::CLUSTER.to_owned(), cluster.to_owned()), (label::OWNER_UID.to_owned(), owner.uid.to_string())].into(),
    );
    meta.annotations = Some([(annotation::OWNER.to_owned(), owner.key.to_string())].into());
    meta.finalizers = Some(vec![finalizer::EIP.to_owned()]);
    eip
}

/// The merge patch that makes the status say this. It carries the version that it is based on.
pub(crate) fn status(says: &Says, before: &Seen, now: Timestamp) -> Value {
    let services = says
        .services
        .iter()
        .map(|name| EIpOwner { kind: EIpOwner::SERVICE_LB.to_owned(), owner_ref: name.to_string() });
    let owners: Vec<_> = says.others.iter().cloned().chain(services).collect();
    let ownership = if owners.is_empty() { OwnershipType::Released } else { OwnershipType::Shared };
    let mut status = json!({
        "ipAddress": says.address,
        "ovnEIpRef": &*says.pool,
        "ownershipType": ownership,
        "owners": owners,
        "deleteReleased": true,
        "ready": true,
    });
    if before.says.address.is_none() {
        // The time is that of the assignment; who uses the address does not change it.
        let message =
            format!("{} belongs to this EIp until it is deleted", json!(says.address).as_str().unwrap_or("it"));
        status["conditions"] = json!([{
            "type": condition::READY, "status": "True", "reason": "Assigned", "message": message,
            "lastTransitionTime": format!("{now:.0}"),
        }]);
    }
    json!({ "metadata": { "resourceVersion": before.resource_version }, "status": status })
}

/// The merge patch that lets the object go.
pub(crate) fn without_finalizer(eip: &EIp) -> Value {
    let kept: Vec<_> = eip.metadata.finalizers.iter().flatten().filter(|f| *f != finalizer::EIP).collect();
    json!({ "metadata": { "resourceVersion": eip.metadata.resource_version, "finalizers": kept } })
}

/// Versions are numbers in every Kubernetes there is; one that is not is taken for news.
pub(crate) fn is_older(version: &str, than: &str) -> bool {
    matches!((version.parse::<u64>(), than.parse::<u64>()), (Ok(version), Ok(than)) if version < than)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::owner;

    #[test]
    fn an_eip_of_ours_is_known_by_its_marks_and_one_of_another_cluster_is_not() {
        let owner = owner("shop", "web");
        let key = EipKey::of(&owner, Family::V4);
        assert!(key.name.starts_with("slb-web-"));
        assert_ne!(key, EipKey::of(&owner, Family::V6));
        let mut eip = object(&key, &owner, "c1");
        eip.metadata.uid = Some(Uuid::from_u128(1).to_string());
        eip.metadata.resource_version = Some("7".into());
        assert_eq!(read(&eip, "c1").unwrap().made_for, Some(owner));
        assert_eq!(read(&eip, "c2").unwrap().made_for, None);
        eip.metadata.annotations = Some([(annotation::OWNER.to_owned(), "other/web".to_owned())].into());
        assert_eq!(read(&eip, "c1").unwrap().made_for, None, "a tenant speaks for his own namespace only");
    }
}
