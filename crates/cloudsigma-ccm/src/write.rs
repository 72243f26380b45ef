//! Writes to the cloud, as the leader and in time.

use std::time::Duration;

use groundcrew_core::leader::{Term, WriteError};
use groundcrew_core::provider::ProviderError;

use crate::error::Error;

/// Between the reading and the write: a process that was stopped there may have a successor by now.
pub(crate) fn leads(term: &Term) -> Result<(), Error> {
    let successor = || Error::Kube(ProviderError::from(WriteError::<ProviderError>::NotLeader));
    if term.allows(Duration::ZERO) { Ok(()) } else { Err(successor()) }
}

/// Runs a change of the cloud under the term. The whole of read, write and read back is the write.
pub(crate) async fn under<T, E>(
    term: &Term,
    deadline: Duration,
    write: impl Future<Output = Result<T, E>>,
) -> Result<T, Error>
where
    E: Into<Error>,
{
    let written = term.write(deadline, async { write.await.map_err(Into::into) }).await;
    written.map_err(|error| match error {
        WriteError::Failed(error) => error,
        other => Error::Kube(ProviderError::from(other)),
    })
}
