//! A cluster whose Services are served by the cloud in memory.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use groundcrew_core::testing::MemoryCloud;
use groundcrew_testkit::eventually;
use groundcrew_testkit::kube::ControlPlane;
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use kube::api::ListParams;

use crate::world;

/// The data of a control plane with `n` Services that have an address, and their slices.
#[allow(clippy::print_stderr, reason = "minutes pass")]
pub(super) async fn saved(n: usize) -> Result<PathBuf> {
    world::kept("services", n, async || {
        let plane = ControlPlane::start_from(&world::created(n).await?).await?;
        eprintln!("... serving them ...");
        let cloud = MemoryCloud::default();
        let (_, running) = super::controller::start(plane.kubeconfig_path(), cloud.clone()).await?;
        let client = plane.client().await?;
        eventually("every Service has an address", Duration::from_mins(20), async || {
            let services: Api<Service> = Api::all(client.clone());
            let all = services.list(&ListParams::default()).await?;
            let served = all.items.iter().filter(|s| {
                let ingress = s.status.as_ref().and_then(|s| s.load_balancer.as_ref()?.ingress.as_ref());
                ingress.is_some_and(|i| !i.is_empty())
            });
            let served = served.count();
            tokio::time::sleep(Duration::from_millis(500)).await;
            if served == n { Ok(()) } else { Err(anyhow::anyhow!("{served} of {n}")) }
        })
        .await?;
        drop(running);
        Ok(plane)
    })
    .await
}
