//! What the controller can be told. Each flag has an environment twin.

use std::time::Duration;

use groundcrew_core::runtime::interval;

use super::observe::Leases;

/// Flags of `groundcrew deorbit-controller`, and of those commands of `groundcrew deorbit` that look at the cluster.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Deorbit options")]
#[group(id = "deorbit")]
pub struct Args {
    /// How long to wait between two looks while nothing moves. While less is left each time, the next comes sooner
    #[arg(long, env = "GROUNDCREW_INTERVAL", value_name = "TIME", default_value = "1s", value_parser = interval)]
    pub interval: Duration,

    /// The Lease of the cloud controller manager, by which it shows that it lives
    #[arg(
        long,
        env = "GROUNDCREW_CCM_LEASE",
        value_name = "NAMESPACE/NAME",
        default_value = "kube-system/cloud-controller-manager"
    )]
    pub ccm_lease: String,

    /// The Lease of the volume driver's provisioner
    #[arg(
        long,
        env = "GROUNDCREW_CSI_LEASE",
        value_name = "NAMESPACE/NAME",
        default_value = "kube-system/cinder-csi-openstack-org"
    )]
    pub csi_lease: String,

    /// The Lease of the snapshot controller
    #[arg(
        long,
        env = "GROUNDCREW_SNAPSHOT_LEASE",
        value_name = "NAMESPACE/NAME",
        default_value = "kube-system/snapshot-controller-leader"
    )]
    pub snapshot_lease: String,
}

impl Args {
    /// The Leases.
    #[must_use]
    pub fn leases(&self) -> Leases {
        Leases {
            balancers: self.ccm_lease.clone(),
            volumes: self.csi_lease.clone(),
            snapshots: self.snapshot_lease.clone(),
        }
    }
}
