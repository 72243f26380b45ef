//! What is written to an `EIp`. Every patch carries the version that it is based on. Pure.

use std::collections::BTreeMap;

use groundcrew_api::eip::{EIp, EIpOwner, EIpSpec, OwnershipType};
use groundcrew_api::names::{annotation, condition, finalizer, label};
use groundcrew_core::provider::Owner;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{EipKey, Says, Seen, Whose};

/// The object to create. Its address follows in the status.
pub(crate) fn object(key: &EipKey, owner: &Owner, cluster: &str) -> EIp {
    let mut eip = EIp::new(&key.name, EIpSpec::default());
    let meta = &mut eip.metadata;
    meta.namespace = Some(key.namespace.to_string());
    meta.labels = Some(labels(owner, cluster));
    meta.annotations = Some([(annotation::OWNER.to_owned(), owner.key.to_string())].into());
    meta.finalizers = Some(vec![finalizer::EIP.to_owned()]);
    eip
}

fn labels(owner: &Owner, cluster: &str) -> BTreeMap<String, String> {
    [(label::CLUSTER.to_owned(), cluster.to_owned()), (label::OWNER_UID.to_owned(), owner.uid.to_string())].into()
}

/// The merge patch that puts our marks back on one that we made.
pub(crate) fn mark(seen: &Seen, owner: &Owner, cluster: &str) -> Value {
    let finalizers: Vec<_> = others(seen).chain([finalizer::EIP]).collect();
    json!({
        "metadata": {
            "resourceVersion": seen.resource_version,
            "labels": labels(owner, cluster),
            "annotations": { annotation::OWNER: owner.key.to_string() },
            "finalizers": finalizers,
        }
    })
}

/// The merge patch that makes the status of one that we serve say this.
pub(crate) fn status(says: &Says, before: &Seen, now: Timestamp) -> Value {
    let mut status = json!({
        "ipAddress": says.address,
        "ovnEIpRef": &*says.pool,
        "owners": users(says),
        "ready": says.address.is_some() && says.trouble.is_none(),
    });
    if let Some(ownership) = ownership(says, before) {
        status["ownershipType"] = json!(ownership);
    }
    if let Whose::Service(_) = before.whose {
        status["deleteReleased"] = true.into();
    }
    if before.says.address != says.address || before.says.trouble != says.trouble {
        status["conditions"] = conditions(says, before, now);
    }
    json!({ "metadata": { "resourceVersion": before.resource_version }, "status": status })
}

/// The merge patch for one that somebody else serves: who uses it, and nothing else.
pub(crate) fn owners(says: &Says, before: &Seen) -> Value {
    let mut status = json!({ "owners": users(says) });
    if let Some(ownership) = ownership(says, before) {
        status["ownershipType"] = json!(ownership);
    }
    json!({ "metadata": { "resourceVersion": before.resource_version }, "status": status })
}

fn users(says: &Says) -> Vec<EIpOwner> {
    let services = says
        .services
        .iter()
        .map(|name| EIpOwner { kind: EIpOwner::SERVICE_LB.to_owned(), owner_ref: name.to_string() });
    says.others.iter().cloned().chain(services).collect()
}

/// `None` where somebody has said something that does not follow from the users: it stays.
fn ownership(says: &Says, before: &Seen) -> Option<OwnershipType> {
    if says.others.iter().any(|owner| owner.kind == EIpOwner::FIP) {
        Some(OwnershipType::Exclusive)
    } else if before.exclusive {
        None
    } else if says.services.is_empty() && says.others.is_empty() {
        Some(OwnershipType::Released)
    } else {
        Some(OwnershipType::Shared)
    }
}

/// Those of others, and ours. Its time is that of the last change of its status, not of its words.
fn conditions(says: &Says, before: &Seen, now: Timestamp) -> Value {
    let present = before.wish.iter().flat_map(|wish| &wish.conditions);
    let (ours, others): (Vec<_>, Vec<_>) = present.partition(|condition| condition.type_ == condition::READY);
    let (status, reason, message) = match (&says.trouble, says.address) {
        (Some(trouble), _) => ("False", &*trouble.reason, trouble.message.to_string()),
        (None, Some(address)) => ("True", "Assigned", format!("{address} belongs to this EIp until it is deleted")),
        (None, None) => ("False", "Pending", "no address is assigned yet".to_owned()),
    };
    let since = ours.first().filter(|condition| condition.status == status);
    let since = since.map_or_else(|| format!("{now:.0}").into(), |condition| json!(condition.last_transition_time));
    let ready = json!({
        "type": condition::READY, "status": status, "reason": reason, "message": message, "lastTransitionTime": since,
    });
    others.into_iter().map(|condition| json!(condition)).chain([ready]).collect()
}

/// The merge patch that puts our marks on a tenant's own.
pub(crate) fn claim(seen: &Seen, cluster: &str) -> Value {
    let finalizers: Vec<_> = others(seen).chain([finalizer::EIP]).collect();
    json!({
        "metadata": {
            "resourceVersion": seen.resource_version,
            "labels": { label::CLUSTER: cluster },
            "finalizers": finalizers,
        }
    })
}

/// The merge patch that lets a tenant's own go.
pub(crate) fn let_go(seen: &Seen) -> Value {
    let finalizers: Vec<_> = others(seen).collect();
    json!({ "metadata": { "resourceVersion": seen.resource_version, "finalizers": finalizers } })
}

fn others(seen: &Seen) -> impl Iterator<Item = &str> {
    seen.wish.iter().flat_map(|wish| &wish.finalizers).map(String::as_str)
}

/// The merge patch that lets the object go.
pub(crate) fn without_finalizer(eip: &EIp) -> Value {
    let kept: Vec<_> = eip.metadata.finalizers.iter().flatten().filter(|f| *f != finalizer::EIP).collect();
    json!({ "metadata": { "resourceVersion": eip.metadata.resource_version, "finalizers": kept } })
}
