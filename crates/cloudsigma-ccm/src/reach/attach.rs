//! A NIC of its own for each address: the cloud routes it to that server and to no other.
//!
//! A running server may ignore a changed NIC without a word, so every step is read back, and the first that did not
//! happen ends it. A write is a whole server: what it does to drives is looked at as well.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use groundcrew_core::leader::Term;
use serde_json::{Value, json};
use tracing::info;

use super::Reach;
use crate::client::{Client, Conf, Kind, Nic, Server};
use crate::error::Error;
use crate::nodes::Nodes;
use crate::write::under;

pub(crate) struct Attach {
    pub(crate) client: Client,
    pub(crate) nodes: Nodes,
    pub(crate) deadline: Duration,
}

impl Attach {
    /// The NIC that was made for the address.
    fn nic(server: &Server, address: IpAddr) -> Option<Nic> {
        server.nics().into_iter().find(|nic| nic.conf == Conf::Static && nic.addresses.contains(&address))
    }

    async fn attach(&self, address: IpAddr, server: &str, term: &Term) -> Result<Option<String>, Error> {
        let change = |now: &Server| {
            if Self::nic(now, address).is_some() {
                return Ok(None);
            }
            let family = if address.is_ipv4() { "ip_v4_conf" } else { "ip_v6_conf" };
            let nic = json!({ family: { "conf": "static", "ip": { "uuid": address } }, "model": "virtio" });
            Ok(Some(now.with_nics(|nics| nics.push(nic))))
        };
        let after = self.edit(address, server, term, change).await?;
        let ignored = || Error::AttachIgnored { address, server: server.to_owned(), what: "attach" };
        let nic = Self::nic(&after, address).ok_or_else(ignored)?;
        info!(%address, server, mac = nic.mac, live = nic.live, "attached");
        // Until its next start the guest does not have the NIC, and uses the address on the one of its default route.
        Ok(nic.live.then_some(nic.mac))
    }

    /// Off the server, and seen to be.
    async fn detach(&self, address: IpAddr, server: &str, term: &Term) -> Result<(), Error> {
        if !self.nodes.servers().contains(server) {
            return Err(Error::AttachedElsewhere { address, server: server.to_owned() });
        }
        let change = |now: &Server| {
            let Some(Nic { mac, .. }) = Self::nic(now, address) else { return Ok(None) };
            let other = |nic: &Value| nic["mac"].as_str().is_none_or(|other| !other.eq_ignore_ascii_case(&mac));
            Ok(Some(now.with_nics(|nics| nics.retain(other))))
        };
        self.edit(address, server, term, change).await?;
        if self.client.ip(address).await?.server.is_some() {
            return Err(Error::AttachIgnored { address, server: server.to_owned(), what: "detach" });
        }
        info!(%address, server, "detached");
        Ok(())
    }

    async fn edit(
        &self,
        address: IpAddr,
        server: &str,
        term: &Term,
        mut change: impl FnMut(&Server) -> Result<Option<Value>, Error> + Send,
    ) -> Result<Server, Error> {
        let mut before = BTreeSet::new();
        let edit = self.client.edit_server::<Error>(server, |now| {
            before = now.drives();
            change(now)
        });
        let after = under(term, self.deadline, edit).await?;
        let differing: Vec<_> = before.symmetric_difference(&after.drives()).cloned().collect();
        if differing.is_empty() {
            return Ok(after);
        }
        Err(Error::DrivesChanged { address, server: server.to_owned(), drives: differing.join(", ") })
    }
}

impl Reach for Attach {
    fn able(&self, _: &Server) -> Result<(), &'static str> {
        Ok(())
    }

    fn bring<'a>(
        &'a self,
        address: IpAddr,
        server: &'a str,
        term: &'a Term,
    ) -> BoxFuture<'a, Result<Option<String>, Error>> {
        async move {
            match self.client.ip(address).await?.server {
                Some(holder) if holder != server => self.detach(address, &holder, term).await?,
                _ => {}
            }
            self.attach(address, server, term).await
        }
        .boxed()
    }

    fn withdraw<'a>(&'a self, address: IpAddr, term: &'a Term) -> BoxFuture<'a, Result<(), Error>> {
        async move {
            match self.client.ip(address).await {
                Ok(ip) => match ip.server {
                    Some(server) => self.detach(address, &server, term).await,
                    None => Ok(()),
                },
                Err(error) if error.kind() == Kind::NotFound => Ok(()),
                Err(error) => Err(error.into()),
            }
        }
        .boxed()
    }
}
