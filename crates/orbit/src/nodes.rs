//! The list of Nodes that every decision begins with.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::{Api, Client};

const PAGE: u32 = 250;
const DEADLINE: Duration = Duration::from_secs(30);

/// The id in `openstack:///<id>` or, with its region, `openstack://<region>/<id>`: the server that a Node says it is.
pub(crate) fn server(provider_id: &str) -> Option<String> {
    let (_, id) = provider_id.strip_prefix("openstack://")?.rsplit_once('/')?;
    (!id.is_empty()).then(|| id.to_owned())
}

/// Why there is no list of Nodes.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NodesError {
    /// The API server refused, or could not be reached.
    #[error("cannot list Nodes: {0}")]
    Refused(#[from] kube::Error),
    /// It said nothing.
    #[error("cannot list Nodes: no answer within {} s", DEADLINE.as_secs())]
    Silent,
}

/// All Nodes, as they are now, each as the few fields that a controller reads. Not from a watch: one that broke unnoticed shows Nodes of an hour ago.
pub(crate) async fn list<T: From<Node>>(client: &Client) -> Result<Vec<T>, NodesError> {
    tokio::time::timeout(DEADLINE, pages(client)).await.map_err(|_| NodesError::Silent)?
}

async fn pages<T: From<Node>>(client: &Client) -> Result<Vec<T>, NodesError> {
    let api: Api<Node> = Api::all(client.clone());
    let mut params = ListParams::default().limit(PAGE);
    let mut nodes = Vec::new();
    loop {
        let page = api.list(&params).await?;
        nodes.extend(page.items.into_iter().map(T::from));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(nodes),
        }
    }
}
