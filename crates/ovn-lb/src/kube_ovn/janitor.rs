//! What kube-ovn leaves undone, and nobody would look at again.

use std::time::Duration;

use groundcrew_api::kube_ovn::OvnEip;
use groundcrew_api::names::annotation;
use groundcrew_core::key::ServiceKey;
use groundcrew_core::leader::{Moment, Role, Term};
use groundcrew_core::provider::ProviderError;
use jiff::Timestamp;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::KubeOvn;
use super::decide::{Catalog, PATIENCE};

const TICK: Duration = Duration::from_secs(1);
/// How long a touch may take to have an effect.
const TOUCH_AGAIN: Duration = Duration::from_secs(10);

/// What is due now.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Due {
    /// Stuck in deletion: kube-ovn passes over those that were deleted while it was away, until they change.
    pub(super) touch: Vec<(String, Box<str>)>,
    /// Services to look again, because kube-ovn has been silent for long enough.
    pub(super) look: Vec<ServiceKey>,
}

impl Catalog {
    pub(super) fn due(&mut self, now: Moment) -> Due {
        let mut due = Due::default();
        let mut seen = Vec::new();
        for (name, known) in self.eips.unsettled() {
            if !now.until(known.since + PATIENCE).is_zero() {
                continue;
            }
            if known.eip.leaving {
                let rests = known.touched.is_some_and(|touched| !now.until(touched + TOUCH_AGAIN).is_zero());
                if known.eip.is_held && !rests {
                    due.touch.push((name.to_string(), known.eip.version.clone()));
                    seen.push(name.clone());
                }
            } else if let Some(owner) = known.eip.owner.as_ref().filter(|_| !known.told) {
                due.look.push(owner.key.clone());
                seen.push(name.clone());
            }
        }
        for name in seen {
            self.eips.mark(&name, |known| {
                known.told = true;
                known.touched = Some(now);
            });
        }
        due
    }
}

impl KubeOvn {
    /// Looks after what waits for kube-ovn; sleeps while nothing does.
    pub(crate) async fn tidy(
        &self,
        role: watch::Receiver<Role>,
        wake: impl Fn(ServiceKey) + Send,
        stop: CancellationToken,
    ) {
        loop {
            let is_idle = self.lock().eips.unsettled().next().is_none();
            let pause =
                async { if is_idle { self.unsettled.notified().await } else { tokio::time::sleep(TICK).await } };
            if stop.run_until_cancelled(pause).await.is_none() {
                return;
            }
            let term = role.borrow().term().cloned();
            let Some(term) = term else {
                // A follower has nothing to do; it looks whether it leads as often as there is something to do.
                if stop.run_until_cancelled(tokio::time::sleep(TICK)).await.is_none() {
                    return;
                }
                continue;
            };
            let due = self.lock().due(Moment::now());
            due.look.into_iter().for_each(&wake);
            for (name, version) in due.touch {
                match self.touch(&name, &version, &term).await {
                    Ok(()) => info!(ovn_eip = name, "stuck in deletion; touched it so that kube-ovn looks at it"),
                    Err(error) => warn!(ovn_eip = name, %error, "stuck in deletion, and cannot be touched"),
                }
            }
        }
    }

    async fn touch(&self, name: &str, version: &str, term: &Term) -> Result<(), ProviderError> {
        let api: Api<OvnEip> = Api::all(self.client.clone());
        let patch = json!({
            "metadata": {
                "resourceVersion": version,
                "annotations": { annotation::TOUCHED: format!("{:.0}", Timestamp::now()) },
            }
        });
        let write = async {
            match api.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await {
                // Somebody else has changed it, or it is gone: as good.
                Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(()),
                Err(error) => Err(ProviderError::from_kube(&format!("cannot touch OvnEip {name}"), &error)),
                Ok(_) => Ok(()),
            }
        };
        Ok(term.write(self.deadline, write).await?)
    }
}
