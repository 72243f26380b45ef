//! A cluster with many served Services, made once and kept.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt, stream};
use groundcrew_core::testing::MemoryCloud;
use groundcrew_testkit::eventually;
use groundcrew_testkit::kube::ControlPlane;
use k8s_openapi::api::core::v1::{Namespace, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{ListParams, PostParams};
use kube::{Api, Client};
use serde_json::json;

pub(super) const CLASS: &str = "groundcrew.dev/bench";
const NAMESPACES: usize = 100;
const WORKERS: usize = 50;
/// Moves when the objects below change.
const EDITION: u32 = 1;

/// The data of a control plane with `n` Services that have an address, and their slices.
#[allow(clippy::print_stderr, reason = "minutes pass")]
pub(super) async fn saved(n: usize) -> Result<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache"))).context("no HOME")?;
    let directory = cache.join("groundcrew").join("bench");
    std::fs::create_dir_all(&directory)?;
    let saved = directory.join(format!("services-{EDITION}-{n}"));
    if saved.exists() {
        return Ok(saved);
    }
    eprintln!("making {n} Services, once for this machine: about 5 minutes for 10 000 ...");
    let plane = ControlPlane::start().await?;
    create(&plane.client().await?, n).await?;

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
    plane.save(&saved).await?;
    Ok(saved)
}

#[allow(clippy::print_stderr, reason = "minutes pass")]
async fn create(client: &Client, n: usize) -> Result<()> {
    let started = Instant::now();
    let namespaces: Api<Namespace> = Api::all(client.clone());
    for k in 0..NAMESPACES {
        let namespace = serde_json::from_value(json!({ "metadata": { "name": format!("tenant-{k:03}") } }))?;
        namespaces.create(&PostParams::default(), &namespace).await?;
    }
    let one = |k: usize| async move {
        let (namespace, name) = (format!("tenant-{:03}", k % NAMESPACES), format!("service-{k:05}"));
        let service: Service = serde_json::from_value(json!({
            "metadata": { "name": name, "labels": { "app": name } },
            "spec": {
                "type": "LoadBalancer", "loadBalancerClass": CLASS, "allocateLoadBalancerNodePorts": false,
                "selector": { "app": name },
                "ports": [
                    { "name": "http", "port": 80, "targetPort": 8080 },
                    { "name": "https", "port": 443, "targetPort": 8443 },
                ],
            },
        }))?;
        let endpoints: Vec<_> = (0..3)
            .map(|e| {
                json!({
                    "addresses": [format!("10.{}.{}.{}", 128 + k / 16_384, k / 64 % 256, k % 64 * 4 + e)],
                    "conditions": { "ready": true, "serving": true, "terminating": false },
                    "nodeName": format!("node-{:02}", (k + e) % 50),
                    "targetRef": { "kind": "Pod", "namespace": namespace, "name": format!("{name}-{e}") },
                })
            })
            .collect();
        let slice: EndpointSlice = serde_json::from_value(json!({
            "metadata": { "name": format!("{name}-abcde"), "labels": { "kubernetes.io/service-name": name, "app": name } },
            "addressType": "IPv4",
            "ports": [{ "name": "http", "port": 8080, "protocol": "TCP" }, { "name": "https", "port": 8443, "protocol": "TCP" }],
            "endpoints": endpoints,
        }))?;
        Api::namespaced(client.clone(), &namespace).create(&PostParams::default(), &service).await?;
        Api::namespaced(client.clone(), &namespace).create(&PostParams::default(), &slice).await?;
        if k % 1_000 == 999 {
            eprintln!("... {} of {n} after {} s", k + 1, started.elapsed().as_secs());
        }
        anyhow::Ok(())
    };
    stream::iter(0..n).map(one).buffer_unordered(WORKERS).try_collect::<()>().await
}
