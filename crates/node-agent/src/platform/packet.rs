//! Whole frames on an interface. The one place with `unsafe`: the address of a packet socket has no safe constructor.

use std::io::{self, Read};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, SockAddr, SockFilter, Socket, Type};

use crate::frames::{Mac, claimant, probe};

const ARP: u16 = 0x0806;
const IPV6: u16 = 0x86dd;
/// More than any frame that answers a probe.
const LONGEST: usize = 2048;

/// Sends a frame as it is.
pub(super) fn send(link: u32, frame: &[u8]) -> io::Result<()> {
    // A socket that hears nothing: it is gone before a frame could arrive, but would copy all that do.
    open(link, 0)?.send(frame).map(drop)
}

/// Asks who has the address, and waits for somebody other than `mac` to answer. Blocks for that long.
pub(super) fn ask(address: IpAddr, link: u32, mac: Mac, within: Duration) -> io::Result<Option<Mac>> {
    let mut socket = open(link, if address.is_ipv4() { ARP } else { IPV6 })?;
    if address.is_ipv6() {
        socket.attach_filter(&advertisements())?;
    }
    // Listening before asking: an answer takes microseconds.
    let end = Instant::now() + within;
    socket.send(&probe(address, mac))?;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(None);
        }
        socket.set_read_timeout(Some(left))?;
        let mut frame = [0; LONGEST];
        match socket.read(&mut frame) {
            Ok(length) => match claimant(&frame[..length], address) {
                Some(other) if other != mac => return Ok(Some(other)),
                _ => {}
            },
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(error) => return Err(error),
        }
    }
}

fn open(link: u32, protocol: u16) -> io::Result<Socket> {
    // Without a protocol it hears nothing; with one only from the moment it is bound to the interface.
    let socket = Socket::new(Domain::PACKET, Type::RAW, Some(Protocol::from(0)))?;
    socket.bind(&link_address(link, protocol)?)?;
    Ok(socket)
}

#[allow(unsafe_code, reason = "neither std, socket2 nor nix can make a sockaddr_ll otherwise")]
fn link_address(link: u32, protocol: u16) -> io::Result<SockAddr> {
    let index = i32::try_from(link).map_err(io::Error::other)?;
    let length = libc::socklen_t::try_from(size_of::<libc::sockaddr_ll>()).map_err(io::Error::other)?;
    let family = libc::sa_family_t::try_from(libc::AF_PACKET).map_err(io::Error::other)?;
    // SAFETY: `sockaddr_storage` is larger than `sockaddr_ll` and at least as aligned, and socket2 hands it in zeroed,
    // which is a valid `sockaddr_ll`. The length written is that of the structure.
    let ((), address) = unsafe {
        SockAddr::try_init(|storage, written| {
            let address = &mut *storage.cast::<libc::sockaddr_ll>();
            address.sll_family = family;
            address.sll_protocol = protocol.to_be();
            address.sll_ifindex = index;
            *written = length;
            Ok(())
        })?
    };
    Ok(address)
}

/// Neighbour advertisements only: otherwise every IPv6 packet of the node would be copied to us meanwhile.
fn advertisements() -> [SockFilter; 6] {
    const LOAD_BYTE: u16 = 0x30;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    [
        SockFilter::new(LOAD_BYTE, 0, 0, 14 + 6),
        SockFilter::new(JUMP_IF_EQUAL, 0, 3, 58),
        SockFilter::new(LOAD_BYTE, 0, 0, 14 + 40),
        SockFilter::new(JUMP_IF_EQUAL, 0, 1, 136),
        SockFilter::new(RETURN, 0, 0, u32::MAX),
        SockFilter::new(RETURN, 0, 0, 0),
    ]
}
