use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use serde_json::Value;

/// Who has which address, as kube-ovn keeps it: in memory, by the name of the object.
#[derive(Debug, Default)]
pub(super) struct Ipam {
    holders: BTreeMap<IpAddr, BTreeSet<String>>,
}

impl Ipam {
    pub(super) fn occupy(&mut self, name: &str, address: IpAddr) {
        self.holders.entry(address).or_default().insert(name.to_owned());
    }

    pub(super) fn of(&self, name: &str) -> Vec<IpAddr> {
        self.holders.iter().filter(|(_, names)| names.contains(name)).map(|(address, _)| *address).collect()
    }

    pub(super) fn free(&mut self, name: &str) {
        for names in self.holders.values_mut() {
            names.remove(name);
        }
        self.holders.retain(|_, names| !names.is_empty());
    }

    /// One address of each family that the Subnet has. `None`: taken, outside, or none is left.
    pub(super) fn assign(&mut self, name: &str, subnet: &Value, asked: Option<&str>) -> Option<Vec<IpAddr>> {
        let asked: Option<IpAddr> = asked.and_then(|text| text.parse().ok());
        let excluded = excluded(subnet);
        let mut found = Vec::new();
        for cidr in subnet["cidrBlock"].as_str()?.split(',') {
            let (first, last, v4) = bounds(cidr.trim())?;
            let in_range = |address: &IpAddr| address.is_ipv4() == v4 && (first..=last).contains(&number(*address));
            let is_free = |address: &IpAddr| {
                self.holders.get(address).is_none_or(|names| names.len() == 1 && names.contains(name))
            };
            let address = match asked {
                // Excluded or not: who asks by number gets it.
                Some(asked) if asked.is_ipv4() == v4 => Some(asked).filter(|a| in_range(a) && is_free(a)),
                _ => {
                    let usable = (first + 1..last).map(|number| address(number, v4));
                    usable.into_iter().find(|a| is_free(a) && !excluded.iter().any(|(a0, a1)| (a0..=a1).contains(&a)))
                }
            };
            found.push(address?);
        }
        for address in &found {
            self.occupy(name, *address);
        }
        Some(found)
    }
}

fn excluded(subnet: &Value) -> Vec<(IpAddr, IpAddr)> {
    let gateways = subnet["gateway"].as_str().into_iter().flat_map(|text| text.split(','));
    let excluded = subnet["excludeIps"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let ranges = excluded.chain(gateways).filter_map(|text| {
        let (first, last) = text.split_once("..").unwrap_or((text, text));
        Some((first.trim().parse().ok()?, last.trim().parse().ok()?))
    });
    ranges.collect()
}

fn bounds(cidr: &str) -> Option<(u128, u128, bool)> {
    let (base, length) = cidr.split_once('/')?;
    let (base, length): (IpAddr, u32) = (base.parse().ok()?, length.parse().ok()?);
    let width = if base.is_ipv4() { 32 } else { 128 };
    let size = 1_u128.checked_shl(width - length)?;
    let first = number(base) / size * size;
    Some((first, first + size - 1, base.is_ipv4()))
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u32::from(address).into(),
        IpAddr::V6(address) => address.into(),
    }
}

fn address(number: u128, v4: bool) -> IpAddr {
    if v4 {
        Ipv4Addr::from(u32::try_from(number).unwrap_or(u32::MAX)).into()
    } else {
        std::net::Ipv6Addr::from(number).into()
    }
}
