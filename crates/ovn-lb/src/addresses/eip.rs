//! An address as an `EIp` object: how it is named and read. Pure.

mod write;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use groundcrew_api::eip::{EIp, EIpOwner, EIpStatus, OwnershipType};
use groundcrew_api::names::{annotation, condition, eip, finalizer, label};
use groundcrew_core::key::ServiceKey;
use groundcrew_core::provider::Owner;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Resource;
use kube::core::ObjectMeta;
use uuid::Uuid;

use super::pool::Family;
use crate::few::Few;
use crate::marks;

pub(crate) use write::{claim, let_go, mark, object, owners, status, without_finalizer};

/// Namespace and name of an `EIp`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
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

/// What Events of an `EIp` are about.
pub(crate) fn reference(key: &EipKey, uid: Option<Uuid>) -> ObjectReference {
    ObjectReference {
        api_version: Some(EIp::api_version(&()).into_owned()),
        kind: Some(EIp::kind(&()).into_owned()),
        namespace: Some(key.namespace.to_string()),
        name: Some(key.name.to_string()),
        uid: uid.map(|uid| uid.to_string()),
        ..ObjectReference::default()
    }
}

/// Whose eyes an `EIp` is seen with.
#[derive(Debug, Clone)]
pub(crate) struct Reader {
    pub(crate) cluster: Arc<str>,
    /// Whether those that kube-dc serves are ours from now on.
    pub(crate) take_over: bool,
}

/// Who makes an `EIp` say what it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Whose {
    /// This cluster made it for a Service, and takes it away with its last user.
    Service(Owner),
    /// A tenant made it, and this cluster gave it its address or took it over from kube-dc. It goes when the tenant says so.
    Tenant,
    /// A tenant made it, and nobody has given it an address yet.
    Nobody,
    /// kube-dc, another cluster, somebody by hand. Only the Services that we serve on it are ours to write down.
    Other,
}

/// What an `EIp` says about its address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Says {
    pub(crate) address: Option<IpAddr>,
    /// The pool that the address was taken from. It may be gone by now.
    pub(crate) pool: Arc<str>,
    /// The Services that use it, by name.
    pub(crate) services: Few<Arc<str>>,
    /// Users of other kinds. We neither know nor touch them.
    pub(crate) others: Vec<EIpOwner>,
    /// Why it cannot be used, or will go.
    pub(crate) trouble: Option<Box<Trouble>>,
}

/// Reason and message of a condition that is not True.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Trouble {
    pub(crate) reason: Box<str>,
    pub(crate) message: Box<str>,
}

/// One `EIp` as the API server has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) key: EipKey,
    pub(crate) uid: Uuid,
    pub(crate) resource_version: Box<str>,
    pub(crate) deleting: bool,
    /// It has our finalizer.
    pub(crate) finalizer: bool,
    /// It has our label.
    pub(crate) label: bool,
    pub(crate) ready: bool,
    /// Somebody has it alone, or in a way that we do not know.
    pub(crate) exclusive: bool,
    /// kube-dc made it for a Service, and it goes with its last user.
    pub(crate) delete_released: bool,
    pub(crate) whose: Whose,
    pub(crate) says: Says,
    /// Somebody took our marks off one that we made: they are put back.
    pub(crate) unmarked: bool,
    /// What only those that we did not make have.
    pub(crate) wish: Option<Box<Wish>>,
}

/// What a tenant wrote, and what must survive when we write.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Wish {
    pub(crate) network_type: Option<Box<str>>,
    pub(crate) child_ref: Option<Box<str>>,
    /// The address that is asked for, as it is written.
    pub(crate) requested: Option<Box<str>>,
    /// Finalizers of others.
    finalizers: Vec<String>,
    conditions: Vec<Condition>,
}

impl Eq for Wish {}

impl Seen {
    /// It is being deleted and lacks our finalizer: whoever led has released the address already.
    pub(crate) fn is_let_go(&self) -> bool {
        self.deleting && !self.finalizer
    }
}

/// `None` only for an object that no API server sends.
pub(crate) fn read(eip: &EIp, reader: &Reader) -> Option<Seen> {
    let (meta, cluster) = (&eip.metadata, &*reader.cluster);
    let status = eip.status.clone().unwrap_or_default();
    let exclusive = matches!(status.ownership_type, OwnershipType::Exclusive | OwnershipType::Unknown)
        || status.owners.iter().any(|owner| owner.kind == EIpOwner::FIP);
    let key = EipKey { namespace: meta.namespace.as_deref()?.into(), name: meta.name.as_deref()?.into() };
    let whose = whose(meta, &key, &status, exclusive, reader);
    let deleting = meta.deletion_timestamp.is_some();
    // A finalizer cannot be swapped any more while its object is being deleted, so that kube-dc's is as good as ours.
    let is_taken = whose == Whose::Tenant && has_finalizer(meta, finalizer::KUBE_DC_EIP);
    let finalizer = has_finalizer(meta, finalizer::EIP) || (is_taken && deleting);
    // On one that was made for a Service it is said only while somebody deletes it; the rest is somebody else's word.
    let is_told = match whose {
        Whose::Other => false,
        Whose::Service(_) => deleting,
        Whose::Tenant | Whose::Nobody => true,
    };
    let trouble = is_told.then(|| trouble(&status.conditions)).flatten();
    let wish = (!matches!(whose, Whose::Service(_))).then(|| Box::new(wish(eip, is_taken, status.conditions)));
    let (services, others): (Vec<_>, Vec<_>) =
        status.owners.into_iter().partition(|owner| owner.kind == EIpOwner::SERVICE_LB);
    let services = services.into_iter().map(|owner| match &whose {
        // Nearly always the one that it was made for: then the name is kept once.
        Whose::Service(maker) if *maker.key.name == *owner.owner_ref => maker.key.name.clone(),
        _ => owner.owner_ref.into(),
    });
    let services = services.collect();
    Some(Seen {
        key,
        uid: meta.uid.as_deref()?.parse().ok()?,
        resource_version: meta.resource_version.as_deref()?.into(),
        deleting,
        finalizer,
        label: cluster_label(meta) == Some(cluster),
        ready: status.ready,
        exclusive,
        delete_released: status.delete_released == Some(true),
        whose,
        says: Says {
            address: status.ip_address.and_then(|address| address.parse().ok()),
            pool: status.ovn_eip_ref.into(),
            services,
            others,
            trouble,
        },
        unmarked: false,
        wish,
    })
}

fn whose(meta: &ObjectMeta, key: &EipKey, status: &EIpStatus, exclusive: bool, reader: &Reader) -> Whose {
    let cluster = &*reader.cluster;
    if let Some(owner) = made_for(meta, key, cluster) {
        return Whose::Service(owner);
    }
    let is_kube_dcs = has_finalizer(meta, finalizer::KUBE_DC_EIP);
    // Floating addresses are not ours to serve, and theirs stay with whoever serves them.
    let is_taken = is_kube_dcs && reader.take_over && !exclusive;
    let untouched = status.ip_address.is_none() && status.ovn_eip_ref.is_empty() && status.owners.is_empty();
    match cluster_label(meta) {
        _ if is_kube_dcs && !is_taken => Whose::Other,
        Some(label) if label != cluster => Whose::Other,
        _ if is_taken => Whose::Tenant,
        Some(_) => Whose::Tenant,
        // Somebody took the label away: without us the finalizer would keep it for ever.
        None if has_finalizer(meta, finalizer::EIP) => Whose::Tenant,
        None if untouched => Whose::Nobody,
        None => Whose::Other,
    }
}

fn has_finalizer(meta: &ObjectMeta, name: &str) -> bool {
    meta.finalizers.iter().flatten().any(|finalizer| finalizer == name)
}

fn cluster_label(meta: &ObjectMeta) -> Option<&str> {
    meta.labels.as_ref()?.get(label::CLUSTER).map(String::as_str)
}

fn trouble(conditions: &[Condition]) -> Option<Box<Trouble>> {
    let ready =
        conditions.iter().find(|condition| condition.type_ == condition::READY && condition.status != "True")?;
    Some(Box::new(Trouble { reason: ready.reason.as_str().into(), message: ready.message.as_str().into() }))
}

fn wish(eip: &EIp, is_taken: bool, conditions: Vec<Condition>) -> Wish {
    // Empty is the same as absent, as with kube-dc.
    let some = |text: Option<&String>| text.filter(|text| !text.is_empty()).map(|text| text.as_str().into());
    let annotations = eip.metadata.annotations.as_ref();
    let is_ours = |f: &str| f == finalizer::EIP || (is_taken && f == finalizer::KUBE_DC_EIP);
    let finalizers = eip.metadata.finalizers.iter().flatten().filter(|f| !is_ours(f));
    Wish {
        network_type: some(eip.spec.external_network_type.as_ref()),
        child_ref: some(eip.spec.child_ref.as_ref()),
        requested: some(annotations.and_then(|annotations| annotations.get(annotation::LOAD_BALANCER_IPS))),
        finalizers: finalizers.cloned().collect(),
        conditions,
    }
}

fn made_for(meta: &ObjectMeta, key: &EipKey, cluster: &str) -> Option<Owner> {
    let labels = meta.labels.as_ref()?;
    if labels.get(label::CLUSTER)? != cluster {
        return None;
    }
    let (namespace, name) = meta.annotations.as_ref()?.get(annotation::OWNER)?.split_once('/')?;
    // A tenant can write this annotation, so it says nothing about other namespaces.
    if *namespace != *key.namespace {
        return None;
    }
    Some(Owner { key: ServiceKey::new(key.namespace.clone(), name), uid: labels.get(label::OWNER_UID)?.parse().ok()? })
}

/// Versions are numbers in every Kubernetes there is; one that is not is taken for news.
pub(crate) fn is_older(version: &str, than: &str) -> bool {
    matches!((version.parse::<u64>(), than.parse::<u64>()), (Ok(version), Ok(than)) if version < than)
}

#[cfg(test)]
mod tests {
    use groundcrew_api::eip::EIpSpec;
    use serde_json::json;

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
        let reader = |cluster: &str| Reader { cluster: cluster.into(), take_over: false };
        assert_eq!(read(&eip, &reader("c1")).unwrap().whose, Whose::Service(owner));
        assert_eq!(read(&eip, &reader("c2")).unwrap().whose, Whose::Other);
        eip.metadata.annotations = Some([(annotation::OWNER.to_owned(), "other/web".to_owned())].into());
        assert_eq!(
            read(&eip, &reader("c1")).unwrap().whose,
            Whose::Tenant,
            "a tenant speaks for his own namespace only"
        );
    }

    #[test]
    fn an_eip_of_kube_dcs_is_ours_if_asked_for_and_unless_a_floating_address_has_it() {
        let mut eip = EIp::new("office", EIpSpec::default());
        eip.metadata.namespace = Some("shop".into());
        eip.metadata.uid = Some(Uuid::from_u128(1).to_string());
        eip.metadata.resource_version = Some("7".into());
        eip.metadata.finalizers = Some(vec!["other".into(), finalizer::KUBE_DC_EIP.into()]);
        let seen = |eip: &EIp, take_over| read(eip, &Reader { cluster: "c1".into(), take_over }).unwrap();
        assert_eq!(seen(&eip, false).whose, Whose::Other);
        let taken = seen(&eip, true);
        assert_eq!((&taken.whose, taken.finalizer), (&Whose::Tenant, false));
        assert_eq!(claim(&taken, "c1")["metadata"]["finalizers"], json!(["other", finalizer::EIP]));
        let status = json!({ "ovnEIpRef": "", "ownershipType": "Exclusive", "ready": true });
        let floating = EIp { status: Some(serde_json::from_value(status).unwrap()), ..eip.clone() };
        assert_eq!(seen(&floating, true).whose, Whose::Other);
        eip.metadata.deletion_timestamp = serde_json::from_value("2026-01-01T00:00:00Z".into()).unwrap();
        let leaving = seen(&eip, true);
        assert!(leaving.finalizer, "one that is being deleted cannot get ours any more");
        assert_eq!(let_go(&leaving)["metadata"]["finalizers"], json!(["other"]));
        eip.metadata.labels = Some([(label::CLUSTER.to_owned(), "c2".to_owned())].into());
        assert_eq!(seen(&eip, true).whose, Whose::Other, "another cluster's stays his");
    }
}
