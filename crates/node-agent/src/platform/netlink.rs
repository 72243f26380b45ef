//! Requests to the kernel's routing tables, answered before the call returns.

use std::io;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::address::{
    AddressAttribute, AddressFlags, AddressMessage, AddressProtocol, AddressScope, CacheInfo,
};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use netlink_packet_route::neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourMessage};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteHeader, RouteMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{AsyncSocket, Socket, SocketAddr, TokioSocket};

use crate::frames::Mac;
use crate::network::{DefaultRoute, Link, Network};

/// The mark of our addresses (`IFA_PROTO`, shown by `ip address` as `proto 0x67`). Kernels before 5.18 do not keep it:
/// there an address of an earlier run is not recognised, and goes by its lifetime.
const MARK: AddressProtocol = AddressProtocol::Other(0x67);
/// Set by the kernel on a list that changed while it was read: something may be missing from it.
const NLM_F_DUMP_INTR: u16 = 0x10;
/// How often such a list is read again.
const DUMPS: usize = 5;
/// Events of links.
const RTNLGRP_LINK: u32 = 1;
/// Events of IPv4 and IPv6 routes: a new default route may change the interface.
const RTNLGRP_IPV4_ROUTE: u32 = 7;
const RTNLGRP_IPV6_ROUTE: u32 = 11;

pub(super) struct Netlink {
    socket: Mutex<Requests>,
}

struct Requests {
    socket: Socket,
    sequence: u32,
}

impl Netlink {
    pub(super) fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Self { socket: Mutex::new(Requests { socket, sequence: 0 }) })
    }

    pub(super) fn network(&self) -> io::Result<Network> {
        let links = self.dump(&RouteNetlinkMessage::GetLink(LinkMessage::default()))?;
        let mut routes = Vec::new();
        // Asked by family: an unspecified one leaves out IPv6 on some kernels.
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut message = RouteMessage::default();
            message.header.address_family = family;
            routes.extend(self.dump(&RouteNetlinkMessage::GetRoute(message))?);
        }
        let neighbours = self.dump(&RouteNetlinkMessage::GetNeighbour(NeighbourMessage::default()))?;
        Ok(Network {
            links: links.iter().filter_map(link).collect(),
            default_routes: routes.iter().filter_map(default_route).collect(),
            neighbours: neighbours.iter().filter_map(neighbour).collect(),
        })
    }

    /// Addresses of all interfaces: which, on which interface, and whether with our mark.
    pub(super) fn addresses(&self) -> io::Result<Vec<(IpAddr, u32, bool)>> {
        let found = self.dump(&RouteNetlinkMessage::GetAddress(AddressMessage::default()))?;
        Ok(found.iter().filter_map(address).collect())
    }

    pub(super) fn add(&self, address: IpAddr, link: u32, seconds: u32, new: bool) -> io::Result<()> {
        let mut message = host_address(address, link);
        let mut lifetimes = CacheInfo::default();
        lifetimes.ifa_valid = seconds;
        // Deprecated from the start: never the source of what the node itself sends.
        lifetimes.ifa_preferred = 0;
        message.attributes.extend([
            AddressAttribute::CacheInfo(lifetimes),
            // We have asked ourselves whether anybody has it; while the kernel did, it would not answer.
            AddressAttribute::Flags(AddressFlags::Noprefixroute | AddressFlags::Nodad),
            AddressAttribute::Protocol(MARK),
        ]);
        let flags = if new { NLM_F_EXCL } else { NLM_F_REPLACE };
        self.request(RouteNetlinkMessage::NewAddress(message), NLM_F_ACK | NLM_F_CREATE | flags).map(drop)
    }

    pub(super) fn remove(&self, address: IpAddr, link: u32) -> io::Result<()> {
        self.request(RouteNetlinkMessage::DelAddress(host_address(address, link)), NLM_F_ACK).map(drop)
    }

    fn dump(&self, message: &RouteNetlinkMessage) -> io::Result<Vec<RouteNetlinkMessage>> {
        until_whole(|| self.request(message.clone(), NLM_F_DUMP))
    }

    /// What came back, and whether nothing changed while it was read.
    fn request(&self, message: RouteNetlinkMessage, flags: u16) -> io::Result<(Vec<RouteNetlinkMessage>, bool)> {
        let mut requests = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        requests.sequence = requests.sequence.wrapping_add(1);
        let sequence = requests.sequence;
        let mut packet = NetlinkMessage::from(message);
        packet.header.flags = NLM_F_REQUEST | flags;
        packet.header.sequence_number = sequence;
        packet.finalize();
        let mut bytes = vec![0; packet.buffer_len()];
        packet.serialize(&mut bytes);
        requests.socket.send(&bytes, 0)?;

        let mut answer = Answer { sequence, messages: Vec::new(), whole: true };
        while !answer.add(&requests.socket.recv_from_full()?.0)? {}
        Ok((answer.messages, answer.whole))
    }
}

/// Reads a list until nothing changed while it was read.
fn until_whole<T>(mut read: impl FnMut() -> io::Result<(Vec<T>, bool)>) -> io::Result<Vec<T>> {
    for _ in 0..DUMPS {
        if let (found, true) = read()? {
            return Ok(found);
        }
    }
    Err(io::Error::other("the list changed while it was read, again and again"))
}

/// What came back so far to one request.
struct Answer {
    sequence: u32,
    messages: Vec<RouteNetlinkMessage>,
    /// Nothing changed while it was read.
    whole: bool,
}

impl Answer {
    /// Reads what the kernel sent; whether that was the end.
    fn add(&mut self, received: &[u8]) -> io::Result<bool> {
        let mut rest = received;
        while !rest.is_empty() {
            let part = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest).map_err(io::Error::other)?;
            // Parts of a message are padded to four bytes, except perhaps the last.
            let length = usize::try_from(part.header.length).unwrap_or(usize::MAX).next_multiple_of(4);
            rest = rest.get(length.max(16)..).unwrap_or_default();
            if part.header.sequence_number != self.sequence {
                continue;
            }
            self.whole &= part.header.flags & NLM_F_DUMP_INTR == 0;
            match part.payload {
                NetlinkPayload::Done(_) => return Ok(true),
                NetlinkPayload::Error(error) if error.code.is_none() => return Ok(true),
                NetlinkPayload::Error(error) => return Err(error.to_io()),
                NetlinkPayload::InnerMessage(message) => self.messages.push(message),
                _ => {}
            }
        }
        Ok(false)
    }
}

/// A socket that hears of changes of links and routes.
pub(super) fn changes() -> io::Result<TokioSocket> {
    let mut changes = TokioSocket::new(NETLINK_ROUTE)?;
    let socket = changes.socket_mut();
    socket.bind_auto()?;
    for group in [RTNLGRP_LINK, RTNLGRP_IPV4_ROUTE, RTNLGRP_IPV6_ROUTE] {
        socket.add_membership(group)?;
    }
    Ok(changes)
}

fn host_address(address: IpAddr, link: u32) -> AddressMessage {
    let mut message = AddressMessage::default();
    (message.header.family, message.header.prefix_len) = match address {
        IpAddr::V4(_) => (AddressFamily::Inet, 32),
        IpAddr::V6(_) => (AddressFamily::Inet6, 128),
    };
    message.header.index = link;
    message.header.scope = AddressScope::Universe;
    message.attributes = vec![AddressAttribute::Local(address), AddressAttribute::Address(address)];
    message
}

fn address(message: &RouteNetlinkMessage) -> Option<(IpAddr, u32, bool)> {
    let RouteNetlinkMessage::NewAddress(message) = message else { return None };
    let mut address = None;
    for attribute in &message.attributes {
        match attribute {
            // A peer's address is in `Address`, and only then there is a `Local` of another value.
            AddressAttribute::Local(ip) => address = Some(*ip),
            AddressAttribute::Address(ip) => address = address.or(Some(*ip)),
            _ => {}
        }
    }
    let marked = message.attributes.contains(&AddressAttribute::Protocol(MARK));
    let whole = message.header.prefix_len == if address?.is_ipv4() { 32 } else { 128 };
    Some((address?, message.header.index, marked && whole))
}

fn link(message: &RouteNetlinkMessage) -> Option<Link> {
    let RouteNetlinkMessage::NewLink(message) = message else { return None };
    let mut name = None;
    let mut mac = None;
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(text) => name = Some(text.clone()),
            LinkAttribute::Address(bytes) => mac = bytes.as_slice().try_into().ok().map(Mac),
            _ => {}
        }
    }
    let up = message.header.flags.contains(LinkFlags::Up | LinkFlags::LowerUp);
    Some(Link { index: message.header.index, name: name?, mac: mac?, up })
}

fn default_route(message: &RouteNetlinkMessage) -> Option<DefaultRoute> {
    let RouteNetlinkMessage::NewRoute(message) = message else { return None };
    let header = &message.header;
    if header.destination_prefix_length != 0 || header.table != RouteHeader::RT_TABLE_MAIN {
        return None;
    }
    let (mut link, mut gateway, mut metric) = (None, None, 0);
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Oif(index) => link = Some(*index),
            RouteAttribute::Priority(priority) => metric = *priority,
            RouteAttribute::Gateway(RouteAddress::Inet(ip)) => gateway = Some(IpAddr::V4(*ip)),
            RouteAttribute::Gateway(RouteAddress::Inet6(ip)) => gateway = Some(IpAddr::V6(*ip)),
            _ => {}
        }
    }
    Some(DefaultRoute { v6: header.address_family == AddressFamily::Inet6, link: link?, gateway, metric })
}

fn neighbour(message: &RouteNetlinkMessage) -> Option<(IpAddr, u32, Mac)> {
    let RouteNetlinkMessage::NewNeighbour(message) = message else { return None };
    let (mut ip, mut mac) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            NeighbourAttribute::Destination(NeighbourAddress::Inet(v4)) => ip = Some(IpAddr::V4(*v4)),
            NeighbourAttribute::Destination(NeighbourAddress::Inet6(v6)) => ip = Some(IpAddr::V6(*v6)),
            NeighbourAttribute::LinkLayerAddress(bytes) => mac = bytes.as_slice().try_into().ok().map(Mac),
            _ => {}
        }
    }
    Some((ip?, message.header.ifindex, mac?))
}

#[cfg(test)]
mod tests {
    use netlink_packet_core::DoneMessage;

    use super::*;

    /// A part of an answer as the kernel sends it.
    fn part(payload: NetlinkPayload<RouteNetlinkMessage>, sequence: u32, flags: u16) -> Vec<u8> {
        let mut message = NetlinkMessage::from(RouteNetlinkMessage::GetLink(LinkMessage::default()));
        message.payload = payload;
        message.finalize();
        message.header.sequence_number = sequence;
        message.header.flags = flags;
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        bytes
    }

    fn link_part(sequence: u32, flags: u16) -> Vec<u8> {
        part(NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(LinkMessage::default())), sequence, flags)
    }

    fn end(sequence: u32) -> Vec<u8> {
        part(NetlinkPayload::Done(DoneMessage::default()), sequence, 0)
    }

    /// How many links an answer has, whether it was the end, and whether it was whole.
    fn read(received: &[u8]) -> (usize, bool, bool) {
        let mut answer = Answer { sequence: 7, messages: Vec::new(), whole: true };
        let ended = answer.add(received).unwrap();
        (answer.messages.len(), ended, answer.whole)
    }

    #[test]
    fn a_list_that_changed_while_it_was_read_is_not_taken_for_whole() {
        assert_eq!(read(&[link_part(7, 0), link_part(7, 0), end(7)].concat()), (2, true, true));
        assert_eq!(read(&[link_part(7, 0), link_part(7, NLM_F_DUMP_INTR), end(7)].concat()), (2, true, false));
        assert_eq!(read(&[link_part(6, NLM_F_DUMP_INTR), link_part(7, 0)].concat()), (1, false, true), "of another");
    }

    #[test]
    fn it_is_read_again_and_given_up_when_it_never_stands_still() {
        let mut reads = 0;
        let found = until_whole(|| {
            reads += 1;
            Ok((vec![reads], reads == 3))
        });
        assert_eq!(found.unwrap(), [3]);
        assert!(until_whole(|| Ok((vec![0], false))).is_err());
    }
}
