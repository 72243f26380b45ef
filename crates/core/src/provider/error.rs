//! Why a cloud refused or did not answer, and the one place that says what follows from it.

use std::time::Duration;

/// The kinds of refusal that a controller treats differently. Stable: it is a metric label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ErrorKind {
    /// Something that the request needs is not there: a router, a network, a server.
    NotFound,
    /// Another writer was quicker, or the thing belongs to somebody else.
    Conflict,
    /// A pool, a quota or an account is used up.
    Quota,
    /// The cloud asks us to slow down.
    Throttled,
    /// The credentials do not allow it.
    Denied,
    /// The request can never succeed as it is; its user must change it.
    Invalid,
    /// No answer, a time-out, a lost connection: the outcome may be unknown.
    Unavailable,
}

/// An error of a provider: its kind decides what happens next, its message is for the user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ProviderError {
    kind: ErrorKind,
    reason: Option<&'static str>,
    message: String,
    after: Option<Duration>,
    maybe_applied: bool,
}

/// When to look again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// At once, once; then as [`Retry::Backoff`]. A fresh look is all that is needed.
    Soon,
    /// Exponentially, from fractions of a second to half a minute.
    Backoff,
    /// Rarely: somebody has to free or allow something first.
    Slow,
    /// Not before this time has passed.
    After(Duration),
    /// Only when the object changes (the slow full scan looks anyway).
    OnChange,
}

/// What a controller does about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Response {
    /// When to look again.
    pub retry: Retry,
    /// Reason of the condition and of the Event.
    pub reason: &'static str,
    /// Whether the user is told by an Event. Quick retries are not worth one.
    pub tell: bool,
}

impl ErrorKind {
    /// Every kind, for metrics that must exist before the first error.
    pub const ALL: [Self; 7] =
        [Self::NotFound, Self::Conflict, Self::Quota, Self::Throttled, Self::Denied, Self::Invalid, Self::Unavailable];

    /// The metric label.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::NotFound => "not_found",
            Self::Conflict => "conflict",
            Self::Quota => "quota",
            Self::Throttled => "throttled",
            Self::Denied => "denied",
            Self::Invalid => "invalid",
            Self::Unavailable => "unavailable",
        }
    }

    fn response(self) -> Response {
        match self {
            Self::NotFound => Response { retry: Retry::Backoff, reason: "NotFound", tell: true },
            Self::Conflict => Response { retry: Retry::Soon, reason: "Conflict", tell: false },
            Self::Quota => Response { retry: Retry::Slow, reason: "QuotaExceeded", tell: true },
            Self::Throttled => Response { retry: Retry::Slow, reason: "Throttled", tell: false },
            Self::Denied => Response { retry: Retry::Slow, reason: "Denied", tell: true },
            Self::Invalid => Response { retry: Retry::OnChange, reason: "Invalid", tell: true },
            Self::Unavailable => Response { retry: Retry::Backoff, reason: "ProviderUnavailable", tell: true },
        }
    }
}

impl ProviderError {
    /// An error of this kind. The message is lower case, names the object, and says what to do where that is known.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, reason: None, message: message.into(), after: None, maybe_applied: false }
    }

    /// The API server's answer, with what was tried in front of it.
    #[must_use]
    pub fn from_kube(tried: &str, error: &kube::Error) -> Self {
        let kind = match error {
            kube::Error::Api(status) => match status.code {
                404 => ErrorKind::NotFound,
                409 => ErrorKind::Conflict,
                429 => ErrorKind::Throttled,
                401 | 403 => ErrorKind::Denied,
                400 | 405 | 413 | 422 => ErrorKind::Invalid,
                _ => ErrorKind::Unavailable,
            },
            _ => ErrorKind::Unavailable,
        };
        let refused = match error {
            // Its own words; the rest of the answer says the same for machines.
            kube::Error::Api(status) if !status.message.is_empty() => {
                Self::new(kind, format!("{tried}: {}", status.message))
            }
            _ => Self::new(kind, format!("{tried}: {error}")),
        };
        match error {
            // It says when it wants to hear from us again; without that, a second is what it usually says.
            kube::Error::Api(status) if kind == ErrorKind::Throttled => {
                let seconds = status.details.as_ref().map_or(0, |details| details.retry_after_seconds).max(1);
                refused.with_retry_after(Duration::from_secs(seconds.into()))
            }
            _ => refused,
        }
    }

    /// A reason in the field's own words (`PoolEmpty`, `RouterMissing`) instead of the kind's. A reason of its own is
    /// worth telling, so it turns the Event on.
    #[must_use]
    pub fn with_reason(mut self, reason: &'static str) -> Self {
        self.reason = Some(reason);
        self
    }

    /// The earliest time at which the cloud wants to hear from us again.
    #[must_use]
    pub fn with_retry_after(mut self, after: Duration) -> Self {
        self.after = Some(after);
        self
    }

    /// The write was sent, and no answer says what became of it.
    #[must_use]
    pub fn with_maybe_applied(mut self, maybe: bool) -> Self {
        self.maybe_applied = maybe;
        self
    }

    /// Whether a write may have been done although it failed. Look before doing it again.
    #[must_use]
    pub fn maybe_applied(&self) -> bool {
        self.maybe_applied
    }

    /// What kind of refusal it is.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// What to do about it: the only place where a kind becomes a retry, a reason and an Event.
    #[must_use]
    pub fn response(&self) -> Response {
        let base = self.kind.response();
        Response {
            retry: self.after.map_or(base.retry, Retry::After),
            reason: self.reason.unwrap_or(base.reason),
            tell: base.tell || self.reason.is_some(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_from_the_cloud_beats_the_default_delay() {
        let error = ProviderError::new(ErrorKind::Throttled, "slow down").with_retry_after(Duration::from_secs(7));
        assert_eq!(error.response().retry, Retry::After(Duration::from_secs(7)));
    }

    #[test]
    fn an_api_server_that_refuses_is_quoted_and_not_dumped() {
        let status = kube::core::Status::failure("pods \"a\" is forbidden", "Forbidden").with_code(403);
        let error = ProviderError::from_kube("cannot delete it", &kube::Error::Api(Box::new(status)));
        assert_eq!(
            (error.kind(), error.to_string().as_str()),
            (ErrorKind::Denied, "cannot delete it: pods \"a\" is forbidden")
        );
    }

    #[test]
    fn a_named_reason_reaches_the_user_even_where_the_kind_would_be_silent() {
        let error = ProviderError::new(ErrorKind::Conflict, "192.0.2.1 is held by a/b").with_reason("AddressTaken");
        assert_eq!(error.response(), Response { retry: Retry::Soon, reason: "AddressTaken", tell: true });
    }

    #[test]
    fn labels_are_distinct() {
        let labels: std::collections::BTreeSet<_> = ErrorKind::ALL.iter().map(|k| k.label()).collect();
        assert_eq!(labels.len(), ErrorKind::ALL.len());
    }
}
