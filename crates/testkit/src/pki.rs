//! Certificates for tests: P-256, written as PEM files.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, SanType,
};

/// A certificate authority with its file.
#[derive(Debug)]
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    /// The certificate that verifies what this authority has issued.
    pub certificate: PathBuf,
    /// The key, for programs that sign by themselves.
    pub key: PathBuf,
    dir: PathBuf,
}

/// A certificate and its key.
#[derive(Debug, Clone)]
pub struct Identity {
    /// PEM certificate.
    pub certificate: PathBuf,
    /// PEM key (PKCS#8).
    pub key: PathBuf,
}

impl Authority {
    /// A new authority; its files and those of what it issues go to `dir`.
    pub fn new(name: &str, dir: &Path) -> Result<Self> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        fs::create_dir_all(dir).with_context(|| format!("create {}", dir.display()))?;
        let (certificate, key) = (dir.join(format!("{name}.crt")), dir.join(format!("{name}.key")));
        fs::write(&certificate, issuer.pem())?;
        fs::write(&key, issuer.key().serialize_pem())?;
        Ok(Self { issuer, certificate, key, dir: dir.to_owned() })
    }

    /// Issues `<file>.crt` and `<file>.key` for both ends of a connection. `subject` is `CN` or `O/CN`.
    pub fn issue(&self, file: &str, subject: &str, names: Vec<SanType>) -> Result<Identity> {
        let mut params = CertificateParams::default();
        let common_name = match subject.split_once('/') {
            Some((organization, common_name)) => {
                params.distinguished_name.push(DnType::OrganizationName, organization);
                common_name
            }
            None => subject,
        };
        params.distinguished_name.push(DnType::CommonName, common_name);
        params.subject_alt_names = names;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        let keys = KeyPair::generate()?;
        let signed = params.signed_by(&keys, &self.issuer)?;
        let identity =
            Identity { certificate: self.dir.join(format!("{file}.crt")), key: self.dir.join(format!("{file}.key")) };
        fs::write(&identity.certificate, signed.pem())?;
        fs::write(&identity.key, keys.serialize_pem())?;
        Ok(identity)
    }
}

/// Writes a key pair without a certificate, `<name>.key` and `<name>.pub`, and gives their paths.
pub fn key_pair(name: &str, dir: &Path) -> Result<(PathBuf, PathBuf)> {
    let keys = KeyPair::generate()?;
    let (private, public) = (dir.join(format!("{name}.key")), dir.join(format!("{name}.pub")));
    fs::write(&private, keys.serialize_pem())?;
    fs::write(&public, keys.public_key_pem())?;
    Ok((private, public))
}

/// A host name as it stands in a certificate. `ovs-pki` writes such that are none, so nothing checks it here.
pub fn dns(name: &str) -> Result<SanType> {
    Ok(SanType::DnsName(name.try_into().with_context(|| format!("{name:?} is not ASCII"))?))
}
