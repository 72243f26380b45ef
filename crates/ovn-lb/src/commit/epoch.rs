//! The leader's epoch in the database: a write of an older term fails its guard, however late it arrives.
//!
//! A lease alone cannot do that: a process that was stopped between looking at its lease and sending wakes up and sends.

use ovsdb_client::ops::Mutator;
use ovsdb_client::{Condition, Op, Value};

use crate::error::Error;
use crate::northbound::Northbound;

const TABLE: &str = "NB_Global";

/// `<number>/<identity> <class>`: the number orders, the identity tells two processes apart that chose the same, and the
/// class is the one that is served. An older version of ours writes none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Epoch {
    number: u64,
    text: String,
}

fn key(cluster: &str) -> String {
    format!("groundcrew-epoch-{cluster}")
}

/// The class that the leader of an epoch serves, where it says so.
pub(super) fn class(seen: &str) -> Option<&str> {
    seen.split_once(' ').map(|(_, class)| class)
}

/// The epoch in the database.
pub(super) fn seen<'a>(nb: &'a Northbound, cluster: &str) -> Result<Option<&'a str>, Error> {
    let (_, global) = nb.global.iter().next().ok_or(Error::NoGlobal)?;
    Ok(global.external_ids.get(&key(cluster)))
}

impl Epoch {
    /// The first one later than what was seen and than `least`.
    pub(super) fn after(seen: Option<&str>, least: u64, identity: &str, class: &str) -> Self {
        let number = seen.map_or(0, Self::number_of).max(least).saturating_add(1);
        Self { number, text: format!("{number}/{identity} {class}") }
    }

    /// Its number; what cannot be read is older than everything.
    fn number_of(text: &str) -> u64 {
        text.split_once('/').and_then(|(number, _)| number.parse().ok()).unwrap_or(0)
    }

    /// Whether this is a later epoch of somebody else. One of our own is a claim of ours whose answer never came.
    pub(super) fn is_superseded_by(&self, seen: &str) -> bool {
        let identity = |text: &str| text.split_once('/').map(|(_, identity)| identity.to_owned());
        Self::number_of(seen) > self.number && identity(seen) != identity(&self.text)
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Fails the transaction unless this is the epoch. Other keys of that map do not disturb it.
    pub(super) fn guard(&self, cluster: &str) -> Op {
        is(cluster, &self.text)
    }

    /// Who wrote, for the database's own log: `ovsdb-tool show-log` prints it beside each transaction.
    pub(super) fn signature(&self, cluster: &str) -> Op {
        Op::comment(format!("groundcrew {cluster} {}", self.text))
    }

    /// Makes this the epoch, provided that the one before is still what was seen.
    pub(super) fn claim(&self, seen: Option<&str>, cluster: &str) -> Vec<Op> {
        let key = key(cluster);
        let ours = Value::map([(&key, &self.text)]);
        if let Some(seen) = seen {
            let replace = Op::mutate(TABLE, []).mutation("external_ids", Mutator::Delete, Value::set([&key])).mutation(
                "external_ids",
                Mutator::Insert,
                ours,
            );
            return vec![is(cluster, seen), replace.into(), self.signature(cluster)];
        }
        // No condition says "has no such key". But an insert leaves a key alone that is there, so that the guard behind
        // it finds our value only if there was none.
        let add = Op::mutate(TABLE, []).mutation("external_ids", Mutator::Insert, ours);
        vec![add.into(), is(cluster, &self.text), self.signature(cluster)]
    }
}

/// Fails the transaction unless this is the epoch.
pub(super) fn is(cluster: &str, text: &str) -> Op {
    let epoch = Condition::includes("external_ids", Value::map([(&key(cluster), text)]));
    Op::wait(TABLE, [epoch]).columns(["_uuid"]).are_not([]).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_epoch_is_later_than_whatever_was_there() {
        assert_eq!(Epoch::after(None, 0, "a", "c").text(), "1/a c");
        assert_eq!(Epoch::after(Some("7/b c"), 0, "a", "c").text(), "8/a c");
        assert_eq!(Epoch::after(Some("7/b"), 20, "a", "c").text(), "21/a c", "a restored database is behind us");
        assert_eq!(Epoch::after(Some("nonsense"), 0, "a", "c").text(), "1/a c");
    }

    #[test]
    fn an_epoch_says_which_class_is_served() {
        assert_eq!(class(Epoch::after(None, 0, "a", "example.org/lb").text()), Some("example.org/lb"));
        assert_eq!(class("7/b"), None, "an older version of ours");
    }

    #[test]
    fn a_later_epoch_of_our_own_is_not_another_leader() {
        let ours = Epoch::after(Some("3/b c"), 0, "a", "c");
        assert!(ours.is_superseded_by("5/b c"));
        assert!(!ours.is_superseded_by("5/a c"), "an unanswered claim of ours");
        assert!(!ours.is_superseded_by("3/b c") && !ours.is_superseded_by("nonsense"));
    }
}
