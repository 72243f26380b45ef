use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use kube::config::KubeConfigOptions;
use kube::{Client, Config};
use serde_json::{Value, json};

use crate::pki::Identity;

/// Who somebody is to the API server, as a file for other programs and as a client for this one.
#[derive(Debug, Clone)]
pub struct Kubeconfig {
    path: PathBuf,
    server: SocketAddr,
    authority: PathBuf,
    user: Value,
}

impl Kubeconfig {
    pub(super) fn with_certificate(
        path: PathBuf,
        server: SocketAddr,
        authority: &Path,
        identity: &Identity,
    ) -> Result<Self> {
        let user = json!({ "client-certificate": identity.certificate, "client-key": identity.key });
        Self { path, server, authority: authority.to_owned(), user }.write()
    }

    pub(super) fn with_token(path: PathBuf, server: SocketAddr, authority: &Path, token: &str) -> Result<Self> {
        Self { path, server, authority: authority.to_owned(), user: json!({ "token": token }) }.write()
    }

    fn write(self) -> Result<Self> {
        // JSON is YAML as well.
        let contents = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{ "name": "test", "cluster": {
                "server": format!("https://{}", self.server),
                "certificate-authority": self.authority,
            }}],
            "users": [{ "name": "test", "user": self.user }],
            "contexts": [{ "name": "test", "context": { "cluster": "test", "user": "test" } }],
            "current-context": "test",
        });
        fs::write(&self.path, contents.to_string()).with_context(|| format!("write {}", self.path.display()))?;
        Ok(self)
    }

    /// The same identity at another address: that of a [`Proxy`](crate::proxy::Proxy) before the API server.
    pub fn through(&self, proxy: SocketAddr) -> Result<Self> {
        let mut path = self.path.clone().into_os_string();
        path.push(format!("-{}", proxy.port()));
        Self { path: path.into(), server: proxy, ..self.clone() }.write()
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A new client. Its worker lives on the runtime that calls this, and a test's runtime ends with the test: so
    /// clients are not to be shared between tests.
    pub async fn client(&self) -> Result<Client> {
        let file = kube::config::Kubeconfig::read_from(&self.path)?;
        let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
        Ok(Client::try_from(config)?)
    }
}
