//! An OpenStack in this process: Keystone by itself, the other services as a test says. For the faults that real ones do
//! not have on order.
//!
//! [`Fake`] answers what a test tells it to; [`Model`] answers as services with a memory do.

mod model;

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Result;
use futures::stream;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Collected, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;

pub use model::Model;

/// Everybody's.
pub const PASSWORD: &str = "correct-horse-battery";

/// How long tokens last.
const LIFE: Duration = Duration::from_hours(1);

/// A request that arrived.
#[derive(Debug, Clone)]
pub struct Seen {
    /// As `GET /v2.0/routers?name=a`.
    pub line: String,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body, or null if that is no JSON.
    pub body: Value,
}

impl Seen {
    /// One header.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

/// What to answer.
pub struct Reply {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Body,
}

enum Body {
    Whole(Vec<u8>),
    /// The connection ends in the middle of it.
    Cut(&'static str),
    Never,
}

impl Reply {
    /// A document.
    #[must_use]
    pub fn json(status: u16, body: &Value) -> Self {
        Self::text(status, body.to_string())
    }

    /// A document, and all is well.
    #[must_use]
    pub fn ok(body: &Value) -> Self {
        Self::json(200, body)
    }

    /// Whatever bytes.
    pub fn text(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self { status, headers: Vec::new(), body: Body::Whole(body.into()) }
    }

    /// A beginning, after which the connection is cut.
    #[must_use]
    pub fn cut(start: &'static str) -> Self {
        Self { status: 200, headers: Vec::new(), body: Body::Cut(start) }
    }

    /// Silence.
    #[must_use]
    pub fn never() -> Self {
        Self { status: 200, headers: Vec::new(), body: Body::Never }
    }

    /// With a header.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}

type Handler = Box<dyn FnMut(&Seen) -> Reply + Send>;

struct State {
    url: String,
    tokens: BTreeSet<String>,
    issued: u32,
    refuses: bool,
    catalog: Option<Value>,
    seen: Vec<Seen>,
    handler: Handler,
}

/// The cloud. It ends with the test's runtime.
#[derive(Clone)]
pub struct Fake(Arc<Mutex<State>>);

impl Fake {
    /// A cloud whose services answer as `handler` says.
    pub async fn start(handler: impl FnMut(&Seen) -> Reply + Send + 'static) -> Result<Self> {
        let (cloud, listener) = Self::bind("http", handler).await?;
        let serving = cloud.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serving.clone().connection(stream));
            }
        });
        Ok(cloud)
    }

    /// A cloud without anybody to take its connections yet.
    pub async fn bind(
        scheme: &str,
        handler: impl FnMut(&Seen) -> Reply + Send + 'static,
    ) -> Result<(Self, TcpListener)> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let state = State {
            url: format!("{scheme}://127.0.0.1:{}", listener.local_addr()?.port()),
            tokens: BTreeSet::new(),
            issued: 0,
            refuses: false,
            catalog: None,
            seen: Vec::new(),
            handler: Box::new(handler),
        };
        Ok((Self(Arc::new(Mutex::new(state))), listener))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where Keystone is, and everything else.
    #[must_use]
    pub fn url(&self) -> String {
        self.lock().url.clone()
    }

    /// Ends all tokens that were given out.
    pub fn revoke(&self) {
        self.lock().tokens.clear();
    }

    /// Whether Keystone accepts nobody from now on.
    pub fn refuse(&self, refuses: bool) {
        self.lock().refuses = refuses;
    }

    /// What Keystone says where the services are.
    pub fn catalog(&self, catalog: Value) {
        self.lock().catalog = Some(catalog);
    }

    /// The requests so far but those for tokens.
    #[must_use]
    pub fn seen(&self) -> Vec<Seen> {
        self.lock().seen.iter().filter(|seen| !seen.line.ends_with("/auth/tokens")).cloned().collect()
    }

    /// The same, the first line of each.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        self.seen().into_iter().map(|seen| seen.line).collect()
    }

    /// How often a token was asked for.
    #[must_use]
    pub fn logins(&self) -> usize {
        self.lock().seen.iter().filter(|seen| seen.line.ends_with("/auth/tokens")).count()
    }

    /// Serves one connection to its end.
    pub async fn connection(self, stream: impl AsyncRead + AsyncWrite + Unpin) {
        let answer = service_fn(async |request| Ok::<_, Infallible>(self.answer(request).await));
        // A client that went away is the client's business.
        let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<BoxBody<Bytes, io::Error>> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.map(Collected::to_bytes).unwrap_or_default();
        let seen = Seen {
            line: format!("{} {}", head.method, head.uri),
            headers: head.headers,
            body: serde_json::from_slice(&body).unwrap_or_default(),
        };
        let reply = self.lock().reply(&seen);
        let body = match reply.body {
            Body::Never => std::future::pending().await,
            Body::Whole(bytes) => Full::from(bytes).map_err(|never| match never {}).boxed(),
            Body::Cut(start) => {
                let frames = [Ok(Frame::data(Bytes::from(start))), Err(io::Error::other("cut"))];
                BodyExt::boxed(StreamBody::new(stream::iter(frames)))
            }
        };
        let mut response = Response::new(body);
        *response.status_mut() = StatusCode::from_u16(reply.status).unwrap_or_default();
        for (name, value) in reply.headers {
            if let Ok(value) = HeaderValue::from_str(&value) {
                response.headers_mut().insert(HeaderName::from_static(name), value);
            }
        }
        response
    }
}

impl State {
    fn reply(&mut self, seen: &Seen) -> Reply {
        self.seen.push(seen.clone());
        if seen.line == "POST /v3/auth/tokens" {
            return self.token(&seen.body);
        }
        // Not Keystone, but somebody took it for that.
        if seen.line.ends_with("/auth/tokens") {
            return (self.handler)(seen);
        }
        if !seen.header("x-auth-token").is_some_and(|token| self.tokens.contains(token)) {
            return unauthorized();
        }
        (self.handler)(seen)
    }

    fn token(&mut self, asked: &Value) -> Reply {
        let identity = &asked["auth"]["identity"];
        let secret = match identity["methods"][0].as_str() {
            Some("password") => &identity["password"]["user"]["password"],
            _ => &identity["application_credential"]["secret"],
        };
        let scoped = asked["auth"].get("scope").is_some();
        let credential = identity["methods"][0] == "application_credential";
        if self.refuses || secret != PASSWORD {
            return unauthorized();
        }
        if credential && scoped {
            return Reply::json(
                400,
                &json!({"error": {"code": 400, "title": "Bad Request", "message": "no scope here"}}),
            );
        }
        self.issued += 1;
        let token = format!("token-number-{}", self.issued);
        self.tokens.insert(token.clone());
        // By a clock that is a year off, which must not matter.
        let now = jiff::Timestamp::now() - Duration::from_hours(365 * 24);
        let body = json!({"token": {
            "issued_at": now.to_string(), "expires_at": (now + LIFE).to_string(),
            "project": {"id": "p1", "name": "kluster", "domain": {"id": "default"}},
            "user": {"id": "u1", "name": "demo"}, "roles": [{"id": "r", "name": "member"}],
            "catalog": self.catalog.clone().unwrap_or_else(|| catalog(&self.url)),
        }});
        Reply::json(201, &body).header("x-subject-token", token)
    }
}

/// Where everything is at `url`.
#[must_use]
pub fn catalog(url: &str) -> Value {
    let service = |kind: &str, path: &str| {
        json!({"type": kind, "name": kind, "endpoints": [
            {"interface": "public", "region": "lab", "region_id": "lab", "url": format!("{url}{path}")}]})
    };
    json!([
        service("network", ""),
        service("compute", "/compute/v2.1"),
        service("load-balancer", "/lb"),
        service("volumev3", "/volume/v3/p1"),
    ])
}

fn unauthorized() -> Reply {
    let message = "The request you have made requires authentication.";
    Reply::json(401, &json!({"error": {"code": 401, "title": "Unauthorized", "message": message}}))
}
