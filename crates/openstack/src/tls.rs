//! The TLS side: rustls with ring, and either the system's authorities or the ones of a file.

use std::path::Path;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::BuilderVerifierExt;

use crate::config::ConfigError;

/// A configuration of our own: reqwest would look for a process-wide crypto provider, and panic without one.
pub(crate) fn client_config(ca: Option<&Path>) -> Result<ClientConfig, ConfigError> {
    let broken = |error: rustls::Error| ConfigError::Invalid {
        place: "tls".to_owned(),
        key: "the system's authorities".to_owned(),
        reason: format!("cannot be used: {error}"),
    };
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(broken)?;
    let builder = match ca {
        Some(file) => builder.with_root_certificates(roots(file)?),
        None => builder.with_platform_verifier().map_err(broken)?,
    };
    Ok(builder.with_no_client_auth())
}

fn roots(file: &Path) -> Result<RootCertStore, ConfigError> {
    let unusable = |reason: &dyn std::fmt::Display| ConfigError::Read {
        file: file.display().to_string(),
        reason: reason.to_string(),
    };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file).map_err(|error| unusable(&error))? {
        let certificate = certificate.map_err(|error| unusable(&error))?;
        roots.add(certificate).map_err(|error| unusable(&error))?;
    }
    if roots.is_empty() { Err(unusable(&"no certificate in it")) } else { Ok(roots) }
}
