//! Which agents live, by when each Lease was last seen to change.
//!
//! Counted on our own clock from when we saw it: what the agent's clock says is not compared with ours.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use groundcrew_core::leader::Moment;
use k8s_openapi::api::coordination::v1::Lease;

use super::decide::Agent;

/// An agent is doubted after this part of what its Lease promises: agents count on that when they ask each other.
const DOUBT: u32 = 2;

#[derive(Debug, Default)]
pub(crate) struct Lives {
    seen: BTreeMap<Arc<str>, Seen>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    /// The Lease as it was; none where there is none.
    version: Option<String>,
    since: Moment,
    lasts: Duration,
    /// Nobody holds it: the agent ended in order.
    free: bool,
}

/// The Lease has had this resourceVersion, or has not been there, for all of the delay.
#[derive(Debug)]
pub(crate) struct Silence {
    pub(crate) version: Option<String>,
}

impl Lives {
    /// Notes what there is now. `nodes` are those whose agent should have a Lease.
    pub(crate) fn observe<'a>(
        &mut self,
        nodes: impl Iterator<Item = &'a Arc<str>>,
        lease: impl Fn(&str) -> Option<Arc<Lease>>,
        now: Moment,
    ) {
        let mut known = std::mem::take(&mut self.seen);
        for node in nodes {
            let lease = lease(node);
            let version = lease.as_ref().and_then(|lease| lease.metadata.resource_version.clone());
            let since = match known.remove(node) {
                Some(seen) if seen.version == version => seen.since,
                _ => now,
            };
            let spec = lease.as_ref().and_then(|lease| lease.spec.as_ref());
            let seconds = spec.and_then(|spec| spec.lease_duration_seconds).unwrap_or_default();
            let free = spec.is_some_and(|spec| spec.holder_identity.as_deref().unwrap_or_default().is_empty());
            let lasts = Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
            self.seen.insert(node.clone(), Seen { version, since, lasts, free });
        }
    }

    /// Everybody is given the whole time again: after a while in which more seemed dead than can be.
    pub(crate) fn restart(&mut self, now: Moment) {
        self.seen.values_mut().for_each(|seen| seen.since = now);
    }

    pub(crate) fn agent(&self, node: &str, now: Moment, delay: Duration) -> Agent {
        let Some(seen) = self.seen.get(node) else { return Agent::Doubtful };
        let delay = delay.max(seen.lasts);
        let silent = seen.since.until(now);
        match (seen.free, &seen.version) {
            (true, _) => Agent::Left,
            _ if silent >= delay => Agent::Silent,
            // One that never had a Lease is none that could hold anything.
            (_, None) => Agent::Doubtful,
            _ if silent >= seen.lasts / DOUBT => Agent::Doubtful,
            _ => Agent::Alive,
        }
    }

    /// In which state a node's Lease was found silent, if it was.
    pub(crate) fn silence(&self, node: &str, now: Moment, delay: Duration) -> Option<Silence> {
        let version = self.seen.get(node)?.version.clone();
        (self.agent(node, now, delay) == Agent::Silent).then_some(Silence { version })
    }

    /// How long until somebody is doubted or given up, unless their Lease changes.
    pub(crate) fn next(&self, now: Moment, delay: Duration) -> Option<Duration> {
        let due = self.seen.values().flat_map(|seen| {
            let delay = delay.max(seen.lasts);
            [seen.since + seen.lasts / DOUBT, seen.since + delay]
        });
        due.filter(|due| *due > now).min().map(|due| now.until(due))
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::coordination::v1::LeaseSpec;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    use super::*;

    const DELAY: Duration = Duration::from_secs(8);

    fn lease(version: &str, holder: &str) -> Arc<Lease> {
        Arc::new(Lease {
            metadata: ObjectMeta { resource_version: Some(version.to_owned()), ..ObjectMeta::default() },
            spec: Some(LeaseSpec {
                holder_identity: Some(holder.to_owned()),
                lease_duration_seconds: Some(8),
                ..LeaseSpec::default()
            }),
        })
    }

    fn see(lives: &mut Lives, found: Option<&Arc<Lease>>, now: Moment) {
        lives.observe([Arc::from("n1")].iter(), |_| found.cloned(), now);
    }

    #[test]
    fn an_agent_is_given_up_only_after_the_whole_delay_since_its_lease_was_seen_to_change() {
        let (mut lives, start) = (Lives::default(), Moment::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        see(&mut lives, Some(&lease("1", "a")), at(0));
        see(&mut lives, Some(&lease("2", "a")), at(3));
        see(&mut lives, Some(&lease("2", "a")), at(10));
        assert_eq!(lives.agent("n1", at(3), DELAY), Agent::Alive);
        assert_eq!(lives.agent("n1", at(7), DELAY), Agent::Doubtful);
        assert_eq!(lives.agent("n1", at(10), DELAY), Agent::Doubtful);
        assert_eq!(lives.agent("n1", at(11), DELAY), Agent::Silent);
        assert_eq!(lives.next(at(3), DELAY), Some(Duration::from_secs(4)));
        see(&mut lives, Some(&lease("3", "a")), at(20));
        assert_eq!(lives.agent("n1", at(20), DELAY), Agent::Alive);
    }

    #[test]
    fn the_lease_says_how_long_its_node_may_answer_and_is_believed() {
        let (mut lives, start) = (Lives::default(), Moment::now());
        see(&mut lives, Some(&lease("1", "a")), start);
        let short = Duration::from_secs(3);
        let at = |seconds| lives.agent("n1", start + Duration::from_secs(seconds), short);
        assert_eq!([at(3), at(4), at(7), at(8)], [Agent::Alive, Agent::Doubtful, Agent::Doubtful, Agent::Silent]);
        let long = Duration::from_mins(1);
        assert_eq!(lives.agent("n1", start + Duration::from_secs(4), long), Agent::Doubtful, "whatever the delay is");
    }

    #[test]
    fn an_agent_that_ended_in_order_is_not_waited_for() {
        let (mut lives, start) = (Lives::default(), Moment::now());
        see(&mut lives, Some(&lease("1", "")), start);
        assert_eq!(lives.agent("n1", start, DELAY), Agent::Left);
    }

    #[test]
    fn a_restarted_controller_waits_the_whole_delay_and_so_does_one_that_was_blind() {
        let (mut lives, start) = (Lives::default(), Moment::now());
        see(&mut lives, Some(&lease("1", "a")), start);
        let later = start + DELAY * 2;
        assert_eq!(lives.agent("n1", later, DELAY), Agent::Silent);
        lives.restart(later);
        assert_eq!(lives.agent("n1", later, DELAY), Agent::Alive);
        assert_eq!(lives.agent("n1", later + DELAY, DELAY), Agent::Silent);
    }

    #[test]
    fn a_node_without_a_lease_gets_nothing() {
        let (mut lives, start) = (Lives::default(), Moment::now());
        see(&mut lives, None, start);
        assert_eq!(lives.agent("n1", start, DELAY), Agent::Doubtful);
        assert_eq!(lives.agent("n1", start + DELAY, DELAY), Agent::Silent);
        assert_eq!(lives.agent("n2", start, DELAY), Agent::Doubtful);
    }
}
