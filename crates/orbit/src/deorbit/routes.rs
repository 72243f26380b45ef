//! Routes to the pods of this cluster as leftovers.
//!
//! A route carries no mark. Clusters that share a router often have the same pods' range, too, so that a destination proves
//! nothing: a route is this cluster's only if it leads to the pods of one of its Nodes, by an address of that Node.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use groundcrew_core::leader::Term;
use groundcrew_core::provider::{
    ErrorKind, Leftover, LeftoverClass, LeftoverKind, Leftovers, Listing, ProviderError, Route, Routes,
};
use ipnet::IpNet;
use kube::Client;

use crate::nodes;
use crate::routegc::nodes::Node;

const ROUTE: LeftoverKind = LeftoverKind { name: "router-route", class: LeftoverClass::Route };

/// Pods and the addresses that lead to them, as the routes showed them that were found since a run began: a Node that has
/// gone since was this cluster's. `None` before a run.
#[derive(Debug, Default)]
pub struct Recalled(Mutex<Option<BTreeSet<(IpNet, IpAddr)>>>);

impl Recalled {
    fn get(&self) -> Option<BTreeSet<(IpNet, IpAddr)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The routes of one cluster on some routers.
pub struct RouteLeftovers<C> {
    /// The cloud.
    pub cloud: C,
    /// The cluster, for its Nodes.
    pub client: Client,
    /// The routers, by id.
    pub routers: Vec<String>,
    /// The ranges of the cluster's pods.
    pub pod_ranges: Vec<IpNet>,
    /// What a run has found before.
    pub recalled: Recalled,
}

/// A route as a leftover's id has it: the router, the destination, the next hop.
fn parse(id: &str) -> Option<(&str, Route)> {
    let mut parts = id.splitn(3, ' ');
    let (router, destination, next_hop) = (parts.next()?, parts.next()?, parts.next()?);
    Some((router, Route { destination: destination.to_owned(), next_hop: next_hop.to_owned() }))
}

impl<C: Routes> RouteLeftovers<C> {
    /// What its Nodes have, and had since a run began.
    async fn owned(&self) -> Result<BTreeSet<(IpNet, IpAddr)>, ProviderError> {
        let told = |error: nodes::NodesError| ProviderError::new(ErrorKind::Unavailable, error.to_string());
        let nodes: Vec<Node> = nodes::list(&self.client).await.map_err(told)?;
        let pairs = nodes.iter().flat_map(|node| {
            let ranges = node.pod_ranges.iter().copied();
            ranges.flat_map(|range| node.addresses_like(range).map(move |address| (range.trunc(), address)))
        });
        Ok(pairs.chain(self.recalled.get().into_iter().flatten()).collect())
    }

    fn leftover(&self, router: &str, route: &Route, owned: &BTreeSet<(IpNet, IpAddr)>) -> Option<Leftover> {
        let range = route.range()?;
        if !self.pod_ranges.iter().any(|pods| pods.contains(&range)) {
            return None;
        }
        if !route.hop().is_some_and(|hop| owned.contains(&(range, hop))) {
            return None;
        }
        let (to, by) = (&route.destination, &route.next_hop);
        Some(Leftover {
            kind: ROUTE,
            id: format!("{router} {to} {by}"),
            name: route.to_string(),
            about: format!("on router {router}"),
            gib: None,
            users: Vec::new(),
            created: None,
            doubt: None,
            kept: false,
            command: format!("openstack router remove route --route destination={to},gateway={by} {router}"),
        })
    }
}

impl<C: Routes> Leftovers for RouteLeftovers<C> {
    fn kinds(&self) -> &'static [LeftoverKind] {
        &[ROUTE]
    }

    fn recall(&self, found: Option<&[String]>) {
        let pairs = found.map(|ids| {
            let routes = ids.iter().filter_map(|id| parse(id));
            routes.filter_map(|(_, route)| route.range().zip(route.hop())).collect()
        });
        *self.recalled.0.lock().unwrap_or_else(PoisonError::into_inner) = pairs;
    }

    async fn find(&self) -> Result<Listing<Leftover>, ProviderError> {
        let owned = self.owned().await?;
        let mut items = Vec::new();
        for router in &self.routers {
            let seen = match self.cloud.router(router).await {
                // Before a run it is a wrong id, or a wrong project; later somebody has removed it with all its routes.
                Err(error) if error.kind() == ErrorKind::NotFound && self.recalled.get().is_some() => continue,
                seen => seen?,
            };
            items.extend(seen.routes.iter().filter_map(|route| self.leftover(router, route, &owned)));
        }
        Ok(Listing::complete(items))
    }

    async fn remove(&self, leftover: &Leftover, term: &Term) -> Result<(), ProviderError> {
        let Some((router, route)) = parse(&leftover.id) else {
            return Err(ProviderError::new(ErrorKind::Invalid, format!("{} is no route", leftover.id)));
        };
        if !self.cloud.router(router).await?.routes.contains(&route) {
            return Ok(());
        }
        match self.leftover(router, &route, &self.owned().await?) {
            Some(_) => {}
            None => {
                return Err(ProviderError::new(
                    ErrorKind::Denied,
                    format!("route {route} is not this cluster's any more"),
                ));
            }
        }
        // A whole list would take away what others add meanwhile.
        if !self.cloud.single_routes().await? {
            let message = "this cloud cannot remove single routes (no extension extraroute-atomic)";
            return Err(ProviderError::new(ErrorKind::Invalid, message));
        }
        self.cloud.remove_routes(router, &[route], term).await
    }
}
