use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use anyhow::Result;
use rcgen::SanType;

use crate::pki::{Authority, Identity, dns};

/// Whom the server's certificate names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerName {
    /// 127.0.0.1 and localhost: a client that verifies names is content.
    Loopback,
    /// `ovn-central id:<uuid>`, as `ovs-pki` writes it: no host name and no address, so only the authority can be verified.
    OvsPki,
}

/// The files of a server that asks its clients for a certificate.
#[derive(Debug)]
pub struct Tls {
    /// The authority that both sides trust.
    pub authority: PathBuf,
    /// The server's.
    pub server: Identity,
    /// For a client that the server lets in.
    pub client: Identity,
    /// For a client whose authority the server does not know.
    pub stranger: Identity,
}

impl Tls {
    pub(super) fn new(server: ServerName, dir: &Path) -> Result<Self> {
        let authority = Authority::new("ca", dir)?;
        let names = match server {
            ServerName::Loopback => vec![dns("localhost")?, SanType::IpAddress(IpAddr::V4(Ipv4Addr::LOCALHOST))],
            ServerName::OvsPki => vec![dns("ovn-central id:5c1d3c31-8d57-4d6a-8f0c-6d3b0d9c5a11")?],
        };
        Ok(Self {
            server: authority.issue("server", "ovn-central", names)?,
            client: authority.issue("client", "groundcrew", vec![])?,
            stranger: Authority::new("other-ca", dir)?.issue("stranger", "groundcrew", vec![])?,
            authority: authority.certificate,
        })
    }
}
