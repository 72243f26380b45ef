//! What one pass asks Kubernetes and the cloud for: one list of each kind, however much is there that it leaves alone.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Service};
use serde_json::{Value, json};

use super::rig::{Rig, claim};
use crate::report::Report;
use crate::rig::writes::lists;

const KINDS: [&str; 12] = [
    "services",
    "ingresses",
    "persistentvolumes",
    "persistentvolumeclaims",
    "volumeattachments",
    "storageclasses",
    "pods",
    "deployments",
    "statefulsets",
    "replicasets",
    "jobs",
    "cronjobs",
];
const FEW: usize = 12;

#[allow(clippy::cast_precision_loss, reason = "counts")]
pub(super) async fn run(many: usize, report: &mut Report) -> Result<()> {
    let rig = Rig::start(&[]).await?;
    fill(&rig, 0..FEW / 4).await?;
    let (few, few_outside) = pass(&rig).await?;
    fill(&rig, FEW / 4..many / 4).await?;
    let (now, outside) = pass(&rig).await?;
    for (kind, count) in &few {
        ensure!(*count == 1, "{count} lists of {kind} with {FEW} objects");
    }
    let total = |lists: &BTreeMap<_, usize>| lists.values().sum::<usize>() as f64;
    report.at_most("lists of a pass", many, "", total(&now), total(&few));
    report.at_most("calls of the cloud by a pass", many, "", outside as f64, few_outside as f64);
    Ok(())
}

/// Objects that a Deorbit leaves alone, four kinds of them.
async fn fill(rig: &Rig, numbers: std::ops::Range<usize>) -> Result<()> {
    let pod = json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "none"}]});
    let named = |n: usize| json!({"name": format!("clean-{n}")});
    let all = |make: &dyn Fn(usize) -> Value| numbers.clone().map(make).collect::<Vec<_>>();
    let services = all(&|n| json!({"metadata": named(n), "spec": {"ports": [{"port": 80}]}}));
    rig.make::<Service>(&rig.api(), services).await?;
    rig.make::<PersistentVolumeClaim>(&rig.api(), all(&|n| claim(&format!("clean-{n}"), "nfs"))).await?;
    let deployments = all(&|n| {
        let labels = json!({"app": format!("clean-{n}")});
        let spec = json!({"containers": [{"name": "c", "image": "none"}]});
        json!({"metadata": named(n), "spec": {"selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec}}})
    });
    rig.make::<Deployment>(&rig.api(), deployments).await?;
    let jobs = all(&|n| json!({"metadata": named(n), "spec": {"template": {"spec": pod}}}));
    rig.make::<Job>(&rig.api(), jobs).await?;
    Ok(())
}

/// The lists that one look takes, by kind, and the calls of the cloud.
async fn pass(rig: &Rig) -> Result<(BTreeMap<&'static str, usize>, usize)> {
    let count = async || {
        let mut all = BTreeMap::new();
        for kind in KINDS {
            all.insert(kind, lists(&rig.client, kind).await?);
        }
        anyhow::Ok(all)
    };
    let (before, asked) = (count().await?, rig.place.fake().fake.lines().len());
    let mut plan = rig.command(&["deorbit", "plan", "--output", "json"])?;
    let said = tokio::task::spawn_blocking(move || plan.output()).await??;
    ensure!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    let mut after = count().await?;
    for (kind, count) in &mut after {
        *count -= before[kind];
    }
    Ok((after, rig.place.fake().fake.lines().len() - asked))
}
