//! What a cluster leaves in its OpenStack project.
//!
//! Two controllers of the cluster made it, and each writes a name of the cluster of its own on it: the cloud controller
//! manager its `--cluster-name`, the Cinder driver its `--cluster`. They need not be the same.

mod marks;
mod services;
mod volumes;

use groundcrew_core::provider::{ErrorKind, Leftover, ProviderError};

pub use services::ServiceLeftovers;
pub use volumes::VolumeLeftovers;

/// A service that an OpenStack need not have. Told by an operator: a catalog that lacks it may be that of a wrong region.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Absent {
    /// There is no Octavia.
    LoadBalancers,
    /// Cinder has no backups.
    Backups,
}

fn not_ours(leftover: &Leftover) -> ProviderError {
    let message = format!("{} {} does not carry this cluster's mark any more", leftover.kind.name, leftover.id);
    ProviderError::new(ErrorKind::Denied, message)
}

fn in_use(message: String) -> ProviderError {
    ProviderError::new(ErrorKind::Conflict, message).with_reason("InUse")
}
