//! Flags that every controller has. Each has an environment twin.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use tracing_subscriber::EnvFilter;

use super::logs::LogFormat;

/// What every controller can be told.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Common options")]
pub struct RuntimeArgs {
    /// kubeconfig file; without it what KUBECONFIG names, ~/.kube/config, or the pod's own credentials
    #[arg(long, env = "GROUNDCREW_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Context within the kubeconfig
    #[arg(long, env = "GROUNDCREW_CONTEXT", value_name = "NAME")]
    pub context: Option<String>,

    /// Name of this cluster in the marks on everything outside; without it the uid of the kube-system namespace
    #[arg(long, env = "GROUNDCREW_CLUSTER_ID", value_name = "ID", value_parser = cluster_id)]
    pub cluster_id: Option<String>,

    /// Where /healthz, /readyz and /metrics are served; `[::]` is everybody, of IPv4 and of IPv6
    #[arg(long, env = "GROUNDCREW_ADMIN_ADDRESS", value_name = "ADDRESS", default_value = "[::]:8080")]
    pub admin_address: SocketAddr,

    /// Where the status page is served, or off; without it on port 8081 of this machine alone, if that is free
    #[arg(long, env = "GROUNDCREW_STATUS_ADDRESS", value_name = "ADDRESS|off", value_parser = status_address)]
    pub status_address: Option<StatusAddress>,

    /// What to log: a level, or a filter such as `info,groundcrew_core=debug`
    #[arg(long, env = "GROUNDCREW_LOG", value_name = "FILTER", default_value = "info", value_parser = filter)]
    pub log: String,

    /// How log lines look
    #[arg(long, env = "GROUNDCREW_LOG_FORMAT", value_name = "FORMAT", default_value = "auto")]
    pub log_format: LogFormat,

    /// Show what would be done, and write nothing anywhere
    #[arg(long, env = "GROUNDCREW_DRY_RUN")]
    pub dry_run: bool,

    /// Run alone, without a Lease. Only where never more than one copy runs
    #[arg(long, env = "GROUNDCREW_NO_LEADER_ELECTION")]
    pub no_leader_election: bool,

    /// Namespace of the Lease; without it the pod's own
    #[arg(long, env = "GROUNDCREW_LEASE_NAMESPACE", value_name = "NAMESPACE")]
    pub lease_namespace: Option<String>,

    /// How long a dead leader is waited for, in whole seconds
    #[arg(long, env = "GROUNDCREW_LEASE_DURATION", value_name = "TIME", default_value = "15s", value_parser = lease)]
    pub lease_duration: Duration,

    /// How long work under way may take to finish after SIGTERM; keep the pod's grace period 5 s longer
    #[arg(long, env = "GROUNDCREW_SHUTDOWN_BUDGET", value_name = "TIME", default_value = "20s", value_parser = duration)]
    pub shutdown_budget: Duration,
}

/// Where the status page is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatusAddress {
    /// Nowhere.
    Off,
    /// There. Whoever reaches it can read it.
    At(SocketAddr),
}

fn status_address(text: &str) -> Result<StatusAddress, String> {
    match text {
        "off" => Ok(StatusAddress::Off),
        address => address.parse().map(StatusAddress::At).map_err(|_| "write it as 127.0.0.1:8081, or off".into()),
    }
}

/// A duration as people write it: `500ms`, `15s`, `2m`, `1h`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let millis = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err("write it as 500ms, 15s, 2m or 1h".into()),
    };
    let number: u64 = number.parse().map_err(|_| "write it as 500ms, 15s, 2m or 1h")?;
    number.checked_mul(millis).map(Duration::from_millis).ok_or_else(|| "too long".into())
}

/// A duration between two rounds: without a pause it would be a busy loop.
pub fn interval(text: &str) -> Result<Duration, String> {
    let interval = duration(text)?;
    if interval.is_zero() { Err("it must be longer than nothing".into()) } else { Ok(interval) }
}

fn lease(text: &str) -> Result<Duration, String> {
    let lease = duration(text)?;
    if lease.subsec_nanos() != 0 || lease < Duration::from_secs(3) || lease > Duration::from_hours(1) {
        return Err("a lease lasts whole seconds, from 3s to 1h".into());
    }
    Ok(lease)
}

fn filter(text: &str) -> Result<String, String> {
    EnvFilter::try_new(text).map(|_| text.to_owned()).map_err(|error| error.to_string())
}

/// It becomes part of keys and of names outside, so it keeps to what all of them allow.
fn cluster_id(text: &str) -> Result<String, String> {
    let fine = (1..=63).contains(&text.len())
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
        && !text.starts_with('-')
        && !text.ends_with('-');
    if fine { Ok(text.to_owned()) } else { Err("use 1 to 63 of a-z, 0-9 and -, not - at either end".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_people_write_them() {
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("2m"), Ok(Duration::from_mins(2)));
        for bad in ["", "5", "s", "5 s", "-5s", "5d", "99999999999999999999s"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn rounds_without_a_pause_are_refused() {
        assert!(interval("0s").is_err());
        assert_eq!(interval("50ms"), Ok(Duration::from_millis(50)));
    }

    #[test]
    fn the_status_page_is_somewhere_or_off() {
        assert_eq!(status_address("off"), Ok(StatusAddress::Off));
        assert_eq!(status_address("[::1]:80"), Ok(StatusAddress::At("[::1]:80".parse().unwrap())));
        assert!(status_address("8081").is_err());
    }

    #[test]
    fn a_lease_too_short_to_write_in_is_refused() {
        assert!(lease("2s").is_err());
        assert!(lease("3500ms").is_err());
        assert_eq!(lease("3s"), Ok(Duration::from_secs(3)));
    }

    #[test]
    fn a_cluster_id_fits_wherever_it_is_written() {
        assert!(cluster_id("prod-1").is_ok());
        for bad in ["", "Prod", "a_b", "-a", "a-", "a/b", &"a".repeat(64)] {
            assert!(cluster_id(bad).is_err(), "{bad}");
        }
    }
}
