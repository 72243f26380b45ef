//! Answers GET requests on a listener of its own.

use std::convert::Infallible;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tracing::{debug, warn};

/// A client that does not send its request in this time is cut off, so that idle connections cannot pile up.
const HEADER_DEADLINE: Duration = Duration::from_secs(5);

/// Serves until it is dropped. `what` is the listener's name in the log.
pub(super) async fn serve<F>(listener: TcpListener, what: &'static str, answer: F)
where
    F: Fn(&Request<Incoming>) -> Response<Full<Bytes>> + Clone + Send + Sync + 'static,
{
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of file descriptors, most likely: accepting again at once would spin.
                warn!(%error, "{what} cannot accept");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let answer = answer.clone();
        tokio::spawn(async move {
            let answer = service_fn(|request| {
                let response = match *request.method() {
                    Method::GET | Method::HEAD => answer(&request),
                    _ => text(StatusCode::METHOD_NOT_ALLOWED, "only GET\n"),
                };
                std::future::ready(Ok::<_, Infallible>(response))
            });
            let connection = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_DEADLINE)
                .serve_connection(TokioIo::new(stream), answer);
            if let Err(error) = connection.await {
                debug!(%error, "connection to {what}");
            }
        });
    }
}

pub(super) fn text(status: StatusCode, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response
}
