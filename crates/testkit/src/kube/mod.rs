//! A Kubernetes control plane, as child processes.

mod control_plane;
mod flags;
mod kubeconfig;
mod proxy;
mod webhook;

pub use control_plane::{ControlPlane, Part};
pub use kubeconfig::Kubeconfig;
pub use proxy::{ProxyMode, proxy};
pub use webhook::Webhook;

use anyhow::Result;
use tokio::sync::OnceCell;

/// The control plane of this test binary, started by whoever asks first. It ends with the process.
///
/// Tests keep apart by [`ControlPlane::namespace`]. One that stops, kills or starves a part takes a
/// [`ControlPlane::start`] of its own.
pub async fn shared() -> Result<&'static ControlPlane> {
    static SHARED: OnceCell<ControlPlane> = OnceCell::const_new();
    SHARED.get_or_try_init(ControlPlane::start).await
}
