//! Certificates.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use openstack_client::{Client, Kind};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::json;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

use crate::fake::{Cloud, Reply};

/// A cloud with a certificate from an authority of its own, and that authority's file.
async fn start(name: &str) -> (Cloud, PathBuf) {
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, &authority).unwrap();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    let (cloud, listener) = Cloud::bind("https", |_| Reply::ok(&json!({"routers": []}))).await;
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let serving = cloud.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            if let Ok(stream) = acceptor.accept(stream).await {
                tokio::spawn((*serving).clone().connection(stream));
            }
        }
    });
    let port = cloud.url().rsplit(':').next().unwrap().to_owned();
    let file = std::env::temp_dir().join(format!("openstack-ca-{}-{port}.pem", std::process::id()));
    std::fs::write(&file, authority.pem()).unwrap();
    (cloud, file)
}

#[tokio::test]
async fn the_authority_of_the_configuration_is_trusted() {
    let (cloud, ca) = start("127.0.0.1").await;
    let client = Client::new(cloud.config().ca(&ca)).unwrap();
    std::fs::remove_file(ca).unwrap();
    assert!(client.network().routers(&[]).await.unwrap().is_complete());
}

#[tokio::test]
async fn a_certificate_of_nobody_we_know_or_for_another_name_is_told_at_once() {
    let (unknown, ca) = start("127.0.0.1").await;
    std::fs::remove_file(ca).unwrap();
    let (other_name, ca) = start("elsewhere").await;
    for config in [unknown.config(), other_name.config().ca(&ca)] {
        let begin = Instant::now();
        let error = Client::new(config.retry_for(Duration::from_mins(1))).unwrap().session().await.unwrap_err();
        assert_eq!(error.kind(), Kind::Unavailable);
        assert!(error.message().starts_with("the server's certificate is not trusted: "), "{error}");
        assert!(begin.elapsed() < Duration::from_secs(20), "trying again does not help");
    }
    std::fs::remove_file(ca).unwrap();
    assert_eq!(unknown.logins() + other_name.logins(), 0, "no password was sent");
}

#[tokio::test]
async fn a_file_without_an_authority_is_named() {
    let (cloud, _) = Cloud::bind("https", |_| Reply::never()).await;
    let missing = Client::new(cloud.config().ca("/nonexistent/ca.pem")).unwrap_err();
    assert!(missing.to_string().starts_with("cannot read /nonexistent/ca.pem: "), "{missing}");
}
