//! The one error of every call.

use std::fmt;
use std::time::Duration;

use reqwest::{Method, Url};

/// What kind of failure it is: what a caller decides by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// The service knows its business and says that there is no such thing. A proxy's 404, or a call that the service
    /// does not have, is never this kind: **it is safe to take it as "gone"**.
    NotFound,
    /// Another writer was quicker, or the thing is in a state or a use that forbids it.
    Conflict,
    /// A quota or a limit is used up.
    Quota,
    /// The service asks us to slow down; see [`Error::retry_after`].
    Throttled,
    /// Keystone does not accept the credentials: wrong password, expired application credential, disabled user.
    Unauthorized,
    /// We are known and may not.
    Denied,
    /// The request can never succeed as it is.
    Invalid,
    /// No answer, a lost connection, a failure inside the service.
    Unavailable,
    /// The catalog has no such service, or not in the configured region or interface.
    NoService,
    /// An answer that is not OpenStack's: a proxy's page, half a document, a document without what it must have.
    Garbled,
}

impl Kind {
    /// A word for logs and metric labels.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::NotFound => "not_found",
            Self::Conflict => "conflict",
            Self::Quota => "quota",
            Self::Throttled => "throttled",
            Self::Unauthorized => "unauthorized",
            Self::Denied => "denied",
            Self::Invalid => "invalid",
            Self::Unavailable => "unavailable",
            Self::NoService => "no_service",
            Self::Garbled => "garbled",
        }
    }
}

/// Why a call failed.
///
/// It prints as one line for an operator: what was asked, the service's own words, and the request id by which the cloud's
/// people find it in their logs.
#[derive(Clone, PartialEq, Eq)]
pub struct Error(Box<Details>);

#[derive(Clone, PartialEq, Eq)]
struct Details {
    kind: Kind,
    message: String,
    request: Option<String>,
    status: Option<u16>,
    code: Option<String>,
    request_id: Option<String>,
    retry_after: Option<Duration>,
    maybe_applied: bool,
}

impl Error {
    pub(crate) fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self(Box::new(Details {
            kind,
            message: message.into(),
            request: None,
            status: None,
            code: None,
            request_id: None,
            retry_after: None,
            maybe_applied: false,
        }))
    }

    /// What kind of failure it is.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// The HTTP status, if there was an answer.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        self.0.status
    }

    /// The service's name for the failure, where it has one: `RouterNotFound`, `OverQuota`, `itemNotFound`, ...
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        self.0.code.as_deref()
    }

    /// The service's words, or ours where it said nothing.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The id of the request in the service's logs.
    #[must_use]
    pub fn request_id(&self) -> Option<&str> {
        self.0.request_id.as_deref()
    }

    /// How long the service wants to be left alone.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after
    }

    /// Whether a write may have been done although it failed: it was sent, and no answer says what became of it. Look before doing
    /// it again. Always false for reads.
    #[must_use]
    pub fn maybe_applied(&self) -> bool {
        self.0.maybe_applied
    }

    /// Whether a router has no room for another route. Neutron before 2026.2 says 400 `RoutesExhausted`, later ones 409 `OverQuota`.
    #[must_use]
    pub fn is_router_full(&self) -> bool {
        match self.code() {
            Some("RoutesExhausted") => true,
            Some("OverQuota") => self.message().contains("router_route"),
            _ => false,
        }
    }

    pub(crate) fn on(mut self, method: &Method, url: &Url) -> Self {
        self.0.request = Some(format!("{method} {url}"));
        self
    }

    pub(crate) fn with_kind(mut self, kind: Kind) -> Self {
        self.0.kind = kind;
        self
    }

    pub(crate) fn with_status(mut self, status: u16) -> Self {
        self.0.status = Some(status);
        self
    }

    pub(crate) fn with_code(mut self, code: Option<String>) -> Self {
        self.0.code = code;
        self
    }

    pub(crate) fn with_request_id(mut self, id: Option<String>) -> Self {
        self.0.request_id = id;
        self
    }

    pub(crate) fn with_retry_after(mut self, after: Option<Duration>) -> Self {
        self.0.retry_after = after;
        self
    }

    pub(crate) fn with_maybe_applied(mut self, maybe: bool) -> Self {
        self.0.maybe_applied = maybe;
        self
    }

    pub(crate) fn map_message(mut self, change: impl FnOnce(String) -> String) -> Self {
        self.0.message = change(std::mem::take(&mut self.0.message));
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Details { message, request, status, code, request_id, maybe_applied, .. } = &*self.0;
        if let Some(request) = request {
            write!(f, "{request}: ")?;
        }
        f.write_str(message)?;
        let mut notes = Vec::new();
        notes.extend(status.map(|status| status.to_string()));
        notes.extend(code.clone());
        notes.extend(request_id.as_ref().map(|id| format!("request id {id}")));
        if *maybe_applied {
            notes.push("it may or may not be done".to_owned());
        }
        if notes.is_empty() { Ok(()) } else { write!(f, " ({})", notes.join(", ")) }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.kind())
    }
}

impl std::error::Error for Error {}
