//! The few frames by which hosts on one wire tell who has an address: ARP (RFC 826, 5227) and neighbour discovery
//! (RFC 4861). Bytes in, values out.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// The hardware address of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Mac(pub(crate) [u8; 6]);

const BROADCAST: Mac = Mac([0xff; 6]);
const NOBODY: Mac = Mac([0; 6]);

const ETHERTYPE_ARP: [u8; 2] = [0x08, 0x06];
const ETHERTYPE_IPV6: [u8; 2] = [0x86, 0xdd];
/// Ethernet, IPv4, and how long their addresses are.
const ARP_KIND: [u8; 6] = [0, 1, 8, 0, 6, 4];
const ICMPV6: u8 = 58;
const NEIGHBOUR_SOLICITATION: u8 = 135;
const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
/// Neighbour discovery is only believed with this hop limit: it proves that no router was on the way.
const HOP_LIMIT: u8 = 255;

/// All that announces an address to everybody: for IPv4 in request and in reply form, as some gear believes only one.
pub(crate) fn announcements(address: IpAddr, mac: Mac) -> Vec<Vec<u8>> {
    match address {
        IpAddr::V4(ip) => vec![arp(1, BROADCAST, (mac, ip), (NOBODY, ip)), arp(2, BROADCAST, (mac, ip), (mac, ip))],
        IpAddr::V6(ip) => vec![advertisement(ip, mac, Mac([0x33, 0x33, 0, 0, 0, 1]), ALL_NODES)],
    }
}

/// The same for one neighbour.
pub(crate) fn announcement_to(address: IpAddr, mac: Mac, neighbour: (IpAddr, Mac)) -> Option<Vec<u8>> {
    match (address, neighbour) {
        (IpAddr::V4(ip), (IpAddr::V4(their), to)) => Some(arp(2, to, (mac, ip), (to, their))),
        (IpAddr::V6(ip), (IpAddr::V6(their), to)) => Some(advertisement(ip, mac, to, their)),
        _ => None,
    }
}

/// Asks whether anybody has the address, without claiming it.
pub(crate) fn probe(address: IpAddr, mac: Mac) -> Vec<u8> {
    match address {
        IpAddr::V4(ip) => arp(1, BROADCAST, (mac, Ipv4Addr::UNSPECIFIED), (NOBODY, ip)),
        IpAddr::V6(ip) => solicitation(ip, mac),
    }
}

/// Who says by this frame that it has the address.
pub(crate) fn claimant(frame: &[u8], address: IpAddr) -> Option<Mac> {
    let (header, rest) = frame.split_at_checked(14)?;
    let sender = Mac(header[6..12].try_into().ok()?);
    match address {
        IpAddr::V4(ip) => {
            let claims =
                header[12..] == ETHERTYPE_ARP && rest.get(..6)? == ARP_KIND && rest.get(14..18)? == ip.octets();
            claims.then_some(Mac(rest.get(8..14)?.try_into().ok()?))
        }
        IpAddr::V6(ip) => {
            let claims = header[12..] == ETHERTYPE_IPV6
                && *rest.get(6)? == ICMPV6
                && *rest.get(40)? == NEIGHBOUR_ADVERTISEMENT
                && rest.get(48..64)? == ip.octets();
            claims.then_some(sender)
        }
    }
}

fn arp(operation: u8, to: Mac, sender: (Mac, Ipv4Addr), target: (Mac, Ipv4Addr)) -> Vec<u8> {
    let mut frame = ethernet(to, sender.0, ETHERTYPE_ARP);
    frame.extend(ARP_KIND);
    frame.extend([0, operation]);
    for (mac, ip) in [sender, target] {
        frame.extend(mac.0);
        frame.extend(ip.octets());
    }
    frame
}

const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

fn advertisement(ip: Ipv6Addr, mac: Mac, to: Mac, destination: Ipv6Addr) -> Vec<u8> {
    const OVERRIDE: u8 = 0x20;
    let mut body = vec![NEIGHBOUR_ADVERTISEMENT, 0, 0, 0, OVERRIDE, 0, 0, 0];
    body.extend(ip.octets());
    // The option "target link-layer address", of one unit of eight bytes.
    body.extend([2, 1]);
    body.extend(mac.0);
    icmpv6(to, mac, ip, destination, body)
}

fn solicitation(ip: Ipv6Addr, mac: Mac) -> Vec<u8> {
    let [.., a, b, c] = ip.octets();
    let group = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | u16::from(a), u16::from_be_bytes([b, c]));
    let mut body = vec![NEIGHBOUR_SOLICITATION, 0, 0, 0, 0, 0, 0, 0];
    body.extend(ip.octets());
    icmpv6(Mac([0x33, 0x33, 0xff, a, b, c]), mac, Ipv6Addr::UNSPECIFIED, group, body)
}

fn icmpv6(to: Mac, from: Mac, source: Ipv6Addr, destination: Ipv6Addr, mut body: Vec<u8>) -> Vec<u8> {
    let length = u16::try_from(body.len()).unwrap_or(u16::MAX).to_be_bytes();
    let mut summed = Vec::new();
    summed.extend(source.octets());
    summed.extend(destination.octets());
    summed.extend([0, 0, length[0], length[1], 0, 0, 0, ICMPV6]);
    summed.extend(&body);
    body[2..4].copy_from_slice(&checksum(&summed).to_be_bytes());

    let mut frame = ethernet(to, from, ETHERTYPE_IPV6);
    frame.extend([0x60, 0, 0, 0, length[0], length[1], ICMPV6, HOP_LIMIT]);
    frame.extend(source.octets());
    frame.extend(destination.octets());
    frame.extend(body);
    frame
}

fn ethernet(to: Mac, from: Mac, kind: [u8; 2]) -> Vec<u8> {
    [&to.0[..], &from.0, &kind].concat()
}

/// The sum of the Internet protocols (RFC 1071), of an even number of bytes.
fn checksum(bytes: &[u8]) -> u16 {
    let mut sum: u32 = bytes.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap_or_default()
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0.map(|byte| format!("{byte:02x}"));
        f.write_str(&bytes.join(":"))
    }
}

impl FromStr for Mac {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bytes: Result<Vec<_>, _> = text.split(':').map(|part| u8::from_str_radix(part, 16)).collect();
        let bytes = bytes.ok().and_then(|bytes| bytes.try_into().ok());
        bytes.map(Self).ok_or_else(|| format!("{text} is no hardware address such as 22:ab:05:00:00:01"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const US: Mac = Mac([2, 0, 0, 0, 0, 1]);

    #[test]
    fn a_hardware_address_reads_as_it_is_written() {
        assert_eq!("22:ab:05:00:00:01".parse(), Ok(Mac([0x22, 0xab, 5, 0, 0, 1])));
        assert_eq!(Mac([0x22, 0xab, 5, 0, 0, 1]).to_string(), "22:ab:05:00:00:01");
        for bad in ["", "22:ab", "22:ab:05:00:00:01:02", "zz:ab:05:00:00:01"] {
            assert!(bad.parse::<Mac>().is_err(), "{bad}");
        }
    }

    #[test]
    fn an_arp_announcement_is_the_bytes_that_the_standard_says() {
        let [request, reply] = &announcements([192, 0, 2, 7].into(), US)[..] else { panic!("two forms") };
        let expected =
            [&[0xff; 6][..], &US.0, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1], &US.0, &[192, 0, 2, 7], &[0; 6], &[192, 0, 2, 7]];
        assert_eq!(*request, expected.concat());
        assert_eq!((reply[21], &reply[32..38]), (2, &US.0[..]));
    }

    proptest! {
        #[test]
        fn what_announces_claims_and_what_asks_does_not(ip: IpAddr, other: IpAddr, mac: [u8; 6]) {
            let mac = Mac(mac);
            for frame in announcements(ip, mac) {
                prop_assert_eq!(claimant(&frame, ip), Some(mac));
                prop_assert!(other == ip || claimant(&frame, other).is_none());
            }
            if !ip.is_unspecified() {
                prop_assert_eq!(claimant(&probe(ip, mac), ip), None);
            }
        }

        #[test]
        fn the_checksum_of_a_message_with_its_checksum_is_zero(ip: Ipv6Addr, mac: [u8; 6]) {
            for frame in [probe(ip.into(), Mac(mac)), announcements(ip.into(), Mac(mac)).remove(0)] {
                let length = [frame[18], frame[19]];
                let summed = [&frame[22..54], &[0, 0, length[0], length[1], 0, 0, 0, 58], &frame[54..]].concat();
                prop_assert_eq!(checksum(&summed), 0);
            }
        }

        #[test]
        fn no_frame_makes_the_reader_fall(frame: Vec<u8>, ip: IpAddr) {
            let _ = claimant(&frame, ip);
        }
    }
}
