//! An admission webhook of somebody else: a server with a certificate that the API server asks.

use std::convert::Infallible;
use std::fs;
use std::net::Ipv4Addr;
use std::sync::Arc;

use anyhow::Result;
use http_body_util::{BodyExt, Collected, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use k8s_openapi::ByteString;
use rcgen::SanType;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::Scratch;
use crate::pki::Authority;

type Verdict = dyn Fn(&Value) -> Option<String> + Send + Sync;

/// It answers until it is dropped.
#[derive(Debug)]
pub struct Webhook {
    url: String,
    authority: ByteString,
    _serving: JoinSet<()>,
}

impl Webhook {
    /// Denies what `verdict` has words against. It is given the `request` of each `AdmissionReview`.
    pub async fn start(verdict: impl Fn(&Value) -> Option<String> + Send + Sync + 'static) -> Result<Self> {
        let dir = Scratch::new("webhook")?;
        let authority = Authority::new("webhook-ca", dir.path())?;
        let identity = authority.issue("webhook", "webhook", vec![SanType::IpAddress(Ipv4Addr::LOCALHOST.into())])?;
        let chain: Vec<_> = CertificateDer::pem_file_iter(&identity.certificate)?.collect::<Result<_, _>>()?;
        let key = PrivateKeyDer::from_pem_file(&identity.key)?;
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let url = format!("https://{}", listener.local_addr()?);
        let (acceptor, verdict): (_, Arc<Verdict>) = (TlsAcceptor::from(Arc::new(config)), Arc::new(verdict));
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, verdict) = (acceptor.clone(), verdict.clone());
                connections.spawn(async move {
                    // A client that went away is the client's business.
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let answer = service_fn(move |request: Request<Incoming>| {
                        let verdict = verdict.clone();
                        async move { Ok::<_, Infallible>(answer(request, &*verdict).await) }
                    });
                    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
                });
            }
        });
        Ok(Self { url, authority: ByteString(fs::read(&authority.certificate)?), _serving: serving })
    }

    /// The `clientConfig` by which the API server asks it.
    #[must_use]
    pub fn client_config(&self) -> Value {
        json!({ "url": self.url, "caBundle": self.authority })
    }
}

async fn answer(request: Request<Incoming>, verdict: &Verdict) -> Response<Full<Bytes>> {
    let body = request.into_body().collect().await.map(Collected::to_bytes).unwrap_or_default();
    let review: Value = serde_json::from_slice(&body).unwrap_or_default();
    let denied = verdict(&review["request"]);
    let mut response = json!({ "uid": review["request"]["uid"], "allowed": denied.is_none() });
    if let Some(words) = denied {
        response["status"] = json!({ "code": 403, "message": words });
    }
    let review = json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response });
    let mut answer = Response::new(Full::from(review.to_string().into_bytes()));
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}
