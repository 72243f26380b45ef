//! The Kubernetes client, and which cluster it talks to.

use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use tokio::time::{sleep, timeout};
use tracing::warn;

use super::StartError;
use super::args::RuntimeArgs;
use super::ready::Readiness;

const API: &str = "the Kubernetes API";

/// A client for the cluster that a kubeconfig and a context name; without them as [`RuntimeArgs`] says. It does not retry
/// by itself.
pub async fn client(kubeconfig: Option<&Path>, context: Option<&str>) -> Result<Client, StartError> {
    // Fails only if a provider is installed already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let options = KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
    let mut config = match kubeconfig {
        Some(path) => {
            let kubeconfig = Kubeconfig::read_from(path)
                .map_err(|error| format!("cannot read the kubeconfig {}: {error}", path.display()))?;
            Config::from_custom_kubeconfig(kubeconfig, &options)
                .await
                .map_err(|error| format!("cannot use the kubeconfig {}: {error}", path.display()))?
        }
        None if context.is_some() => {
            Config::from_kubeconfig(&options).await.map_err(|error| format!("cannot use the kubeconfig: {error}"))?
        }
        None => Config::infer()
            .await
            .map_err(|error| format!("neither in a pod nor with a kubeconfig (--kubeconfig): {error}"))?,
    };
    // Its retries last for up to a quarter of an hour and outlive a lease; the queue retries with a fresh look.
    config.default_retry = false;
    config.connect_timeout = Some(Duration::from_secs(5));
    // A list, or the opening of a watch, that nobody answers would leave its cache blind for ever. An idle watch is
    // silent for up to a minute ([`crate::watch`]), so this is a little more.
    config.read_timeout = Some(Duration::from_secs(75));
    config.reset_reader_on_write = true;
    Ok(Client::try_from(config)?)
}

/// The name of this cluster in every mark. Keeps trying while the API server is away.
pub(super) async fn id(client: &Client, args: &RuntimeArgs, ready: &Readiness) -> String {
    if let Some(id) = &args.cluster_id {
        return id.clone();
    }
    let namespaces: Api<Namespace> = Api::all(client.clone());
    ready.wait_for(API, "no answer yet");
    loop {
        let problem = match timeout(Duration::from_secs(5), namespaces.get_metadata("kube-system")).await {
            Ok(Ok(namespace)) => match namespace.metadata.uid {
                Some(uid) => {
                    ready.done(API);
                    return uid;
                }
                None => "namespace kube-system has no uid; give --cluster-id".to_owned(),
            },
            Ok(Err(error)) => format!("cannot read namespace kube-system: {}", innermost(&error)),
            Err(_) => "no answer within 5 s".to_owned(),
        };
        warn!(%problem, "waiting for {API}");
        ready.wait_for(API, problem);
        sleep(Duration::from_secs(1)).await;
    }
}

/// The last cause in the chain is the one that names what is wrong: "connection refused", not "service error".
fn innermost(error: &dyn std::error::Error) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}
