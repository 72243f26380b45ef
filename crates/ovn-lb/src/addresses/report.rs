//! Tells in the status of each `AddressPool` how much of it is in use.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use groundcrew_api::address_pool::{AddressCounts, AddressPool, AddressPoolStatus};
use groundcrew_core::leader::{Moment, Term};
use groundcrew_core::page;
use groundcrew_core::provider::ProviderError;
use groundcrew_core::runtime::Runtime;
use jiff::Timestamp;
use kube::Api;
use kube::api::{Patch, PatchParams};
use prometheus::IntGaugeVec;
use serde_json::{Value, json};
use tokio::sync::watch;
use tracing::warn;

use super::Addresses;

/// Between two writes to one pool, of which the next leader has to know what rests.
const PACE: Duration = Duration::from_secs(1);
/// The same where only its numbers have changed: thousands of Services may come at once, and each changes them.
const NUMBERS_PACE: Duration = Duration::from_secs(5);

/// Writes until the runtime stops: the first change at once, what follows it at its pace.
pub(crate) async fn report(addresses: Arc<Addresses>, term: watch::Receiver<Option<Term>>, runtime: Runtime) {
    let stop = runtime.tasks.stop();
    loop {
        let stopped = stop.run_until_cancelled(addresses.stirred.notified()).await.is_none();
        let term = term.borrow().clone().filter(|_| runtime.role.borrow().term().is_some());
        if let Some(term) = term {
            match addresses.tell_pools(&term, stopped).await {
                Ok(true) => {}
                Ok(false) => addresses.stirred.notify_one(),
                Err(error) => {
                    warn!(%error, "the status of an AddressPool is not written; trying again");
                    addresses.stirred.notify_one();
                }
            }
        }
        // After the stop once more: what was released last must rest under the next leader, too.
        if stopped {
            return;
        }
        stop.run_until_cancelled(tokio::time::sleep(PACE)).await;
    }
}

impl Addresses {
    /// Writes what is due, or everything; `false` where something is left for later.
    async fn tell_pools(&self, term: &Term, everything: bool) -> Result<bool, ProviderError> {
        let api: Api<AddressPool> = Api::all(self.client.clone());
        let (due, later): (Vec<_>, Vec<_>) =
            self.pool_patches().into_iter().partition(|(_, _, due)| everything || *due);
        for (name, patch, _) in due {
            let write = async {
                match api.patch_status(&name, &PatchParams::default(), &Patch::Merge(&patch)).await {
                    Ok(pool) => Ok(Some(pool)),
                    // Somebody edited or removed it; the watch tells, and then it is looked at again.
                    Err(kube::Error::Api(status)) if status.is_conflict() || status.is_not_found() => Ok(None),
                    Err(error) => {
                        let tried = format!("cannot update the status of AddressPool {name}");
                        Err(ProviderError::from_kube(&tried, &error))
                    }
                }
            };
            if let Some(pool) = term.write(self.deadline, write).await? {
                let mut state = self.lock();
                state.reports.see(&pool);
                state.reports.written.insert(name, Moment::now());
            }
        }
        Ok(later.is_empty())
    }

    /// What the pools say, for the status page.
    pub(crate) fn shown(&self) -> Vec<page::Pool> {
        let state = self.lock();
        let told = state.reports.told.iter().flat_map(|(name, status)| {
            let counts = [("IPv4", &status.ipv4), ("IPv6", &status.ipv6)];
            counts.map(|(family, counts)| Some((name, family, counts.as_ref()?)))
        });
        let pool = |(name, family, counts): (&Arc<str>, _, &AddressCounts)| page::Pool {
            name: name.to_string(),
            family,
            used: counts.used,
            free: counts.free,
        };
        told.flatten().map(pool).collect()
    }

    /// What to write to which pool, and whether it is time to.
    fn pool_patches(&self) -> Vec<(Arc<str>, Value, bool)> {
        let (state, now) = (self.lock(), Moment::now());
        let reports = &state.reports;
        let wanted = state.book.survey(&reports.told, now, Timestamp::now());
        let changed = wanted.into_iter().filter(|(name, status)| reports.told.get(name) != Some(status));
        let patches = changed.map(|(name, status)| {
            let version = reports.versions.get(&name);
            let due = reports.is_due(&name, &status, now);
            let patch = json!({
                "metadata": { "resourceVersion": version },
                "status": {
                    "ipv4": status.ipv4, "ipv6": status.ipv6, "resting": status.resting, "conditions": status.conditions,
                },
            });
            (name, patch, due)
        });
        patches.collect()
    }
}

/// What the pools say, as it was last seen.
#[derive(Debug)]
pub(super) struct Reports {
    told: BTreeMap<Arc<str>, AddressPoolStatus>,
    versions: BTreeMap<Arc<str>, String>,
    /// When each was last written by this process.
    written: BTreeMap<Arc<str>, Moment>,
    gauges: IntGaugeVec,
}

const FAMILIES: [&str; 2] = ["ipv4", "ipv6"];

impl Reports {
    pub(super) fn new(gauges: IntGaugeVec) -> Self {
        Self { told: BTreeMap::new(), versions: BTreeMap::new(), written: BTreeMap::new(), gauges }
    }

    pub(super) fn see(&mut self, pool: &AddressPool) {
        let Some(name) = pool.metadata.name.as_deref() else { return };
        let counts = pool.status.as_ref().map_or([None; 2], |status| [status.ipv4, status.ipv6]);
        for (family, counts) in FAMILIES.into_iter().zip(counts) {
            match counts {
                Some(AddressCounts { used, free }) => {
                    self.gauges.with_label_values(&[name, family, "used"]).set(used);
                    self.gauges.with_label_values(&[name, family, "free"]).set(free);
                }
                None => self.drop_gauges(name, family),
            }
        }
        let name: Arc<str> = name.into();
        self.told.insert(name.clone(), pool.status.clone().unwrap_or_default());
        self.versions.insert(name, pool.metadata.resource_version.clone().unwrap_or_default());
    }

    pub(super) fn forget(&mut self, name: &str) {
        for family in FAMILIES {
            self.drop_gauges(name, family);
        }
        self.told.remove(name);
        self.versions.remove(name);
        self.written.remove(name);
    }

    fn is_due(&self, name: &str, status: &AddressPoolStatus, now: Moment) -> bool {
        let are_numbers = self
            .told
            .get(name)
            .is_some_and(|told| (&told.resting, &told.conditions) == (&status.resting, &status.conditions));
        let paced = |written: &Moment| written.until(now) >= NUMBERS_PACE;
        !are_numbers || self.written.get(name).is_none_or(paced)
    }

    /// A pool that is gone, or has no addresses of a family, has no numbers: 0 of 0 would look full.
    fn drop_gauges(&self, pool: &str, family: &str) {
        for state in ["used", "free"] {
            // An error says that it was not there.
            let _ = self.gauges.remove_label_values(&[pool, family, state]);
        }
    }
}

#[cfg(test)]
mod tests {
    use groundcrew_api::address_pool::RestingAddress;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use prometheus::Opts;

    use super::*;

    #[test]
    fn numbers_are_told_less_often_than_what_the_next_leader_must_know() {
        let gauges = IntGaugeVec::new(Opts::new("pools", "pools"), &["pool", "family", "state"]).unwrap();
        let (mut reports, now) = (Reports::new(gauges), Moment::now());
        let told = AddressPoolStatus::default();
        reports.told.insert("public".into(), told.clone());
        let more = AddressPoolStatus { ipv4: Some(AddressCounts { used: 1, free: 7 }), ..told };
        assert!(reports.is_due("public", &more, now), "the first change at once");
        reports.written.insert("public".into(), now);
        assert!(!reports.is_due("public", &more, now + PACE));
        let until = Time(Timestamp::UNIX_EPOCH);
        let resting = vec![RestingAddress { address: "192.0.2.1".into(), until }];
        assert!(reports.is_due("public", &AddressPoolStatus { resting, ..more.clone() }, now + PACE));
        assert!(reports.is_due("public", &more, now + NUMBERS_PACE));
        reports.forget("public");
        assert!(reports.is_due("public", &more, now));
    }
}
