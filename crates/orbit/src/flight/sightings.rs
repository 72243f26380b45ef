//! The memory between passes: since when servers of the cluster have been without a Node.
//!
//! It is in this process alone. After a restart or a pass that failed every age begins anew, which delays a repair and
//! never hastens one.

use std::collections::BTreeMap;
use std::time::Duration;

use groundcrew_core::leader::Moment;

use super::fleet::Member;

/// When a server was first seen without a Node, of those that have been so in every pass since.
#[derive(Debug, Default)]
pub(crate) struct Sightings(BTreeMap<String, Moment>);

impl Sightings {
    /// Takes a pass in, and returns how long each server has been seen without a Node.
    pub(crate) fn look(&mut self, fleet: &[Member<'_>], now: Moment) -> BTreeMap<String, Duration> {
        let known = std::mem::take(&mut self.0);
        let nodeless = fleet.iter().filter(|member| member.node.is_none()).map(|member| &member.instance.id);
        self.0 = nodeless.map(|id| (id.clone(), known.get(id).copied().unwrap_or(now))).collect();
        self.0.iter().map(|(id, first)| (id.clone(), first.until(now))).collect()
    }

    /// A pass has failed: nobody knows whether a Node was there.
    pub(crate) fn forget(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{MINUTE, instance, node};
    use super::*;

    #[test]
    fn an_age_begins_anew_after_a_node_was_there_and_after_a_pass_that_failed() {
        let (one, its_node, start) = (instance("a"), node("a", None), Moment::now());
        let alone = [Member { instance: &one, node: None, sure: true }];
        let with_node = [Member { node: Some(&its_node), ..alone[0] }];
        let mut sightings = Sightings::default();
        let mut age =
            |fleet: &[Member<'_>], minutes: u32| sightings.look(fleet, start + MINUTE * minutes).get("a").copied();
        assert_eq!(age(&alone, 0), Some(Duration::ZERO));
        assert_eq!(age(&alone, 50), Some(50 * MINUTE));
        assert_eq!(age(&with_node, 51), None);
        assert_eq!(age(&alone, 52), Some(Duration::ZERO));
        assert_eq!(age(&alone, 53), Some(MINUTE));
        sightings.forget();
        assert_eq!(sightings.look(&alone, start + 54 * MINUTE)["a"], Duration::ZERO);
    }
}
