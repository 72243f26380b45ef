//! A cloud whose routers carry routes to the pods of each Node.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;

use super::{Listing, ProviderError};
use crate::leader::Term;

/// A route of a router, as the cloud spells it: clouds compare letter by letter what is to be removed. One destination
/// may have several next hops.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Route {
    /// Where to, as `10.0.1.0/24`.
    pub destination: String,
    /// Through which address.
    pub next_hop: String,
}

impl Route {
    /// Where to. `None` of what is no range of addresses.
    #[must_use]
    pub fn range(&self) -> Option<IpNet> {
        self.destination.parse().ok().map(|range: IpNet| range.trunc())
    }

    /// Through which address. `None` of a route into nowhere, or one that cannot be read.
    #[must_use]
    pub fn hop(&self) -> Option<IpAddr> {
        self.next_hop.parse().ok()
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} via {}", self.destination, if self.next_hop.is_empty() { "nothing" } else { &self.next_hop })
    }
}

/// A router as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Router {
    /// Its id.
    pub id: String,
    /// What a person knows it by.
    pub name: String,
    /// Whose it is.
    pub project: String,
    /// All its routes, whoever made them.
    pub routes: Vec<Route>,
    /// Rises with each change, where the cloud counts.
    pub revision: Option<i64>,
}

/// How many routes a router takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouteLimit {
    /// As many.
    At(u64),
    /// As many as one likes.
    Unlimited,
    /// There may be a limit, and the cloud does not tell it.
    Untold,
}

/// A range of addresses that servers get theirs from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subnet {
    /// Its id.
    pub id: String,
    /// The network that it is of.
    pub network: String,
    /// Its addresses.
    pub range: IpNet,
    /// Whether others may have ports on it that we cannot see. There, **an address that nobody seems to have may well be
    /// in use**.
    pub hides_ports: bool,
}

/// The verbs of a cloud whose routers carry pod routes.
///
/// A cloud has other writers: a cloud controller manager, other clusters, people. So writes name single routes wherever
/// the cloud can do that ([`single_routes`](Self::single_routes)), and after every write one reads again: a write that
/// failed may have been done ([`ProviderError::maybe_applied`]), and one that succeeded may have been undone.
pub trait Routes: Send + Sync + 'static {
    /// The subnets that we may see.
    fn subnets(&self) -> impl Future<Output = Result<Listing<Subnet>, ProviderError>> + Send;

    /// One router with all its routes. Not there, or not for us to see: [`ErrorKind::NotFound`](super::ErrorKind).
    fn router(&self, id: &str) -> impl Future<Output = Result<Router, ProviderError>> + Send;

    /// How many routes this router takes.
    fn route_limit(&self, router: &Router) -> impl Future<Output = Result<RouteLimit, ProviderError>> + Send;

    /// Whether routes can be added and removed one by one. If not, [`add_routes`](Self::add_routes) and
    /// [`remove_routes`](Self::remove_routes) are refused.
    fn single_routes(&self) -> impl Future<Output = Result<bool, ProviderError>> + Send;

    /// Adds routes and leaves the others alone. There already is fine. A router without room answers
    /// [`ErrorKind::Quota`](super::ErrorKind).
    fn add_routes(
        &self,
        router: &str,
        routes: &[Route],
        term: &Term,
    ) -> impl Future<Output = Result<(), ProviderError>> + Send;

    /// Removes routes and leaves the others alone. Gone already is fine. The cloud may check what remains, and refuse for
    /// a route that has nothing to do with these.
    fn remove_routes(
        &self,
        router: &str,
        routes: &[Route],
        term: &Term,
    ) -> impl Future<Output = Result<(), ProviderError>> + Send;

    /// Puts a whole list in place of what was `seen`. **What another writer added since then is lost**, also where the
    /// cloud compares revisions: they lessen the risk and do not end it. Known to have changed: a conflict.
    fn replace_routes(
        &self,
        seen: &Router,
        routes: &[Route],
        term: &Term,
    ) -> impl Future<Output = Result<(), ProviderError>> + Send;
}
