//! How near a router is to its limit. A router that is full takes no route, and the next Node gets no traffic.

use groundcrew_core::provider::RouteLimit;

/// A tenth of the limit, and never fewer than this: one more scale-up.
const RESERVE: u64 = 3;

/// Routes that a router has and needs, against those that it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Headroom {
    /// Routes that are there, whoever's.
    pub used: u64,
    /// Routes that Nodes want and are not there yet.
    pub missing: u64,
    /// The most that it takes; `None` where there is no limit.
    pub limit: Option<u64>,
}

impl Headroom {
    /// What the cloud does not tell, the operator does.
    #[must_use]
    pub fn new(used: usize, missing: usize, told: RouteLimit, configured: u64) -> Self {
        let count = |n| u64::try_from(n).unwrap_or(u64::MAX);
        let limit = match told {
            RouteLimit::At(limit) => Some(limit),
            RouteLimit::Untold => Some(configured),
            RouteLimit::Unlimited => None,
        };
        Self { used: count(used), missing: count(missing), limit }
    }

    /// Whether a few more Nodes would be too many, or some are already.
    #[must_use]
    pub fn is_short(&self) -> bool {
        self.limit.is_some_and(|limit| self.used + self.missing + RESERVE.max(limit / 10) > limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_short_before_it_is_full() {
        let at = |used| Headroom::new(used, 0, RouteLimit::At(31), 1);
        assert!(!at(28).is_short());
        assert!(at(29).is_short());
        assert!(at(31).is_short());
    }

    #[test]
    fn nodes_that_wait_for_their_route_count() {
        assert!(Headroom::new(20, 9, RouteLimit::At(31), 1).is_short());
    }

    #[test]
    fn a_large_limit_keeps_a_tenth() {
        assert!(!Headroom::new(460, 0, RouteLimit::At(512), 1).is_short());
        assert!(Headroom::new(462, 0, RouteLimit::At(512), 1).is_short());
    }

    #[test]
    fn the_configured_limit_counts_only_where_the_cloud_is_silent() {
        assert_eq!(Headroom::new(1, 0, RouteLimit::Untold, 31).limit, Some(31));
        assert_eq!(Headroom::new(1, 0, RouteLimit::At(30), 31).limit, Some(30));
        assert!(!Headroom::new(100_000, 0, RouteLimit::Unlimited, 31).is_short());
    }
}
