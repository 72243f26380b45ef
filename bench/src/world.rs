//! Clusters with many Services, made once for this machine and kept: creating ten thousand takes the API server minutes.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt, stream};
use groundcrew_testkit::kube::ControlPlane;
use k8s_openapi::api::core::v1::{Namespace, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::json;

pub(crate) const CLASS: &str = "groundcrew.dev/bench";
pub(crate) const NAMESPACES: usize = 100;
/// Backends of each Service.
pub(crate) const BACKENDS: usize = 3;
const WORKERS: usize = 50;
/// Moves when the objects below change.
const EDITION: u32 = 1;

/// The data of the control plane that `make` makes, kept under the name of its kind. The kind's name changes when what is
/// made does.
pub(crate) async fn kept(kind: &str, n: usize, make: impl AsyncFnOnce() -> Result<ControlPlane>) -> Result<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache"))).context("no HOME")?;
    let directory = cache.join("groundcrew").join("bench");
    std::fs::create_dir_all(&directory)?;
    let kept = directory.join(format!("{kind}-{EDITION}-{n}"));
    if !kept.exists() {
        make().await?.save(&kept).await?;
    }
    Ok(kept)
}

/// `n` Services that nobody serves, with their slices, over [`NAMESPACES`] namespaces.
#[allow(clippy::print_stderr, reason = "minutes pass")]
pub(crate) async fn created(n: usize) -> Result<PathBuf> {
    kept("created", n, async || {
        eprintln!("making {n} Services, once for this machine: about 5 minutes for 10 000 ...");
        let plane = ControlPlane::start().await?;
        create(&plane.client().await?, n).await?;
        Ok(plane)
    })
    .await
}

#[allow(clippy::print_stderr, reason = "minutes pass")]
async fn create(client: &Client, n: usize) -> Result<()> {
    let started = Instant::now();
    make_namespaces(client).await?;
    let one = |k: usize| async move {
        let namespace = namespace(k);
        Api::namespaced(client.clone(), &namespace).create(&PostParams::default(), &service(k)?).await?;
        Api::namespaced(client.clone(), &namespace).create(&PostParams::default(), &slice(k)?).await?;
        if k % 1_000 == 999 {
            eprintln!("... {} of {n} after {} s", k + 1, started.elapsed().as_secs());
        }
        anyhow::Ok(())
    };
    stream::iter(0..n).map(one).buffer_unordered(WORKERS).try_collect::<()>().await
}

pub(crate) async fn make_namespaces(client: &Client) -> Result<()> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    for k in 0..NAMESPACES {
        let namespace = serde_json::from_value(json!({ "metadata": { "name": namespace(k) } }))?;
        namespaces.create(&PostParams::default(), &namespace).await?;
    }
    Ok(())
}

/// The namespace of Service `k`.
pub(crate) fn namespace(k: usize) -> String {
    format!("tenant-{:03}", k % NAMESPACES)
}

pub(crate) fn name(k: usize) -> String {
    format!("service-{k:05}")
}

pub(crate) fn service(k: usize) -> Result<Service> {
    let name = name(k);
    Ok(serde_json::from_value(json!({
        "metadata": { "name": name, "labels": { "app": name } },
        "spec": {
            "type": "LoadBalancer", "loadBalancerClass": CLASS, "allocateLoadBalancerNodePorts": false,
            "selector": { "app": name },
            "ports": [
                { "name": "http", "port": 80, "targetPort": 8080 },
                { "name": "https", "port": 443, "targetPort": 8443 },
            ],
        },
    }))?)
}

/// The name of Service `k`'s only slice.
pub(crate) fn slice_name(k: usize) -> String {
    format!("{}-abcde", name(k))
}

pub(crate) fn slice(k: usize) -> Result<EndpointSlice> {
    let (name, namespace) = (name(k), namespace(k));
    let endpoints: Vec<_> = (0..BACKENDS)
        .map(|e| {
            json!({
                "addresses": [format!("10.{}.{}.{}", 128 + k / 16_384, k / 64 % 256, k % 64 * 4 + e)],
                "conditions": { "ready": true, "serving": true, "terminating": false },
                "nodeName": format!("node-{:02}", (k + e) % 50),
                "targetRef": { "kind": "Pod", "namespace": namespace, "name": format!("{name}-{e}") },
            })
        })
        .collect();
    Ok(serde_json::from_value(json!({
        "metadata": { "name": slice_name(k), "labels": { "kubernetes.io/service-name": name, "app": name } },
        "addressType": "IPv4",
        "ports": [{ "name": "http", "port": 8080, "protocol": "TCP" }, { "name": "https", "port": 8443, "protocol": "TCP" }],
        "endpoints": endpoints,
    }))?)
}
