//! Reading Kubernetes, with a deadline, as whoever asks.

use std::fmt::Debug;
use std::path::PathBuf;
use std::time::Duration;

use groundcrew_core::runtime;
use http::Request;
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;
use kube::api::ListParams;
use kube::{Api, Client};
use serde::de::DeserializeOwned;
use tokio::time::timeout;

/// For each reading. A person waits for it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// Which cluster is asked.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Cluster options")]
#[group(id = "cluster")]
pub struct ClusterArgs {
    /// kubeconfig file; without it what KUBECONFIG names, ~/.kube/config, or the pod's own credentials
    #[arg(long, env = "GROUNDCREW_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Context within the kubeconfig
    #[arg(long, env = "GROUNDCREW_CONTEXT", value_name = "NAME")]
    pub context: Option<String>,

    /// Namespace of the controllers' Leases; without it all namespaces are looked into
    #[arg(long, env = "GROUNDCREW_LEASE_NAMESPACE", value_name = "NAMESPACE")]
    pub lease_namespace: Option<String>,
}

impl ClusterArgs {
    pub(crate) async fn client(&self) -> Result<Client, runtime::StartError> {
        runtime::client(self.kubeconfig.as_deref(), self.context.as_deref()).await
    }
}

/// What could not be read, and why, in words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Unseen(pub(crate) String);

pub(crate) type Seen<T> = Result<T, Unseen>;

/// One reading. `what` is what was asked for, as in "Services".
pub(crate) async fn read<T>(what: &str, reading: impl Future<Output = kube::Result<T>>) -> Seen<T> {
    match timeout(PATIENCE, reading).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(kube::Error::Api(status))) => Err(Unseen(format!("cannot read {what}: {}", status.message))),
        Ok(Err(error)) => Err(Unseen(format!("cannot read {what}: {error}"))),
        Err(_) => Err(Unseen(format!("cannot read {what}: no answer within {} s", PATIENCE.as_secs()))),
    }
}

/// The same where a missing object or kind is an answer.
pub(crate) async fn read_opt<T>(what: &str, reading: impl Future<Output = kube::Result<T>>) -> Seen<Option<T>> {
    let reading = async {
        match reading.await {
            Ok(value) => Ok(Some(value)),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(error) => Err(error),
        }
    };
    read(what, reading).await
}

/// All of a kind; none where the cluster does not know the kind.
pub(crate) async fn list<K>(what: &str, api: &Api<K>, params: &ListParams) -> Seen<Vec<K>>
where
    K: Clone + DeserializeOwned + Debug,
{
    Ok(read_opt(what, api.list(params)).await?.map(|list| list.items).unwrap_or_default())
}

/// The time by the API server's clock, to the second: ages in the cluster are not compared with a laptop's.
pub(crate) async fn server_time(client: &Client) -> Seen<Timestamp> {
    let request = Request::get("/version").body(kube::client::Body::empty());
    let request = request.map_err(|error| Unseen(error.to_string()))?;
    let response = read("the API server's time", client.send(request)).await?;
    let date = response.headers().get(http::header::DATE).and_then(|date| date.to_str().ok());
    let date = date.ok_or_else(|| Unseen("the API server does not tell the time".into()))?;
    // HTTP says GMT where RFC 2822 would say +0000; the parser knows both.
    let date = DateTimeParser::new().parse_timestamp(date);
    date.map_err(|error| Unseen(format!("the API server's time cannot be read: {error}")))
}
