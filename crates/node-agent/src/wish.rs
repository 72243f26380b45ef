//! A `FloatingIP` as one node reads it, and the statuses that it writes. Pure.

use std::net::IpAddr;

use groundcrew_api::floating_ip::{FloatingIP, FloatingIPStatus};
use groundcrew_api::names::condition::READY;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde_json::{Value, json};

use crate::frames::Mac;
use crate::hold::{Claim, Wish};

/// What the object says to this node.
pub(crate) fn wish(object: &FloatingIP, node: &str) -> Wish {
    let status = object.status.as_ref();
    let claim = match status.and_then(|status| status.holder.as_deref()) {
        Some(holder) if holder == node => Claim::Ours,
        Some(holder) => Claim::Theirs { evicted: object.spec.evicted.as_deref() == Some(holder) },
        // Without `since` nobody has ever held it; somebody may have said why he cannot.
        None if status.is_some_and(|status| status.since.is_some()) => Claim::Released,
        None => Claim::Never,
    };
    // One in deletion is on its way out: whoever holds it should let go first.
    let leaving = object.metadata.deletion_timestamp.is_some();
    let wanted = object.spec.holder.as_deref() == Some(node) && !leaving;
    Wish { wanted, serial: object.spec.serial, claim }
}

pub(crate) fn address(object: &FloatingIP) -> Option<IpAddr> {
    object.spec.address.parse().ok()
}

pub(crate) fn mac(object: &FloatingIP) -> Option<Mac> {
    object.spec.mac.as_deref().and_then(|mac| mac.parse().ok())
}

/// The readings of one resource are numbered in the order in which they were written.
pub(crate) fn version(object: &FloatingIP) -> u64 {
    object.metadata.resource_version.as_deref().and_then(|version| version.parse().ok()).unwrap_or_default()
}

/// What is told to users of the object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) ready: bool,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

/// The status with this holder, as a merge patch that fails if the object has changed since it was read; `None` where it
/// is as it should be.
pub(crate) fn patch(object: &FloatingIP, holder: Option<&str>, said: &Said, now: Timestamp) -> Option<Value> {
    let old = object.status.clone().unwrap_or_default();
    let same = old.holder.as_deref() == holder && object.status.is_some();
    let status = FloatingIPStatus {
        holder: holder.map(str::to_owned),
        serial: object.spec.serial,
        since: old.since.clone().filter(|_| same).or(Some(Time(now))),
        conditions: vec![condition(&old, object.metadata.generation, said, now)],
    };
    replacing(object, &status)
}

/// The status of a node that cannot have the address: all but the holder.
pub(crate) fn refusal(object: &FloatingIP, said: &Said, now: Timestamp) -> Option<Value> {
    let old = object.status.clone().unwrap_or_default();
    let conditions = vec![condition(&old, object.metadata.generation, said, now)];
    replacing(object, &FloatingIPStatus { serial: object.spec.serial, conditions, ..old })
}

fn replacing(object: &FloatingIP, status: &FloatingIPStatus) -> Option<Value> {
    if object.status.as_ref() == Some(status) {
        return None;
    }
    let mut written = json!(status);
    // A merge patch keeps what it does not name.
    written["holder"] = json!(status.holder);
    Some(json!({ "metadata": { "resourceVersion": object.metadata.resource_version }, "status": written }))
}

fn condition(old: &FloatingIPStatus, generation: Option<i64>, said: &Said, now: Timestamp) -> Condition {
    let status = if said.ready { "True" } else { "False" };
    let before = old.conditions.iter().find(|condition| condition.type_ == READY && condition.status == status);
    Condition {
        type_: READY.to_owned(),
        status: status.to_owned(),
        reason: said.reason.to_owned(),
        message: said.message.clone(),
        observed_generation: generation,
        last_transition_time: before.map_or(Time(now), |condition| condition.last_transition_time.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(spec: &Value, status: &Value) -> FloatingIP {
        let mut object = json!({
            "apiVersion": "groundcrew.dev/v1alpha1",
            "kind": "FloatingIP",
            "metadata": {"name": "192.0.2.7", "resourceVersion": "12", "generation": 3},
            "spec": {"address": "192.0.2.7", "serial": 4},
        });
        for (key, value) in spec.as_object().unwrap() {
            object["spec"][key] = value.clone();
        }
        if !status.is_null() {
            object["status"] = status.clone();
        }
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn the_claim_in_the_status_is_read_as_what_it_means_to_this_node() {
        let claim = |spec: Value, status: Value| wish(&object(&spec, &status), "a").claim;
        assert_eq!(claim(json!({}), Value::Null), Claim::Never);
        let since = "2026-01-01T00:00:00Z";
        assert_eq!(claim(json!({}), json!({"serial": 3, "since": since})), Claim::Released);
        assert_eq!(claim(json!({}), json!({"serial": 3, "holder": "a"})), Claim::Ours);
        let theirs = json!({"serial": 3, "holder": "b"});
        assert_eq!(claim(json!({}), theirs.clone()), Claim::Theirs { evicted: false });
        assert_eq!(claim(json!({"evicted": "c"}), theirs.clone()), Claim::Theirs { evicted: false });
        assert_eq!(claim(json!({"evicted": "b"}), theirs), Claim::Theirs { evicted: true });
        assert!(wish(&object(&json!({"holder": "a"}), &Value::Null), "a").wanted);
        assert!(!wish(&object(&json!({"holder": "b"}), &Value::Null), "a").wanted);
    }

    #[test]
    fn a_refusal_says_neither_that_somebody_holds_it_nor_that_somebody_let_go() {
        let now = Timestamp::UNIX_EPOCH;
        let said = Said { ready: false, reason: "LinkDown", message: "the interface eth1 has no link".into() };
        let refused = |status: &Value| {
            let mut read = object(&json!({"holder": "a", "evicted": "b"}), status);
            let patch = refusal(&read, &said, now).unwrap();
            read.status = serde_json::from_value(patch["status"].clone()).unwrap();
            assert_eq!(read.status.as_ref().unwrap().serial, 4);
            assert_eq!(refusal(&read, &said, Timestamp::MAX), None, "once is enough");
            wish(&read, "a").claim
        };
        let since = "2026-01-01T00:00:00Z";
        assert_eq!(refused(&Value::Null), Claim::Never);
        assert_eq!(refused(&json!({"serial": 3, "since": since})), Claim::Released);
        let theirs = json!({"serial": 3, "holder": "b", "since": since});
        assert_eq!(refused(&theirs), Claim::Theirs { evicted: true });
    }

    #[test]
    fn what_is_said_already_is_not_written_and_a_write_names_what_it_replaces() {
        let now = Timestamp::UNIX_EPOCH;
        let said = Said { ready: true, reason: "Held", message: "on ens3".into() };
        let mut read = object(&json!({"holder": "a"}), &Value::Null);
        let first = patch(&read, Some("a"), &said, now).unwrap();
        assert_eq!(first["metadata"]["resourceVersion"], "12");
        read.status = serde_json::from_value(first["status"].clone()).unwrap();
        assert_eq!(patch(&read, Some("a"), &said, Timestamp::MAX), None, "the time alone is no change");
        let released = patch(&read, None, &Said { ready: false, ..said }, now).unwrap();
        assert_eq!(released["status"]["holder"], Value::Null);
        assert!(released["status"].as_object().unwrap().contains_key("holder"), "left out, it would stay");
    }
}
