//! What the controller costs while everything is served: at rest, under changes of backends, and after hard times.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures::TryFutureExt;
use groundcrew_testkit::kube::Part;
use groundcrew_testkit::{Signal, eventually};
use http::Method;
use kube::Client;
use ovsdb_client::{Replica, Rows as Changed};
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep_until};

use crate::ovsdb::config;
use crate::report::{Report, millis, percentile};
use crate::rig::ovn::{Ovn, Rows, succeed};
use crate::rig::running::Running;
use crate::rig::writes::{Writes, lists};
use crate::rig::{PATIENCE, Rig, bare};
use crate::world::{BACKENDS, namespace, slice_name};

const REST: Duration = Duration::from_mins(1);
/// After the looks that follow a start.
const CALM: Duration = Duration::from_secs(10);
const CHURN: Duration = Duration::from_secs(20);
const RELISTS: usize = 5;
/// The second number of the addresses that backends change to.
const FIRST_CHANGE: usize = 192;
/// As the controller's own watches list.
const PAGE: usize = 250;

pub(super) async fn run(n: usize, rig: &mut Rig, ovn: &Ovn, report: &mut Report) -> Result<()> {
    let running = rig.start(ovn, &[])?;
    let ready = running.ready().await?;
    at_rest(n, rig, &running, ready, report).await?;
    churn(n, rig, ovn, &running, report).await?;
    hard_times(n, rig, ovn, &running, report).await?;
    running.stop().await
}

async fn at_rest(n: usize, rig: &Rig, running: &Running, ready: Instant, report: &mut Report) -> Result<()> {
    sleep_until((ready + CALM).into()).await;
    let (writes, cpu) = (Writes::read(&rig.client).await?, running.cpu()?);
    sleep_until((ready + REST).into()).await;
    report.below("at rest: resident memory", n, "MiB", running.resident()?, 64.0);
    let used = (running.cpu()? - cpu) / (millis(REST) - millis(CALM));
    report.below("at rest: CPU of a core", n, "%", used * 100.0, 0.5);
    let writes = Writes::since(&rig.client, &writes).await?.total();
    report.at_most("at rest: API writes but Leases", n, "", writes, 0.0);
    Ok(())
}

/// One in a hundred backends gets another address each second. From the API server's word that it has to the row that has it.
#[allow(clippy::cast_precision_loss, reason = "counts of a benchmark")]
async fn churn(n: usize, rig: &Rig, ovn: &Ovn, running: &Running, report: &mut Report) -> Result<()> {
    let per_second = (n * BACKENDS / 100).max(1);
    let changes = per_second * usize::try_from(CHURN.as_secs())?;
    let replica = Replica::<Rows>::open(config(&ovn.endpoint())?);
    replica.synced().await;
    let mut rows = replica.changes();
    rows.next().await;
    let committed = running.commits().await?;

    let seeing = async {
        let mut seen = HashMap::with_capacity(changes);
        while seen.len() < changes {
            let news = rows.next().await;
            let at = Instant::now();
            let Changed::Some(ids) = news.rows else { anyhow::bail!("the replica lost its connection") };
            for row in ids.iter().filter_map(|id| news.after.load_balancers.get(id.uuid)) {
                let backends = row.vips.iter().flat_map(|(_, backends)| backends.split(','));
                for change in backends.filter_map(|backend| change_of(backend.rsplit_once(':')?.0)) {
                    seen.entry(change).or_insert(at);
                }
            }
        }
        Ok(seen)
    };
    let changing = async {
        let mut ticks = interval(Duration::from_secs(1) / u32::try_from(per_second)?);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut open = JoinSet::new();
        for change in 0..changes {
            ticks.tick().await;
            open.spawn(change_backend(rig.client.clone(), n, change));
        }
        open.join_all().await.into_iter().collect::<Result<HashMap<_, _>>>()
    };
    let started = Instant::now();
    let both = tokio::time::timeout(PATIENCE, async { tokio::try_join!(changing, seeing) });
    let (told, seen) = both.map_err(|_| anyhow::anyhow!("changes of backends stay away")).await??;
    let rate = changes as f64 / started.elapsed().as_secs_f64();
    let took = told.iter().filter_map(|(change, told)| Some(seen.get(change)?.saturating_duration_since(*told)));
    let mut took: Vec<_> = took.collect();
    report.told("churn: backends changed", n, "/s", rate);
    report.below("churn: to the row, p99", n, "ms", millis(percentile(&mut took, 0.99)), 1_000.0);
    report.told("churn: to the row, p50", n, "ms", millis(percentile(&mut took, 0.5)));
    report.told("churn: changes in one commit", n, "", changes as f64 / (running.commits().await? - committed));
    Ok(())
}

/// Changes one backend of one Service; when the API server had it.
async fn change_backend(client: Client, n: usize, change: usize) -> Result<(usize, Instant)> {
    let (k, backend) = (change % n, change / n % BACKENDS);
    let slice = format!("/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices/{}", namespace(k), slice_name(k));
    let patch =
        json!([{ "op": "replace", "path": format!("/endpoints/{backend}/addresses/0"), "value": address(change) }]);
    bare::send(&client, Method::PATCH, &slice, "application/json-patch+json", &patch).await?;
    Ok((change, Instant::now()))
}

/// An address that no backend of the world has, for each change another.
fn address(change: usize) -> String {
    format!("10.{}.{}.{}", FIRST_CHANGE + change / 62_500, change / 250 % 250, change % 250 + 1)
}

fn change_of(address: &str) -> Option<usize> {
    let [10, high, middle, low] = address.parse::<Ipv4Addr>().ok()?.octets().map(usize::from) else { return None };
    Some(high.checked_sub(FIRST_CHANGE)? * 62_500 + middle * 250 + low.checked_sub(1)?)
}

/// Five times everything is read anew from a new API server and from OVN, then all rows are gone at once.
async fn hard_times(n: usize, rig: &mut Rig, ovn: &Ovn, running: &Running, report: &mut Report) -> Result<()> {
    for round in 0..RELISTS {
        // Whoever has just seen the newest revision would not have to list again.
        let newer = json!({ "metadata": { "annotations": { "round": round.to_string() } } });
        let namespace = "/api/v1/namespaces/default";
        bare::send(&rig.client, Method::PATCH, namespace, "application/merge-patch+json", &newer).await?;
        rig.plane.stop(Part::ApiServer, Signal::SIGKILL).await?;
        // Or the watches would go on where they were.
        rig.plane.compact().await?;
        rig.plane.restart(Part::ApiServer).await?;
        ovn.server().disconnect_clients(0).await?;
        rig.client = rig.plane.client().await?;
        eventually("everything is listed again", PATIENCE, async || {
            for resource in ["services", "endpointslices", "eips"] {
                let lists = lists(&rig.client, resource).await?;
                ensure!(lists >= n.div_ceil(PAGE), "{lists} lists of {resource}");
            }
            Ok(())
        })
        .await?;
    }
    let mut rows = ovn.watch()?;
    succeed(&tokio::task::block_in_place(|| ovn.raw()?.exchange(&Ovn::delete_all()?))?)?;
    rows.until(0, PATIENCE).await?;
    rows.until(n, PATIENCE).await?;
    tokio::time::sleep(CALM).await;
    report.below("after relists and a repair: memory", n, "MiB", running.resident()?, 100.0);
    report.below("resident memory, peak of all that", n, "MiB", running.peak()?, 128.0);
    Ok(())
}
