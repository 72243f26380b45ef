//! kube-proxy, for whoever has a network namespace to run it in.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::json;

use super::Kubeconfig;
use crate::command::find_pinned;

/// How kube-proxy balances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyMode {
    /// By rules of iptables.
    Iptables,
    /// By maps of nftables.
    Nftables,
}

/// kube-proxy for a node, to be started in that node's network namespace. Pods are in 10.244.0.0/16: traffic from
/// anywhere else comes from outside.
pub async fn proxy(kubeconfig: &Kubeconfig, node: &str, mode: ProxyMode) -> Result<Command> {
    let mode = match mode {
        ProxyMode::Iptables => "iptables",
        ProxyMode::Nftables => "nftables",
    };
    // JSON is YAML as well.
    let config = json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": mode,
        "hostnameOverride": node,
        "clusterCIDR": "10.244.0.0/16",
        "clientConnection": { "kubeconfig": kubeconfig.path() },
        // The limits of connection tracking are the machine's, not the namespace's: they are left alone.
        "conntrack": { "maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s" },
    });
    let path = kubeconfig.path().with_extension(format!("{node}.proxy"));
    fs::write(&path, config.to_string()).with_context(|| format!("write {}", path.display()))?;
    let mut command = Command::new(find_pinned("kube-proxy").await?);
    command.arg(format!("--config={}", path.display()));
    Ok(command)
}
