//! Neutron.

mod port;
mod router;
mod security_group;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde::Deserialize;

pub use port::{AddressPair, FixedIp, Port, PortUpdate};
pub use router::{Route, Router};
pub use security_group::{Direction, Ethertype, NewRule, Rule, SecurityGroup};

use crate::catalog::Service;
use crate::client::{Ask, Client, Filters};
use crate::error::Error;
use crate::listing::Listing;
use crate::null_as_default;
use crate::page::{Item, More};

/// Neutron: routers, ports, security groups, floating IPs.
#[derive(Debug, Clone, Copy)]
pub struct Network<'a>(pub(crate) &'a Client);

/// The extensions that a Neutron has.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Extensions(pub BTreeSet<String>);

impl Extensions {
    /// Whether an extension is there, by its alias.
    #[must_use]
    pub fn has(&self, alias: &str) -> bool {
        self.0.contains(alias)
    }

    /// Whether single routes can be added and removed, which no other writer can undo by accident. Reference routers have it since
    /// Train, OVN ones since 2026.1.
    #[must_use]
    pub fn atomic_routes(&self) -> bool {
        self.has("extraroute-atomic")
    }

    /// Whether a write can be bound to a revision. **Not a lock**: racing writers of one revision have been seen to succeed together.
    #[must_use]
    pub fn if_match(&self) -> bool {
        self.has("revision-if-match")
    }
}

#[derive(Deserialize)]
struct Extension {
    alias: String,
}

impl Item for Extension {
    fn id(&self) -> &str {
        &self.alias
    }
}

/// A network.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct NetworkInfo {
    /// Its id.
    pub id: String,
    /// Its name, not unique.
    #[serde(default, deserialize_with = "null_as_default")]
    pub name: String,
    /// Whose it is. Of another project's network, ports may be hidden from us.
    #[serde(default, deserialize_with = "null_as_default")]
    pub project_id: String,
    /// Whether other projects use it too.
    #[serde(default, deserialize_with = "null_as_default")]
    pub shared: bool,
    /// Whether it leads out of the cloud.
    #[serde(default, rename = "router:external", deserialize_with = "null_as_default")]
    pub external: bool,
}

/// A subnet.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Subnet {
    /// Its id.
    pub id: String,
    /// Its name, not unique.
    #[serde(default, deserialize_with = "null_as_default")]
    pub name: String,
    /// The network that it is of.
    #[serde(default, deserialize_with = "null_as_default")]
    pub network_id: String,
    /// Whose it is.
    #[serde(default, deserialize_with = "null_as_default")]
    pub project_id: String,
    /// Its addresses, as `10.0.0.0/24`.
    #[serde(default, deserialize_with = "null_as_default")]
    pub cidr: String,
    /// The router's address in it.
    #[serde(default)]
    pub gateway_ip: Option<IpAddr>,
}

/// A floating IP.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct FloatingIp {
    /// Its id.
    pub id: String,
    /// The address.
    pub floating_ip_address: IpAddr,
    /// The address that it leads to.
    #[serde(default)]
    pub fixed_ip_address: Option<IpAddr>,
    /// The port that it leads to.
    #[serde(default)]
    pub port_id: Option<String>,
    /// Whose it is.
    #[serde(default, deserialize_with = "null_as_default")]
    pub project_id: String,
    /// What its maker wrote on it.
    #[serde(default, deserialize_with = "null_as_default")]
    pub description: String,
    /// `ACTIVE`, `DOWN` or `ERROR`.
    #[serde(default, deserialize_with = "null_as_default")]
    pub status: String,
    /// Its tags.
    #[serde(default, deserialize_with = "null_as_default")]
    pub tags: Vec<String>,
}

macro_rules! items {
    ($($kind:ty),*) => { $(impl Item for $kind { fn id(&self) -> &str { &self.id } })* };
}
items!(NetworkInfo, Subnet, FloatingIp, Router, Port, SecurityGroup);

impl Network<'_> {
    /// What this Neutron can do.
    pub async fn extensions(self) -> Result<Extensions, Error> {
        let listing = self.list::<Extension>("extensions", &[]).await?;
        Ok(Extensions(listing.complete()?.into_iter().map(|extension| extension.alias).collect()))
    }

    /// Networks, also those of others that we may use.
    pub async fn networks(self, filters: Filters<'_>) -> Result<Listing<NetworkInfo>, Error> {
        self.list("networks", filters).await
    }

    /// Subnets.
    pub async fn subnets(self, filters: Filters<'_>) -> Result<Listing<Subnet>, Error> {
        self.list("subnets", filters).await
    }

    /// Floating IPs.
    pub async fn floating_ips(self, filters: Filters<'_>) -> Result<Listing<FloatingIp>, Error> {
        self.list("floatingips", filters).await
    }

    /// One floating IP.
    pub async fn floating_ip(self, id: &str) -> Result<FloatingIp, Error> {
        self.0.get(&Ask::new(Service::Network, &["floatingips", id]), "floatingip").await
    }

    /// Gives a floating IP back. **It cannot be had again.** Gone already is fine.
    pub async fn delete_floating_ip(self, id: &str) -> Result<(), Error> {
        self.0.delete(&Ask::new(Service::Network, &["floatingips", id])).await
    }

    /// The limits of our project by resource, -1 for none: `router_route` is there from Neutron 2026.2 on, and counts per router.
    pub async fn quota(self) -> Result<BTreeMap<String, i64>, Error> {
        let session = self.0.session().await?;
        self.0.get(&Ask::new(Service::Network, &["quotas", session.project_id()]), "quota").await
    }

    async fn list<T: Item>(self, collection: &str, filters: Filters<'_>) -> Result<Listing<T>, Error> {
        // The path of one collection has a dash where its key has none.
        let path = collection.replace('_', "-");
        self.0.list(&Ask::new(Service::Network, &[&path]).query(filters), collection, More::Links).await
    }
}
