//! A way to the API server that closes at a certain write, as for a process that is killed just there.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use http_body_util::{BodyExt, Collected};
use hyper::body::Incoming;
use hyper::header::{ACCEPT, CONTENT_TYPE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use kube::Client;
use kube::client::Body;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::{AbortHandle, JoinSet};

use crate::Scratch;

/// At which write nothing passes any more. The first is number 0; Events are not counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closing {
    /// Before this one: it is not done.
    Before(usize),
    /// After this one: it is done, and not answered.
    After(usize),
}

/// Speaks plain HTTP and passes on, as somebody else, what it is asked. It lives on the runtime of the test that made it.
#[derive(Debug)]
pub struct Gate {
    kubeconfig: PathBuf,
    way: Arc<Way>,
    listener: AbortHandle,
    _dir: Scratch,
}

#[derive(Debug)]
struct Way {
    closing: Closing,
    state: Mutex<State>,
}

#[derive(Debug, Clone, Copy, Default)]
struct State {
    writes: usize,
    reached: bool,
    closed: bool,
}

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Admission {
    Passes,
    /// It is done, and not answered.
    PassesLast,
    /// It is never answered.
    Refused,
}

impl Gate {
    /// Passes on to the API server as `client`, up to this write.
    pub async fn start(client: Client, closing: Closing) -> Result<Self> {
        let dir = Scratch::new("gate")?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("bind a port for the gate")?;
        let server = format!("http://{}", listener.local_addr()?);
        let contents = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{ "name": "test", "cluster": { "server": server } }],
            "users": [{ "name": "test", "user": {} }],
            "contexts": [{ "name": "test", "context": { "cluster": "test", "user": "test" } }],
        });
        let kubeconfig = dir.join("kubeconfig");
        fs::write(&kubeconfig, contents.to_string())?;
        let way = Arc::new(Way { closing, state: Mutex::default() });
        let passing = way.clone();
        let listener = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (client, way) = (client.clone(), passing.clone());
                connections.spawn(async move {
                    let answer = service_fn(async |request| way.pass(request, &client).await);
                    // A client that went away is the client's business.
                    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
                });
            }
        });
        Ok(Self { kubeconfig, way, listener: listener.abort_handle(), _dir: dir })
    }

    /// For whoever is to come through it.
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Whether the write was not reached yet.
    #[must_use]
    pub fn is_open(&self) -> bool {
        !self.way.state().reached
    }

    /// Whether it was reached, and is done where it should be.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.way.state().closed
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

impl Way {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What becomes of a request, by what came before it.
    fn admit(&self, counts: bool) -> Admission {
        let mut state = self.state();
        let (last, before) = match self.closing {
            Closing::Before(last) => (last, true),
            Closing::After(last) => (last, false),
        };
        let is_last = counts && state.writes == last;
        state.writes += usize::from(counts);
        match (state.reached, is_last) {
            (true, _) => Admission::Refused,
            (false, false) => Admission::Passes,
            (false, true) => {
                (state.reached, state.closed) = (true, before);
                if before { Admission::Refused } else { Admission::PassesLast }
            }
        }
    }

    async fn pass(self: &Arc<Self>, request: Request<Incoming>, client: &Client) -> Result<Response<Body>> {
        let counts = request.method() != Method::GET && !request.uri().path().ends_with("/events");
        let admission = self.admit(counts);
        if admission == Admission::Refused {
            return std::future::pending().await;
        }
        let onward = forward(request, client.clone()).await?;
        if admission == Admission::Passes {
            return onward.await;
        }
        // Of its own: who asked may be gone before it is done.
        let way = self.clone();
        tokio::spawn(async move {
            let _ = onward.await;
            way.state().closed = true;
        });
        std::future::pending().await
    }
}

/// Takes the request whole, and hands out what sends it on.
async fn forward(
    request: Request<Incoming>,
    client: Client,
) -> Result<impl Future<Output = Result<Response<Body>>> + Send + 'static> {
    let (head, body) = request.into_parts();
    let mut onward = Request::builder().method(head.method).uri(head.uri);
    for name in [ACCEPT, CONTENT_TYPE] {
        onward = head.headers.get(&name).into_iter().fold(onward, |onward, value| onward.header(&name, value));
    }
    let body = body.collect().await.map(Collected::to_bytes)?;
    let onward = onward.body(Body::from(body))?;
    Ok(async move {
        let (head, body) = client.send(onward).await?.into_parts();
        let mut answer = Response::builder().status(head.status);
        answer =
            head.headers.get(CONTENT_TYPE).into_iter().fold(answer, |answer, kind| answer.header(CONTENT_TYPE, kind));
        Ok(answer.body(body)?)
    })
}
