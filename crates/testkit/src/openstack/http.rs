//! Requests to a server on loopback, each on a connection of its own.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::timeout;

pub use hyper::Method;

const DEADLINE: Duration = Duration::from_mins(1);

/// What a service said.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// The body, or null if that is no JSON.
    pub body: Value,
    /// The token that Keystone gives in a header.
    pub(super) token: Option<String>,
}

impl Answer {
    /// The body of an answer that means success.
    pub fn ok(self) -> Result<Value> {
        ensure!(self.status < 300, "{}: {}", self.status, self.body);
        Ok(self.body)
    }
}

/// Asks for `path`, which begins with a slash.
pub(super) async fn ask(
    server: SocketAddr,
    method: Method,
    path: &str,
    token: Option<&str>,
    body: Option<&Value>,
) -> Result<Answer> {
    let body = body.map(|body| ("application/json", body.to_string().into_bytes()));
    send_in_time(server, method, path, token, body).await
}

/// Puts bytes at `path`.
pub(super) async fn upload(server: SocketAddr, path: &str, token: &str, bytes: Vec<u8>) -> Result<Answer> {
    send_in_time(server, Method::PUT, path, Some(token), Some(("application/octet-stream", bytes))).await
}

/// A body and what it is.
type Body = (&'static str, Vec<u8>);

async fn send_in_time(
    server: SocketAddr,
    method: Method,
    path: &str,
    token: Option<&str>,
    body: Option<Body>,
) -> Result<Answer> {
    let said = format!("{method} {path}");
    timeout(DEADLINE, send(server, method, path, token, body))
        .await
        .with_context(|| format!("no answer to {said} within {DEADLINE:?}"))?
        .with_context(|| said)
}

async fn send(
    server: SocketAddr,
    method: Method,
    path: &str,
    token: Option<&str>,
    body: Option<Body>,
) -> Result<Answer> {
    let (mut sender, connection) = handshake(TokioIo::new(TcpStream::connect(server).await?)).await?;
    // It ends with the answer; what goes wrong on it shows there.
    tokio::spawn(connection);
    let mut request = Request::builder().method(method).uri(path).header("host", server.to_string());
    if let Some(token) = token {
        request = request.header("x-auth-token", token);
    }
    let bytes = match body {
        Some((kind, bytes)) => {
            request = request.header("content-type", kind);
            bytes
        }
        None => Vec::new(),
    };
    let response = sender.send_request(request.body(Full::new(Bytes::from(bytes)))?).await?;
    let token = response.headers().get("x-subject-token").and_then(|token| token.to_str().ok()).map(str::to_owned);
    let status = response.status().as_u16();
    let body = response.into_body().collect().await?.to_bytes();
    Ok(Answer { status, body: serde_json::from_slice(&body).unwrap_or_default(), token })
}
