//! How the cloud lets a server use an address.

mod attach;
mod manual;

use std::net::IpAddr;

use futures::future::BoxFuture;
use groundcrew_core::leader::Term;

pub(crate) use attach::Attach;
pub(crate) use manual::Manual;

use crate::client::Server;
use crate::error::Error;

/// One of the ways. Its verbs may be called again after any crash.
pub(crate) trait Reach: Send + Sync {
    /// Whether this server could use addresses at all; why not, in words for its node's operator.
    fn able(&self, server: &Server) -> Result<(), &'static str>;

    /// Lets this server use the address, and no other that could tell. The MAC of the NIC to put it on.
    fn bring<'a>(
        &'a self,
        address: IpAddr,
        server: &'a str,
        term: &'a Term,
    ) -> BoxFuture<'a, Result<Option<String>, Error>>;

    /// Takes the address from whatever server has it. Gone already is fine.
    fn withdraw<'a>(&'a self, address: IpAddr, term: &'a Term) -> BoxFuture<'a, Result<(), Error>>;
}
