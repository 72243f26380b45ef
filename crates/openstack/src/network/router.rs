//! Routers and their routes.

use reqwest::Method;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::Network;
use crate::catalog::Service;
use crate::client::{Ask, Filters};
use crate::error::Error;
use crate::listing::Listing;
use crate::null_as_default;

/// A route of a router, as Neutron spells it: it must go back letter by letter to be removed. One destination may have several.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Route {
    /// Where to, as `10.0.1.0/24`.
    #[serde(default, deserialize_with = "null_as_default")]
    pub destination: String,
    /// Through which address.
    #[serde(default, deserialize_with = "null_as_default")]
    pub nexthop: String,
}

/// A router.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Router {
    /// Its id.
    pub id: String,
    /// Its name, not unique.
    #[serde(default, deserialize_with = "null_as_default")]
    pub name: String,
    /// Whose it is.
    #[serde(default, deserialize_with = "null_as_default")]
    pub project_id: String,
    /// `ACTIVE`, `DOWN` or `ERROR`.
    #[serde(default, deserialize_with = "null_as_default")]
    pub status: String,
    /// Rises with each change.
    #[serde(default)]
    pub revision_number: Option<i64>,
    /// Its routes. **Not defaulted**: a router that shows none because the extension is off is not one without routes.
    pub routes: Vec<Route>,
}

impl Network<'_> {
    /// Routers.
    pub async fn routers(self, filters: Filters<'_>) -> Result<Listing<Router>, Error> {
        self.list("routers", filters).await
    }

    /// One router.
    pub async fn router(self, id: &str) -> Result<Router, Error> {
        self.0.get(&Ask::new(Service::Network, &["routers", id]), "router").await
    }

    /// Adds routes and leaves the others alone. Those that are there already are fine. Needs
    /// [`Extensions::atomic_routes`](super::Extensions::atomic_routes).
    pub async fn add_routes(self, id: &str, routes: &[Route]) -> Result<Router, Error> {
        self.change_routes(&["routers", id, "add_extraroutes"], routes, None).await
    }

    /// Removes routes and leaves the others alone. Those that are gone already are fine. Needs
    /// [`Extensions::atomic_routes`](super::Extensions::atomic_routes).
    ///
    /// Neutron checks all that remain: another route whose next hop is on no subnet of the router any more fails the whole call with
    /// `InvalidRoutes`.
    pub async fn remove_routes(self, id: &str, routes: &[Route]) -> Result<Router, Error> {
        self.change_routes(&["routers", id, "remove_extraroutes"], routes, None).await
    }

    /// Puts a whole list in place of the routes that are there, including those of others that came since they were read. A revision
    /// lessens that risk and does not end it: read again afterwards.
    pub async fn replace_routes(self, id: &str, routes: &[Route], revision: Option<i64>) -> Result<Router, Error> {
        self.change_routes(&["routers", id], routes, revision).await
    }

    async fn change_routes(self, path: &[&str], routes: &[Route], revision: Option<i64>) -> Result<Router, Error> {
        let body = json!({"router": {"routes": routes}});
        self.0.write(Method::PUT, &Ask::new(Service::Network, path), &body, revision, "router").await
    }
}
