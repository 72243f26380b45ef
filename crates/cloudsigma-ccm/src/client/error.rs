//! Why a call failed, in the cloud's own words.

use std::fmt;
use std::time::Duration;

use groundcrew_core::provider::{ErrorKind, ProviderError};
use reqwest::StatusCode;
use serde::Deserialize;

/// What a caller decides by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The API itself says that there is no such object; a proxy's 404 is [`Kind::Garbled`]. **It is safe to take it as
    /// gone.**
    NotFound,
    /// Another write of the same object was under way. Read again and build anew.
    Concurrency,
    /// Not enough funds.
    Funds,
    /// The cloud has no room for it now.
    Capacity,
    /// The credentials are not accepted.
    Unauthorized,
    /// We are known and may not, or the operation is not allowed now. Never means "gone".
    Denied,
    /// The request can never succeed as it is.
    Invalid,
    /// Slow down.
    Throttled,
    /// No answer, or a failure inside the cloud: a write may have happened.
    Unavailable,
    /// An answer that is not the API's.
    Garbled,
}

/// One line for an operator: what was asked, what was answered, and the id by which the cloud's support finds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error(Box<Details>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Details {
    kind: Kind,
    message: String,
    request: Option<String>,
    request_id: Option<String>,
    retry_after: Option<Duration>,
}

impl Error {
    pub(crate) fn new(kind: Kind, message: impl Into<String>) -> Self {
        let message = message.into();
        Self(Box::new(Details { kind, message, request: None, request_id: None, retry_after: None }))
    }

    /// What kind of failure it is.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// When the cloud wants to hear from us again.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after
    }

    pub(super) fn on(mut self, request: String) -> Self {
        self.0.request = Some(request);
        self
    }

    pub(super) fn with_request_id(mut self, id: Option<String>) -> Self {
        self.0.request_id = id;
        self
    }

    pub(super) fn with_retry_after(mut self, after: Option<Duration>) -> Self {
        self.0.retry_after = after;
        self
    }
}

impl std::error::Error for Error {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Details { message, request, request_id, .. } = &*self.0;
        if let Some(request) = request {
            write!(f, "{request}: ")?;
        }
        f.write_str(message)?;
        match request_id {
            Some(id) => write!(f, " (request {id})"),
            None => Ok(()),
        }
    }
}

impl From<Error> for ProviderError {
    fn from(error: Error) -> Self {
        let (kind, reason) = match error.kind() {
            Kind::NotFound => (ErrorKind::NotFound, None),
            Kind::Concurrency => (ErrorKind::Conflict, None),
            Kind::Funds => (ErrorKind::Quota, Some("NoFunds")),
            Kind::Capacity => (ErrorKind::Quota, Some("NoCapacity")),
            Kind::Unauthorized => (ErrorKind::Denied, Some("CredentialsRefused")),
            Kind::Denied => (ErrorKind::Denied, None),
            Kind::Invalid => (ErrorKind::Invalid, None),
            Kind::Throttled => (ErrorKind::Throttled, None),
            Kind::Unavailable | Kind::Garbled => (ErrorKind::Unavailable, None),
        };
        let mut told = Self::new(kind, format!("CloudSigma: {error}"));
        if let Some(reason) = reason {
            told = told.with_reason(reason);
        }
        match error.retry_after() {
            Some(after) => told.with_retry_after(after),
            None => told,
        }
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Body {
    Several(Vec<Fault>),
    One(Fault),
}

#[derive(Deserialize)]
struct Fault {
    #[serde(default)]
    error_point: Option<String>,
    error_type: String,
    #[serde(default)]
    error_message: Option<String>,
}

/// The error in an answer. Its body is an array of faults, a single one, or somebody else's page.
pub(super) fn refusal(status: StatusCode, body: &[u8]) -> Error {
    let faults = match serde_json::from_slice(body) {
        Ok(Body::Several(faults)) => faults,
        Ok(Body::One(fault)) => vec![fault],
        Err(_) => Vec::new(),
    };
    let is = |kind: &str| faults.iter().any(|fault| fault.error_type == kind);
    let kind = match status.as_u16() {
        401 => Kind::Unauthorized,
        402 => Kind::Funds,
        429 => Kind::Throttled,
        _ if is("concurrency") => Kind::Concurrency,
        _ if is("payment") || is("billing") => Kind::Funds,
        403 => Kind::Denied,
        404 if is("notexist") => Kind::NotFound,
        404 => Kind::Garbled,
        // The documentation has two meanings for it; without a word, reading again is right for the one and harmless for
        // the other.
        503 if faults.is_empty() => Kind::Unavailable,
        503 => Kind::Capacity,
        400..=499 if faults.is_empty() => Kind::Garbled,
        400..=499 => Kind::Invalid,
        _ => Kind::Unavailable,
    };
    let words: Vec<_> = faults.iter().map(Fault::words).collect();
    let words = if words.is_empty() { excerpt(body) } else { words.join("; ") };
    Error::new(kind, format!("{}: {words}", status.as_u16()))
}

impl Fault {
    fn words(&self) -> String {
        let message = self.error_message.as_deref().unwrap_or("no explanation");
        match &self.error_point {
            Some(point) => format!("{message} ({}: {point})", self.error_type),
            None => format!("{message} ({})", self.error_type),
        }
    }
}

fn excerpt(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.is_empty() { "no explanation".to_owned() } else { line.chars().take(200).collect() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(status: u16, body: &str) -> Error {
        refusal(StatusCode::from_u16(status).unwrap(), body.as_bytes())
    }

    #[test]
    fn an_error_is_read_as_array_object_or_text() {
        let array = of(400, r#"[{"error_point":"meta","error_type":"validation","error_message":"no"}]"#);
        assert_eq!((array.kind(), array.to_string().as_str()), (Kind::Invalid, "400: no (validation: meta)"));
        let object = of(403, r#"{"error_type":"permission","error_message":"not yours"}"#);
        assert_eq!((object.kind(), object.to_string().as_str()), (Kind::Denied, "403: not yours (permission)"));
        let silent = of(404, r#"[{"error_point":null,"error_type":"notexist","error_message":null}]"#);
        assert_eq!((silent.kind(), silent.to_string().as_str()), (Kind::NotFound, "404: no explanation (notexist)"));
        let text = of(500, "<html>\n  oops</html>");
        assert_eq!((text.kind(), text.to_string().as_str()), (Kind::Unavailable, "500: <html> oops</html>"));
    }

    #[test]
    fn only_the_apis_own_word_means_gone() {
        assert_eq!(of(404, r#"[{"error_type":"notexist","error_message":"x"}]"#).kind(), Kind::NotFound);
        for body in ["<html>nginx</html>", "", "[]", r#"{"detail":"Not found."}"#] {
            assert_eq!(of(404, body).kind(), Kind::Garbled, "{body}");
        }
        assert_eq!(of(403, r#"[{"error_type":"notexist","error_message":"x"}]"#).kind(), Kind::Denied);
    }

    #[test]
    fn a_concurrent_write_is_told_from_a_full_cloud() {
        assert_eq!(of(503, r#"[{"error_type":"concurrency","error_message":"x"}]"#).kind(), Kind::Concurrency);
        assert_eq!(of(503, r#"[{"error_type":"backend","error_message":"x"}]"#).kind(), Kind::Capacity);
        assert_eq!(of(402, "").kind(), Kind::Funds);
    }

    proptest! {
        #[test]
        fn no_answer_is_a_panic_and_only_a_404_is_gone(status in 400u16..600, body in prop::collection::vec(any::<u8>(), 0..100)) {
            let error = refusal(StatusCode::from_u16(status).unwrap(), &body);
            prop_assert!(error.kind() != Kind::NotFound || status == 404);
        }
    }
}
