//! The end of a cluster beside the same deletions, all ordered at once and waited for.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures::future::try_join_all;
use groundcrew_api::deorbit::{Deorbit, Phase};
use groundcrew_testkit::Signal;
use groundcrew_testkit::controller::Controller;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Service};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{from_value, json};

use super::place::Everything;
use super::rig::{CLUSTER, CSI, Rig, claim};
use super::standins::{Pace, StandIns};
use crate::report::Report;

const ROUNDS: usize = 3;
const PATIENCE: Duration = Duration::from_mins(5);
const POLL: Duration = Duration::from_millis(50);

/// What Octavia and Cinder take at best.
const PACE: Pace = Pace { balancer: Duration::from_millis(300), volume: Duration::from_secs(2) };

const CONTROLLERS: [&str; 3] = [
    "persistentvolume-binder-controller",
    "persistentvolumeclaim-protection-controller",
    "persistentvolume-protection-controller",
];

pub(super) async fn run(claims: usize, report: &mut Report) -> Result<()> {
    let rig = Rig::start(&CONTROLLERS).await?;
    let services = claims * 2 / 5;
    let before = rig.place.everything().await;
    let _standins = StandIns::start(&rig.client, &rig.place, (CLUSTER, CSI), PACE);
    let command = rig.command(&["deorbit-controller", "--no-leader-election"])?;
    let controller = Controller::start("deorbit", command, rig.dir.path(), PATIENCE).await?;
    let (mut ours, mut floor) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        fill(&rig, claims, services).await?;
        floor.push(by_hand(&rig, &before).await?);
        fill(&rig, claims, services).await?;
        ours.push(deorbited(&rig, &before).await?);
    }
    controller.process.end(Signal::SIGTERM).await?;
    report.against_floor("a cluster is clean", claims + services, "s", median(&mut ours), median(&mut floor), 1.2);
    Ok(())
}

fn median(times: &mut [Duration]) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64()
}

/// Until every claim has its volume, and every Service its load balancer.
async fn fill(rig: &Rig, claims: usize, services: usize) -> Result<()> {
    let wanted = (0..claims).map(|n| claim(&format!("data-{n}"), "cinder")).collect();
    rig.make::<PersistentVolumeClaim>(&rig.api(), wanted).await?;
    let wanted = (0..services).map(|n| {
        json!({"metadata": {"name": format!("web-{n}")}, "spec": {"type": "LoadBalancer", "ports": [{"port": 80}],
            "allocateLoadBalancerNodePorts": false}})
    });
    rig.make::<Service>(&rig.api(), wanted.collect()).await?;
    until("everything is there", async || {
        let bound = rig.api::<PersistentVolumeClaim>().list(&ListParams::default()).await?;
        let bound = bound
            .iter()
            .filter(|one| one.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Bound")));
        let served = rig.api::<Service>().list(&ListParams::default()).await?;
        let served =
            served.iter().filter(|one| one.annotations().contains_key("loadbalancer.openstack.org/load-balancer-id"));
        Ok(bound.count() == claims && served.count() == services)
    })
    .await
}

async fn until(what: &str, done: impl AsyncFn() -> Result<bool>) -> Result<()> {
    let began = Instant::now();
    while !done().await? {
        ensure!(began.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        tokio::time::sleep(POLL).await;
    }
    Ok(())
}

/// Neither Kubernetes nor the cloud shows anything of it.
async fn is_clean(rig: &Rig, before: &Everything) -> Result<bool> {
    let few = ListParams::default().limit(1);
    Ok(rig.api::<Service>().list(&few).await?.items.is_empty()
        && rig.api::<PersistentVolumeClaim>().list(&few).await?.items.is_empty()
        && Api::<PersistentVolume>::all(rig.client.clone()).list(&few).await?.items.is_empty()
        && rig.place.everything().await == *before)
}

async fn by_hand(rig: &Rig, before: &Everything) -> Result<Duration> {
    let (claims, services) = (rig.api::<PersistentVolumeClaim>(), rig.api::<Service>());
    let (all_claims, all_services) =
        (claims.list(&ListParams::default()).await?, services.list(&ListParams::default()).await?);
    let began = Instant::now();
    let params = DeleteParams::default();
    let claims = try_join_all(all_claims.iter().map(|one| {
        let (claims, params, name) = (&claims, &params, one.name_any());
        async move { claims.delete(&name, params).await.map(drop) }
    }));
    let services = try_join_all(all_services.iter().map(|one| {
        let (services, params, name) = (&services, &params, one.name_any());
        async move { services.delete(&name, params).await.map(drop) }
    }));
    tokio::try_join!(claims, services)?;
    until("all is deleted by hand", async || is_clean(rig, before).await).await?;
    Ok(began.elapsed())
}

async fn deorbited(rig: &Rig, before: &Everything) -> Result<Duration> {
    let deorbits: Api<Deorbit> = Api::all(rig.client.clone());
    let deorbit = json!({"metadata": {"name": "end"}, "spec": {"confirm": rig.uid().await?}});
    let began = Instant::now();
    deorbits.create(&PostParams::default(), &from_value(deorbit)?).await?;
    until("it is clean", async || {
        let status = deorbits.get("end").await?.status.unwrap_or_default();
        ensure!(!matches!(status.phase, Phase::Refused | Phase::Leftovers), "{}", status.message);
        Ok(status.phase == Phase::Clean)
    })
    .await?;
    let took = began.elapsed();
    ensure!(is_clean(rig, before).await?, "it says clean, and something is left");
    deorbits.delete("end", &DeleteParams::default()).await?;
    until("the block is lifted", async || {
        let blocked = groundcrew_orbit::deorbit::freeze::is_blocked(&rig.client, PATIENCE).await?;
        Ok(deorbits.get_opt("end").await?.is_none() && !blocked)
    })
    .await?;
    Ok(took)
}
