//! `groundcrew deorbit plan` on a large cluster, as a person waits for it.

use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures::stream::{self, StreamExt};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod, Service};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use super::calls::pass;
use super::rig::{CLUSTER, CSI, Rig, claim};
use super::standins::DRIVER;
use crate::process::memory;
use crate::report::Report;

const ROUNDS: usize = 3;

#[allow(clippy::cast_precision_loss, reason = "a count")]
pub(super) async fn run(objects: usize, report: &mut Report) -> Result<()> {
    let rig = Rig::start(&[]).await?;
    fill(&rig, objects / 5).await?;
    let (mut times, mut most) = (Vec::new(), 0.0_f64);
    for _ in 0..ROUNDS {
        let (took, peak) = plan(&rig, objects / 5).await?;
        times.push(took);
        most = most.max(peak);
    }
    times.sort_unstable();
    report.below("a plan", objects, "s", times[ROUNDS / 2].as_secs_f64(), 1.0);
    report.below("memory of a plan", objects, "MiB", most, 100.0);
    // A page of 500 each.
    report.told("lists of a plan", objects, "", pass(&rig).await?.lists() as f64);
    Ok(())
}

/// As many claims as volumes, pods that use them, Services with load balancers, and Deployments.
async fn fill(rig: &Rig, each: usize) -> Result<()> {
    let names: Vec<_> = (0..each).map(|n| format!("one-{n}")).collect();
    let container = json!([{"name": "c", "image": "none"}]);
    let handles: Vec<_> = stream::iter(&names).then(|name| rig.place.volume(CSI, name)).collect().await;
    let namespace = &rig.namespace;
    let volumes = names.iter().zip(&handles).map(|(name, handle)| {
        json!({"metadata": {"name": name}, "spec": {"capacity": {"storage": "10Gi"}, "accessModes": ["ReadWriteOnce"],
            "storageClassName": "cinder", "persistentVolumeReclaimPolicy": "Delete",
            "csi": {"driver": DRIVER, "volumeHandle": handle},
            "claimRef": {"namespace": namespace, "name": name}}})
    });
    rig.make::<PersistentVolume>(&Api::all(rig.client.clone()), volumes.collect()).await?;
    let claims = names.iter().map(|name| {
        let mut claim = claim(name, "cinder");
        claim["spec"]["volumeName"] = json!(name);
        claim
    });
    rig.make::<PersistentVolumeClaim>(&rig.api(), claims.collect()).await?;
    let pods = names.iter().map(|name| {
        json!({"metadata": {"name": name}, "spec": {"containers": container,
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]}})
    });
    rig.make::<Pod>(&rig.api(), pods.collect()).await?;
    let deployments = names.iter().map(|name| {
        let labels = json!({"app": name});
        json!({"metadata": {"name": name}, "spec": {"selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": container}}}})
    });
    rig.make::<Deployment>(&rig.api(), deployments.collect()).await?;
    let services = names.iter().map(|name| {
        json!({"metadata": {"name": name}, "spec": {"type": "LoadBalancer", "ports": [{"port": 80}],
            "allocateLoadBalancerNodePorts": false}})
    });
    for service in rig.make::<Service>(&rig.api(), services.collect()).await? {
        rig.place.balancer(CLUSTER, namespace, &service.name_any(), &service.uid().unwrap_or_default()).await;
    }
    Ok(())
}

/// How long it took, and the most memory that it had.
async fn plan(rig: &Rig, each: usize) -> Result<(Duration, f64)> {
    let mut command = rig.command(&["deorbit", "plan", "--output", "json"])?;
    let to = rig.dir.path().join("plan.json");
    command.stdout(std::fs::File::create(&to)?).stderr(Stdio::null());
    let measured = tokio::task::spawn_blocking(move || {
        let began = Instant::now();
        let mut child = command.spawn()?;
        let mut most = 0.0_f64;
        loop {
            if let Some(status) = child.try_wait()? {
                ensure!(status.success(), "the plan ended with {status}");
                return Ok((began.elapsed(), most));
            }
            most = most.max(memory(child.id(), "VmHWM:").unwrap_or_default());
            std::thread::sleep(Duration::from_millis(2));
        }
    });
    let measured = measured.await??;
    let plan: Value = serde_json::from_slice(&std::fs::read(&to)?)?;
    let of = |kind: &str| plan["plan"].as_array().into_iter().flatten().find(|line| line["kind"] == kind);
    for kind in ["PersistentVolumeClaim", "PersistentVolume", "Service", "Pod"] {
        ensure!(of(kind).is_some_and(|line| line["count"] == each), "{kind}: {:?}", of(kind));
    }
    Ok(measured)
}
