//! Tells in the status of each `AddressPool` how much of it is in use.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use groundcrew_api::address_pool::{AddressPool, AddressPoolStatus};
use groundcrew_core::leader::{Moment, Term};
use groundcrew_core::provider::ProviderError;
use groundcrew_core::runtime::Runtime;
use jiff::Timestamp;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tokio::sync::watch;
use tracing::warn;

use super::Addresses;

/// Between two writes to one pool. Thousands of Services may come at once, and each changes its numbers.
const PACE: Duration = Duration::from_secs(1);

/// Writes until the runtime stops: the first change at once, what follows it once a second.
pub(crate) async fn report(addresses: Arc<Addresses>, term: watch::Receiver<Option<Term>>, runtime: Runtime) {
    let stop = runtime.tasks.stop();
    loop {
        let stopped = stop.run_until_cancelled(addresses.stirred.notified()).await.is_none();
        let term = term.borrow().clone().filter(|_| runtime.role.borrow().term().is_some());
        if let Some(term) = term
            && let Err(error) = addresses.tell_pools(&term).await
        {
            warn!(%error, "the status of an AddressPool is not written; trying again");
            addresses.stirred.notify_one();
        }
        // After the stop once more: what was released last must rest under the next leader, too.
        if stopped {
            return;
        }
        stop.run_until_cancelled(tokio::time::sleep(PACE)).await;
    }
}

impl Addresses {
    async fn tell_pools(&self, term: &Term) -> Result<(), ProviderError> {
        let api: Api<AddressPool> = Api::all(self.client.clone());
        let patches = self.pool_patches();
        for (name, patch) in patches {
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
                self.lock().reports.see(&pool);
            }
        }
        Ok(())
    }

    fn pool_patches(&self) -> Vec<(Arc<str>, Value)> {
        let state = self.lock();
        let reports = &state.reports;
        let wanted = state.book.survey(&reports.told, Moment::now(), Timestamp::now());
        let changed = wanted.into_iter().filter(|(name, status)| reports.told.get(name) != Some(status));
        let patches = changed.map(|(name, status)| {
            let version = reports.versions.get(&name);
            let patch = json!({
                "metadata": { "resourceVersion": version },
                "status": {
                    "ipv4": status.ipv4, "ipv6": status.ipv6, "resting": status.resting, "conditions": status.conditions,
                },
            });
            (name, patch)
        });
        patches.collect()
    }
}

/// What the pools say, as it was last seen.
#[derive(Debug, Default)]
pub(super) struct Reports {
    told: BTreeMap<Arc<str>, AddressPoolStatus>,
    versions: BTreeMap<Arc<str>, String>,
}

impl Reports {
    pub(super) fn see(&mut self, pool: &AddressPool) {
        let Some(name) = pool.metadata.name.as_deref() else { return };
        let name: Arc<str> = name.into();
        self.told.insert(name.clone(), pool.status.clone().unwrap_or_default());
        self.versions.insert(name, pool.metadata.resource_version.clone().unwrap_or_default());
    }

    pub(super) fn forget(&mut self, name: &str) {
        self.told.remove(name);
        self.versions.remove(name);
    }
}
