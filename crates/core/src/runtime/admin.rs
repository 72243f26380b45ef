//! The admin port: `/healthz`, `/readyz`, `/metrics`.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::CONTENT_TYPE;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus::{Encoder, Registry, TextEncoder};
use tokio::net::TcpListener;
use tracing::{debug, warn};

use super::ready::Readiness;

/// A client that does not send its request in this time is cut off, so that idle connections cannot pile up.
const HEADER_DEADLINE: Duration = Duration::from_secs(5);

pub(super) struct Admin {
    listener: TcpListener,
    state: State,
}

#[derive(Clone)]
struct State {
    registry: Registry,
    ready: Readiness,
}

impl Admin {
    pub(super) async fn bind(address: SocketAddr, registry: Registry, ready: Readiness) -> io::Result<Self> {
        Ok(Self { listener: TcpListener::bind(address).await?, state: State { registry, ready } })
    }

    pub(super) fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    pub(super) async fn serve(self) {
        loop {
            let stream = match self.listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Out of file descriptors, most likely: accepting again at once would spin.
                    warn!(%error, "admin port cannot accept");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let state = self.state.clone();
            tokio::spawn(async move {
                let answer = service_fn(|request| std::future::ready(Ok::<_, Infallible>(state.answer(&request))));
                let connection = hyper::server::conn::http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(HEADER_DEADLINE)
                    .serve_connection(TokioIo::new(stream), answer);
                if let Err(error) = connection.await {
                    debug!(%error, "admin connection");
                }
            });
        }
    }
}

impl State {
    fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return text(StatusCode::METHOD_NOT_ALLOWED, "only GET\n");
        }
        match request.uri().path() {
            // That this answer is sent is the whole check: a hung backend is no reason to restart the process.
            "/healthz" | "/livez" => text(StatusCode::OK, "ok\n"),
            "/readyz" => match self.ready.check() {
                Ok(()) => text(StatusCode::OK, "ok\n"),
                Err(missing) => text(StatusCode::SERVICE_UNAVAILABLE, format!("{missing}\n")),
            },
            "/metrics" => self.metrics(),
            _ => text(StatusCode::NOT_FOUND, "try /healthz, /readyz or /metrics\n"),
        }
    }

    fn metrics(&self) -> Response<Full<Bytes>> {
        let mut body = Vec::new();
        match TextEncoder::new().encode(&self.registry.gather(), &mut body) {
            Ok(()) => {
                let mut response = Response::new(Full::from(body));
                let version = hyper::header::HeaderValue::from_static(prometheus::TEXT_FORMAT);
                response.headers_mut().insert(CONTENT_TYPE, version);
                response
            }
            Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
        }
    }
}

fn text(status: StatusCode, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response
}
