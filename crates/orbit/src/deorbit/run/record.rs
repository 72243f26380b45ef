//! What is written on the Deorbit itself: its finalizer and its status.

use groundcrew_api::deorbit::{Deorbit, DeorbitStatus};
use groundcrew_api::names::finalizer;
use groundcrew_core::leader::Term;
use groundcrew_core::provider::{ErrorKind, ProviderError};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::json;

use super::Runner;

impl Runner {
    /// From now on the object does not go before the block is lifted.
    pub(super) async fn hold_on(&self, deorbit: &Deorbit, term: &Term) -> Result<(), ProviderError> {
        let mut finalizers = deorbit.metadata.finalizers.clone().unwrap_or_default();
        if finalizers.iter().any(|name| name == finalizer::DEORBIT) {
            return Ok(());
        }
        finalizers.push(finalizer::DEORBIT.into());
        self.set_finalizers(deorbit, &finalizers, term).await
    }

    pub(super) async fn set_finalizers(
        &self,
        deorbit: &Deorbit,
        names: &[String],
        term: &Term,
    ) -> Result<(), ProviderError> {
        let api: Api<Deorbit> = Api::all(self.client.clone());
        let patch = json!({ "metadata": {
            "uid": deorbit.metadata.uid, "resourceVersion": deorbit.metadata.resource_version, "finalizers": names,
        }});
        let name = deorbit.name_any();
        let write = async {
            match api.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await {
                Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
                written => written.map(drop).map_err(|error| ProviderError::from_kube("cannot change Deorbit", &error)),
            }
        };
        Ok(term.write(self.deadline, write).await?)
    }

    /// Only what changed, and only over what was read: a pass that is older than another's loses. So does one whose Deorbit
    /// was changed or deleted during a long look, and does nothing: it may be about to delete what is to stay now.
    pub(super) async fn write(
        &self,
        deorbit: &Deorbit,
        status: &DeorbitStatus,
        term: &Term,
    ) -> Result<(), ProviderError> {
        let api: Api<Deorbit> = Api::all(self.client.clone());
        let name = deorbit.name_any();
        // The finalizer may have moved the version since.
        let told = |error: kube::Error| ProviderError::from_kube("cannot write the status of Deorbit", &error);
        let write = async {
            let mut now = api.get(&name).await.map_err(told)?;
            if !is_as_read(&now, deorbit) {
                let message = format!("Deorbit {name} was changed by another");
                return Err(ProviderError::new(ErrorKind::Conflict, message));
            }
            if now.status.as_ref() == Some(status) {
                return Ok(());
            }
            now.status = Some(status.clone());
            api.replace_status(&name, &PostParams::default(), &now).await.map(drop).map_err(told)
        };
        Ok(term.write(self.deadline, write).await?)
    }
}

/// Whether a Deorbit is still the one that a pass has gone by.
fn is_as_read(now: &Deorbit, read: &Deorbit) -> bool {
    let ends = |one: &Deorbit| one.metadata.deletion_timestamp.is_some();
    let asks = |one: &Deorbit| (one.metadata.uid.clone(), one.metadata.generation, ends(one));
    asks(now) == asks(read) && now.status == read.status
}

#[cfg(test)]
mod tests {
    use groundcrew_api::deorbit::{DeorbitSpec, Phase};
    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    #[test]
    fn a_pass_goes_for_nothing_when_somebody_has_asked_for_something_else_meanwhile() {
        let mut read = Deorbit::new("one", DeorbitSpec::default());
        read.metadata.uid = Some("one".into());
        read.status = Some(DeorbitStatus { phase: Phase::Running, ..DeorbitStatus::default() });
        assert!(is_as_read(&read.clone(), &read));
        let changes: [fn(&mut Deorbit); 4] = [
            |now| now.metadata.uid = Some("another".into()),
            |now| now.metadata.generation = Some(2),
            |now| now.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH)),
            |now| now.status = None,
        ];
        for change in changes {
            let mut now = read.clone();
            change(&mut now);
            assert!(!is_as_read(&now, &read), "{now:?}");
        }
        let mut moved = read.clone();
        moved.metadata.resource_version = Some("2".into());
        assert!(is_as_read(&moved, &read), "the finalizer moves it");
    }
}
