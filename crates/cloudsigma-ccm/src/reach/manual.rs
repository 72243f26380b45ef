//! NICs in manual mode may use every address that the account subscribes to: nothing is to be done when one moves.

use std::net::IpAddr;

use futures::FutureExt;
use futures::future::BoxFuture;
use groundcrew_core::leader::Term;
use serde_json::json;
use tracing::info;

use super::{Edits, Reach};
use crate::client::{Conf, Server};
use crate::error::Error;
use crate::inventory::Account;

pub(crate) struct Manual {
    pub(crate) edits: Edits,
    pub(crate) account: Account,
    /// Whether a node's public NIC may be switched. Its own address is then no longer reserved for it by the cloud.
    pub(crate) switch: bool,
}

impl Manual {
    /// The MAC of the NIC that may use any address.
    fn nic(server: &Server) -> Option<String> {
        server.nics().into_iter().find(|nic| nic.public && nic.conf == Conf::Manual).map(|nic| nic.mac)
    }

    async fn switched(&self, address: IpAddr, server: &str, term: &Term) -> Result<String, Error> {
        let refused = || Error::NicNotManual { address, server: server.to_owned() };
        if !self.switch {
            return Err(refused());
        }
        let ignored = || Error::AttachIgnored { address, server: server.to_owned(), what: "allow" };
        let change = |now: &Server| {
            if Self::nic(now).is_some() {
                return Ok(None);
            }
            if self.edits.ignores(now) {
                return Err(ignored());
            }
            let public = now.nics().iter().position(|nic| nic.public).ok_or_else(refused)?;
            Ok(Some(now.with_nics(|nics| nics[public]["ip_v4_conf"] = json!({ "conf": "manual", "ip": null }))))
        };
        let after = self.edits.edit(address, server, term, change).await?;
        let Some(mac) = Self::nic(&after) else {
            self.edits.note_ignored(&after);
            return Err(ignored());
        };
        info!(server, mac, "public NIC switched to manual mode");
        Ok(mac)
    }
}

impl Reach for Manual {
    fn able(&self, server: &Server) -> Result<(), &'static str> {
        let usable = Self::nic(server).is_some() || (self.switch && server.nics().iter().any(|nic| nic.public));
        if usable { Ok(()) } else { Err("its server has no NIC in manual mode") }
    }

    fn bring<'a>(
        &'a self,
        address: IpAddr,
        server: &'a str,
        _: Option<&'a str>,
        term: &'a Term,
    ) -> BoxFuture<'a, Result<Option<String>, Error>> {
        async move {
            // From what was last read: a fail-over waits for no cloud.
            let known = self.account.last().and_then(|account| Self::nic(account.servers.get(server)?));
            match known {
                Some(mac) => Ok(Some(mac)),
                None => self.switched(address, server, term).await.map(Some),
            }
        }
        .boxed()
    }

    fn withdraw<'a>(&'a self, _: IpAddr, _: Option<&'a str>, _: &'a Term) -> BoxFuture<'a, Result<(), Error>> {
        async { Ok(()) }.boxed()
    }
}
