//! kube-dc's names: which row belongs to which Service, and where it hangs.

use groundcrew_core::key::ServiceKey;
use groundcrew_core::provider::Protocol;

/// The protocols that kube-dc makes rows for.
pub(crate) const PROTOCOLS: [Protocol; 2] = [Protocol::Tcp, Protocol::Udp];

/// The row of a Service for one protocol.
pub(crate) fn row_name(key: &ServiceKey, protocol: Protocol) -> String {
    format!("{}-{}-{protocol}", key.namespace, key.name)
}

/// Every Service whose row could have this name. A dash is legal everywhere, so `a-b-c-tcp` may be that of `a/b-c` or of
/// `a-b/c`. Nothing for names that are not kube-dc's.
pub(crate) fn possible_owners(row: &str) -> impl Iterator<Item = (ServiceKey, Protocol)> {
    let of = |protocol: Protocol| Some((row.strip_suffix(&format!("-{protocol}"))?, protocol));
    let stem = PROTOCOLS.into_iter().find_map(of);
    stem.into_iter().flat_map(|(stem, protocol)| {
        let dashes = stem.match_indices('-').map(|(at, _)| (&stem[..at], &stem[at + 1..]));
        let legal = |name: &str| !name.is_empty() && !name.starts_with('-') && !name.ends_with('-');
        let pairs = dashes.filter(move |(namespace, name)| legal(namespace) && legal(name));
        pairs.map(move |(namespace, name)| (ServiceKey::new(namespace, name), protocol))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owners(row: &str) -> Vec<String> {
        possible_owners(row).map(|(key, protocol)| format!("{key} {protocol}")).collect()
    }

    #[test]
    fn a_row_name_is_read_in_every_way_it_could_have_been_written() {
        assert_eq!(owners("shop-web-tcp"), ["shop/web tcp"]);
        assert_eq!(owners("a-b-c-udp"), ["a/b-c udp", "a-b/c udp"]);
        assert_eq!(owners("a--b-tcp"), [""; 0], "neither a namespace nor a Service ends with a dash");
    }

    #[test]
    fn names_of_others_belong_to_nobody() {
        for other in ["vpc-shop-tcp-load", "cluster-tcp-loadbalancer", "tcp", "-tcp", "web-tcp", "shop-web-sctp", ""] {
            assert_eq!(owners(other), [""; 0], "{other}");
        }
    }

    #[test]
    fn what_was_named_is_found_again() {
        for key in [ServiceKey::new("a", "b"), ServiceKey::new("acme-dev", "etcd-lb"), ServiceKey::new("a-tcp", "udp")]
        {
            for protocol in PROTOCOLS {
                assert!(possible_owners(&row_name(&key, protocol)).any(|owner| owner == (key.clone(), protocol)));
            }
        }
    }
}
