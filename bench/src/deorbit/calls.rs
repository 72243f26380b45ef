//! What one pass asks Kubernetes and the cloud for: one list of each kind, however much is there that it leaves alone. The lists
//! of Kubernetes come in pages of 500, and each page is counted.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Service};
use serde_json::{Value, json};

use super::rig::{Rig, claim};
use crate::report::Report;
use crate::rig::writes::lists;

const KINDS: [&str; 13] = [
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
    "nodes",
];
const FEW: usize = 12;
/// A cluster in the same project.
const NEIGHBOUR: &str = "bench_x";
const UID: &str = "0b7a8c1e-0000-4000-8000-000000000000";

#[allow(clippy::cast_precision_loss, reason = "counts")]
pub(super) async fn run(many: usize, report: &mut Report) -> Result<()> {
    let rig = Rig::start(&[]).await?;
    fill(&rig, 0..FEW / 4).await?;
    let few = pass(&rig).await?;
    fill(&rig, FEW / 4..many / 4).await?;
    let now = pass(&rig).await?;
    for (kind, count) in &few.lists {
        ensure!(*count == 1, "{count} lists of {kind} with {FEW} objects");
    }
    ensure!(few.outside > 0, "the cloud was not asked");
    report.at_most("lists of a pass", many, "", now.lists() as f64, few.lists() as f64);
    report.at_most("calls of the cloud by a pass", many, "", now.outside as f64, few.outside as f64);
    Ok(())
}

/// Objects that a Deorbit leaves alone, four kinds of them, and as many things of a neighbour of each kind in the cloud.
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
    for n in numbers {
        let name = format!("clean-{n}");
        let volume = rig.place.volume(NEIGHBOUR, &name).await;
        rig.place.snapshot(NEIGHBOUR, &volume, &name).await;
        rig.place.balancer(NEIGHBOUR, "shop", &name, UID).await;
    }
    Ok(())
}

/// What one look asked for.
pub(super) struct Asked {
    /// Of Kubernetes, by kind.
    lists: BTreeMap<&'static str, usize>,
    /// Of the cloud.
    outside: usize,
}

impl Asked {
    pub(super) fn lists(&self) -> usize {
        self.lists.values().sum()
    }
}

/// A plan looks as a pass of a run does.
pub(super) async fn pass(rig: &Rig) -> Result<Asked> {
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
    let mut lists = count().await?;
    for (kind, count) in &mut lists {
        *count -= before[kind];
    }
    Ok(Asked { lists, outside: rig.place.fake().fake.lines().len() - asked })
}
