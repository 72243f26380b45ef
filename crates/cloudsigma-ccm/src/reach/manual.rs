//! NICs in manual mode may use every address that the account subscribes to: nothing is to be done when one moves.

use std::net::IpAddr;

use futures::FutureExt;
use futures::future::BoxFuture;
use groundcrew_core::leader::Term;
use serde_json::{Value, json};
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
    /// The MAC of the NIC that may use any address of this family; of several, one that says so of just this family.
    fn usable(server: &Server, v6: bool) -> Option<String> {
        let nics = server.nics().into_iter().filter(|nic| nic.takes_any(v6));
        nics.min_by_key(|nic| v6 && nic.conf_v6 != Conf::Manual).map(|nic| nic.mac)
    }

    /// The whole server as a PUT takes it, with its public NIC in manual mode for this family.
    fn switch(server: &Server, v6: bool) -> Option<Value> {
        let mac = server.nics().into_iter().find(|nic| nic.public)?.mac;
        let family = if v6 { "ip_v6_conf" } else { "ip_v4_conf" };
        let ours = |nic: &&mut Value| nic["mac"].as_str().is_some_and(|found| found.eq_ignore_ascii_case(&mac));
        Some(server.with_nics(|nics| {
            nics.iter_mut().filter(ours).for_each(|nic| nic[family] = json!({ "conf": "manual", "ip": null }));
        }))
    }

    async fn switched(&self, address: IpAddr, server: &str, term: &Term) -> Result<String, Error> {
        let refused = || Error::NicNotManual { address, server: server.to_owned() };
        if !self.switch {
            return Err(refused());
        }
        let ignored = || Error::AttachIgnored { address, server: server.to_owned(), what: "allow" };
        let v6 = address.is_ipv6();
        let change = |now: &Server| {
            if Self::usable(now, v6).is_some() {
                return Ok(None);
            }
            if self.edits.ignores(now) {
                return Err(ignored());
            }
            Self::switch(now, v6).ok_or_else(refused).map(Some)
        };
        let after = self.edits.edit(address, server, term, change).await?;
        let Some(mac) = Self::usable(&after, v6) else {
            self.edits.note_ignored(&after);
            return Err(ignored());
        };
        info!(server, mac, "public NIC switched to manual mode");
        Ok(mac)
    }
}

impl Reach for Manual {
    fn able(&self, server: &Server, v6: bool) -> bool {
        Self::usable(server, v6).is_some() || (self.switch && server.nics().iter().any(|nic| nic.public))
    }

    fn nic(&self, server: &Server, address: IpAddr) -> Option<String> {
        let mac = Self::usable(server, address.is_ipv6())?;
        server.nics().into_iter().any(|nic| nic.live && nic.mac == mac).then_some(mac)
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
            let v6 = address.is_ipv6();
            let known = self.account.last().and_then(|account| Self::usable(account.servers.get(server)?, v6));
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

#[cfg(test)]
mod tests {
    use super::*;

    fn server(nics: &[(&str, &str, &str)]) -> Server {
        let conf = |conf: &str| if conf.is_empty() { Value::Null } else { json!({ "conf": conf, "ip": null }) };
        let nics: Vec<_> = nics
            .iter()
            .map(|(mac, v4, v6)| json!({ "mac": mac, "vlan": null, "ip_v4_conf": conf(v4), "ip_v6_conf": conf(v6) }))
            .collect();
        serde_json::from_value(json!({ "uuid": "u1", "name": "n1", "status": "running", "nics": nics })).unwrap()
    }

    fn usable(nics: &[(&str, &str, &str)]) -> [Option<String>; 2] {
        [false, true].map(|v6| Manual::usable(&server(nics), v6))
    }

    #[test]
    fn a_nic_in_manual_mode_for_one_family_is_found_for_that_family() {
        let some = |mac: &str| Some(mac.to_owned());
        assert_eq!(usable(&[("a", "dhcp", ""), ("b", "", "manual")]), [None, some("b")]);
        assert_eq!(usable(&[("a", "manual", ""), ("b", "dhcp", "manual")]), [some("a"), some("b")]);
        assert_eq!(usable(&[("a", "manual", "")]), [some("a"), some("a")], "any address that is subscribed to");
        assert_eq!(usable(&[("a", "manual", "static")]), [some("a"), None], "its IPv6 address is the cloud's");
        assert_eq!(usable(&[("a", "dhcp", "dhcp")]), [None, None]);
    }

    #[test]
    fn the_public_nic_alone_is_switched_and_only_for_the_family_that_needs_it() {
        let mut nics = server(&[("a", "dhcp", ""), ("b", "dhcp", "dhcp")]).with_nics(|_| {});
        nics["nics"][0]["vlan"] = json!({ "uuid": "a-vlan" });
        // One that has no MAC yet, as the cloud lists it while it is being added.
        nics["nics"].as_array_mut().unwrap().insert(0, json!({ "mac": null, "vlan": null }));
        (nics["uuid"], nics["status"]) = (json!("u1"), json!("running"));
        let server: Server = serde_json::from_value(nics.clone()).unwrap();
        for (v6, family, other) in [(false, "ip_v4_conf", "ip_v6_conf"), (true, "ip_v6_conf", "ip_v4_conf")] {
            let after = Manual::switch(&server, v6).unwrap();
            assert_eq!(after["nics"][2][family]["conf"], "manual");
            assert_eq!(after["nics"][2][other]["conf"], "dhcp");
            assert_eq!((&after["nics"][0], &after["nics"][1]), (&nics["nics"][0], &nics["nics"][1]));
        }
    }
}
