//! Writes the entries of each Vpc, as long as this process leads.

use std::sync::Arc;

use groundcrew_api::kube_ovn as api;
use groundcrew_core::key::ServiceKey;
use groundcrew_core::leader::Term;
use groundcrew_core::provider::{ErrorKind, ProviderError};
use groundcrew_core::queue::Outcome;
use groundcrew_core::runtime::Runtime;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use serde_json::json;
use tokio::sync::watch;
use tracing::{info, warn};

use super::plan::plan;
use crate::kube_ovn::KubeOvn;

/// A Vpc is read, and written once; few have a second external network.
const CONCURRENCY: usize = 4;
const MOST_TRIES: usize = 4;

/// Until the runtime stops. `term` is the one whose Services are known; `wake` has Services look again.
pub(crate) async fn write_routes(
    kube_ovn: Arc<KubeOvn>,
    term: watch::Receiver<Option<Term>>,
    wake: impl Fn(Vec<ServiceKey>),
    runtime: Runtime,
) {
    let (kube_ovn, wake) = (&*kube_ovn, &wake);
    let look = |vpc: Arc<str>| {
        let term = term.borrow().clone().filter(|_| runtime.role.borrow().term().is_some());
        async move {
            let Some(term) = term else { return Outcome::Done };
            let written = kube_ovn.steer(&vpc, &term).await;
            let why = written.as_ref().err().map(ToString::to_string);
            if let Some(why) = &why {
                warn!(%vpc, "return routes: {why}");
            }
            // They say so in their status.
            wake(kube_ovn.routes.failed(&vpc, why.as_deref()));
            written.map_or_else(|error| Outcome::Failed(error.response().retry), |()| Outcome::Done)
        }
    };
    kube_ovn.routes.vpcs.run(CONCURRENCY, runtime.tasks.stop(), look).await;
}

impl KubeOvn {
    /// One look at a Vpc. It is read anew and as a whole: what is in it and not known here must be written back.
    async fn steer(&self, vpc: &str, term: &Term) -> Result<(), ProviderError> {
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &ApiResource::erase::<api::Vpc>(&()));
        let tried = format!("cannot write spec.policyRoutes of Vpc {vpc}");
        for _ in 0..MOST_TRIES {
            let found = self.answer(&format!("read Vpc {vpc}"), api.get_opt(vpc)).await.map_err(ProviderError::from)?;
            let Some(found) = found else { return Ok(()) };
            let Some(patch) = plan(&json!(found), &self.cluster, &self.routes.wanted(vpc)) else { return Ok(()) };
            let write = async {
                match api.patch(vpc, &PatchParams::default(), &Patch::Merge(&patch)).await {
                    Ok(_) => Ok(true),
                    // kube-ovn writes to it, too.
                    Err(kube::Error::Api(status)) if status.is_conflict() || status.is_not_found() => Ok(false),
                    Err(error) => Err(ProviderError::from_kube(&tried, &error)),
                }
            };
            if term.write(self.deadline, write).await? {
                info!(vpc, "wrote the return routes of its backends");
                return Ok(());
            }
        }
        Err(ProviderError::new(ErrorKind::Conflict, format!("{tried}: others change it all the time")))
    }
}
