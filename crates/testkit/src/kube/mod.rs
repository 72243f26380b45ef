//! A Kubernetes control plane, as child processes.

mod control_plane;
mod flags;
mod gate;
mod kubeconfig;
mod proxy;
mod webhook;

pub use control_plane::{ControlPlane, Part};
pub use gate::{Closing, Gate};
pub use kubeconfig::Kubeconfig;
pub use proxy::{ProxyMode, proxy};
pub use webhook::Webhook;

use anyhow::Result;
use k8s_openapi::api::events::v1::Event;
use tokio::sync::OnceCell;

/// The control plane of this test binary, started by whoever asks first. It ends with the process.
///
/// Tests keep apart by [`ControlPlane::namespace`]. One that stops, kills or starves a part takes a
/// [`ControlPlane::start`] of its own.
pub async fn shared() -> Result<&'static ControlPlane> {
    static SHARED: OnceCell<ControlPlane> = OnceCell::const_new();
    SHARED.get_or_try_init(ControlPlane::start).await
}

/// Whether one of our controllers told this. The API server has Events of its own, also about Services: its repair of
/// cluster addresses speaks of one that it comes upon while it is made.
#[must_use]
pub fn is_told_by_us(event: &Event) -> bool {
    event.reporting_controller.as_ref().is_some_and(|by| by.starts_with("groundcrew.dev/"))
}
