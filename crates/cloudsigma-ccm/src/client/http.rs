//! One request and its answer: deadlines, and repetition where that is harmless.

use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::redirect::Policy;
use reqwest::{Method, RequestBuilder, Url};
use rustls::ClientConfig;
use rustls::crypto::ring;
use rustls_platform_verifier::BuilderVerifierExt;
use serde_json::Value;
use tokio::time::Instant;
use tracing::debug;

use super::error::{Error, Kind, refusal};

/// No answer that we ask for comes near.
const LARGEST_ANSWER: usize = 64 * 1024 * 1024;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Of what the cloud asks for: a mistake of its must not stop us for a day.
const LONGEST_WISH: Duration = Duration::from_mins(1);

pub(super) struct Call<'a> {
    pub(super) method: Method,
    pub(super) url: Url,
    pub(super) authorization: &'a HeaderValue,
    pub(super) body: Option<&'a Value>,
}

#[derive(Debug)]
pub(super) struct Http {
    client: reqwest::Client,
    retry_for: Duration,
}

impl Http {
    pub(super) fn new(timeout: Duration, retry_for: Duration) -> Result<Self, Error> {
        Ok(Self { client: outside(timeout)?, retry_for })
    }

    /// Sends it; reads are tried again. A write never is: what it was built from may have changed.
    pub(super) async fn send(&self, call: &Call<'_>) -> Result<Vec<u8>, Error> {
        let until = Instant::now() + self.retry_for;
        let mut pause = FIRST_PAUSE;
        loop {
            let mut request = self.client.request(call.method.clone(), call.url.clone());
            request = request.header(ACCEPT, "application/json").header(AUTHORIZATION, call.authorization.clone());
            if let Some(body) = call.body {
                request = request.json(body);
            }
            let error = match answer(request).await {
                Ok(body) => return Ok(body),
                Err(error) => error.on(format!("{} {}", call.method, call.url.path())),
            };
            let passing = matches!(error.kind(), Kind::Unavailable | Kind::Throttled);
            let wait = error.retry_after().unwrap_or_else(|| pause.mul_f64(rand::random_range(0.5..1.0)));
            if call.method != Method::GET || !passing || Instant::now() + wait >= until {
                return Err(error);
            }
            debug!(%error, ?wait, "trying again");
            tokio::time::sleep(wait).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// A form, as token endpoints want it, or JSON; the answer is JSON.
    pub(super) async fn post(&self, url: &Url, bearer: Option<HeaderValue>, body: Posted<'_>) -> Result<Value, Error> {
        let request = self.client.post(url.clone());
        let request = bearer.into_iter().fold(request, |request, bearer| request.header(AUTHORIZATION, bearer));
        let request = match body {
            Posted::Form(fields) => request.form(fields),
            Posted::Json(value) => request.json(value),
        };
        let on = format!("POST {}{}", url.host_str().unwrap_or_default(), url.path());
        let body = answer(request).await.map_err(|error| error.on(on.clone()))?;
        serde_json::from_slice(&body).map_err(|_| Error::new(Kind::Garbled, "the answer is not JSON").on(on))
    }
}

/// A client that speaks TLS as we do everywhere.
pub(crate) fn outside(timeout: Duration) -> Result<reqwest::Client, Error> {
    let unusable = |error: &dyn std::fmt::Display| Error::new(Kind::Invalid, format!("no TLS: {error}"));
    // A configuration of our own: reqwest would look for a process-wide crypto provider, and panic without one.
    let tls = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(BuilderVerifierExt::with_platform_verifier)
        .map_err(|error| unusable(&error))?
        .with_no_client_auth();
    reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        // A redirect would carry the credentials to wherever it points.
        .redirect(Policy::none())
        .connect_timeout(CONNECT_TIMEOUT.min(timeout))
        .timeout(timeout)
        .user_agent(concat!("groundcrew-cloudsigma-ccm/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(|error| unusable(&error))
}

pub(super) enum Posted<'a> {
    Form(&'a [(&'a str, &'a str)]),
    Json(&'a Value),
}

async fn answer(request: RequestBuilder) -> Result<Vec<u8>, Error> {
    let mut response = request.send().await.map_err(|error| lost(&error))?;
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| lost(&error))? {
        if body.len() + chunk.len() > LARGEST_ANSWER {
            return Err(Error::new(Kind::Garbled, format!("the answer is longer than {LARGEST_ANSWER} bytes")));
        }
        body.extend_from_slice(&chunk);
    }
    let (status, headers) = (response.status(), response.headers());
    let id = header(headers, "x-request-id");
    if status.is_success() {
        debug!(url = response.url().path(), request_id = id, "answered");
        return Ok(body);
    }
    let after = header(headers, RETRY_AFTER.as_str()).and_then(|text| text.parse().ok()).map(Duration::from_secs);
    let after = after.map(|after| after.clamp(FIRST_PAUSE, LONGEST_WISH));
    let error = if status.is_redirection() {
        Error::new(
            Kind::Garbled,
            format!("{}: redirected, which is not followed; is --api-url right?", status.as_u16()),
        )
    } else {
        refusal(status, &body)
    };
    Err(error.with_request_id(id).with_retry_after(after))
}

fn header(headers: &HeaderMap, name: &str) -> Option<String> {
    Some(headers.get(name)?.to_str().ok()?.chars().take(80).collect())
}

/// The words of reqwest are wrapped several times; the innermost say what happened.
fn lost(error: &reqwest::Error) -> Error {
    let mut innermost: &dyn std::error::Error = error;
    while let Some(inner) = innermost.source() {
        innermost = inner;
    }
    let message = if error.is_timeout() { "no answer in time".to_owned() } else { innermost.to_string() };
    Error::new(if error.is_builder() { Kind::Invalid } else { Kind::Unavailable }, message)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// How long a cloud that is asked once, and says this, has us wait.
    async fn told_to_wait(retry_after: &str) -> Option<Duration> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/api/2.0/ips/", listener.local_addr().unwrap()).parse().unwrap();
        let answer = format!("HTTP/1.1 429 Slowly\r\nRetry-After: {retry_after}\r\nContent-Length: 0\r\n\r\n");
        let cloud = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 4096]).await.unwrap();
            stream.write_all(answer.as_bytes()).await.unwrap();
        });
        let http = Http::new(Duration::from_mins(1), Duration::ZERO).unwrap();
        let authorization = HeaderValue::from_static("Basic eA==");
        let call = Call { method: Method::GET, url, authorization: &authorization, body: None };
        let error = http.send(&call).await.unwrap_err();
        cloud.await.unwrap();
        error.retry_after()
    }

    #[tokio::test]
    async fn a_cloud_that_asks_for_patience_gets_some_and_neither_none_nor_a_day() {
        assert_eq!(told_to_wait("7").await, Some(Duration::from_secs(7)));
        assert_eq!(told_to_wait("86400").await, Some(LONGEST_WISH));
        assert_eq!(told_to_wait("0").await, Some(FIRST_PAUSE));
        assert_eq!(told_to_wait("Fri, 31 Dec 2027 23:59:59 GMT").await, None, "the usual pause then");
    }
}
