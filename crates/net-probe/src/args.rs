//! What the probe can be told. Each flag has an environment twin.

use std::time::Duration;

use groundcrew_core::runtime::{duration, interval};

/// Flags of `groundcrew net-probe`.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Probe options")]
#[group(id = "net-probe")]
pub struct Args {
    /// The node that this pod runs on
    #[arg(long, env = "GROUNDCREW_NODE_NAME", value_name = "NAME")]
    pub node_name: String,

    /// This pod; with --pod-uid, its Lease goes when it goes
    #[arg(long, env = "GROUNDCREW_POD_NAME", value_name = "NAME", requires = "pod_uid")]
    pub pod_name: Option<String>,

    /// The uid of this pod
    #[arg(long, env = "GROUNDCREW_POD_UID", value_name = "UID", requires = "pod_name")]
    pub pod_uid: Option<String>,

    /// The headless Service in front of all probes, in the namespace of the Lease
    #[arg(long, env = "GROUNDCREW_SERVICE", value_name = "NAME", default_value = "groundcrew-net-probe")]
    pub service: String,

    /// How many others each probe asks
    #[arg(long, env = "GROUNDCREW_PEERS", value_name = "N", default_value = "8")]
    pub peers: usize,

    /// How often to ask
    #[arg(long, env = "GROUNDCREW_INTERVAL", value_name = "TIME", default_value = "10s", value_parser = interval)]
    pub interval: Duration,

    /// How long to wait for an answer
    #[arg(long, env = "GROUNDCREW_TIMEOUT", value_name = "TIME", default_value = "2s", value_parser = duration)]
    pub timeout: Duration,

    /// How often in a row another must not answer before it counts as not reached
    #[arg(long, env = "GROUNDCREW_FAILURES", value_name = "N", default_value = "3")]
    pub failures: u32,
}
