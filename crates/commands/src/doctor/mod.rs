//! `groundcrew doctor`: whether an installation is sound, with a remedy for each thing that is not.

mod cilium;
mod clouds;
mod definitions;
mod kube_ovn;
mod northbound;
mod rights;

use std::time::Duration;

use groundcrew_core::runtime::StartError;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client};

use crate::cluster::{ClusterArgs, Seen, read, server_time};
use crate::finding::Finding;
use crate::leases::{Leadership, controllers};
use crate::output::{Answer, Output, Report};
use crate::ovn::OvnArgs;

pub use clouds::CloudArgs;

/// Past it tokens of clouds, which carry times, are refused.
const SKEW: Duration = Duration::from_secs(30);

/// Flags of `groundcrew doctor`.
#[derive(Debug, Clone, clap::Args)]
pub struct DoctorArgs {
    /// Check the definitions and rights that these controllers need; without it of those that have a Lease
    #[arg(long, env = "GROUNDCREW_CONTROLLERS", value_name = "NAMES", value_delimiter = ',')]
    controllers: Vec<rights::Controller>,

    /// Check the rights of this ServiceAccount, as NAMESPACE/NAME, instead of your own
    #[arg(long, env = "GROUNDCREW_SERVICE_ACCOUNT", value_name = "NAMESPACE/NAME", value_parser = account)]
    service_account: Option<String>,

    /// The namespace of kube-ovn
    #[arg(long, env = "GROUNDCREW_KUBE_OVN_NAMESPACE", value_name = "NAMESPACE", default_value = "kube-system")]
    kube_ovn_namespace: String,

    /// The namespace of Cilium
    #[arg(long, env = "GROUNDCREW_CILIUM_NAMESPACE", value_name = "NAMESPACE", default_value = "kube-system")]
    cilium_namespace: String,

    /// How the answer is printed
    #[arg(long, short, env = "GROUNDCREW_OUTPUT", value_name = "FORMAT", default_value = "table")]
    output: Output,

    #[command(flatten)]
    ovn: OvnArgs,

    #[command(flatten)]
    clouds: CloudArgs,

    #[command(flatten)]
    cluster: ClusterArgs,
}

/// The user name that Kubernetes gives to a ServiceAccount.
fn account(text: &str) -> Result<String, String> {
    match text.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
            Ok(format!("system:serviceaccount:{namespace}:{name}"))
        }
        _ => Err("write it as NAMESPACE/NAME".into()),
    }
}

/// Looks at everything that an installation needs. Nothing is written.
pub async fn doctor(args: &DoctorArgs) -> Result<Answer, StartError> {
    let client = args.cluster.client().await?;
    let mut findings = vec![api(&client).await];
    let now = server_time(&client).await;
    findings.push(clock(now.clone(), Timestamp::now()));
    let leases: Seen<Vec<Lease>> = controllers(&client, args.cluster.lease_namespace.as_deref()).await;
    let asked = rights::asked(&args.controllers, &leases);
    findings.extend(definitions::look(&client, &asked).await);
    findings.push(leaders(&leases, now.unwrap_or_else(|_| Timestamp::now())));
    let found = leases.iter().flatten().find_map(|lease| lease.metadata.namespace.clone());
    let namespace = args.cluster.lease_namespace.clone().or(found);
    let namespace = namespace.unwrap_or_else(|| client.default_namespace().to_owned());
    findings.extend(rights::look(&client, &asked, args.service_account.as_deref(), &namespace).await);
    findings.extend(northbound::look(&args.ovn).await);
    findings.extend(kube_ovn::look(&client, &args.kube_ovn_namespace).await);
    findings.extend(cilium::look(&client, &args.cilium_namespace).await);
    findings.extend(args.clouds.look().await);
    Ok(Report::new("installation", findings).answer(args.output))
}

async fn api(client: &Client) -> Finding {
    const NAME: &str = "kubernetes";
    match read("the version", client.apiserver_version()).await {
        Ok(version) => {
            let minor: String = version.minor.chars().take_while(char::is_ascii_digit).collect();
            let found = format!("API server {}", version.git_version);
            if minor.parse().is_ok_and(|minor: u32| version.major == "1" && minor < 33) {
                return Finding::bad(NAME, format!("{found} is too old"), "upgrade Kubernetes to 1.33 or later");
            }
            Finding::good(NAME, found)
        }
        Err(why) => Finding::bad(NAME, why.to_string(), "look at the kubeconfig, and whether the API server runs"),
    }
}

fn clock(server: Seen<Timestamp>, here: Timestamp) -> Finding {
    const NAME: &str = "clock";
    let server = match server {
        Ok(server) => server,
        Err(why) => return Finding::unknown(NAME, why.to_string(), "look whether the API server can be reached"),
    };
    // The server tells whole seconds.
    let apart = here.duration_since(server).abs().saturating_sub(SignedDuration::from_secs(1));
    let apart = apart.max(SignedDuration::ZERO);
    if apart.unsigned_abs() > SKEW {
        let found = format!("{} s apart from the API server's", apart.as_secs());
        return Finding::bad(NAME, found, "set both clocks by NTP: tokens and certificates are refused otherwise");
    }
    Finding::good(NAME, format!("within {} s of the API server's", apart.as_secs() + 1))
}

fn leaders(leases: &Seen<Vec<Lease>>, now: Timestamp) -> Finding {
    const NAME: &str = "leaders";
    let leases = match leases {
        Ok(leases) => leases,
        Err(why) => return Finding::unknown(NAME, why.to_string(), "ask as a user who may list Leases"),
    };
    if leases.is_empty() {
        return Finding::note(NAME, "no controller has a Lease: none is installed, or they run without election");
    }
    let name = |lease: &Lease| lease.metadata.name.clone().unwrap_or_default();
    let late = |lease: &&Lease| !matches!(Leadership::of(lease, now), Leadership::Held { .. });
    let orphans: Vec<_> = leases.iter().filter(late).map(name).collect();
    if orphans.is_empty() {
        let all: Vec<_> = leases.iter().map(name).collect();
        return Finding::good(NAME, format!("{} have one", all.join(", ")));
    }
    let next = "look at the pods of that Deployment; if it was removed, delete the Lease";
    Finding::bad(NAME, format!("nobody leads {}", orphans.join(", ")), next)
}

/// Any object of a namespace or of the whole cluster.
fn named<K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>>(
    client: &Client,
    namespace: &str,
) -> Api<K> {
    Api::namespaced(client.clone(), namespace)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::State;

    #[test]
    fn a_clock_that_is_half_a_minute_off_is_told() {
        let here: Timestamp = "2026-01-01T12:00:00.9Z".parse().unwrap();
        let server = |text: &str| Ok(text.parse().unwrap());
        assert_eq!(clock(server("2026-01-01T12:00:00Z"), here).state, State::Good);
        assert_eq!(clock(server("2026-01-01T11:59:20Z"), here).state, State::Bad);
        assert_eq!(clock(server("2026-01-01T12:00:50Z"), here).state, State::Bad);
    }

    #[test]
    fn a_service_account_becomes_the_user_that_kubernetes_knows() {
        assert_eq!(account("ops/ovn-lb").unwrap(), "system:serviceaccount:ops:ovn-lb");
        assert!(account("ovn-lb").is_err());
    }
}
