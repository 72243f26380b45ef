//! The HTTP around it.

use std::convert::Infallible;
use std::io;
use std::time::Duration;

use http_body_util::{BodyExt, Collected, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::api::Asked;
use super::fault::strike;
use super::lists::Query;
use super::reply::Reply;
use super::{Call, Host, Shared};

const API: &str = "/api/2.0/";
const KEYCLOAK: &str = "/auth/realms/cloudsigma/protocol/openid-connect/token";
const IMPERSONATE: &str = "/service_provider/api/v1/user/impersonate";

pub(super) async fn serve(listener: TcpListener, host: Host, shared: Shared) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(connection(stream, host, shared.clone()));
    }
}

async fn connection(stream: TcpStream, host: Host, shared: Shared) {
    let answer = service_fn(async |request| answer(request, host, &shared).await);
    // A client that went away is the client's business.
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
}

/// An error ends the connection without an answer.
async fn answer(request: Request<Incoming>, host: Host, shared: &Shared) -> io::Result<Response<Full<Bytes>>> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map(Collected::to_bytes).unwrap_or_default().to_vec();
    let (basic, bearer) = credentials(&head.headers);
    let (method, path) = (head.method.to_string(), head.uri.path());
    let query = head.uri.query().map(form).unwrap_or_default();
    if path == KEYCLOAK {
        let form = form(&String::from_utf8_lossy(&body));
        return Ok(response(shared.lock().tokens.keycloak(&form, bearer.as_deref())));
    }
    if path == IMPERSONATE && host == Host::Direct {
        let body = serde_json::from_slice(&body).unwrap_or_default();
        return Ok(response(shared.lock().tokens.impersonate(&body, bearer.as_deref())));
    }
    let Some(path) = path.strip_prefix(API) else { return Ok(response(Reply::not_found(path))) };
    let asked = Asked { host, method, path: path.to_owned(), query, basic, bearer, body };
    let line = head.uri.query().map_or_else(|| path.to_owned(), |query| format!("{path}?{query}"));
    let number = {
        let mut state = shared.lock();
        state.calls.push(Call { method: asked.method.clone(), path: line, status: 0 });
        state.calls.len() - 1
    };
    let reply = carry_out(&asked, shared).await;
    shared.lock().calls[number].status = reply.as_ref().map_or(0, |reply| reply.status);
    reply.map(response)
}

async fn carry_out(asked: &Asked, shared: &Shared) -> io::Result<Reply> {
    let struck = {
        let mut state = shared.lock();
        let state = &mut *state;
        strike(&mut state.faults, &mut state.account, &asked.method, &asked.path)
    };
    if struck.hang {
        std::future::pending::<Infallible>().await;
    }
    if let Some(hold) = struck.held {
        hold.wait().await;
    }
    if let Some((status, body)) = struck.answer {
        return Ok(Reply { status, body });
    }
    tokio::time::sleep(struck.delay).await;
    let is_write = matches!(asked.method.as_str(), "PUT" | "DELETE");
    // Given back also by a client that gives up in the middle.
    let busy = if is_write { Some(Busy::new(asked, shared)) } else { None };
    if let Some(busy) = busy.as_ref() {
        let Some(time) = busy.time else {
            return Ok(Reply::error(503, "concurrency", None, "The object is being changed by another request"));
        };
        tokio::time::sleep(time).await;
    }
    let reply = shared.lock().answer(asked, struck.cut, struck.ignore);
    drop(busy);
    tokio::time::sleep(struck.late).await;
    if struck.lose_answer { Err(io::Error::other("lost")) } else { Ok(reply) }
}

/// One write at a time of each object.
struct Busy<'a> {
    asked: &'a Asked,
    shared: &'a Shared,
    /// How long the write takes; none where another is under way.
    time: Option<Duration>,
}

impl<'a> Busy<'a> {
    fn new(asked: &'a Asked, shared: &'a Shared) -> Self {
        let mut state = shared.lock();
        let time = state.busy.insert(asked.path.clone()).then_some(state.write_time);
        Self { asked, shared, time }
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        if self.time.is_some() {
            self.shared.lock().busy.remove(&self.asked.path);
        }
    }
}

fn response(reply: Reply) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(reply.body));
    *response.status_mut() = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert("x-request-id", HeaderValue::from_static("test-request"));
    if reply.status == 429 {
        headers.insert("retry-after", HeaderValue::from_static("1"));
    }
    response
}

fn credentials(headers: &HeaderMap) -> (Option<String>, Option<String>) {
    let value = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let basic = value.strip_prefix("Basic ").and_then(base64);
    (basic, value.strip_prefix("Bearer ").map(str::to_owned))
}

fn base64(text: &str) -> Option<String> {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bits, mut count, mut bytes) = (0_u32, 0, Vec::new());
    for digit in text.trim_end_matches('=').bytes() {
        bits = bits << 6 | u32::try_from(DIGITS.iter().position(|known| *known == digit)?).ok()?;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from(bits >> count & 0xff).ok()?);
        }
    }
    String::from_utf8(bytes).ok()
}

/// `a=b&c=d%20e`, as in a query or a form.
fn form(text: &str) -> Query {
    let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (decoded(name), decoded(value))).collect()
}

fn decoded(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let [first, after @ ..] = rest {
        rest = after;
        match (first, after) {
            (b'%', [high, low, after @ ..]) => {
                let digits = [*high, *low];
                let code = std::str::from_utf8(&digits).ok().and_then(|digits| u8::from_str_radix(digits, 16).ok());
                bytes.push(code.unwrap_or(b'?'));
                rest = after;
            }
            (b'+', _) => bytes.push(b' '),
            (byte, _) => bytes.push(*byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
