//! What a cluster leaves in its CloudSigma account: marked addresses, the NICs that were made for them, and tags.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use groundcrew_api::floating_ip::FloatingIP;
use groundcrew_api::names::class;
use groundcrew_core::leader::Term;
use groundcrew_core::provider::{
    ErrorKind, Leftover, LeftoverClass, LeftoverKind, Leftovers, Listing, Named, Presence, ProviderError, User,
};
use k8s_openapi::api::core::v1::Service;
use kube::Api;

use crate::client::{Client, Ip, Kind, Tag};
use crate::error::Error;
use crate::floating::claimed;
use crate::marks::{self, Claim, Mark};
use crate::nodes::Nodes;
use crate::reach::{Attach, Edits, Reach};
use crate::write::{leads, under};

const ADDRESS: LeftoverKind = LeftoverKind { name: "cloudsigma-address", class: LeftoverClass::FloatingIp };
const TAG: LeftoverKind = LeftoverKind { name: "cloudsigma-tag", class: LeftoverClass::FloatingIp };

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
            // One that is being deleted waits for its end, and for nothing else.
            let living = found.filter(|service| service.metadata.deletion_timestamp.is_none());
            if living.is_some_and(|service| service.metadata.uid == Some(owner.uid.to_string())) {
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
            Mark::Ours(Claim { kept: Some(kept), .. }) => return Err(in_use(format!("{address} is kept for {kept}"))),
            Mark::Ours(claim) => claim,
        };
        self.check_unused(address, &claim).await?;
        // What is marked was on no server when it was taken: in attach mode we put it there.
        if let Some(server) = &ip.server {
            let edits = Edits::new(self.client.clone(), self.deadline);
            let attach = Attach { edits, nodes: Nodes::default() };
            attach.withdraw(address, Some(server), term).await?;
        }
        let unmark = self.client.edit_meta::<Error>(address, |now| {
            leads(term)?;
            match marks::read(&now.meta, &self.cluster) {
                // As it was when nobody used it, or not at all.
                Mark::Ours(found) if found == claim => Ok(Some(marks::unmarked(&now.meta))),
                _ => Err(Error::Outrun { address }),
            }
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

/// An address that carries this cluster's mark. One that its user wants kept stays, although the Service may be gone.
fn marked(ip: &Ip, cluster: &str) -> Option<Leftover> {
    let Mark::Ours(claim) = marks::read(&ip.meta, cluster) else { return None };
    let mut about: Vec<_> = claim.owners.values().map(ToString::to_string).collect();
    about.extend(claim.kept.iter().map(|kept| format!("kept for {kept}")));
    let meta = serde_json::json!({ "meta": marks::unmarked(&ip.meta) });
    Some(Leftover {
        kind: ADDRESS,
        id: ip.address.to_string(),
        name: ip.address.to_string(),
        about: about.join(", "),
        gib: None,
        users: claim.owners().map(|owner| User::Service(owner.key)).collect(),
        created: None,
        doubt: None,
        kept: claim.kept.is_some(),
        command: by_hand(ip.address, &meta.to_string()),
    })
}

/// A tag of ours, which is for whom the addresses are that it is on: the controller would make it again for those that stay.
fn tagged(tag: &Tag, marked: &[Leftover]) -> Leftover {
    let on: Vec<_> = marked.iter().filter(|address| tag.resources.contains(&address.id)).collect();
    let users: BTreeSet<_> = on.iter().flat_map(|address| address.users.iter().cloned()).collect();
    Leftover {
        kind: TAG,
        id: tag.uuid.clone(),
        name: tag.name.clone(),
        about: format!("on {} addresses", tag.resources.len()),
        gib: None,
        users: users.into_iter().collect(),
        created: None,
        doubt: None,
        kept: on.iter().any(|address| address.kept),
        command: format!("curl -X DELETE -u EMAIL:PASSWORD API/tags/{}/", tag.uuid),
    }
}

/// How somebody does it by hand. Others' notes are in `meta`, and it is pasted into a shell.
fn by_hand(address: IpAddr, meta: &str) -> String {
    let meta = meta.replace('\'', "'\\''");
    format!("curl -X PUT -u EMAIL:PASSWORD -H 'content-type: application/json' -d '{meta}' API/ips/{address}/")
}

fn in_use(message: String) -> ProviderError {
    ProviderError::new(ErrorKind::Conflict, message).with_reason("InUse")
}

impl Leftovers for CloudSigmaLeftovers {
    fn kinds(&self) -> &'static [LeftoverKind] {
        &[TAG, ADDRESS]
    }

    fn classes(&self) -> &'static [&'static str] {
        &[class::CLOUDSIGMA]
    }

    async fn find(&self) -> Result<Listing<Leftover>, ProviderError> {
        let (ips, tags) = (self.client.ips().await?, self.client.tags().await?);
        let marked: Vec<_> = ips.items.iter().filter_map(|ip| marked(ip, &self.cluster)).collect();
        let ours = tags.items.iter().filter(|tag| crate::tags::is_ours(tag, &self.cluster));
        let items = ours.map(|tag| tagged(tag, &marked)).collect::<Vec<_>>().into_iter().chain(marked).collect();
        Ok(Listing { items, complete: ips.complete && tags.complete })
    }

    async fn presence(&self, named: &Named) -> Result<Presence, ProviderError> {
        let Named::LoadBalancer { class: Some(served_by), service, .. } = named else { return Ok(Presence::Unknown) };
        if served_by != class::CLOUDSIGMA {
            return Ok(Presence::Unknown);
        }
        let listing = self.find().await?;
        if !listing.complete {
            return Ok(Presence::Unknown);
        }
        let user = User::Service(service.clone());
        let there = listing.items.iter().any(|leftover| leftover.users.contains(&user));
        Ok(if there { Presence::There } else { Presence::Gone })
    }

    async fn remove(&self, leftover: &Leftover, term: &Term) -> Result<(), ProviderError> {
        if leftover.kind == TAG {
            return self.remove_tag(&leftover.id, term).await;
        }
        let no_address = |_| ProviderError::new(ErrorKind::Invalid, format!("{} is no address", leftover.id));
        self.remove_address(leftover.id.parse().map_err(no_address)?, term).await
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use groundcrew_core::key::ServiceKey;
    use groundcrew_core::provider::Owner;
    use serde_json::{from_value, json};
    use uuid::Uuid;

    use super::*;
    use crate::client::Meta;

    /// An address as the account shows it after its Service asked to keep it, or not, and went, or not.
    fn ip(last: u8, keep: bool, gone: bool) -> Ip {
        let owner = Owner { key: ServiceKey::new("shop", format!("web{last}")), uid: Uuid::from_u128(last.into()) };
        let mut meta = marks::with(&Meta::new(), "us", &owner, keep);
        if gone {
            meta = marks::without(&meta, "us", &owner);
        }
        from_value(json!({ "uuid": IpAddr::from([203, 0, 113, last]), "meta": meta })).unwrap()
    }

    #[test]
    fn an_address_that_its_user_wants_kept_is_no_leftover_to_remove() {
        assert!(marked(&ip(1, true, true), "us").unwrap().kept);
        assert!(!marked(&ip(1, false, false), "us").unwrap().kept);
        assert_eq!(marked(&ip(1, false, true), "us"), None, "nobody's any more");
        assert_eq!(marked(&ip(1, true, true), "them"), None);
    }

    #[test]
    fn a_tag_is_of_the_services_whose_addresses_it_is_on() {
        let addresses = [ip(1, false, false), ip(2, false, false), ip(3, true, true)];
        let addresses: Vec<_> = addresses.iter().filter_map(|ip| marked(ip, "us")).collect();
        let on = |lasts: &[u8]| {
            let resources = lasts.iter().map(|last| format!("203.0.113.{last}")).collect();
            tagged(&Tag { name: "cluster:us".into(), resources, ..Tag::default() }, &addresses)
        };
        assert_eq!(on(&[2]).users, [User::Service(ServiceKey::new("shop", "web2"))]);
        assert_eq!((on(&[1, 2]).users.len(), on(&[1, 2]).kept), (2, false));
        assert_eq!((on(&[3]).users.len(), on(&[3]).kept), (0, true));
    }

    #[test]
    fn notes_of_others_reach_the_cloud_as_they_are_when_the_command_is_pasted_into_a_shell() {
        let meta = r#"{"meta":{"note":"it's $(reboot) `reboot` \"quoted\"; rm -rf '/'"}}"#;
        let pasted = by_hand([192, 0, 2, 7].into(), meta).replacen("curl", "printf '%s\n'", 1);
        let ran = Command::new("sh").arg("-c").arg(&pasted).output().unwrap();
        let arguments = String::from_utf8(ran.stdout).unwrap();
        assert_eq!(arguments.lines().nth(7), Some(meta), "{arguments}");
        assert_eq!(arguments.lines().count(), 9, "{arguments}");
    }
}
