use std::path::PathBuf;

use ovsdb_client::{Config, Endpoint, Tls};

/// How to reach OVN's northbound database.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "OVN options")]
#[group(id = "ovn-connection")]
pub struct Connection {
    /// OVN's northbound database: tcp:HOST:PORT, ssl:HOST:PORT or unix:PATH, comma-separated for a cluster
    #[arg(long, env = "GROUNDCREW_OVN_NB", value_name = "ENDPOINTS", value_delimiter = ',', required = true)]
    pub ovn_nb: Vec<Endpoint>,

    /// For `ssl:` endpoints.
    #[command(flatten)]
    pub tls: TlsFlags,
}

/// Whom to trust, and as whom to come, where an endpoint of OVN is `ssl:`.
#[derive(Debug, Clone, clap::Args)]
#[group(id = "ovn-tls")]
pub struct TlsFlags {
    /// Certificates of the authorities that ssl: servers must have theirs from (PEM)
    #[arg(long, env = "GROUNDCREW_OVN_CA", value_name = "FILE")]
    pub ovn_ca: Option<PathBuf>,

    /// Our certificate for ssl: servers (PEM)
    #[arg(long, env = "GROUNDCREW_OVN_CERTIFICATE", value_name = "FILE", requires_all = ["ovn_key", "ovn_ca"])]
    pub ovn_certificate: Option<PathBuf>,

    /// The key of our certificate (PEM)
    #[arg(long, env = "GROUNDCREW_OVN_KEY", value_name = "FILE", requires = "ovn_certificate")]
    pub ovn_key: Option<PathBuf>,

    /// Do not compare the name in the server's certificate: those of ovs-pki have none that could match
    #[arg(long, env = "GROUNDCREW_OVN_ANY_NAME", requires = "ovn_ca")]
    pub ovn_any_name: bool,
}

impl Connection {
    /// For the client.
    #[must_use]
    pub fn config(&self) -> Config {
        self.tls.config(&self.ovn_nb)
    }
}

impl TlsFlags {
    /// For a client of these endpoints.
    #[must_use]
    pub fn config(&self, endpoints: &[Endpoint]) -> Config {
        let config = Config::new(endpoints.iter().cloned());
        let Some(ca) = &self.ovn_ca else { return config };
        let mut tls = Tls::new(ca);
        if let (Some(certificate), Some(key)) = (&self.ovn_certificate, &self.ovn_key) {
            tls = tls.identity(certificate, key);
        }
        if self.ovn_any_name {
            tls = tls.any_name();
        }
        config.tls(tls)
    }
}
