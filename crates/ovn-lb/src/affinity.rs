//! `sessionAffinity: ClientIP` as OVN keeps it. Pure.
//!
//! The time-out came with OVN 22.12; an older one takes no notice of it. So the row chooses by the client's address as well,
//! whatever the release: when that changes under us, no row does.

use std::net::IpAddr;

use groundcrew_core::provider::{Caveat, SessionAffinity, Wanted};
use ovsdb_client::Set;

use crate::desired::Clients;

/// The option of a row that is for clients outside alone.
pub(crate) const TIME_OUT: &str = "affinity_timeout";

/// OVN keeps it in 16 bits.
const LONGEST: u32 = 65_535;

/// From this release on it is kept.
const KEPT_FROM: (u32, u32) = (22, 12);

pub(crate) fn time_out(SessionAffinity { seconds }: SessionAffinity) -> u32 {
    seconds.min(LONGEST)
}

/// By what a row chooses the backend; empty is by each connection.
///
/// A client inside is known by its hardware address, and by its IPv4 address where several share a port. One outside has
/// its IPv4 address alone: all come with the hardware address of one gateway. The fields for IPv6 addresses came later than
/// the versions of OVN that we serve; without one all clients of that family would be one.
pub(crate) fn selection_fields(clients: Clients, addresses: &[IpAddr]) -> Set<Box<str>> {
    let fields: &[&str] = match clients {
        Clients::Inside => &["eth_src", "ip_src"],
        Clients::Outside if addresses.iter().all(IpAddr::is_ipv4) => &["ip_src"],
        Clients::All | Clients::Outside => &[],
    };
    fields.iter().copied().map(Box::from).collect()
}

/// In what the affinity is less than the Service asks for. `release` is that of northd, where it is known.
pub(crate) fn caveat(want: &Wanted, release: Option<(u32, u32)>) -> Option<Caveat> {
    let seconds = want.affinity?.seconds;
    let old = release.filter(|release| *release < KEPT_FROM).map(|(year, month)| format!("OVN {year}.{month:02}"));
    let message = match old {
        Some(old) if want.addresses.iter().any(IpAddr::is_ipv6) => {
            format!(
                "{old} does not keep clients outside with their backend where there is an IPv6 address; OVN 22.12 does"
            )
        }
        Some(old) => format!(
            "{old} keeps clients outside with their backend without a time-out, and only while the set of backends stays; \
             OVN 22.12 has the time-out"
        ),
        None if seconds > LONGEST => {
            format!("OVN keeps a client with its backend for {LONGEST} s at most, and not for {seconds} s")
        }
        None => return None,
    };
    Some(Caveat { reason: "AffinityLimited", message, stops: false })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{owner, wanted};

    fn sticky(seconds: u32, addresses: &[&str]) -> Wanted {
        Wanted { affinity: Some(SessionAffinity { seconds }), ..wanted(&owner("shop", "web"), addresses) }
    }

    #[test]
    fn a_client_outside_is_known_by_its_address_whatever_the_release() {
        let fields = |addresses: &[&str]| {
            let fields = selection_fields(Clients::Outside, &sticky(60, addresses).addresses);
            fields.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(fields(&["192.0.2.7"]), ["ip_src"]);
        assert_eq!(fields(&["192.0.2.7", "2001:db8::7"]), [""; 0], "all clients of IPv6 would have one backend");
    }

    #[test]
    fn what_ovn_does_not_keep_is_told() {
        let said = |want: &Wanted, release| caveat(want, release).map(|caveat| caveat.message);
        let (v4, both) = (sticky(10_800, &["192.0.2.7"]), sticky(10_800, &["192.0.2.7", "2001:db8::7"]));
        assert!(
            said(&v4, Some((22, 3))).unwrap().starts_with("OVN 22.03 keeps clients outside with their backend without")
        );
        assert!(said(&both, Some((22, 9))).unwrap().starts_with("OVN 22.09 does not keep"));
        for release in [None, Some((22, 12)), Some((26, 3))] {
            assert_eq!((said(&v4, release), said(&both, release)), (None, None));
        }
        let plain = wanted(&owner("shop", "web"), &["192.0.2.7"]);
        assert_eq!(said(&plain, Some((22, 3))), None);
    }

    #[test]
    fn a_time_out_longer_than_ovn_can_keep_is_cut_and_told() {
        let longest = sticky(65_535, &["192.0.2.7"]);
        assert_eq!((time_out(longest.affinity.unwrap()), caveat(&longest, None)), (65_535, None));
        let day = sticky(86_400, &["192.0.2.7"]);
        assert_eq!(time_out(day.affinity.unwrap()), 65_535);
        let said = caveat(&day, Some((23, 3))).unwrap().message;
        assert_eq!(said, "OVN keeps a client with its backend for 65535 s at most, and not for 86400 s");
    }
}
