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
use crate::client::{Kind, Nic, Server};
use crate::error::Error;
use crate::nodes::Nodes;

pub(crate) struct Attach {
    pub(crate) edits: Edits,
    pub(crate) nodes: Nodes,
}

impl Attach {
    /// The NIC that was made for the address.
    fn made(server: &Server, address: IpAddr) -> Option<Nic> {
        server.nics().into_iter().find(|nic| nic.fixed.contains(&address))
    }

    async fn attach(&self, address: IpAddr, server: &str, term: &Term) -> Result<Option<String>, Error> {
        let ignored = || Error::AttachIgnored { address, server: server.to_owned(), what: "attach" };
        let change = |now: &Server| {
            if Self::made(now, address).is_some() {
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
        let Some(nic) = Self::made(&after, address) else {
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
            let Some(Nic { mac, .. }) = Self::made(now, address) else { return Ok(None) };
            if self.edits.ignores(now) {
                return Err(ignored());
            }
            let other = |nic: &Value| nic["mac"].as_str().is_none_or(|other| !other.eq_ignore_ascii_case(&mac));
            Ok(Some(now.with_nics(|nics| nics.retain(other))))
        };
        let after = self.edits.edit(address, server, term, change).await?;
        if Self::made(&after, address).is_some() {
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
    fn able(&self, _: &Server, _: bool) -> bool {
        true
    }

    fn nic(&self, server: &Server, address: IpAddr) -> Option<String> {
        Self::made(server, address).filter(|nic| nic.live).map(|nic| nic.mac)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nic_of_an_address_is_the_one_that_was_made_for_it_in_either_family() {
        let nic = |mac: &str, v4: Value, v6: Value| {
            let runtime = json!({ "ip_v4": { "uuid": "203.0.113.9" }, "ip_v6": null });
            json!({ "mac": mac, "vlan": null, "ip_v4_conf": v4, "ip_v6_conf": v6, "runtime": runtime })
        };
        let given = |address: &str| json!({ "conf": "static", "ip": { "uuid": address } });
        let dhcp = json!({ "conf": "dhcp", "ip": null });
        let nics = json!([
            nic("22:00:00:00:00:01", dhcp, Value::Null),
            nic("22:00:00:00:00:02", given("203.0.113.7"), Value::Null),
            nic("22:00:00:00:00:03", Value::Null, given("2001:db8::7")),
        ]);
        let server = json!({ "uuid": "u1", "name": "node-1", "status": "running", "nics": nics });
        let server: Server = serde_json::from_value(server).unwrap();
        let mac = |address: &str| Attach::made(&server, address.parse().unwrap()).map(|nic| nic.mac);
        assert_eq!(mac("203.0.113.7").as_deref(), Some("22:00:00:00:00:02"));
        assert_eq!(mac("2001:db8::7").as_deref(), Some("22:00:00:00:00:03"));
        assert_eq!(mac("203.0.113.9"), None, "DHCP's");
    }
}
