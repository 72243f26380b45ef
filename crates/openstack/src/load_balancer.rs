//! Octavia.

use std::net::IpAddr;

use jiff::Timestamp;
use reqwest::Method;
use serde::Deserialize;
use serde_json::json;

use crate::catalog::Service;
use crate::client::{Ask, Client, Filters};
use crate::error::Error;
use crate::listing::Listing;
use crate::page::{Item, More};
use crate::{moment, null_as_default};

/// Octavia: load balancers.
#[derive(Debug, Clone, Copy)]
pub struct LoadBalancers<'a>(pub(crate) &'a Client);

/// A load balancer.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct LoadBalancer {
    /// Its id.
    pub id: String,
    /// Its name, not unique.
    #[serde(default, deserialize_with = "null_as_default")]
    pub name: String,
    /// What its maker wrote on it.
    #[serde(default, deserialize_with = "null_as_default")]
    pub description: String,
    /// Whose it is.
    #[serde(default, deserialize_with = "null_as_default")]
    pub project_id: String,
    /// `ACTIVE`, `ERROR`, or `PENDING_*`, in which it cannot be changed.
    #[serde(default, deserialize_with = "null_as_default")]
    pub provisioning_status: String,
    /// `ONLINE`, `OFFLINE`, `DEGRADED`, ...
    #[serde(default, deserialize_with = "null_as_default")]
    pub operating_status: String,
    /// The address that it answers on.
    #[serde(default)]
    pub vip_address: Option<IpAddr>,
    /// The port of that address.
    #[serde(default)]
    pub vip_port_id: Option<String>,
    /// The subnet of that address.
    #[serde(default)]
    pub vip_subnet_id: Option<String>,
    /// Its tags.
    #[serde(default, deserialize_with = "null_as_default")]
    pub tags: Vec<String>,
    /// Since when it has been there.
    #[serde(default, deserialize_with = "moment")]
    pub created_at: Option<Timestamp>,
}

impl LoadBalancer {
    /// Whether something is being done to it, and everything else is a conflict meanwhile.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        self.provisioning_status.starts_with("PENDING_")
    }
}

/// Something else that is of a load balancer.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Part {
    /// Its id.
    pub id: String,
    /// Its name, not unique.
    #[serde(default, deserialize_with = "null_as_default")]
    pub name: String,
    /// `ACTIVE`, `ERROR`, or `PENDING_*`.
    #[serde(default, deserialize_with = "null_as_default")]
    pub provisioning_status: String,
    /// `TCP`, `UDP`, `HTTP`, ...
    #[serde(default, deserialize_with = "null_as_default")]
    pub protocol: String,
    /// The load balancers that it is of.
    #[serde(default, deserialize_with = "null_as_default")]
    pub loadbalancers: Vec<Reference>,
    /// Its tags.
    #[serde(default, deserialize_with = "null_as_default")]
    pub tags: Vec<String>,
}

/// A mention of something.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Reference {
    /// Its id.
    pub id: String,
}

impl Item for LoadBalancer {
    fn id(&self) -> &str {
        &self.id
    }
}

impl Item for Part {
    fn id(&self) -> &str {
        &self.id
    }
}

impl LoadBalancers<'_> {
    /// Load balancers. Octavia filters by whole names and tags, not by prefixes.
    pub async fn list(self, filters: Filters<'_>) -> Result<Listing<LoadBalancer>, Error> {
        self.collection("loadbalancers", filters).await
    }

    /// One load balancer.
    pub async fn get(self, id: &str) -> Result<LoadBalancer, Error> {
        self.0.get(&Ask::new(Service::LoadBalancer, &["lbaas", "loadbalancers", id]), "loadbalancer").await
    }

    /// Orders the end of a load balancer and everything of it. Gone already is fine; a conflict while it is pending.
    pub async fn delete_cascade(self, id: &str) -> Result<(), Error> {
        let path = ["lbaas", "loadbalancers", id];
        self.0.delete(&Ask::new(Service::LoadBalancer, &path).query(&[("cascade", "true")])).await
    }

    /// Puts these tags in place of those that are there.
    pub async fn replace_tags(self, id: &str, tags: &[String]) -> Result<LoadBalancer, Error> {
        let path = ["lbaas", "loadbalancers", id];
        let body = json!({"loadbalancer": {"tags": tags}});
        self.0.write(Method::PUT, &Ask::new(Service::LoadBalancer, &path), &body, None, "loadbalancer").await
    }

    /// Listeners, usually filtered by `loadbalancer_id`.
    pub async fn listeners(self, filters: Filters<'_>) -> Result<Listing<Part>, Error> {
        self.collection("listeners", filters).await
    }

    /// Pools, usually filtered by `loadbalancer_id`.
    pub async fn pools(self, filters: Filters<'_>) -> Result<Listing<Part>, Error> {
        self.collection("pools", filters).await
    }

    /// Orders a listener's end. Gone already is fine.
    pub async fn delete_listener(self, id: &str) -> Result<(), Error> {
        self.0.delete(&Ask::new(Service::LoadBalancer, &["lbaas", "listeners", id])).await
    }

    /// Orders a pool's end. Gone already is fine.
    pub async fn delete_pool(self, id: &str) -> Result<(), Error> {
        self.0.delete(&Ask::new(Service::LoadBalancer, &["lbaas", "pools", id])).await
    }

    async fn collection<T: Item>(self, name: &str, filters: Filters<'_>) -> Result<Listing<T>, Error> {
        self.0.list(&Ask::new(Service::LoadBalancer, &["lbaas", name]).query(filters), name, More::Links).await
    }
}
