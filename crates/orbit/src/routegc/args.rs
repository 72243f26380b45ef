//! What the collector can be told. Each flag has an environment twin.

use std::time::Duration;

use groundcrew_core::runtime::{duration, interval};
use ipnet::IpNet;

use super::rules::Rules;
use crate::flags::{percent, pod_cidr};

/// Flags of `groundcrew routegc`.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Route options")]
#[group(id = "routegc")]
pub struct Args {
    /// The ranges of the cluster's pods, as the cloud controller manager's --cluster-cidr. No route outside them is touched
    #[arg(long, env = "GROUNDCREW_POD_CIDR", value_name = "CIDR", value_delimiter = ',', required = true, value_parser = pod_cidr)]
    pub pod_cidr: Vec<IpNet>,

    /// Ids of the routers that carry the pods' routes; without it the one on the Nodes' subnets
    #[arg(long, env = "GROUNDCREW_ROUTER", value_name = "ID", value_delimiter = ',')]
    pub router: Vec<String>,

    /// How often to look
    #[arg(long, env = "GROUNDCREW_INTERVAL", value_name = "TIME", default_value = "5m", value_parser = interval)]
    pub interval: Duration,

    /// How often in a row something must look stale before it is removed
    #[arg(long, env = "GROUNDCREW_SIGHTINGS", value_name = "N", default_value = "3", value_parser = clap::value_parser!(u32).range(2..))]
    pub sightings: u32,

    /// For how long it must have looked stale
    #[arg(long, env = "GROUNDCREW_MIN_AGE", value_name = "TIME", default_value = "10m", value_parser = duration)]
    pub min_age: Duration,

    /// The most removals of one pass; if there are more, none is made
    #[arg(long, env = "GROUNDCREW_MAX_REMOVALS", value_name = "N", default_value = "10")]
    pub max_removals: usize,

    /// The most percent of a router's pod routes that go in one pass, likewise; one route may always go
    #[arg(long, env = "GROUNDCREW_MAX_PERCENT", value_name = "N", default_value = "30", value_parser = percent)]
    pub max_percent: usize,

    /// How many routes a router takes, where the cloud has no quota that says so
    #[arg(long, env = "GROUNDCREW_ROUTE_LIMIT", value_name = "N", default_value = "31")]
    pub route_limit: u64,

    /// On a cloud that cannot remove single routes, write whole lists. Another writer's route may be lost for a moment
    #[arg(long, env = "GROUNDCREW_ALLOW_WHOLE_LIST_WRITES")]
    pub allow_whole_list_writes: bool,
}

impl Args {
    /// What they mean.
    #[must_use]
    pub fn rules(&self) -> Rules {
        Rules {
            pod_ranges: self.pod_cidr.clone(),
            sightings: self.sightings,
            min_age: self.min_age,
            max_removals: self.max_removals,
            max_percent: self.max_percent,
            route_limit: self.route_limit,
            whole_lists: self.allow_whole_list_writes,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn line(flags: &[&str]) -> Result<Args, String> {
        let line = Line::try_parse_from(["test"].iter().chain(flags));
        line.map(|line| line.args).map_err(|error| error.to_string())
    }

    #[test]
    fn what_would_remove_too_much_or_too_soon_is_refused() {
        for (flags, word) in [
            (&[][..], "--pod-cidr"),
            (&["--pod-cidr", "0.0.0.0/0"], "all addresses"),
            (&["--pod-cidr", "10.1.2.3/16"], "did you mean 10.1.0.0/16?"),
            (&["--pod-cidr", "10.1.0.0"], "10.244.0.0/16"),
            (&["--pod-cidr", "10.1.0.0/16", "--sightings", "1"], "--sightings"),
            (&["--pod-cidr", "10.1.0.0/16", "--max-percent", "101"], "1 to 100"),
            (&["--pod-cidr", "10.1.0.0/16", "--interval", "0s"], "longer than nothing"),
        ] {
            let said = line(flags).unwrap_err();
            assert!(said.contains(word), "{flags:?}: {said}");
        }
    }

    #[test]
    fn both_families_are_one_flag() {
        let args = line(&["--pod-cidr", "10.1.0.0/16,fd00:1::/48"]).unwrap();
        assert_eq!(args.rules().pod_ranges.len(), 2);
    }
}
