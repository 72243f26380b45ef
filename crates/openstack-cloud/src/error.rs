//! The client's errors as a controller's.

use groundcrew_core::provider::{ErrorKind, ProviderError};
use openstack_client::{Error, Kind};

/// What a failed call means to a controller. **Only what the service itself says is gone is [`ErrorKind::NotFound`]**: a
/// service that is not there, or an answer that is none, says nothing about what it was asked for.
#[allow(clippy::needless_pass_by_value, reason = "the shape of `map_err`")]
pub(crate) fn told(error: Error) -> ProviderError {
    let (kind, reason) = match error.kind() {
        Kind::NotFound => (ErrorKind::NotFound, None),
        Kind::Conflict => (ErrorKind::Conflict, None),
        Kind::Quota if error.is_router_full() => (ErrorKind::Quota, Some("RouterFull")),
        Kind::Quota => (ErrorKind::Quota, None),
        Kind::Throttled => (ErrorKind::Throttled, None),
        Kind::Unauthorized => (ErrorKind::Denied, Some("CredentialsRefused")),
        Kind::Denied => (ErrorKind::Denied, None),
        Kind::Invalid if error.code() == Some("InvalidRoutes") => (ErrorKind::Invalid, Some("InvalidRoutes")),
        Kind::Invalid => (ErrorKind::Invalid, None),
        Kind::NoService => (ErrorKind::Unavailable, Some("NoService")),
        // A new kind of the client is nothing that we could act on.
        _ => (ErrorKind::Unavailable, None),
    };
    let mut told = ProviderError::new(kind, error.to_string()).with_maybe_applied(error.maybe_applied());
    if let Some(reason) = reason {
        told = told.with_reason(reason);
    }
    match error.retry_after() {
        Some(after) => told.with_retry_after(after),
        None => told,
    }
}
