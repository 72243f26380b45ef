//! The token that the original controller keeps for its CSI driver, for clusters that still read it from a Secret.

use std::time::Duration;

use groundcrew_core::leader::{Role, Term};
use groundcrew_core::provider::{ErrorKind, ProviderError};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::client::Client;
use crate::error::Error;
use crate::write::under;

pub(crate) const NAMESPACE: &str = "cloudsigma-csi";
const NAME: &str = "cloudsigma-token";
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
const US: &str = "cloudsigma-ccm";
/// Short against the five minutes before its end in which a token is renewed.
const INTERVAL: Duration = Duration::from_mins(1);

pub(crate) struct CsiToken {
    pub(crate) client: Client,
    pub(crate) secrets: Api<Secret>,
    pub(crate) user_email: String,
    pub(crate) region: String,
    pub(crate) deadline: Duration,
}

impl CsiToken {
    pub(crate) async fn run(self, role: watch::Receiver<Role>, stop: CancellationToken) {
        let mut role = role;
        loop {
            let term = role.borrow_and_update().term().cloned();
            if let Some(term) = term
                && let Err(error) = self.look(&term).await
            {
                warn!(%error, "the Secret {NAMESPACE}/{NAME} is not up to date; trying again");
            }
            tokio::select! {
                () = stop.cancelled() => return,
                Ok(()) = role.changed() => {}
                () = tokio::time::sleep(INTERVAL) => {}
            }
        }
    }

    async fn look(&self, term: &Term) -> Result<(), Error> {
        let refused = |kind, words: &str| Error::Kube(ProviderError::new(kind, words));
        let token = self.client.token().await?;
        let token = token.ok_or_else(|| refused(ErrorKind::Invalid, "a password has no token; use --user-email"))?;
        let tried = format!("cannot write Secret {NAMESPACE}/{NAME}");
        let kube = |error: &kube::Error| Error::Kube(ProviderError::from_kube(&tried, error));
        let found = match tokio::time::timeout(self.deadline, self.secrets.get_opt(NAME)).await {
            Ok(found) => found.map_err(|error| kube(&error))?,
            Err(_) => return Err(refused(ErrorKind::Unavailable, "no answer in time")),
        };
        if let Some(secret) = &found {
            if secret.labels().get(MANAGED_BY).map(String::as_str) != Some(US) {
                return Err(refused(
                    ErrorKind::Conflict,
                    "somebody else made it; remove it, or run without --enable-csi-token",
                ));
            }
            let now = secret.data.as_ref().and_then(|data| data.get("access_token"));
            if now == Some(&ByteString(token.expose().as_bytes().to_vec())) {
                return Ok(());
            }
        }
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": {
                "name": NAME,
                "resourceVersion": found.as_ref().and_then(ResourceExt::resource_version),
                "labels": { MANAGED_BY: US, "app.kubernetes.io/component": "csi-credentials" },
                "annotations": { "cloudsigma.com/user-email": self.user_email, "cloudsigma.com/region": self.region },
            },
            "stringData": { "access_token": token.expose(), "region": self.region, "user_email": self.user_email },
        });
        let params = PatchParams::apply("groundcrew-cloudsigma-ccm").force();
        let patch = Patch::Apply(&secret);
        let write = async { self.secrets.patch(NAME, &params, &patch).await.map_err(|error| kube(&error)) };
        under(term, self.deadline, write).await?;
        info!("Secret {NAMESPACE}/{NAME} has the new token");
        Ok(())
    }
}
