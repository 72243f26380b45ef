//! One move. The only place that chooses holders.

use groundcrew_api::names::lease;
use groundcrew_core::leader::Term;
use groundcrew_core::provider::{ErrorKind, ProviderError};
use tracing::warn;

use super::Mover;
use super::decide::Move;
use super::lives::Silence;
use crate::client::Kind;
use crate::error::Error;
use crate::floating::{self, Place};
use crate::write::under;

/// `silence` is that of the node to be evicted, if it is that for which it is, and `server` is its server, where that is known.
pub(super) async fn carry_out(
    mover: &Mover,
    planned: &Move,
    silence: Option<&Silence>,
    server: Option<&str>,
    term: &Term,
) -> Result<(), Error> {
    let Move { address, to, evict, .. } = planned;
    // Read first: the Lease must be read later than the object that is changed, so that a claim made between them wins.
    let Some(object) = mover.floating.read(*address).await? else { return Ok(()) };
    if !mover.floating.is_ours(&object) || object.spec.holder.as_deref() != planned.from.as_deref() {
        return Err(changed(planned));
    }
    if let Some(node) = evict {
        let claimed = object.status.as_ref().and_then(|status| status.holder.as_deref());
        if claimed != Some(&**node) || !is_gone(mover, node, server, silence).await? {
            return Err(changed(planned));
        }
        if mover.fence && silence.is_some() {
            fence(mover, node, server, term).await?;
        }
    }
    let Some(to) = to else {
        return mover.floating.assign(&object, None, evict.as_deref(), term).await;
    };
    let server = mover
        .nodes
        .server_of(to)
        .ok_or_else(|| Error::NoNode { address: *address, why: format!("node {to} has no server") })?;
    let mac = mover.reach.bring(*address, &server, floating::server(&object), term).await?;
    let place = Place { node: to, server: &server, mac: mac.as_deref() };
    mover.floating.assign(&object, Some(place), evict.as_deref(), term).await
}

/// Whether the node is as silent as it was when this was decided, by the API server's own word, or its server stopped.
async fn is_gone(mover: &Mover, node: &str, server: Option<&str>, silence: Option<&Silence>) -> Result<bool, Error> {
    let name = lease::of_node(node);
    let tried = format!("cannot read Lease {name}");
    let lease = match tokio::time::timeout(mover.deadline, mover.lease_api.get_opt(&name)).await {
        Ok(Ok(lease)) => lease,
        Ok(Err(error)) => return Err(Error::Kube(ProviderError::from_kube(&tried, &error))),
        Err(_) => {
            return Err(Error::Kube(ProviderError::new(ErrorKind::Unavailable, format!("{tried}: no answer in time"))));
        }
    };
    let found = lease.as_ref().and_then(|lease| lease.metadata.resource_version.as_deref());
    if silence.is_some_and(|silence| silence.version.as_deref() == found) {
        return Ok(true);
    }
    let free = lease
        .as_ref()
        .and_then(|lease| lease.spec.as_ref())
        .is_some_and(|spec| spec.holder_identity.as_deref().unwrap_or_default().is_empty());
    if free {
        return Ok(true);
    }
    match server {
        Some(server) => Ok(mover.client.server(server).await?.status == "stopped"),
        None => Ok(false),
    }
}

/// Cuts the power of a node's server, and waits until the cloud says that it is off. One that is not yet is looked at again.
async fn fence(mover: &Mover, node: &str, server: Option<&str>, term: &Term) -> Result<(), Error> {
    let unfenced = |why: &str| Error::NotFenced { node: node.to_owned(), why: why.to_owned() };
    let server = server.ok_or_else(|| unfenced("its server is not known"))?;
    let status = async || -> Result<String, Error> {
        match mover.client.server(server).await {
            // What does not exist answers for nothing.
            Err(error) if error.kind() == Kind::NotFound => Ok("stopped".to_owned()),
            read => Ok(read?.status),
        }
    };
    if status().await? == "running" {
        under(term, mover.deadline, mover.client.stop_server(server)).await?;
        warn!(node, server, "power cut: its agent is silent and its addresses move");
    }
    if status().await? == "stopped" { Ok(()) } else { Err(unfenced("it is stopping")) }
}

fn changed(planned: &Move) -> Error {
    let message = format!("the state of {} changed since it was decided on", planned.address);
    Error::Kube(ProviderError::new(ErrorKind::Conflict, message))
}
