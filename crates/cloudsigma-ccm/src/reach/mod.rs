//! How the cloud lets a server use an address.

mod attach;
mod edit;
mod manual;

use std::net::IpAddr;

use futures::future::BoxFuture;
use groundcrew_core::leader::Term;

pub(crate) use attach::Attach;
pub(crate) use edit::Edits;
pub(crate) use manual::Manual;

use crate::client::Server;
use crate::error::Error;

/// One of the ways. Its verbs may be called again after any crash.
pub(crate) trait Reach: Send + Sync {
    /// Whether this server could use addresses of this family.
    fn able(&self, server: &Server, v6: bool) -> bool;

    /// The MAC of the NIC that the server has for the address, where the running guest has it.
    fn nic(&self, server: &Server, address: IpAddr) -> Option<String>;

    /// Lets this server use the address, and no other that could tell. The MAC of the NIC to put it on. `had` is the server
    /// that was let use it before, whether it is still a node's or not.
    fn bring<'a>(
        &'a self,
        address: IpAddr,
        server: &'a str,
        had: Option<&'a str>,
        term: &'a Term,
    ) -> BoxFuture<'a, Result<Option<String>, Error>>;

    /// Takes the address from whatever server has it, of nodes or the one that `had` it. Gone already is fine.
    fn withdraw<'a>(
        &'a self,
        address: IpAddr,
        had: Option<&'a str>,
        term: &'a Term,
    ) -> BoxFuture<'a, Result<(), Error>>;
}
