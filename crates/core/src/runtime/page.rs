//! The listener of the status page. It only reads, and has no way to do anything else.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{Request, Response, StatusCode};
use jiff::Timestamp;
use serde::Serialize;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::Instant;

use super::http::{self, text};
use super::ready::Readiness;
use crate::leader::Role;
use crate::page::{Board, Shown};

/// However many look, the data is made once in this time.
const FRESH: Duration = Duration::from_secs(1);

/// Nothing from elsewhere, nothing inline, and no other site may frame it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

pub(super) struct Page {
    listener: TcpListener,
    state: State,
}

/// What there is to show.
#[derive(Clone)]
pub(super) struct Source {
    pub(super) controller: &'static str,
    pub(super) dry_run: bool,
    pub(super) ready: Readiness,
    pub(super) role: watch::Receiver<Role>,
    pub(super) board: Board,
}

#[derive(Clone)]
struct State {
    source: Source,
    /// Only names of this machine are answered to.
    local: bool,
    made: Arc<Mutex<Option<(Instant, Bytes)>>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Data {
    controller: &'static str,
    version: &'static str,
    at: Timestamp,
    dry_run: bool,
    leading: bool,
    /// What is missing, if it is not ready.
    waiting: Option<String>,
    #[serde(flatten)]
    shown: Shown,
}

impl Page {
    pub(super) async fn bind(address: SocketAddr, source: Source) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let local = listener.local_addr()?.ip().is_loopback();
        Ok(Self { listener, state: State { source, local, made: Arc::default() } })
    }

    pub(super) fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    pub(super) async fn serve(self) {
        let state = self.state;
        http::serve(self.listener, "the status page", move |request| state.answer(request)).await;
    }
}

impl State {
    fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        if self.local && !is_local(host) {
            // A site whose name was pointed at this machine could read the page in its visitor's browser.
            return text(StatusCode::FORBIDDEN, "ask for localhost or for an address\n");
        }
        let (kind, body) = match request.uri().path() {
            "/" => ("text/html; charset=utf-8", Bytes::from_static(include_bytes!("../page/page.html"))),
            "/page.css" => ("text/css; charset=utf-8", Bytes::from_static(include_bytes!("../page/page.css"))),
            "/page.js" => ("text/javascript; charset=utf-8", Bytes::from_static(include_bytes!("../page/page.js"))),
            "/data.json" => ("application/json", self.data()),
            _ => return text(StatusCode::NOT_FOUND, "try / or /data.json\n"),
        };
        let mut response = Response::new(Full::new(body));
        let headers: [(HeaderName, &'static str); 4] = [
            (header::CONTENT_TYPE, kind),
            (header::CONTENT_SECURITY_POLICY, POLICY),
            (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (header::CACHE_CONTROL, "no-store"),
        ];
        for (name, value) in headers {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        response
    }

    fn data(&self) -> Bytes {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, bytes)) = &*made
            && at.elapsed() < FRESH
        {
            return bytes.clone();
        }
        let Source { controller, dry_run, ready, role, board } = &self.source;
        let data = Data {
            controller,
            version: env!("CARGO_PKG_VERSION"),
            at: Timestamp::now(),
            dry_run: *dry_run,
            leading: role.borrow().term().is_some(),
            waiting: ready.check().err().map(|missing| missing.to_string()),
            shown: board.shown(),
        };
        // Structs of strings and numbers have nothing that could not be written.
        let bytes = Bytes::from(serde_json::to_vec(&data).unwrap_or_default());
        *made = Some((Instant::now(), bytes.clone()));
        bytes
    }
}

/// `localhost`, or any address: names are what an attacker can point somewhere.
fn is_local(host: &str) -> bool {
    let bare = host
        .rsplit_once(':')
        .filter(|(_, port)| port.bytes().all(|b| b.is_ascii_digit()))
        .map_or(host, |(bare, _)| bare);
    let bare = bare.trim_start_matches('[').trim_end_matches(']');
    bare.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machines_own_names_are_answered_to() {
        for local in ["localhost", "localhost:8081", "127.0.0.1:8081", "[::1]:8081", "LocalHost:1"] {
            assert!(is_local(local), "{local}");
        }
        for other in ["", "evil.example", "evil.example:8081", "localhost.evil.example:8081"] {
            assert!(!is_local(other), "{other}");
        }
    }
}
