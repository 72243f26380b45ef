//! Neutron's routers.

use std::collections::BTreeSet;
use std::time::Duration;

use groundcrew_core::leader::Term;
use groundcrew_core::provider::{Listing, ProviderError, Route, RouteLimit, Router, Routes, Subnet};
use openstack_client::network;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::OpenStack;
use crate::error::told;
use crate::listing::translate;

/// An upgrade of Neutron may bring the extension that we need; nobody has to restart us for it.
const ABILITIES_LAST: Duration = Duration::from_hours(1);

/// What this Neutron can do, asked now and then.
#[derive(Debug, Default)]
pub(crate) struct Abilities(Mutex<Option<(Instant, bool)>>);

impl Routes for OpenStack {
    async fn subnets(&self) -> Result<Listing<Subnet>, ProviderError> {
        let session = self.client.session().await.map_err(told)?;
        let network = self.client.network();
        let (networks, subnets) = futures::try_join!(network.networks(&[]), network.subnets(&[])).map_err(told)?;
        // Neutron shows all ports of a network to the project that owns it; of another's network, only our own. A network
        // that we were not shown is another's.
        let ours: BTreeSet<_> = networks
            .items
            .iter()
            .filter(|network| network.project_id == session.project_id())
            .map(|network| network.id.as_str())
            .collect();
        Ok(translate("subnets", subnets, |subnet| {
            let range =
                subnet.cidr.parse().map_err(|_| format!("subnet {} has no range: {:?}", subnet.id, subnet.cidr))?;
            let hides_ports = !ours.contains(subnet.network_id.as_str());
            Ok(Subnet { id: subnet.id, network: subnet.network_id, range, hides_ports })
        }))
    }

    async fn router(&self, id: &str) -> Result<Router, ProviderError> {
        let router = self.client.network().router(id).await.map_err(told)?;
        Ok(Router {
            id: router.id,
            name: router.name,
            project: router.project_id,
            routes: router.routes.into_iter().map(from_neutron).collect(),
            revision: router.revision_number,
        })
    }

    async fn route_limit(&self, router: &Router) -> Result<RouteLimit, ProviderError> {
        let session = self.client.session().await.map_err(told)?;
        // The quota is that of the router's project, and we may ask for our own only.
        if router.project != session.project_id() {
            return Ok(RouteLimit::Untold);
        }
        let quota = self.client.network().quota().await.map_err(told)?;
        Ok(match quota.get("router_route").map(|limit| u64::try_from(*limit)) {
            Some(Ok(limit)) => RouteLimit::At(limit),
            Some(Err(_)) => RouteLimit::Unlimited,
            None => RouteLimit::Untold,
        })
    }

    async fn single_routes(&self) -> Result<bool, ProviderError> {
        let mut known = self.abilities.0.lock().await;
        match *known {
            Some((since, atomic)) if since.elapsed() < ABILITIES_LAST => Ok(atomic),
            _ => {
                let atomic = self.client.network().extensions().await.map_err(told)?.atomic_routes();
                *known = Some((Instant::now(), atomic));
                Ok(atomic)
            }
        }
    }

    async fn add_routes(&self, id: &str, routes: &[Route], term: &Term) -> Result<(), ProviderError> {
        let routes = to_neutron(routes);
        self.write(term, self.client.network().add_routes(id, &routes)).await.map(drop)
    }

    async fn remove_routes(&self, id: &str, routes: &[Route], term: &Term) -> Result<(), ProviderError> {
        let routes = to_neutron(routes);
        self.write(term, self.client.network().remove_routes(id, &routes)).await.map(drop)
    }

    async fn replace_routes(&self, seen: &Router, routes: &[Route], term: &Term) -> Result<(), ProviderError> {
        let routes = to_neutron(routes);
        self.write(term, self.client.network().replace_routes(&seen.id, &routes, seen.revision)).await.map(drop)
    }
}

fn from_neutron(route: network::Route) -> Route {
    Route { destination: route.destination, next_hop: route.nexthop }
}

fn to_neutron(routes: &[Route]) -> Vec<network::Route> {
    let route =
        |route: &Route| network::Route { destination: route.destination.clone(), nexthop: route.next_hop.clone() };
    routes.iter().map(route).collect()
}
