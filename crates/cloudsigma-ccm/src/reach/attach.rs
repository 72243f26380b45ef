//! A NIC of its own for each address: the cloud routes it to that server and to no other.
//!
//! A running server may ignore a changed NIC without a word, so every step is read back, and the first that did not
//! happen ends it.

use std::net::IpAddr;

use futures::FutureExt;
use futures::future::BoxFuture;
use groundcrew_core::leader::Term;
use serde_json::{Value, json};
use tracing::info;

use super::{Edits, Reach};
use crate::client::{Conf, Kind, Nic, Server};
use crate::error::Error;
use crate::nodes::Nodes;

pub(crate) struct Attach {
    pub(crate) edits: Edits,
    pub(crate) nodes: Nodes,
}

impl Attach {
    /// The NIC that was made for the address.
    fn nic(server: &Server, address: IpAddr) -> Option<Nic> {
        server.nics().into_iter().find(|nic| nic.conf == Conf::Static && nic.addresses.contains(&address))
    }

    async fn attach(&self, address: IpAddr, server: &str, term: &Term) -> Result<Option<String>, Error> {
        let ignored = || Error::AttachIgnored { address, server: server.to_owned(), what: "attach" };
        let change = |now: &Server| {
            if Self::nic(now, address).is_some() {
                return Ok(None);
            }
            if self.edits.ignores(now) {
                return Err(ignored());
            }
            let family = if address.is_ipv4() { "ip_v4_conf" } else { "ip_v6_conf" };
            let nic = json!({ family: { "conf": "static", "ip": { "uuid": address } }, "model": "virtio" });
            Ok(Some(now.with_nics(|nics| nics.push(nic))))
        };
        let after = self.edits.edit(address, server, term, change).await?;
        let Some(nic) = Self::nic(&after, address) else {
            self.edits.note_ignored(&after);
            return Err(ignored());
        };
        info!(%address, server, mac = nic.mac, live = nic.live, "attached");
        // Until its next start the guest does not have the NIC, and uses the address on the one of its default route.
        Ok(nic.live.then_some(nic.mac))
    }

    /// Off the server, and seen to be. `had` is the one that we attached it to: its Node may be gone by now.
    async fn detach(&self, address: IpAddr, server: &str, had: Option<&str>, term: &Term) -> Result<(), Error> {
        if had != Some(server) && !self.nodes.servers().contains(server) {
            return Err(Error::AttachedElsewhere { address, server: server.to_owned() });
        }
        let ignored = || Error::AttachIgnored { address, server: server.to_owned(), what: "detach" };
        let change = |now: &Server| {
            let Some(Nic { mac, .. }) = Self::nic(now, address) else { return Ok(None) };
            if self.edits.ignores(now) {
                return Err(ignored());
            }
            let other = |nic: &Value| nic["mac"].as_str().is_none_or(|other| !other.eq_ignore_ascii_case(&mac));
            Ok(Some(now.with_nics(|nics| nics.retain(other))))
        };
        let after = self.edits.edit(address, server, term, change).await?;
        if Self::nic(&after, address).is_some() {
            self.edits.note_ignored(&after);
            return Err(ignored());
        }
        // Without such a NIC it is DHCP's, and not ours to take.
        if self.edits.client.ip(address).await?.server.is_some() {
            return Err(ignored());
        }
        info!(%address, server, "detached");
        Ok(())
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
        had: Option<&'a str>,
        term: &'a Term,
    ) -> BoxFuture<'a, Result<Option<String>, Error>> {
        async move {
            match self.edits.client.ip(address).await?.server {
                Some(holder) if holder != server => self.detach(address, &holder, had, term).await?,
                _ => {}
            }
            self.attach(address, server, term).await
        }
        .boxed()
    }

    fn withdraw<'a>(
        &'a self,
        address: IpAddr,
        had: Option<&'a str>,
        term: &'a Term,
    ) -> BoxFuture<'a, Result<(), Error>> {
        async move {
            match self.edits.client.ip(address).await {
                Ok(ip) => match ip.server {
                    Some(server) => self.detach(address, &server, had, term).await,
                    None => Ok(()),
                },
                Err(error) if error.kind() == Kind::NotFound => Ok(()),
                Err(error) => Err(error.into()),
            }
        }
        .boxed()
    }
}
