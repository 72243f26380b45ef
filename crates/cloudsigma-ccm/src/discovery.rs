//! Reads the account again and again, and keeps the tags for people.

use std::sync::Arc;
use std::time::Duration;

use groundcrew_core::leader::{Role, Term};
use groundcrew_core::metrics::{Register, counter, gauge, pool_addresses};
use groundcrew_core::page::{self, Reading};
use groundcrew_core::runtime::Readiness;
use jiff::Timestamp;
use prometheus::{IntCounter, IntGauge, IntGaugeVec};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::client::{Client, Kind};
use crate::error::Error;
use crate::inventory::{Account, Inventory};
use crate::marks::{self, Mark};
use crate::nodes::Nodes;
use crate::pool::{self, Allowed, Pool, Rules};
use crate::tags::{self, Step};
use crate::write::under;

/// After a reading that failed.
const SOON: Duration = Duration::from_secs(2);

/// How long to wait after such a failure. Credentials do not become right by themselves, and an account may be locked after
/// too many wrong attempts.
fn pause_after(failure: Kind, interval: Duration) -> Duration {
    if failure == Kind::Unauthorized { interval.max(SOON) } else { SOON }
}

pub(crate) struct Discovery {
    pub(crate) client: Client,
    pub(crate) account: Account,
    pub(crate) interval: Duration,
    pub(crate) ready: Readiness,
    /// What is waited for until the first reading.
    pub(crate) what: &'static str,
    pub(crate) cluster: Arc<str>,
    pub(crate) expiry_warning: Duration,
    pub(crate) metrics: Metrics,
    /// For the status page.
    pub(crate) reading: Reading,
    /// Where Services are served.
    pub(crate) pools: Option<Pools>,
}

/// What of the account is this cluster's to give. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Pools {
    pub(crate) account: Account,
    pub(crate) cluster: Arc<str>,
    pub(crate) allowed: Arc<[Allowed]>,
    pub(crate) nodes: Nodes,
}

impl Pools {
    fn counts(&self) -> Vec<(Pool, bool, pool::Counts)> {
        let Some(inventory) = self.account.last() else { return Vec::new() };
        let nodes = self.nodes.addresses();
        let rules = Rules { cluster: &self.cluster, allowed: &self.allowed, nodes: &nodes, now: Timestamp::now() };
        let counts = pool::counts(&inventory, &rules).into_iter();
        counts.map(|((pool, v6), counts)| (pool, v6, counts)).collect()
    }

    /// For the status page.
    pub(crate) fn shown(&self) -> Vec<page::Pool> {
        let shown = |(pool, v6, counts): (Pool, bool, pool::Counts)| page::Pool {
            name: pool.to_string(),
            family: if v6 { "IPv6" } else { "IPv4" },
            used: counts.used,
            free: counts.free,
        };
        self.counts().into_iter().map(shown).collect()
    }

    fn measure(&self, gauges: &IntGaugeVec) {
        gauges.reset();
        // What is not subscribed to is no stock that could run out.
        for (pool, v6, counts) in self.counts().into_iter().filter(|(pool, ..)| *pool == Pool::Static) {
            let family = if v6 { "ipv6" } else { "ipv4" };
            let of = |state| gauges.with_label_values(&[&*pool.to_string(), family, state]);
            of("used").set(counts.used);
            of("free").set(counts.free);
        }
    }
}

#[derive(Clone)]
pub(crate) struct Metrics {
    failures: IntCounter,
    addresses: IntGauge,
    expiring: IntGauge,
    pools: IntGaugeVec,
}

impl Metrics {
    pub(crate) fn new(registry: &dyn Register) -> prometheus::Result<Self> {
        let failures = "Times the account could not be read, or only a part of it.";
        let pools = pool_addresses("CloudSigma")?;
        registry.register(Box::new(pools.clone()))?;
        let expiring = "Addresses of this cluster whose subscription is over or ends soon and does not renew itself.";
        Ok(Self {
            failures: counter(registry, "groundcrew_cloudsigma_read_failures_total", failures)?,
            addresses: gauge(registry, "groundcrew_cloudsigma_addresses", "Addresses that this cluster has.")?,
            expiring: gauge(registry, "groundcrew_cloudsigma_subscriptions_expiring", expiring)?,
            pools,
        })
    }
}

impl Discovery {
    pub(crate) async fn run(self, stop: CancellationToken) {
        loop {
            // Nothing is written here: who has to stop does not wait for a cloud that hangs.
            let Some(read) = stop.run_until_cancelled(self.account.refresh(&self.client)).await else { return };
            let pause = match read {
                Ok(read) => {
                    self.ready.done(self.what);
                    self.reading.succeeded();
                    self.measure(&read);
                    if !read.complete {
                        self.metrics.failures.inc();
                    }
                    self.interval.mul_f64(rand::random_range(0.9..1.1))
                }
                Err(error) => {
                    warn!(%error, "cannot read the CloudSigma account; what was read last stays");
                    self.ready.explain(self.what, error.to_string());
                    self.reading.failed(error.to_string());
                    self.metrics.failures.inc();
                    pause_after(error.kind(), self.interval).mul_f64(rand::random_range(0.8..1.2))
                }
            };
            if stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
                return;
            }
        }
    }

    fn measure(&self, read: &Inventory) {
        let ours = read.ips.values().filter(|ip| matches!(marks::read(&ip.meta, &self.cluster), Mark::Ours(_)));
        let ours: Vec<_> = ours.map(|ip| ip.address).collect();
        let soon = Timestamp::now() + self.expiry_warning;
        let expires = |address| read.subscriptions.get(address).is_some_and(|paid| paid.is_over(soon));
        self.metrics.addresses.set(ours.len().try_into().unwrap_or(i64::MAX));
        self.metrics
            .expiring
            .set(ours.iter().filter(|address| expires(address)).count().try_into().unwrap_or(i64::MAX));
        if let Some(pools) = &self.pools {
            pools.measure(&self.metrics.pools);
        }
    }
}

/// The task that keeps the tags.
pub(crate) struct Tagging {
    pub(crate) client: Client,
    pub(crate) account: Account,
    pub(crate) cluster: Arc<str>,
    /// The cluster's name for people.
    pub(crate) name: String,
    pub(crate) deadline: Duration,
    pub(crate) interval: Duration,
}

impl Tagging {
    pub(crate) async fn run(self, role: watch::Receiver<Role>, stop: CancellationToken) {
        let mut role = role;
        let mut account = self.account.changes();
        loop {
            let term = role.borrow_and_update().term().cloned();
            account.borrow_and_update();
            if let (Some(term), Some(inventory)) = (term, self.account.last())
                && let Err(error) = self.look(&inventory, &term).await
            {
                debug!(%error, "tags not brought up to date");
            }
            tokio::select! {
                () = stop.cancelled() => return,
                _ = account.changed() => {}
                Ok(()) = role.changed() => {}
                // Nothing depends on it: what failed has time until then.
                () = tokio::time::sleep(self.interval) => {}
            }
        }
    }

    async fn look(&self, inventory: &Inventory, term: &Term) -> Result<(), Error> {
        let known = self.client.tags().await?;
        for step in tags::plan(inventory, &known.items, known.complete, &self.cluster, &self.name) {
            match &step {
                Step::Create(tag) => under(term, self.deadline, self.client.create_tag(tag)).await?,
                Step::Put(tag) => under(term, self.deadline, self.client.put_tag(tag)).await?,
                Step::Delete(tag) => under(term, self.deadline, self.client.delete_tag(&tag.uuid)).await?,
            }
            info!(?step, "tag changed");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_credentials_are_not_tried_again_at_once() {
        let interval = Duration::from_mins(1);
        assert_eq!(pause_after(Kind::Unauthorized, interval), interval);
        assert_eq!(pause_after(Kind::Unavailable, interval), SOON);
    }
}
