//! The marks that make a row ours. Names alone are never ownership.

use groundcrew_core::key::ServiceKey;
use groundcrew_core::provider::{Owner, Protocol};
use ovsdb_client::{StrMap, Uuid};

pub(crate) use groundcrew_ovn::mark::{CLUSTER, GROUP, HASH, NAMESPACE, ROUTER, SERVICE, SWITCH, UID};

/// What a row other than a load balancer is for. The server is asked for rows by this pair, so it is the same in all
/// clusters.
pub(crate) const KIND: &str = "groundcrew-kind";
pub(crate) const SOURCE_RANGES: &str = "source-ranges";
/// The ranges of a Service as its user wrote them: its rules say the contrary.
pub(crate) const RANGES: &str = "groundcrew-source-ranges";

/// Under which names of ours are made. Never to be changed: row uuids and names follow from it.
const NAMES: Uuid = Uuid::from_u128(0x9c1f_6a0e_57d4_4b8b_a3c2_0d6f_3e91_b745);

/// The uuid of a Service's row. Making it twice fails in the server, whoever is late; and it is a mark of its own, as
/// nobody comes upon it by accident.
pub(crate) fn row_uuid(cluster: &str, owner: &Owner, protocol: Protocol) -> Uuid {
    // Version 5, so that the leading bits are random: the server slows down on uuids with a common prefix.
    Uuid::new_v5(&NAMES, format!("{cluster}/{}/{protocol}", owner.uid).as_bytes())
}

/// The uuid of the health check of one virtual address of a row.
pub(crate) fn check_uuid(row: Uuid, vip: &str) -> Uuid {
    Uuid::new_v5(&row, vip.as_bytes())
}

/// The uuid of the row that stands beside it for clients inside, where those need one of their own.
pub(crate) fn inside_row_uuid(row: Uuid) -> Uuid {
    Uuid::new_v5(&row, b"inside")
}

/// The port group of a Service. OVN allows letters, digits, `_` and `.` in it, and uses it in the names of rows of its own.
pub(crate) fn group_name(cluster: &str, owner: &Owner) -> String {
    format!("groundcrew_{}", digest(&format!("{cluster}/{}", owner.uid)))
}

/// Sixteen digits that differ when the text does.
pub(crate) fn digest(text: &str) -> String {
    let (high, _) = Uuid::new_v5(&NAMES, text.as_bytes()).as_u64_pair();
    format!("{high:016x}")
}

/// The keys to clear before marks are written: theirs, and those that only some rows have.
pub(crate) fn keys(marks: &StrMap) -> impl Iterator<Item = &str> {
    let group = marks.get(GROUP).is_none().then_some(GROUP);
    marks.iter().map(|(key, _)| key).chain(group)
}

/// Those keys that are our marks.
pub(crate) fn ours(external_ids: &StrMap) -> StrMap {
    let is_mark = |key: &str| matches!(key, CLUSTER | NAMESPACE | SERVICE | UID | HASH | ROUTER | SWITCH | GROUP);
    external_ids.iter().filter(|(key, _)| is_mark(key)).collect()
}

/// The uid in the marks, whichever cluster's they are.
pub(crate) fn uid(external_ids: &StrMap) -> Option<Uuid> {
    external_ids.get(UID)?.parse().ok()
}

/// Whether the marks are this cluster's, without asking whose of it. All rows may be asked for each change.
pub(crate) fn are_of(external_ids: &StrMap, cluster: &str) -> bool {
    external_ids.get(CLUSTER) == Some(cluster) && uid(external_ids).is_some()
}

/// The owner that the marks name, if they are this cluster's.
pub(crate) fn owner(external_ids: &StrMap, cluster: &str) -> Option<Owner> {
    if external_ids.get(CLUSTER) != Some(cluster) {
        return None;
    }
    let key = ServiceKey::new(external_ids.get(NAMESPACE)?, external_ids.get(SERVICE)?);
    Some(Owner { key, uid: uid(external_ids)? })
}
