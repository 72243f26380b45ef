//! Keystone's roles.

use std::collections::BTreeSet;

use groundcrew_core::provider::{Access, ProviderError};

use crate::OpenStack;
use crate::error::told;

impl Access for OpenStack {
    async fn roles(&self) -> Result<BTreeSet<String>, ProviderError> {
        Ok(self.client.session().await.map_err(told)?.roles().clone())
    }
}
