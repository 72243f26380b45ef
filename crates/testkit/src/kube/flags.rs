//! The flags of each part, and the certificates that they name.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use rcgen::SanType;

use crate::ReservedPort;
use crate::pki::{Authority, Identity, dns, key_pair};

/// Three authorities: a client certificate of the cluster must open neither etcd nor the front proxy.
#[derive(Debug)]
pub(super) struct Pki {
    pub(super) cluster: Authority,
    pub(super) etcd: Authority,
    front_proxy: Authority,
    etcd_server: Identity,
    pub(super) etcd_client: Identity,
    api_server: Identity,
    service_account_key: PathBuf,
    service_account_public: PathBuf,
}

impl Pki {
    pub(super) fn new(dir: &Path) -> Result<Self> {
        let cluster = Authority::new("cluster-ca", dir)?;
        let etcd = Authority::new("etcd-ca", dir)?;
        let loopback = || SanType::IpAddress(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let service_names = vec![
            loopback(),
            dns("localhost")?,
            dns("kubernetes.default.svc")?,
            SanType::IpAddress([10, 96, 0, 1].into()),
        ];
        let (service_account_key, service_account_public) = key_pair("service-accounts", dir)?;
        Ok(Self {
            etcd_server: etcd.issue("etcd", "etcd", vec![loopback(), dns("localhost")?])?,
            etcd_client: etcd.issue("etcd-client", "kube-apiserver", vec![])?,
            api_server: cluster.issue("apiserver", "kube-apiserver", service_names)?,
            front_proxy: Authority::new("front-proxy-ca", dir)?,
            cluster,
            etcd,
            service_account_key,
            service_account_public,
        })
    }
}

/// Every flag is `--name=value`; what is written here is the value.
fn flags<const N: usize>(program: &Path, flags: [(&str, String); N]) -> Command {
    let mut command = Command::new(program);
    command.args(flags.map(|(name, value)| format!("--{name}={value}")));
    command
}

fn file(path: &Path) -> String {
    path.display().to_string()
}

pub(super) fn etcd(program: &Path, pki: &Pki, data: &Path, client: &ReservedPort, peer: &ReservedPort) -> Command {
    let (client, peer) = (format!("https://{}", client.address()), format!("https://{}", peer.address()));
    flags(
        program,
        [
            ("name", "test".into()),
            ("data-dir", file(data)),
            // A test's data need not survive a power failure.
            ("unsafe-no-fsync", "true".into()),
            ("log-level", "warn".into()),
            ("listen-client-urls", client.clone()),
            ("advertise-client-urls", client),
            ("listen-peer-urls", peer.clone()),
            ("initial-advertise-peer-urls", peer.clone()),
            ("initial-cluster", format!("test={peer}")),
            ("client-cert-auth", "true".into()),
            ("trusted-ca-file", file(&pki.etcd.certificate)),
            ("cert-file", file(&pki.etcd_server.certificate)),
            ("key-file", file(&pki.etcd_server.key)),
            ("peer-client-cert-auth", "true".into()),
            ("peer-trusted-ca-file", file(&pki.etcd.certificate)),
            ("peer-cert-file", file(&pki.etcd_server.certificate)),
            ("peer-key-file", file(&pki.etcd_server.key)),
        ],
    )
}

pub(super) fn api_server(program: &Path, pki: &Pki, etcd: &ReservedPort, port: &ReservedPort) -> Command {
    flags(
        program,
        [
            ("etcd-servers", format!("https://{}", etcd.address())),
            ("etcd-cafile", file(&pki.etcd.certificate)),
            ("etcd-certfile", file(&pki.etcd_client.certificate)),
            ("etcd-keyfile", file(&pki.etcd_client.key)),
            ("bind-address", "127.0.0.1".into()),
            ("secure-port", port.number().to_string()),
            ("advertise-address", "127.0.0.1".into()),
            // Endpoints must not be on loopback: it would complain for ever that it cannot publish itself.
            ("endpoint-reconciler-type", "none".into()),
            ("tls-cert-file", file(&pki.api_server.certificate)),
            ("tls-private-key-file", file(&pki.api_server.key)),
            ("client-ca-file", file(&pki.cluster.certificate)),
            ("authorization-mode", "Node,RBAC".into()),
            ("anonymous-auth", "false".into()),
            ("enable-admission-plugins", "NodeRestriction".into()),
            ("allow-privileged", "true".into()),
            ("service-account-issuer", "https://kubernetes.default.svc".into()),
            ("service-account-key-file", file(&pki.service_account_public)),
            ("service-account-signing-key-file", file(&pki.service_account_key)),
            // Without these controller-manager complains for ever about a missing authority.
            ("requestheader-client-ca-file", file(&pki.front_proxy.certificate)),
            ("requestheader-allowed-names", "front-proxy".into()),
            ("requestheader-username-headers", "X-Remote-User".into()),
            ("requestheader-group-headers", "X-Remote-Group".into()),
            ("requestheader-extra-headers-prefix", "X-Remote-Extra-".into()),
            ("service-cluster-ip-range", "10.96.0.0/16,fd00:96::/108".into()),
            // No kube-proxy serves this network: webhooks are dialled at their endpoints, not at a ClusterIP.
            ("enable-aggregator-routing", "true".into()),
            ("shutdown-delay-duration", "0s".into()),
            ("profiling", "false".into()),
        ],
    )
}

/// What an API server needs besides, to write down every request of a `ServiceAccount` that it has answered.
pub(super) fn audit(policy: &Path, log: &Path) -> [String; 2] {
    [format!("--audit-policy-file={}", file(policy)), format!("--audit-log-path={}", file(log))]
}

pub(super) fn controller_manager(
    program: &Path,
    pki: &Pki,
    kubeconfig: &Path,
    port: &ReservedPort,
    controllers: &[&str],
) -> Command {
    flags(
        program,
        [
            ("kubeconfig", file(kubeconfig)),
            ("authentication-kubeconfig", file(kubeconfig)),
            ("authorization-kubeconfig", file(kubeconfig)),
            ("use-service-account-credentials", "true".into()),
            ("bind-address", "127.0.0.1".into()),
            ("secure-port", port.number().to_string()),
            ("leader-elect", "false".into()),
            ("service-account-private-key-file", file(&pki.service_account_key)),
            ("root-ca-file", file(&pki.cluster.certificate)),
            ("cluster-signing-cert-file", file(&pki.cluster.certificate)),
            ("cluster-signing-key-file", file(&pki.cluster.key)),
            // Nodes of tests have no kubelet, hence no heartbeat.
            ("node-monitor-grace-period", "1h".into()),
            ("node-startup-grace-period", "1h".into()),
            ("allocate-node-cidrs", "false".into()),
            ("profiling", "false".into()),
            ("controllers", controllers.join(",")),
        ],
    )
}
