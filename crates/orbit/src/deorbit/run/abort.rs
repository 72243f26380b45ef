//! Somebody deletes the object: everything is put back, if nothing was deleted yet.

use groundcrew_api::deorbit::Deorbit;
use groundcrew_api::names::finalizer;
use groundcrew_core::leader::Term;
use groundcrew_core::provider::{ErrorKind, ProviderError};
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use tracing::{info, warn};

use super::{Next, Runner};
use crate::deorbit::apply::Hands;
use crate::deorbit::observe::workloads;
use crate::deorbit::{freeze, wants_the_cluster};

/// How a message begins that says why it is not ended.
pub const LATE: &str = "it cannot be ended yet";

impl Runner {
    /// Whoever waits for its end reads in the status why it does not come.
    pub(super) async fn end_or_say(&mut self, deorbit: &Deorbit, term: &Term) -> Result<Next, ProviderError> {
        let Err(error) = self.end(deorbit, term).await else { return Ok(Next::Never) };
        let mut status = deorbit.status.clone().unwrap_or_default();
        status.message = format!("{LATE}: {error}");
        if let Err(error) = self.write(deorbit, &status, term).await {
            warn!(%error, "not written down");
        }
        Err(error)
    }

    /// The object is being deleted: an abort, if nothing was deleted yet; otherwise it stops where it is. Then what was
    /// stopped stays stopped, as it would make new claims.
    async fn end(&mut self, deorbit: &Deorbit, term: &Term) -> Result<(), ProviderError> {
        let finalizers = deorbit.metadata.finalizers.clone().unwrap_or_default();
        if !finalizers.iter().any(|name| name == finalizer::DEORBIT) {
            return Ok(());
        }
        let status = deorbit.status.clone().unwrap_or_default();
        // What is blocked and stopped may be so for another by now, who puts it back or leaves it so.
        if !self.is_taken_over(deorbit).await? {
            if status.irreversible_at.is_none() {
                self.put_back(term).await?;
            } else {
                self.blocked = None;
                freeze::unblock(&self.client, self.deadline, term).await?;
            }
        }
        let rest: Vec<_> = finalizers.into_iter().filter(|name| name != finalizer::DEORBIT).collect();
        self.set_finalizers(deorbit, &rest, term).await?;
        info!(deorbit = deorbit.name_any(), aborted = status.irreversible_at.is_none(), "ended by its deletion");
        Ok(())
    }

    /// Whether another Deorbit has begun with the cluster meanwhile.
    async fn is_taken_over(&self, deorbit: &Deorbit) -> Result<bool, ProviderError> {
        let api: Api<Deorbit> = Api::all(self.client.clone());
        let params = ListParams::default();
        let listed = tokio::time::timeout(self.deadline, api.list(&params)).await;
        let listed =
            listed.map_err(|_| ProviderError::new(ErrorKind::Unavailable, "cannot list Deorbits: no answer"))?;
        let all = listed.map_err(|error| ProviderError::from_kube("cannot list Deorbits", &error))?.items;
        Ok(all.iter().any(|other| takes_over(other, deorbit)))
    }

    /// Lifts the block, and brings back what was stopped.
    pub(super) async fn put_back(&mut self, term: &Term) -> Result<(), ProviderError> {
        self.blocked = None;
        freeze::unblock(&self.client, self.deadline, term).await?;
        let workloads = workloads(&self.client)
            .await
            .map_err(|error| ProviderError::new(ErrorKind::Unavailable, error.to_string()))?;
        let hands = Hands { client: &self.client, clouds: &self.clouds, deadline: self.deadline, term };
        let mut failed = None;
        for workload in workloads.iter().filter(|workload| workload.before.is_some()) {
            if let Err(error) = hands.restore(workload).await {
                warn!(workload = workload.object.key(), %error, "not put back");
                failed.get_or_insert(error);
            }
        }
        failed.map_or(Ok(()), Err)
    }
}

/// Whether a Deorbit has begun, and has not ended, with the cluster that this one leaves.
fn takes_over(other: &Deorbit, from: &Deorbit) -> bool {
    let has_begun = other.finalizers().iter().any(|name| name == finalizer::DEORBIT);
    other.metadata.uid != from.metadata.uid && has_begun && wants_the_cluster(other)
}

#[cfg(test)]
mod tests {
    use groundcrew_api::deorbit::{DeorbitSpec, DeorbitStatus, Phase};
    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    fn deorbit(uid: &str, phase: Phase) -> Deorbit {
        let mut deorbit = Deorbit::new(uid, DeorbitSpec::default());
        deorbit.metadata.uid = Some(uid.into());
        deorbit.metadata.finalizers = Some(vec![finalizer::DEORBIT.into()]);
        deorbit.status = Some(DeorbitStatus { phase, let_go: phase == Phase::Clean, ..DeorbitStatus::default() });
        deorbit
    }

    #[test]
    fn only_one_that_has_begun_and_not_ended_takes_the_cluster_over() {
        let refused = deorbit("refused", Phase::Refused);
        for (phase, expected) in
            [(Phase::Running, true), (Phase::Leftovers, true), (Phase::Clean, false), (Phase::Refused, false)]
        {
            assert_eq!(takes_over(&deorbit("other", phase), &refused), expected, "{phase:?}");
        }
        assert!(!takes_over(&deorbit("refused", Phase::Running), &refused), "itself");
        let mut other = deorbit("other", Phase::Running);
        other.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
        assert!(!takes_over(&other, &refused), "it goes as well");
        let mut other = deorbit("other", Phase::Pending);
        other.metadata.finalizers = None;
        assert!(!takes_over(&other, &refused), "it has changed nothing yet");
    }
}
