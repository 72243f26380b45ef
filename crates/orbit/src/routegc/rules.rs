//! What the collector is told by its operator.

use std::time::Duration;

use ipnet::IpNet;

/// What may be removed, when, and how much of it at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// The ranges of the cluster's pods. Nothing outside them is ever touched.
    pub pod_ranges: Vec<IpNet>,
    /// How often in a row something must be seen before it goes.
    pub sightings: u32,
    /// How long ago it must have been seen first.
    pub min_age: Duration,
    /// The most routes that may go in one pass.
    pub max_removals: usize,
    /// The most percent of a router's pod routes that may go in one pass. At least one may.
    pub max_percent: usize,
    /// How many routes a router takes where the cloud does not say.
    pub route_limit: u64,
    /// Whether a cloud that cannot remove single routes gets whole lists.
    pub whole_lists: bool,
}

impl Rules {
    /// Whether pods may have addresses of this range.
    pub(crate) fn is_pods(&self, range: IpNet) -> bool {
        self.pod_ranges.iter().any(|pods| pods.contains(&range))
    }

    /// Whether some of this range are pods' addresses, and some are not.
    pub(crate) fn reaches_pods(&self, range: IpNet) -> bool {
        self.pod_ranges.iter().any(|pods| range.contains(pods))
    }

    /// The most routes that may go at once from a router with so many pod routes.
    pub(crate) fn limit(&self, pod_routes: usize) -> usize {
        self.max_removals.min((pod_routes * self.max_percent).div_ceil(100))
    }
}
