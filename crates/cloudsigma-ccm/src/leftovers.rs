//! What a cluster leaves in its CloudSigma account: marked addresses and tags.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use groundcrew_api::floating_ip::FloatingIP;
use groundcrew_core::leader::Term;
use groundcrew_core::provider::{ErrorKind, Leftover, Leftovers, Listing, ProviderError};
use k8s_openapi::api::core::v1::Service;
use kube::Api;

use crate::client::{Client, Kind};
use crate::error::Error;
use crate::floating::claimed;
use crate::marks::{self, Claim, Mark};
use crate::write::under;

const ADDRESS: &str = "cloudsigma-address";
const TAG: &str = "cloudsigma-tag";

/// For the end of a cluster, when the controller may be dead. Subscriptions stay: they are bought and ended by people.
#[derive(Clone)]
pub struct CloudSigmaLeftovers {
    /// The account.
    pub client: Client,
    /// The cluster, which may still have users.
    pub kube: kube::Client,
    /// The cluster's id in the marks.
    pub cluster: Arc<str>,
    /// For one write.
    pub deadline: Duration,
}

impl CloudSigmaLeftovers {
    /// Refuses what a living Service has, and what a node may still answer for.
    async fn check_unused(&self, address: IpAddr, claim: &Claim) -> Result<(), ProviderError> {
        for owner in claim.owners() {
            let services: Api<Service> = Api::namespaced(self.kube.clone(), &owner.key.namespace);
            let found = self.ask(&format!("cannot read Service {owner}"), services.get_opt(&owner.key.name)).await?;
            if found.is_some_and(|service| service.metadata.uid == Some(owner.uid.to_string())) {
                return Err(in_use(format!("{address} is in use by Service {owner}")));
            }
        }
        let name = FloatingIP::name_of(address);
        let objects: Api<FloatingIP> = Api::all(self.kube.clone());
        let object = match self.ask(&format!("cannot read FloatingIP {name}"), objects.get_opt(&name)).await {
            Ok(object) => object,
            // The definition goes with the rest of a cluster.
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        match object.as_ref().and_then(claimed) {
            Some(node) => Err(in_use(format!("node {node} still answers for {address}"))),
            None => Ok(()),
        }
    }

    async fn ask<T>(&self, tried: &str, call: impl Future<Output = kube::Result<T>>) -> Result<T, ProviderError> {
        match tokio::time::timeout(self.deadline, call).await {
            Ok(answered) => answered.map_err(|error| ProviderError::from_kube(tried, &error)),
            Err(_) => Err(ProviderError::new(ErrorKind::Unavailable, format!("{tried}: no answer in time"))),
        }
    }

    async fn remove_address(&self, address: IpAddr, term: &Term) -> Result<(), ProviderError> {
        let ip = match self.client.ip(address).await {
            Err(error) if error.kind() == Kind::NotFound => return Ok(()),
            read => read?,
        };
        let claim = match marks::read(&ip.meta, &self.cluster) {
            Mark::None => return Ok(()),
            Mark::Foreign(cluster) => return Err(in_use(format!("{address} belongs to cluster {cluster} by now"))),
            Mark::Ours(claim) => claim,
        };
        self.check_unused(address, &claim).await?;
        let unmark = self.client.edit_meta::<Error>(address, |now| match marks::read(&now.meta, &self.cluster) {
            // As it was when nobody used it, or not at all.
            Mark::Ours(found) if found == claim => Ok(Some(marks::unmarked(&now.meta))),
            _ => Err(Error::Outrun { address }),
        });
        Ok(under(term, self.deadline, unmark).await.map(drop)?)
    }

    async fn remove_tag(&self, uuid: &str, term: &Term) -> Result<(), ProviderError> {
        let tags = self.client.tags().await?;
        match tags.items.iter().find(|tag| tag.uuid == uuid) {
            Some(tag) if !crate::tags::is_ours(tag, &self.cluster) => {
                Err(in_use(format!("tag {uuid} is not this cluster's any more")))
            }
            Some(_) => Ok(under(term, self.deadline, self.client.delete_tag(uuid)).await?),
            None if tags.complete => Ok(()),
            None => Err(ProviderError::new(ErrorKind::Unavailable, "the list of tags is incomplete; try again")),
        }
    }
}

fn in_use(message: String) -> ProviderError {
    ProviderError::new(ErrorKind::Conflict, message).with_reason("InUse")
}

impl Leftovers for CloudSigmaLeftovers {
    fn kinds(&self) -> &'static [&'static str] {
        &[TAG, ADDRESS]
    }

    async fn find(&self) -> Result<Listing<Leftover>, ProviderError> {
        let (ips, tags) = (self.client.ips().await?, self.client.tags().await?);
        let marked = ips.items.iter().filter_map(|ip| {
            let Mark::Ours(claim) = marks::read(&ip.meta, &self.cluster) else { return None };
            let mut about: Vec<_> = claim.owners.values().map(ToString::to_string).collect();
            about.extend(claim.kept.map(|kept| format!("kept for {kept}")));
            let (address, meta) = (ip.address, serde_json::json!({ "meta": marks::unmarked(&ip.meta) }));
            // Others' notes are in it, and somebody pastes it into a shell.
            let meta = meta.to_string().replace('\'', "'\\''");
            Some(Leftover {
                kind: ADDRESS,
                id: address.to_string(),
                name: address.to_string(),
                about: about.join(", "),
                command: format!(
                    "curl -X PUT -u EMAIL:PASSWORD -H 'content-type: application/json' -d '{meta}' API/ips/{address}/"
                ),
            })
        });
        let tagged = tags.items.iter().filter(|tag| crate::tags::is_ours(tag, &self.cluster)).map(|tag| Leftover {
            kind: TAG,
            id: tag.uuid.clone(),
            name: tag.name.clone(),
            about: format!("on {} addresses", tag.resources.len()),
            command: format!("curl -X DELETE -u EMAIL:PASSWORD API/tags/{}/", tag.uuid),
        });
        let items = tagged.chain(marked).collect();
        Ok(Listing { items, complete: ips.complete && tags.complete })
    }

    async fn remove(&self, leftover: &Leftover, term: &Term) -> Result<(), ProviderError> {
        if leftover.kind == TAG {
            return self.remove_tag(&leftover.id, term).await;
        }
        let no_address = |_| ProviderError::new(ErrorKind::Invalid, format!("{} is no address", leftover.id));
        self.remove_address(leftover.id.parse().map_err(no_address)?, term).await
    }
}
