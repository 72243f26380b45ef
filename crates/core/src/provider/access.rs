//! What a cloud lets us do.

use std::collections::BTreeSet;

use super::ProviderError;

/// The verbs of a cloud that says who we are.
pub trait Access: Send + Sync + 'static {
    /// The names of the roles that we have in our project. A change may take as long to show as a token lasts.
    fn roles(&self) -> impl Future<Output = Result<BTreeSet<String>, ProviderError>> + Send;
}
