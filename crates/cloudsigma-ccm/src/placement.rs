//! Which node should hold an address. Pure.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;

/// A node that could hold it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) node: Arc<str>,
    /// How many addresses it holds already.
    pub(crate) load: usize,
    /// Whether it shares its physical host with the node that has just failed.
    pub(crate) same_host: bool,
}

/// The least loaded of the candidates; among equals the one with the highest hash of node and address, so that every
/// process comes to the same answer. Another physical host comes before a lower load.
///
/// Load is not a mere weight of the hash: with the few addresses that a cluster has, a weighted draw would put two of three
/// on one node every other time.
pub(crate) fn place(address: IpAddr, candidates: &[Candidate]) -> Option<Arc<str>> {
    let key = |candidate: &Candidate| {
        (candidate.same_host, candidate.load, std::cmp::Reverse(rank(address, &candidate.node)), candidate.node.clone())
    };
    candidates.iter().min_by_key(|candidate| key(candidate)).map(|candidate| candidate.node.clone())
}

fn rank(address: IpAddr, node: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (address, node).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn node(n: usize) -> Arc<str> {
        format!("node-{n}").into()
    }

    fn address(n: usize) -> IpAddr {
        [203, 0, 113, u8::try_from(n).unwrap()].into()
    }

    fn candidates(load: &BTreeMap<Arc<str>, usize>) -> Vec<Candidate> {
        load.iter().map(|(node, load)| Candidate { node: node.clone(), load: *load, same_host: false }).collect()
    }

    #[test]
    fn nobody_is_no_choice() {
        assert_eq!(place(address(1), &[]), None);
    }

    #[test]
    fn another_physical_host_comes_before_a_lower_load() {
        let near = Candidate { node: node(1), load: 0, same_host: true };
        let far = Candidate { node: node(2), load: 5, same_host: false };
        assert_eq!(place(address(1), &[near.clone(), far]), Some(node(2)));
        assert_eq!(place(address(1), &[near]), Some(node(1)), "better than none");
    }

    #[test]
    fn the_first_address_of_each_cluster_is_not_always_on_the_first_node() {
        let load = (0..5).map(|n| (node(n), 0)).collect();
        let chosen: std::collections::BTreeSet<_> = (0..50).map(|n| place(address(n), &candidates(&load))).collect();
        assert_eq!(chosen.len(), 5);
    }

    proptest! {
        #[test]
        fn addresses_are_spread_evenly(nodes in 1usize..8, addresses in 0usize..60) {
            let mut load: BTreeMap<_, _> = (0..nodes).map(|n| (node(n), 0)).collect();
            for n in 0..addresses {
                let chosen = place(address(n), &candidates(&load)).unwrap();
                *load.get_mut(&chosen).unwrap() += 1;
            }
            let (least, most) = (load.values().min().unwrap(), load.values().max().unwrap());
            prop_assert!(most - least <= 1, "{load:?}");
        }

        #[test]
        fn the_choice_does_not_depend_on_the_order(
            mut load in prop::collection::vec(0usize..4, 1..8), seed in 0usize..100,
        ) {
            let of = |load: &[usize]| -> Vec<_> {
                load.iter().enumerate().map(|(n, load)| Candidate { node: node(n), load: *load, same_host: n % 3 == 0 }).collect()
            };
            let forward = of(&load);
            let mut backward = forward.clone();
            backward.reverse();
            prop_assert_eq!(place(address(seed), &forward), place(address(seed), &backward));
            load.sort_unstable();
            prop_assert!(place(address(seed), &of(&load)).is_some());
        }
    }
}
