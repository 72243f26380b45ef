//! How the manager is asked to rebuild a load balancer: the annotation that it watches for.

use std::time::Duration;

use groundcrew_api::names::annotation::LB_RESYNC_TIMESTAMP;
use groundcrew_core::leader::{Term, WriteError};
use groundcrew_core::provider::{ErrorKind, ProviderError, Retry};
use jiff::Timestamp;
use k8s_openapi::api::core::v1 as core;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::time::timeout;
use tracing::{debug, warn};

use crate::cluster::Service;
use crate::metrics::Metrics;

pub(crate) struct Requests {
    pub(crate) client: Client,
    pub(crate) deadline: Duration,
}

pub(crate) enum Answer {
    /// Asked, with this value of the annotation.
    Done(Option<String>),
    /// The Service is gone.
    Gone,
    Failed(Retry),
}

impl Requests {
    /// Writes the annotation, on the Service as we know it: where that is out of date, a newer one is on its way to us
    /// and may explain everything.
    pub(crate) async fn ask(&self, service: &Service, term: &Term, metrics: &Metrics) -> Answer {
        // Down to the nanosecond: the manager reacts to a change, and two requests may be close together.
        let now = Timestamp::now().to_string();
        let patch = json!({
            "metadata": {
                "uid": service.uid,
                "resourceVersion": service.resource_version,
                "annotations": { LB_RESYNC_TIMESTAMP: now },
            }
        });
        let (api, params, patch) = (self.services(service), PatchParams::default(), Patch::Merge(&patch));
        let write = api.patch_metadata(&service.key.name, &params, &patch);
        let (answer, outcome) = match term.write(self.deadline, write).await {
            Ok(_) => (Answer::Done(Some(now)), "ok"),
            Err(WriteError::NotLeader) => (Answer::Gone, "failed"),
            Err(WriteError::Unknown(after)) => {
                warn!(service = %service.key, "no answer to the request for a repair within {} ms", after.as_millis());
                (Answer::Failed(Retry::Backoff), "failed")
            }
            Err(WriteError::Failed(error)) => {
                let error = ProviderError::from_kube(&format!("cannot annotate Service {}", service.key), &error);
                match error.kind() {
                    ErrorKind::NotFound => (Answer::Gone, "gone"),
                    ErrorKind::Conflict => {
                        debug!(service = %service.key, "changed since it was read; looking again");
                        (Answer::Failed(Retry::Soon), "conflict")
                    }
                    _ => {
                        warn!(service = %service.key, "{error}");
                        (Answer::Failed(error.response().retry), "failed")
                    }
                }
            }
        };
        metrics.requests.with_label_values(&[outcome]).inc();
        answer
    }

    /// Whether the Service is still as we know it, where nothing may be written.
    pub(crate) async fn check(&self, service: &Service) -> Answer {
        match timeout(self.deadline, self.services(service).get_metadata_opt(&service.key.name)).await {
            Ok(Ok(None)) => Answer::Gone,
            Ok(Ok(Some(now))) if now.metadata.resource_version.as_deref() == Some(&service.resource_version) => {
                Answer::Done(None)
            }
            Ok(Ok(Some(_))) => Answer::Failed(Retry::Soon),
            Ok(Err(_)) | Err(_) => Answer::Failed(Retry::Backoff),
        }
    }

    fn services(&self, service: &Service) -> Api<core::Service> {
        Api::namespaced(self.client.clone(), &service.key.namespace)
    }
}
