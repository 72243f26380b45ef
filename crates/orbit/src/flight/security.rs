//! What the security group of the Nodes must let through, and which ports must have it.

use std::collections::BTreeSet;

use groundcrew_core::provider::{Device, Direction, Family, NewRule, Port, Remote, Rule, SecurityGroup};
use ipnet::IpNet;

use super::fleet::{Member, Tie};

/// On every rule that we make.
pub(crate) const DESCRIPTION: &str = "pods; made by groundcrew flight";

/// The rules that the group lacks for pods to reach each other.
#[must_use]
pub fn missing_rules(group: &SecurityGroup, pod_ranges: &[IpNet]) -> Vec<NewRule> {
    let wanted = pod_ranges.iter().flat_map(|range| {
        let icmp = if family(range) == Family::V4 { "icmp" } else { "ipv6-icmp" };
        ["tcp", "udp", icmp].map(|protocol| NewRule {
            direction: Direction::Ingress,
            protocol: Some(protocol.to_owned()),
            ports: None,
            range: range.trunc(),
            description: DESCRIPTION.to_owned(),
        })
    });
    wanted.filter(|wanted| !group.rules.iter().any(|rule| covers(rule, wanted))).collect()
}

/// Whether a rule lets all of it through, and perhaps more.
fn covers(rule: &Rule, wanted: &NewRule) -> bool {
    let protocol = match (&rule.protocol, &wanted.protocol) {
        (None, _) => true,
        (Some(has), Some(wants)) => number(has) == number(wants),
        (Some(_), None) => false,
    };
    let ports = match rule.ports {
        None => true,
        // Of ICMP these would be a type and a code.
        Some((first, last)) => first <= 1 && last == 65_535 && !is_icmp(rule),
    };
    let remote = match &rule.remote {
        Remote::Anyone => true,
        Remote::Range(range) => range.contains(&wanted.range),
        Remote::Others(_) => false,
    };
    rule.direction == wanted.direction && rule.family == family(&wanted.range) && protocol && ports && remote
}

fn is_icmp(rule: &Rule) -> bool {
    rule.protocol.as_deref().is_some_and(|protocol| matches!(number(protocol), "1" | "58"))
}

/// Clouds take names and numbers, and have more than one name for some.
fn number(protocol: &str) -> &str {
    match protocol {
        "icmp" => "1",
        "tcp" => "6",
        "udp" => "17",
        "ipv6-icmp" | "icmpv6" => "58",
        other => other,
    }
}

fn family(range: &IpNet) -> Family {
    match range {
        IpNet::V4(_) => Family::V4,
        IpNet::V6(_) => Family::V6,
    }
}

/// The ports of the cluster's servers that lack the group. A port of which the cloud does not tell the groups, or that cannot
/// have any, is left alone; so is one on a network on which no Node has its address, as for storage: it is not ours to open.
pub fn bare_ports<'a>(
    ports: &'a [Port],
    fleet: &'a [Member<'a>],
    group: &'a str,
) -> impl Iterator<Item = (Member<'a>, &'a Port)> {
    let owned = move |port: &'a Port| Some((*owner(port, fleet)?, port));
    let is_nodes = |member: &Member<'_>, port: &Port| {
        member.node.is_some_and(|node| port.addresses.iter().any(|own| node.addresses.contains(&own.address)))
    };
    let inhabited = ports.iter().filter_map(owned).filter(move |(member, port)| is_nodes(member, port));
    let inhabited: BTreeSet<_> = inhabited.map(|(_, port)| port.network.as_str()).collect();
    ports.iter().filter_map(owned).filter(move |(member, port)| {
        let lacks = port.groups.as_ref().is_some_and(|groups| !groups.iter().any(|id| id == group));
        let can = port.secured && inhabited.contains(port.network.as_str());
        lacks && can && !member.node.is_some_and(|node| node.paused)
    })
}

/// Whose port it is, of the cluster's servers, which come in the order of their ids.
fn owner<'a>(port: &Port, fleet: &'a [Member<'a>]) -> Option<&'a Member<'a>> {
    let Device::Server(server) = &port.device else { return None };
    let at = fleet.binary_search_by(|member| member.instance.id.as_str().cmp(server)).ok()?;
    fleet.get(at).filter(|member| !matches!(member.tie, Tie::Disputed | Tie::Theirs))
}
