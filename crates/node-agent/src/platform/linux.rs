//! The real machine.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use groundcrew_core::leader::Moment;
use netlink_sys::{AsyncSocketExt, TokioSocket};

use super::netlink::{self, Netlink};
use super::{Platform, PlatformError, packet, programs};
use crate::frames::Mac;
use crate::network::Network;

pub(crate) struct Linux {
    netlink: Netlink,
}

impl Linux {
    pub(crate) fn open() -> Result<Self, PlatformError> {
        Ok(Self { netlink: Netlink::open().map_err(|source| kernel("a netlink socket".into(), source))? })
    }

    /// Tells when links or routes have changed.
    pub(crate) fn changes() -> Result<Changes, PlatformError> {
        netlink::changes().map(Changes).map_err(|source| kernel("a subscription to link events".into(), source))
    }
}

pub(crate) struct Changes(TokioSocket);

impl Changes {
    /// Waits for the next change.
    pub(crate) async fn next(&mut self) -> Result<(), PlatformError> {
        match self.0.recv_from_full().await {
            // There was more than fits: a change as well.
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => Ok(()),
            done => done.map(drop).map_err(|source| kernel("link events".into(), source)),
        }
    }
}

impl Platform for Linux {
    fn now(&self) -> Moment {
        Moment::now()
    }

    fn network(&self) -> Result<Network, PlatformError> {
        self.netlink.network().map_err(|source| kernel("a list of interfaces and routes".into(), source))
    }

    fn ours(&self) -> Result<Vec<(IpAddr, u32)>, PlatformError> {
        let all = self.netlink.addresses().map_err(|source| kernel("a list of addresses".into(), source))?;
        Ok(all.into_iter().filter(|(_, _, ours)| *ours).map(|(address, link, _)| (address, link)).collect())
    }

    fn show(&self, address: IpAddr, link: u32, seconds: u32, new: bool) -> Result<(), PlatformError> {
        match self.netlink.add(address, link, seconds, new) {
            Err(error) if new && error.kind() == io::ErrorKind::AlreadyExists => {
                if self.ours()?.contains(&(address, link)) {
                    return self.show(address, link, seconds, false);
                }
                let name = self.network()?.links.into_iter().find(|found| found.index == link);
                Err(PlatformError::Foreign(address, name.map_or_else(|| link.to_string(), |link| link.name)))
            }
            done => done.map_err(|source| kernel(format!("the address {address}"), source)),
        }
    }

    fn hide(&self, address: IpAddr, link: u32) -> Result<(), PlatformError> {
        match self.netlink.remove(address, link) {
            // The address is gone, or the interface with it.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EADDRNOTAVAIL | libc::ENODEV)) => Ok(()),
            done => done.map_err(|source| kernel(format!("the removal of {address}"), source)),
        }
    }

    fn send(&self, link: u32, frame: &[u8]) -> Result<(), PlatformError> {
        packet::send(link, frame).map_err(|source| kernel("an announcement".into(), source))
    }

    async fn probe(
        &self,
        address: IpAddr,
        link: u32,
        mac: Mac,
        within: Duration,
    ) -> Result<Option<Mac>, PlatformError> {
        let asked = tokio::task::spawn_blocking(move || packet::ask(address, link, mac, within)).await;
        let asked = asked.map_err(io::Error::other).flatten();
        asked.map_err(|source| kernel(format!("a probe for {address}"), source))
    }

    async fn filter(&self, script: String) -> Result<(), PlatformError> {
        programs::run("nft", &["-f", "-"], &script).await
    }

    async fn forget_udp(&self, address: IpAddr, backend: Option<SocketAddr>) -> Result<(), PlatformError> {
        let (family, address) = (if address.is_ipv4() { "ipv4" } else { "ipv6" }, address.to_string());
        let backend = backend.map(|backend| (backend.ip().to_string(), backend.port().to_string()));
        let mut args = vec!["-D", "-f", family, "-p", "udp", "--orig-dst", &address];
        if let Some((ip, port)) = &backend {
            args.extend(["--reply-src", ip, "--reply-port-src", port]);
        }
        match programs::run("conntrack", &args, "").await {
            // It calls it a failure that there was nothing to delete.
            Err(PlatformError::Program { said, .. }) if said.contains("0 flow entries") => Ok(()),
            done => done,
        }
    }
}

fn kernel(what: String, source: io::Error) -> PlatformError {
    PlatformError::Kernel { what, source }
}
