//! The addresses that may be given out, and to whom. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::sync::Arc;

use groundcrew_api::address_pool::{AddressPool, AddressPoolSpec};
use groundcrew_core::provider::Families;
use ipnet::IpNet;

/// IPv4 or IPv6. An `EIp` has one address, so a Service with both has two of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Family {
    V4,
    V6,
}

impl Family {
    const ALL: [Self; 2] = [Self::V4, Self::V6];

    pub(crate) fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    /// In the order in which they are published.
    pub(crate) fn in_order(families: Families) -> &'static [Self] {
        match families {
            Families::V4 => &[Self::V4],
            Families::V6 => &[Self::V6],
            Families::V4V6 => &[Self::V4, Self::V6],
            Families::V6V4 => &[Self::V6, Self::V4],
        }
    }

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }

    /// The number is one that came from an address of this family, or lies between two such.
    fn address(self, number: u128) -> IpAddr {
        match self {
            Self::V4 => Ipv4Addr::from(u32::try_from(number).unwrap_or(u32::MAX)).into(),
            Self::V6 => Ipv6Addr::from(number).into(),
        }
    }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u32::from(address).into(),
        IpAddr::V6(address) => address.into(),
    }
}

/// An `AddressPool` as it is used here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pool {
    pub(crate) name: Arc<str>,
    pub(crate) priority: i32,
    disabled: bool,
    namespaces: Box<[Box<str>]>,
    network_type: Option<Box<str>>,
    pub(crate) limit: Option<u32>,
    /// Lines that cannot be used.
    pub(crate) bad: Box<[Box<str>]>,
    /// Those of what is excluded. Nobody knows what they keep back, so nothing new is given out.
    pub(crate) unclear: Box<[Box<str>]>,
    /// Sorted, apart from each other, without what is excluded.
    v4: Box<[RangeInclusive<u128>]>,
    v6: Box<[RangeInclusive<u128>]>,
}

impl Pool {
    /// Lines that cannot be used are left out, and told; the API server refuses nearly all of them.
    pub(crate) fn new(pool: &AddressPool) -> Self {
        let name = pool.metadata.name.as_deref().unwrap_or_default();
        let AddressPoolSpec {
            addresses,
            excluded,
            external_network_type,
            namespaces,
            per_namespace_limit,
            priority,
            disabled,
        } = &pool.spec;
        let bad = addresses.iter().filter(|line| Family::ALL.iter().all(|family| range(*family, line).is_none()));
        let unclear = excluded.iter().filter(|line| Family::ALL.iter().all(|family| hole(*family, line).is_none()));
        Self {
            name: name.into(),
            priority: *priority,
            disabled: *disabled,
            namespaces: namespaces.iter().map(|n| n.as_str().into()).collect(),
            network_type: external_network_type.as_deref().map(Into::into),
            limit: *per_namespace_limit,
            bad: bad.map(|line| line.as_str().into()).collect(),
            unclear: unclear.map(|line| line.as_str().into()).collect(),
            v4: ranges(Family::V4, addresses, excluded),
            v6: ranges(Family::V6, addresses, excluded),
        }
    }

    /// Whether new addresses of it may go to this namespace. Without a type any network will do.
    pub(crate) fn serves(&self, namespace: &str, network_type: Option<&str>) -> bool {
        !self.disabled
            && (self.namespaces.is_empty() || self.namespaces.iter().any(|n| **n == *namespace))
            && match (network_type, &self.network_type) {
                (Some(asked), Some(has)) => *asked == **has,
                _ => true,
            }
    }

    pub(crate) fn network_type(&self) -> Option<&str> {
        self.network_type.as_deref()
    }

    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        let number = number(address);
        self.ranges(Family::of(address)).iter().any(|range| range.contains(&number))
    }

    /// How many addresses of this family it has.
    pub(crate) fn size(&self, family: Family) -> u128 {
        let sizes = self.ranges(family).iter().map(|range| (range.end() - range.start()).saturating_add(1));
        sizes.fold(0, u128::saturating_add)
    }

    /// The first and the last address of each of its parts.
    pub(crate) fn parts(&self, family: Family) -> impl Iterator<Item = (IpAddr, IpAddr)> {
        self.ranges(family).iter().map(move |range| (family.address(*range.start()), family.address(*range.end())))
    }

    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        let meet = |a: &RangeInclusive<u128>, b: &RangeInclusive<u128>| a.start() <= b.end() && b.start() <= a.end();
        let both = [Family::V4, Family::V6].map(|family| (self.ranges(family), other.ranges(family)));
        both.into_iter().any(|(own, theirs)| own.iter().any(|a| theirs.iter().any(|b| meet(a, b))))
    }

    /// Whether it has any address of this family.
    pub(crate) fn has(&self, family: Family) -> bool {
        !self.ranges(family).is_empty()
    }

    /// The first address after `last` that is free, starting over at the end: an address that was given back is the
    /// last to be given again.
    pub(crate) fn next_free(
        &self,
        family: Family,
        last: Option<IpAddr>,
        is_free: impl Fn(IpAddr) -> bool,
    ) -> Option<IpAddr> {
        let ranges = self.ranges(family);
        let after = last.and_then(|last| number(last).checked_add(1)).unwrap_or(0);
        let behind = ranges.iter().filter_map(|range| {
            let start = *range.start().max(&after);
            (start <= *range.end()).then_some(start..=*range.end())
        });
        let before = ranges.iter().filter_map(|range| {
            let end = *range.end().min(&after.checked_sub(1)?);
            (*range.start() <= end).then_some(*range.start()..=end)
        });
        behind.chain(before).flatten().map(|number| family.address(number)).find(|address| is_free(*address))
    }

    fn ranges(&self, family: Family) -> &[RangeInclusive<u128>] {
        match family {
            Family::V4 => &self.v4,
            Family::V6 => &self.v6,
        }
    }
}

fn ranges(family: Family, lines: &[String], excluded: &[String]) -> Box<[RangeInclusive<u128>]> {
    let mut ranges: Vec<_> = lines.iter().filter_map(|line| range(family, line)).collect();
    ranges.sort_unstable_by_key(|range| *range.start());
    let mut apart: Vec<RangeInclusive<u128>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match apart.last_mut() {
            Some(last) if range.start() <= last.end() => *last = *last.start()..=*last.end().max(range.end()),
            _ => apart.push(range),
        }
    }
    for hole in excluded.iter().filter_map(|line| hole(family, line)) {
        apart = apart.into_iter().flat_map(|range| without(&range, &hole)).collect();
    }
    apart.into_boxed_slice()
}

/// What of a range is left on either side of a hole.
fn without(
    range: &RangeInclusive<u128>,
    hole: &RangeInclusive<u128>,
) -> impl Iterator<Item = RangeInclusive<u128>> + use<> {
    let (start, end) = (*range.start(), *range.end());
    if end < *hole.start() || *hole.end() < start {
        return [Some(start..=end), None].into_iter().flatten();
    }
    let below = (start < *hole.start()).then(|| start..=*hole.start() - 1);
    let above = (*hole.end() < end).then(|| *hole.end() + 1..=end);
    [below, above].into_iter().flatten()
}

fn range(family: Family, line: &str) -> Option<RangeInclusive<u128>> {
    let (first, last) = ends(family, line)?;
    (first <= last).then_some(first..=last)
}

/// What runs backward keeps back the same addresses: it is clear what was meant.
fn hole(family: Family, line: &str) -> Option<RangeInclusive<u128>> {
    let (first, last) = ends(family, line)?;
    Some(first.min(last)..=first.max(last))
}

fn ends(family: Family, line: &str) -> Option<(u128, u128)> {
    let line = line.trim();
    let (first, last) = if let Some((first, last)) = line.split_once('-') {
        (first.trim().parse().ok()?, last.trim().parse().ok()?)
    } else if let Ok(net) = line.parse::<IpNet>() {
        (net.network(), net.broadcast())
    } else {
        let address: IpAddr = line.parse().ok()?;
        (address, address)
    };
    let fits = Family::of(first) == family && Family::of(last) == family;
    fits.then(|| (number(first), number(last)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(addresses: &[&str], excluded: &[&str]) -> Pool {
        let text = |lines: &[&str]| lines.iter().map(ToString::to_string).collect();
        let spec =
            AddressPoolSpec { addresses: text(addresses), excluded: text(excluded), ..AddressPoolSpec::default() };
        Pool::new(&AddressPool::new("p", spec))
    }

    fn all(pool: &Pool, family: Family) -> Vec<String> {
        let numbers = pool.ranges(family).iter().cloned().flatten();
        numbers.map(|number| family.address(number).to_string()).collect()
    }

    #[test]
    fn cidrs_and_ranges_without_what_is_excluded() {
        let pool = pool(
            &["192.0.2.0/30", "192.0.2.2-192.0.2.6", "2001:db8::10-2001:db8::12"],
            &["192.0.2.0", "192.0.2.3-192.0.2.4", "2001:db8::11/128", "198.51.100.0/24"],
        );
        assert_eq!(all(&pool, Family::V4), ["192.0.2.1", "192.0.2.2", "192.0.2.5", "192.0.2.6"]);
        assert_eq!(all(&pool, Family::V6), ["2001:db8::10", "2001:db8::12"]);
        assert!(pool.contains("192.0.2.5".parse().unwrap()) && !pool.contains("192.0.2.3".parse().unwrap()));
    }

    #[test]
    fn an_exclusion_that_runs_backward_keeps_back_the_same_and_one_that_cannot_be_read_is_told() {
        let pool = |excluded| pool(&["192.0.2.1-192.0.2.4", "2001:db8::1-2001:db8::3"], excluded);
        let backward = pool(&["192.0.2.3-192.0.2.2", "2001:db8::2-2001:db8::1"]);
        assert_eq!(all(&backward, Family::V4), ["192.0.2.1", "192.0.2.4"]);
        assert_eq!(all(&backward, Family::V6), ["2001:db8::3"]);
        assert!(backward.bad.is_empty() && backward.unclear.is_empty());
        assert_eq!(&*pool(&["192.0.2.2-2001:db8::2", "192.0.2.4"]).unclear, ["192.0.2.2-2001:db8::2".into()]);
    }

    #[test]
    fn the_search_goes_on_where_it_ended_and_starts_over() {
        let pool = pool(&["192.0.2.1-192.0.2.3"], &[]);
        let next = |last: Option<&str>, taken: &[&str]| {
            let last = last.map(|last| last.parse().unwrap());
            pool.next_free(Family::V4, last, |a| !taken.contains(&a.to_string().as_str())).map(|a| a.to_string())
        };
        assert_eq!(next(None, &[]).unwrap(), "192.0.2.1");
        assert_eq!(next(Some("192.0.2.1"), &[]).unwrap(), "192.0.2.2");
        assert_eq!(next(Some("192.0.2.3"), &[]).unwrap(), "192.0.2.1");
        assert_eq!(next(Some("192.0.2.2"), &["192.0.2.3"]).unwrap(), "192.0.2.1");
        assert_eq!(next(Some("192.0.2.2"), &["192.0.2.1", "192.0.2.2", "192.0.2.3"]), None);
        assert_eq!(next(Some("203.0.113.9"), &[]).unwrap(), "192.0.2.1", "the pool was edited");
    }

    #[test]
    fn a_whole_v6_network_is_searched_at_once() {
        let pool = pool(&["::/0"], &["::"]);
        assert_eq!(pool.next_free(Family::V6, None, |_| true).unwrap().to_string(), "::1");
        assert_eq!(
            pool.next_free(Family::V6, Some(Ipv6Addr::from(u128::MAX).into()), |_| true),
            Some(Ipv6Addr::from(1).into())
        );
    }
}
