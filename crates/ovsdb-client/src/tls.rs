//! TLS for `ssl:` endpoints.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::ParsedCertificate;
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::verify_server_cert_signed_by_trust_anchor,
};

use crate::error::Cause;

/// Certificates as PEM files. They are read again for each connection, so that renewed ones are taken up.
#[derive(Debug, Clone)]
pub struct Tls {
    ca: PathBuf,
    identity: Option<(PathBuf, PathBuf)>,
    any_name: bool,
}

impl Tls {
    /// Trusts servers with a certificate from one of the authorities in this file.
    pub fn new(ca: impl Into<PathBuf>) -> Self {
        Self { ca: ca.into(), identity: None, any_name: false }
    }

    /// The certificate and key by which the server knows us.
    #[must_use]
    pub fn identity(mut self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.identity = Some((certificate.into(), key.into()));
        self
    }

    /// Verifies that the server's certificate comes from our CA, but not the name in it, as OVS itself does. `ovs-pki` makes
    /// certificates whose only name is no host name. Whoever holds any certificate of the CA can then pose as the server.
    #[must_use]
    pub fn any_name(mut self) -> Self {
        self.any_name = true;
        self
    }

    pub(crate) fn connector(&self) -> Result<TlsConnector, Cause> {
        let provider = Arc::new(ring::default_provider());
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&self.ca)? {
            roots.add(certificate).map_err(|error| unusable(&self.ca, &error))?;
        }
        let roots = Arc::new(roots);
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| Cause::Tls(error.to_string()))?;
        let builder = if self.any_name {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyName { roots, provider }))
        } else {
            let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider)
                .build()
                .map_err(|error| unusable(&self.ca, &error))?;
            builder.with_webpki_verifier(verifier)
        };
        let config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = certificates(certificate)?;
                let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| unusable(key, &error))?;
                builder.with_client_auth_cert(chain, secret).map_err(|error| unusable(certificate, &error))?
            }
        };
        Ok(TlsConnector::from(Arc::new(config)))
    }
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, Cause> {
    let certificates: Vec<_> =
        CertificateDer::pem_file_iter(file).and_then(Iterator::collect).map_err(|error| unusable(file, &error))?;
    if certificates.is_empty() { Err(unusable(file, &"no certificate in it")) } else { Ok(certificates) }
}

fn unusable(file: &Path, reason: &dyn std::fmt::Display) -> Cause {
    Cause::OwnCertificate { file: file.display().to_string(), reason: reason.to_string() }
}

/// Sorts a failed handshake by what its reader has to do about it.
pub(crate) fn cause_of(error: &std::io::Error) -> Cause {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        Some(Error::InvalidCertificate(
            reason @ (CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }),
        )) => Cause::WrongName(reason.to_string()),
        Some(Error::InvalidCertificate(reason)) => Cause::Untrusted(reason.to_string()),
        Some(other) => Cause::Tls(other.to_string()),
        None => Cause::Tls(error.to_string()),
    }
}

/// Verifies everything but the name.
#[derive(Debug)]
struct AnyName {
    roots: Arc<RootCertStore>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let certificate = ParsedCertificate::try_from(end_entity)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&certificate, &self.roots, intermediates, now, algorithms)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        tokio_rustls::rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        tokio_rustls::rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
