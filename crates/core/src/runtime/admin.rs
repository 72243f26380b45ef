//! The admin port: `/healthz`, `/readyz`, `/metrics`.

use std::io;
use std::net::SocketAddr;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::CONTENT_TYPE;
use hyper::{Request, Response, StatusCode};
use prometheus::{Encoder, Registry, TextEncoder};
use tokio::net::TcpListener;

use super::http::{self, text};
use super::listen::listen;
use super::ready::Readiness;

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
    pub(super) fn bind(address: SocketAddr, registry: Registry, ready: Readiness) -> io::Result<Self> {
        Ok(Self { listener: listen(address)?, state: State { registry, ready } })
    }

    pub(super) fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    pub(super) async fn serve(self) {
        let state = self.state;
        http::serve(self.listener, "the admin port", move |request| state.answer(request)).await;
    }
}

impl State {
    fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
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
