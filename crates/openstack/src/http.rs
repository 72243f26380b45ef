//! One request and its answer: deadlines, repetition where that is harmless, and no word about secrets.

use std::time::Duration;

use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::redirect::Policy;
use reqwest::{Method, Response, StatusCode, Url};
use serde_json::Value;
use tokio::time::Instant;
use tracing::debug;

use crate::config::{Config, ConfigError};
use crate::error::{Error, Kind};
use crate::fault;
use crate::secret::Secret;
use crate::tls;

/// No answer that we ask for comes near: ten thousand ports are some 15 MB.
const LARGEST_ANSWER: usize = 128 * 1024 * 1024;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(8);

pub(crate) static TOKEN: HeaderName = HeaderName::from_static("x-auth-token");

/// A request, without whatever differs from attempt to attempt.
pub(crate) struct Call<'a> {
    pub(crate) method: Method,
    pub(crate) url: Url,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Option<&'a Value>,
    /// Whether doing it twice is the same as doing it once.
    pub(crate) repeatable: bool,
    /// What must not come back in an error.
    pub(crate) secrets: &'a [&'a Secret],
}

pub(crate) struct Answer {
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

#[derive(Debug)]
pub(crate) struct Http {
    client: reqwest::Client,
    attempt_timeout: Duration,
    retry_for: Duration,
}

impl Http {
    pub(crate) fn new(config: &Config) -> Result<Self, ConfigError> {
        let client = reqwest::Client::builder()
            .tls_backend_preconfigured(tls::client_config(config.ca.as_deref())?)
            // A redirect would carry the token to wherever it points.
            .redirect(Policy::none())
            .connect_timeout(CONNECT_TIMEOUT.min(config.attempt_timeout))
            .timeout(config.attempt_timeout)
            .user_agent(concat!("groundcrew-openstack/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| ConfigError::Invalid {
                place: "http".to_owned(),
                key: "client".to_owned(),
                reason: format!("cannot be built: {error}"),
            })?;
        Ok(Self { client, attempt_timeout: config.attempt_timeout, retry_for: config.retry_for })
    }

    /// Sends it, again where that is harmless and may help.
    pub(crate) async fn send(&self, call: &Call<'_>) -> Result<Answer, Error> {
        let until = Instant::now() + self.retry_for;
        let mut pause = FIRST_PAUSE;
        loop {
            let failure = match self.attempt(call).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            if !(call.repeatable && failure.passing) {
                return Err(failure.error);
            }
            let wait = failure.error.retry_after().unwrap_or_else(|| pause.mul_f64(rand::random_range(0.5..1.0)));
            if Instant::now() + wait >= until {
                return Err(failure.error);
            }
            debug!(error = %failure.error, ?wait, "trying again");
            tokio::time::sleep(wait).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn attempt(&self, call: &Call<'_>) -> Result<Answer, Failure> {
        let mut request = self.client.request(call.method.clone(), call.url.clone()).headers(call.headers.clone());
        if let Some(body) = call.body {
            request = request.json(body);
        }
        let write = !call.repeatable;
        let lost = |error: &reqwest::Error| {
            let Failure { error: told, passing } = self.no_answer(error);
            let told = told
                .on(&call.method, &call.url)
                .with_maybe_applied(write && !error.is_connect() && !error.is_builder());
            Failure { error: told, passing }
        };
        let mut response = request.send().await.map_err(|error| lost(&error))?;
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| lost(&error))? {
            if body.len() + chunk.len() > LARGEST_ANSWER {
                let error = Error::new(Kind::Garbled, format!("the answer is longer than {LARGEST_ANSWER} bytes"));
                return Err(Failure {
                    error: error.on(&call.method, &call.url).with_maybe_applied(write),
                    passing: false,
                });
            }
            body.extend_from_slice(&chunk);
        }
        let status = response.status();
        if status.is_success() {
            return Ok(Answer { headers: response.headers().clone(), body });
        }
        Err(refusal(call, &response, &body))
    }

    /// What a transport failure means. The words of reqwest are wrapped several times; the innermost say what happened.
    fn no_answer(&self, error: &reqwest::Error) -> Failure {
        if let Some(reason) = distrust(error) {
            let message = format!("the server's certificate is not trusted: {reason}; is the cloud's CA configured?");
            return Failure { error: Error::new(Kind::Unavailable, message), passing: false };
        }
        let mut innermost: &dyn std::error::Error = error;
        while let Some(inner) = innermost.source() {
            innermost = inner;
        }
        let message = if error.is_timeout() && error.is_connect() {
            format!("cannot connect within {:?}", CONNECT_TIMEOUT.min(self.attempt_timeout))
        } else if error.is_timeout() {
            format!("no answer within {:?}", self.attempt_timeout)
        } else if error.is_connect() {
            format!("cannot connect: {innermost}")
        } else if error.is_builder() {
            format!("the request cannot be made: {innermost}")
        } else {
            format!("the connection was lost: {innermost}")
        };
        let kind = if error.is_builder() { Kind::Invalid } else { Kind::Unavailable };
        Failure { error: Error::new(kind, message), passing: !error.is_builder() }
    }
}

/// What is wrong with the server's certificate, if that is what went wrong. I/O errors do not give what is in them as their source.
fn distrust<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a rustls::CertificateError> {
    if let Some(rustls::Error::InvalidCertificate(reason)) = error.downcast_ref() {
        return Some(reason);
    }
    let hidden = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
    hidden.and_then(|hidden| distrust(hidden)).or_else(|| error.source().and_then(distrust))
}

struct Failure {
    error: Error,
    /// Whether trying again may help.
    passing: bool,
}

fn refusal(call: &Call<'_>, response: &Response, body: &[u8]) -> Failure {
    let status = response.status();
    let after = response.headers().get(RETRY_AFTER).and_then(|value| retry_after(value, Timestamp::now()));
    let mut error = fault::error_of(status, body, after.is_some())
        .on(&call.method, &call.url)
        .with_request_id(request_id(response.headers()))
        .with_retry_after(after)
        .with_maybe_applied(!call.repeatable && status.is_server_error());
    if status.is_redirection() {
        let place =
            response.headers().get("location").and_then(|place| place.to_str().ok()).unwrap_or("somewhere else");
        error = error.map_message(|_| {
            format!("redirected to {place}, which is not followed; is the endpoint in the catalog right?")
        });
    }
    for secret in call.secrets {
        error = error.map_message(|message| secret.scrub(&message));
    }
    let passing = error.kind() == Kind::Throttled
        || matches!(status, StatusCode::INTERNAL_SERVER_ERROR | StatusCode::BAD_GATEWAY)
        || matches!(status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT);
    Failure { error, passing }
}

fn request_id(headers: &HeaderMap) -> Option<String> {
    let id = headers.get("x-openstack-request-id").or_else(|| headers.get("x-compute-request-id"))?;
    Some(id.to_str().ok()?.chars().take(80).collect())
}

/// Seconds, or a date.
fn retry_after(value: &HeaderValue, now: Timestamp) -> Option<Duration> {
    let text = value.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = DateTimeParser::new().parse_timestamp(text).ok()?;
    Some(Duration::try_from(date.duration_since(now)).unwrap_or_default())
}

/// A header whose value must not be printed.
pub(crate) fn hidden(secret: &Secret) -> Result<HeaderValue, Error> {
    let mut value = HeaderValue::from_str(secret.expose())
        .map_err(|_| Error::new(Kind::Garbled, "keystone gave a token that cannot be a header"))?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_given_in_seconds_or_as_a_date() {
        let now: Timestamp = "2026-03-01T12:00:00Z".parse().unwrap();
        let of = |text: &str| retry_after(&HeaderValue::from_str(text).unwrap(), now);
        assert_eq!(of("7"), Some(Duration::from_secs(7)));
        assert_eq!(of("Sun, 01 Mar 2026 12:00:30 GMT"), Some(Duration::from_secs(30)));
        assert_eq!(of("Sun, 01 Mar 2026 11:00:00 GMT"), Some(Duration::ZERO));
        assert_eq!(of("soon"), None);
        assert_eq!(of("-3"), None);
    }
}
