//! The floor at the API server: the same requests at the same concurrency, by a client that does nothing else.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::Result;
use futures::{StreamExt, TryStreamExt, stream};
use groundcrew_api::eip::EIp;
use groundcrew_testkit::kube::ControlPlane;
use http::Method;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};

use super::{CLUSTER, CONCURRENCY};
use crate::core::list_all;
use crate::world::{CLASS, name, namespace};

/// Reads everything that the controller reads, once, and keeps nothing.
pub(crate) async fn list(client: &Client) -> Result<()> {
    tokio::try_join!(list_all::<Service>(client), list_all::<EndpointSlice>(client), list_all::<EIp>(client))?;
    Ok(())
}

/// How long that takes a process that was just started.
pub(crate) async fn cold_list(plane: &ControlPlane) -> Result<Duration> {
    let child = tokio::process::Command::new(std::env::current_exe()?)
        .args(["--ovn-lb-list-of".as_ref(), plane.kubeconfig_path().as_os_str()])
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let output = child.wait_with_output().await?;
    Ok(Duration::from_secs_f64(std::str::from_utf8(&output.stdout)?.trim().parse()?))
}

/// What `--ovn-lb-list-of` runs: prints the seconds.
#[allow(clippy::print_stdout, reason = "the other process reads it")]
pub(crate) async fn run_list(kubeconfig: &Path) -> Result<()> {
    let started = Instant::now();
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    list(&Client::try_from(config)?).await?;
    println!("{}", started.elapsed().as_secs_f64());
    Ok(())
}

const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const JSON: &str = "application/json";

/// Writes what the controller has to write for each of these Services before its row is committed.
pub(crate) async fn before_the_row(client: &Client, k: usize) -> Result<()> {
    let (namespace, name) = (namespace(k), name(k));
    let service = format!("/api/v1/namespaces/{namespace}/services/{name}");
    let claim = json!({ "metadata": {
        "annotations": { "groundcrew.dev/claimed-by": CLASS },
        "finalizers": ["service.kubernetes.io/load-balancer-cleanup"],
    }});
    send(client, Method::PATCH, &service, STRATEGIC, &claim).await?;
    let eips = format!("/apis/kube-dc.com/v1/namespaces/{namespace}/eips");
    let eip = json!({
        "apiVersion": "kube-dc.com/v1", "kind": "EIp", "spec": {},
        "metadata": {
            "name": format!("slb-{name}-0123abcd"), "namespace": namespace,
            "labels": { "groundcrew.dev/cluster": CLUSTER, "groundcrew.dev/owner-uid": "2a5a3d3c-9f0e-4c59-8ac3-1f1d5f7a2f11" },
            "annotations": { "groundcrew.dev/owner": format!("{namespace}/{name}") },
            "finalizers": ["groundcrew.dev/eip"],
        },
    });
    send(client, Method::POST, &eips, JSON, &eip).await?;
    let status = json!({ "status": {
        "ipAddress": address(k), "ovnEIpRef": "bench", "ownershipType": "Shared",
        "owners": [{ "type": "ServiceLb", "ownerRef": name }], "deleteReleased": true, "ready": true,
        "conditions": [{
            "type": "Ready", "status": "True", "reason": "Assigned", "lastTransitionTime": "2026-01-01T00:00:00Z",
            "message": format!("{} belongs to this EIp until it is deleted", address(k)),
        }],
    }});
    send(client, Method::PATCH, &format!("{eips}/slb-{name}-0123abcd/status"), MERGE, &status).await
}

/// Writes what follows it.
pub(crate) async fn after_the_row(client: &Client, k: usize) -> Result<()> {
    let path = format!("/api/v1/namespaces/{}/services/{}/status", namespace(k), name(k));
    let status = json!({ "status": {
        "loadBalancer": { "ingress": [{ "ip": address(k), "ipMode": "Proxy" }] },
        "conditions": [{
            "type": "groundcrew.dev/Ready", "status": "True", "reason": "Served", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }],
    }});
    send(client, Method::PATCH, &path, STRATEGIC, &status).await
}

/// How many requests these two are.
pub(crate) const WRITES: u32 = 4;

/// All writes for all of these Services, as many at once as the controller has under way.
pub(crate) async fn serve(client: &Client, services: impl Iterator<Item = usize>) -> Result<()> {
    let one = |k| async move {
        before_the_row(client, k).await?;
        after_the_row(client, k).await
    };
    stream::iter(services).map(one).buffer_unordered(CONCURRENCY).try_collect().await
}

/// Takes them away again, finalizers and all.
pub(crate) async fn unserve(client: &Client, services: impl Iterator<Item = usize>) -> Result<()> {
    let one = |k| async move {
        let (namespace, name) = (namespace(k), name(k));
        let paths = [
            format!("/apis/kube-dc.com/v1/namespaces/{namespace}/eips/slb-{name}-0123abcd"),
            format!("/api/v1/namespaces/{namespace}/services/{name}"),
        ];
        for path in paths {
            send(client, Method::PATCH, &path, MERGE, &json!({ "metadata": { "finalizers": null } })).await?;
            send(client, Method::DELETE, &path, JSON, &json!({})).await?;
        }
        anyhow::Ok(())
    };
    stream::iter(services).map(one).buffer_unordered(CONCURRENCY).try_collect().await
}

fn address(k: usize) -> String {
    format!("100.65.{}.{}", k / 256 % 256, k % 256)
}

/// The answer is read and not looked at.
pub(crate) async fn send(client: &Client, method: Method, path: &str, kind: &str, body: &Value) -> Result<()> {
    let request = http::Request::builder().method(method).uri(path).header("content-type", kind);
    client.request_text(request.body(body.to_string().into_bytes())?).await?;
    Ok(())
}
